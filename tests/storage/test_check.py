"""What `protein store check` finds: nothing in a whole store, and each damage by sweep and trial."""

import re
from pathlib import Path

import damage
import pytest
import rich_store

from protein import storage
from protein.errors import StoreError


def nothing(*_: object) -> None: ...


def found(url: str) -> list[str]:
    store = storage.open_whole_store(url)
    try:
        return [str(damage) for damage in store.damages(nothing)]
    finally:
        store.close()


def test_a_whole_store_has_no_damage(own_url: str) -> None:
    store = storage.open_store(own_url)
    rich_store.fill(store)
    rich_store.fill(store, "t", num_trials=5)
    store.close()
    assert found(own_url) == []


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "x.db"
    store = storage.open_store(str(path))
    rich_store.fill(store)
    store.close()
    return path.read_bytes()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("UPDATE trials SET params = '[1]' WHERE number = 3", "sweep 's', trial 3: .*params.*not a JSON object"),
        ("UPDATE trials SET params = '{\"a\": 1' WHERE number = 3", "trial 3: .*params.*not a JSON object"),
        ("UPDATE trials SET params = '{\"a\": 1e999}' WHERE number = 3", "trial 3: .*no value of a parameter"),
        ('UPDATE trials SET params = \'{"a": [{"b": 1e999}]}\' WHERE number = 3', "trial 3: .*infinity"),
        ("UPDATE trials SET params = x'ff' WHERE number = 3", "trial 3: .*params"),
        ('UPDATE trials SET metrics = \'{"a": "b"}\' WHERE number = 3', "trial 3: .*'a' is not a finite number"),
        ("UPDATE trials SET state = 'done' WHERE number = 3", "trial 3: .*done"),
        ("UPDATE trials SET started_at = 'soon' WHERE number = 3", "trial 3: .*'soon', and not a time"),
        ("UPDATE trials SET finished_at = NULL WHERE number = 3", "trial 3: .*no time of its end"),
        ("UPDATE trials SET score = 'high' WHERE number = 5", "trial 5: .*'high', and not a finite number"),
        ("UPDATE trials SET cost_seconds = -3.0 WHERE number = 5", "trial 5: cost_seconds is -3.0, below 0"),
        ("UPDATE trials SET cost_seconds = 9e999 WHERE number = 5", "trial 5: .*not a finite number"),
        ("UPDATE trials SET number = 99 WHERE number = 5", "no trial has the number 5"),
        ("UPDATE trials SET steps = 'many' WHERE number = 5", "trial 5: .*not an integer"),
        ("UPDATE trials SET continues = 9 WHERE number = 7", "trial 7: .*not an earlier one"),
        ("UPDATE trials SET sweep_id = 77 WHERE number = 5", "1 trial belongs to no sweep"),
        ("UPDATE trials SET predicted_score_low = 9e9 WHERE number = 5", "trial 5: an estimate needs"),
        ("UPDATE annotations SET tags = '3' WHERE excluded", "trial [12]: .*not a list of texts"),
        ("UPDATE annotations SET excluded = 7 WHERE excluded", "trial [12]: .*neither true nor false"),
        ("UPDATE measurements SET score = 'high' WHERE position = 3", "trial 4: the score of point 3"),
        ("UPDATE measurements SET elapsed_seconds = -1 WHERE position = 3", "trial 4: seconds of point 3"),
        ("UPDATE measurements SET position = 40 WHERE position = 1", "trial 2: .*do not count from 0 without gaps"),
        ("UPDATE measurements SET metrics = '3' WHERE position = 1", "trial 2: metrics of point 1"),
        ("DELETE FROM measurements WHERE position = 1", "trial 3: .*do not count from 0 without gaps"),
        ("UPDATE measurements SET trial_id = 999 WHERE trial_id = 5", "4 curve points belong to no trial"),
        ("UPDATE artifacts SET path = x'00ff' WHERE id = 1", "trial 0: .*path"),
        ("UPDATE sweeps SET config = '{'", "sweep 's': .*config"),
        ("UPDATE sweeps SET requested = 'dance'", "sweep 's': .*dance"),
        ("UPDATE sweeps SET created_at = 17", "sweep 's': .*created_at"),
    ],
)
def test_a_damaged_value_is_named_with_sweep_and_trial(whole: bytes, change: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(whole)
    damage.spoil(path, change)
    damages = found(str(path))
    assert any(re.search(says, line) for line in damages), damages
    assert all("\n" not in line and len(line) < 600 for line in damages)


def test_pages_that_are_destroyed_are_a_damage_or_one_line(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    damaged = bytearray(whole)
    for first in range(3 * 4096, len(damaged) - 4096, 3 * 4096):
        damaged[first : first + 512] = bytes(range(256)) * 2
    path.write_bytes(damaged)
    try:
        damages = found(str(path))
    except StoreError as error:
        damages = [str(error)]
    assert damages and all("\n" not in line for line in damages)
