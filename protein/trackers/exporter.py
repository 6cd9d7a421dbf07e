"""From the store to one tracker, in batches: finds what is new, writes it, and remembers that.

What has been written is in a small file that survives every crash. It is written whole and then renamed, so it is never
half a file. It says before a batch which trials are being written, and after it what has been written. A process that
dies in between leaves the first of the two: these trials are unsure, and are written again as the tracker's contract
says.

A lock on a file beside it keeps a second process from writing the same. The system takes the lock back when the process
ends, in whatever way.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from protein import files
from protein.direction import shown_trial
from protein.errors import UsageError
from protein.names import folder_name
from protein.ports import Store
from protein.trackers.tracker import Tracker, TrialUpdate
from protein.types import SweepRecord, TrialRecord

_VERSION = 1  # of a position's file
BATCH_TRIALS = 100
BATCH_SECONDS = 5.0  # after a longer batch comes a smaller one: the end of each is a sign of life, and is saved
BATCH_POINTS = 20_000  # of curves; a batch of one trial may have more


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far one call of `Exporter.run` has come: trials written, and those that it still has to write."""

    written: int
    waiting: int


class Position:
    """What has been written. Change it, then `save`.

    Attributes:
        cursor: of the store: what had changed up to it is written, or is in `waiting`. None: nothing is known yet.
        waiting: numbers of trials that have to be written.
        unsure: numbers of trials of which a write was cut short.
        points: points written of trials that were running then, by number.
        done: numbers of trials that were written after they had finished.
    """

    def __init__(self, path: Path, sweep: SweepRecord, destination: str) -> None:
        self._path = path
        self._identity = {
            "version": _VERSION,
            "sweep": sweep.spec.name,
            "sweep_id": sweep.id,
            "created_at": sweep.created_at.isoformat(),
            "destination": destination,
        }
        self.clear()
        self._load()

    def clear(self) -> None:
        """Forgets everything: all is to be written again."""
        self.cursor: str | None = None
        self.waiting: set[int] = set()
        self.unsure: set[int] = set()
        self.points: dict[int, int] = {}
        self.done: set[int] = set()

    def save(self) -> None:
        """Writes the file. Raises `OSError` where it cannot, and the old file stays."""
        state = {
            **self._identity,
            "cursor": self.cursor,
            "waiting": _ranges(self.waiting),
            "unsure": _ranges(self.unsure),
            "points": {str(number): count for number, count in sorted(self.points.items())},
            "done": _ranges(self.done),
        }
        files.replace_file(self._path, json.dumps(state).encode(), follow_link=False)

    def _load(self) -> None:
        """Takes over the file where it is of this sweep and destination. A damaged one counts as none."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            state: Mapping[str, Any] = json.loads(self._path.read_text())
            if any(state[name] != value for name, value in self._identity.items()):
                return
            loaded = (
                set(_numbers(state["waiting"])),
                set(_numbers(state["unsure"])),
                {int(number): int(count) for number, count in state["points"].items()},
                set(_numbers(state["done"])),
            )
            self.waiting, self.unsure, self.points, self.done = loaded
            self.cursor = None if state["cursor"] is None else str(state["cursor"])


class Exporter:
    """Brings one tracker up to date with the store, again and again."""

    def __init__(self, tracker: Tracker, store: Store, sweep: SweepRecord, position: Position) -> None:
        self._tracker, self._store, self._sweep, self._position = tracker, store, sweep, position
        self._has_begun = False
        self._knows_nothing = False  # of a destination that holds something of this sweep

    @property
    def num_waiting(self) -> int:
        """How many trials are known to have news that are not written."""
        return len(self._position.waiting)

    def run(self, report: Callable[[Progress], None]) -> int:
        """Writes everything that is new, and returns the number of trials written.

        Whatever the tracker, the store or the position's file raises passes through. What was written until then is
        remembered, and a later call goes on from there. `report` is called after every batch.
        """
        position = self._position
        if not self._has_begun:
            is_there = self._tracker.begin(self._sweep)
            if not is_there:
                position.clear()
            self._knows_nothing = is_there and position.cursor is None  # the position was lost
            self._has_begun = True
        self._look()
        written = 0
        for batch in self._batches():
            updates = [self._update(trial) for trial in batch]
            numbers = {update.trial.number for update in updates}
            position.unsure |= numbers
            position.save()
            self._tracker.write(updates)
            position.unsure -= numbers
            position.waiting -= numbers
            for update in updates:
                self._remember(update.trial)
            position.save()
            written += len(updates)
            report(Progress(written=written, waiting=len(position.waiting)))
        return written

    def _look(self) -> None:
        """Asks the store what has changed since the last time."""
        position = self._position
        changed = self._store.columns(self._sweep.id, position.cursor, fields=("number", "state"))
        waiting = {
            int(number)
            for number, state in zip(changed.number, changed.state, strict=True)
            if self._tracker.takes_running or state.finished
        }
        if waiting or changed.cursor != position.cursor:
            position.waiting |= waiting
            if self._knows_nothing:
                position.unsure |= waiting
                self._knows_nothing = False
            position.cursor = changed.cursor
            position.save()

    def _batches(self) -> Iterator[list[TrialRecord]]:
        """Yields the waiting trials with their curves, some at a time."""
        waiting = sorted(self._position.waiting)
        size = 1  # until it is known how long one takes: some trackers write over a network
        while waiting:
            began = time.monotonic()
            some, waiting = waiting[:size], waiting[size:]
            batch: list[TrialRecord] = []
            num_points = 0
            for trial in self._store.trials(self._sweep.id, numbers=some):
                if batch and num_points + len(trial.curve) > BATCH_POINTS:
                    yield batch
                    batch, num_points = [], 0
                batch.append(trial)
                num_points += len(trial.curve)
            if batch:
                yield batch
            is_quick = time.monotonic() - began < BATCH_SECONDS  # the reader has written them meanwhile
            size = min(2 * size, BATCH_TRIALS) if is_quick else max(size // 2, 1)

    def _update(self, trial: TrialRecord) -> TrialUpdate:
        number, position = trial.number, self._position
        is_unsure = number in position.unsure
        known = number in position.done or number in position.points
        num_written = len(trial.curve) if number in position.done else position.points.get(number, 0)
        return TrialUpdate(
            trial=shown_trial(trial, self._sweep.spec.direction),
            num_written=0 if is_unsure else min(num_written, len(trial.curve)),
            is_new=not known and not is_unsure,
            is_unsure=is_unsure,
        )

    def _remember(self, trial: TrialRecord) -> None:
        if trial.state.finished:
            self._position.points.pop(trial.number, None)
            self._position.done.add(trial.number)
        else:
            # A trial that was interrupted may lose its last points, and makes them again: they are written once.
            before = self._position.points.get(trial.number, 0)
            self._position.points[trial.number] = max(before, len(trial.curve))


def file_name(sweep: str, tracker: str, destination: str) -> str:
    """Returns the name of the position's file: one for each sweep, tracker and destination."""
    return f"{folder_name(sweep)}.{tracker}.{hashlib.sha256(destination.encode()).hexdigest()[:8]}.json"


@contextlib.contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Holds the lock of a position's file. Errors begin with `what` is being done. The file's folder is made.

    Raises:
        UsageError: another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_suffix(".lock"), "a+", opener=_open_itself) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise UsageError(f"{what}: {holder} is doing that already; wait for it, or end it") from None
        with contextlib.suppress(OSError):  # a full disk; the lock holds all the same
            file.truncate(0)
            file.write(f"process {os.getpid()}")
            file.flush()
        yield


def _open_itself(path: str, flags: int) -> int:
    """Opens a file, and not what a symbolic link of its name leads to."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Returns numbers as [first, last] pairs: most of a sweep's trials lie side by side."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def _numbers(ranges: Iterable[Iterable[int]]) -> Iterator[int]:
    for first, last in ranges:
        yield from range(int(first), int(last) + 1)
