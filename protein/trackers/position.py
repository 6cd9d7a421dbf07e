"""What has been written of a sweep to one tracker, in a small file that survives every crash.

The file is written whole and then renamed, so it is never half a file. It says before a batch which trials are being
written, and after it what has been written. A process that dies in between leaves the first of the two: these trials
are unsure, and are written again as the tracker's contract says.

A lock on a file beside it keeps a second process from writing the same. The system takes the lock back when the process
ends, in whatever way.
"""

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from protein import files
from protein.errors import UsageError
from protein.names import folder_name
from protein.types import SweepRecord

_VERSION = 1


class Position:
    """What has been written. Change it, then `save`.

    Attributes:
        cursor: of the store: what had changed up to it is written, or is in `waiting`. None: nothing is known yet.
        waiting: numbers of trials that have to be written.
        unsure: numbers of trials of which a write was cut short.
        points: points written of trials that were running then, by number.
        done: numbers of trials that were written after they had finished.
    """

    def __init__(self, path: Path, sweep: SweepRecord, destination: str) -> None:
        self._path = path
        self._identity = {
            "version": _VERSION,
            "sweep": sweep.spec.name,
            "sweep_id": sweep.id,
            "created_at": sweep.created_at.isoformat(),
            "destination": destination,
        }
        self.clear()
        self._load()

    def clear(self) -> None:
        """Forgets everything: all is to be written again."""
        self.cursor: str | None = None
        self.waiting: set[int] = set()
        self.unsure: set[int] = set()
        self.points: dict[int, int] = {}
        self.done: set[int] = set()

    def save(self) -> None:
        """Writes the file. Raises `OSError` where it cannot, and the old file stays."""
        state = {
            **self._identity,
            "cursor": self.cursor,
            "waiting": _ranges(self.waiting),
            "unsure": _ranges(self.unsure),
            "points": {str(number): count for number, count in sorted(self.points.items())},
            "done": _ranges(self.done),
        }
        files.replace_file(self._path, json.dumps(state).encode(), follow_link=False)

    def _load(self) -> None:
        """Takes over the file where it is of this sweep and destination. A damaged one counts as none."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            state: Mapping[str, Any] = json.loads(self._path.read_text())
            if any(state[name] != value for name, value in self._identity.items()):
                return
            loaded = (
                set(_numbers(state["waiting"])),
                set(_numbers(state["unsure"])),
                {int(number): int(count) for number, count in state["points"].items()},
                set(_numbers(state["done"])),
            )
            self.waiting, self.unsure, self.points, self.done = loaded
            self.cursor = None if state["cursor"] is None else str(state["cursor"])


def file_name(sweep: str, tracker: str, destination: str) -> str:
    """Returns the name of the position's file: one for each sweep, tracker and destination."""
    return f"{folder_name(sweep)}.{tracker}.{hashlib.sha256(destination.encode()).hexdigest()[:8]}.json"


@contextlib.contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Holds the lock of a position's file.

    Args:
        path: of the position's file; its folder is made.
        what: is being done, to begin an error with.

    Raises:
        UsageError: another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_suffix(".lock"), "a+", opener=_open_itself) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise UsageError(f"{what}: {holder} is doing that already; wait for it, or end it") from None
        with contextlib.suppress(OSError):  # a full disk; the lock holds all the same
            file.truncate(0)
            file.write(f"process {os.getpid()}")
            file.flush()
        yield


def _open_itself(path: str, flags: int) -> int:
    """Opens a file, and not what a symbolic link of its name leads to."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Returns numbers as [first, last] pairs: most of a sweep's trials lie side by side."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def _numbers(ranges: Iterable[Iterable[int]]) -> Iterator[int]:
    for first, last in ranges:
        yield from range(int(first), int(last) + 1)
