"""What is kept of a sweep and its files: renaming and removing it, and deleting checkpoints that nothing needs.

Kept are the checkpoints of the measured and the expected front, of every answer of `protein best`, of trials that have
not ended, of those that they continue, and of those with which other sweeps of the store begin (`policy.init_from`).
In a sweep that continues trials, what a finished trial can go on from is kept, too. Logs and configs stay.
The store is not changed: it keeps saying where a checkpoint was, and views say that it is gone.

A path in a store is not trusted. Only what lies in the sweep's own folder is deleted or written, and symbolic links are
never followed: a link stays where it is, and so does what it leads to.
"""

import contextlib
import dataclasses
import os
import re
import shutil
import signal
import stat
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from protein.api import recommended, stores, sweep_files
from protein.api.definition import check_name
from protein.api.training import INIT_FROM
from protein.engine import pareto
from protein.engine.sample import sampled
from protein.errors import UsageError
from protein.sweep import resuming
from protein.types import CONTINUABLE, Artifact, SweepRecord, TrialRecord, runs_trainer, unbroken

if TYPE_CHECKING:
    from protein.storage.whole import WholeStore


PICTURES = ("pareto.png", "calibration.png")  # that commands draw there
_TRIAL = re.compile(r"[0-9]{4,}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SweepFolder:
    """A sweep's folder, by the path that the store gives and with links above it resolved."""

    path: Path
    real: Path | None  # None: it is missing, or behind a symbolic link (`stores.linked`)

    @classmethod
    def of(cls, store_url: str, sweep: str, artifacts: Path | None = None) -> "SweepFolder":
        path = stores.artifact_directory(store_url, sweep, artifacts)
        usable = path.is_dir() and stores.linked(store_url, sweep, artifacts) is None
        return cls(path=path, real=path.resolve() if usable else None)

    def trial(self, number: int) -> Path:
        """Returns the folder of a trial, which may be missing."""
        return self.path / f"{number:04d}"

    def inner(self, path: Path) -> Path | None:
        """Returns where something of the folder really is; None where it is not in it, missing or behind a link."""
        if self.real is None:
            return None
        for root in (self.path, self.real):
            try:
                parts = Path(os.path.normpath(path)).relative_to(root).parts
            except ValueError:
                continue
            found = self.real
            try:
                for part in parts:
                    found = found / part
                    if stat.S_ISLNK(found.lstat().st_mode):
                        return None
            except (OSError, ValueError):  # it is missing; or a name that no file can have
                return None
            return found if parts else None
        return None

    def moved(self, path: str, other: Path) -> str | None:
        """Returns the path of a file after the folder is moved to `other`; None where the file is not in it."""
        if "\0" in path:  # a name that no file can have
            return None
        for root, target in ((self.path, other), (self.real, other.parent.resolve() / other.name)):
            if root is None:
                continue
            try:
                return str(target / Path(path).relative_to(root))
            except ValueError:
                continue
        return None

    def strangers(self, numbers: Collection[int]) -> list[str]:
        """Returns the names of what lies in the folder and belongs to none of the sweep's trials."""
        if self.real is None:
            return []
        known = {f"{number:04d}" for number in numbers} | set(PICTURES)
        return sorted(entry.name for entry in self.real.iterdir() if entry.name not in known)

    def has_other_folders(self) -> bool:
        """Whether it holds folders that are no trials', such as those of another store of its name."""
        if self.real is None:
            return False
        return any(entry.is_dir() and not _TRIAL.fullmatch(entry.name) for entry in self.real.iterdir())


def picture(store_url: str, sweep: str, name: str) -> Path:
    """Returns where a command draws a picture of a sweep, one of `PICTURES`.

    Raises:
        UsageError: it would be written through a symbolic link.
    """
    assert name in PICTURES
    stores.require_unlinked(store_url, sweep)
    path = stores.artifact_directory(store_url, sweep) / name
    if path.is_symlink():
        raise UsageError(f"{path} is a symbolic link, through which nothing is written; delete it")
    return path


def size(path: Path) -> int:
    """Returns the bytes of a file or of all files of a folder; links count as nothing."""
    try:
        found = path.lstat()
        if stat.S_ISREG(found.st_mode):
            return found.st_size
        if not stat.S_ISDIR(found.st_mode):
            return 0
        with os.scandir(path) as entries:
            return sum(size(Path(entry.path)) for entry in entries)
    except OSError:  # gone in the meantime, or not ours to read
        return 0


def holds_files(path: Path) -> bool:
    """Whether this is a file, or a folder with something in it that is no folder."""
    return not path.is_dir() or any(names for _, _, names in os.walk(path))


def delete(path: Path) -> None:
    """Deletes a file, or a folder with all that is in it; a link in it is deleted and not followed.

    Raises:
        OSError: something of it cannot be deleted.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)


CHECKPOINT = "checkpoint"
RESUMABLE = "checkpoint"  # the folder of a trial's own in which a command keeps its state
_STAYS = ("log", "config")  # kinds of artifacts
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Freed:
    """A file or folder that can be deleted."""

    trial: int
    path: Path
    num_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """What can be deleted of a sweep, and which trials keep checkpoints.

    Of these some do so only to be continued, and some only because the sweeps of these names begin with them.
    """

    sweep: SweepRecord
    freed: Sequence[Freed]
    kept: Sequence[int]
    to_go_on: Sequence[int] = ()
    to_begin: Mapping[int, str] = dataclasses.field(default_factory=dict)

    @property
    def num_bytes(self) -> int:
        return sum(one.num_bytes for one in self.freed)


def plan_cleaning(
    sweep: SweepRecord,
    trials: Sequence[TrialRecord],
    folder: SweepFolder,
    *,
    goes_on: bool = True,
    begun: Mapping[Path, str] = MappingProxyType({}),
) -> Cleaning:
    """Returns what can be deleted of a sweep.

    No process runs the sweep. Of each curve one point is enough. `goes_on`: it may get more budget, so that trials may
    still be continued. `begun` is what `beginnings` returns.
    """
    trials = [resuming.located(trial, folder.path) for trial in trials]
    needed = needed_trials(sweep, trials)
    can_continue = goes_on and _continues(sweep, trials)
    kept_paths: set[Path] = set()
    candidates: dict[Path, int] = {}
    kept: list[int] = []
    to_go_on: list[int] = []
    to_begin: dict[int, str] = {}
    for trial in trials:
        whole = trial.number in needed or not trial.state.finished
        resumes = can_continue and trial.state.finished and resuming.resumable_seconds(trial) is not None
        found = list(_checkpoints(trial, folder))
        users = [] if whole else [begun[path] for _, path in found if path in begun]
        if users:
            to_begin[trial.number] = users[0]
        if found and (whole or resumes or users):
            kept.append(trial.number)
            if resumes and not whole:
                to_go_on.append(trial.number)
        for kind, path in found:
            if whole or path in begun or (resumes and kind == CONTINUABLE):
                kept_paths.add(path)
            else:
                candidates.setdefault(path, trial.number)
    for trial in trials:  # a function's folder holds its log, too
        for one in trial.artifacts:
            inner = folder.inner(Path(one.path)) if one.kind in _STAYS else None
            if inner is not None:
                kept_paths.add(inner)
    freed = [
        Freed(trial=number, path=part, num_bytes=size(part))
        for path, number in candidates.items()
        for part in _without(path, kept_paths)
    ]
    freed.sort(key=lambda one: (one.trial, str(one.path)))
    distinct = [one for i, one in enumerate(freed) if not any(_within(one.path, other.path) for other in freed[:i])]
    return Cleaning(sweep=sweep, freed=distinct, kept=kept, to_go_on=to_go_on, to_begin=to_begin)


def beginnings(store: "WholeStore", sweep: SweepRecord, folder: SweepFolder) -> dict[Path, str]:
    """Returns the files of a sweep's folder with which agents of other sweeps begin, each with one such sweep's name.

    A sweep that has ended may get more budget, and then further trials of it begin so.
    """
    found: dict[Path, str] = {}
    for other in (one for one in store.list_sweeps() if one.id != sweep.id):
        section, parameters = other.spec.config.get("policy"), other.spec.space.get("parameters", ())
        given = [section.get("init_from") if isinstance(section, Mapping) else None]
        for one in parameters:
            given += one.get("choices", ()) if one.get("name") == INIT_FROM else ()
        inner = (folder.inner(Path(one)) for one in given if isinstance(one, str) and one)
        found |= {path: other.spec.name for path in inner if path is not None}
    return found


def clean(plan: Cleaning) -> Iterator[Freed]:
    """Deletes what the plan names, and yields each thing that is gone. Raises `UsageError` where one cannot be."""
    for one in plan.freed:
        try:
            delete(one.path)
        except OSError as error:
            raise UsageError(
                f"{one.path} cannot be deleted ({error.strerror or error}); what was freed before stays freed; change"
                " its permissions and run the same command again"
            ) from error
        yield one


def needed_trials(sweep: SweepRecord, trials: Sequence[TrialRecord]) -> set[int]:
    """Returns the numbers of the trials whose checkpoints people ask for, and that unfinished ones began from."""
    able = [trial for trial in trials if not trial.excluded]
    needed = {trial.number for some in (able, unbroken(able, sweep.spec.limits)) for trial in pareto.front(some)}
    needed |= {trial.continues for trial in trials if not trial.state.finished and trial.continues is not None}
    if (cut_short := recommended.best_cut_short(trials)) is not None:
        needed.add(cut_short.number)
    try:
        some, sample = sampled(trials, limits=sweep.spec.limits)
        found = recommended.recommendation(sweep, some, sample=sample)
    except UsageError:  # no trial was trained to its end: nothing is recommended
        return needed
    answers = [found.best, found.knee, found.best_measured, found.initial, *found.front]
    for answer in answers:
        needed |= {trial.number for trial in (answer.trials if answer is not None else ())}
    return needed


def _continues(sweep: SweepRecord, trials: Sequence[TrialRecord]) -> bool:
    """Whether a sweep continues finished trials.

    Our trainer says by its schedule whether a run can. Any program or function that leaves files could be able to, but
    most are not: there a trial that has continued another one tells.
    """
    if resuming.why_never_continued(sweep.spec) is not None:
        return False
    return runs_trainer(sweep.spec.config) or any(trial.continues is not None for trial in trials)


def _checkpoints(trial: TrialRecord, folder: SweepFolder) -> Iterator[tuple[str, Path]]:
    """Yields kind and place of a trial's checkpoints that are there, as far as they lie in the sweep's folder.

    A command has a folder for its state whether it writes one or not: without a file it holds no checkpoint.
    """
    for one in trial.artifacts:
        inner = folder.inner(Path(one.path)) if one.kind in (CHECKPOINT, CONTINUABLE) else None
        if inner is not None and holds_files(inner):
            yield one.kind, inner
    own = folder.inner(folder.trial(trial.number) / RESUMABLE)
    if own is not None and holds_files(own):
        yield CHECKPOINT, own


def _without(path: Path, kept: Collection[Path]) -> Iterator[Path]:
    """Yields a path, or of a folder that holds kept ones the parts that hold none."""
    if any(_within(path, one) for one in kept):
        return
    if not any(_within(one, path) for one in kept):
        yield path
        return
    for inner in sorted(path.iterdir()):
        yield from _without(inner, kept)


def _within(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents


def rename(store: "WholeStore", store_url: str, old: str, new: str, artifacts: Path | None = None) -> Path | None:
    """Renames a sweep and its folder; the paths of its files in the store follow. Returns the new folder, if any.

    For `artifacts` see `stores.artifact_directory`.

    Raises:
        UsageError: there is no such sweep, a process runs it, or the folder cannot be renamed. Nothing was changed.
        StoreError: the store has a sweep of the new name.
    """
    sweep = stores.find(store, old)
    check_name(new, "the new name")
    if new == old:
        raise UsageError(f"sweep '{old}' has this name already; give another")
    sweep_files.require_idle(store, sweep, "renamed")
    before, after = (SweepFolder.of(store_url, name, artifacts) for name in (old, new))
    if users := sorted(set(beginnings(store, sweep, before).values())):
        raise UsageError(
            f"agents of sweep '{users[0]}' begin with checkpoints of '{old}', which it names by their paths; keep the"
            f" name, or remove '{users[0]}' first"
        )
    trials = store.trials(sweep.id, curves=False)
    # A file is no sweep's folder, and behind a link lie other folders than this store's; a link itself is renamed.
    here = before.real is not None or stores.linked(store_url, old, artifacts) == before.path
    there = after.path.exists() or after.path.is_symlink()
    if here and there:
        raise UsageError(f"the folder {after.path} exists already; move it away, or give another name")
    if here and before.has_other_folders():
        raise UsageError(
            f"the folder {before.path} holds folders that are no trials', so it may be another store's, too; move these"
            " away first"
        )
    if there and not here and not _is_of(after, before, trials):
        raise UsageError(f"the folder {after.path} exists already and is not of this sweep; give another name")
    moved = list(_moved(trials, before if here else dataclasses.replace(before, real=None), after.path))
    with _uninterrupted():
        if here:
            try:
                before.path.rename(after.path)
            except OSError as error:
                raise UsageError(
                    f"{before.path} cannot be renamed to {after.path} ({error.strerror or error}); nothing was changed"
                ) from error
        try:
            store.rename_sweep(old, new, moved)
        except BaseException:
            if here:
                with contextlib.suppress(OSError):
                    after.path.rename(before.path)
            raise
    return after.path if here or there else None


def _moved(trials: Sequence[TrialRecord], before: SweepFolder, after: Path) -> Iterator[tuple[int, Artifact, str]]:
    for trial in trials:
        for one in trial.artifacts:
            path = before.moved(resuming.located_path(one.path, before.path, trial.number), after)
            if path is not None:
                yield trial.number, one, path


def _is_of(after: SweepFolder, before: SweepFolder, trials: Sequence[TrialRecord]) -> bool:
    """Whether a folder is this sweep's: its process was killed after it had renamed the folder."""
    paths = [path for _, _, path in _moved(trials, before, after.path)]
    return bool(paths) and any(Path(path).exists() for path in paths)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What removing a sweep deletes.

    Attributes:
        sweep: as it is stored.
        num_trials: how many trials it has.
        paths: its files and folders.
        num_bytes: their size.
        folder: the sweep's folder.
        real: the same with links above it resolved; None: it is missing, or behind a link.
        left: names in the folder that are none of its trials', and stay.
        begun: names of other sweeps whose agents begin with files of it.
    """

    sweep: SweepRecord
    num_trials: int
    paths: Sequence[Path]
    num_bytes: int
    folder: Path
    real: Path | None
    left: Sequence[str]
    begun: Collection[str] = ()


def plan_removal(store: "WholeStore", store_url: str, name: str, artifacts: Path | None = None) -> Removal:
    """Returns what removing a sweep deletes. Raises `UsageError` where there is none, or a process runs it.

    For `artifacts` see `stores.artifact_directory`.
    """
    sweep = stores.find(store, name)
    sweep_files.require_idle(store, sweep, "removed")
    numbers = [int(number) for number in store.columns(sweep.id, fields=("number",)).number]
    folder = SweepFolder.of(store_url, name, artifacts)
    places = [folder.trial(number) for number in numbers] + [folder.path / one for one in PICTURES]
    found = [path for path in map(folder.inner, places) if path is not None]
    return Removal(
        sweep=sweep,
        num_trials=len(numbers),
        paths=found,
        num_bytes=sum(map(size, found)),
        folder=folder.path,
        real=folder.real,
        left=folder.strangers(numbers),
        begun=set(beginnings(store, sweep, folder).values()),
    )


def remove(store: "WholeStore", removal: Removal, *, keep_files: bool) -> None:
    """Removes a sweep: first from the store, at once, and then its files.

    Raises:
        UsageError: a process runs the sweep by now; or files cannot be deleted, after the sweep is gone from the store.
    """
    sweep_files.require_idle(store, removal.sweep, "removed")
    store.remove_sweep(removal.sweep.id)
    if keep_files:
        return
    try:
        for path in removal.paths:
            delete(path)
        if not removal.left and removal.real is not None:
            with contextlib.suppress(OSError):  # something else has been put there
                removal.real.rmdir()
    except OSError as error:
        raise UsageError(
            f"the sweep is removed, but not all of its files: {error.filename or removal.folder} cannot be deleted"
            f" ({error.strerror or error}); delete {removal.folder} by hand"
        ) from error


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Lets signals that end this process wait for the end of a short piece of work."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
