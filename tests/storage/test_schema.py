"""The schema of a new store, which the migrations make, too, with constraints that refuse nonsense."""

import dataclasses
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, text
from store_samples import complete, new_sweep, start

from protein.storage import open_store, upgrade
from protein.storage.database import WRITE, create_engine, parse_url
from protein.storage.tables import AgentCallRow, AnnotationRow, Base, MachineRow, SweepRow, TrialRow
from protein.types import (
    AgentCall,
    Annotation,
    Machine,
    Outcome,
    Provenance,
    Result,
    Suggestion,
    SweepRecord,
    SweepSpec,
    Trial,
    TrialRecord,
)


@pytest.fixture
def migrated(own_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Of a database of the same kind whose schema the migrations made."""
    url = f"{tmp_path}/migrated.db" if "sqlite" in own_url else request.getfixturevalue("new_postgresql")()
    engine = create_engine(parse_url(url))
    with engine.execution_options(**WRITE).begin() as connection:
        upgrade.migrate(connection)
    yield engine
    engine.dispose()


def test_head_is_the_last_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(upgrade.MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [upgrade.HEAD]
    revisions = [script.revision for script in scripts.walk_revisions()]
    assert sorted(revisions) == [f"{number:04}" for number in range(1, len(revisions) + 1)]


def test_the_migrations_make_what_the_row_classes_say(migrated: Engine) -> None:
    with migrated.connect() as connection:
        options = {"version_table": upgrade.VERSION_TABLE, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, Base.metadata) == []


def test_the_rest_is_the_same_too_and_all_constraints_have_names(engine: Engine, migrated: Engine) -> None:
    """Alembic compares neither checks nor keys, nor what SQLite alone has."""

    def index(found: Any) -> str:
        return str({**found, "dialect_options": sorted(map(str, found["dialect_options"].values()))})

    def describe(engine: Engine) -> dict[str, Any]:
        inspector = inspect(engine)
        return {
            table: [
                sorted(map(str, inspector.get_check_constraints(table))),
                sorted(map(str, inspector.get_unique_constraints(table))),
                sorted(map(str, inspector.get_foreign_keys(table))),
                inspector.get_pk_constraint(table),
                sorted(map(index, inspector.get_indexes(table))),
                sorted((c["name"], str(c["type"]), c["nullable"]) for c in inspector.get_columns(table)),
            ]
            for table in inspector.get_table_names()
        }

    def of_sqlite(engine: Engine) -> dict[str, list[bool]]:
        with engine.connect() as connection:
            found = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'table'"))
            sql = {row[0]: str(row[1]) for row in found}
        return {name: [words in sql[name] for words in ("AUTOINCREMENT", "WITHOUT ROWID")] for name in sql}

    def version(engine: Engine) -> list[Any]:
        with engine.connect() as connection:
            return list(connection.execute(text(f"SELECT version_num FROM {upgrade.VERSION_TABLE}")).scalars())

    found = describe(engine)
    assert found == describe(migrated)
    assert found.keys() == {*Base.metadata.tables, upgrade.VERSION_TABLE}
    assert all("'name': None" not in str(kinds[:3]) for kinds in found.values())
    assert len(found["trials"][0]) == 17
    assert version(engine) == version(migrated) == [upgrade.HEAD]
    if engine.dialect.name == "sqlite":
        assert of_sqlite(engine) == of_sqlite(migrated)


def test_sqlite_never_gives_an_id_twice_and_clusters_curves(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "x.db"))
    sweep = new_sweep(store)
    trial = start(store, sweep)
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as connection:
        connection.execute("DELETE FROM trials")
        sql = dict(connection.execute("SELECT name, sql FROM sqlite_master").fetchall())
    assert start(store, sweep).id > trial.id
    assert all("AUTOINCREMENT" in sql[table] for table in ("sweeps", "trials", "artifacts"))
    assert "WITHOUT ROWID" in sql["measurements"]
    store.close()


def test_sqlite_is_set_up_for_many_processes(tmp_path: Path) -> None:
    open_store(str(tmp_path / "x.db")).close()
    engine = create_engine(parse_url(str(tmp_path / "x.db")))
    with engine.connect() as connection:
        for pragma, value in (
            ("journal_mode", "wal"),
            ("synchronous", 1),
            ("foreign_keys", 1),
            ("busy_timeout", 30_000),
        ):
            assert connection.execute(text(f"PRAGMA {pragma}")).scalar_one() == value, pragma
    engine.dispose()


NONSENSE = [
    "score = 'NaN'",
    "score = 9e999",
    "cost_seconds = -1",
    "state = 'done'",
    "state = 'running'",
    "finished_at = NULL",
    "score = NULL",
    "state = 'failed'",
    "ended_as = 'done'",
    "ended_as = 'diverged'",
    "ended_as = NULL",
    "kind = 'luck'",
    "number = -1",
    "continues = -1",
    "continues = 0",
    "continued_seconds = -1",
    "lost_seconds = -1",
    "lost_seconds = NULL",
    "cancel_requested = NULL",
    "state = 'waiting'",
    "state = 'waiting', ended_as = NULL, finished_at = NULL, score = NULL",  # and still has an owner
    "state = 'waiting', ended_as = NULL, owner = '', score = NULL",  # and has finished
    "state = 'waiting', ended_as = NULL, owner = '', finished_at = NULL",  # and has a score
    "sweep_id = 99",
]


def test_the_database_itself_refuses_nonsense(engine: Engine, own_url: str) -> None:
    store = open_store(own_url)
    sweep = new_sweep(store)
    store.finish_trial(start(store, sweep), complete())
    before = store.trials(sweep.id)
    for change in NONSENSE:
        with pytest.raises(sqlalchemy.exc.DBAPIError), engine.execution_options(**WRITE).begin() as connection:
            connection.execute(text(f"UPDATE trials SET {change}"))
            pytest.fail(f"it takes {change}")
    other = open_store(own_url)
    assert other.trials(sweep.id) == before
    other.close()
    store.close()


def test_a_trials_row_has_a_column_for_each_field_of_its_record() -> None:
    """So that a new field is written once in `protein.types` and once in `protein.storage.tables`."""
    estimates = ("predicted_score", "predicted_cost_seconds")
    annotation = {field.name for field in dataclasses.fields(Annotation)}
    assert annotation <= {column.key for column in AnnotationRow.__table__.columns}
    fields = {field.name for field in dataclasses.fields(TrialRecord)} - {"curve", "artifacts", "provenance"}
    fields -= annotation
    fields |= {f"{name}_{side}" for name in estimates for side in ("low", "high")}
    fields |= {field.name for field in dataclasses.fields(Provenance)}
    assert {column.key for column in TrialRow.__table__.columns} == fields | {"lease_until"}
    for kind in (Trial, Suggestion, Result, Outcome, Annotation):
        assert {field.name for field in dataclasses.fields(kind)} <= {f.name for f in dataclasses.fields(TrialRecord)}


def test_a_sweeps_row_has_a_column_for_each_field_of_its_record() -> None:
    fields = {field.name for kind in (SweepSpec, SweepRecord, Provenance) for field in dataclasses.fields(kind)}
    assert {column.key for column in SweepRow.__table__.columns} == fields - {"spec", "provenance"}


def test_a_row_of_a_machine_and_of_a_call_has_a_column_for_each_field() -> None:
    fields = {field.name for field in dataclasses.fields(Machine)}
    assert {column.key for column in MachineRow.__table__.columns} == fields | {"id"}
    assert {column.key for column in AgentCallRow.__table__.columns} == {f.name for f in dataclasses.fields(AgentCall)}
