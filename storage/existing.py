"""Whether there is a store at a URL, found out without making or changing anything.

SQLite makes a file where there is none, and files beside it. So it opens the file as one that nobody changes.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import inspect
from sqlalchemy.exc import DBAPIError

from protein.errors import StoreError, StoreMissing

from .engine import SMALLEST_DATABASE_BYTES, create_engine, explain, parse_url, shown_url
from .upgrade import VERSION_TABLE

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
