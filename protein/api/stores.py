"""Finds and opens the store that a user means, and finds a sweep in it."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from protein import files, storage, urls
from protein.errors import UsageError
from protein.names import folder_name
from protein.ports import Store
from protein.spelling import nearest
from protein.types import SweepRecord, TrialRecord
from protein.view import commands

if TYPE_CHECKING:
    from protein.storage.whole import WholeStore

DEFAULT_URL = "sqlite:///runs/protein.db"
VARIABLE = "PROTEIN_STORE"


def url(given: str | None) -> str:
    """Returns the store's URL: the flag's, the environment variable's or the default, in this order."""
    return given if given is not None else os.environ.get(VARIABLE) or DEFAULT_URL


def absolute_url(given: str | None) -> str:
    """Returns the store's URL as `url` does; that of a file holds its absolute path."""
    path = file(url(given))
    if path is None:
        return url(given)
    return "sqlite:///" + str(path.absolute()).replace("%", "%25").replace("?", "%3F")


def shown(given: str | None) -> str:
    """Returns the store's URL as `absolute_url` does, without a password."""
    return urls.hidden(absolute_url(given))


def file(store_url: str) -> Path | None:
    """Returns the file of a SQLite store; None for a server. Raises `StoreError` when the URL is neither."""
    return storage.database_file(store_url)


def artifact_directory(store_url: str, sweep: str, artifacts: Path | None = None) -> Path:
    """Returns the folder of a sweep's artifacts, which lies in `artifacts_root`, whatever the sweep is called.

    A name that no sweep may have, such as "../..", has a folder of another name (`protein.names.folder_name`). So has
    one that begins with the name of the store's file there: the database keeps files of such names beside it.
    `artifacts` is the folder that the sweep was given for all of its files. Its name is not trusted.
    """
    root, path = artifacts_root(store_url, artifacts), file(store_url)
    beside = path is not None and os.path.normpath(path.parent.absolute()) == os.path.normpath(root)
    return root / folder_name(sweep, taken=path.name if path is not None and beside else "")


def artifacts_root(store_url: str, artifacts: Path | None = None) -> Path:
    """Returns the folder in which each sweep has one: beside the store's file, apart from those of other stores there.

    It is that of the file's name without its ending; of a file `mine` without one it is `mine_files`; and of the usual
    file, `protein.db`, the folder where the file is. `artifacts` is the folder that the sweeps were given for all of
    their files.
    """
    if artifacts is not None:
        return artifacts.absolute()
    path = file(store_url)
    if path is None:
        return Path("runs").absolute() / storage.database_name(store_url)
    if path.name == "protein.db":
        return path.parent.absolute()
    own = path.with_suffix("")
    return (own if own != path else path.with_name(f"{path.name}_files")).absolute()


def linked(store_url: str, sweep: str, artifacts: Path | None = None) -> Path | None:
    """Returns the symbolic link that leads away from where a sweep's files belong; None: there is none.

    The folder of the store's file is the user's choice, as `artifacts` is, and so are links above it. A link below may
    have come with the store.
    """
    folder, path = artifact_directory(store_url, sweep, artifacts), file(store_url)
    places = [folder]
    if artifacts is None and path is not None and path.name != "protein.db":
        places.append(folder.parent)
    return next((place for place in places if place.is_symlink()), None)


def require_unlinked(store_url: str, sweep: str, artifacts: Path | None = None) -> None:
    """Raises `UsageError` where files of a sweep would be written through a link that may have come with the store."""
    if (link := linked(store_url, sweep, artifacts)) is not None:
        raise UsageError(
            f"{link} is a symbolic link, through which nothing is written: it may have come with the store; give"
            f" --artifacts FOLDER for files elsewhere, or put a folder in its place"
        )


def given_artifacts(folder: Path | None) -> Path | None:
    """Returns what --artifacts of a command says about sweeps that have run. Raises `UsageError` for no folder."""
    if folder is not None and not folder.is_dir():
        raise UsageError(f"--artifacts {folder}: there is no such folder; give the one that the sweep was given")
    return folder


def same(one: str, other: str) -> bool:
    """Whether two URLs name the same store. Raises `StoreError` when one of them is malformed."""
    paths = file(one), file(other)
    if paths[0] is not None and paths[1] is not None:
        return paths[0].resolve() == paths[1].resolve()
    return one.partition("?")[0] == other.partition("?")[0]


def check(store_url: str) -> None:
    """Raises `StoreError` if there is no store at this URL. Nothing is made or changed."""
    storage.require_store(store_url)


def new_folder(given: str | None) -> str | None:
    """Returns what is to be known of a store that would be made in a new folder, of which the name may be a slip.

    None: there is such a folder already; or it is the usual one, which nobody has named; or a server's store.
    """
    path = file(url(given))
    if path is None or path.parent.is_dir() or url(given) == DEFAULT_URL:
        return None
    folder = path.parent.absolute()
    first = next(one for one in (folder, *folder.parents) if one.parent.is_dir())
    near = ""
    with contextlib.suppress(OSError):  # what lies beside it may not be ours to read
        near = nearest(first.name, [one.name for one in first.parent.iterdir() if one.is_dir()])
    slip = near if "did you mean" in near else ""  # else it lists all of them
    return f"there is no folder {folder} yet: it is made for a new store, {path.name}{slip}"


@contextlib.contextmanager
def opened(given: str | None, *, create: bool = False) -> Iterator[Store]:
    """Opens a store and closes it at the end. One that was made here goes again where no sweep gets into it.

    Raises:
        StoreError: it cannot be opened; or, unless `create`, there is none yet.
    """
    store_url = url(given)
    with _discarded_on_failure(store_url), contextlib.closing(storage.open_store(store_url, create=create)) as store:
        yield store


@contextlib.contextmanager
def opened_whole(given: str | None, *, create: bool = False) -> "Iterator[WholeStore]":
    """Opens a store for whole sweeps (`protein.storage.whole`) and closes it at the end. Raises as `opened` does."""
    store_url = url(given)
    with (
        _discarded_on_failure(store_url),
        contextlib.closing(storage.open_whole_store(store_url, create=create)) as store,
    ):
        yield store


@contextlib.contextmanager
def _discarded_on_failure(store_url: str) -> Iterator[None]:
    """Leaves nothing behind of a store that is made for work that is refused or fails before there is a sweep."""
    path = file(store_url)
    if path is None or path.exists():
        yield
        return
    with files.no_new_folder(path.parent):
        try:
            yield
        except BaseException:
            from protein.storage import existing  # late, as in `protein.storage`

            existing.discard_empty(path)
            raise


def find(store: Store, name: str | None) -> SweepRecord:
    """Returns a sweep by name; without a name the store's only sweep.

    Raises:
        UsageError: there is no such sweep, or several to choose from.
    """
    sweeps = {sweep.spec.name: sweep for sweep in store.list_sweeps()}
    if not sweeps:
        raise UsageError("the store holds no sweep yet; start one with protein sweep --env NAME --max-cost 10m")
    if name is None:
        if len(sweeps) > 1:
            raise UsageError(f"there are {len(sweeps)} sweeps; name one of them: {', '.join(sweeps)}")
        return next(iter(sweeps.values()))
    if name not in sweeps:
        raise UsageError(f"there is no sweep '{name}'{nearest(name, sweeps)}")
    return sweeps[name]


def find_trial(store: Store, sweep: SweepRecord, number: int) -> TrialRecord:
    """Returns one trial with its curve. Raises `UsageError` where the sweep has none of this number."""
    found = store.trials(sweep.id, numbers=[number])
    if not found:
        last = store.summaries([sweep.id])[sweep.id].total - 1
        held = f"0 to {last}" if last >= 0 else "none yet"
        raise UsageError(f"sweep '{sweep.spec.name}' has no trial {number}; it has {held}")
    return found[0]


def store_words(given: str | None) -> list[str]:
    """Returns the words that name the same store in a command to run next; none for the usual store."""
    return [] if given is None else ["--store", urls.hidden(given)]


def best_hint(sweep: str, given: str | None) -> str:
    """Returns the line below measured scores that names the command for the recommended config."""
    line = commands.command("best", sweep, *store_words(given))
    return f"a high measured score may be luck; for the recommended config run: {line}"
