"""Turns sweeps of this project's trainer into a committed table, the data of the recorded tasks.

    protein sweep --config benchmarks/engine/recorded/pong.toml --method random --name rec-pong --store pong.db ...
    protein sweep --config benchmarks/engine/recorded/pong.toml --name near-pong --store pong.db --max-cost 12m
    python benchmarks/engine/record.py repeat --store pong.db --sweep rec-pong --name noise-pong
    python benchmarks/engine/record.py export --store pong.db --sweeps rec-pong near-pong noise-pong --table pong

Random trials show what the space is like. Trials near the front show the region where optimisers look. The same configs
with other seeds show how much of a score is chance. The table (`recorded/NAME.npz`) holds for n trials and d
parameters:

    space      the sweeps' space as JSON
    params     `n x d` raw numeric values
    sweep      `n` index of the sweep that each came from, in the order in which they were named
    failed     `n` whether it gave no score
    cost       `n` seconds of training; score `n` final evaluation (NaN where failed)
    curve      `n x NUM_FRACTIONS` training score at even fractions of the run, linear between the measured points;
               NaN before the first of them
    points     `n` measured points; first `n` steps at the first of them with a score (NaN: there was none)
    load       `n` log seconds that one step of the environments took: the same work in every trial, so it says how busy
               the machine was

Interrupted trials are left out, because they tell nothing about their params.
"""

import argparse
import json
import math
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))

import numpy as np
from engine import recorded
from numpy.typing import NDArray

from protein.ports import Store
from protein.space import Space
from protein.types import (
    Budget,
    Measurement,
    Observation,
    Params,
    Suggestion,
    SuggestionKind,
    TrialEnd,
    TrialRecord,
    TrialState,
)

TABLES = Path(__file__).resolve().parent / "recorded"
NUM_FRACTIONS = 16
Array = NDArray[np.float64]


def curve_at_fractions(trial: TrialRecord) -> Array:
    """Returns the training scores at even fractions of a trial's steps, `NUM_FRACTIONS`."""
    points = [(m.steps / trial.steps, m.score) for m in trial.curve if m.score is not None]
    fractions = (np.arange(NUM_FRACTIONS) + 1.0) / NUM_FRACTIONS
    if not points:
        return np.full(NUM_FRACTIONS, np.nan)
    at, scores = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True))
    return np.asarray(np.interp(fractions, at, scores, left=np.nan))


def table(store: Store, names: Sequence[str]) -> dict[str, Any]:
    """Returns the arrays of the finished trials of some sweeps of one space."""
    rows: list[tuple[int, TrialRecord]] = []
    spaces = []
    for index, name in enumerate(names):
        sweep = store.find_sweep(name)
        if sweep is None:
            raise SystemExit(f"there is no sweep '{name}' in this store; it holds {_names(store)}")
        spaces.append(Space.from_dict(sweep.spec.space))
        done = [t for t in store.trials(sweep.id) if t.state.finished and t.end is not TrialEnd.INTERRUPTED]
        rows += [(index, t) for t in done if t.state is not TrialState.PRUNED]
    space = spaces[0]
    if any(other != space for other in spaces):
        raise SystemExit(f"the sweeps {', '.join(names)} have different spaces; a table holds one")
    trials = [trial for _, trial in rows]
    return {
        "space": np.array(json.dumps(space.to_dict())),
        "params": np.array([[p.numeric(t.params[p.name]) for p in space.parameters] for t in trials]),
        "sweep": np.array([index for index, _ in rows], dtype=np.int8),
        "failed": np.array([t.state is TrialState.FAILED for t in trials]),
        "cost": np.array([t.cost_seconds for t in trials]),
        "score": np.array([np.nan if t.score is None else t.score for t in trials]),
        "curve": np.array([curve_at_fractions(t) for t in trials], dtype=np.float32),
        "points": np.array([len(t.curve) for t in trials], dtype=np.int16),
        "first": np.array([next((m.steps for m in t.curve if m.score is not None), np.nan) for t in trials]),
        "load": np.array([_load(t) for t in trials]),
    }


def export(store: Store, names: Sequence[str], path: Path) -> str:
    """Writes the table and returns a line about it."""
    columns = table(store, names)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **columns)
    counts = {f"trials_{name}": int(np.sum(columns["sweep"] == i)) for i, name in enumerate(names)}
    name = path.stem
    stored = recorded.load_table(name)
    facts: dict[str, float] = {**counts, "failed": int(np.sum(stored["failed"]))}
    facts |= {key: round(v, 4) for key, v in recorded.cross_validate(stored, recorded.LIMITS[name]).items()}
    known = recorded.errors() if recorded.ERRORS.exists() else {}
    recorded.ERRORS.write_text(json.dumps({**known, name: facts}, indent=1, sort_keys=True) + "\n")
    return f"{path.name}, {path.stat().st_size / 1000:.0f} kB: {facts}"


def _load(trial: TrialRecord) -> float:
    last = trial.curve[-1] if trial.curve else None
    return math.log(last.metrics["environment_seconds"] / last.steps) if last is not None else math.nan


class Listed:
    """A designer that proposes a list of configs in order, to train the same configs again with other seeds."""

    def __init__(self, configs: Sequence[Params]) -> None:
        self._configs = configs

    def suggest(
        self,
        history: Sequence[Observation],
        running: Sequence[Params],
        budget: Budget,
        seed: int,
    ) -> Suggestion | None:
        """Returns the next of the list, None after the last."""
        number = len(history) + len(running)
        if number >= len(self._configs):
            return None
        return Suggestion(params=self._configs[number], kind=SuggestionKind.REEVALUATION, origin="listed")

    def should_stop(
        self,
        history: Sequence[Observation],
        params: Params,
        curve: Sequence[Measurement],
        seed: int,
    ) -> str | None:
        """Returns None: all recorded trials run to their end."""
        return None


def repeat(store: Store, name: str, new_name: str, configs: int, seeds: int, directory: Path, workers: int) -> None:
    """Trains configs of a sweep, spread evenly over its upper three quarters of scores, several times each."""
    import dataclasses

    from protein.run.trainer import TrainerBackend
    from protein.sweep.loop import LoopSettings, run_sweep

    source = store.find_sweep(name)
    if source is None:
        raise SystemExit(f"there is no sweep '{name}' in this store; it holds {_names(store)}")
    ranked = sorted(
        (t for t in store.trials(source.id) if t.state is TrialState.COMPLETE), key=lambda t: (t.score, t.number)
    )
    ranked = [t for t in ranked if t.cost_seconds <= np.quantile([r.cost_seconds for r in ranked], 0.8)]
    chosen = [ranked[int(i)] for i in np.linspace(len(ranked) // 4, len(ranked) - 1, configs)]
    sweep = store.find_sweep(new_name) or store.create_sweep(
        dataclasses.replace(source.spec, name=new_name, method="random"), None
    )
    run_sweep(
        sweep,
        designer=Listed([t.params for t in chosen for _ in range(seeds)]),
        store=store,
        backend=TrainerBackend(),
        settings=LoopSettings(directory=directory / new_name, workers=workers, max_trial_seconds=3600.0),
        listener=_Lines(),
        stop=threading.Event(),
    )


class _Lines:
    """Prints one line for every finished trial."""

    def update(self, status: object) -> None: ...
    def started(self, trial: TrialRecord) -> None: ...
    def log(self, line: str) -> None:
        print(line, flush=True)

    def finished(self, trial: TrialRecord, status: object) -> None:
        print(f"trial {trial.number}: {trial.score} in {trial.cost_seconds:.2f} s {trial.reason}", flush=True)


def _names(store: Store) -> str:
    return ", ".join(sweep.spec.name for sweep in store.list_sweeps()) or "none"


def main() -> None:
    """Exports a table, or trains configs again."""
    from protein import storage

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    exporting = commands.add_parser("export")
    exporting.add_argument("--sweeps", nargs="+", required=True)
    exporting.add_argument("--table", required=True, help="name of the table in benchmarks/engine/recorded")
    repeating = commands.add_parser("repeat")
    repeating.add_argument("--sweep", required=True, help="whose configs to train again")
    repeating.add_argument("--name", required=True, help="of the new sweep")
    repeating.add_argument("--configs", type=int, default=10)
    repeating.add_argument("--seeds", type=int, default=5)
    repeating.add_argument("--workers", type=int, default=2)
    for command in (exporting, repeating):
        command.add_argument("--store", type=Path, required=True, help="SQLite file of the sweeps")
    arguments = parser.parse_args()
    if not arguments.store.exists():
        sys.exit(f"there is no store {arguments.store}; name the file that the sweeps were recorded into")
    store = storage.open_store(f"sqlite:///{arguments.store.absolute()}")
    try:
        if arguments.command == "export":
            print(export(store, arguments.sweeps, TABLES / f"{arguments.table}.npz"))
        else:
            directory = arguments.store.absolute().with_suffix("")
            repeat(
                store,
                arguments.sweep,
                arguments.name,
                arguments.configs,
                arguments.seeds,
                directory,
                arguments.workers,
            )
    finally:
        store.close()


if __name__ == "__main__":
    main()
