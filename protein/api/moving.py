"""Sweeps that are written into a file, read from one, or copied from one store to another; all of it exact."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from protein import storage
from protein.api import stores, sweep_files
from protein.api.definition import check_name
from protein.errors import StoreError, UsageError
from protein.names import NAME_LENGTH, is_name
from protein.run.lease import dead_owners
from protein.storage.whole import Item, StoredSweep
from protein.sweep.ownership import Life, alive, resting_owner
from protein.types import Machine, Request, SweepRecord

if TYPE_CHECKING:
    from protein.storage.whole import WholeStore

Progress = Callable[[str, int, int], None]  # is told the sweep, how many of its trials are done, and of how many


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A sweep that was written.

    Attributes:
        name: of the sweep.
        num_trials: how many trials it has.
        num_points: how many points their curves have together.
        running: numbers of trials that had not finished.
        paused: whether no trial of it starts until somebody asks for that.
    """

    name: str
    num_trials: int
    num_points: int
    running: tuple[int, ...] = ()
    paused: bool = False


def chosen(store: "WholeStore", names: Sequence[str], *, every: bool) -> list[SweepRecord]:
    """Returns sweeps by name; without names the store's only sweep, or every one.

    Raises:
        UsageError: there is no such sweep, or several to choose from.
    """
    if every:
        if names:
            raise UsageError(f"--all means every sweep; drop it, or the name {names[0]}")
        found = store.list_sweeps()
        if not found:
            raise UsageError("the store holds no sweep yet; start one with protein sweep --env NAME --max-cost 10m")
        return found
    return [stores.find(store, name) for name in (dict.fromkeys(names) or [None])]


def export(store: "WholeStore", sweeps: Sequence[SweepRecord], path: Path, progress: Progress) -> list[Moved]:
    """Writes sweeps into a file; see `protein.api.sweep_files`.

    Raises:
        UsageError: the file cannot be written.
        StoreError: a value of the store is damaged; the file is not written.
    """
    counter = _Counter(progress)
    names = [sweep.spec.name for sweep in sweeps]
    sweep_files.write(path, names, counter.counted(store.read_sweeps([sweep.id for sweep in sweeps])))
    return counter.moved()


def import_file(store: "WholeStore", path: Path, *, name: str | None, progress: Progress) -> list[Moved]:
    """Stores the sweeps of a file as new ones, all of them or none.

    Args:
        store: where.
        path: a file that `export` has written.
        name: of the sweep in the store, if the file holds one; None: as in the file.
        progress: told about each sweep.

    Raises:
        UsageError: the file is damaged or holds several sweeps and a name is given.
        StoreError: the store has a sweep of this name, or a value cannot be stored.
    """
    if name is not None:
        check_name(name, "--name")
    counter = _Counter(progress)
    items = counter.counted(_checked(sweep_files.read(path), path, name))
    store.write_sweeps(items, lambda done, of: None)
    moved = counter.moved()
    for one in moved:
        copy = store.find_sweep(one.name)
        if copy is not None and alive(store, copy).life is Life.RUNS:  # the process that runs the original
            store.set_ended(copy.id, "copied before its end")
    return moved


def _checked(items: Iterable[Item], path: Path, name: str | None) -> Iterator[Item]:
    """Yields what a file holds; what the database cannot know of a sweep is checked here."""
    seen: list[str] = []
    for item in items:
        if isinstance(item, StoredSweep):
            if seen and name is not None:
                raise UsageError(f"{path} holds several sweeps, and --name {name} is for one; drop --name")
            item = item if name is None else dataclasses.replace(item, values={**item.values, "name": name})
            check_name(item.name, f"{path}: the sweep's name")
            if item.name in seen:
                raise UsageError(f"{path} is damaged: it holds sweep '{item.name}' twice; export again")
            seen.append(item.name)
        yield item


def move(source_url: str, target_url: str, progress: Progress) -> tuple[list[Moved], str, str]:
    """Copies all sweeps of a store to another one, in one transaction, and compares what both hold.

    The calibrations of machines go with them, because costs are in seconds of the store's first machine. Those that the
    other store knows already stay before them.

    Returns:
        The sweeps, how messages name the other store, and a warning where costs of both stores differ in meaning ("").

    Raises:
        UsageError: both are the same store; a process runs one of the sweeps; there is none.
        StoreError: the other store has a sweep of the same name.
    """
    if stores.same(source_url, target_url):
        raise UsageError("both stores are the same one; give another with --to")
    source = storage.open_whole_store(source_url, create=False)
    try:
        sweeps = chosen(source, (), every=True)
        for sweep in sweeps:
            if not is_name(sweep.spec.name):
                raise UsageError(
                    f"the name {sweep.spec.name!r:.200} can be no sweep's, which is 1 to {NAME_LENGTH} letters, digits,"
                    " dots, dashes or underscores; give it another with protein rename first"
                )
            require_idle(source, sweep, "moved")
        with stores.opened_whole(target_url, create=True) as target:
            counter, ours = _Counter(progress), source.machines()
            warning = _other_seconds(ours, target.machines())
            items = counter.counted(source.read_sweeps([one.id for one in sweeps]))
            target.write_sweeps(items, lambda done, of: None, ours)
            _compare(source, target, sweeps)
            return counter.moved(), target.shown, warning
    finally:
        source.close()


def _other_seconds(ours: Sequence[Machine], theirs: Sequence[Machine]) -> str:
    """Returns a warning where a store that sweeps are moved to counts costs in seconds of another machine; "": none."""
    if not theirs or (ours and ours[0].name == theirs[0].name):
        return ""
    rest = "compare their costs within these sweeps only, and do not resume them there"
    if not ours:
        return f"costs there are in seconds of {theirs[0].name}, and those of these sweeps perhaps not: {rest}"
    factor = ours[0].calibration_seconds / theirs[0].calibration_seconds
    return (
        f"costs of these sweeps are in seconds of {ours[0].name}, and others there in seconds of {theirs[0].name},"
        f" which is {1 / factor if factor < 1 else factor:.2f} times as {'slow' if factor < 1 else 'fast'}: {rest}"
    )


def _compare(source: "WholeStore", target: "WholeStore", sweeps: Sequence[SweepRecord]) -> None:
    """Raises `StoreError` unless both stores sum the sweeps up in the same way."""
    there = {sweep.spec.name: sweep for sweep in target.list_sweeps()}
    for sweep in sweeps:
        copy = there.get(sweep.spec.name)
        same = copy is not None and copy.spec == sweep.spec
        if copy is None or not same or _summed(source, sweep) != _summed(target, copy):
            raise StoreError(
                f"sweep '{sweep.spec.name}' differs from what was copied: it has changed since; remove the copies with"
                " protein rm, stop what runs it, and move again"
            )


def _summed(store: "WholeStore", sweep: SweepRecord) -> tuple[object, ...]:
    known = store.summaries([sweep.id])[sweep.id]
    return known.ends, known.excluded, round(known.spent_seconds, 6), known.best


def require_idle(store: "WholeStore", sweep: SweepRecord, done: str) -> None:
    """Raises `UsageError` where a process runs a sweep, which cannot be `done` (in a word) then.

    None of its trials need run now: a process that is paused, or between two trials, goes on by the sweep's old name.
    """
    owners = store.live_trials(sweep.id).values()
    gone = set(dead_owners(owners))
    live = [owner for owner in owners if owner not in gone] or [resting_owner(store, sweep)]
    if owner := live[0][:80]:
        parts = owner.rsplit(":", 2)  # host, process, and what is unique
        who = f"process {parts[1]} on {parts[0]}" if len(parts) == 3 else owner
        raise UsageError(
            f"sweep '{sweep.spec.name}' is being run by {who} and cannot be {done}; end it with protein stop"
            f" {sweep.spec.name}, and wait until it has ended"
        )


class _Counter:
    """Counts sweeps and trials as they pass."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._found: list[Moved] = []

    def counted(self, items: Iterable[Item]) -> Iterator[Item]:
        expected = 0
        for item in items:
            if isinstance(item, StoredSweep):
                expected = item.num_trials
                paused = item.values.get("requested") == Request.PAUSE.value
                self._found.append(Moved(name=item.name, num_trials=0, num_points=0, paused=paused))
            elif self._found:
                last = self._found[-1]
                unfinished = (item.number,) if item.values.get("state") == "running" else ()
                self._found[-1] = dataclasses.replace(
                    last,
                    num_trials=last.num_trials + 1,
                    num_points=last.num_points + len(item.steps),
                    running=last.running + unfinished,
                )
                self._progress(last.name, last.num_trials + 1, expected)
            yield item

    def moved(self) -> list[Moved]:
        return self._found
