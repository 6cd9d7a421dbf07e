"""Messages in files: each comes out as it went in, and what somebody else has written is data, or no message."""

import contextlib
import dataclasses
import errno
import functools
import json
import os
import pickle
import struct
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protein.errors import UsageError
from protein.ports import Finished, Job, TrialProgress
from protein.run import mailbox
from protein.run.command import CommandBackend
from protein.run.mailbox import MAX_MESSAGE_BYTES, Inbox, MessageError, Outbox, decode, encode
from protein.run.slot import Alive, Calibrating, Close, Facts, Leaving, Left, Note, Ready, SlotSettings, Stop
from protein.run.trainer import TrainerBackend
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
    resumes=Path("/runs/s/0003/checkpoint"),
    spent_seconds=1.5,
    steps_behind=8,
    continued_seconds=0.5,
    curve_behind=((4, 0.25), (8, 1.0)),
    score_behind=0.5,
    others_reported=True,
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
    Left(why="x"),
]


def test_the_job_above_says_something_in_every_field() -> None:
    """What is read by an annotation that no other field has is read here, too."""
    for field in dataclasses.fields(JOB):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        assert getattr(JOB, field.name) != default, field.name


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_out_as_it_went_in(message: Any) -> None:
    found = decode(encode(message))
    assert found == message and repr(found) == repr(message)  # 1, 1.0 and True are equal


@pytest.mark.parametrize(
    "make",
    [
        TrainerBackend,
        functools.partial(TrainerBackend, preload=(), silence_seconds=5.0),
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
    with pytest.raises(TypeError, match="a worker makes one of TrainerBackend, CommandBackend"):
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
    assert (tmp_path / "box").stat().st_size == 0


def test_a_pipe_is_not_waited_for_and_a_link_not_followed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    assert Inbox(tmp_path / "pipe").receive() == [] and Inbox(tmp_path / "link").receive() == []


def test_a_reader_takes_only_whole_messages(tmp_path: Path) -> None:
    file = tmp_path / "box"
    inbox, outbox = Inbox(file), Outbox(file)
    assert inbox.receive() == []
    outbox.send({"a": 1}, "two")
    assert inbox.receive() == [{"a": 1}, "two"]
    outbox.send("x" * 1000)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert inbox.receive() == []
    file.write_bytes(whole)
    assert inbox.receive() == ["x" * 1000]


def test_a_file_of_messages_that_cannot_be_read_now_has_none(tmp_path: Path) -> None:
    """Network file systems fail for moments, with errors of their own."""
    (tmp_path / "box").mkdir()
    inbox = Inbox(tmp_path / "box")
    assert inbox.receive() == []
    (tmp_path / "box").rmdir()
    outbox = Outbox(tmp_path / "box")
    outbox.send("here")
    assert inbox.receive() == ["here"]


@given(
    texts=st.lists(st.text(max_size=40), max_size=8),
    writes=st.lists(st.integers(min_value=-1, max_value=30), max_size=40),
)
def test_what_a_full_disk_takes_in_part_or_not_comes_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], writes: list[int]
) -> None:
    """A write takes the given number of bytes, or fails (-1). The reader only ever sees whole messages."""
    file = tmp_path_factory.mktemp("box") / "box"
    inbox, outbox, seen, left = Inbox(file), Outbox(file), list[Any](), list(writes)
    whole = os.pwrite

    def pwrite(to: int, data: bytes, at: int) -> int:
        size = left.pop(0) if left else len(data)
        if size < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(to, data[:size], at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite)
        for text in texts:
            with contextlib.suppress(OSError):
                outbox.send(text)
            seen += inbox.receive()
        while left:
            with contextlib.suppress(OSError):
                outbox.flush()
            left = left[1:]
            seen += inbox.receive()
        outbox.flush()
    assert [*seen, *inbox.receive()] == texts


def test_time_in_which_this_side_could_not_hear_the_other_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shared file system hangs for ten minutes: no worker and no sweep has died of that."""
    now = [0.0]
    monkeypatch.setattr(mailbox, "time", SimpleNamespace(monotonic=lambda: now[0]))
    silence = mailbox.Silence()
    now[0] += 600.0
    silence.look(heard=False)
    assert not silence.is_death
    for _ in range(int(mailbox.DEAD_SECONDS) - 5):
        now[0] += 1.0
        silence.look(heard=False)
    assert not silence.is_death
    for _ in range(2):
        now[0] += 1.0
        silence.look(heard=False)
    assert silence.is_death
    silence.look(heard=True)
    assert not silence.is_death
