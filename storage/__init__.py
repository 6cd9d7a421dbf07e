"""Every trial, durably: SQLAlchemy over SQLite (the default, a file) or PostgreSQL.

    open_store("runs/protein.db")                           a file: the same as sqlite:///runs/protein.db
    open_store("postgresql+psycopg://user@host/database")   a server, for several machines

The file format is SQLite with a write-ahead log: any number of processes on one machine may use it at once. Do not put
it on a network file system (NFS, SMB), where locks and shared memory do not work; use PostgreSQL for several machines.
A store belongs to the process that opened it. Do not use it after a fork.
"""

from pathlib import Path

from protein.ports import Store

__all__ = ["database_file", "open_store"]


def open_store(url: str) -> Store:
    """Opens a store; creates its folder and schema when there is none yet, and upgrades an older schema.

    Args:
        url: a path, `sqlite:///relative/path`, `sqlite:////absolute/path` or `postgresql+psycopg://...`.

    Raises:
        StoreError: it cannot be opened, is not a store of ours, or a newer version wrote it. Nothing has been changed.
    """
    from .store import (
        SqlStore,
    )  # late: importing SQLAlchemy takes 0.3 s, and `protein --help` does not need it

    return SqlStore(url)


def database_file(url: str) -> Path | None:
    """Returns the file that `open_store` would use; None if a server keeps the store. Opens and creates nothing.

    Raises:
        StoreError: the URL is malformed or not supported.
    """
    from .engine import parse_url

    parsed = parse_url(url)
    return Path(str(parsed.database)) if parsed.get_backend_name() == "sqlite" else None
