"""Runs one tracker through the contract's scenario, and reads back what it wrote.

`python tracker_process.py TRACKER FOLDER` is a process of its own, as a tracker has: the tools change the process that
imports them. It prints a JSON object with what the tool holds after every step (see `tracker_records.Written`).
"""

import dataclasses
import json
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from tracker_records import PARAMS, READERS, imported

from protein.ports import Store
from protein.storage import open_store
from protein.trackers.exporter import Exporter, Position, Progress
from protein.trackers.tracker import Tracker, TrialUpdate, make_tracker
from protein.types import (
    Direction,
    Measurement,
    Outcome,
    Provenance,
    Suggestion,
    SuggestionKind,
    SweepRecord,
    SweepSpec,
    Trial,
    TrialEnd,
    TrialRecord,
)

PROVENANCE = Provenance(version="0.1.0", git_commit="abc-dirty", machine="host, 4 cores", config_hash="f" * 64)
SPACE = {
    "parameters": [
        {"type": "float", "name": "train.learning_rate", "low": 1e-4, "high": 0.1, "scale": "log"},
        {"type": "integer", "name": "train.steps", "low": 1, "high": 10_000},
        {"type": "categorical", "name": "train.schedule", "choices": ['a "b" ü/%', "c"]},
        {"type": "categorical", "name": "flag", "choices": [True, False]},
    ]
}
NOT_FINITE = {"odd": float("inf"), "odder": float("nan")}  # metrics of trial 0, which no store takes


def fill(url: str) -> tuple[Store, SweepRecord, list[Trial]]:
    """Returns a store with a sweep that minimises: complete, failed, stopped and running trials, and their owner's."""
    store = open_store(url)
    spec = SweepSpec(
        name="s.1",
        env="pong",
        method="protein",
        seed=7,
        direction=Direction.MINIMIZE,
        space=SPACE,
        config={"own": {"start": None}},
        provenance=PROVENANCE,
    )
    sweep = store.create_sweep(spec, None)
    trials = [start(store, sweep) for _ in range(4)]
    store.add_measurements(trials[0], points(0, 5), 600.0)
    store.finish_trial(
        trials[0],
        Outcome(end=TrialEnd.COMPLETE, score=-1.5, cost_seconds=4.5, steps=400, metrics={"loss": 0.25}),
    )
    store.add_measurements(trials[1], points(0, 2), 600.0)
    store.finish_trial(trials[1], Outcome(end=TrialEnd.DIVERGED, reason="the loss is nan", cost_seconds=1.0, steps=100))
    store.finish_trial(trials[2], Outcome(end=TrialEnd.CAPPED, score=-0.5, reason="cap", cost_seconds=9.0, steps=3))
    store.add_measurements(trials[3], points(0, 2), 600.0)
    return store, sweep, trials


def start(store: Store, sweep: SweepRecord) -> Trial:
    return store.start_trial(
        sweep.id,
        Suggestion(params=PARAMS, kind=SuggestionKind.SEARCH, origin="improving the front near 30 s"),
        seed=1,
        owner="me",
        lease_seconds=600.0,
        suggest_seconds=0.25,
        provenance=PROVENANCE,
    )


def points(first: int, last: int) -> list[Measurement]:
    """Stored scores are to be maximised; as the user knows them these are 0, 1/3, 2/3, ..."""
    return [
        Measurement(steps=100 * i, elapsed_seconds=i + 0.5, score=-i / 3 if i else None, metrics={"loss": 1 / (i + 1)})
        for i in range(first, last)
    ]


class WithOddNumbers:
    """A store whose trial 0 has metrics that are not finite."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def columns(self, *given: Any, **named: Any) -> Any:
        return self._store.columns(*given, **named)

    def trials(self, sweep_id: int, *, numbers: Collection[int] | None = None) -> list[TrialRecord]:
        return [
            dataclasses.replace(trial, metrics={**trial.metrics, **NOT_FINITE}) if trial.number == 0 else trial
            for trial in self._store.trials(sweep_id, numbers=numbers)
        ]


class Dying:
    """A tracker that is cut short after it has written some of a batch."""

    def __init__(self, tracker: Tracker, after: int) -> None:
        self._tracker, self._after = tracker, after
        self.takes_running, self.destination = tracker.takes_running, tracker.destination
        self.how_to_look = tracker.how_to_look

    def begin(self, sweep: SweepRecord) -> bool:
        return self._tracker.begin(sweep)

    def write(self, updates: Sequence[TrialUpdate]) -> None:
        self._tracker.write(updates[: self._after])
        raise OSError("cut short")

    def close(self) -> None:
        self._tracker.close()


def main(name: str, folder: Path) -> None:
    store, sweep, trials = fill(str(folder / "store.db"))
    odd: Any = WithOddNumbers(store)
    place, path = folder / "trackers", folder / "position.json"
    place.mkdir()
    steps: dict[str, Any] = {}

    def export(wrap: Callable[[Tracker], Tracker] = lambda tracker: tracker) -> int:
        """As a process does it: from the position's file, with a new tracker."""
        tracker = wrap(make_tracker(name, place))
        exporter = Exporter(tracker, odd, sweep, Position(path, sweep, tracker.destination))
        try:
            return exporter.run(lambda progress: reports.append(progress))
        finally:
            tracker.close()

    def note(step: str, written: int) -> None:
        steps[step] = {"written": written, "trials": READERS[name](place)}

    reports: list[Progress] = []
    note("first", export())
    note("nothing new", export())
    store.add_measurements(trials[3], points(2, 4), 600.0)
    store.finish_trial(trials[3], Outcome(end=TrialEnd.COMPLETE, score=-0.75, cost_seconds=3.0, steps=300))
    store.finish_trial(start(store, sweep), Outcome(end=TrialEnd.INTERRUPTED, reason="interrupted", cost_seconds=0.0))
    for _ in range(2):  # the first trial was written both times, but that was not remembered
        try:
            export(lambda tracker: Dying(tracker, 1))
        except OSError as error:
            assert str(error) == "cut short"
    note("after a cut", export())
    store.annotate(sweep.id, 0, tags=["good"], note="look at this", excluded=True)
    note("annotated", export())
    path.unlink()
    note("position lost", export())
    if name == "mlflow":
        store.annotate(sweep.id, 0, note="", excluded=False)
        note("note removed", export())
        steps["imported"] = imported(place)
    store.close()
    json.dump(steps, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
