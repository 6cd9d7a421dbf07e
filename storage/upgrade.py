"""The version of the schema: which one a database has, and how an older or empty database gets ours.

Migrations are Alembic's, numbered from 0001, in `migrations/versions`; `HEAD` is the last. They upgrade older
databases. An empty one gets the tables of the row classes, which are the same (`tests/storage/test_schema.py`). One
plain query reads the version. So a new store and a current one do not wait for Alembic, which takes 0.4 s for an empty
database. The table of the version has a name of its own: other programs use Alembic, too, and we must not take their
databases for ours.
"""

import shlex
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection, Engine, String, column, inspect, select, table, text

from protein.errors import StoreError

from .tables import Base, Utc

VERSION_TABLE = "protein_schema"
MIGRATIONS = Path(__file__).parent / "migrations"
HEAD = max(file.name[:4] for file in (MIGRATIONS / "versions").glob("[0-9]*.py"))

_ADVISORY_LOCK = 0x70726F7465696E  # "protein"; held while a PostgreSQL database is migrated


def bring_up_to_date(
    engine: Engine, shown: str, *, migrations: Path = MIGRATIONS, head: str = HEAD, read_only: bool = False
) -> None:
    """Creates or upgrades the schema if needed, in one transaction. For a current schema this is one query.

    Args:
        engine: of the database.
        shown: how messages name the store.
        migrations: Alembic's folder.
        head: the last revision in it.
        read_only: whether the database can only be read, so that an older one is refused.

    Raises:
        StoreError: the database is another program's, or from a newer version of ours; or it is to be upgraded while a
            trial runs. It has not been changed.
    """
    with engine.connect() as connection:
        version = version_of(connection, shown, head)
    if version == head:
        return
    if read_only:
        raise StoreError(
            f"store {shown} has schema {version}, this version of protein reads {head}, and you have no permission to"
            f" upgrade it; read a copy: protein store backup {shlex.quote(shown)} -o copy.db"
        )
    # Foreign keys are off while tables are rebuilt: SQLite would otherwise delete the rows that refer to a dropped
    # table. The switch has no effect inside a transaction, and must not outlive this one.
    connection = engine.connect()
    try:
        if engine.dialect.name == "sqlite":
            raw = connection.connection.dbapi_connection
            assert raw is not None
            raw.cursor().execute("PRAGMA foreign_keys=OFF")
        connection = connection.execution_options(protein_write=True)
        with connection.begin():
            if engine.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
            if (version := version_of(connection, shown, head)) != head:  # no other process was faster
                if version is None and head == HEAD:
                    _create(connection)
                    return
                if version is not None:
                    _refuse_while_a_trial_runs(connection, shown, version, head)
                migrate(connection, migrations)
                if engine.dialect.name == "sqlite":
                    broken = connection.execute(text("PRAGMA foreign_key_check")).fetchall()
                    if broken:
                        table, row, parent, _ = broken[0]
                        raise StoreError(
                            f"store {shown} cannot be upgraded: row {row} of {table} belongs to no row of {parent}"
                            "; nothing was changed; restore it from a copy"
                        )
    finally:
        connection.invalidate()
        connection.close()


def version_of(connection: Connection, shown: str, head: str = HEAD) -> str | None:
    """Returns the stored version, None for an empty database. `StoreError`: it is not ours, or newer."""
    tables = inspect(connection).get_table_names()
    if not tables:
        return None
    if VERSION_TABLE not in tables:
        names = ", ".join(sorted(tables)[:3])
        raise StoreError(
            f"store {shown} is a database of another program (it has the tables {names} and no {VERSION_TABLE})"
            "; give another path or an empty database with --store"
        )
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalars().all()
    version = found[0] if len(found) == 1 else None  # a damaged file holds anything
    if not isinstance(version, str) or not version.isdecimal():
        kept = ", ".join(map(repr, found)) or "none"
        raise StoreError(
            f"store {shown} has the schema version {kept:.60}, which is none of ours; restore it from a copy"
        )
    if int(version) > int(head):
        raise StoreError(
            f"store {shown} has schema {version}, and this version of protein knows schemas up to {head}"
            "; upgrade with: pip install --upgrade protein-sweep"
        )
    return version


def _refuse_while_a_trial_runs(connection: Connection, shown: str, version: str, head: str) -> None:
    """Raises `StoreError` if one does: the older version that runs its sweep could not go on after the upgrade."""
    state, owner, until = column("state", String()), column("owner", String()), column("lease_until", Utc())
    running = select(owner, until).select_from(table("trials")).where(state == "running").order_by(until.desc())
    last = connection.execute(running.limit(1)).first()
    if last is None or last[1] <= datetime.now(UTC):
        return
    raise StoreError(
        f"store {shown} has schema {version}, and this version of protein would upgrade it to {head}, but a trial of an"
        f" older version runs on it (process {last[0]}); wait until its sweep has ended. If that process is gone, try"
        f" again after {last[1].astimezone():%H:%M:%S}"
    )


def _create(connection: Connection) -> None:
    """Makes the tables of the row classes in an empty database, and says that it has the last schema."""
    Base.metadata.create_all(connection, checkfirst=False)
    key = f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num)"  # all as Alembic makes it
    connection.execute(text(f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, {key})"))
    connection.execute(text(f"INSERT INTO {VERSION_TABLE} VALUES (:head)"), {"head": HEAD})


def migrate(connection: Connection, migrations: Path = MIGRATIONS) -> None:
    """Runs the migrations that an older or empty database lacks, in the connection's transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
