"""Migrations: from an empty database, from every old one, never from a newer or a foreign one."""

import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from make_old_store import contents
from patience import PATIENCE_SECONDS
from sqlalchemy import Engine, MetaData, inspect, text
from store_samples import new_sweep, start

from protein.cli import main
from protein.errors import StoreError
from protein.storage import open_store, upgrade
from protein.storage.database import WRITE, create_engine, parse_url
from protein.storage.existing import copy_file

ASSETS = Path(__file__).parents[1] / "assets"
OLD = sorted(ASSETS.glob("storage_*.db"))
NEXT = f"{int(upgrade.HEAD) + 1:04}"  # the revision after ours

ADD_AND_REBUILD = """
import sqlalchemy as sa
from alembic import op
from protein.errors import StoreError

revision = "{new}"
down_revision = "{head}"


def upgrade():
    with op.batch_alter_table("trials", recreate="always") as batch:
        batch.add_column(sa.Column("note", sa.Text(), nullable=False, server_default="none"))
    {more}
"""


def later_migrations(folder: Path, more: str = "") -> Path:
    """Returns a copy of our migrations with one more, which rebuilds the table of trials."""
    shutil.copytree(upgrade.MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / f"{NEXT}_note.py").write_text(ADD_AND_REBUILD.format(more=more, new=NEXT, head=upgrade.HEAD))
    return folder


def version(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute(f"SELECT version_num FROM {upgrade.VERSION_TABLE}").fetchone()[0])


def test_every_schema_has_an_old_database_to_test_with() -> None:
    assert [path.stem for path in OLD] == [f"storage_{number:04}" for number in range(1, int(upgrade.HEAD) + 1)]


@pytest.mark.parametrize("old", OLD, ids=lambda path: path.stem)
def test_an_old_database_keeps_all_that_it_held(old: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    shutil.copy(old, path)
    store = open_store(str(path))
    assert version(path) == upgrade.HEAD
    assert contents(store) == json.loads(old.with_suffix(".json").read_text())
    sweep = store.list_sweeps()[0]
    assert store.interrupt_orphans(sweep.id, ["host:1"]) == [3]  # and it goes on
    assert start(store, sweep).number == 4
    store.close()


def test_an_older_schema_is_upgraded_with_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    shutil.copy(ASSETS / "storage_0001.db", path)
    engine = create_engine(parse_url(str(path)))
    migrations = later_migrations(tmp_path / "later")
    upgrade.bring_up_to_date(engine, "x.db", migrations=migrations, head=NEXT)
    assert version(path) == NEXT
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*), min(note) FROM trials")).one() == (8, "none")
        assert connection.execute(text("SELECT count(*) FROM measurements")).scalar_one() == 32  # rebuilding cost none
        assert connection.execute(text("SELECT count(*) FROM artifacts")).scalar_one() == 6
        assert connection.execute(text("PRAGMA foreign_keys")).scalar_one() == 1
    assert inspect(engine).get_foreign_keys("measurements")[0]["referred_table"] == "trials"
    engine.dispose()


def at_schema(url: str, head: str, folder: Path) -> Engine:
    """Returns an engine of a new database with an earlier schema."""
    later = [f"{number:04}_*" for number in range(int(head) + 1, int(upgrade.HEAD) + 1)]
    shutil.copytree(upgrade.MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__", *later))
    engine = create_engine(parse_url(url))
    upgrade.bring_up_to_date(engine, "x", migrations=folder, head=head)
    return engine


def test_rows_on_a_server_are_upgraded_too(new_postgresql: Callable[..., str], tmp_path: Path) -> None:
    url = new_postgresql()
    engine = at_schema(url, "0001", tmp_path / "first")
    row = {
        "name": "s",
        "env": "pong",
        "method": "random",
        "seed": 1,
        "space": "{}",
        "config": "{}",
        "created_at": "2026-01-01 00:00:00+00:00",
        "version": "0",
        "git_commit": "",
        "machine": "",
        "hash": "",
    }
    columns = ", ".join(row).replace("hash", "config_hash")
    with engine.execution_options(**WRITE).begin() as connection:
        connection.execute(text(f"INSERT INTO sweeps ({columns}) VALUES (:{', :'.join(row)})"), row)
    engine.dispose()
    store = open_store(url)
    assert [(sweep.spec.name, sweep.spec.warm_start) for sweep in store.list_sweeps()] == [("s", {})]
    store.close()


OLD_CONFIGS = {  # env and config of each sweep
    "pong": ("pong", {"train": {}}),
    "users": ("python:levels:make", {"train": {}}),
    "function": ("train()", {"own": {"direction": "minimize", "start": None}}),
    "upwards": ("train()", {"own": {"direction": "maximize", "start": None}}),
}
OLD_TRIALS = [  # sweep, state, reason and origin of each trial in schema 0002, and what they stand for
    ("pong", "complete", "", "your own config, moved into the space", "complete", "initial_config"),
    ("pong", "pruned", "stopped at its cost cap", "initial design 3 of 8", "capped", "initial_design"),
    ("pong", "pruned", "stopped at its cost limit", "initial design 3 of 8, random", "capped", "fallback"),
    ("pong", "pruned", "stopped at the end of the sweep's budget", "random", "out_of_budget", "random"),
    ("pong", "pruned", "stopped early: low", "cheap probe at 3 s", "stopped_early", "search"),
    ("pong", "failed", "interrupted", "from the prior sweep's front near 4 s", "interrupted", "warm_start"),
    ("pong", "failed", "diverged at step 7: a loss is nan", "re-evaluation of trial 1", "diverged", "reevaluation"),
    ("pong", "failed", "memory: out of memory: lower env.num_envs", "optuna tpe", "out_of_memory", "search"),
    ("pong", "failed", "killed at 3.0 GiB of memory, over its", "optuna random", "out_of_memory", "random"),
    ("pong", "failed", "killed after 9 s, its limit with", "improving the front near 4 s", "hung", "search"),
    ("pong", "failed", "killed by SIGSEGV", "random point, the models failed (X: y)", "crashed", "fallback"),
    ("pong", "failed", "exited with code 3 and no result", "no score yet", "crashed", "search"),
    ("pong", "failed", "process 1 of 2 has died", "extending the front to 4 s", "crashed", "search"),
    ("pong", "failed", "reported no finite score", "random", "diverged", "random"),
    ("pong", "failed", "disk: no space is left", "random", "disk", "random"),
    ("pong", "failed", "error: RuntimeError: x", "random", "failed", "random"),
    ("pong", "failed", "config: x", "initial design 1 of 8, random to fit the budget", "failed", "fallback"),
    ("users", "failed", "error: ValueError: no such level", "random", "user_error", "random"),
    ("function", "failed", "mistake in the training function: it returned None", "random", "mistake", "random"),
    ("function", "failed", "ValueError: killed by a bad value", "random", "user_error", "random"),
    ("function", "failed", "ValueError: the score became nan at step 3", "random", "diverged", "random"),
    ("function", "failed", "the score is inf", "random", "diverged", "random"),
    ("function", "running", "", "random", None, "random"),
]


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_ends_kinds_and_directions_are_filled_from_the_texts_of_earlier_versions(
    database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"{tmp_path}/x.db" if database == "sqlite" else request.getfixturevalue("new_postgresql")()
    engine = at_schema(url, "0002", tmp_path / "second")
    tables = MetaData()
    tables.reflect(engine)
    now = datetime(2026, 1, 1)
    where_from = {"version": "0", "git_commit": "", "machine": "", "config_hash": ""}
    with engine.execution_options(**WRITE).begin() as connection:
        for key, (name, (env, config)) in enumerate(OLD_CONFIGS.items()):
            sweep = {"id": key, "name": name, "env": env, "config": config, "method": "protein", "seed": 1, "space": {}}
            sweep |= {"prior": {"sweep": "older"}, "created_at": now, **where_from}
            connection.execute(tables.tables["sweeps"].insert(), sweep)
        for number, (name, state, reason, origin, *_) in enumerate(OLD_TRIALS):
            trial = {"sweep_id": list(OLD_CONFIGS).index(name), "number": number, "state": state, "reason": reason}
            trial |= {"origin": origin, "score": 1.0 if state in ("complete", "pruned") else None, "params": {}}
            trial |= {
                "seed": 1,
                "owner": "",
                "lease_until": now,
                "suggest_seconds": 0.0,
                "cost_seconds": 1.0,
                "steps": 1,
            }
            trial |= {"timings": {}, "metrics": {}, "started_at": now, **where_from}
            trial |= {"finished_at": None if state == "running" else now}
            connection.execute(tables.tables["trials"].insert(), trial)
    engine.dispose()
    store = open_store(url)
    sweeps = store.list_sweeps()
    found = {record.number: record for sweep in sweeps for record in store.trials(sweep.id)}
    store.close()
    assert [str(sweep.spec.direction) for sweep in sweeps] == ["maximize", "maximize", "minimize", "maximize"]
    assert all(sweep.spec.warm_start == {"sweep": "older"} for sweep in sweeps)
    assert [(found[n].end, found[n].kind) for n in range(len(OLD_TRIALS))] == [
        (end, kind) for *_, end, kind in OLD_TRIALS
    ]
    assert [(found[n].reason, found[n].origin) for n in range(len(OLD_TRIALS))] == [
        (reason, origin) for _, _, reason, origin, _, _ in OLD_TRIALS
    ]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("raise StoreError('half done')", "half done"),
        ("op.execute('DELETE FROM sweeps')", "row 1 of trials belongs to no row of sweeps"),
    ],
)
def test_an_upgrade_that_fails_changes_nothing(tmp_path: Path, more: str, reason: str) -> None:
    path = tmp_path / "x.db"
    shutil.copy(ASSETS / "storage_0001.db", path)
    engine = create_engine(parse_url(str(path)))
    migrations = later_migrations(tmp_path / "later", more)
    with pytest.raises(StoreError, match=reason):
        upgrade.bring_up_to_date(engine, "x.db", migrations=migrations, head=NEXT)
    engine.dispose()
    assert version(path) == "0001"
    store = open_store(str(path))
    assert contents(store) == json.loads((ASSETS / "storage_0001.json").read_text())
    store.close()


def test_an_older_schema_on_which_a_trial_runs_is_left_to_it(tmp_path: Path) -> None:
    """A sweep of an older version could not go on after an upgrade."""
    path, soon = tmp_path / "x.db", datetime.now(UTC) + timedelta(seconds=100)
    shutil.copy(ASSETS / "storage_0001.db", path)
    until = "UPDATE trials SET lease_until = ? WHERE number = (SELECT MAX(number) FROM trials WHERE state = 'running')"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(until, (f"{soon:%Y-%m-%d %H:%M:%S.%f}",))
    after = f"{soon.astimezone():%H:%M:%S}"
    with pytest.raises(StoreError, match=rf"\(process host:1\); wait until .* ended\. If .* again after {after}$"):
        open_store(str(path))
    assert version(path) == "0001"
    assert main(["store", "upgrade", str(path)]) == 2
    assert sorted(one.name for one in tmp_path.iterdir()) == ["x.db"], "no copy is in the way of the next try"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(until, (f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}",))
    open_store(str(path)).close()
    assert version(path) == upgrade.HEAD


def test_no_store_is_upgraded_under_a_trial(own_url: str, engine: Engine, tmp_path: Path) -> None:
    store = open_store(own_url)
    start(store, new_sweep(store), "host:7", lease_seconds=100.0)
    store.close()
    later = later_migrations(tmp_path / "later")
    with pytest.raises(StoreError, match=r"process host:7"):
        upgrade.bring_up_to_date(engine, "x", migrations=later, head=NEXT)
    open_store(own_url).close()


def test_an_older_schema_that_may_only_be_read_says_how_to_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, copy = tmp_path / "x.db", tmp_path / "copy.db"
    shutil.copy(ASSETS / "storage_0001.db", path)
    # The tests may run as root, who can write everything.
    monkeypatch.setattr("protein.storage.database.can_only_be_read", path.samefile)
    with pytest.raises(StoreError, match=rf"schema 0001, .* {upgrade.HEAD}, .*: protein store backup .*x\.db -o copy"):
        open_store(str(path), create=False)
    assert version(path) == "0001"
    copy_file(path, copy)
    store = open_store(str(copy), create=False)
    assert contents(store) == json.loads((ASSETS / "storage_0001.json").read_text())
    store.close()


@pytest.mark.parametrize("newer", [NEXT, "9999"])
def test_a_newer_schema_is_refused_untouched(tmp_path: Path, newer: str) -> None:
    path = tmp_path / "x.db"
    open_store(str(path)).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE {upgrade.VERSION_TABLE} SET version_num = ?", (newer,))
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(
        StoreError, match=rf"x\.db has schema {newer}, .* up to {upgrade.HEAD}; upgrade with: pip install"
    ):
        open_store(str(path))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_newer_schema_on_a_server_is_refused(own_url: str, engine: Engine) -> None:
    with engine.execution_options(**WRITE).begin() as connection:
        connection.execute(text(f"UPDATE {upgrade.VERSION_TABLE} SET version_num = '0099'"))
    with pytest.raises(StoreError, match=r"has schema 0099"):
        open_store(own_url)


@pytest.mark.parametrize("value", ["v3.2.0.a", None])
def test_a_version_that_was_never_ours_is_refused(own_url: str, engine: Engine, value: str | None) -> None:
    with engine.execution_options(**WRITE).begin() as connection:
        connection.execute(text(f"DELETE FROM {upgrade.VERSION_TABLE}"))
        if value is not None:
            connection.execute(text(f"INSERT INTO {upgrade.VERSION_TABLE} VALUES ('{value}')"))
    with pytest.raises(StoreError, match=r"none of ours"):
        open_store(own_url)


def test_the_database_of_another_program_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE trials (a); CREATE TABLE alembic_version (version_num TEXT);")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"another program \(it has the tables alembic_version, trials"):
        open_store(str(path))
    assert path.read_bytes() == before


def test_a_server_database_in_use_is_refused(new_postgresql: Callable[..., str]) -> None:
    url = new_postgresql()
    engine = create_engine(parse_url(url))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE mine (a int)"))
    with pytest.raises(StoreError, match="another program"):
        open_store(url)
    assert inspect(engine).get_table_names() == ["mine"]
    engine.dispose()


def test_processes_may_create_one_store_at_once(own_url: str, request: pytest.FixtureRequest) -> None:
    url = own_url if "sqlite" in own_url else request.getfixturevalue("new_postgresql")()
    code = "import sys; from protein.storage import open_store; open_store(sys.argv[1]).close()"
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": "/usr/bin:/bin"}
    processes = [subprocess.Popen([sys.executable, "-c", code, url], env=environment) for _ in range(4)]
    assert [process.wait(PATIENCE_SECONDS) for process in processes] == [0] * 4
    store = open_store(url)
    assert store.list_sweeps() == []
    store.close()


def test_a_new_store_and_a_current_one_do_without_alembic(tmp_path: Path) -> None:
    code = (
        "import sys; from protein import storage; assert 'sqlalchemy' not in sys.modules;"
        "[storage.open_store(sys.argv[1]).close() for _ in range(2)]; assert 'alembic' not in sys.modules"
    )
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x.db")], env=environment, check=True, timeout=PATIENCE_SECONDS
    )
