"""What commands print for scripts, and the files that they write."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from protein.errors import UsageError, remedy


def print_json(value: Any) -> None:
    """Prints one JSON value; its keys are stable."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


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
    """Raises `UsageError` when a file cannot be written at `path`; makes its folder."""
    if path.is_dir():
        raise UsageError(f"{flag} {path} is a folder; give the path of a file")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        probe = path.parent / f".{path.name}.probe"
        probe.touch()
        probe.unlink()
