"""Our trainer against Stable-Baselines3's and CleanRL's PPO: steps a second, and seconds until the goal.

    python benchmarks/peers/run.py --envs gym:CartPole-v1 gym:LunarLander-v3 --seeds 5 6 7

    ours     the shipped configuration of the environment
    stable   Stable-Baselines3, with the tuned settings of its zoo
    clean    CleanRL's PPO, written anew by its published settings
    rust     rlox's PPO, with the same settings, where it runs
    modular  skrl's PPO, with the same settings, there

For each environment and seed the methods take turns, so that a busy minute affects all of them. Each run is a process
of its own with the same number of threads. It ends at the goal (`goals.py`), at its published number of steps, or
after `--max-seconds`. A goal is the mean score of the last 100 training episodes of the unchanged game. Seconds are
those of training, without start-up. Beside them stands for how long other programs kept the run from a core.

Every run is kept at once in benchmarks/results/peers.json, and one that is there is not made again: a benchmark that
was stopped goes on. `--again` makes them again.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import machine
import measured_run
from curves import draw
from goals import goal
from peers.settings import CLEAN, RUST, STABLE

METHODS = ("ours", "stable", "clean", "rust", "modular")
COLORS = {
    "ours": "#0072b2",
    "Stable-Baselines3": "#d55e00",
    "CleanRL": "#009e73",
    "rlox": "#cc79a7",
    "skrl": "#e69f00",
}  # by the name of each method
FIGURE = machine.ROOT / "docs" / "images" / "peers.png"
ENVIRONMENTS = tuple(STABLE)
MAX_SECONDS = 600.0


def run(method: str, name: str, seed: int, threads: int, max_seconds: float) -> dict[str, Any]:
    """Makes one run; returns its row."""
    if method == "ours":
        row = measured_run.train(name, seed, goal(name), threads=threads, stop_at_goal=True, max_seconds=max_seconds)
        measured = {
            key: row[key]
            for key in ("solved_seconds", "solved_steps", "seconds", "waited_seconds", "steps", "train_score", "curve")
        }
        measured["score"] = measured.pop("train_score")
    else:
        command = [sys.executable, str(Path(__file__).with_name(f"{method}.py")), "--env", name, "--seed", str(seed)]
        command += ["--goal", str(goal(name)), "--max-seconds", str(max_seconds), "--threads", str(threads)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=machine.ROOT, check=True)
        measured = json.loads(done.stdout.splitlines()[-1])
    return {
        "environment": name,
        "method": method,
        "seed": seed,
        "threads": threads,
        "goal": goal(name),
        "max_seconds": max_seconds,
        "commit": machine.commit(),
        "load": round(os.getloadavg()[0], 1),
        **measured,
    }


def key(row: dict[str, Any]) -> tuple[int, int, int]:
    """Returns what a row is told by, in the order of the result."""
    return ENVIRONMENTS.index(row["environment"]), int(row["seed"]), METHODS.index(row["method"])


def summary(rows: list[dict[str, Any]]) -> str:
    """Returns the table: one line for each environment and method."""
    lines = [
        f"{'environment':<24}{'method':<8}{'solved':>8}{'median s':>10}{'no wait':>9}{'M steps':>9}{'steps/s':>10}"
    ]
    for name in ENVIRONMENTS:
        for method in METHODS:
            own = [row for row in rows if (row["environment"], row["method"]) == (name, method)]
            if not own:
                continue
            solved = [row for row in own if row["solved_seconds"] is not None]
            rate = statistics.median(row["steps"] / max(row["seconds"] - row["waited_seconds"], 1e-9) for row in own)
            text = f"{name:<24}{method:<8}{f'{len(solved)} of {len(own)}':>8}"
            if solved:
                seconds = statistics.median(row["solved_seconds"] for row in solved)
                # A run ends at its goal, so all of its wait was before it.
                calm = statistics.median(max(row["solved_seconds"] - row["waited_seconds"], 0.0) for row in solved)
                steps = statistics.median(row["solved_steps"] for row in solved) / 1e6
                text += f"{seconds:>10.1f}{calm:>9.1f}{steps:>9.2f}"
            else:
                text += f"{'-':>10}{'-':>9}{'-':>9}"
            lines.append(text + f"{rate:>10,.0f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", default=list(ENVIRONMENTS), choices=ENVIRONMENTS)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[5, 6, 7, 8, 9])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--max-seconds", type=float, default=MAX_SECONDS, help="of a run (default: %(default)g)")
    parser.add_argument("--again", action="store_true", help="also runs that the result has")
    parser.add_argument("--table", action="store_true", help="no runs, only the table and the picture of the result")
    arguments = parser.parse_args()
    assert STABLE.keys() == CLEAN.keys()

    print(f"peers: {machine.headline()}\n")
    path = machine.RESULTS / "peers.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else []
    for name in [] if arguments.table else arguments.envs:
        for seed in arguments.seeds:
            for method in arguments.methods:
                this = key({"environment": name, "method": method, "seed": seed})
                if (method in ("rust", "modular") and name not in RUST) or (
                    not arguments.again and this in map(key, rows)
                ):
                    continue
                row = run(method, name, seed, arguments.threads, arguments.max_seconds)
                rows = sorted([row, *(other for other in rows if key(other) != this)], key=key)
                machine.write_result("peers", rows, threads=arguments.threads)
                print(
                    f"{name} {method} seed {seed}: {row['solved_seconds'] or '-'} s, score {row['score']}", flush=True
                )
    names = dict(zip(METHODS, COLORS, strict=True))
    draw(FIGURE, [row | {"method": names[row["method"]]} for row in rows], COLORS, log=True)
    print("\n" + summary([row for row in rows if row["environment"] in arguments.envs]))


if __name__ == "__main__":
    main()
