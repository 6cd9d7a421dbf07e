"""How soon each environment is solved, from its own configuration: seconds of training, over seeds.

An environment is solved where the mean score of the last finished training episodes (100, or one for each agent where
there are more) reaches the threshold in its header, which gives the reason for it. It counts only where the evaluation
after the run, on new episodes, is above the threshold, too. A noisy mean may cross a threshold some time before it
stays above it. The curves in docs/images/learning_curves.png show how much. Environments that are left out keep their
earlier runs. Every run is a process of its own, one at a time, with all cores.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import machine

from protein.config.resolve import load
from protein.trainer.environments import spec

# Environments, and the seeds that each is run with.
SEEDS = {
    "pong": 10,
    "breakout": 5,
    "cartpole": 5,
    "gym:CartPole-v1": 5,
    "snake": 3,
    "g2048": 3,
    "memory": 5,
    "maze": 3,
    "pendulum": 3,
    "entities": 3,
}
POINTS = 60  # of a curve that is kept


def solve(name: str, seed: int) -> dict[str, Any]:
    """Trains one environment; returns when the training score reached the threshold and how it ended."""
    target = spec(name).solved_score
    # A measurement in every iteration, so that the moment is known exactly.
    code = (
        "import runpy, protein.trainer.ppo.training as training\n"
        "training.REPORT_SECONDS = training.REPORT_FRACTION = 0\n"
        "runpy.run_module('protein.trainer', run_name='__main__')\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(load(name).run_config().to_dict()))
        command = [sys.executable, "-c", code, "--config", str(config), "--train.seed", str(seed)]
        # As the trainer sets it itself, where it is not too late for that.
        environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=machine.ROOT, check=True, env=environment)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    curve = [e for e in events if e["event"] == "measurement" and e["score"] is not None]
    reached = next((e for e in curve if e["score"] >= target), None)
    result = events[-1]
    stride = max(1, math.ceil(len(curve) / POINTS))
    return {
        "environment": name,
        "commit": machine.commit(),
        "seed": seed,
        "target": target,
        "solved_seconds": round(reached["elapsed_seconds"], 2) if reached else None,
        "solved_steps": reached["steps"] if reached else None,
        "seconds": round(result["elapsed_seconds"], 2),
        "steps": result["steps"],
        "train_score": round(result["metrics"]["train_score"], 3),
        "evaluation_score": round(result["score"], 3),
        "solved": reached is not None and result["score"] >= target,
        "curve": [
            [e["steps"], round(e["elapsed_seconds"], 2), round(e["score"], 3)]
            for e in [*curve[::stride], *([curve[-1]] if curve else [])]
        ],
    }


def draw(runs: list[dict[str, Any]]) -> None:
    """Draws score against seconds, one panel an environment, one line a seed, the threshold dashed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(run["environment"] for run in runs))
    columns = min(4, len(names))
    rows = math.ceil(len(names) / columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(3.2 * columns, 2.6 * rows), squeeze=False)
    for panel, name in zip(axes.flat, names, strict=False):
        for run in (run for run in runs if run["environment"] == name):
            panel.plot([p[1] for p in run["curve"]], [p[2] for p in run["curve"]], color="#0072b2", alpha=0.6, lw=1)
        panel.axhline(run["target"], color="#d55e00", ls="--", lw=1)
        panel.set_title(f"{name} (dashed: {run['target']:g})", fontsize=9)
        panel.tick_params(labelsize=7)
    for panel in axes.flat[len(names) :]:
        panel.axis("off")
    figure.supxlabel("seconds of training", fontsize=9)
    figure.supylabel("score, mean of the last episodes", fontsize=9)
    figure.tight_layout()
    figure.savefig(machine.ROOT / "docs" / "images" / "learning_curves.png", dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", default=list(SEEDS), choices=list(SEEDS))
    parser.add_argument("--seeds", type=int, help="instead of each environment's own number")
    parser.add_argument("--no-result", action="store_true", help="only print the table")
    arguments = parser.parse_args()

    print(f"solving: {machine.headline()}")
    print("seconds of training until the threshold, over seeds; evaluation on fresh episodes\n")
    print(f"{'environment':<18}{'target':>8}{'solved':>9}{'median s':>10}{'min':>8}{'max':>8}", end="")
    print(f"{'M steps':>9}{'evaluation':>22}")
    for name in arguments.envs:
        own = []
        for seed in range(arguments.seeds or SEEDS[name]):
            own.append(solve(name, seed))
            print(f"\r{name}: seed {seed} done", end="", file=sys.stderr, flush=True)
        print("\r\033[K", end="", file=sys.stderr, flush=True)
        seconds = [run["solved_seconds"] for run in own if run["solved"]]
        scores = [run["evaluation_score"] for run in own]
        print(f"{name:<18}{own[0]['target']:>8g}{f'{len(seconds)} of {len(own)}':>9}", end="")
        if seconds:
            steps = statistics.median(run["solved_steps"] for run in own if run["solved"]) / 1e6
            print(f"{statistics.median(seconds):>10.1f}{min(seconds):>8.1f}{max(seconds):>8.1f}{steps:>9.2f}", end="")
        else:
            print(f"{'-':>10}{'-':>8}{'-':>8}{'-':>9}", end="")
        print(f"{f'{min(scores):.2f} to {max(scores):.2f}':>22}", flush=True)
        if not arguments.no_result:
            keep(own)
    if not arguments.no_result:
        print("\nwritten to benchmarks/results/solve.json and docs/images/learning_curves.png")


def keep(runs: list[dict[str, Any]]) -> None:
    """Replaces the earlier runs of one environment, in the result and in the picture."""
    path = machine.RESULTS / "solve.json"
    before = json.loads(path.read_text())["rows"] if path.exists() else []
    runs = runs + [run for run in before if run["environment"] != runs[0]["environment"]]
    runs.sort(key=lambda run: (list(SEEDS).index(run["environment"]), run["seed"]))
    machine.write_result("solve", runs)
    draw(runs)


if __name__ == "__main__":
    main()
