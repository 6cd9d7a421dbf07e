"""Messages between processes on different machines, through files that only grow in a folder that all of them share.

That works on every shared file system, and needs no open port. Each file has one writer. A message is its length and
its pickle; a reader takes only whole ones. The folder is the user's own, and nobody else may write there.
"""

import os
import pickle
import struct
from pathlib import Path
from typing import Any

_LENGTH = struct.Struct("<q")
MAX_READ_BYTES = 16 << 20  # of one look


class Outbox:
    """The writing end of a file of messages."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("ab", buffering=0)

    def send(self, *messages: Any) -> None:
        """Appends messages, in one write. Raises `OSError` where the file cannot be written."""
        data = b""
        for message in messages:
            content = pickle.dumps(message)
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
        """
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read(MAX_READ_BYTES)
        except OSError:
            return []
        messages, at = [], 0
        while at + _LENGTH.size <= len(data):
            length = _LENGTH.unpack_from(data, at)[0]
            end = at + _LENGTH.size + length
            if end > len(data):
                break
            messages.append(pickle.loads(data[at + _LENGTH.size : end]))
            at = end
        self._at += at
        return messages
