"""Real sweeps: methods of the comparison on our own trainer, at equal cost.

    python benchmarks/engine/train.py --envs breakout --methods protein tpe gp puffer --seeds 3 --max-cost 20m
    python benchmarks/engine/train.py --envs text/python --config benchmarks/language/sweep.toml --at 30s 60s 120s \
        --methods protein:continuing tpe random --seeds 3 --max-cost 20m

Every sweep has the space and the initial config of its environment, one worker, and the loop, the store and the
trials' processes of `protein sweep`. Only the designer differs. A trial that reaches `--max-trial-cost`, or what is
left of the budget, is stopped there. Costs are seconds of training, so what a method takes to think costs nothing.

Then the configs that were handed over are trained again, with new seeds, on no budget: that of each method (for the
peers the one that measured best) and the one that our recommender takes of the peer's trials.

Figures
    handed over  mean score of the method's config when it is trained again
    its cost     seconds that this config trains, for each seed: as our model expects, for a peer as measured
    judged by us the same of the config that `protein.engine.recommend` takes of its trials
    measured     highest measured score of a trial trained to its end
    area         mean over the budget of the highest score measured so far; before the first, that of the worst trial
                 of all sweeps on this environment
    at 30s       highest measured score of a trial that was trained to its end within 30 s
    volume       hypervolume of (score, log cost), from that worst score and from 1 s to the budget, over the width

Rows are appended to the result file. A sweep that stands there is not run again. One of ours that was cut short is
resumed; one of a peer, which keeps its state in memory, begins anew.
"""

import argparse
import dataclasses
import json
import math
import shutil
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import machine
import numpy as np
from engine.methods import make_method
from engine.protocol import Method

from protein import storage
from protein.api import definition
from protein.config.layers import flatten
from protein.config.resolve import file_name, load
from protein.engine import pareto, recommend, results
from protein.engine.settings import EngineSettings
from protein.ports import Designer, SweepStatus
from protein.run.trainer import TrainerBackend
from protein.space import Space
from protein.sweep.loop import LoopSettings, run_sweep
from protein.sweep.methods import make_designer
from protein.types import (
    Budget,
    Measurement,
    Observation,
    Params,
    Suggestion,
    SuggestionKind,
    SweepRecord,
    TrialRecord,
    TrialState,
)
from protein.units import parse_duration

RESULTS = machine.RESULTS / "engine_trained.jsonl"
_FIRST_SECOND = 1.0


class _Peer:
    """A method of the comparison as a designer. It keeps its state in memory, so no other process can go on with it."""

    def __init__(self, method: Method) -> None:
        self._method, self._num_told = method, 0

    def suggest(
        self, history: Sequence[Observation], running: Sequence[Params], budget: Budget, seed: int
    ) -> Suggestion | None:
        for observation in history[self._num_told :]:
            self._method.tell(observation)
        self._num_told = len(history)
        params = self._method.ask(list(history), budget)
        return None if params is None else Suggestion(params=params, kind=SuggestionKind.SEARCH, origin="a peer")

    def should_stop(
        self, history: Sequence[Observation], params: Params, curve: Sequence[Measurement], seed: int
    ) -> str | None:
        return "stopped by the peer" if self._method.watch(params, tuple(curve)) else None


class _Listed:
    """Tries the given configs in turn."""

    def __init__(self, configs: Sequence[Params]) -> None:
        self._configs = configs

    def suggest(
        self, history: Sequence[Observation], running: Sequence[Params], budget: Budget, seed: int
    ) -> Suggestion | None:
        params = self._configs[len(history)]
        return Suggestion(params=params, kind=SuggestionKind.REEVALUATION, origin="trained again")

    def should_stop(
        self, history: Sequence[Observation], params: Params, curve: Sequence[Measurement], seed: int
    ) -> str | None:
        return None


class _Quiet:
    """Prints a line for each trial."""

    def update(self, status: SweepStatus) -> None:
        pass

    def started(self, trial: TrialRecord) -> None:
        pass

    def finished(self, trial: TrialRecord, status: SweepStatus) -> None:
        score = "no score" if trial.score is None else f"{trial.score:.2f}"
        spent = f"{status.spent_seconds:.0f} s spent"
        print(f"  trial {trial.number}: {trial.state}, {score} in {trial.cost_seconds:.1f} s; {spent}", flush=True)

    def log(self, line: str) -> None:
        print(f"  {line}", flush=True)


def sweep(
    env: str,
    method: str,
    seed: int,
    budget: float,
    cap: float | None,
    folder: Path,
    config: Path | None,
    flags: dict[str, Any],
    num_again: int,
) -> dict[str, Any]:
    """Runs one sweep and trains what it hands over again; returns its row."""
    layers = load(env, config_file=config, flags=flags, for_sweep=True)
    ours, _, options = method.partition(":")
    name = f"{file_name(env)}-{method.replace(':', '-')}-{seed}"
    settings = dataclasses.replace(layers.sweep, seed=seed, method="protein", workers=1)
    spec = definition.define_trainer_sweep(layers, settings, name)
    space, values = Space.from_dict(spec.space), flatten(spec.config)
    start = {key: values[key] for key in space.names}
    designer: Designer = make_designer(
        spec.method, space, start, seed=spec.seed, settings=EngineSettings(early_stopping=settings.early_stopping)
    )
    if ours != "protein":
        designer = _Peer(make_method(method, space, start, seed))
        for file in (f"{name}.db", f"{name}.db-wal", f"{name}.db-shm"):
            (folder / file).unlink(missing_ok=True)
        shutil.rmtree(folder / name, ignore_errors=True)
    store = storage.open_store(str(folder / f"{name}.db"))
    try:
        record = store.find_sweep(name) or store.create_sweep(spec, budget)
        limits = LoopSettings(
            directory=folder / name,
            max_cost_seconds=budget,
            max_trial_seconds=cap,
            can_continue=options == "continuing",
        )
        _run(record, designer, store, limits)
        trials = store.trials(record.id)
        again = _train_again(store, record, trials, folder, num_again, ours == "protein")
    finally:
        store.close()
    return {
        "env": env,
        "method": method,
        "seed": seed,
        "budget": budget,
        "cap": limits.max_trial_seconds,
        **machine.describe(),
        **again,
        "trials": [_plain(trial) for trial in trials],
    }


def _run(record: SweepRecord, designer: Designer, store: Any, limits: LoopSettings) -> None:
    run_sweep(
        record,
        designer=designer,
        store=store,
        backend=TrainerBackend(),
        settings=limits,
        listener=_Quiet(),
        stop=threading.Event(),
    )


def _train_again(
    store: Any, record: SweepRecord, trials: Sequence[TrialRecord], folder: Path, num_again: int, ours: bool
) -> dict[str, Any]:
    """Trains the recommended config and the one that measured best again, and returns their mean scores."""
    done = [trial for trial in trials if trial.state is TrialState.COMPLETE and trial.score is not None]
    space = Space.from_dict(record.spec.space)
    found = results.best(recommend.contenders(space, [trial.observation() for trial in trials if trial.state.finished]))
    if found is None or not done:
        return {"recommended": None, "by_measured": None}
    lucky = max(done, key=lambda trial: trial.score or 0.0)
    configs = [dict(found.params)] * num_again
    same = dict(lucky.params) == dict(found.params)
    configs += [] if same else [dict(lucky.params)] * num_again
    name = f"{record.spec.name}-again"
    spec = dataclasses.replace(record.spec, name=name, seed=record.spec.seed + 1000)
    again = store.find_sweep(name) or store.create_sweep(spec, None)
    _run(again, _Listed(configs), store, LoopSettings(directory=folder / name, max_trials=len(configs)))
    scores = [trial.score for trial in store.trials(again.id)]
    return {
        "ours": ours,
        "recommended": scores[:num_again],
        "by_measured": scores[:num_again] if same else scores[num_again:],
        "recommended_cost": found.expected_cost_seconds,
        "measured": lucky.score,
        "measured_cost": lucky.run_seconds,
    }


def _plain(trial: TrialRecord) -> dict[str, Any]:
    return {
        "params": dict(trial.params),
        "state": trial.state.value,
        "score": trial.score,
        "cost_seconds": round(trial.cost_seconds, 3),
        "run_seconds": round(trial.run_seconds, 3),
        "suggest_seconds": round(trial.suggest_seconds, 3),
        "continues": trial.continues,
    }


def table(rows: Sequence[dict[str, Any]], env: str, at: Sequence[str] = ()) -> list[str]:
    """Returns the table of one environment: means over seeds, and the spread of the config handed over.

    `at` are durations: a column for each shows what was found that trains within it.
    """
    rows = [row for row in rows if row["env"] == env and row["recommended"]]
    if not rows:
        return []
    seen = [t["score"] for row in rows for t in row["trials"] if t["state"] == "complete"]
    low = min(score for score in seen if score is not None)
    names = ["method", "seeds", "handed over", "each seed", "its cost", "judged by us", "measured"]
    names += [*(f"at {t}" for t in at), "area", "volume", "trials", "think"]
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    found = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        handed = [float(np.mean(row["recommended" if row["ours"] else "by_measured"])) for row in own]
        figures = [
            np.mean([np.mean(row["recommended"]) for row in own]),
            np.mean([row["measured"] for row in own]),
            *(np.mean([_best_within(row, low, parse_duration(t, "--at")) for row in own]) for t in at),
            np.mean([_area(row, low) for row in own]),
            np.mean([_volume(row, low) for row in own]),
        ]
        each = ", ".join(f"{score:.4g}" for score in handed)
        costs = ", ".join(f"{row['recommended_cost' if row['ours'] else 'measured_cost']:.0f}" for row in own)
        line = f"| {method} | {len(own)} | {np.mean(handed):.4g} | {each} | {costs} s | "
        line += " | ".join(f"{figure:.4g}" for figure in figures)
        trials, think = _mean_trials(own)
        found.append((float(np.mean(handed)), f"{line} | {trials:.0f} | {think:.2f} s |"))
    return [*lines, *(line for _, line in sorted(found, reverse=True))]


def _mean_trials(rows: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Returns how many trials a sweep had, and the seconds that each took to be suggested."""
    think = np.mean([trial["suggest_seconds"] for row in rows for trial in row["trials"]])
    return float(np.mean([len(row["trials"]) for row in rows])), float(think)


def _best_within(row: dict[str, Any], low: float, seconds: float) -> float:
    done = [t for t in row["trials"] if t["state"] == "complete" and t["run_seconds"] <= seconds]
    return float(max((trial["score"] for trial in done), default=low))


def _area(row: dict[str, Any], low: float) -> float:
    """The mean over the budget of the highest measured score so far."""
    spent, best, area = 0.0, low, 0.0
    for trial in row["trials"]:
        cost = min(trial["cost_seconds"], row["budget"] - spent)
        area += best * cost
        spent += cost
        if trial["state"] == "complete":
            best = max(best, trial["score"])
    return float((area + best * (row["budget"] - spent)) / row["budget"])


def _volume(row: dict[str, Any], low: float) -> float:
    done = [t for t in row["trials"] if t["state"] == "complete"]
    scores, costs = [t["score"] for t in done], [max(t["run_seconds"], _FIRST_SECOND) for t in done]
    total = pareto.hypervolume(scores, costs, reference_score=low, reference_cost=row["budget"])
    width = math.log(row["budget"] / _FIRST_SECOND)
    return float(low + total / width)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", default=["breakout", "snake"], help="or text/python")
    parser.add_argument("--config", type=Path, help="a config file over that of the environment")
    parser.add_argument("--methods", nargs="+", default=["protein", "tpe", "gp", "puffer"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max-cost", default="20m", help="of each sweep, as in 20m")
    parser.add_argument("--max-trial-cost", help="of one trial, as in 2m; without it a quarter of the budget")
    parser.add_argument("--at", nargs="*", default=[], help="durations, as in 30s: what was found that trains in them")
    parser.add_argument("--again", type=int, default=2, help="runs of each config that is handed over")
    parser.add_argument("--folder", type=Path, default=Path("runs/trained"), help="where the sweeps' stores go")
    parser.add_argument("--figure", type=Path, help="where to draw what was found in the first of --envs")
    parser.add_argument("--report", action="store_true", help="print the tables of what stands in the result file")
    arguments = parser.parse_args()
    budget = parse_duration(arguments.max_cost, "--max-cost")
    cap = None if arguments.max_trial_cost is None else parse_duration(arguments.max_trial_cost, "--max-trial-cost")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    jobs = [(e, s, m) for e in arguments.envs for s in range(arguments.seeds) for m in arguments.methods]
    for env, seed, method in [] if arguments.report else jobs:
        if any((r["env"], r["seed"], r["method"], r["budget"]) == (env, seed, method, budget) for r in rows):
            continue
        print(f"{env}, {method}, seed {seed}", flush=True)
        flags = {"train.lr_schedule": "wsd"} if method == "protein:continuing" else {}
        row = sweep(env, method, seed, budget, cap, arguments.folder, arguments.config, flags, arguments.again)
        rows.append(row)
        with RESULTS.open("a") as file:
            file.write(json.dumps(row) + "\n")
    for env in dict.fromkeys(row["env"] for row in rows if row["budget"] == budget):
        print(f"\n{env}, {arguments.max_cost}")
        print("\n".join(table([row for row in rows if row["budget"] == budget], env, arguments.at)))
    if arguments.figure is not None:
        from engine.trained_figure import draw

        shown = [row for row in rows if (row["env"], row["budget"]) == (arguments.envs[0], budget)]
        draw(shown, arguments.methods[0], arguments.figure)


if __name__ == "__main__":
    main()
