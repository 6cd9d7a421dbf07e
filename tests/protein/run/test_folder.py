"""Workers that join a sweep through a folder: the sweep's side, and which sweep a machine's slots serve.

No file system is asked for a lock here: each such call fails, as on NFS without them.
"""

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protein.errors import UsageError
from protein.ports import Finished, Job
from protein.run import folder as folders
from protein.run import lease, mailbox, worker
from protein.run.fleet import Fleet
from protein.run.folder import FolderTransport, offers
from protein.run.mailbox import FROM_WORKER, TO_WORKER, Inbox, Outbox
from protein.run.slot import Facts, Leaving, Left, Note, Ready, SlotSettings, Stop
from protein.run.trainer import TrainerBackend
from protein.run.worker import Workers, _divided
from protein.types import PREEMPTED, Outcome, Trial, TrialEnd


@pytest.fixture(autouse=True)
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    for module, name in ((fcntl, "flock"), (fcntl, "lockf"), (os, "link"), (os, "lockf")):
        monkeypatch.setattr(module, name, fails)
    monkeypatch.setattr(folders, "LOOK_SECONDS", 0.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock of the sweep."""
    now = [100.0]
    monkeypatch.setattr(mailbox, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=time.sleep, time=time.time))
    return now


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    """Starts the sweep of a name."""
    backends: list[Fleet] = []

    def make(name: str = "s", notes: list[str] | None = None, **changes: Any) -> Fleet:
        settings = SlotSettings(make_backend=TrainerBackend, artifacts=tmp_path / name, probe="", **changes)
        said = [] if notes is None else notes
        backends.append(Fleet(FolderTransport(name), settings, note=said.append))
        return backends[-1]

    yield make
    for backend in backends:
        backend.close()


class Joined:
    """A worker's end of its messages."""

    def __init__(self, sweep: Path, name: str = "w") -> None:
        self.folder = sweep / folders.FOLDER / name
        self.folder.mkdir()
        self.inbox, self.outbox = Inbox(self.folder / TO_WORKER), Outbox(self.folder / FROM_WORKER)

    def ready(self) -> None:
        facts = Facts(host="node", version="1", shares_artifacts=True)
        self.outbox.send(Ready(facts=facts, seconds_left=None))


def a_job(directory: Path, number: int = 0) -> Job:
    trial = Trial(id=number + 1, sweep_id=1, number=number, params={}, seed=0, owner="test")
    return Job(trial=trial, config={}, directory=directory / "0000", max_seconds=None, max_memory_bytes=None)


def ended(job: Job) -> Finished:
    return Finished(trial=job.trial, outcome=Outcome(end=TrialEnd.COMPLETE, reason="", score=1.0, cost_seconds=1.0))


def test_workers_join_and_leave_a_running_sweep(start: Callable[..., Fleet], tmp_path: Path) -> None:
    notes: list[str] = []
    backend = start(notes=notes)
    assert backend.num_slots() == 0
    assert notes == [f"waiting for workers: protein worker {tmp_path}"]
    first, job = Joined(tmp_path / "s"), a_job(tmp_path)
    backend.start(job)
    assert backend.num_slots() == 0, "it is not ready"
    [settings] = first.inbox.receive()
    assert isinstance(settings, SlotSettings)
    first.ready()
    assert backend.num_slots() == 1
    [given] = first.inbox.receive()
    assert given == job
    second = Joined(tmp_path / "s", "w2")
    second.ready()
    backend.poll(0.0)
    assert backend.num_slots() == 2
    first.outbox.send(Note(text="bye"), Left())  # as one that was killed, by the word of what had started it
    [event] = backend.poll(0.0)
    assert isinstance(event, Finished) and event.outcome.end is TrialEnd.INTERRUPTED
    assert event.outcome.reason == f"{PREEMPTED}worker w has left"
    assert backend.num_slots() == 1 and not first.folder.exists()
    backend.start(job)
    assert second.inbox.receive()[1:] == [job]
    second.outbox.send(ended(job), Left())
    [event] = backend.poll(0.0)
    assert isinstance(event, Finished) and event.outcome.score == 1.0, "what it said before it left counts"
    backend.num_slots()
    assert notes[-1] == notes[0], "it waits again"
    third = Joined(tmp_path / "s", "w3")
    backend.num_slots()
    backend.close()
    assert not (tmp_path / "s" / folders.FOLDER).exists() and third.folder.parent == first.folder.parent


def test_a_silent_worker_is_given_up_and_its_late_report_is_not_taken(
    start: Callable[..., Fleet], tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its silence counts on the sweep's own clock; those of its machine and of the file system are an hour off."""
    monkeypatch.setattr("time.time", lambda: 3600.0 + clock[0])
    backend, job = start(), a_job(tmp_path)
    silent, alive = Joined(tmp_path / "s", "one"), Joined(tmp_path / "s", "two")
    for one in (silent, alive):
        os.utime(one.folder, (0.0, 0.0))
        one.ready()
    backend.num_slots()
    assert backend.num_slots() == 2
    backend.start(job)
    running, other = (silent, alive) if len(silent.inbox.receive()) == 2 else (alive, silent)
    for _ in range(int(mailbox.DEAD_SECONDS) + 2):
        clock[0] += 1.0
        other.outbox.send(Note(text="here"))
        backend.num_slots()
    [event] = backend.poll(0.0)
    assert isinstance(event, Finished) and event.outcome.end is TrialEnd.INTERRUPTED
    assert "has been silent for too long" in event.outcome.reason
    assert not running.folder.exists(), "that ends it"
    backend.start(job)
    running.folder.mkdir()  # it comes back, or a file system shows what it had written
    (running.folder / FROM_WORKER).touch()
    running.outbox.send(ended(job))
    assert backend.poll(0.0) == [], "nobody has told it to run this"
    other.outbox.send(ended(job))
    [event] = backend.poll(0.0)
    assert isinstance(event, Finished) and event.trial == job.trial


def test_a_listing_without_a_worker_that_is_there_ends_nothing(
    start: Callable[..., Fleet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing may be old, or leave out entries of a folder that changes meanwhile."""
    backend = start()
    one = Joined(tmp_path / "s")
    backend.num_slots()
    one.ready()
    assert backend.num_slots() == 1
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", lambda _: [])
        assert backend.num_slots() == 1 and one.folder.exists()
    shutil.rmtree(one.folder)
    assert backend.num_slots() == 0


def test_a_full_disk_delays_messages_and_loses_none(
    start: Callable[..., Fleet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, job, full = start(), a_job(tmp_path), [True]
    one, whole = Joined(tmp_path / "s"), os.pwrite
    one.ready()

    def pwrite(file: int, data: bytes, at: int) -> int:
        if full[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(file, data, at)

    monkeypatch.setattr(os, "pwrite", pwrite)
    backend.num_slots()
    assert one.inbox.receive() == []
    full[0] = False
    backend.num_slots()
    assert backend.num_slots() == 1
    full[0] = True
    backend.start(job)
    backend.stop(job.trial, TrialEnd.INTERRUPTED, "why")
    assert len(one.inbox.receive()) == 1
    full[0] = False
    backend.poll(0.0)
    assert [type(message) for message in one.inbox.receive()] == [Job, Stop]


def test_what_is_no_message_or_no_worker_ends_nothing_else(start: Callable[..., Fleet], tmp_path: Path) -> None:
    notes: list[str] = []
    backend = start(notes=notes)
    home = tmp_path / "s" / folders.FOLDER
    (home / "a file").touch()
    (home / ".new-w").mkdir()
    (home / "link").symlink_to(tmp_path)
    (home / "an odd [red]name").mkdir()
    bad, good = Joined(tmp_path / "s", "bad"), Joined(tmp_path / "s", "good")
    for one in (bad, good):
        one.ready()
    backend.num_slots()
    assert backend.num_slots() == 2
    (bad.folder / FROM_WORKER).write_bytes(b"x" * 1000)
    assert backend.num_slots() == 1 and not bad.folder.exists()
    assert any("worker bad is ended: a message cannot be read" in note for note in notes)


def test_two_sweeps_of_one_name_in_one_folder_are_refused(start: Callable[..., Fleet], tmp_path: Path) -> None:
    first = start()
    start("other")
    with pytest.raises(UsageError, match=r"another process runs a sweep 's' in .*/s, .*: give this sweep another"):
        start()
    assert first.num_slots() == 0, "it goes on"
    assert [path.name for path in (tmp_path / "s").iterdir()] == [folders.FOLDER], "nothing of the second is left"
    first.close()
    start()
    home = tmp_path / "s" / folders.FOLDER
    with subprocess.Popen(["true"]) as process:  # its process is killed: the next one goes on at once
        owner = lease.owner_of(process.pid)
    (home / folders.OWNER).write_text(owner)
    start()


def test_workers_see_the_sweeps_of_their_user_that_live(
    start: Callable[..., Fleet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start("one")
    start("two", gpus_per_trial=2)
    for name, offer in (
        ("damaged", "{"),
        ("strange", '{"name": 1, "what": 2}'),
        ("odd", '{"name": "odd", "gpus_per_trial": "2"}'),
    ):
        (tmp_path / name / folders.FOLDER).mkdir(parents=True)
        (tmp_path / name / folders.FOLDER / folders.OFFER).write_text(offer)
    found = offers(tmp_path)
    assert [(offer.name, offer.gpus_per_trial) for offer in found.values()] == [("one", 0), ("two", 2)]
    assert not any(offer.refusal() for offer in found.values())
    (tmp_path / "two" / folders.FOLDER / folders.OWNER).write_text("elsewhere:1:2")
    alive = tmp_path / "two" / folders.FOLDER / mailbox.ALIVE
    long_ago = time.time() - 2 * mailbox.DEAD_SECONDS
    os.utime(alive, (long_ago, long_ago))
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert [offer.name for offer in offers(tmp_path).values()] == ["one"]
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert offers(tmp_path) == {}, "of another user: it would say which programs to run"


def test_a_worker_that_looks_again_writes_nothing(
    start: Callable[..., Fleet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks twice a second, at sweeps of other machines, too. They end by its own clock, and may come back."""
    for name in ("living", "dead"):
        start(name)
        home = tmp_path / name / folders.FOLDER
        (home / folders.OWNER).write_text("elsewhere:1:2")
        (home / mailbox.ALIVE).write_text("7")
    os.utime(home / mailbox.ALIVE, (0.0, 0.0))
    now, signs = [time.monotonic()], dict[Path, tuple[str, float]]()
    monkeypatch.setattr(folders, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=time.sleep))

    def seen() -> list[str]:
        return [offer.name for offer in offers(tmp_path, signs=signs).values()]

    assert seen() == [], "either may have died a moment ago"
    (tmp_path / "living" / folders.FOLDER / mailbox.ALIVE).write_text("8")
    for name in ("living", "dead"):
        os.utime(tmp_path / name / folders.FOLDER, (0.0, 0.0))
    assert seen() == ["living"]
    now[0] += mailbox.ALIVE_SECONDS
    assert seen() == ["living"]
    now[0] += mailbox.DEAD_SECONDS + 1.0
    assert seen() == []
    (tmp_path / "dead" / folders.FOLDER / mailbox.ALIVE).write_text("8")
    assert seen() == ["dead"], "it had been asleep, or another process goes on with it"
    for name in ("living", "dead"):
        assert (tmp_path / name / folders.FOLDER).stat().st_mtime == 0.0, "something was written"


def test_workers_that_fail_before_they_are_ready_say_why_once(start: Callable[..., Fleet], tmp_path: Path) -> None:
    notes: list[str] = []
    backend = start(notes=notes)
    assert backend.num_slots() == 0
    for number in range(4):
        one = Joined(tmp_path / "s", f"w{number}")
        backend.num_slots()
        one.outbox.send(Left(why=f"node{number % 2} cannot import the function m:train"))
        assert backend.num_slots() == 0 and not one.folder.exists()
    waits = f"waiting for workers: protein worker {tmp_path}"
    said = [
        f"worker w{n} cannot run trials, and tries again: node{n} cannot import the function m:train" for n in (0, 1)
    ]
    assert notes == [waits, said[0], waits, said[1], waits]
    one = Joined(tmp_path / "s")
    backend.num_slots()
    one.ready()
    backend.num_slots()
    one.outbox.send(Left(why="ValueError: x"))
    backend.num_slots()
    assert notes[-2:] == ["worker w has failed: ValueError: x", waits]


def test_a_trial_of_a_worker_whose_disk_is_full_goes_on_elsewhere_and_without_another_worker_the_sweep_waits(
    start: Callable[..., Fleet], tmp_path: Path
) -> None:
    notes: list[str] = []
    backend, job = start(notes=notes), a_job(tmp_path)
    workers = [Joined(tmp_path / "s", name) for name in "ab"]
    backend.num_slots()
    for one in workers:
        one.ready()
    assert backend.num_slots() == 2
    for one in workers:
        backend.start(job)
        assert any(isinstance(told, Job) for told in one.inbox.receive())
        end = Outcome(end=TrialEnd.INTERRUPTED, reason=f"{PREEMPTED}no room on {one.folder.name}")
        full = Note(text=f"{one.folder.name} gets no trial for now: its disk is full")
        one.outbox.send(full, Finished(trial=job.trial, outcome=end), Leaving())
        [event] = backend.poll(1.0)
        assert isinstance(event, Finished) and event.outcome == end
    backend.start(job)
    assert backend.num_slots() == 0 and backend.poll(0.0) == []
    waits = f"waiting for workers: protein worker {tmp_path}"
    assert notes[-1] == waits and sum("its disk is full" in line for line in notes) == 2
    workers[0].outbox.send(Left())  # there is room again, and it comes anew
    backend.num_slots()
    again = Joined(tmp_path / "s", "c")
    backend.num_slots()
    again.ready()
    assert backend.num_slots() == 1 and any(isinstance(told, Job) for told in again.inbox.receive())


@pytest.mark.parametrize(
    ("gpus", "slots", "each"),
    [
        ((), None, [()]),
        ((), 2, [(), ()]),
        (("0", "1"), None, [("0",), ("1",)]),
        (("0", "1", "2", "3"), 2, [("0", "1"), ("2", "3")]),
        (("0", "1"), 4, [("0",), ("1",), ("0",), ("1",)]),
    ],
)
def test_gpus_are_divided_among_slots(gpus: tuple[str, ...], slots: int | None, each: list[tuple[str, ...]]) -> None:
    assert _divided(gpus, slots) == each


def test_slots_that_cannot_be_are_one_line(tmp_path: Path) -> None:
    for slots, gpus, line in ((0, None, "--slots 0 is below the limit of 1"), (2, ("0", "1", "2"), "3 GPUs cannot be")):
        with pytest.raises(UsageError, match=line):
            Workers(tmp_path, slots=slots, gpus=gpus, seconds=None, note=print)
    with pytest.raises(UsageError, match="there is no folder"):
        Workers(tmp_path / "none", slots=1, gpus=None, seconds=None, note=print)


class Process:
    """A process of a slot, as subprocess gives it. It is ready at once, and says so to the sweep."""

    def __init__(self, command: list[str], env: dict[str, str], **_: Any) -> None:
        self.folder, self.env, self.signals = Path(command[4]), env, list[int]()
        self.code: int | None = None
        self.stdout = SimpleNamespace(read=lambda _: b"ready", close=lambda: None, fileno=lambda: 0)
        self.outbox = Outbox(self.folder / FROM_WORKER)
        self.outbox.send(Ready(facts=Facts(host="node", version="1", shares_artifacts=True), seconds_left=None))
        processes.append(self)

    def leave(self) -> None:
        self.outbox.send(Left())
        self.code = 0

    def poll(self) -> int | None:
        return self.code

    def send_signal(self, number: int) -> None:
        self.signals.append(number)


processes: list[Process] = []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Returns what makes a machine, and what it does at each look."""
    processes.clear()
    monkeypatch.setattr(subprocess, "Popen", Process)
    monkeypatch.setattr(os, "set_blocking", lambda *_: None)

    def make(slots: int = 1, notes: list[str] | None = None, **changes: Any) -> Callable[[], None]:
        note = (notes if notes is not None else list[str]()).append
        given = {"slots": slots, "gpus": None, "seconds": None, "note": note} | changes
        return Workers(tmp_path, **given).look

    return make


def serving() -> dict[str, int]:
    names = [process.folder.parts[-3] for process in processes if process.code is None]
    return {name: names.count(name) for name in sorted(names)}


def test_the_slots_of_all_machines_are_shared_among_the_sweeps_of_the_folder(
    start: Callable[..., Fleet], machine: Callable[..., Any]
) -> None:
    sweeps, machines = [start("a")], [machine(3), machine(2)]
    for _ in range(4):
        for look in machines:
            look()
    assert serving() == {"a": 5}
    sweeps.append(start("b"))
    for _ in range(8):
        for one in (*sweeps, *sweeps):  # it is seen who is there, and then heard who is ready
            one.num_slots()
        for look in machines:
            look()
        asked = [process for process in processes if process.signals and process.code is None]
        assert len(asked) <= 1, "one slot moves at a time"
        for process in asked:
            assert process.signals == [signal.SIGUSR2], "it ends with its trial"
            process.leave()
    assert serving() in ({"a": 3, "b": 2}, {"a": 2, "b": 3})


def test_of_a_sweeps_workers_an_idle_one_that_hears_it_goes_to_another_sweep(
    start: Callable[..., Fleet], machine: Callable[..., Any], tmp_path: Path, clock: list[float]
) -> None:
    """Their names tell nothing: with each of the four as the only such one."""
    backend, look = start("a"), machine(4)
    for _ in range(6):
        look()
        backend.num_slots()
    assert len(processes) == backend.num_slots() == 4
    start("b")
    by_name = {process.folder.name: process for process in processes}
    for number in range(4):
        backend.start(a_job(tmp_path, number))
    for number, slot in enumerate(list(backend._slots)):
        job = slot.job
        assert job is not None and job.trial.number == number
        name = slot.name.removeprefix("worker ")
        by_name[name].outbox.send(ended(job))
        backend.poll(0.0)
        backend.num_slots()
        assert (tmp_path / "a" / folders.FOLDER / folders.NEXT).read_text() == name
        for _ in range(4):  # of this one nothing is heard any more, and then it is not the one
            clock[0] += mailbox.ALIVE_SECONDS
            for process in processes:
                if process.folder.name != name:
                    process.outbox.send(Note(text=""))
            backend.num_slots()
        assert (tmp_path / "a" / folders.FOLDER / folders.NEXT).read_text() != name
        by_name[name].outbox.send(Note(text=""))
        backend.num_slots()
        assert (tmp_path / "a" / folders.FOLDER / folders.NEXT).read_text() == name
        backend.start(job)
        assert slot.job is job
    slot = min(backend._slots, key=lambda one: one.name)
    assert slot.job is not None
    by_name[slot.name.removeprefix("worker ")].outbox.send(ended(slot.job))
    backend.poll(0.0)
    backend.num_slots()
    for _ in range(2):
        look()
    assert [process for process in processes if process.signals] == [by_name[slot.name.removeprefix("worker ")]]


@pytest.mark.parametrize("others", [False, True])
def test_a_sweep_ends_before_the_processes_of_its_slots(
    start: Callable[..., Fleet], machine: Callable[..., Any], others: bool
) -> None:
    backend, look = start("a"), machine(3)
    for _ in range(3):
        look()
    if others:
        start("b")
    backend.close()
    look()
    for process in processes:
        process.code = 0
    for _ in range(3):
        look()
    assert serving() == ({"b": 3} if others else {})


def test_a_sweep_that_sends_away_a_worker_with_little_time_is_left_alone(
    start: Callable[..., Fleet], machine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    start("a")
    look = machine(2, seconds=3600.0)
    look()
    look()
    start("b")
    for process in processes:
        process.code = 0  # told to end: no trial of `a` would end in time
        process.folder.rename(process.folder.with_name(f".{process.folder.name}"))
    now = time.monotonic()
    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=lambda: now + 60.0, time=time.time))
    for _ in range(4):
        look()
    assert serving() == {"b": 2}
    assert not any(process.signals for process in processes), "none is freed for `a`"


def test_a_slot_whose_disk_was_full_joins_its_sweep_again(
    start: Callable[..., Fleet], machine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    start("a")
    notes: list[str] = []
    look = machine(notes=notes, seconds=3600.0)
    look()
    processes[0].code = mailbox.AGAIN
    now = time.monotonic()
    look()
    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=lambda: now + 11.0, time=time.time))
    look()
    assert serving() == {"a": 1} and notes == ["slot 0 joins sweep 'a'"] * 2


def test_a_slot_that_dies_is_told_and_used_again_later(
    start: Callable[..., Fleet], machine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    start("a")
    notes: list[str] = []
    look = machine(notes=notes)
    look()
    processes[0].code = -9
    look()
    [_, said] = Inbox(processes[0].folder / FROM_WORKER).receive()
    assert isinstance(said, Left) and said.why.startswith("its process has ended with exit code -9")
    assert len(processes) == 1 and "slot 0 has failed (exit code -9)" in notes[-1]
    now = time.monotonic()
    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=lambda: now + 11.0))
    look()
    assert len(processes) == 2


def test_a_full_disk_lets_a_slot_join_later(
    start: Callable[..., Fleet], machine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    start("a")
    notes: list[str] = []
    look = machine(notes=notes)
    with monkeypatch.context() as patch:

        def full(*_: Any, **__: Any) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(Path, "mkdir", full)
        look()
    assert not processes and "slot 0 cannot join sweep 'a' now: [Errno 28] No space left on device" in notes[-1]
    now = time.monotonic()
    monkeypatch.setattr(worker, "time", SimpleNamespace(monotonic=lambda: now + 11.0))
    look()
    assert serving() == {"a": 1}


def test_a_machine_that_cannot_run_the_trials_says_why_in_one_line(
    start: Callable[..., Fleet], machine: Callable[..., Any], tmp_path: Path
) -> None:
    backend = start("a", gpus_per_trial=2)
    with pytest.raises(UsageError, match=r"sweep 'a' needs 2 GPUs for a trial: name them, as in --gpus all"):
        machine()()
    with pytest.raises(UsageError, match=r"and a slot here has 1: give more --gpus, or fewer --slots"):
        machine(gpus=("0",))()
    machine(1, gpus=("4", "5"))()
    assert processes[0].env["CUDA_VISIBLE_DEVICES"] == "4,5"
    start("c")
    notes: list[str] = []
    machine(notes=notes)()
    assert serving()["c"] == 1, "another sweep can use it"
    assert sum("sweep 'a' needs 2 GPUs" in note for note in notes) == 1
    for name in ("a", "c"):
        shutil.rmtree(tmp_path / name)
    backend.close()
    start("b")
    file = tmp_path / "b" / folders.FOLDER / folders.OFFER
    file.write_text(json.dumps({"name": "b", "gpus_per_trial": 0, "protein": "0.0.9", "python": "3.99"}))
    line = (
        r"sweep 'b' has protein 0\.0\.9 on Python 3\.99, and this machine protein .* on Python 3\.\d+: install the same"
    )
    with pytest.raises(UsageError, match=line):
        machine()()
