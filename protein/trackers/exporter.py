"""From the store to one tracker, in batches: finds what is new, writes it, and remembers that."""

import dataclasses
import time
from collections.abc import Callable, Iterator

from protein.direction import shown_trial
from protein.ports import Store
from protein.trackers.position import Position
from protein.trackers.tracker import Tracker, TrialUpdate
from protein.types import SweepRecord, TrialRecord

BATCH_TRIALS = 100
BATCH_SECONDS = (
    5.0  # a batch that took longer is followed by a smaller one: the end of each is a sign of life, and is saved
)
BATCH_POINTS = 20_000  # of curves; a batch of one trial may have more


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far one call of `Exporter.run` has come: trials written, and those that it still has to write."""

    written: int
    waiting: int


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
        remembered, and a later call goes on from there.

        Args:
            report: called after every batch.
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
