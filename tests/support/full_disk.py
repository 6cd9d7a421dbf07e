"""For tests of a disk that is full."""

import collections
import contextlib
import resource
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

_Usage = collections.namedtuple("_Usage", "total used free")


def leave_free(monkeypatch: pytest.MonkeyPatch, num_bytes: int) -> None:
    """Makes every disk say that it has so much space left."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Usage(1 << 40, (1 << 40) - num_bytes, num_bytes))


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Lets no file of this process grow past a size, in bytes: the system's answer is that of a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def full_disk(store: Path, size: int = 0) -> Iterator[None]:
    """Does as `largest_file`, but a store can be read: what SQLite writes to read it is there already."""
    with contextlib.closing(sqlite3.connect(store)) as reader:
        reader.execute("SELECT name FROM sweeps").fetchall()
        with largest_file(size):
            yield
