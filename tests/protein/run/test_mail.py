"""Messages of the mailbox: each comes out as it went in, and what somebody else has written is data, or no message."""

import dataclasses
import functools
import json
import os
import pickle
import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protein.errors import UsageError
from protein.ports import Finished, Job, TrialProgress
from protein.run import slurm
from protein.run.command import CommandBackend
from protein.run.fleet import Fleet
from protein.run.mail import MessageError, decode, encode
from protein.run.mailbox import FROM_WORKER, MAX_MESSAGE_BYTES, Inbox, Outbox
from protein.run.slot import Alive, Calibrating, Close, Facts, Leaving, Note, Ready, SlotSettings, Stop, version
from protein.run.trainer import LocalBackend
from protein.types import Artifact, Direction, Machine, Measurement, Outcome, Resources, Trial, TrialEnd

TRIAL = Trial(id=7, sweep_id=1, number=3, params={"a": 1, "b": 1.0, "c": True, "d": "x"}, seed=5, owner="host:1:2")
MACHINE = Machine(
    name="m", facts={"cores": 2, "gpus": []}, calibration_seconds=1.5, measured_at=datetime(2026, 1, 2, tzinfo=UTC)
)
OUTCOME = Outcome(
    end=TrialEnd.CAPPED, reason="x", score=None, cost_seconds=2.0, steps=4, timings={"startup": 0.5}, metrics={"m": 1.0}
)
JOB = Job(
    trial=TRIAL,
    config={"train": {"seed": 1, "list": [1, 2.5, None]}},
    directory=Path("/runs/s/0003"),
    max_seconds=None,
    max_memory_bytes=1 << 40,
    continues=Path("/runs/s/0001"),
    at_limit=TrialEnd.OUT_OF_BUDGET,
    resources=Resources(cores=(1, 2), gpus=("0",)),
    speed=None,
)
MESSAGES = [
    Close(),
    Alive(),
    Leaving(),
    Note(text="ü\n"),
    Stop(trial=TRIAL, end=TrialEnd.INTERRUPTED, reason="why"),
    Ready(facts=Facts(host="n", version="1", shares_artifacts=True, machine=MACHINE, niceness=3), seconds_left=None),
    JOB,
    TrialProgress(
        trial=TRIAL, measurements=(Measurement(steps=1, elapsed_seconds=0.5, score=1.0, metrics={"loss": 2.0}),)
    ),
    Finished(trial=TRIAL, outcome=OUTCOME, artifacts=(Artifact(kind="log", path="/runs/s/0003/log.txt"),)),
    {"plain": [1, "two", None]},
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_out_as_it_went_in(message: Any) -> None:
    found = decode(encode(message))
    assert found == message and repr(found) == repr(message)  # 1, 1.0 and True are equal


@pytest.mark.parametrize(
    "make",
    [
        LocalBackend,
        functools.partial(LocalBackend, preload=(), silence_seconds=5.0),
        functools.partial(CommandBackend, Direction.MINIMIZE, silence_seconds=None),
    ],
)
def test_a_worker_is_told_which_backend_it_makes(make: Any) -> None:
    slot = SlotSettings(
        make_backend=make,
        artifacts=Path("/runs/s"),
        probe="p",
        search_path=("/a", "/b"),
        calibrating=Calibrating(threads=1, device="cpu", known=(MACHINE,)),
    )
    found = decode(encode(slot))
    backends = [one() for one in (found.make_backend, make)]
    assert type(backends[0]) is type(backends[1])
    assert str(vars(backends[0]).get("_direction")) == str(vars(backends[1]).get("_direction"))
    assert (found.artifacts, found.search_path, found.calibrating) == (
        slot.artifacts,
        slot.search_path,
        slot.calibrating,
    )
    for backend in backends:
        backend.close()


def test_no_other_backend_can_be_told() -> None:
    slot = SlotSettings(make_backend=os.getcwd, artifacts=Path(), probe="")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a worker makes one of LocalBackend, CommandBackend"):
        encode(slot)


class Bomb:
    """What a pickle would call when it is read."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("exploded",)


HOSTILE = [
    pickle.dumps(Bomb()),
    b"",
    b"{}",
    b"null",
    b"\xff\xfe",
    b'{"type": "Bomb", "value": {}}',
    b'{"type": "os.system", "value": "id"}',
    b'{"type": ["Note"], "value": {}}',
    b'{"type": "Note", "value": {}}',
    b'{"type": "Note", "value": {"text": 5}}',
    b'{"type": "Note", "value": []}',
    b'{"type": "Ready", "value": {"facts": null, "seconds_left": null}}',
    b"[" * 100_000,
    b'{"type": "Note", "value": {"text": "' + b"9" * 9 + b'"}',
    json.dumps({"type": "TrialProgress", "value": {"trial": {}, "measurements": []}}).encode(),
    encode(MESSAGES[8]).replace(b'"steps": 4', b'"steps": ' + b"9" * 30),
    encode(MESSAGES[8]).replace(b'"cost_seconds": 2.0', b'"cost_seconds": 1e999'),
    encode(MESSAGES[8]).replace(b'"cost_seconds": 2.0', b'"cost_seconds": NaN'),
    encode(MESSAGES[8]).replace(b'"error": null', b'"error": "end the sweep"'),
    encode(MESSAGES[8]).replace(b'"capped"', b'"no end"'),
    encode(MESSAGES[7]).replace(b'"elapsed_seconds": 0.5', b'"elapsed_seconds": -1.0'),
]


@pytest.mark.parametrize("content", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_no_message_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MessageError, match="a message cannot be read") as caught:
        decode(content)
    assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)
    assert not (tmp_path / "exploded").exists()


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.sampled_from(["SlotSettings", "Job", "Stop", "Ready", "Note", "TrialProgress", "Finished", "Close"]),
)
def test_any_value_is_a_message_or_none(value: Any, kind: str) -> None:
    try:
        assert type(decode(json.dumps({"type": kind, "value": value}).encode())).__name__ == kind
    except MessageError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("length", [-1, MAX_MESSAGE_BYTES + 1, 2**62])
def test_a_length_that_cannot_be_ends_the_reading(tmp_path: Path, length: int) -> None:
    """A reader would else wait for ever for the rest."""
    box = tmp_path / "box"
    outbox = Outbox(box)
    outbox.send(Note(text="before"))
    outbox.close()
    with box.open("ab") as file:
        file.write(struct.pack("<q", length) + b"x")
    inbox = Inbox(box)
    assert inbox.receive() == [Note(text="before")]
    for _ in range(2):
        with pytest.raises(MessageError, match="the limit is 16,777,208"):
            inbox.receive()


def test_a_message_that_nobody_could_read_is_not_sent(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "box")
    with pytest.raises(UsageError, match=r"a message \(Note\) has 16,[0-9,]+ bytes, and the limit is 16,777,208"):
        outbox.send(Note(text="x" * MAX_MESSAGE_BYTES))
    outbox.close()
    assert (tmp_path / "box").stat().st_size == 0


def test_a_pipe_is_not_waited_for_and_a_link_not_followed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    assert Inbox(tmp_path / "pipe").receive() == [] and Inbox(tmp_path / "link").receive() == []


def with_slurm(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Makes a Slurm that takes every job and starts none. Returns the list of commands that it is given."""
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(slurm, "attempt", lambda *words: commands.append(words))
    monkeypatch.setattr(slurm, "submit", lambda *_: "100")
    return commands


def append(worker: Any, *contents: bytes) -> None:
    """Writes what comes from a worker."""
    with (worker.folder / FROM_WORKER).open("ab") as file:
        for content in contents:
            file.write(struct.pack("<q", len(content)) + content)


def ready(version: str = version()) -> bytes:
    return encode(Ready(facts=Facts(host="node", version=version, shares_artifacts=True), seconds_left=None))


def test_a_worker_that_sends_what_is_no_message_is_ended_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, notes = with_slurm(monkeypatch), list[str]()
    transport = slurm.SlurmTransport("s", workers=2, cores=1)
    slot = SlotSettings(make_backend=LocalBackend, artifacts=tmp_path, probe="")
    backend = Fleet(transport, slot, note=notes.append)
    good, bad = transport._workers
    append(bad, ready())
    backend.num_slots()
    backend.start(dataclasses.replace(JOB, directory=tmp_path / "0003"))
    append(good, ready(), encode(Note(text="well")))
    append(bad, pickle.dumps(Bomb()))
    monkeypatch.setattr(transport, "start_slots", lambda num_jobs: None)
    [event] = backend.poll(0.0)
    assert isinstance(event, Finished) and event.outcome.end is TrialEnd.INTERRUPTED
    assert "a message cannot be read" in event.outcome.reason
    assert ("scancel", bad.number) in commands and transport._workers == [good]
    assert "well" in notes
    assert sum("a message cannot be read" in note for note in notes) == 1
    backend.close()


def test_a_report_is_of_the_trial_that_the_worker_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_slurm(monkeypatch)
    transport = slurm.SlurmTransport("s", workers=1, cores=1)
    backend = Fleet(transport, SlotSettings(make_backend=LocalBackend, artifacts=tmp_path, probe=""))
    [worker] = transport._workers
    append(worker, ready())
    backend.num_slots()
    backend.start(dataclasses.replace(JOB, directory=tmp_path / "0003"))
    other = Trial(id=7, sweep_id=9, number=0, params={}, seed=0, owner="somebody")
    append(worker, encode(Finished(trial=other, outcome=OUTCOME)))
    [event] = backend.poll(0.0)
    assert event.trial == TRIAL
    backend.close()


def test_a_worker_with_another_version_of_protein_ends_the_sweep_unless_others_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands, notes = with_slurm(monkeypatch), list[str]()
    transport = slurm.SlurmTransport("s", workers=2, cores=1)
    slot = SlotSettings(make_backend=LocalBackend, artifacts=tmp_path, probe="")
    backend = Fleet(transport, slot, note=notes.append)
    first, second = transport._workers
    append(first, ready())
    append(second, ready("0.0.9"))
    assert backend.num_slots() == 1
    assert ("scancel", second.number) in commands and second not in transport._workers
    assert any(f"node node has protein 0.0.9, and this machine {version()}" in note for note in notes)
    transport._end(first, "ended")
    backend.num_slots()
    transport._submit_after = 0.0
    backend.num_slots()
    append(transport._workers[0], ready("0.0.9"))
    with pytest.raises(UsageError, match=r"node node has protein 0.0.9, and this machine .*: install the same version"):
        backend.num_slots()
    backend.close()
