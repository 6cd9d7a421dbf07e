"""Shows folders to each Python process as a machine sees them on NFS, to which others write.

What another process has changed is seen late: a listing, the attributes of a file, that there is one, and that there is
none are kept for $LATE_SECONDS. What this process changes it sees at once. A file that is opened is as it was when
somebody closed it last. No lock and no hard link can be had. Sources: nfs(5), "Data and metadata coherence".

The folders are those in $LATE_FILES, with colons between them. Python imports this by itself in each process whose
PYTHONPATH has the folder of this file.
"""

import builtins
import errno
import fcntl
import io
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

FOLDERS = tuple(f"{one}/" for one in os.environ["LATE_FILES"].split(":"))
SECONDS = float(os.environ["LATE_SECONDS"])
_seen: dict[
    tuple[Any, ...], tuple[float, Any]
] = {}  # by (function, path, options): when it was called, and what it gave or raised


class _Listing:
    """What `os.scandir` gives: an iterator that can be closed."""

    def __init__(self, entries: list[Any]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> "_Listing":
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> "_Listing":
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    close = __exit__


def _place(path: Any, options: Mapping[str, Any]) -> str | None:
    """Returns the place of a path in the folders; None: it is elsewhere."""
    if not isinstance(path, str | os.PathLike) or options.get("dir_fd") is not None:
        return None
    place = os.path.abspath(path)  # noqa: PTH100 (`resolve` follows links, by `lstat`)
    return place if f"{place}/".startswith(FOLDERS) else None


def _late(function: Any) -> Any:
    def look(path: Any = ".", **options: Any) -> Any:
        if (place := _place(path, options)) is None:
            return function(path, **options)
        key = function.__name__, place, *options.items()
        if key not in _seen or time.monotonic() - _seen[key][0] > SECONDS:
            try:
                found = function(path, **options)
                _seen[key] = time.monotonic(), list(found) if function.__name__ == "scandir" else found
            except OSError as error:
                _seen[key] = time.monotonic(), error
        found = _seen[key][1]
        if isinstance(found, OSError):
            raise type(found)(found.errno, found.strerror, found.filename)
        return _Listing(found) if isinstance(found, list) and function.__name__ == "scandir" else found

    return look


def _forget(place: str) -> None:
    for key in list(_seen):
        if key[1] in (place, place.rpartition("/")[0]) or key[1].startswith(f"{place}/"):
            _seen.pop(key, None)


def _changing(function: Any) -> Any:
    def change(*paths: Any, **options: Any) -> Any:
        try:
            return function(*paths, **options)
        finally:
            for path in paths[:2]:
                if (place := _place(path, options)) is not None:
                    _forget(place)

    return change


def _opening(function: Any, writes: Callable[..., Any]) -> Any:
    def opened(path: Any, *words: Any, **options: Any) -> Any:
        if (place := _place(path, options)) is None:
            return function(path, *words, **options)
        if not writes(*words, **options):
            known = [_seen[key] for key in list(_seen) if key[0] in ("stat", "lstat") and key[1] == place]
            for when, found in known:
                if isinstance(found, FileNotFoundError) and time.monotonic() - when <= SECONDS:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        try:
            return function(path, *words, **options)
        finally:
            _forget(place)  # it was asked for anew

    return opened


def _refused(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


for _name in ("stat", "lstat", "scandir", "listdir"):
    setattr(os, _name, _late(getattr(os, _name)))
for _name in ("mkdir", "rmdir", "unlink", "remove", "rename", "replace", "utime", "symlink"):
    setattr(os, _name, _changing(getattr(os, _name)))
os.open = _opening(os.open, lambda flags, *_, **__: flags & os.O_CREAT)
_open = _opening(builtins.open, lambda mode="r", *_, **__: set(mode) & set("wax"))
for _module, _name in ((io, "open"), (builtins, "open")):
    setattr(_module, _name, _open)
for _module, _name in ((os, "link"), (os, "lockf"), (fcntl, "flock"), (fcntl, "lockf")):
    setattr(_module, _name, _refused)
