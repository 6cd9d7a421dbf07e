"""For tools that write a run as a folder: it is written aside and moved into place, so it is whole or not there."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STAGING = "_unfinished"


@contextmanager
def staged(root: Path) -> Iterator[Path]:
    """Gives an empty folder to write into, on the same disk as `root`; what is left in it at the end is deleted."""
    folder = root / STAGING
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def put(made: Path, target: Path) -> None:
    """Moves a folder into place, over one that is there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    made.rename(target)
