"""The folder of a trial. Nothing is written through a symbolic link there: it may lead anywhere."""

import contextlib
import errno
import os
from pathlib import Path


def prepare(directory: Path) -> None:
    """Makes the folder of a trial, where there is none yet.

    Raises:
        OSError: it cannot be made, or it is a symbolic link. The sweep's own folder above it may be one.
    """
    refuse_link(directory)
    directory.mkdir(parents=True, exist_ok=True)


def refuse_link(directory: Path) -> None:
    """Raises `OSError` where the folder of a trial is a symbolic link."""
    if directory.is_symlink():
        raise OSError(errno.ELOOP, f"it is a symbolic link to {directory.readlink()}, which nothing is written through")


def write_file(path: Path, text: str) -> None:
    """Writes a file anew. A symbolic link of this name is replaced, and not what it leads to."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
