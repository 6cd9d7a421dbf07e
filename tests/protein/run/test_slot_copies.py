"""Files of trials that are kept under a URL, and slots that work there: on fsspec's own file systems."""

import dataclasses
import functools
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest
from full_disk import largest_file
from patience import PATIENCE_SECONDS

from protein.errors import UsageError
from protein.ports import Finished, Job
from protein.run import served
from protein.run.served import ServedFiles, Server
from protein.run.slot import Copier, Copies, Leaving, Note, Slot, SlotSettings, facts, mirror, put_probe, remove_probe
from protein.run.trainer import TrainerBackend
from protein.types import CONTINUABLE, PREEMPTED, Outcome, Trial, TrialEnd


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    yield f"memory://{tmp_path.name}/runs" if request.param == "memory" else f"file://{tmp_path}/far away"
    fsspec.filesystem("memory").store.clear()


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_comes_back_as_it_was(url: str, tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    copier = Copier(Copies(url), there, "0003")
    (there / "checkpoint" / "inner").mkdir(parents=True)
    for name in ("log", "checkpoint/a b", "checkpoint/inner/c"):
        (there / name).write_text(name)
    (there / "link").symlink_to("/etc/passwd")
    assert copier.finish() == ""
    assert mirror(Copies(url), "0003", here) == ""
    assert files(here) == {name: name for name in ("log", "checkpoint/a b", "checkpoint/inner/c")}
    Copies(url).remove("0003")
    assert not Copies(url).has("0003/log")
    assert mirror(Copies(url), "0003", tmp_path / "nothing") == ""
    assert not (tmp_path / "nothing").exists()


def test_files_are_copied_while_the_trial_runs_and_again_when_they_change(url: str, tmp_path: Path) -> None:
    copier = Copier(Copies(url), tmp_path / "trial", "0000", every_seconds=0.02)
    (tmp_path / "trial").mkdir()
    for text in ("first", "second, longer"):
        (tmp_path / "trial" / "checkpoint").write_text(text)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while files(tmp_path / "seen").get("checkpoint") != text:
            assert time.monotonic() < deadline, "the file was not copied"
            time.sleep(0.02)
            mirror(Copies(url), "0000", tmp_path / "seen")
    assert copier.finish() == ""


def test_a_file_that_is_replaced_all_the_time_is_copied_and_one_that_is_being_written_is_not(
    url: str, tmp_path: Path
) -> None:
    copier = Copier(Copies(url), tmp_path / "trial", "0000", every_seconds=PATIENCE_SECONDS)
    (tmp_path / "trial").mkdir()

    def copied(**content: str) -> dict[str, str]:
        for name, text in content.items():
            place = tmp_path / "trial" / name
            part = place.with_name("part") if name == "replaced" else place
            part.write_text(text)
            part.rename(place)
        copier._look()
        mirror(Copies(url), "0000", tmp_path / "seen")
        return files(tmp_path / "seen")

    assert copied(replaced="1", written="1") == {}
    assert copied(replaced="22", written="22") == {"replaced": "22"}
    assert copied(replaced="333", written="333") == {"replaced": "333"}
    assert copied(replaced="4444") == {"replaced": "4444", "written": "333"}
    assert copier.finish() == ""


def test_what_cannot_be_copied_is_said_and_the_rest_is_copied(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, put = Copies(url), Copies.put

    def refuse(self: Copies, file: Path, name: str) -> None:
        if file.name == "b":
            raise PermissionError("no\nway")
        put(self, file, name)

    monkeypatch.setattr(Copies, "put", refuse)
    (tmp_path / "trial").mkdir()
    copier = Copier(store, tmp_path / "trial", "0000")
    for name in "abc":
        (tmp_path / "trial" / name).write_text(name)
    assert copier.finish() == "'b' could not be copied: no way"
    assert [store.has(f"0000/{name}") for name in "abc"] == [True, False, True]


def test_a_server_that_stays_away_is_waited_for_once_and_not_for_each_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []

    def away(server: Server, method: str, path: str, body: Path, *, into: None) -> bytes:
        called.append(path)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(Server, "call", away)
    monkeypatch.setattr(served, "INSIST_SECONDS", 0.0)
    (tmp_path / "trial").mkdir()
    copier = Copier(Copies(ServedFiles(Server("http://h", "t" * 16), "s", "w")), tmp_path / "trial", "0000")
    for name in "abc":
        (tmp_path / "trial" / name).write_text(name)
    assert copier.finish() == "'a' could not be copied: http://h: [Errno 111] Connection refused"
    assert called == ["/files/s/w/0000/a"]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nosuch://bucket", "artifacts cannot be kept at nosuch://bucket: Protocol not known"),
        ("nosuch://me:secret@bucket/x", "artifacts cannot be kept at nosuch://bucket/x"),
    ],
)
def test_an_url_of_no_known_kind_is_one_clear_line(url: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        Copies(url)
    assert "secret" not in str(raised.value) and "\n" not in str(raised.value)


def test_the_probe_is_seen_through_the_url_and_removed(url: str, tmp_path: Path) -> None:
    settings = SlotSettings(make_backend=TrainerBackend, artifacts=tmp_path, probe="x", artifacts_url=url)
    assert not facts(settings).shares_artifacts
    name = put_probe(tmp_path, url)
    assert facts(dataclasses.replace(settings, probe=name)).shares_artifacts
    remove_probe(tmp_path, name, url)
    assert not facts(dataclasses.replace(settings, probe=name)).shares_artifacts
    assert not (tmp_path / name).exists()


def job(folder: Path, number: int, **changes: Any) -> Job:
    trial = Trial(id=number, sweep_id=1, number=number, params={}, seed=0, owner="test")
    config: Any = {"train": {"behaviour": "kept"}, "seed": 0, "max_seconds": None}
    made = Job(trial=trial, config=config, directory=folder / f"{number:04d}", max_seconds=None, max_memory_bytes=None)
    return dataclasses.replace(made, **changes)


def end_of(slot: Slot) -> Finished:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for event in slot.poll(0.2):
            if isinstance(event, Finished):
                return event
    raise AssertionError("the trial has never ended")


def test_a_slot_works_in_a_folder_of_its_node_and_reports_the_controllers_paths(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its score counts the trials of its run; the controller's folder is one that the node does not have."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    controllers = tmp_path / "controller" / "runs"
    make = functools.partial(TrainerBackend, entry="trial:main", preload=())
    slot = Slot(
        SlotSettings(
            make_backend=make, artifacts=controllers, probe="", artifacts_url=url, working_directory=str(Path.cwd())
        )
    )
    slot.start(job(controllers, 0))
    first = end_of(slot)
    assert first.outcome.end is TrialEnd.COMPLETE
    kept = next(Path(one.path) for one in first.artifacts if one.kind == CONTINUABLE)
    assert kept == controllers / "0000" / "state"
    assert not controllers.exists()
    slot.start(job(controllers, 1, continues=kept))
    second = end_of(slot)
    assert second.outcome.score == 2.0, "what the first one has left was fetched"
    assert mirror(Copies(url), "0001", controllers / "0001") == ""
    assert all(Path(one.path).is_file() for one in second.artifacts)
    slot.close()
    assert list((tmp_path / "scratch").glob("protein-trials-*")) == []


class Ends:
    """A backend whose trials end at once as they are told to."""

    def __init__(self, *ends: TrialEnd) -> None:
        self._ends, self._jobs = list(ends), list[Job]()

    def start(self, job: Job) -> None:
        self._jobs.append(job)

    def poll(self, timeout_seconds: float) -> list[Finished]:
        outcome = Outcome(end=self._ends.pop(0), reason="no room; free some space", cost_seconds=3.0, steps=2)
        return [Finished(trial=self._jobs.pop().trial, outcome=outcome)]

    def close(self) -> None:
        pass


def test_a_trial_that_fills_the_disk_of_its_slot_is_preempted_and_no_other_comes_until_there_is_room(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.node", lambda: "n7")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    free, now = [1000], [0.0]
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free[0]))
    clock = SimpleNamespace(monotonic=lambda: now[0])
    make: Any = functools.partial(Ends, TrialEnd.FAILED, TrialEnd.DISK)
    one = Slot(SlotSettings(make_backend=make, artifacts=tmp_path / "runs", probe="", artifacts_url=url))
    one.start(job(tmp_path / "runs", 0))
    [failed] = one.poll(0.0)
    assert isinstance(failed, Finished) and failed.outcome.end is TrialEnd.FAILED and not one.is_full
    one.start(job(tmp_path / "runs", 1))
    monkeypatch.setattr("protein.run.slot.time", clock)
    note, end, leaving = one.poll(0.0)
    said = f"n7 gets no trial for now: the disk of its {tmp_path} is full; "
    assert note == Note(text=f"{said}free some space there, or set TMPDIR to a folder on a larger one")
    assert isinstance(end, Finished) and leaving == Leaving()
    preempted = f"{PREEMPTED}no room; free some space on n7"
    assert end.outcome == Outcome(end=TrialEnd.INTERRUPTED, reason=preempted, cost_seconds=3.0, steps=2)
    assert one.is_full, "what it has written itself and is removed was not enough"
    free[0] = 1300
    assert not one.is_full
    free[0], now[0] = 0, 599.0
    assert one.is_full
    now[0] = 601.0
    assert not one.is_full, "a quota shows no room"
    one.close()


def test_what_a_trial_goes_on_from_may_fill_the_disk_of_its_slot(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "state").write_bytes(bytes(100_000))
    Copies(url).put(tmp_path / "state", "0000/state")
    make: Any = Ends
    one = Slot(SlotSettings(make_backend=make, artifacts=tmp_path / "runs", probe="", artifacts_url=url))
    resumed = job(tmp_path / "runs", 0, resumes=tmp_path / "runs" / "0000" / "state")
    with largest_file(10_000), pytest.raises(OSError, match="File too large"):
        one.start(resumed)
    assert list(tmp_path.glob("protein-trials-*")) == [], "what has come so far would take the room"
    assert one.is_full and ["is full" in note.text for note in one._notes] == [True]
    one.close()


def test_a_full_disk_is_not_taken_for_a_server_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []

    def full(server: Server, method: str, path: str, body: bytes, *, into: Path) -> bytes:
        called.append(path)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Server, "call", full)
    monkeypatch.setattr(served, "INSIST_SECONDS", 0.0)
    with pytest.raises(OSError, match="No space left on device") as raised:
        Server("http://h", "t" * 16).insist("GET", "/files/x", into=tmp_path / "x")
    assert raised.value.errno == 28 and called == ["/files/x"]


def test_a_trial_that_begins_finds_nothing_of_an_earlier_sweep(url: str, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    copier = Copier(Copies(url), tmp_path / "old", "0000")
    (tmp_path / "old" / "state").write_text("x")
    copier.finish()
    make = functools.partial(TrainerBackend, entry="trial:main", preload=())
    slot = Slot(
        SlotSettings(
            make_backend=make, artifacts=tmp_path, probe="", artifacts_url=url, working_directory=str(Path.cwd())
        )
    )
    begins = job(tmp_path, 0)
    slot.start(dataclasses.replace(begins, config={**begins.config, "train": {}}))
    end_of(slot)
    slot.close()
    assert not Copies(url).has("0000/state")
    assert Copies(url).has("0000/checkpoint")
