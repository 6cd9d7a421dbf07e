"""Removes the file of a store that was made for work that then failed."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote


def discard_empty(path: Path) -> None:
    """Removes a SQLite store, unless it holds a sweep or another connection has it open.

    Nothing is written, so this works on a full disk, too. The exclusive lock keeps others out until the file is gone.
    """
    with suppress(sqlite3.Error, OSError):
        uri = f"file:{quote(str(path))}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)) as connection:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("BEGIN EXCLUSIVE")
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if "sweeps" in tables and connection.execute("SELECT 1 FROM sweeps").fetchone() is not None:
                return
            for ending in ("", "-wal", "-shm"):
                path.with_name(path.name + ending).unlink(missing_ok=True)
