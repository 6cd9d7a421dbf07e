"""Stores that cannot be opened, or fail later: one clear line each, and nothing changed."""

import math
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import postgresql
import pytest
from full_disk import largest_file
from patience import PATIENCE_SECONDS
from store_samples import LEASE_SECONDS, complete, new_sweep, points, start

from protein.errors import StoreError, StoreUnavailable
from protein.storage import database, database_file, open_store, open_whole_store
from protein.storage.existing import copy_file

NOBODY = 65534


def refusal(url: str, kind: type[StoreError] = StoreError) -> str:
    """Returns why a store cannot be opened: one line of reasonable length."""
    with pytest.raises(kind) as caught:
        open_store(url)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 500
    return message


# URLs


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("runs/x.db", "runs/x.db"),
        ("/tmp/with space/ä%20.db", "/tmp/with space/ä%20.db"),
        ("~/x.db", str(Path("~/x.db").expanduser())),
        ("sqlite:///runs/x.db", "runs/x.db"),
        ("sqlite:////tmp/x.db", "/tmp/x.db"),
        ("sqlite+pysqlite:///~/x.db", str(Path("~/x.db").expanduser())),
    ],
)
def test_a_path_or_a_sqlite_url_is_a_file(url: str, path: str) -> None:
    parsed = database.parse_url(url)
    assert (parsed.drivername, parsed.database) == ("sqlite", path)
    assert database_file(url) == Path(path)


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg"])
def test_postgresql_always_means_psycopg_3(scheme: str) -> None:
    parsed = database.parse_url(f"{scheme}://me:secret@host:5433/db?sslmode=require")
    assert parsed.render_as_string(hide_password=False) == "postgresql+psycopg://me:secret@host:5433/db?sslmode=require"
    assert database_file(str(parsed)) is None


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("a\0b", "neither a path nor a URL"),
        (":memory:", "neither a path nor a URL"),
        ("sqlite:runs/x.db", "neither a path nor a URL"),
        ("postgresql:host/x", "neither a path nor a URL"),
        ("sqlite://", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///:memory:", "could not be resumed"),
        ("sqlite://runs/x.db", "three slashes"),
        ("sqlite:///x.db?mode=ro", "no options"),
        ("sqlite+aiosqlite:///x.db", "'aiosqlite' is not supported"),
        ("postgresql+psycopg2://host/x", "'psycopg2' is not supported"),
        ("postgresql://host", "names no database"),
        ("postgresql://host:port/x", "cannot be read"),
        ("postgres://host/x", "did you mean 'postgresql'?"),
        ("mysql://host/x", "'mysql' is not supported"),
        ("://x", "cannot be read"),
    ],
)
def test_a_url_that_cannot_be_used(url: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    message = refusal(url)
    assert part in message
    assert "runs/protein.db" in message or "slashes" in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url", ["mysql://me:secret@host/x", "postgresql://me:secret@host", "postgresql://me:secret@h:p/x"]
)
def test_no_message_shows_a_password(url: str) -> None:
    assert "secret" not in refusal(url)


# Files


def test_the_folder_is_made(tmp_path: Path) -> None:
    open_store(str(tmp_path / "a" / "b" / "x.db")).close()
    assert (tmp_path / "a" / "b" / "x.db").is_file()


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "x.db").touch()
    store = open_store(str(tmp_path / "x.db"))
    new_sweep(store)
    store.close()


@pytest.mark.parametrize(
    "content", [b"x", b"x" * 511, b"x" * 512, b"[sweep]\nseed = 0\n" * 99, bytes(8192), os.urandom(8192)]
)
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "pong.toml"
    path.write_bytes(content)
    assert "not a SQLite database" in refusal(str(path))
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_damaged_store_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    open_store(str(path)).close()
    content = bytearray(path.read_bytes())
    content[100:4096] = os.urandom(3996)  # the page of the schema
    path.write_bytes(content)
    assert "damaged" in refusal(str(path))
    assert path.read_bytes() == content


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    assert "is a folder" in refusal(str(tmp_path))


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    assert "its folder cannot be made" in refusal(str(tmp_path / "runs" / "x.db"))
    assert "its folder cannot be made" in refusal(str(tmp_path / "runs" / "deeper" / "x.db"))


OPEN_AS_NOBODY = """
import os, sys
import alembic.command, protein.storage.store, protein.storage.migrations  # while they can be read
from protein.storage import open_store
from protein.errors import StoreError
if os.geteuid() == 0:
    os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
try:
    open_store(sys.argv[1])
except StoreError as error:
    print(error)
"""


@pytest.mark.parametrize("locked", ["folder", "file", "parent"])
def test_without_permission_to_write(locked: str) -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folder is closed to other users
        folder = Path(name)
        folder.chmod(0o755)
        path = folder / "x.db" if locked != "parent" else folder / "runs" / "x.db"
        if locked != "parent":
            open_store(str(path)).close()
            path.chmod(0o666 if locked == "folder" else 0o444)
        before = sorted(folder.rglob("*"))
        folder.chmod(0o777 if locked == "file" else 0o555)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-c", OPEN_AS_NOBODY.format(nobody=NOBODY), str(path)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=PATIENCE_SECONDS, check=False
        )
        assert done.stderr == ""
        assert (
            "its folder cannot be made (Permission denied)"
            if locked == "parent"
            else "no permission to write the " + locked
        ) in done.stdout
        assert sorted(folder.rglob("*")) == before
        folder.chmod(0o755)


READ_AS_NOBODY = """
import os, sys
import protein.storage.existing, protein.storage.store  # while they can be read
from protein.storage import open_store
from protein.errors import StoreError
if os.geteuid() == 0:
    os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
store = open_store(sys.argv[1], create=False)
sweep = store.list_sweeps()[0]
print(len(store.trials(sweep.id)), "trials")
try:
    store.cancel(sweep.id, [0])
except StoreError as error:
    print(error)
"""


@pytest.mark.parametrize(("somebody_writes", "behind_a_link"), [(False, False), (True, False), (True, True)])
def test_a_store_that_may_only_be_read(somebody_writes: bool, behind_a_link: bool) -> None:
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as own:  # pytest's is closed to others
        folder, link = Path(name), Path(own, "mine.db")
        Path(own).chmod(0o777)
        link.symlink_to(folder / "x.db")
        path = folder / "x.db"
        store = open_store(str(path))
        sweep = new_sweep(store)
        start(store, sweep)
        if not somebody_writes:
            store.close()  # which empties and removes the log
        assert (folder / "x.db-wal").exists() == somebody_writes
        before = {file: file.read_bytes() for file in folder.iterdir()}
        folder.chmod(0o555)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        given = link if behind_a_link else path
        command = [sys.executable, "-c", READ_AS_NOBODY.format(nobody=NOBODY), str(given)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=PATIENCE_SECONDS, check=False
        )
        folder.chmod(0o755)
        assert done.stderr == ""
        seen, refused = done.stdout.splitlines()
        assert seen == "1 trials"
        assert "no permission to write" in refused
        assert set(folder.iterdir()) == set(before)
        assert path.read_bytes() == before[path]
        store.close()


class Refusing(sqlite3.Connection):
    """What SQLite's connection is like when the log has gone between two looks at it."""

    def execute(self, *_: object) -> sqlite3.Cursor:
        raise sqlite3.OperationalError("attempt to write a readonly database")


def test_a_log_that_goes_while_a_store_is_opened_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, log = tmp_path / "x.db", tmp_path / "x.db-wal"
    store = open_store(str(path))
    new_sweep(store)
    store.close()
    log.touch()
    connect, uris = sqlite3.connect, list[str]()

    def another_ends_meanwhile(address: str, **given: Any) -> sqlite3.Connection:
        uris.append(address)
        log.unlink(missing_ok=True)
        return connect(address, **given, factory=sqlite3.Connection if len(uris) > 1 else Refusing)

    monkeypatch.setattr(sqlite3, "connect", another_ends_meanwhile)
    with closing(database.connect_to_read(path)) as connection:
        assert connection.execute("SELECT count(*) FROM sweeps").fetchone() == (1,)
    assert [uri.endswith("immutable=1") for uri in uris] == [False, True]


def test_what_is_read_without_a_log_is_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.db"
    store = open_store(str(path))
    sweep = new_sweep(store)
    start(store, sweep)
    store.close()
    # The tests may run as root, who can write everything.
    monkeypatch.setattr("protein.storage.database.can_only_be_read", path.samefile)
    reading = open_whole_store(str(path), create=False)
    items = reading.read_sweeps([sweep.id])
    next(items)
    monkeypatch.undo()
    store = open_store(str(path))
    start(store, sweep)
    store.close()  # which moves the log into the file
    with pytest.raises(StoreUnavailable, match=r"x\.db was written by somebody else while it was read; run the same"):
        list(items)
    assert len(reading.trials(sweep.id)) == 2
    reading.close()


def test_a_disk_too_full_for_a_new_store(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with largest_file(8192):
        message = refusal(str(path), StoreUnavailable)
    assert "space" in message
    open_store(str(path)).close()  # with space again it works


def test_a_disk_that_fills_up_undoes_the_write_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    store = open_store(str(path))
    sweep = new_sweep(store)
    trial = start(store, sweep)
    store.add_measurements(trial, points(0, 10), LEASE_SECONDS)
    log_size = (tmp_path / "x.db-wal").stat().st_size
    with largest_file(log_size + 8192):
        with pytest.raises(StoreUnavailable, match="space"):
            store.add_measurements(trial, points(10, 5000), LEASE_SECONDS)
        [record] = store.trials(sweep.id)
        assert record.curve == tuple(points(0, 10))
        assert record.cost_seconds == points(0, 10)[-1].elapsed_seconds
    store.add_measurements(trial, points(10, 5000), LEASE_SECONDS)
    assert store.trials(sweep.id)[0].curve == tuple(points(0, 5000))
    store.close()


def test_a_database_that_another_process_keeps_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.1)
    store = open_store(str(tmp_path / "x.db"))
    sweep = new_sweep(store)
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="another process has locked it"):
            start(store, sweep)
        assert store.trials(sweep.id) == []  # reading goes on
        open_store(str(tmp_path / "x.db")).close()  # and so does opening
    assert start(store, sweep).number == 0
    store.close()


def test_a_store_whose_folder_vanished(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "x.db"
    store = open_store(str(path))
    store.close()  # the next connection is a new one
    path.unlink()
    path.parent.rmdir()
    with pytest.raises(StoreUnavailable, match="folder is gone"):
        store.list_sweeps()


# Servers


def test_a_file_that_is_taken_away_is_not_written_to(tmp_path: Path) -> None:
    path, away = tmp_path / "protein.db", tmp_path / "away.db"
    store = open_store(str(path))
    new_sweep(store, "before")
    path.rename(away)
    with pytest.raises(StoreUnavailable, match="its file was deleted or moved away, so nothing is stored; put it back"):
        new_sweep(store, "meanwhile")
    assert not path.exists()
    away.rename(path)
    new_sweep(store, "after")
    assert sorted(sweep.spec.name for sweep in store.list_sweeps()) == ["after", "before"]
    store.close()


def test_a_file_that_was_replaced_is_not_written_to(tmp_path: Path) -> None:
    """The next call writes to the file that is there now, as to a backup that was put back."""
    path, backup = tmp_path / "protein.db", tmp_path / "backup.db"
    store = open_store(str(path))
    new_sweep(store, "before")
    copy_file(path, backup)
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
    backup.rename(path)
    with pytest.raises(StoreUnavailable, match="replaced by another one, so nothing was written; from now on the new"):
        new_sweep(store, "meanwhile")
    new_sweep(store, "after")
    fresh = open_store(str(path))
    assert sorted(sweep.spec.name for sweep in fresh.list_sweeps()) == ["after", "before"]
    fresh.close()
    store.close()


def test_after_a_file_was_replaced_no_connection_reads_the_old_one(tmp_path: Path) -> None:
    """Threads of `protein view` share a pool of connections, and each of them held the old file."""
    path, other = tmp_path / "protein.db", tmp_path / "other.db"
    for file, name in ((path, "old"), (other, "new")):
        with closing(sqlite3.connect(file)) as raw:
            raw.execute("CREATE TABLE names AS SELECT ? AS name", (name,))
            raw.commit()
    made = database.create_engine(database.parse_url(str(path)))
    reading = "SELECT name FROM names"
    pooled = [made.connect() for _ in range(3)]
    for connection in pooled:
        assert connection.exec_driver_sql(reading).scalar() == "old"
        connection.close()
    other.rename(path)
    with pytest.raises(StoreUnavailable, match="was replaced"), made.execution_options(**database.WRITE).begin():
        pass
    for _ in pooled:
        with made.connect() as connection:
            assert connection.exec_driver_sql(reading).scalar() == "new"
    made.dispose()


def test_a_server_that_vanishes_is_noticed(postgresql_server: str) -> None:
    made = database.create_engine(database.parse_url(f"{postgresql_server}/postgres"))
    with made.connect() as connection:
        driver: Any = connection.connection.driver_connection
        found = driver.info.get_parameters()
    made.dispose()
    assert {name: int(found[name]) for name in database.KEEPALIVES} == database.KEEPALIVES


def test_a_server_that_is_not_there() -> None:
    message = refusal("postgresql://me:secret@127.0.0.1:1/protein", StoreUnavailable)
    assert "127.0.0.1:1" in message
    assert "check its address" in message
    assert "secret" not in message


def test_a_database_that_is_not_there(postgresql_server: str) -> None:
    assert '"nowhere" does not exist' in refusal(f"{postgresql_server}/nowhere", StoreUnavailable)


def test_without_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    message = refusal("postgresql://me:secret@127.0.0.1:1/protein")
    assert "pip install 'protein-sweep[postgresql]'" in message
    assert "secret" not in message


def test_without_permission_to_create_tables(new_postgresql: Callable[..., str]) -> None:
    url = new_postgresql()
    postgresql.execute(url, "DO $$ BEGIN CREATE ROLE guest LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    postgresql.execute(url, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    assert "no permission to write" in refusal(url.replace("postgres@", "guest@"))


def test_a_connection_that_the_server_cut_is_made_again(
    new_postgresql: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried before it is used, but for one that was used just now: there the store is unavailable once."""
    url = new_postgresql()
    store = open_store(url)
    sweep = new_sweep(store)
    trial = start(store, sweep)
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    cut = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"
    monkeypatch.setattr(database, "IDLE_SECONDS", math.inf)
    postgresql.execute(url, cut)
    with pytest.raises(StoreUnavailable, match="the server cannot be used"):
        store.finish_trial(trial, complete())
    assert not store.trials(sweep.id)[0].state.finished
    monkeypatch.setattr(database, "IDLE_SECONDS", 0.0)
    postgresql.execute(url, cut)
    store.finish_trial(trial, complete())
    assert store.trials(sweep.id)[0].state.finished
    store.close()


def test_a_server_that_went_away(postgresql_server: str) -> None:
    with postgresql.server() as server:
        postgresql.create_database(server, "ours")
        store = open_store(f"{server}/ours")
        sweep = new_sweep(store)
    with pytest.raises(StoreUnavailable, match="the server cannot be used"):
        start(store, sweep)
    with pytest.raises(StoreUnavailable, match="the server cannot be used"):
        store.trials(sweep.id)
    store.close()


def test_a_ctrl_c_while_a_connection_is_closed_prints_no_traceback() -> None:
    program = """
import sqlalchemy.pool
from protein.storage import database

class Interrupted:
    def close(self):
        raise KeyboardInterrupt

pool = sqlalchemy.pool.NullPool(Interrupted, dialect=database.create_engine(database.parse_url("x.db")).dialect)
try:
    pool._close_connection(Interrupted())
except KeyboardInterrupt:
    print("raised")
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert (ran.stdout, ran.stderr) == ("raised\n", "")


def test_a_copy_of_the_file_alone_holds_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most `CHECKPOINT_SECONDS` are in the log alone, and nothing once the command has ended beside others."""

    def copied(number: int) -> int:
        copy = tmp_path / f"copy{number}.db"
        copy.write_bytes((tmp_path / "a.db").read_bytes())
        with closing(open_store(str(copy))) as found:
            return sum(len(found.trials(sweep.id)) for sweep in found.list_sweeps())

    with closing(open_store(str(tmp_path / "a.db"))) as other:  # else SQLite itself would empty the log at the end
        store = open_store(str(tmp_path / "a.db"))
        sweep = new_sweep(store)
        assert [one.id for one in other.list_sweeps()] == [sweep.id]
        start(store, sweep)
        assert copied(1) == 0  # within the minute, so that a report of a trial costs no more than before
        monkeypatch.setattr(database, "CHECKPOINT_SECONDS", 0.0)
        start(store, sweep)
        assert copied(2) == 2
        monkeypatch.undo()
        start(store, sweep)
        assert copied(3) == 2
        store.close()
        assert copied(4) == 3
