"""The database below a store: URLs, engines, transactions, the clock, and what is said when something fails.

SQLite runs with a write-ahead log, `synchronous=NORMAL` (a crash of processes loses nothing that was committed; a power
cut may lose the last commits, never the file) and foreign keys. Every write takes the lock at its start
(`BEGIN IMMEDIATE`), since a transaction that reads first and asks for the lock later can fail without waiting.
"""

import functools
import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy
from sqlalchemy import ColumnElement, Connection, Engine, Interval, event, func, literal, type_coerce
from sqlalchemy.exc import ArgumentError, DBAPIError, DisconnectionError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from protein.errors import StoreError, StoreUnavailable
from protein.spelling import nearest
from protein.urls import hidden

from .tables import Utc
from .upgrade import bring_up_to_date

BUSY_SECONDS = 30  # how long a write waits for another process's lock
CONNECT_SECONDS = 10  # how long to wait for a server
KEEPALIVES = {"keepalives_idle": 20, "keepalives_interval": 5, "keepalives_count": 4, "tcp_user_timeout": 40_000}
READ_TRIES = 5  # to open a file that may only be read, while another user's processes begin and end
IDLE_SECONDS = 1.0  # a connection to a server that was not used for so long is tried before it is used
CHECKPOINT_SECONDS = 60.0  # what was written within so long may stand in the log of a SQLite file alone
WRITE = {"protein_write": True}  # execution option of an engine whose transactions write

_FILE = "protein_file"
_USED = "protein_used"  # when a connection was used last, on the monotonic clock
SMALLEST_DATABASE_BYTES = 512  # one page; SQLite takes what is shorter for empty and would overwrite it
_FORMS = "use a path such as runs/protein.db or postgresql+psycopg://user@host/database"

# Ctrl-C may come while a connection is closed. It is raised then. The traceback that was printed, too, told nothing.
logging.getLogger("sqlalchemy.pool").addHandler(logging.NullHandler())


class Database:
    """An open database whose schema is up to date.

    Raises:
        StoreError: it cannot be opened.
    """

    def __init__(self, url: str, *, to_write: bool = True) -> None:
        """Args:
        url: of the database.
        to_write: whether it is no use unless it can be written. Otherwise a file may be one that can only be read:
            then whatever writes is refused.
        """
        self._url = parse_url(url)
        self._sqlite = self._url.get_backend_name() == "sqlite"
        self._shown = str(self._url.database) if self._sqlite else shown_url(self._url)
        read_only = self._sqlite and not to_write and can_only_be_read(Path(str(self._url.database)))
        self._only_read = Path(str(self._url.database)) if read_only else None  # the file, if it may not be written
        if self._sqlite and not read_only:
            check_file(Path(str(self._url.database)))
        self._engine = create_reading_engine(self._url) if read_only else create_engine(self._url)
        self._write_engine = self._engine.execution_options(**WRITE)
        self._at_once_engine = self._engine  # whose statements are transactions of their own; on servers alone
        self._read_engine = self._engine
        self._checkpointed: float | None = None  # on the monotonic clock; None: nothing was written
        if not self._sqlite:  # several queries, one moment; SQLite's transactions are that anyway
            self._read_engine = self._engine.execution_options(isolation_level="REPEATABLE READ")
            self._at_once_engine = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        try:
            with self._explained(), self._damage_explained():
                # First: it may refuse, and must then have changed nothing.
                bring_up_to_date(self._engine, self._shown, read_only=read_only)
                if not read_only:
                    set_write_ahead_log(self._engine)
        except BaseException:
            self._engine.dispose()
            raise

    def close(self) -> None:
        if self._checkpointed is not None:
            self._checkpoint()
        self._engine.dispose()

    @contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Session]:
        with self._explained(), Session(engine, expire_on_commit=False) as session, session.begin():
            yield session
        if engine is self._write_engine and self._sqlite:
            last = self._checkpointed
            if last is None or time.monotonic() - last >= CHECKPOINT_SECONDS:
                self._checkpoint()

    def _checkpoint(self) -> None:
        """Moves into a SQLite file what its write-ahead log holds: people copy the file alone. It waits for nobody."""
        self._checkpointed = time.monotonic()
        with suppress(DBAPIError, sqlite3.Error), closing(self._engine.raw_connection()) as raw:
            raw.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)")

    @contextmanager
    def _reading(self, sweep_id: int | None = None) -> Iterator[Session]:
        """A transaction that only reads. A stored value that cannot be read, in a damaged file, is a `StoreError`."""
        with self._one_moment(), self._damage_explained(sweep_id), self._transaction(self._read_engine) as session:
            yield session

    def _one_moment(self) -> AbstractContextManager[None]:
        """Returns a context in which all that is read is of one moment, or that raises `StoreUnavailable`."""
        return nullcontext() if self._only_read is None else unchanged(self._only_read)

    @contextmanager
    def _damage_explained(self, sweep_id: int | None = None) -> Iterator[None]:
        """Turns what Python says of a value that was never written so into one line."""
        try:
            yield
        except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
            whose = "" if sweep_id is None else f" of sweep {sweep_id}"
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise StoreError(
                f"store {self._shown}: a value{whose} is damaged and cannot be read ({reason:.200});"
                " restore it from a copy"
            ) from error

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, PoolTimeout) as error:
            raise explain(error, self._url) from error

    def _now(self, later: timedelta = timedelta(0)) -> ColumnElement[datetime]:
        """The server's clock, read by the statement itself; for SQLite, the clock of this machine.

        Call it inside the transaction. Otherwise a wait for a lock would make the time, and the lease, too old.
        """
        if self._engine.dialect.name == "sqlite":
            return literal(datetime.now(UTC) + later, Utc())
        return type_coerce(func.clock_timestamp() + literal(later, Interval()), Utc())


def parse_url(url: str) -> sqlalchemy.URL:
    """Returns the URL with its driver chosen; a plain path means SQLite. Touches nothing.

    Raises:
        StoreError: it is malformed, or names a database or a driver that isn't supported.
    """
    if not url.strip():
        raise StoreError(f"the store's URL is empty; {_FORMS}")
    if "://" not in url:
        if (
            hidden(url) != url
            or url.startswith(("sqlite:", "postgres:", "postgresql:"))
            or url == ":memory:"
            or "\0" in url
        ):
            raise StoreError(f"store {hidden(url)!r} is neither a path nor a URL; {_FORMS}")
        return sqlalchemy.URL.create("sqlite", database=str(Path(url).expanduser()))
    try:
        parsed = sqlalchemy.make_url(url)
    except (ArgumentError, ValueError) as error:  # ValueError: a port that is no number
        raise StoreError(f"store URL {hidden(url)!r} cannot be read; {_FORMS}") from error
    kind, _, driver = parsed.drivername.partition("+")
    shown = hidden(url)
    if "@" in (parsed.host or ""):
        raise StoreError(f"store {shown!r}: the user or the password holds an @; write it as %40")
    if kind == "sqlite" and driver in ("", "pysqlite"):
        if parsed.host:
            raise StoreError(f"store {shown!r} names a host; a relative path takes three slashes, an absolute one four")
        if not parsed.database or parsed.database == ":memory:":
            raise StoreError(f"store {shown!r} names no file, and a store in memory could not be resumed; {_FORMS}")
        if parsed.query or "\0" in parsed.database:
            raise StoreError(f"store {shown!r}: a SQLite store takes a path and no options; {_FORMS}")
        return sqlalchemy.URL.create("sqlite", database=str(Path(parsed.database).expanduser()))
    if kind == "postgresql" and driver in ("", "psycopg"):
        if not parsed.database:
            raise StoreError(f"store {shown!r} names no database; {_FORMS}")
        return parsed.set(drivername="postgresql+psycopg")
    if kind in ("sqlite", "postgresql"):
        raise StoreError(f"store {shown!r}: the driver {driver!r} is not supported; {_FORMS}")
    raise StoreError(f"store {shown!r}: {kind!r} is not supported{nearest(kind, ['sqlite', 'postgresql'])}; {_FORMS}")


def check_file(path: Path) -> None:
    """Raises `StoreError` unless a SQLite store may be opened or created at `path`. Creates the parent folder.

    SQLite would report all of this as "unable to open". The file itself is left to SQLite: closing a handle of ours
    would drop the locks that other connections of this process hold on it.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"store {path}: its folder cannot be made ({error.strerror}); give another path") from error
    if path.is_dir():
        raise StoreError(f"store {path} is a folder; give the path of a file in it, such as {path / 'protein.db'}")
    if path.exists() and 0 < path.stat().st_size < SMALLEST_DATABASE_BYTES:
        raise StoreError(f"store {path} is not a SQLite database; give another path with --store")
    for place, what in ((path.resolve().parent, "folder (it holds the write-ahead log)"), (path, "file")):
        if place.exists() and not os.access(place, os.W_OK):
            raise StoreError(f"store {path}: no permission to write the {what} {place}; change that or give another")


def can_only_be_read(path: Path) -> bool:
    """Whether there is a file at `path`, and it or its folder, which holds the write-ahead log, may not be written.

    Behind a symbolic link it is the folder of the file itself: SQLite keeps the log there.
    """
    return path.is_file() and not (os.access(path, os.W_OK) and os.access(path.resolve().parent, os.W_OK))


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Connects to a SQLite file that may only be read, such as a colleague's store.

    Where another user writes it, its log lies beside it and is read, too. Where there is no log, SQLite cannot make
    one, so the file is opened as one that nobody changes. The log comes and goes with that user's processes, also
    between the look for it and its first use: then this begins anew.
    """
    real = path.resolve()
    log = real.with_name(real.name + "-wal")
    for left in reversed(range(READ_TRIES)):
        unchanging = "" if log.exists() else "&immutable=1"
        connection = sqlite3.connect(f"file:{quote(str(real))}?mode=ro{unchanging}", uri=True, timeout=BUSY_SECONDS)
        try:
            connection.execute("PRAGMA schema_version").fetchone()  # from now on this connection keeps the log there
            break
        except sqlite3.OperationalError:
            if not left:
                break  # what is asked next says why
            connection.close()
            time.sleep(0.01)
    return connection


@contextmanager
def unchanged(path: Path) -> Iterator[None]:
    """Makes sure that a file that may only be read does not change while it is read without a log.

    Raises:
        StoreUnavailable: another user has begun to write it, so that parts of two moments may have been read.
    """
    real = path.resolve()
    before = None if real.with_name(real.name + "-wal").exists() else _state(real)  # a log keeps one moment together
    changed = StoreUnavailable(
        f"store {path} was written by somebody else while it was read; run the same command again"
    )
    try:
        yield
    except StoreError as error:  # what fits not together looks like damage
        if before is not None and _state(real) != before:
            raise changed from error
        raise
    if before is not None and _state(real) != before:
        raise changed


def _state(path: Path) -> tuple[int, int]:
    facts = path.stat()
    return facts.st_mtime_ns, facts.st_size


def create_reading_engine(url: sqlalchemy.URL) -> Engine:
    """Returns an engine to read with: as `create_engine`, but also for a SQLite file that may only be read."""
    path = Path(str(url.database))
    if url.get_backend_name() != "sqlite" or not can_only_be_read(path):
        return create_engine(url)
    # Each transaction has a connection of its own: another user may begin to write between two of them.
    engine = sqlalchemy.create_engine(
        "sqlite://", creator=functools.partial(connect_to_read, path), poolclass=sqlalchemy.NullPool
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def create_engine(url: sqlalchemy.URL) -> Engine:
    """Returns an engine for a URL from `parse_url`, without connecting yet.

    Raises:
        StoreError: the driver is not installed.
    """
    if url.get_backend_name() == "sqlite":
        engine = sqlalchemy.create_engine(url, connect_args={"timeout": BUSY_SECONDS})
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", functools.partial(_require_file, os.path.abspath(str(url.database))))  # noqa: PTH100
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    # A server that vanishes without a word is noticed before the leases of trials end.
    usual: dict[str, Any] = {"connect_timeout": CONNECT_SECONDS, **KEEPALIVES}
    arguments: dict[str, Any] = {name: value for name, value in usual.items() if name not in url.query}
    if "options" not in url.query:
        arguments["options"] = f"-c lock_timeout={BUSY_SECONDS}s"
    try:
        engine = sqlalchemy.create_engine(url, connect_args=arguments, pool_size=2)
    except ImportError as error:
        raise StoreError(
            f"store {shown_url(url)} needs psycopg, which cannot be imported "
            f"({_one_line(error)}); pip install 'protein-sweep[postgresql]'"
        ) from error
    event.listen(engine, "checkout", functools.partial(_ping_after_a_pause, engine))
    event.listen(engine, "checkin", _remember_use)
    return engine


def set_write_ahead_log(engine: Engine) -> None:
    """Switches a SQLite file to its write-ahead log, once; the file remembers it. Nothing to do elsewhere."""
    if engine.dialect.name != "sqlite":
        return
    raw = engine.raw_connection()
    try:
        cursor = raw.cursor()
        end = time.monotonic() + BUSY_SECONDS
        while cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            try:
                cursor.execute("PRAGMA journal_mode=WAL")
            except sqlite3.OperationalError as error:  # the switch does not wait for other connections by itself
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise OperationalError("PRAGMA journal_mode=WAL", None, error) from error
                time.sleep(0.01)
    finally:
        raw.close()


def explain(error: DBAPIError | PoolTimeout, url: sqlalchemy.URL) -> StoreError:
    """Returns what a database's error means to the user, in one line with a remedy."""
    sqlite = url.get_backend_name() == "sqlite"
    shown = url.database if sqlite else shown_url(url)
    cause = (error.orig if isinstance(error, DBAPIError) else None) or error
    code = getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None) or ""
    if sqlite and str(cause).startswith(_OTHER_TABLES):  # SQLite has no code of its own for these
        code = "42703"
    for codes, kind, meaning in _MEANINGS:
        if code.startswith(codes):
            return kind(f"store {shown}: {meaning} ({_one_line(cause)})")
    if not sqlite and isinstance(error, OperationalError | PoolTimeout):
        remedy = "check its address and password, that it runs, and that the database exists"
        return StoreUnavailable(f"store {shown}: the server cannot be used ({_one_line(cause)}); {remedy}")
    return StoreError(f"store {shown}: refused ({_one_line(cause)}); nothing was written")


_OTHER_TABLES = ("no such table", "no such column")
_MEANINGS: tuple[tuple[tuple[str, ...], type[StoreError], str], ...] = (
    (
        ("SQLITE_FULL", "53100"),
        StoreUnavailable,
        "the disk is full, so the last write was undone; free some space and run the same command again",
    ),
    (
        ("SQLITE_BUSY", "SQLITE_LOCKED", "55P03"),
        StoreUnavailable,
        f"another process has locked it for more than {BUSY_SECONDS} s, so nothing was written; end that process",
    ),
    (
        ("SQLITE_IOERR",),
        StoreUnavailable,
        "the disk fails or has no space left, so the last write was undone; free some space, or move the store",
    ),
    (
        ("SQLITE_READONLY", "SQLITE_CANTOPEN", "42501", "25006"),
        StoreUnavailable,
        "no permission to write, or its folder is gone; change that, or give another store with --store",
    ),
    (
        ("SQLITE_NOTADB", "SQLITE_CORRUPT"),
        StoreError,
        "not a SQLite database, or damaged; restore it from a copy, or give another path with --store",
    ),
    (
        ("42703", "42P01"),
        StoreError,
        "another version of protein has upgraded it meanwhile; end this program, and start it again with that version",
    ),
)


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions begin where `_begin_sqlite` says, not before the first INSERT
    try:
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")
    except UnicodeDecodeError as error:  # SQLite's own message quotes a schema that is damaged
        damaged = sqlite3.DatabaseError("its schema is no text")
        damaged.sqlite_errorcode, damaged.sqlite_errorname = sqlite3.SQLITE_CORRUPT, "SQLITE_CORRUPT"
        raise damaged from error


def _require_file(path: str, connection: Connection) -> None:
    """Refuses to write to a file that is gone, or replaced, since the connection was made.

    SQLite would write on to the open file, which has no name any more and ends with the process.

    Raises:
        StoreUnavailable: it is gone or replaced. If it was replaced, all later calls use the new file.
    """
    writes = connection.get_execution_options().get("protein_write", False)
    now = _identity(path)
    if writes and connection.info.get(_USED) is not None:
        if now is None:
            gone = "its file was deleted or moved away, so nothing is stored; put it back"
            raise StoreUnavailable(f"store {path}: {gone}")
        if now != connection.info.setdefault(_FILE, now):
            connection.invalidate()
            connection.engine.dispose()  # the pool's other connections hold the old file, too
            replaced = "its file was replaced by another one, so nothing was written"
            raise StoreUnavailable(
                f"store {path}: {replaced}; from now on the new file is used, without what only the old one holds"
            )
    if now is not None:  # SQLite makes a new file at the first write
        connection.info.setdefault(_FILE, now)
    connection.info[_USED] = time.monotonic()


def _identity(path: str) -> tuple[int, int] | None:
    """Returns which file lies at a path; None: there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _begin_sqlite(connection: Connection) -> None:
    write = connection.get_execution_options().get("protein_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _ping_after_a_pause(engine: Engine, connection: Any, record: Any, _proxy: object) -> None:
    """Asks the server whether a connection still works, if it was not used for a while; the pool replaces one that does
    not. To ask each time, as `pool_pre_ping` does, is a sixth of what a report of a trial costs."""
    used = record.info.get(_USED)
    if used is None or time.monotonic() - used < IDLE_SECONDS:
        return
    try:
        works = engine.dialect.do_ping(connection)
    except DBAPIError as error:
        raise DisconnectionError from error
    except Exception as error:
        if not engine.dialect.is_disconnect(error, connection, None):  # type: ignore[arg-type]
            raise
        works = False
    if not works:
        raise DisconnectionError


def _remember_use(_connection: object, record: Any) -> None:
    record.info[_USED] = time.monotonic()


def shown_url(url: sqlalchemy.URL) -> str:
    """Returns a URL without any password, for messages."""
    return hidden(url.render_as_string(hide_password=True).replace(":***@", "@"))


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
