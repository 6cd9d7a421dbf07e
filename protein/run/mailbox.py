"""Messages between processes on different machines, through files that only grow in a folder that all of them share.

That works on every shared file system, and needs no open port. Each file has one writer, a sweep or one of its workers.
Each side shows the other that it lives, as a dead one writes no last word. A message is its length and its JSON
(`protein.run.mail`); a reader takes only whole ones. Others may be able to write in a folder that is shared: what they
write there is data, and no code.
"""

import contextlib
import itertools
import os
import struct
import threading
import time
from pathlib import Path
from typing import Any

from protein.errors import UsageError
from protein.run.mail import MessageError, decode, encode

TO_WORKER, FROM_WORKER = "to-worker", "from-worker"  # files in a worker's folder
ALIVE = "alive"  # a file in the sweep's folder, in which those of its workers are
ALIVE_SECONDS = 5.0  # how often either side shows that it lives
DEAD_SECONDS = 120.0  # after which a silent side is taken for dead
_LENGTH = struct.Struct("<q")
MAX_READ_BYTES = 16 << 20  # of one look
MAX_MESSAGE_BYTES = MAX_READ_BYTES - _LENGTH.size  # a longer one could never be read whole


class Outbox:
    """The writing end of a file of messages."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("ab", buffering=0)

    def send(self, *messages: Any) -> None:
        """Appends messages, in one write.

        Raises:
            OSError: the file cannot be written.
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
        self._file.write(data)
        os.fsync(self._file.fileno())  # so that other machines see it

    def close(self) -> None:
        self._file.close()


class Inbox:
    """The reading end of a file of messages, which may not be there yet."""

    def __init__(self, file: Path) -> None:
        self._path = file
        self._at = 0  # bytes that were read

    def receive(self) -> list[Any]:
        """Returns the new messages. The file is opened each time: network file systems then ask for its new end.

        A file that cannot be read now has none, as where such a file system fails for a while.

        Raises:
            MessageError: what comes next is no message. So it is at each further call: nothing behind it is read.
        """
        try:
            with open(self._path, "rb", opener=_open_to_read) as file:
                file.seek(self._at)
                data = file.read(MAX_READ_BYTES)
        except OSError:
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
        self._seconds, self._looked_at = 0.0, time.monotonic()

    def look(self, *, heard: bool) -> None:
        """Takes note of another look, and whether there was a sign of life."""
        now = time.monotonic()
        self._seconds = 0.0 if heard else self._seconds + min(now - self._looked_at, ALIVE_SECONDS)
        self._looked_at = now

    @property
    def is_death(self) -> bool:
        """Whether it has lasted for `DEAD_SECONDS`."""
        return self._seconds > DEAD_SECONDS


def show_life(folder: Path) -> threading.Event:
    """Shows workers that the sweep of this folder lives, until the event that is returned is set."""
    closed = threading.Event()
    (folder / ALIVE).write_text("0")

    def run() -> None:
        for count in itertools.count(1):
            if closed.wait(ALIVE_SECONDS):
                return
            with contextlib.suppress(OSError):
                (folder / ALIVE).write_text(str(count))

    threading.Thread(target=run, name="signs of life for workers", daemon=True).start()
    return closed


def _open_to_read(path: str, flags: int) -> int:
    """Opens a file; a pipe of its name is not waited for, and a symbolic link is not followed."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)
