"""Messages between processes on different machines, through files that only grow in a folder that all of them share.

That works on every shared file system, and needs no open port. Each file has one writer, a sweep or one of its workers.
Each side shows the other that it lives, as a dead one writes no last word. A message is its length and its JSON; a
reader takes only whole ones.

Others may be able to write in a folder that is shared. JSON holds data alone: to read it runs no code, whoever has
written it. A message is `{"type": NAME, "value": ...}`. The types are a closed list, and each value must fit the
annotation of its field: what does not is no message. A field that is missing has its default, and one that is not known
is left out, so that another version can still be told from damage. A value of `Any` is plain JSON, and so is a message
of type null.

A worker is a process on a node: `python -m protein.run.mailbox FOLDER [ENDS_AT]`. It is told in its folder what to
run.
"""

import contextlib
import dataclasses
import enum
import functools
import itertools
import json
import math
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from protein.errors import ProteinError, UsageError, in_words
from protein.ports import Finished, Job, TrialProgress
from protein.run.command import CommandBackend
from protein.run.function import ImportedFunction
from protein.run.served import AwayError, GoneError, ServedFiles
from protein.run.slot import (
    Alive,
    Close,
    Leaving,
    Left,
    Note,
    Ready,
    Slot,
    SlotSettings,
    Stop,
    facts,
    moved_end,
    moved_job,
)
from protein.run.trainer import TrainerBackend
from protein.types import PREEMPTED, Direction, Outcome, Trial, TrialEnd

TO_WORKER, FROM_WORKER = "to-worker", "from-worker"  # files in a worker's folder
ALIVE = "alive"  # a file in the sweep's folder, in which those of its workers are
ALIVE_SECONDS = 5.0  # how often either side shows that it lives
DEAD_SECONDS = 120.0  # after which a silent side is taken for dead
POLL_SECONDS = 0.1  # between a worker's looks at its trial and its messages
SETTINGS_SECONDS = 60.0  # within which the first message must be there
MAX_BUSY_SECONDS = 1800.0  # with one trial's start, after which it counts as hung
AGAIN = 75  # exit code of a worker whose disk was full: another one may take its place (EX_TEMPFAIL)
READY = "ready"  # what a worker prints when it can take trials
_LENGTH = struct.Struct("<q")
FIRST_READ_BYTES = 64 << 10  # of a look: mostly all that there is
MAX_READ_BYTES = 16 << 20  # of one look
MAX_MESSAGE_BYTES = MAX_READ_BYTES - _LENGTH.size  # a longer one could never be read whole
_TYPES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (SlotSettings, Job, Stop, Close, Ready, Alive, Leaving, Left, Note, TrialProgress, Finished)
}
_BACKENDS = {
    kind.__name__: kind for kind in (TrainerBackend, CommandBackend, ImportedFunction)
}  # that a worker is told to make
_Reader = Callable[[Any], Any]
_LARGEST = 2**63  # a whole number beyond it fits no store


class MessageError(ProteinError):
    """What was read is no message; says why."""


class Outbox:
    """The writing end of a file of messages.

    The file is opened for each message: what was written is seen by other machines once it is closed, on network file
    systems, too. Where it cannot be written, as on a full disk, its messages wait for the next attempt.
    """

    def __init__(self, file: Path) -> None:
        file.touch()
        self._path = file
        self._at = file.stat().st_size  # where the next message begins
        self._unsent = b""

    def send(self, *messages: Any) -> None:
        """Adds messages, and writes all that were not written before.

        Raises:
            OSError: the file cannot be written now. The messages are kept.
            UsageError: a message is too long.
        """
        data = b""
        for message in messages:
            content = encode(message)
            if len(content) > MAX_MESSAGE_BYTES:
                what = f"a message ({type(message).__name__}) has {len(content):,} bytes"
                raise UsageError(
                    f"{what}, and the limit is {MAX_MESSAGE_BYTES:,}; make the config or the curve smaller"
                )
            data += _LENGTH.pack(len(content)) + content
        self._unsent += data
        self.flush()

    def flush(self) -> None:
        """Writes what could not be written before. Raises `OSError` where it still cannot be."""
        if not self._unsent:
            return
        # A part of it may have been written: it has one writer, so the same bytes are put at the same place again.
        file = os.open(self._path, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            written = 0
            while written < len(self._unsent):
                written += os.pwrite(file, self._unsent[written:], self._at + written)
        finally:
            os.close(file)
        self._at, self._unsent = self._at + len(self._unsent), b""


class Inbox:
    """The reading end of a file of messages, which may not be there yet.

    Attributes:
        is_gone: whether the file was not there at the last look. To open it asks the file system; what `stat` says of a
            file may be a minute old where attributes are cached.
    """

    def __init__(self, file: Path) -> None:
        self._path, self.is_gone = file, False
        self._at = 0  # bytes that were read

    def receive(self) -> list[Any]:
        """Returns the new messages. The file is opened each time: network file systems then ask for its new end.

        A file that cannot be read now has none, as where such a file system fails for a while.

        Raises:
            MessageError: what comes next is no message. So it is at each further call: nothing behind it is read.
        """
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)  # no pipe or link of its name
            try:
                data = os.pread(file, FIRST_READ_BYTES, self._at)
                if len(data) == FIRST_READ_BYTES:
                    data += os.pread(file, MAX_READ_BYTES - len(data), self._at + len(data))
            finally:
                os.close(file)
            self.is_gone = False
        except OSError as error:
            self.is_gone = isinstance(error, FileNotFoundError)
            return []
        messages: list[Any] = []
        at = 0
        while at + _LENGTH.size <= len(data):
            length = _LENGTH.unpack_from(data, at)[0]
            if not 0 <= length <= MAX_MESSAGE_BYTES:
                said = f"it says that it has {length:,} bytes, and the limit is {MAX_MESSAGE_BYTES:,}"
                return self._before_damage(messages, at, f"a message cannot be read ({said})")
            end = at + _LENGTH.size + length
            if end > len(data):
                break
            try:
                messages.append(decode(data[at + _LENGTH.size : end]))
            except MessageError as error:
                return self._before_damage(messages, at, str(error))
            at = end
        self._at += at
        return messages

    def _before_damage(self, messages: list[Any], at: int, what: str) -> list[Any]:
        """Returns the messages before the damage. Raises `MessageError` where there are none."""
        if not messages:
            raise MessageError(what)
        self._at += at
        return messages


class Silence:
    """How long the other side has been silent, in time in which this side could hear it.

    A shared file system may hang for minutes, and a process may be stopped. Then this side is deaf, and the other one
    may be well: between two looks at most `ALIVE_SECONDS` count.
    """

    def __init__(self) -> None:
        self.seconds, self.looked_at = 0.0, time.monotonic()

    def look(self, *, heard: bool) -> None:
        """Takes note of another look, and whether there was a sign of life."""
        now = time.monotonic()
        self.seconds = 0.0 if heard else self.seconds + min(now - self.looked_at, ALIVE_SECONDS)
        self.looked_at = now

    @property
    def is_death(self) -> bool:
        """Whether it has lasted for `DEAD_SECONDS`."""
        return self.seconds > DEAD_SECONDS


def show_life(new: Path, folder: Path) -> threading.Event:
    """Moves a new folder of messages to its place, and shows there that its sweep lives.

    Returns:
        The event that ends that.
    """
    closed = threading.Event()
    (new / ALIVE).write_text("0")
    new.rename(folder)

    def run() -> None:
        for count in itertools.count(1):
            if closed.wait(ALIVE_SECONDS):
                return
            with contextlib.suppress(OSError):
                (folder / ALIVE).write_text(str(count))

    threading.Thread(target=run, name="signs of life for workers", daemon=True).start()
    return closed


class Worker:
    """A slot that talks to its sweep through files. It runs trial after trial.

    It ends when it is told to; when its allocation ends, which is announced by a signal (of Slurm, SIGUSR1 some time
    before, SIGTERM for a preemption) or by the death of the process that started it: the trial then writes its
    checkpoint and is given back; and when the sweep has been silent for `DEAD_SECONDS`, or its folder of messages is
    gone: nobody would take the result. After SIGUSR2 it ends with its trial. When its own disk is full, it takes no
    more trials, and ends once there is room: then another one may take its place.

    The folder of messages is in that of the sweep's artifacts. This machine may see that under another path.
    """

    exit_code = 0  # of its process, once it has run

    def __init__(self, folder: Path, ends_at: float = math.inf, served: ServedFiles | None = None) -> None:
        """Opens the messages.

        Args:
            folder: of its messages.
            ends_at: when it will be told to end, on the wall clock of this machine.
            served: where trials' files are copied to, if the sweep names no other place; None: nowhere.
        """
        self._served = served
        self._folder, self._ends_at, self._parent = folder, ends_at, os.getppid()
        self._inbox, self._outbox = Inbox(folder / TO_WORKER), Outbox(folder / FROM_WORKER)
        self._alive = folder.parent / ALIVE
        self._heard, self._silence = "", Silence()
        self._early: list[object] = []  # what came with the first message
        self._turn, self._done = threading.Lock(), threading.Event()
        self._looked = time.monotonic()  # when the loop last went round
        self._trial: Trial | None = None
        self._signal = ""  # the one that has announced the end
        self._leaving = self._last_trial = self._told_trial = False
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Runs trials until it ends. `on_ready` is called before the first one."""
        settings = self._settings()
        if settings is None or any(isinstance(message, Close) for message in self._early):
            return  # before it is measured how fast the node is
        self._theirs, self._ours = settings.artifacts, self._folder.parents[1]
        settings = dataclasses.replace(settings, artifacts=self._ours)
        threading.Thread(target=self._say_alive, daemon=True).start()
        why = ""
        try:
            with contextlib.closing(Slot(settings, self._served)) as slot:
                self._serve(slot, settings, on_ready)
        except Exception as error:  # the sweep shows it, where somebody looks
            why = in_words(error)
            raise
        finally:
            self._done.set()
            self._send(Left(why=why))

    def _serve(self, slot: Slot, settings: SlotSettings, on_ready: Callable[[], None]) -> None:
        left = min(one for one in (seconds_left(), self._ends_at - time.time()) if one is not None)
        self._send(Ready(facts=facts(settings, self._served), seconds_left=None if left == math.inf else left))
        on_ready()
        while self._sweep_lives():
            if self._leaving and self._trial is None and (self._signal or not slot.is_full):
                return
            self._looked = time.monotonic()
            if self._is_told_to_end(slot):
                return
            self._leave_if_told(slot)
            self._report(slot)

    def _send(self, *messages: object) -> None:
        with self._turn, contextlib.suppress(OSError):  # such as a full disk: they wait for the next attempt
            self._outbox.send(*messages)

    def _say_alive(self) -> None:
        """Says that the worker lives, also while it starts a trial, for which it may copy large checkpoints."""
        while not self._done.wait(ALIVE_SECONDS):
            if time.monotonic() - self._looked < MAX_BUSY_SECONDS:
                self._send(Alive())

    def _on_signal(self, number: int, _: object) -> None:
        if number == signal.SIGUSR2:
            self._last_trial = True
        else:
            self._signal = f"it was sent {signal.Signals(number).name}"

    def _settings(self) -> SlotSettings | None:
        """Returns what the sweep says first; None: it is gone."""
        until = time.monotonic() + SETTINGS_SECONDS
        while time.monotonic() < until and not self._signal:
            if messages := self._inbox.receive():
                settings, *self._early = messages
                if not isinstance(settings, SlotSettings):
                    raise ProteinError("the first message of the sweep is none to begin with; submit the job again")
                return settings
            if self._inbox.is_gone:
                return None
            time.sleep(POLL_SECONDS)
        if self._signal:
            raise ProteinError(f"the worker ends before it has begun: {self._signal}")
        raise ProteinError(f"no message of the sweep within {SETTINGS_SECONDS:.0f} s: is the folder shared?")

    def _is_told_to_end(self, slot: Slot) -> bool:
        """Does what the sweep has asked for. Returns whether that is to end."""
        early, self._early = self._early, []
        for message in [*early, *self._inbox.receive()]:
            if isinstance(message, Job):
                self._start(slot, message)
            elif isinstance(message, Stop):
                slot.stop(message.trial, message.end, message.reason)
            elif isinstance(message, Close):
                return True
        return False

    def _start(self, slot: Slot, job: Job) -> None:
        reason = "its worker is about to end"
        job = moved_job(job, {self._theirs: self._ours})
        if not self._leaving:
            try:
                slot.start(job)
            except OSError as error:  # nor the next ones, which would all spend their attempts here
                reason = f"its worker cannot start it: {error}"
                self._leaving = True
                self.exit_code = AGAIN if slot.is_full else 0
                self._send(Leaving())
            else:
                self._trial = job.trial
                return
        outcome = Outcome(end=TrialEnd.INTERRUPTED, reason=f"{PREEMPTED}{reason}", cost_seconds=job.spent_seconds)
        self._send(Finished(trial=job.trial, outcome=outcome))

    def _leave_if_told(self, slot: Slot) -> None:
        if os.getppid() != self._parent:
            self._signal = self._signal or "what has started it is gone"
        if (self._signal or self._last_trial) and not self._leaving:
            self._leaving = True
            self._send(Leaving())
        if self._signal and self._trial is not None and not self._told_trial:
            self._told_trial = True
            why = f"{PREEMPTED}its worker ends ({self._signal})"
            slot.stop(self._trial, TrialEnd.INTERRUPTED, why)

    def _report(self, slot: Slot) -> None:
        if news := slot.poll(POLL_SECONDS):
            back = {self._ours: self._theirs}
            self._send(*(moved_end(one, back) if isinstance(one, Finished) else one for one in news))
        if any(isinstance(one, Finished) for one in news):
            self._trial = None
        if any(isinstance(one, Leaving) for one in news):
            self._leaving, self.exit_code = True, AGAIN

    def _sweep_lives(self) -> bool:
        """Whether somebody would take a result: the sweep lives, and has not given this worker up.

        A shared file system may not answer for a moment.
        """
        if time.monotonic() - self._silence.looked_at > ALIVE_SECONDS / 5:
            heard = self._heard
            with contextlib.suppress(OSError):
                heard = self._alive.read_text()
            self._silence.look(heard=heard != self._heard)
            self._heard = heard
        return not self._silence.is_death and not self._inbox.is_gone


def seconds_left() -> float | None:
    """Returns how long this process's allocation lasts; None: without limit, or it is not known."""
    if (end := os.environ.get("SLURM_JOB_END_TIME")) is not None:
        return max(float(end) - time.time(), 0.0)
    command = ["squeue", "-h", "-j", os.environ.get("SLURM_JOB_ID", ""), "-o", "%L"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_left(answer)


def parse_left(text: str) -> float | None:
    """Returns the seconds of a time as squeue prints it, [DAYS-][HOURS:]MINUTES:SECONDS; None: it is none."""
    days, _, rest = text.rpartition("-")
    try:
        parts = [int(part) for part in rest.split(":")]
        seconds = float(int(days) * 86_400) if days else 0.0
    except ValueError:  # such as UNLIMITED
        return None
    for part, unit in zip(reversed(parts), (1, 60, 3600), strict=False):
        seconds += part * unit
    return seconds


def encode(message: object) -> bytes:
    """Returns a message as JSON. Raises `TypeError` for what no message can hold."""
    name = type(message).__name__
    kind = name if _TYPES.get(name) is type(message) else None
    return json.dumps({"type": kind, "value": message}, default=_plain).encode()


def decode(content: bytes) -> Any:
    """Returns a message from its JSON.

    Raises:
        MessageError: it is none.
    """
    try:
        found = json.loads(content)
        name = found["type"]
        return found["value"] if name is None else _reader(_TYPES[name])(found["value"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise MessageError(f"a message cannot be read ({reason[:200]})") from error


def _plain(value: Any) -> Any:
    """Returns what stands for a value that JSON does not know; what is in it comes next."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: getattr(value, name) for name in _readers(type(value))}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if callable(value):
        call = value if isinstance(value, functools.partial) else functools.partial(value)
        if call.func in _BACKENDS.values():
            return {"name": call.func.__name__, "args": call.args, "settings": call.keywords}
        raise TypeError(f"a message cannot hold {value!r}; a worker makes one of {', '.join(_BACKENDS)}")
    raise TypeError(f"a message cannot hold a {type(value).__name__}")


@functools.cache
def _readers(kind: Any) -> Mapping[str, _Reader]:
    """Returns what reads each field of a class."""
    hints = typing.get_type_hints(kind)
    return {field.name: _reader(hints[field.name]) for field in dataclasses.fields(kind)}


@functools.cache
def _reader(hint: Any) -> _Reader:
    """Returns what makes a value of JSON one of an annotation. It raises `ValueError` or `TypeError` if it is none.

    An annotation is looked at once: a sweep may read some thousand messages a second.
    """
    if hint is Any:
        return lambda value: value
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return functools.partial(_first, [_reader(one) for one in typing.get_args(hint)])
    fits, make = _rule(hint)

    def read(value: Any) -> Any:
        if fits(value):
            return make(value)
        raise TypeError(f"{str(value)[:80]!r} is no {getattr(hint, '__name__', hint)}")

    return read


def _rule(hint: Any) -> tuple[Callable[[Any], bool], _Reader]:
    """Returns which values of JSON fit an annotation, and what makes them one of it."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        of = _readers(hint)
        return _is_dict, lambda value: hint(**{name: read(value[name]) for name, read in of.items() if name in value})
    if origin is Mapping:
        item = _reader(inner[1])
        return _is_dict, _same if inner[1] is Any else lambda value: {key: item(one) for key, one in value.items()}
    if origin is Callable:
        return _is_dict, _read_backend
    if origin is tuple and inner[1:] == (...,):
        item = _reader(inner[0])
        return _is_list, lambda value: tuple(map(item, value))
    if origin is tuple:
        items = [_reader(one) for one in inner]
        return _is_list, lambda value: tuple(read(one) for read, one in zip(items, value, strict=True))
    if hint is float:
        return lambda value: type(value) in (int, float) and math.isfinite(value), _same
    if hint is int:
        return lambda value: type(value) is int and -_LARGEST <= value < _LARGEST, _same
    if hint in (bool, str, types.NoneType):
        return lambda value: type(value) is hint, _same
    if hint is datetime:
        return _is_text, datetime.fromisoformat
    if hint is Path or (isinstance(hint, type) and issubclass(hint, enum.Enum)):
        return _is_text, hint
    return lambda value: False, _same


def _first(readers: Sequence[_Reader], value: Any) -> Any:
    for read in readers:
        try:
            return read(value)
        except (TypeError, ValueError) as error:
            problem = error
    raise problem


def _same(value: Any) -> Any:
    return value


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _read_backend(value: dict[str, Any]) -> Any:
    args: tuple[Any, ...] = (*map(str, value["args"][:-1]), *map(Direction, value["args"][-1:]))
    preload = {"preload": tuple(value["settings"]["preload"])} if "preload" in value["settings"] else {}
    return functools.partial(_BACKENDS[value["name"]], *args, **{**value["settings"], **preload})


def work(folder: Path, ends_at: float = math.inf, served: ServedFiles | None = None) -> None:
    """Does all that a worker's process does. Arguments: as of `Worker`.

    Exits where the sweep's words are none, or where its server stays away.
    """
    try:
        worker = Worker(folder, ends_at, served)
    except FileNotFoundError:  # the sweep has ended since
        return
    try:
        worker.run(_say_ready)
        if worker.exit_code:
            sys.exit(worker.exit_code)
    except GoneError:
        return
    except (ProteinError, AwayError) as error:
        sys.exit(f"error: {error}")


def _say_ready() -> None:
    """Tells the process that started this one. It does not read what is printed later, so that goes elsewhere."""
    print(READY, flush=True)
    os.dup2(2, 1)


if __name__ == "__main__":
    work(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else math.inf)
