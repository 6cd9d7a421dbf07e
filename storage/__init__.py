"""Every trial, durably: SQLAlchemy over SQLite (the default, a file) or PostgreSQL.

    open_store("runs/protein.db")                           a file: the same as sqlite:///runs/protein.db
    open_store("postgresql+psycopg://user@host/database")   a server, for several machines

The file format is SQLite with a write-ahead log: any number of processes on one machine may use it at once. Do not put
it on a network file system (NFS, SMB), where locks and shared memory do not work; use PostgreSQL for several machines.
A store belongs to the process that opened it. Do not use it after a fork.
"""

if not __name__.startswith("protein."):  # from the repository's root it would be a second copy, with other classes
    raise ImportError(f"import protein.{__name__} in place of {__name__}")

from pathlib import Path
from typing import TYPE_CHECKING

from protein.ports import Store

if TYPE_CHECKING:
    from .whole import WholeStore

__all__ = [
    "database_file",
    "database_name",
    "open_store",
    "open_whole_store",
    "require_store",
]


def open_store(url: str, *, create: bool = True) -> Store:
    """Opens a store; creates its folder and schema when there is none yet, and upgrades an older schema.

    Args:
        url: a path, `sqlite:///relative/path`, `sqlite:////absolute/path` or `postgresql+psycopg://...`.
        create: whether there may be none yet. Commands that only read say no: then nothing is made where nothing is,
            and no database becomes a store that was none. A file that can only be read will do for them.

    Raises:
        StoreError: it cannot be opened, is not a store of ours, or a newer version wrote it; or there is none yet.
            Nothing has been changed.
    """
    from .store import (
        SqlStore,
    )  # late: importing SQLAlchemy takes 0.3 s, and `protein --help` does not need it

    if not create:
        require_store(url)
    return SqlStore(url, to_write=create)


def open_whole_store(url: str, *, create: bool = True) -> "WholeStore":
    """Opens a store to export, import, check, rename or remove whole sweeps. As `open_store` otherwise."""
    from .whole import WholeStore

    if not create:
        require_store(url)
    return WholeStore(url, to_write=create)


def require_store(url: str) -> None:
    """Raises `StoreError` unless there is a store at this URL. It makes and changes nothing."""
    from . import existing

    existing.require_store(url)


def database_file(url: str) -> Path | None:
    """Returns the file that `open_store` would use; None if a server keeps the store. Opens and creates nothing.

    Raises:
        StoreError: the URL is malformed or not supported.
    """
    from .database import parse_url

    parsed = parse_url(url)
    return Path(str(parsed.database)) if parsed.get_backend_name() == "sqlite" else None


def database_name(url: str) -> str:
    """Returns the name of a server's database, or a file's path. Raises `StoreError` as `database_file` does."""
    from .database import parse_url

    return str(parse_url(url).database)
