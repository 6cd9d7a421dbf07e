"""The folder of a sweep's files: which of them are its trials', and how they are deleted and drawn safely.

A path in a store is not trusted. Only what lies in the sweep's own folder is deleted or written, and symbolic links are
never followed: a link stays where it is, and so does what it leads to.
"""

import dataclasses
import os
import re
import shutil
import stat
from collections.abc import Collection
from pathlib import Path

from protein.api import stores
from protein.errors import UsageError

PICTURES = ("pareto.png", "calibration.png")  # that commands draw there
_TRIAL = re.compile(r"[0-9]{4,}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SweepFolder:
    """A sweep's folder, by the path that the store gives and with links above it resolved."""

    path: Path
    real: Path | None  # None: it is missing, or behind a symbolic link (`stores.linked`)

    @classmethod
    def of(cls, store_url: str, sweep: str, artifacts: Path | None = None) -> "SweepFolder":
        path = stores.artifact_directory(store_url, sweep, artifacts)
        usable = path.is_dir() and stores.linked(store_url, sweep, artifacts) is None
        return cls(path=path, real=path.resolve() if usable else None)

    def trial(self, number: int) -> Path:
        """Returns the folder of a trial, which may be missing."""
        return self.path / f"{number:04d}"

    def inner(self, path: Path) -> Path | None:
        """Returns where something of the folder really is; None where it is not in it, missing or behind a link."""
        if self.real is None:
            return None
        for root in (self.path, self.real):
            try:
                parts = Path(os.path.normpath(path)).relative_to(root).parts
            except ValueError:
                continue
            found = self.real
            try:
                for part in parts:
                    found = found / part
                    if stat.S_ISLNK(found.lstat().st_mode):
                        return None
            except (OSError, ValueError):  # it is missing; or a name that no file can have
                return None
            return found if parts else None
        return None

    def moved(self, path: str, other: Path) -> str | None:
        """Returns the path of a file after the folder is moved to `other`; None where the file is not in it."""
        for root, target in ((self.path, other), (self.real, other.parent.resolve() / other.name)):
            if root is None:
                continue
            try:
                return str(target / Path(path).relative_to(root))
            except ValueError:
                continue
        return None

    def strangers(self, numbers: Collection[int]) -> list[str]:
        """Returns the names of what lies in the folder and belongs to none of the sweep's trials."""
        if self.real is None:
            return []
        known = {f"{number:04d}" for number in numbers} | set(PICTURES)
        return sorted(entry.name for entry in self.real.iterdir() if entry.name not in known)

    def has_other_folders(self) -> bool:
        """Whether it holds folders that are no trials', such as those of another store of its name."""
        if self.real is None:
            return False
        return any(entry.is_dir() and not _TRIAL.fullmatch(entry.name) for entry in self.real.iterdir())


def picture(store_url: str, sweep: str, name: str) -> Path:
    """Returns where a command draws a picture of a sweep, one of `PICTURES`.

    Raises:
        UsageError: it would be written through a symbolic link.
    """
    assert name in PICTURES
    stores.require_unlinked(store_url, sweep)
    path = stores.artifact_directory(store_url, sweep) / name
    if path.is_symlink():
        raise UsageError(f"{path} is a symbolic link, through which nothing is written; delete it")
    return path


def size(path: Path) -> int:
    """Returns the bytes of a file or of all files of a folder; links count as nothing."""
    try:
        found = path.lstat()
        if stat.S_ISREG(found.st_mode):
            return found.st_size
        if not stat.S_ISDIR(found.st_mode):
            return 0
        with os.scandir(path) as entries:
            return sum(size(Path(entry.path)) for entry in entries)
    except OSError:  # gone in the meantime, or not ours to read
        return 0


def holds_files(path: Path) -> bool:
    """Whether this is a file, or a folder with something in it that is no folder."""
    return not path.is_dir() or any(names for _, _, names in os.walk(path))


def delete(path: Path) -> None:
    """Deletes a file, or a folder with all that is in it; a link in it is deleted and not followed.

    Raises:
        OSError: something of it cannot be deleted.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path)
