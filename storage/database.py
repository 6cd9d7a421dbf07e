"""The database below a store: its engines, its transactions, its clock, and what it says when something fails."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import ColumnElement, Engine, Interval, func, literal, type_coerce
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from protein.errors import StoreError

from .engine import (
    WRITE,
    can_only_be_read,
    check_file,
    create_engine,
    create_reading_engine,
    explain,
    parse_url,
    set_write_ahead_log,
    shown_url,
    unchanged,
)
from .tables import Utc
from .upgrade import bring_up_to_date


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
        self._engine.dispose()

    @contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Session]:
        with self._explained(), Session(engine, expire_on_commit=False) as session, session.begin():
            yield session

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
        except (ValueError, TypeError, KeyError, ArithmeticError) as error:
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
