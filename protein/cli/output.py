"""What commands print for scripts, and the files that they write."""

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protein import files
from protein.errors import UsageError, remedy

if TYPE_CHECKING:
    from rich.status import Status


def print_json(value: Any) -> None:
    """Prints one JSON value; its keys are stable."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def working(what: str) -> "Status":
    """Returns a context in which a terminal shows that work goes on; elsewhere it prints nothing."""
    from rich.console import Console  # late: `protein --help` does not need it

    return Console(file=sys.stderr).status(what)


class Counting:
    """Prints on stderr how far a long piece of work is, a line every two seconds; nothing for a short one."""

    SECONDS = 2.0

    def __init__(self, done: str) -> None:
        """`done` says what becomes of trials, as in "written"."""
        self._done = done
        self._printed: float | None = None

    def __call__(self, sweep: str, done: int, of: int) -> None:
        now = time.monotonic()
        self._printed = now if self._printed is None else self._printed
        if now - self._printed >= self.SECONDS:
            self._printed = now
            print(f"{sweep}: {done:,} of {of:,} trials {self._done}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an error while a file is written into one line. Raises `UsageError`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        also = remedy(error)
        raise UsageError(
            f"{path} cannot be written ({reason}); give another path{f' or {also}' if also else ''}"
        ) from error


def require_file(flag: str, path: Path) -> None:
    """Raises `UsageError` when a file cannot be written at `path`. Makes nothing."""
    if path.is_dir():
        raise UsageError(f"{flag} {path} is a folder; give the path of a file")
    with writing(path):
        files.require_replaceable(path)
