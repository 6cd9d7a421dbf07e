"""Which options of the trainer pay: each one switched on in many environments, and tuned there like the default.

A side is an environment's own file with one option changed; the side `base` changes nothing. Where a file has an option
on because of these runs, `BASE` turns it off, so that it can be measured again. Every side of every environment gets

  1. its own short sweep of the step size and of the steps, by the engine (`TRIALS` trials, even seeds), and
  2. runs with the recommended step size at the full length, with the odd seeds, which alone are reported, and
  3. where it was better than the base at equal steps, but its steps cost more CPU seconds: the same runs again with
     fewer steps, so that both cost the same.

The full length is one of seconds, short enough that the base has not reached the end of the scale. Sides take turns
within each round, so that a busy moment of the machine affects all of them. Every run has one thread, and its cost is
the CPU seconds of its process. Scores are normalised: 0 is a policy that has not learnt, 1 is the solved score.

    python benchmarks/ablate.py --budget 2h         # goes on where the last call ended
    python benchmarks/ablate.py --envs pong --options muon vtrace --seeds 2
    python benchmarks/ablate.py --table             # only prints what is known (`ablate_table.py`)

Each run is a line of benchmarks/results/ablate.jsonl, written when it has ended. The order gives something early: all
options, environment by environment, the cheapest first, with two seeds; further seeds later.
"""

import argparse
import dataclasses
import json
import math
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ablate_table
import machine

from protein import Float, Integer, Protein, Space
from protein.config.resolve import load
from protein.trainer.config import RunConfig, TrainConfig
from protein.trainer.environments import spec
from protein.trainer.errors import ConfigError, TrainerError
from protein.trainer.events import Event
from protein.trainer.run import run
from protein.units import parse_duration

FILE = machine.RESULTS / "ablate.jsonl"
TRIALS = 8  # of a side's sweep
SHARE = 0.6  # of the cost of as many full runs, which a sweep may cost
SEEDS = (1, 3, 5, 7, 9)
ROUNDS = (2, 5)  # seeds of every environment before any of the next round
RATE_FACTOR = 4.0  # the step size is searched from a quarter of the file's to four times as much
EVAL_EPISODES = 64
SAME_COST = 1.05  # below this ratio of CPU seconds a step, a side makes as many steps as the base


@dataclasses.dataclass(frozen=True, slots=True)
class Game:
    """An environment: the steps of a full run, and the largest discounted return, for distributional values."""

    steps: int
    largest_return: float


GAMES = {
    "cartpole": Game(100_000, 50.0),
    "pong": Game(400_000, 10.0),
    "snake": Game(400_000, 20.0),
    "pendulum": Game(250_000, 400.0),
    "memory": Game(1_000_000, 2.0),
    "maze": Game(1_000_000, 2.0),
    "breakout": Game(1_000_000, 50.0),
    "g2048": Game(500_000, 100.0),
    "entities": Game(500_000, 50.0),
    "gym:CartPole-v1": Game(100_000, 50.0),
}
# Those that this version does not know are left out. Runs of options that are gone stay in the file and the table.
OPTIONS: dict[str, dict[str, Any]] = {
    "base": {},
    "vtrace": {"train.advantage": "vtrace"},
    "muon": {"train.optimizer": "muon"},
    "value bins": {"policy.value_bins": 51},
    "value clip": {"train.vf_clip_coef": 0.2},
    "no advantage normalisation": {"train.normalize_advantages": False},
    "overlap": {"train.overlap": True},
    "mingru": {"policy.recurrence": "mingru"},
    "lstm": {"policy.recurrence": "lstm"},
    "none": {"policy.recurrence": "none"},
    "normalised observations": {"train.normalize_observations": "on"},
    "scaled rewards": {"train.reward_scaling": "return"},
    "target KL": {"train.target_kl": 0.02},
    "separate value": {"policy.separate_value": True},
    "tanh": {"policy.activation": "tanh"},
    "warm-up, stable, decay": {"train.lr_schedule": "wsd"},
    "entropy bonus to 0": {"train.ent_coef_final": 0.0},
    "reward clip": {"train.reward_clip": 1.0},
}


BASE = {"policy.value_bins": 0, "train.normalize_advantages": True, "train.normalize_observations": "auto"}


def sides(name: str) -> dict[str, dict[str, Any]]:
    """Returns the options that change something in an environment's file and are known to this version's settings."""
    config = load(name).run_config().to_dict()
    found = {}
    for option, changes in OPTIONS.items():
        values = {key: BASE.get(key, config[key.split(".")[0]].get(key.split(".")[1])) for key in changes}
        if None not in values.values() and (option == "base" or values != changes):
            found[option] = dict(changes)
    if "value bins" in found:
        found["value bins"]["policy.value_limit"] = GAMES[name].largest_return
    return {option: changes for option, changes in found.items() if _allowed(name, changes)}


def _allowed(name: str, changes: Mapping[str, Any]) -> bool:
    """Whether the environment's policy can have an option: a recurrent one has no separate value, for example."""
    try:
        settings(name, changes, steps=1, rate=None, seed=0)
    except ConfigError:
        return False
    return True


def settings(name: str, changes: Mapping[str, Any], *, steps: int, rate: float | None, seed: int) -> RunConfig:
    """Returns the environment's file with the changes of a side, for one run."""
    nested = load(name).run_config().to_dict()
    fixed = {
        "train.threads": 1,
        "train.device": "cpu",
        "train.checkpoint_seconds": 0.0,
        "train.total_timesteps": steps,
        "train.seed": seed,
    }
    if rate is not None:
        fixed["train.learning_rate"] = rate
    for key, value in {**fixed, **BASE, **changes}.items():
        section, field = key.split(".")
        nested[section][field] = value
    evaluation = nested["eval"]
    evaluation["num_envs"] = min(evaluation["num_envs"], EVAL_EPISODES)
    evaluation["episodes"] = EVAL_EPISODES
    return RunConfig.from_dict(nested)


def train(config: RunConfig) -> dict[str, Any]:
    """Trains in this process; returns score, steps and the CPU seconds of the training, or why it failed."""
    clock: list[float] = []

    def keep(event: Event) -> None:
        if event["event"] in ("start", "measurement"):
            clock.append(time.process_time())

    began = time.perf_counter()
    try:
        result = run(config, directory=None, report=keep)
    except TrainerError as error:
        return {"score": None, "failed": str(error)}
    return {
        "score": result.score,
        "steps": result.steps,
        "cpu_seconds": round(clock[-1] - clock[0], 3),
        "seconds": round(time.perf_counter() - began, 2),
    }


class Ablation:
    """The runs that are known, and those that are to come."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._commit = machine.commit()  # of the code that is loaded, whatever is changed during the runs
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        if path.is_file():
            for line in path.read_text(encoding="utf-8").splitlines():
                self._add(json.loads(line))

    def _add(self, row: dict[str, Any]) -> None:
        """Keeps a line, unless full runs had another length then: it says nothing about those of now."""
        if row["full"] == GAMES[row["env"]].steps:
            self.rows[row["env"], row["option"], row["part"], row["number"]] = row

    def _run(self, name: str, option: str, part: str, number: int, config: RunConfig) -> None:
        """Makes a run and keeps its line."""
        train_config: TrainConfig = config.train
        found = train(config)
        row = {"env": name, "option": option, "part": part, "number": number, "rate": train_config.learning_rate}
        row["full"] = GAMES[name].steps
        row |= {"seed": train_config.seed, "asked": train_config.total_timesteps, **found}
        row |= {"load": round(os.getloadavg()[0], 1), "commit": self._commit}
        self._add(row)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def has(self, name: str, option: str, part: str, number: int) -> bool:
        return (name, option, part, number) in self.rows

    def chance(self, name: str) -> float:
        """Returns the score of a policy that has not learnt: after one iteration with almost no step size."""
        if not self.has(name, "base", "untrained", 0):
            config = settings(name, {}, steps=1, rate=1e-12, seed=0)
            self._run(name, "base", "untrained", 0, config)
        return float(self.rows[name, "base", "untrained", 0]["score"])

    def normalised(self, name: str, score: float) -> float:
        low = self.chance(name)
        return (score - low) / (spec(name).solved_score - low)

    def engine(self, name: str, option: str) -> Protein:
        """Returns the engine of a side's sweep, with the trials so far. Costs are shares of a full run."""
        own = load(name).run_config().train.learning_rate
        game = GAMES[name]
        space = Space(
            [
                Float("rate", own / RATE_FACTOR, own * RATE_FACTOR, scale="log"),
                Integer("steps", game.steps // 4, game.steps, scale="log"),
            ],
            cost_parameter="steps",
        )
        start = {"rate": own, "steps": game.steps // 2}
        engine = Protein(space, seed=0, budget_seconds=SHARE * TRIALS, max_trials=TRIALS, start=start)
        for number in range(TRIALS):
            row = self.rows.get((name, option, "trial", number))
            if row is None:
                break
            params = {"rate": row["rate"], "steps": row["asked"]}
            cost = row["asked"] / game.steps
            if row["score"] is None:
                engine.observe(params, failed="diverged", cost_seconds=cost)
            else:
                engine.observe(params, score=self.normalised(name, row["score"]), cost_seconds=cost)
        return engine

    def trial(self, name: str, option: str, changes: Mapping[str, Any], number: int) -> bool:
        """Makes a trial of a side's sweep; False: it is known, or the sweep's budget is spent."""
        if self.has(name, option, "trial", number) or (number and not self.has(name, option, "trial", number - 1)):
            return False
        suggestion = self.engine(name, option).suggest()
        if suggestion is None:
            return False
        params = suggestion.params
        config = settings(name, changes, steps=int(params["steps"]), rate=float(params["rate"]), seed=2 * number)
        self._run(name, option, "trial", number, config)
        return True

    def cost_ratio(self, name: str, option: str) -> float:
        """Returns CPU seconds a step beside those of the base: medians of the sweeps' trials, which took turns."""

        def a_step(of: str) -> float:
            rows = [row for key, row in self.rows.items() if key[:3] == (name, of, "trial")]
            each: list[float] = [row["cpu_seconds"] / row["steps"] for row in rows if row["score"] is not None]
            return statistics.median(each)

        try:
            return a_step(option) / a_step("base")
        except statistics.StatisticsError:  # all of its trials have failed
            return 1.0

    def final(self, name: str, option: str, changes: Mapping[str, Any], seed: int, *, same_cost: bool) -> bool:
        """Makes a run of the recommended step size; False: it is known, or not worth making."""
        part, steps = ("cost", self._affordable(name, option)) if same_cost else ("steps", GAMES[name].steps)
        if steps is None or self.has(name, option, part, seed):
            return False
        best = self.engine(name, option).best()
        own = load(name).run_config().train.learning_rate
        rate = own if best is None else float(best.params["rate"])
        self._run(name, option, part, seed, settings(name, changes, steps=steps, rate=rate, seed=seed))
        return True

    def _affordable(self, name: str, option: str) -> int | None:
        """Returns the steps that cost as much as a full run of the base; None: as many, or it was no better anyway."""
        ratio = self.cost_ratio(name, option)
        own, base = (self.scores(name, of, "steps") for of in (option, "base"))
        if ratio < SAME_COST or not own or not base or statistics.mean(own) <= statistics.mean(base):
            return None
        return round(GAMES[name].steps / ratio)

    def scores(self, name: str, option: str, part: str) -> list[float]:
        """Returns the normalised scores of a side's reported runs. One that failed has learnt nothing: 0."""
        rows = [row for key, row in self.rows.items() if key[:3] == (name, option, part)]
        return [0.0 if row["score"] is None else self.normalised(name, row["score"]) for row in rows]

    def sides(self) -> Iterator[ablate_table.Side]:
        """Yields what is known of each side that has reported runs."""
        for name, option in dict.fromkeys(key[:2] for key in self.rows if key[2] == "steps"):
            at_steps = self.scores(name, option, "steps")
            ratio, at_cost = self.cost_ratio(name, option), self.scores(name, option, "cost")
            yield ablate_table.Side(env=name, option=option, at_steps=at_steps, at_cost=at_cost, cost_ratio=ratio)

    def go(self, names: Sequence[str], options: Sequence[str], seeds: int) -> Iterator[str]:
        """Makes all runs, and says after each what it was."""
        until = 0
        for count in sorted({min(count, seeds) for count in (*ROUNDS, seeds)}):
            for name in names:
                of = {option: changes for option, changes in sides(name).items() if option in ("base", *options)}
                self.chance(name)
                for number in range(TRIALS):
                    for option, changes in of.items():
                        if self.trial(name, option, changes, number):
                            yield f"{name}, {option}: trial {number + 1}"
                for same_cost, seeds_now in ((False, SEEDS[until:count]), (True, SEEDS[:count])):
                    for seed in seeds_now:
                        for option, changes in of.items():
                            if self.final(name, option, changes, seed, same_cost=same_cost):
                                yield f"{name}, {option}: seed {seed}{', same cost' if same_cost else ''}"
            until = count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", default=list(GAMES), choices=list(GAMES))
    parser.add_argument("--options", nargs="+", default=list(OPTIONS), choices=list(OPTIONS))
    parser.add_argument("--seeds", type=int, default=len(SEEDS), choices=range(1, len(SEEDS) + 1))
    parser.add_argument("--budget", help="wall clock after which no run is begun, for example 2h")
    parser.add_argument("--file", type=Path, default=FILE)
    parser.add_argument("--table", action="store_true", help="runs nothing, prints the table of what is known")
    arguments = parser.parse_args()
    budget = parse_duration(arguments.budget, "--budget") if arguments.budget else math.inf
    ablation = Ablation(arguments.file)
    began = time.monotonic()
    if not arguments.table:
        for words in ablation.go(arguments.envs, arguments.options, arguments.seeds):
            print(f"{time.monotonic() - began:8.0f} s  {words}", flush=True)
            if time.monotonic() - began >= budget:
                break
    print(ablate_table.markdown(list(ablation.sides())))


if __name__ == "__main__":
    main()
