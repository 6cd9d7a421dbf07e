"""How fast the trainer trains, where its time goes, and how soon pong is solved.

A step is one decision of one agent; skipped frames do not count. Every run is a process of its own, as in a sweep, and
its seconds are those of training: without start-up and evaluation. Figures are medians of RUNS runs, which take turns
over all rows, so that a busy moment of the machine meets them all. Baselines from the same minutes:
  plain   PPO as it is usually written in PyTorch (`trainer_plain.py`), same environment, sizes and hyperparameters
  peak    the rate of a 1024 x 1024 x 1024 float32 product, the better of PyTorch's two libraries, on one thread (the
          update of a small network uses one); the update's rate counts its products alone
"""

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import machine

from trainer.config import RunConfig, load

RUNS = 5
TARGET = 20.0  # mean score over the last 100 episodes at which pong counts as solved
CONFIGS = machine.ROOT / "configs"
PARTS = ("environment", "forward", "advantage", "update")


@dataclasses.dataclass
class Row:
    """One line of the speed table: a configuration and the figures of every run."""

    name: str
    config: Path
    steps: int
    threads: int
    plain: bool = False
    rates: list[float] = dataclasses.field(default_factory=list)
    parts: list[dict[str, float]] = dataclasses.field(default_factory=list)  # ns a step
    startups: list[float] = dataclasses.field(default_factory=list)
    megabytes: float = 0.0

    def run(self) -> None:
        flags = ["--config", str(self.config)]
        if self.plain:
            script = str(machine.ROOT / "benchmarks" / "trainer_plain.py")
            events, peak = read([script, *flags, "--steps", str(self.steps), "--threads", str(self.threads)])
        else:
            flags += ["--train.total-timesteps", str(self.steps), "--train.threads", str(self.threads)]
            flags += ["--eval.episodes", "1", "--eval.num-envs", "1"]
            events, peak = read(["-m", "trainer", *flags])
            last = next(event for event in reversed(events) if event["event"] == "measurement")
            self.parts.append({p: last["metrics"][f"{p}_seconds"] / last["steps"] * 1e9 for p in PARTS})
            self.startups.append(events[0]["startup_seconds"])
        self.rates.append(events[-1]["steps"] / events[-1]["elapsed_seconds"])
        self.megabytes = max(self.megabytes, peak)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    def part(self, name: str) -> float:
        return statistics.median(part[name] for part in self.parts)


def read(arguments: list[str]) -> tuple[list[dict[str, Any]], float]:
    """Runs Python and returns the JSON lines that it prints and the most memory that it had, in MB."""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen([sys.executable, *arguments], stdout=out, cwd=machine.ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"exit code {process.returncode}: {' '.join(arguments)}")
        out.seek(0)
        return [json.loads(line) for line in out], usage.ru_maxrss / 1024


def peak_gflops() -> float:
    """Returns the best rate of a large float32 product on one thread, in GFLOP/s."""
    code = (
        "import torch, time\n"
        "torch.set_num_threads(1)\n"
        "a, best = torch.rand(1024, 1024), 0.0\n"
        "for precision in ('highest', 'medium'):\n"
        "    torch.set_float32_matmul_precision(precision)\n"
        "    for _ in range(20):\n"
        "        start = time.perf_counter()\n"
        "        a @ a\n"
        "        best = max(best, 2 * 1024**3 / (time.perf_counter() - start) / 1e9)\n"
        "print(best)\n"
    )
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def update_gflops(config: RunConfig, features: int, actions: int, seconds_per_step: float) -> float:
    """Returns the rate at which the update does its matrix products: forward, by weights, and by inputs."""
    hidden, layers = config.policy.hidden_size, config.policy.num_layers
    first, middle, head = features * hidden, (layers - 1) * hidden * hidden, hidden * (actions + 1)
    flops = 2 * (2 * first + 3 * middle + 3 * head) * config.train.update_epochs
    return flops / seconds_per_step / 1e9


def solve(seed: int) -> dict[str, Any]:
    """Trains pong from its configuration; returns when the training score reached TARGET and how it ended."""
    # Of every iteration a measurement, so that the moment is known exactly.
    code = (
        "import runpy, trainer.run as run\n"
        "run.REPORT_SECONDS = run.REPORT_FRACTION = 0\n"
        "runpy.run_module('trainer', run_name='__main__')\n"
    )
    events, _ = read(["-c", code, "--config", str(CONFIGS / "pong.toml"), "--train.seed", str(seed)])
    reached = [e for e in events if e["event"] == "measurement" and e["score"] is not None and e["score"] >= TARGET]
    return {
        "seed": seed,
        "solved_seconds": round(reached[0]["elapsed_seconds"], 2) if reached else None,
        "solved_steps": reached[0]["steps"] if reached else None,
        "steps": events[-1]["steps"],
        "seconds": round(events[-1]["elapsed_seconds"], 2),
        "train_score": events[-1]["metrics"]["train_score"],
        "evaluation_score": round(events[-1]["score"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, min(4, machine.cores())}))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--no-result", action="store_true", help="only print the tables")
    arguments = parser.parse_args()

    rows = []
    for name in ("default", "pong"):
        for threads in arguments.threads:
            rows.append(Row(name, CONFIGS / f"{name}.toml", 2_000_000, threads))
            rows.append(Row(f"{name}, plain", CONFIGS / f"{name}.toml", 200_000, threads, plain=True))
    for _ in range(RUNS):
        for row in rows:
            row.run()
    peak = peak_gflops()

    results: list[dict[str, Any]] = []
    print(f"training pong: {machine.headline()}\nmedian of {RUNS} runs; k steps/s; parts in ns a step\n")
    print(
        f"{'configuration':<16}{'threads':>8}{'median':>8}{'min':>7}{'max':>7}{'of plain':>10}{'env':>6}{'fwd':>6}",
        end="",
    )
    print(f"{'adv':>6}{'update':>8}{'other':>7}{'GFLOP/s':>9}{'of peak':>9}{'startup':>9}{'MB':>6}")
    for row in rows:
        plain = max((r.rate for r in rows if r.plain and r.config == row.config), default=None)
        result: dict[str, Any] = {
            "configuration": row.name,
            "threads": row.threads,
            "steps_per_second": round(row.rate),
            "min": round(min(row.rates)),
            "max": round(max(row.rates)),
            "peak_memory_mb": round(row.megabytes),
        }
        print(f"{row.name:<16}{row.threads:>8}{row.rate / 1e3:>8.0f}", end="")
        print(f"{min(row.rates) / 1e3:>7.0f}{max(row.rates) / 1e3:>7.0f}", end="")
        if row.plain:
            print(f"{'':>76}{row.megabytes:>6.0f}")
        else:
            assert plain is not None
            parts = {name: row.part(name) for name in PARTS}
            other = 1e9 / row.rate - sum(parts.values())
            gflops = update_gflops(load(row.config), 8, 3, parts["update"] / 1e9)
            result |= {f"{name}_ns": round(value) for name, value in parts.items()}
            result |= {"of_plain": round(row.rate / plain, 2), "update_gflops": round(gflops, 1)}
            result |= {"of_peak": round(gflops / peak, 3), "startup_seconds": round(statistics.median(row.startups), 2)}
            print(
                f"{row.rate / plain:>10.1f}"
                + "".join(f"{parts[n]:>{w}.0f}" for n, w in zip(PARTS, (6, 6, 6, 8), strict=True)),
                end="",
            )
            print(f"{other:>7.0f}{gflops:>9.0f}{gflops / peak:>9.2f}", end="")
            print(f"{result['startup_seconds']:>9.1f}{row.megabytes:>6.0f}")
        results.append(result)
    print(f"\npeak: {peak:.0f} GFLOP/s on one thread; 'of plain' is against the better of plain's rows\n")

    solved = [solve(seed) for seed in range(arguments.seeds)]
    seconds = sorted(run["solved_seconds"] for run in solved if run["solved_seconds"] is not None)
    print(
        f"pong solved (mean score >= {TARGET:g} over the last 100 episodes) on {len(seconds)} of {len(solved)} seeds",
        end="",
    )
    print(f", median {statistics.median(seconds):.1f} s of training, from {seconds[0]:.1f} to {seconds[-1]:.1f}\n")
    print(f"{'seed':>4}{'solved after s':>16}{'k steps':>9}{'all s':>8}{'k steps':>9}", end="")
    print(f"{'train score':>13}{'evaluation':>12}")
    for run in solved:
        after = (
            (f"{run['solved_seconds']:.1f}", f"{run['solved_steps'] / 1e3:.0f}") if run["solved_steps"] else ("-", "-")
        )
        print(f"{run['seed']:>4}{after[0]:>16}{after[1]:>9}{run['seconds']:>8.1f}{run['steps'] / 1e3:>9.0f}", end="")
        print(f"{run['train_score']:>13.2f}{run['evaluation_score']:>12.2f}")
    if not arguments.no_result:
        path = machine.write_result(
            "trainer", results, threads=arguments.threads, runs=RUNS, peak_gflops=round(peak), solved=solved
        )
        print(f"\nwritten to {path.relative_to(machine.ROOT)}")


if __name__ == "__main__":
    main()
