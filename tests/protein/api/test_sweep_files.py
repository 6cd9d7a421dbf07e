"""Sweeps that leave a store and arrive in another: exact, whole or not at all."""

import dataclasses
import gzip
import json
import random
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import rich_store
from store_samples import ended_owner, new_sweep, start

from protein import storage
from protein.api import sweep_files
from protein.cli import output
from protein.errors import StoreError, UsageError
from protein.ports import Store
from protein.run import lease
from protein.storage.whole import StoredTrial
from protein.sweep import ownership
from protein.sweep.ownership import Alive, Life, alive, refuse_beside
from protein.types import Machine, Request, TrialRecord, TrialState
from protein.web.pages.sweeps import interrupted


def nothing(*_: object) -> None: ...


def everything(store: Store, name: str) -> Any:
    """All that a store tells of a sweep, without the ids that it gives, and who runs what with which lease."""
    sweep = store.find_sweep(name)
    assert sweep is not None
    trials = store.trials(sweep.id)
    numbers = {trial.id: trial.number for trial in trials}
    return (
        dataclasses.replace(sweep, id=0),
        [dataclasses.replace(trial, id=numbers[trial.id], sweep_id=0, owner=owner_of(trial)) for trial in trials],
        store.wishes(sweep.id),
        json.dumps([trial.params for trial in trials]),  # the order of params, and 1 or 1.0
        json.dumps([trial.metrics for trial in trials]),
        json.dumps([sweep.spec.config, sweep.spec.space, sweep.spec.warm_start]),
    )


def owner_of(trial: TrialRecord) -> str:
    return trial.owner if trial.state is not TrialState.RUNNING else ""


def stored_rows(url: str, name: str) -> list[Any]:
    """The rows of a sweep themselves, without leases and the owners of what runs."""
    store = storage.open_whole_store(url)
    sweep = store.find_sweep(name)
    assert sweep is not None
    rows = []
    for item in store.read_sweeps([sweep.id]):
        left_out = ("lease_until", "owner" if item.values.get("state") == "running" else "")
        values = {name: value for name, value in item.values.items() if name not in left_out}
        rows.append((values, item) if not isinstance(item, StoredTrial) else dataclasses.replace(item, values=values))
    store.close()
    return rows


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_sweep_survives_a_file_and_both_databases_exactly(
    ending: str, tmp_path: Path, new_postgresql: Callable[..., str]
) -> None:
    urls = [f"sqlite:///{tmp_path}/a.db", new_postgresql(), f"sqlite:///{tmp_path}/c.db"]
    store = storage.open_whole_store(urls[0])
    sweep = rich_store.fill(store)
    told = everything(store, "s")
    states = {trial.state for trial in store.trials(sweep.id)}
    assert states == set(TrialState)
    for i, url in enumerate(urls[1:]):
        path = tmp_path / f"{i}.{ending}"
        source = storage.open_whole_store(urls[i])
        found = source.find_sweep("s")
        assert found is not None
        moved = sweep_files.export(source, [found], path, nothing)
        target = storage.open_whole_store(url)
        assert sweep_files.import_file(target, path, name=None, progress=nothing) == moved
        assert everything(target, "s") == told
        assert moved[0].num_trials == 30 and len(moved[0].running) == 2
        source.close()
        target.close()
    first, last = stored_rows(urls[0], "s"), stored_rows(urls[2], "s")
    assert first == last
    store.close()


def test_a_copy_of_a_running_sweep_is_nobodys(tmp_path: Path) -> None:
    """The process that runs the original lives, and does not run the copy."""
    one, two = (storage.open_whole_store(f"{tmp_path}/{name}.db") for name in "ab")
    sweep = new_sweep(one)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        start(one, sweep, lease.owner_of(process.pid))
        assert alive(one, sweep).life is Life.RUNS
        sweep_files.export(one, [sweep], tmp_path / "s.jsonl", nothing)
        sweep_files.import_file(two, tmp_path / "s.jsonl", name=None, progress=nothing)
        copy = two.find_sweep("s")
        assert copy is not None and alive(two, copy) == Alive(Life.GONE)
        refuse_beside(two, copy)
        with pytest.raises(UsageError):
            refuse_beside(one, sweep)
    finally:
        process.communicate()
    one.close()
    two.close()


def test_a_killed_sweep_that_was_moved_is_not_said_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the clock of the machine that copies is ahead, so that the lease of the copied trial seems to last."""
    one = storage.open_whole_store(f"{tmp_path}/a.db")
    start(one, new_sweep(one), ended_owner())
    one.close()
    ahead = SimpleNamespace(now=lambda zone: datetime.now(zone) + timedelta(hours=3))
    for name, clock in (("b", datetime), ("c", ahead)):
        monkeypatch.setattr("protein.storage.whole.datetime", clock)
        sweep_files.move(f"{tmp_path}/a.db", f"{tmp_path}/{name}.db", nothing)
        two = storage.open_whole_store(f"{tmp_path}/{name}.db")
        [copy] = two.list_sweeps()
        assert bool(two.live_trials(copy.id)) == (clock is ahead)
        known = two.summaries()[copy.id]
        assert alive(two, copy) == Alive(Life.GONE) and interrupted(known.running) == [0]
        [line] = ownership.life_lines(copy, alive(two, copy), num_running=1)
        assert line == "'s' was copied before its end; run its command again to go on"
        refuse_beside(two, copy)
        assert two.interrupt_orphans(copy.id, lease.dead_owners(known.running.values())) == [0]
        two.close()


def test_exports_of_equal_sweeps_are_equal_files(tmp_path: Path) -> None:
    one, two = (storage.open_whole_store(f"{tmp_path}/{name}.db") for name in "ab")
    rich_store.fill(one)
    rich_store.fill(one, "t", num_trials=9)
    new_sweep(one, "empty")
    sweep_files.export(one, sweep_files.chosen(one, (), every=True), tmp_path / "1.jsonl", nothing)
    moved = sweep_files.import_file(two, tmp_path / "1.jsonl", name=None, progress=nothing)
    assert [(sweep.name, sweep.num_trials) for sweep in moved] == [("s", 30), ("t", 9), ("empty", 0)]
    sweep_files.export(two, sweep_files.chosen(two, (), every=True), tmp_path / "2.parquet", nothing)
    three = storage.open_whole_store(f"{tmp_path}/c.db")
    sweep_files.import_file(three, tmp_path / "2.parquet", name=None, progress=nothing)
    for name in ("s", "t", "empty"):
        assert everything(three, name) == everything(one, name)
    for store in (one, two, three):
        store.close()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    store = storage.open_whole_store(f"{folder}/a.db")
    sweep = rich_store.fill(store)
    for ending in ("jsonl", "parquet"):
        sweep_files.export(store, [sweep], folder / f"s.{ending}", nothing)
    store.close()
    return folder


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_damaged_or_cut_file_is_one_line_and_nothing_is_imported(ending: str, exported: Path, tmp_path: Path) -> None:
    """A flipped bit may also lie where it changes nothing, such as in Parquet's statistics: then all is exact."""
    content, draw = (exported / f"s.{ending}").read_bytes(), random.Random(0)
    store, path = storage.open_whole_store(f"{tmp_path}/b.db"), tmp_path / f"x.{ending}"
    path.write_bytes(content)
    sweep_files.import_file(store, path, name="exact", progress=nothing)
    told, refused = everything(store, "exact")[1:], 0
    for i in range(60):
        damaged = bytearray(content)
        if i % 3 == 0:
            del damaged[draw.randrange(len(damaged)) :]
        elif i % 3 == 1:
            damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        else:
            first = draw.randrange(len(damaged))
            del damaged[first : first + draw.randrange(1, 200)]
        path.write_bytes(damaged)
        try:
            sweep_files.import_file(store, path, name=f"damaged{i}", progress=nothing)
        except (UsageError, StoreError) as error:
            assert "\n" not in str(error) and len(str(error)) < 700
            assert store.find_sweep(f"damaged{i}") is None
            refused += 1
        else:
            assert ending == "parquet" and i % 3 == 1
            assert everything(store, f"damaged{i}")[1:] == told
    assert refused >= 50
    store.close()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("x.jsonl", b"", "no file of sweeps"),
        ("x.jsonl", b"\x00\xff\n", "no file of sweeps"),
        ("x.jsonl", b'{"protein":"sweeps","version":99,"sweeps":[]}\n', "version 99.*upgrade"),
        ("x.jsonl", b"[1]\n", "no file of sweeps"),
        ("x.jsonl", gzip.compress(b"{}", mtime=0), "no file of sweeps"),
        ("x.parquet", b"PAR1", "no Parquet file"),
        ("x.csv", b"a,b\n", "ends with .jsonl or .parquet"),
    ],
)
def test_another_file_is_refused(name: str, content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    store = storage.open_whole_store(f"{tmp_path}/b.db")
    with pytest.raises(UsageError, match=says):
        sweep_files.import_file(store, tmp_path / name, name=None, progress=nothing)
    store.close()


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("trial", "score"), "high"),
        (("trial", "score"), None),
        (("trial", "cost_seconds"), -1),
        (("trial", "state"), "done"),
        (("trial", "params"), {"lr": [{"a": "b\0"}]}),
        (("trial", "steps"), 1.5),
        (("trial", "seed"), 2**63),
        (("trial", "number"), 7),
        (("trial", "started_at"), "2026-01-01T00:00:00"),
        (("trial", "started_at"), "9999-12-31T23:00:00+00:00"),  # with no moment in time zones east of London
        (("annotation",), {"tags": [], "note": "", "excluded": False, "revision": 2**31 - 1}),  # the last one
        (("trial", "unknown"), 1),
        (("trial", "reason"), "a\0b"),
        (("trial", "predicted_score_low"), 1e9),
        (("curve", "steps"), [-1, 2]),
        (("curve", "score"), []),
        (("artifacts",), [["log", 3]]),
    ],
)
def test_a_value_that_no_store_would_hold_is_refused(
    place: tuple[str, ...], value: object, exported: Path, tmp_path: Path
) -> None:
    """A file that somebody wrote themselves, with a right checksum."""
    import hashlib

    lines = [json.loads(line) for line in (exported / "s.jsonl").read_text().splitlines()]
    changed = lines[12]  # trial 10, complete
    target = changed if len(place) == 1 else changed.setdefault(place[0], {"steps": [], "score": []})
    target[place[-1]] = value
    texts = [json.dumps(line) + "\n" for line in lines[:-1]]
    end = {**lines[-1]["end"], "sha256": hashlib.sha256("".join(texts).encode()).hexdigest()}
    path = tmp_path / "x.jsonl"
    path.write_text("".join(texts) + json.dumps({"end": end}) + "\n")
    store = storage.open_whole_store(f"{tmp_path}/b.db")
    with pytest.raises((UsageError, StoreError)) as caught:
        sweep_files.import_file(store, path, name=None, progress=nothing)
    assert "\n" not in str(caught.value)
    assert store.list_sweeps() == []
    store.close()


def test_a_name_that_is_taken_is_refused_and_another_can_be_given(exported: Path, tmp_path: Path) -> None:
    store = storage.open_whole_store(f"{tmp_path}/b.db")
    path = exported / "s.jsonl"
    sweep_files.import_file(store, path, name=None, progress=nothing)
    with pytest.raises(StoreError, match=r"'s' exists already.*nothing was stored; give another name"):
        sweep_files.import_file(store, path, name=None, progress=nothing)
    sweep_files.import_file(store, path, name="t", progress=nothing)
    assert [sweep.spec.name for sweep in store.list_sweeps()] == ["s", "t"]
    with pytest.raises(UsageError, match="letters, digits"):
        sweep_files.import_file(store, path, name="../x", progress=nothing)
    store.close()


def test_an_import_that_is_interrupted_leaves_nothing(exported: Path, tmp_path: Path) -> None:
    store = storage.open_whole_store(f"{tmp_path}/b.db")

    def interrupt(sweep: str, done: int, of: int) -> None:
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep_files.import_file(store, exported / "s.jsonl", name=None, progress=interrupt)
    assert store.list_sweeps() == []
    target = tmp_path / "out.jsonl"
    target.write_text("before")
    sweep_files.import_file(store, exported / "s.jsonl", name=None, progress=nothing)
    with pytest.raises(KeyboardInterrupt):
        sweep_files.export(store, store.list_sweeps(), target, interrupt)
    assert target.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir() if "out" in path.name) == ["out.jsonl"]
    store.close()


def test_a_running_trial_of_a_copy_is_interrupted_when_it_is_resumed(exported: Path, tmp_path: Path) -> None:
    store = storage.open_whole_store(f"{tmp_path}/b.db")
    sweep_files.import_file(store, exported / "s.jsonl", name=None, progress=nothing)
    sweep = store.find_sweep("s")
    assert sweep is not None
    assert store.live_trials(sweep.id) == {}  # its lease has ended
    assert store.interrupt_orphans(sweep.id, []) == [28, 29]
    store.close()


def test_a_store_is_moved_whole_and_a_sweep_that_runs_is_not(
    tmp_path: Path, new_postgresql: Callable[..., str]
) -> None:
    url, target = f"{tmp_path}/a.db", new_postgresql()
    store = storage.open_whole_store(url)
    sweep = rich_store.fill(store)
    with pytest.raises(
        UsageError, match=r"'s' is being run by process \d+ on .* cannot be moved; end it with protein stop s"
    ):
        sweep_files.move(url, target, nothing)
    store.interrupt_orphans(sweep.id, ["host-ü:28:1.00", "host-ü:29:1.00"])
    moved, shown, warning = sweep_files.move(url, target, nothing)
    assert moved[0].num_trials == 30 and "postgresql" in shown and warning == ""
    copy = storage.open_store(target)
    assert everything(copy, "s") == everything(store, "s")
    copy.close()
    with pytest.raises(StoreError, match="exists already"):
        sweep_files.move(url, target, nothing)
    with pytest.raises(UsageError, match="the same one"):
        sweep_files.move(url, f"sqlite:///{tmp_path}/../{tmp_path.name}/a.db", nothing)
    store.close()


def test_the_calibrations_of_machines_move_too_and_a_foreign_reference_is_said(
    tmp_path: Path, new_postgresql: Callable[..., str]
) -> None:
    """Without them the first machine that runs a sweep on the new store would become the reference of the old costs."""
    moment = datetime.now(UTC)
    machines = [
        Machine(name=name, facts={"host": name, "parts": [1, 2.5]}, calibration_seconds=seconds, measured_at=moment)
        for name, seconds in (("slow", 2.0), ("fast", 0.5), ("third", 1.0))
    ]
    urls = [f"{tmp_path}/a.db", new_postgresql(), f"{tmp_path}/c.db", f"{tmp_path}/d.db"]
    for url, name, known in zip(urls, "abcd", (machines[:2], [], machines[1:], []), strict=True):
        store = storage.open_store(url)
        if url != urls[1]:
            new_sweep(store, name)
        for machine in known:
            store.add_machine(machine)
        store.close()

    def known_to(url: str) -> list[Machine]:
        store = storage.open_store(url)
        found = store.machines()
        store.close()
        return found

    assert sweep_files.move(urls[0], urls[1], nothing)[2] == ""
    assert known_to(urls[1]) == machines[:2], "in their order: the first one is the reference"
    assert sweep_files.move(urls[1], urls[2], nothing)[2] == (
        "costs of these sweeps are in seconds of slow, and others there in seconds of fast, which is 4.00 times as"
        " fast: compare their costs within these sweeps only, and do not resume them there"
    )
    assert known_to(urls[2]) == [*machines[1:], machines[0]], "the other store keeps its reference"
    assert "costs there are in seconds of fast, and those of these" in sweep_files.move(urls[3], urls[2], nothing)[2]


def test_a_paused_sweep_stays_paused_and_that_is_said(exported: Path, tmp_path: Path) -> None:
    store = storage.open_whole_store(f"{tmp_path}/b.db")
    [moved] = sweep_files.import_file(store, exported / "s.jsonl", name="other", progress=nothing)
    assert moved.paused and "it is paused, and so is the copy, until " in output.moved_lines([moved])[0]
    assert output.moved_lines([moved])[0].endswith("protein resume other")
    sweep = store.find_sweep("other")
    assert sweep is not None
    store.request(sweep.id, Request.RUN)
    assert not sweep_files.export(store, [sweep], tmp_path / "other.jsonl", nothing)[0].paused
    store.close()
