"""A damaged store: what can be read is read, and anything else is one line; never a traceback."""

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import damage
import pytest
from sqlalchemy.exc import DBAPIError
from store_samples import LEASE_SECONDS, complete, new_sweep, points, start

from protein.errors import StoreError
from protein.storage import open_store, open_whole_store
from protein.storage.database import create_engine, explain, parse_url
from protein.storage.existing import versions
from protein.storage.whole import WholeStore
from protein.types import Machine

DEEP = '{"a":' * 50_000 + "1" + "}" * 50_000  # deeper than any parser of JSON goes
READERS: dict[str, Callable[[WholeStore], object]] = {
    "list_sweeps": lambda store: store.list_sweeps(),
    "columns": lambda store: store.columns(1),
    "trials": lambda store: store.trials(1),
    "summaries": lambda store: store.summaries(),
    "curves": lambda store: store.curves(1, range(20), 10),
    "wishes": lambda store: store.wishes(1),
    "machines": lambda store: store.machines(),
    "agent_calls": lambda store: store.agent_calls(),
    "read_sweeps": lambda store: list(store.read_sweeps([1])),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a store with a few trials in every state."""
    path = tmp_path_factory.mktemp("whole") / "x.db"
    store = open_store(str(path))
    sweep = new_sweep(store)
    for i in range(12):
        trial = start(store, sweep, params={"lr": 0.1 / (i + 1), "kind": "ab"[i % 2], "size": 2**i})
        store.add_measurements(trial, points(0, 30), LEASE_SECONDS)
        if i < 10:
            store.finish_trial(trial, complete())
    store.annotate(sweep.id, [1, 2], tags=["a", "b"], note="x", excluded=True)
    store.add_machine(Machine(name="here", facts={}, calibration_seconds=0.5, measured_at=datetime.now(UTC)))
    store.close()
    return path.read_bytes()


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bits_never_give_a_traceback(whole: bytes, seed: int, tmp_path: Path) -> None:
    draw, refused = random.Random(seed), 0
    for i in range(15):
        damaged = bytearray(whole)
        for _ in range(draw.choice((1, 4, 16))):
            damaged[draw.randrange(100, len(damaged))] ^= 1 << draw.randrange(8)
        path = tmp_path / f"{i}.db"
        path.write_bytes(damaged)
        try:
            store = open_whole_store(str(path))
        except StoreError as error:
            assert "\n" not in str(error)
            refused += 1
            continue
        for read in READERS.values():
            try:
                read(store)
            except StoreError as error:
                assert "\n" not in str(error) and len(str(error)) < 600
                refused += 1
        store.close()
    assert refused > 0


@pytest.mark.parametrize(
    ("change", "reader"),
    [
        ("UPDATE trials SET params = '[1]' WHERE number = 3", "columns"),
        ("UPDATE trials SET params = '{' WHERE number = 3", "columns"),
        ("UPDATE trials SET params = x'ff' WHERE number = 3", "columns"),
        ('UPDATE trials SET metrics = \'{"a": "b"}\' WHERE number = 3', "columns"),
        ("UPDATE trials SET state = 'done', ended_as = 'complete' WHERE number = 3", "columns"),
        ("UPDATE trials SET started_at = 'soon' WHERE number = 3", "columns"),
        ("UPDATE trials SET score = 'high' WHERE number = 3", "columns"),
        ("UPDATE annotations SET tags = '3'", "columns"),
        ("UPDATE trials SET params = '{' WHERE number = 3", "trials"),
        (f"UPDATE trials SET params = '{DEEP}' WHERE number = 3", "trials"),
        (f"UPDATE trials SET metrics = '{DEEP}' WHERE number = 3", "columns"),
        (f"UPDATE sweeps SET config = '{DEEP}'", "list_sweeps"),
        (f"UPDATE measurements SET metrics = '{DEEP}' WHERE position = 3", "read_sweeps"),
        ("UPDATE trials SET number = 9007199254741015 WHERE number = 3", "trials"),
        ("UPDATE trials SET number = 9007199254741015 WHERE number = 3", "columns"),
        ("UPDATE trials SET number = -1 WHERE number = 3", "columns"),
        ("UPDATE trials SET predicted_score = 3, predicted_score_low = 9, predicted_score_high = 9", "trials"),
        ("UPDATE measurements SET score = 'high' WHERE position = 3", "curves"),
        ("UPDATE measurements SET elapsed_seconds = -1 WHERE position = 3", "trials"),
        ("UPDATE sweeps SET config = '{'", "list_sweeps"),
        ("UPDATE sweeps SET requested = 'dance'", "wishes"),
        ("UPDATE sweeps SET env = x'f06f6e67'", "list_sweeps"),
        ("UPDATE sweeps SET seed = 'x'", "list_sweeps"),
        ("UPDATE sweeps SET max_cost_seconds = 'x'", "list_sweeps"),
        ("UPDATE machines SET name = x'ff'", "machines"),
        ("UPDATE measurements SET steps = x'ff00' WHERE position = 3", "read_sweeps"),
        ("UPDATE measurements SET score = 'high' WHERE position = 3", "read_sweeps"),
        ("INSERT INTO artifacts (trial_id, kind, path) VALUES (1, 'log', x'ff')", "read_sweeps"),
        ("UPDATE annotations SET note = x'ff'", "read_sweeps"),
    ],
)
def test_a_damaged_value_is_one_line(whole: bytes, change: str, reader: str, tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(whole)
    damage.spoil(path, change)
    store = open_whole_store(str(path))
    with pytest.raises(StoreError, match=r"is damaged and cannot be read.*restore it from a copy") as caught:
        READERS[reader](store)
    assert "\n" not in str(caught.value)
    store.close()


def test_a_schema_that_is_no_text_is_one_line(whole: bytes, tmp_path: Path) -> None:
    """SQLite's own message quotes the schema, and Python cannot read that message."""
    path = tmp_path / "x.db"
    path.write_bytes(whole.replace(b"CREATE TABLE artifacts", b"CRE\xceTE TABLE artifacts"))
    url = parse_url(str(path))
    with pytest.raises(DBAPIError) as caught:
        create_engine(url).connect()
    assert "not a SQLite database, or damaged; restore it from a copy" in str(explain(caught.value, url))


@pytest.mark.parametrize("change", ["INSERT INTO protein_schema VALUES ('0002')", "DELETE FROM protein_schema"])
def test_a_version_that_is_not_one_is_one_line(whole: bytes, change: str, tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(whole)
    damage.spoil(path, change)
    with pytest.raises(StoreError, match=r"has the schema version .*, which is none of ours; restore it from a copy$"):
        versions(str(path))


def test_no_command_ends_in_a_traceback_on_a_damaged_store() -> None:
    """A short run of the campaign; all of it: python tests/support/damage.py."""
    lines = (
        "status",
        "status s",
        "show s --json",
        "show s --trial 3",
        "pareto s",
        "store check",
        "export s -o out.jsonl",
    )
    assert list(damage.campaign(8, 0, lines)) == []


def test_a_cost_beyond_reason_in_a_store_breaks_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x.db"
    path.write_bytes(damage.whole(tmp_path))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE trials SET cost_seconds = 1e300 WHERE number IN (3, 4)")
        connection.execute("UPDATE measurements SET elapsed_seconds = 1e300 WHERE position = 9 AND trial_id = 4")
    for line in damage.LINES:
        if not line.startswith("report"):  # it takes longest, and shows what the others do
            assert damage.run(line, path) == "", line
