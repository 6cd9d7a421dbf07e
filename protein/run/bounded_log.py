"""A log file that never grows beyond a limit: what is written first is kept, and what is written last."""

import os
from pathlib import Path

MAX_BYTES = 16 << 20
HEAD_BYTES = TAIL_BYTES = 4 << 20
_NOTICE = b"\n[... %d bytes of the log are left out here: it may have %d MiB ...]\n"


class BoundedLog:
    """Appends to a file. One that has reached `max_bytes` is cut down to its head, a line that says so, and its tail.

    Others may append to the file, too.
    """

    def __init__(
        self, path: Path, *, max_bytes: int = MAX_BYTES, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES
    ) -> None:
        """Opens the file, or makes it. A symbolic link is not followed: that is an `OSError`."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        self._max, self._head, self._tail = max_bytes, head_bytes, tail_bytes
        self._left_out = 0
        self._notice_bytes = 0  # of the line that is in the file; 0: there is none

    def write(self, data: bytes) -> None:
        """Raises `OSError` where the file cannot be written, for example on a full disk."""
        if os.fstat(self._file).st_size + len(data) > self._max:
            self._cut()
        data = data[-self._max :]
        while data:
            data = data[os.write(self._file, data) :]

    def close(self) -> None:
        os.close(self._file)

    def _cut(self) -> None:
        size = os.fstat(self._file).st_size
        head = min(self._head, size)
        keep = max(size - self._tail, head + self._notice_bytes)
        self._left_out += keep - head - self._notice_bytes
        if self._left_out == 0:
            return
        notice = _NOTICE % (self._left_out, self._max >> 20)
        tail = os.pread(self._file, size - keep, keep)
        os.ftruncate(self._file, head)
        self._notice_bytes = len(notice)
        rest = notice + tail
        while rest:
            rest = rest[os.write(self._file, rest) :]
