"""A worker without a sweep and without Slurm: the folder of messages is all that it needs."""

import collections
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_SECONDS

from protein.errors import UsageError
from protein.ports import Finished, Job
from protein.run import mailbox
from protein.run.mailbox import FROM_WORKER, TO_WORKER, Inbox, Outbox
from protein.run.served import AwayError
from protein.run.slot import Alive, Close, Facts, Leaving, Left, Ready, SlotSettings
from protein.run.trainer import TrainerBackend
from protein.types import PREEMPTED, Artifact, Outcome, Trial, TrialEnd

made: list["Slot"] = []


class Slot:
    """A slot whose trials take long to start, and then run on."""

    start_seconds = 0.0
    disk = ""  # what is wrong with its own
    looks = 0  # at its disk

    def __init__(self, settings: SlotSettings, served: None) -> None:
        self.settings = settings
        self.jobs: list[Job] = []
        self.ends: collections.deque[Any] = collections.deque()
        made.append(self)

    def start(self, job: Job) -> None:
        time.sleep(self.start_seconds)
        self.jobs.append(job)

    def stop(self, trial: Trial, end: TrialEnd, reason: str) -> None:
        self.ends.append(Finished(trial=trial, outcome=Outcome(end=end, reason=reason, cost_seconds=1.0)))

    def poll(self, timeout_seconds: float) -> list[Any]:
        time.sleep(0.01)
        return [self.ends.popleft()] if self.ends else []

    def close(self) -> None:
        pass

    @property
    def is_full(self) -> bool:
        self.looks += 1
        return bool(self.disk)


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs in the folder `tmp_path / "sweep" / "0"`."""
    made.clear()
    monkeypatch.setattr(mailbox, "Slot", Slot)
    monkeypatch.setattr(mailbox, "facts", lambda *_: Facts(host="n", version="1", shares_artifacts=True))
    monkeypatch.setattr(mailbox, "seconds_left", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # only the main thread may
    folder = tmp_path / "sweep" / "0"
    folder.mkdir(parents=True)
    return mailbox.Worker(folder)


def settings(tmp_path: Path) -> SlotSettings:
    return SlotSettings(make_backend=TrainerBackend, artifacts=tmp_path, probe="")


def test_a_worker_that_is_told_to_end_before_it_began_ends(
    worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job may have waited long in the queue."""
    outbox = Outbox(tmp_path / "sweep" / "0" / TO_WORKER)
    outbox.send(settings(tmp_path), Close())
    measured: list[Any] = []
    monkeypatch.setattr(mailbox, "facts", measured.append)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    thread.join(5.0)
    assert not thread.is_alive() and not measured


@pytest.mark.parametrize("place", ["Slot", "facts"])
@pytest.mark.parametrize("error", [UsageError("n cannot import the function\nm:train"), ValueError("odd")])
def test_a_worker_that_cannot_run_trials_says_so_to_its_sweep(
    worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, place: str
) -> None:
    outbox, inbox = Outbox(tmp_path / "sweep" / "0" / TO_WORKER), Inbox(tmp_path / "sweep" / "0" / FROM_WORKER)
    outbox.send(settings(tmp_path))

    def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr(mailbox, place, fails)
    with pytest.raises(type(error)):
        worker.run()
    why = "n cannot import the function m:train" if isinstance(error, UsageError) else "ValueError: odd"
    assert inbox.receive() == [Left(why=why)]


def test_a_worker_whose_server_stays_away_ends_with_one_line(
    worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Outbox(tmp_path / "sweep" / "0" / TO_WORKER).send(settings(tmp_path))

    def away(*_: Any) -> None:
        raise AwayError("http://h: [Errno 111] Connection refused")

    monkeypatch.setattr(mailbox, "facts", away)
    with pytest.raises(SystemExit, match=r"^error: http://h: \[Errno 111\] Connection refused$"):
        mailbox.work(tmp_path / "sweep" / "0")


def test_a_worker_whose_sweep_ends_before_it_has_said_anything_ends(
    worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "SETTINGS_SECONDS", 0.5)  # after which it would fail
    shutil.rmtree(tmp_path / "sweep")
    worker.run()
    assert not made


def test_a_worker_that_starts_a_trial_for_long_says_that_it_lives(
    worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "ALIVE_SECONDS", 0.05)
    monkeypatch.setattr(Slot, "start_seconds", 2.0)
    trial = Trial(id=1, sweep_id=1, number=0, params={}, seed=0, owner="test")
    job = Job(trial=trial, config={}, directory=tmp_path, max_seconds=None, max_memory_bytes=None)
    outbox, inbox = Outbox(tmp_path / "sweep" / "0" / TO_WORKER), Inbox(tmp_path / "sweep" / "0" / FROM_WORKER)
    outbox.send(settings(tmp_path), job)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    time.sleep(1.0)
    heard = inbox.receive()
    assert isinstance(heard[0], Ready) and sum(isinstance(one, Alive) for one in heard) >= 5
    outbox.send(Close())
    thread.join(5.0)
    assert not thread.is_alive()


def wait_for(true: Callable[[], Any]) -> Any:
    until = time.monotonic() + PATIENCE_SECONDS
    while not (found := true()):
        assert time.monotonic() < until
        time.sleep(0.005)
    return found


@pytest.mark.parametrize("way", ["told to end", "parent died", "after its trial", "given up", "sweep gone"])
def test_a_worker_that_leaves_gives_its_trial_back_by_the_names_of_the_sweep(
    worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The sweep sees the folder under another path than its worker."""
    theirs = Path("/mnt/of the sweep")
    trial = Trial(id=1, sweep_id=1, number=0, params={}, seed=0, owner="test")
    job = Job(
        trial=trial,
        config={},
        directory=theirs / "0000",
        continues=theirs / "0007" / "model",
        resumes=theirs / "0000" / "checkpoint",
        max_seconds=None,
        max_memory_bytes=None,
    )
    outbox, inbox = Outbox(tmp_path / "sweep" / "0" / TO_WORKER), Inbox(tmp_path / "sweep" / "0" / FROM_WORKER)
    outbox.send(settings(theirs), job)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    slot = wait_for(lambda: made and made[-1].jobs and made[-1])
    assert slot.settings.artifacts == tmp_path and slot.jobs[0].directory == tmp_path / "0000"
    assert slot.jobs[0].continues == tmp_path / "0007" / "model"
    assert slot.jobs[0].resumes == tmp_path / "0000" / "checkpoint"
    heard: list[Any] = []
    kept = (tmp_path / "sweep" / "0").stat()
    if way == "told to end":
        worker._on_signal(signal.SIGTERM, None)
    elif way == "parent died":
        monkeypatch.setattr("os.getppid", lambda: 1)
    elif way == "after its trial":
        worker._on_signal(signal.SIGUSR2, None)

        def leaves() -> bool:
            heard.extend(inbox.receive())
            return Leaving() in heard

        wait_for(leaves)
        log = Artifact(kind="log", path=str(tmp_path / "0000" / "log"))
        outcome = Outcome(end=TrialEnd.COMPLETE, reason="", score=1.0, cost_seconds=1.0)
        slot.ends.append(Finished(trial=trial, outcome=outcome, artifacts=(log,)))
    else:
        shutil.rmtree(tmp_path / "sweep" / ("0" if way == "given up" else ""))
        monkeypatch.setattr(os, "stat", lambda *_, **__: kept)  # its machine may keep attributes for a minute
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()
    if way in ("given up", "sweep gone"):
        return
    heard += inbox.receive()
    finished = next(one for one in heard if isinstance(one, Finished))
    assert isinstance(heard[-1], Left) and heard.index(finished) > heard.index(Leaving())
    if way == "after its trial":
        assert finished.outcome.score == 1.0 and finished.artifacts[0].path == str(theirs / "0000" / "log")
    else:
        assert finished.outcome.end is TrialEnd.INTERRUPTED and finished.outcome.reason.startswith(PREEMPTED)


@pytest.mark.parametrize("way", ["there is room", "told to end", "sweep ends"])
def test_a_worker_whose_disk_is_full_gives_its_trial_back_and_ends_when_there_is_room(
    worker: Any, tmp_path: Path, way: str
) -> None:
    """Another worker takes its place then, and no trial is lost to it meanwhile."""
    trial = Trial(id=1, sweep_id=1, number=0, params={}, seed=0, owner="test")
    job = Job(trial=trial, config={}, directory=tmp_path, max_seconds=None, max_memory_bytes=None)
    outbox, inbox = Outbox(tmp_path / "sweep" / "0" / TO_WORKER), Inbox(tmp_path / "sweep" / "0" / FROM_WORKER)
    outbox.send(settings(tmp_path), job)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    slot = wait_for(lambda: made and made[-1].jobs and made[-1])
    slot.disk = "full"
    outcome = Outcome(end=TrialEnd.INTERRUPTED, reason=f"{PREEMPTED}no room", cost_seconds=1.0)
    slot.ends.extend([Finished(trial=trial, outcome=outcome), Leaving()])
    wait_for(lambda: slot.looks > 3 or not thread.is_alive())
    assert thread.is_alive(), "it would come again at once, to a disk that is full"
    outbox.send(job)
    heard: list[Any] = []

    def gives_back() -> bool:
        heard.extend(inbox.receive())
        return sum(isinstance(one, Finished) for one in heard) == 2

    wait_for(gives_back)
    assert len(slot.jobs) == 1 and Leaving() in heard and not any(isinstance(one, Left) for one in heard)
    if way == "there is room":
        slot.disk = ""
    elif way == "told to end":
        worker._on_signal(signal.SIGTERM, None)
    else:
        outbox.send(Close())
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive() and inbox.receive()[-1] == Left() and worker.exit_code == mailbox.AGAIN


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0:09", 9.0), ("59:59", 3599.0), ("1:00:00", 3600.0), ("2-03:00:01", 183_601.0), ("UNLIMITED", None), ("", None)],
)
def test_the_rest_of_an_allocation_is_read_as_squeue_prints_it(text: str, seconds: float | None) -> None:
    assert mailbox.parse_left(text) == seconds
