"""Renaming and removing a sweep, with its folder."""

import contextlib
import dataclasses
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from protein.api import moving, stores
from protein.api.definition import check_name
from protein.api.sweep_folder import PICTURES, SweepFolder, delete, size
from protein.errors import UsageError
from protein.types import Artifact, SweepRecord, TrialRecord

if TYPE_CHECKING:
    from protein.storage.whole import WholeStore

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def rename(store: "WholeStore", store_url: str, old: str, new: str, artifacts: Path | None = None) -> Path | None:
    """Renames a sweep and its folder; the paths of its files in the store follow. Returns the new folder, if any.

    Args:
        store: of the sweep.
        store_url: of the store.
        old: the sweep's name.
        new: its name from now on.
        artifacts: see `stores.artifact_directory`.

    Raises:
        UsageError: there is no such sweep, a process runs it, or the folder cannot be renamed. Nothing was changed.
        StoreError: the store has a sweep of the new name.
    """
    sweep = stores.find(store, old)
    check_name(new, "the new name")
    if new == old:
        raise UsageError(f"sweep '{old}' has this name already; give another")
    moving.require_idle(store, sweep, "renamed")
    before, after = (SweepFolder.of(store_url, name, artifacts) for name in (old, new))
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
            path = before.moved(one.path, after)
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
    """

    sweep: SweepRecord
    num_trials: int
    paths: Sequence[Path]
    num_bytes: int
    folder: Path
    real: Path | None
    left: Sequence[str]


def plan_removal(store: "WholeStore", store_url: str, name: str, artifacts: Path | None = None) -> Removal:
    """Returns what removing a sweep deletes. Raises `UsageError` where there is none, or a process runs it.

    Args:
        store: of the sweep.
        store_url: of the store.
        name: of the sweep.
        artifacts: see `stores.artifact_directory`.
    """
    sweep = stores.find(store, name)
    moving.require_idle(store, sweep, "removed")
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
    )


def remove(store: "WholeStore", removal: Removal, *, keep_files: bool) -> None:
    """Removes a sweep: first from the store, at once, and then its files.

    Raises:
        UsageError: a process runs the sweep by now; or files cannot be deleted, after the sweep is gone from the store.
    """
    moving.require_idle(store, removal.sweep, "removed")
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
