"""A store from outside, without opening it as one: whether there is one, its version, a copy, and its removal.

Nothing is made or changed to find out. SQLite would make a file where there is none, and files beside it, so the file
is opened as one that nobody changes.
"""

import errno
import os
import sqlite3
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import inspect
from sqlalchemy.exc import DBAPIError

from protein import files
from protein.errors import StoreError, StoreMissing, remedy

from .database import (
    BUSY_SECONDS,
    SMALLEST_DATABASE_BYTES,
    can_only_be_read,
    connect_to_read,
    create_engine,
    create_reading_engine,
    explain,
    parse_url,
    shown_url,
    unchanged,
)
from .upgrade import HEAD, VERSION_TABLE, version_of

_PAGES = 2000  # that are copied at once: Ctrl-C is noticed in between
_CHECK_ROWS = 3
_NONE_YET = "run protein sweep first, or name another with --store"


def require_store(url: str) -> None:
    """Raises `StoreError` unless there is a store of ours, of any version, at this URL."""
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        _require_file(Path(str(parsed.database)))
        return
    shown = shown_url(parsed)
    engine = create_engine(parsed)
    try:
        with engine.connect() as connection:
            tables = inspect(connection).get_table_names()
    except DBAPIError as error:
        raise explain(error, parsed) from error
    finally:
        engine.dispose()
    if not tables:
        raise StoreMissing(f"the database {shown} holds no store yet; {_NONE_YET}")


def _require_file(path: Path) -> None:
    try:
        if path.is_dir():
            raise StoreError(f"store {path} is a folder; give the path of a file in it, such as {path / 'protein.db'}")
        if not path.exists() or (path.is_file() and not path.stat().st_size):
            raise StoreMissing(f"there is no store {path} yet; {_NONE_YET}")
        if not path.is_file() or path.stat().st_size < SMALLEST_DATABASE_BYTES:
            raise StoreError(f"store {path} is not a SQLite database; give another path with --store")
    except OSError as error:
        raise StoreError(f"store {path} cannot be read ({error.strerror}); change that or give another") from error
    if not os.access(path, os.R_OK):
        raise StoreError(f"store {path} cannot be read: no permission; change that or give another")
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?immutable=1", uri=True)) as connection:
            found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB:
            raise StoreError(
                f"store {path} is not a SQLite database, or its first bytes are damaged; restore it from a copy, or"
                " give another path with --store"
            ) from error
        return  # damaged, or being written just now: opening it for good says so
    except UnicodeDecodeError as error:
        raise StoreError(
            f"store {path} is damaged: a name in it is no text; restore it from a copy, or give another with --store"
        ) from error
    except UnicodeEncodeError:
        raise StoreError(f"store {str(path)!r} is not a path that can be used; give another") from None
    tables = sorted(str(name) for (name,) in found if not str(name).startswith("sqlite_"))
    if not tables:
        raise StoreError(f"the database {path} holds no store yet; {_NONE_YET}")
    if VERSION_TABLE not in tables:
        raise StoreError(
            f"store {path} is a database of another program (it has the tables {', '.join(tables[:3])} and no"
            f" {VERSION_TABLE}); give another path with --store"
        )


def versions(url: str) -> tuple[str, str]:
    """Returns the version of a store's schema, and the newest version, which this package makes.

    Raises:
        StoreError: there is no store, it is none of ours, or a newer version wrote it.
    """
    require_store(url)
    parsed = parse_url(url)
    sqlite = parsed.get_backend_name() == "sqlite"
    shown = str(parsed.database) if sqlite else shown_url(parsed)
    engine = create_reading_engine(parsed)
    try:
        with engine.connect() as connection:
            return version_of(connection, shown) or "", HEAD
    except DBAPIError as error:
        raise explain(error, parsed) from error
    finally:
        engine.dispose()


def copy_file(source: Path, target: Path) -> None:
    """Copies a SQLite store into a new file, as it is at one moment; other processes may use it meanwhile.

    Raises:
        StoreError: the file exists already or cannot be written; or the store cannot be read, or is damaged.
    """
    if target.exists() or target.is_symlink():
        raise StoreError(f"{target} exists already, and a backup never replaces a file; give another path")
    with files.no_new_folder(target.parent):
        _copy_file(source, target)


def _name(unfinished: Path, target: Path) -> None:
    """Gives a finished file its name. Raises `FileExistsError` where there is such a file by now."""
    try:
        os.link(unfinished, target)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        os.close(os.open(target, os.O_CREAT | os.O_EXCL))  # this file system has no hard links
        unfinished.replace(target)


def _copy_file(source: Path, target: Path) -> None:
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(target.parent, os.W_OK):  # SQLite would say that it cannot open a file, and not which
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        with (
            unchanged(source) if can_only_be_read(source) else nullcontext(),
            closing(_connect(source)) as old,
            closing(sqlite3.connect(unfinished)) as new,
        ):
            # One snapshot of it. Else each write of a sweep would begin the copy again.
            old.execute("BEGIN")
            old.execute("SELECT 1 FROM sqlite_master").fetchone()
            # Without a callback Python notices Ctrl-C only after the last page.
            old.backup(new, pages=_PAGES, progress=lambda *_: None)
            found = [row[0] for row in new.execute(f"PRAGMA quick_check({_CHECK_ROWS})")]
        if found != ["ok"]:
            raise StoreError(f"store {source} is damaged ({'; '.join(found):.200}), and no backup was written")
        _name(unfinished, target)
    except sqlite3.Error as error:
        reason = " ".join(str(error).split())
        raise StoreError(
            f"{target} cannot be made a copy of store {source} ({reason}); see protein store check"
        ) from error
    except OSError as error:
        also = remedy(error)
        raise StoreError(
            f"{target} cannot be written ({error.strerror}); give another path{f' or {also}' if also else ''}"
        ) from error
    finally:
        for path in (
            unfinished,
            *(unfinished.with_name(unfinished.name + end) for end in ("-wal", "-shm", "-journal")),
        ):
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _connect(source: Path) -> sqlite3.Connection:
    return connect_to_read(source) if can_only_be_read(source) else sqlite3.connect(source, timeout=BUSY_SECONDS)


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
