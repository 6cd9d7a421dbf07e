"""How soon each environment is solved, from its own configuration: seconds of training, over seeds.

An environment is solved where the mean score of the last finished training episodes (100, or one for each agent where
there are more) reaches its goal (`goals.py`). It counts only where the evaluation after the run, on new episodes, is
above the goal, too. A noisy mean may cross the goal some time before it stays above it. The curves in
docs/images/learning_curves.png show how much. Every run is a process of its own, one at a time, with all cores.

Runs are kept one by one in benchmarks/results/solve.json. `--missing` makes only those that are not there yet for the
configuration as it is. Runs of an environment's earlier configuration go when the first one of the new one is kept;
environments that are left out keep theirs. The configurations of environments of others were chosen on seeds 0 to 4,
and their runs here have seeds 5 to 9 (Hopper's 6 to 10: seed 5 helped to choose).
"""

import argparse
import json
import statistics
import sys
from typing import Any

import machine
import measured_run
from curves import draw
from goals import goal

# Environments, and the seeds that each is run with.
SEEDS = {
    "pong": range(10),
    "breakout": range(5),
    "cartpole": range(5),
    "gym:CartPole-v1": range(5),
    "snake": range(3),
    "g2048": range(3),
    "memory": range(5),
    "maze": range(3),
    "pendulum": range(3),
    "entities": range(3),
    "gym:LunarLander-v3": range(5, 10),
    "gym:HalfCheetah-v5": range(5, 10),
    "gym:BipedalWalker-v3": range(5, 10),
    "gym:Hopper-v5": range(6, 11),
    "gym:MiniGrid-DoorKey-8x8-v0": range(5, 10),
    "pettingzoo:mpe2.simple_spread_v3": range(5, 10),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", default=list(SEEDS), choices=list(SEEDS))
    parser.add_argument("--seeds", type=int, nargs="+", help="instead of each environment's own")
    parser.add_argument("--threads", type=int, default=0, help="of a run; 0: one for each core (default)")
    parser.add_argument("--missing", action="store_true", help="only the runs that the result does not have yet")
    parser.add_argument("--no-result", action="store_true", help="only print the table")
    arguments = parser.parse_args()

    print(f"solving: {machine.headline()}")
    print("seconds of training until the goal, over seeds, and without the wait for other programs; evaluation on")
    print("fresh episodes\n")
    print(f"{'environment':<24}{'goal':>8}{'solved':>9}{'median s':>10}{'min':>8}{'max':>8}", end="")
    print(f"{'no wait':>9}{'M steps':>9}{'evaluation':>24}")
    for name in arguments.envs:
        seeds = list(arguments.seeds or SEEDS[name])
        own = kept(name, arguments.threads, seeds) if arguments.missing else []
        for seed in (seed for seed in seeds if seed not in {run["seed"] for run in own}):
            run = measured_run.train(name, seed, goal(name), threads=arguments.threads)
            own.append(run)
            print(f"\r{name}: seed {seed} done", end="", file=sys.stderr, flush=True)
            if not arguments.no_result:
                keep(run)
        print("\r\033[K", end="", file=sys.stderr, flush=True)
        print(line(own), flush=True)
    if not arguments.no_result:
        print("\nwritten to benchmarks/results/solve.json and docs/images/learning_curves.png")


def line(runs: list[dict[str, Any]]) -> str:
    """Returns an environment's line of the table."""
    solved = [run for run in runs if run["solved"]]
    scores = [run["evaluation_score"] for run in runs]
    text = f"{runs[0]['environment']:<24}{runs[0]['target']:>8g}{f'{len(solved)} of {len(runs)}':>9}"
    if solved:
        seconds = [run["solved_seconds"] for run in solved]
        calm = statistics.median(run["solved_seconds"] - run.get("solved_waited_seconds", 0.0) for run in solved)
        steps = statistics.median(run["solved_steps"] for run in solved) / 1e6
        text += f"{statistics.median(seconds):>10.1f}{min(seconds):>8.1f}{max(seconds):>8.1f}{calm:>9.1f}{steps:>9.2f}"
    else:
        text += f"{'-':>10}{'-':>8}{'-':>8}{'-':>9}{'-':>9}"
    return text + f"{f'{min(scores):.2f} to {max(scores):.2f}':>24}"


def rows() -> list[dict[str, Any]]:
    """Returns the runs that the result has."""
    path = machine.RESULTS / "solve.json"
    found: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else []
    return found


def kept(name: str, threads: int, seeds: list[int]) -> list[dict[str, Any]]:
    """Returns the runs of an environment that the result has for its configuration as it is."""
    config = measured_run.digest(measured_run.settings_of(name, threads))
    return [run for run in rows() if (run["environment"], run.get("config")) == (name, config) and run["seed"] in seeds]


def keep(run: dict[str, Any]) -> None:
    """Adds a run to the result and the picture, in place of an earlier one with its seed."""

    def stays(other: dict[str, Any]) -> bool:
        if other["environment"] != run["environment"]:
            return True
        return bool(other.get("config") == run["config"] and other["seed"] != run["seed"])

    runs = [run, *(other for other in rows() if stays(other))]
    runs.sort(key=lambda run: (list(SEEDS).index(run["environment"]), run["seed"]))
    machine.write_result("solve", runs)
    drawn = [{**run, "method": "ours", "goal": run["target"]} for run in runs]
    draw(machine.ROOT / "docs" / "images" / "learning_curves.png", drawn, {"ours": "#0072b2"})


if __name__ == "__main__":
    main()
