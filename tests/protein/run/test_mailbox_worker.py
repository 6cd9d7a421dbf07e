"""A worker without a sweep and without Slurm: the folder of messages is all that it needs."""

import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from protein.ports import Job
from protein.run import mailbox
from protein.run.mailbox import FROM_WORKER, TO_WORKER, Inbox, Outbox
from protein.run.slot import Alive, Close, Facts, Ready, SlotSettings
from protein.run.trainer import TrainerBackend
from protein.types import Trial


class Slot:
    """A slot whose trials take long to start, and then run on."""

    start_seconds = 0.0

    def __init__(self, settings: SlotSettings) -> None:
        pass

    def start(self, job: Job) -> None:
        time.sleep(self.start_seconds)

    def poll(self, timeout_seconds: float) -> list[Any]:
        time.sleep(0.01)
        return []

    def close(self) -> None:
        pass


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs in the folder `tmp_path / "0"`."""
    monkeypatch.setattr(mailbox, "Slot", Slot)
    monkeypatch.setattr(mailbox, "facts", lambda _: Facts(host="n", version="1", shares_artifacts=True))
    monkeypatch.setattr(mailbox, "seconds_left", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # only the main thread may
    folder = tmp_path / "0"
    folder.mkdir()
    return mailbox.Worker(folder)


def settings(tmp_path: Path) -> SlotSettings:
    return SlotSettings(make_backend=TrainerBackend, artifacts=tmp_path, probe="")


def test_a_worker_that_is_told_to_end_before_it_began_ends(
    worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job may have waited long in the queue."""
    outbox = Outbox(tmp_path / "0" / TO_WORKER)
    outbox.send(settings(tmp_path), Close())
    outbox.close()
    measured: list[Any] = []
    monkeypatch.setattr(mailbox, "facts", measured.append)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    thread.join(5.0)
    assert not thread.is_alive() and not measured


def test_a_worker_that_starts_a_trial_for_long_says_that_it_lives(
    worker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "ALIVE_SECONDS", 0.05)
    monkeypatch.setattr(Slot, "start_seconds", 2.0)
    trial = Trial(id=1, sweep_id=1, number=0, params={}, seed=0, owner="test")
    job = Job(trial=trial, config={}, directory=tmp_path, max_seconds=None, max_memory_bytes=None)
    outbox, inbox = Outbox(tmp_path / "0" / TO_WORKER), Inbox(tmp_path / "0" / FROM_WORKER)
    outbox.send(settings(tmp_path), job)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    time.sleep(1.0)
    heard = inbox.receive()
    assert isinstance(heard[0], Ready) and sum(isinstance(one, Alive) for one in heard) >= 5
    outbox.send(Close())
    thread.join(5.0)
    assert not thread.is_alive()
    outbox.close()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0:09", 9.0), ("59:59", 3599.0), ("1:00:00", 3600.0), ("2-03:00:01", 183_601.0), ("UNLIMITED", None), ("", None)],
)
def test_the_rest_of_an_allocation_is_read_as_squeue_prints_it(text: str, seconds: float | None) -> None:
    assert mailbox.parse_left(text) == seconds
