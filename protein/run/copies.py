"""Copies the files of trials to and from a URL, where the machines of a sweep share no folder.

Any file system that fsspec knows will do: `s3://bucket/runs`, `gs://...`, `sftp://...`. Under the URL there is one
folder a trial, as in the folder of artifacts. A trial's files are copied while it runs, some seconds after they were
written, so that another machine can go on from them when this one dies.
"""

import contextlib
import threading
from pathlib import Path
from typing import Any

from protein.errors import UsageError
from protein.urls import without_password

COPY_SECONDS = 5.0  # how often a running trial's folder is looked through
_PART = ".part"  # ends the name of a file that is being written
_WHOLE = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oci"})  # a file there is seen when it is whole

_Signature = tuple[int, int]  # of a file: when it was written, in ns, and its size in bytes


class Copies:
    """The folders of a sweep's trials under a URL."""

    def __init__(self, url: str) -> None:
        """Connects.

        Raises:
            UsageError: fsspec is not installed, does not know the kind of URL, or lacks a package for it.
        """
        shown = without_password(url)
        try:
            import fsspec
        except ImportError as error:
            raise UsageError(f"artifacts at {shown} need fsspec, which is not installed: pip install fsspec") from error
        try:
            self._files: Any
            self._files, path = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UsageError(f"artifacts cannot be kept at {shown}: {error}") from error
        self._root = path.rstrip("/")
        protocol = self._files.protocol
        self._whole = not _WHOLE.isdisjoint({protocol} if isinstance(protocol, str) else protocol)

    def has(self, name: str) -> bool:
        """Whether there is a file or a folder of this name."""
        self._files.invalidate_cache()
        return bool(self._files.exists(f"{self._root}/{name}"))

    def put(self, file: Path, name: str) -> None:
        """Copies a file there. A reader sees the file that was there before, or the whole new one."""
        target = f"{self._root}/{name}"
        self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
        if self._whole:
            self._files.put_file(str(file), target)
        else:
            self._files.put_file(str(file), target + _PART)
            self._files.mv(target + _PART, target)

    def fetch(self, name: str, directory: Path) -> None:
        """Copies the folder of this name here, if there is one. Other files that are here stay."""
        self._files.invalidate_cache()
        folder = f"{self._root}/{name}"
        if not self._files.exists(folder):
            return
        for path, facts in self._files.find(folder, detail=True).items():
            inner = path[path.index(f"{folder}/") + len(folder) + 1 :]
            target = directory / inner
            if inner.endswith(_PART) or ".." in Path(inner).parts or not _is_plain(directory, target.parent):
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(target.name + _PART)
            part.unlink(missing_ok=True)  # a link would be followed
            self._files.get_file(path, str(part))
            if facts.get("size") in (None, part.stat().st_size):
                part.replace(target)
            else:
                part.unlink()

    def remove(self, name: str) -> None:
        """Removes the folder of this name, if there is one."""
        self._files.invalidate_cache()
        with contextlib.suppress(FileNotFoundError):
            self._files.rm(f"{self._root}/{name}", recursive=True)


class Copier:
    """Copies one trial's folder to its place under the URL, in a thread, until `finish`.

    Attributes:
        directory: the folder here.
        name: of the folder under the URL.
    """

    def __init__(self, copies: Copies, directory: Path, name: str, *, every_seconds: float = COPY_SECONDS) -> None:
        self.directory, self.name = directory, name
        self._copies, self._every_seconds = copies, every_seconds
        self._seen: dict[Path, _Signature] = {}
        self._copied: dict[Path, _Signature] = _signatures(directory)  # they were fetched from there
        self._problem = ""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="copies of a trial's files", daemon=True)
        self._thread.start()

    def finish(self) -> str:
        """Copies what has changed and ends the thread. Returns why files could not be copied; "": they were."""
        self._end.set()
        self._thread.join()
        self._copy(_signatures(self.directory))
        return self._problem

    def _run(self) -> None:
        while not self._end.wait(self._every_seconds):
            now = _signatures(self.directory)
            # A file that changes between two looks is being written.
            self._copy({path: one for path, one in now.items() if self._seen.get(path) == one})
            self._seen = now

    def _copy(self, files: dict[Path, _Signature]) -> None:
        self._problem = ""
        for path, signature in files.items():
            if self._copied.get(path) == signature:
                continue
            try:
                self._copies.put(path, f"{self.name}/{path.relative_to(self.directory)}")
            except FileNotFoundError:  # it was removed in the meantime
                continue
            except Exception as error:  # of whichever package stands behind the URL; the trial goes on
                self._problem = f"{path.name} could not be copied: {' '.join(str(error).split())[:300]}"
            else:
                self._copied[path] = signature


def mirror(copies: Copies, name: str, directory: Path) -> str:
    """Fetches a folder as `Copies.fetch`. Returns why that failed, in words; "": it is done."""
    try:
        copies.fetch(name, directory)
    except Exception as error:  # of whichever package stands behind the URL
        return f"the files of trial {name} could not be fetched: {' '.join(str(error).split())[:300]}"
    return ""


def _is_plain(directory: Path, folder: Path) -> bool:
    """Whether a folder is in a directory, and no symbolic link leads to it from there."""
    if not folder.is_relative_to(directory):
        return False
    return not any(place.is_symlink() for place in (folder, *folder.parents) if place.is_relative_to(directory))


def _signatures(directory: Path) -> dict[Path, _Signature]:
    found = {}
    for path in sorted(directory.rglob("*")):
        with contextlib.suppress(OSError):
            if path.is_file() and not path.is_symlink():
                facts = path.stat()
                found[path] = (facts.st_mtime_ns, facts.st_size)
    return found
