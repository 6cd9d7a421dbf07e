"""Messages between processes on different machines, through files that only grow in a folder that all of them share.

That works on every shared file system, and needs no open port. Each file has one writer. A message is its length and
its JSON (`protein.run.mail`); a reader takes only whole ones. Others may be able to write in a folder that
is shared: what they write there is data, and no code.
"""

import os
import struct
from pathlib import Path
from typing import Any

from protein.errors import UsageError
from protein.run.mail import MessageError, decode, encode

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


def _open_to_read(path: str, flags: int) -> int:
    """Opens a file; a pipe of its name is not waited for, and a symbolic link is not followed."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)
