"""How fast the default policy trains on pong, where the time goes, and how soon pong is solved.

    python benchmarks/trainer.py [--runs 3] [--seeds 5]

Every figure comes from runs of `python -m trainer` with `configs/pong.toml`, read off the events that it reports. A
step is one decision of the policy. The baseline, measured in the same run, is the processor's matrix product: the
fraction of it that training reaches counts 2 operations a weight for acting and 6 a weight and epoch for the update.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
import tomllib
from typing import Any

import machine
import torch

SOLVED = 20.0  # mean score over the last 100 episodes, of 21
CONFIG = machine.ROOT / "configs" / "pong.toml"


def train(*flags: str) -> list[dict[str, Any]]:
    """Returns the events of one run."""
    command = [sys.executable, "-m", "trainer", "--config", str(CONFIG), *flags]
    done = subprocess.run(command, cwd=machine.ROOT, check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def matrix_product_flops(threads: int) -> float:
    """Returns the operations a second of a large float32 product, the best of several."""
    torch.set_num_threads(threads)
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    best = 0.0
    for _ in range(10):
        began = time.perf_counter()
        torch.mm(a, b)
        best = max(best, 2 * 2048**3 / (time.perf_counter() - began))
    return best


def speed(threads: int, runs: int, epochs: int) -> dict[str, Any]:
    """Returns the median speed of several runs, and where the time of the median run went."""
    finished = []
    for seed in range(runs):
        events = train("--train.threads", str(threads), "--train.seed", str(seed))
        last = [event for event in events if event["event"] == "measurement"][-1]
        finished.append((last["steps"] / last["elapsed_seconds"], last, events[0]["parameters"]))
    finished.sort(key=lambda item: item[0])
    rate, last, weights = finished[len(finished) // 2]
    peak = matrix_product_flops(threads)
    parts = {key: value for key, value in last["metrics"].items() if key.endswith("_seconds")}
    return {
        "threads": threads,
        "steps_per_second": round(rate),
        "fraction_of_matrix_product": round(rate * weights * (2 + 6 * epochs) / peak, 3),
        "shares": {key.removesuffix("_seconds"): round(v / last["elapsed_seconds"], 3) for key, v in parts.items()},
    }


def solve(seed: int) -> dict[str, Any]:
    """Returns when a run first had a mean training score of `SOLVED`, and what its final evaluation gave."""
    events = train("--train.seed", str(seed))
    points = [event for event in events if event["event"] == "measurement" and event["score"] is not None]
    first = next((event for event in points if event["score"] >= SOLVED), None)
    return {
        "seed": seed,
        "solved_seconds": None if first is None else round(first["elapsed_seconds"], 2),
        "solved_steps": None if first is None else first["steps"],
        "training_seconds": round(events[-1]["elapsed_seconds"], 2),
        "train_score": round(events[-1]["metrics"]["train_score"], 2),
        "evaluation": round(events[-1]["score"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    epochs = tomllib.loads(CONFIG.read_text())["train"]["update_epochs"]["value"]
    print(machine.headline())
    rows: list[dict[str, Any]] = []
    for threads in dict.fromkeys((1, 2, machine.cores())):
        rows.append(speed(threads, arguments.runs, epochs))
        shares = ", ".join(f"{name} {share:.0%}" for name, share in rows[-1]["shares"].items())
        print(
            f"pong, {threads} threads: {rows[-1]['steps_per_second']:>10,} steps/s, median of {arguments.runs};"
            f" {rows[-1]['fraction_of_matrix_product']:.1%} of the matrix product; {shares}"
        )
    for seed in range(arguments.seeds):
        rows.append(solve(seed))
        print(", ".join(f"{name} {value}" for name, value in rows[-1].items()))
    seconds = [row["solved_seconds"] for row in rows if row.get("solved_seconds") is not None]
    print(f"solved: {len(seconds)} of {arguments.seeds} seeds, median {statistics.median(seconds):.1f} s")
    machine.write_result("trainer", rows, threads=machine.cores())


if __name__ == "__main__":
    main()
