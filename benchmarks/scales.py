"""Games told in other units (`scaled_twins.py`): do they learn as soon as the games themselves?

Each game is trained from its own configuration, several seeds, in four ways:

    shipped      the game with the settings of its file; our own games are not normalised by these
    treated      the game with observations normalised and rewards scaled: as a well-scaled twin would learn
    twin         the twin, its scale found out by the trainer (`auto` for both)
    untreated    the twin with both off

Counted are the steps until the mean score of the last training episodes reaches the game's threshold; a run ends there.
Scores are those of the game itself in all four. Steps do not depend on how busy the machine is.

pendulum.toml weighs the value loss by .02 because the game's own rewards are large. Where rewards are scaled the weight
is that of default.toml, .5.
"""

import argparse
import json
import statistics
import threading
import time
from typing import Any

import machine

from protein.config.resolve import load
from protein.trainer import progress
from protein.trainer.config import RunConfig
from protein.trainer.environments import spec
from protein.trainer.events import Event
from protein.trainer.run import run

GAMES = ("cartpole", "pong", "pendulum")
WAYS: dict[str, tuple[str, str]] = {  # train.normalize_observations, train.reward_scaling
    "shipped": ("off", "off"),
    "treated": ("on", "return"),
    "twin": ("auto", "auto"),
    "untreated": ("off", "off"),
}


def config_of(game: str, way: str, seed: int) -> RunConfig:
    """Returns the game's own configuration, treated in one of the four ways."""
    config = load(game).run_config()
    observations, rewards = WAYS[way]
    sections = config.to_dict()
    sections["train"] |= {
        "seed": seed,
        "threads": 1,
        "normalize_observations": observations,
        "reward_scaling": rewards,
    }
    if game == "pendulum" and rewards != "off":
        sections["train"]["vf_coef"] = 0.5
    sections["env"]["name"] = game if way in ("shipped", "treated") else f"python:scaled_twins:{game}"
    return RunConfig.from_dict(sections)


def train(game: str, way: str, seed: int) -> dict[str, Any]:
    """Trains until the threshold, or to the end of the run's steps."""
    config = config_of(game, way, seed)
    target, stop, began = spec(game).solved_score, threading.Event(), time.process_time()
    found: dict[str, Any] = {"steps": None, "best": None, "notes": []}

    def follow(event: Event) -> None:
        if event["event"] == "start":
            found["notes"] = event["notes"]
        if event["event"] == "measurement" and event["score"] is not None and found["steps"] is None:
            found["best"] = max(event["score"], event["score"] if found["best"] is None else found["best"])
            if event["score"] >= target:
                found["steps"] = event["steps"]
        if event["event"] == "measurement" and (found["steps"] or event["steps"] >= config.train.total_timesteps):
            stop.set()  # no evaluation

    result = run(config, directory=None, report=follow, stop=stop)
    return {
        "game": game,
        "way": way,
        "seed": seed,
        "commit": machine.commit(),
        "target": target,
        "steps_to_target": found["steps"],
        "best_score": round(found["best"], 3) if found["best"] is not None else None,
        "steps": result.steps,
        "notes": found["notes"],
        "cpu_seconds": round(time.process_time() - began, 1),
    }


def report(rows: list[dict[str, Any]]) -> None:
    """Prints a line for each game and way: how many seeds reached the threshold, and after how many steps."""
    print(
        f"{'game':<10}{'way':<11}{'reached':>9}{'median M':>10}{'min':>8}{'max':>8}{'/ shipped':>11}{'/ treated':>11}"
    )
    for game in GAMES:
        medians: dict[str, float] = {}
        for way in WAYS:
            own = [row for row in rows if (row["game"], row["way"]) == (game, way)]
            steps = [row["steps_to_target"] / 1e6 for row in own if row["steps_to_target"]]
            if not own:
                continue
            print(f"{game:<10}{way:<11}{f'{len(steps)} of {len(own)}':>9}", end="")
            if not steps:
                best = max((row["best_score"] for row in own if row["best_score"] is not None), default=float("nan"))
                print(f"   best score {best:g} of {own[0]['target']:g}")
                continue
            medians[way] = statistics.median(steps)
            print(f"{medians[way]:>10.3f}{min(steps):>8.3f}{max(steps):>8.3f}", end="")
            for base in ("shipped", "treated"):
                print(f"{medians[way] / medians[base]:>11.2f}" if base in medians else f"{'-':>11}", end="")
            print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", default=list(GAMES), choices=GAMES)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--no-result", action="store_true", help="only print the table")
    arguments = parser.parse_args()
    progress.REPORT_SECONDS = progress.REPORT_FRACTION = 0.0  # each iteration, so that the step is known exactly
    path = machine.RESULTS / "scales.json"
    kept: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else []
    for seed in arguments.seeds:
        for game in arguments.games:
            for way in arguments.ways:
                row = train(game, way, seed)
                print(json.dumps(row), flush=True)
                kept = [old for old in kept if any(old[key] != row[key] for key in ("game", "way", "seed"))] + [row]
                if not arguments.no_result:
                    machine.write_result("scales", kept)
    print(f"\n{machine.headline()}\n")
    report(kept)


if __name__ == "__main__":
    main()
