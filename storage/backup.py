"""A copy of a SQLite store while it is used, and the version of a store's schema without changing it."""

import errno
import os
import sqlite3
from contextlib import closing, nullcontext, suppress
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from protein import files
from protein.errors import StoreError, remedy

from .engine import (
    BUSY_SECONDS,
    can_only_be_read,
    connect_to_read,
    create_reading_engine,
    explain,
    parse_url,
    shown_url,
    unchanged,
)
from .existing import require_store
from .upgrade import HEAD, version_of

_PAGES = 2000  # that are copied at once: Ctrl-C is noticed in between
_CHECK_ROWS = 3


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
