"""The suggestions of an undisturbed sweep: the loop, in one process, with trials that end as they did in another store.

A designer is a pure function of the finished trials, what runs, what is left of the budget, and a seed. So for one
worker, the trials that a disturbed sweep has stored are exactly what a process that was never disturbed would suggest.
"""

import dataclasses
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from protein import storage
from protein.ports import Finished, Job, SweepStatus, TrialProgress
from protein.space import Space
from protein.sweep.loop import LoopSettings, run_sweep
from protein.sweep.methods import make_designer
from protein.types import Outcome, SweepSpec, Trial, TrialEnd, TrialRecord


class Playback:
    """A backend whose trials end as recorded."""

    def __init__(self, records: Sequence[TrialRecord]) -> None:
        self._records = {record.number: record for record in records}
        self._jobs: list[Job] = []

    def num_slots(self) -> int | None:
        return None

    def start(self, job: Job) -> None:
        self._jobs.append(job)

    def poll(self, timeout_seconds: float) -> list[TrialProgress | Finished]:
        events: list[TrialProgress | Finished] = []
        for job in self._jobs:
            record = self._records[job.trial.number]
            assert record.end is not None, f"trial {record.number} has not ended"
            events.append(TrialProgress(trial=job.trial, measurements=record.curve))
            fields = {field.name: getattr(record, field.name) for field in dataclasses.fields(Outcome)}
            events.append(Finished(trial=job.trial, outcome=Outcome(**fields)))
        self._jobs = []
        return events

    def stop(self, trial: Trial, end: TrialEnd, reason: str) -> None: ...

    def close(self) -> None: ...


class _Nobody:
    def update(self, status: SweepStatus) -> None: ...

    def started(self, trial: TrialRecord) -> None: ...

    def finished(self, trial: TrialRecord, status: SweepStatus) -> None: ...

    def log(self, line: str) -> None: ...


def differing(url: str, name: str, settings: Callable[[Path], LoopSettings]) -> list[str]:
    """Returns which trials of a stored sweep were not what an undisturbed one would have suggested."""
    spec, records = stored(url, name)
    with tempfile.TemporaryDirectory() as folder:
        store = storage.open_store(f"sqlite:///{folder}/store.db")
        try:
            start = spec.config.get("own", {}).get("start")
            limits = settings(Path(folder))
            sweep = store.create_sweep(spec, limits.max_cost_seconds)
            status = run_sweep(
                sweep,
                designer=make_designer(spec.method, Space.from_dict(spec.space), start, seed=spec.seed),
                store=store,
                backend=Playback(records),
                settings=limits,
                listener=_Nobody(),
                stop=threading.Event(),
            )
        finally:
            store.close()
    wrong = []
    for again, record in zip(status.trials, records, strict=False):
        for field in ("params", "seed", "origin", "predicted_score", "predicted_cost_seconds"):
            ours, theirs = getattr(again, field), getattr(record, field)
            if ours != theirs:
                wrong.append(f"trial {record.number}: {field} is {theirs!r:.100}, undisturbed {ours!r:.100}")
                break
    if len(status.trials) != len(records):
        wrong.append(f"{len(records)} trials, undisturbed {len(status.trials)}")
    return wrong


def stored(url: str, name: str) -> tuple[SweepSpec, Sequence[TrialRecord]]:
    store = storage.open_store(url)
    try:
        sweep = store.find_sweep(name)
        assert sweep is not None
        return sweep.spec, store.trials(sweep.id)
    finally:
        store.close()
