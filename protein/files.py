"""Writes files so that each appears whole or not at all: where the disk is full, the old file stays as it was.

A new file is written beside the old one, flushed to the disk, and takes its place in one step. Two processes that write
the same file do not mix: the last one wins. Errors are plain `OSError`s, which the callers put into words.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

_MAX_NAME = 40  # characters of a file's name in that of its unfinished copy, which must not become too long
_STREAMS = ("/dev/std", "/dev/fd/", "/proc/")  # what lies there may lead to a file that is open, as `/dev/stdout` does


@contextlib.contextmanager
def replacing(path: Path, *, follow_link: bool = True) -> Iterator[Path]:
    """Yields the path of an empty file to write. At the end that file takes the place of `path`.

    What is no regular file, such as `/dev/stdout`, cannot be replaced and is written itself. Owner and permissions of
    an old file stay. Missing folders are made. Without `follow_link`, a symbolic link is replaced, and not what it
    leads to.

    Raises:
        OSError: the file cannot be written. The old one is unchanged, and nothing else is left.
    """
    if _is_special(path):
        yield path
        return
    target = Path(os.path.realpath(path)) if follow_link else path
    old = _writable(target)
    with making_folder(target.parent):
        unfinished = _create_beside(target)
        try:
            yield unfinished
            if old is not None:
                with contextlib.suppress(OSError):  # only an administrator may give files away
                    os.chown(unfinished, old.st_uid, old.st_gid)
                unfinished.chmod(stat.S_IMODE(old.st_mode))
            _flush(unfinished)
            os.replace(unfinished, target)  # noqa: PTH105
        except BaseException:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise
    with contextlib.suppress(OSError):  # the file is there by now; some file systems cannot flush a folder
        _flush(target.parent)


def replace_file(path: Path, content: bytes, *, follow_link: bool = True) -> None:
    """Writes a file as `replacing` does. Raises `OSError` as it does."""
    with replacing(path, follow_link=follow_link) as unfinished:
        unfinished.write_bytes(content)


def require_replaceable(path: Path) -> None:
    """Finds out whether a file could be written, and leaves nothing behind. Raises `OSError` where it could not."""
    if _is_special(path):
        return
    target = Path(os.path.realpath(path))
    _writable(target)
    _create_beside(nearest(target.parent) / target.name).unlink()


@contextlib.contextmanager
def making_folder(folder: Path) -> Iterator[None]:
    """Makes a folder; where the work in it fails, does as `no_new_folder`. Raises `OSError` where it cannot be made."""
    with no_new_folder(folder):
        folder.mkdir(parents=True, exist_ok=True)
        yield


@contextlib.contextmanager
def no_new_folder(folder: Path) -> Iterator[None]:
    """Where the work fails, removes a folder and those above it, as far as they were made meanwhile and are empty."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            for place in missing:
                place.rmdir()
        raise


def nearest(path: Path) -> Path:
    """Returns a file or folder itself where it is there, else the folder that is nearest above it."""
    path = path.absolute()
    return next(place for place in (path, *path.parents) if place.exists())


def regular(path: Path) -> Path:
    """Returns a path that is to be read. Raises `OSError` for a pipe, or what else may never come to an end."""
    if path.exists() and not path.is_file():
        raise OSError("it is no regular file")
    return path


def prepare_folder(directory: Path) -> None:
    """Makes a folder of ours, where there is none yet.

    Raises:
        OSError: it cannot be made, or it is a symbolic link. Folders above it may be.
    """
    refuse_link(directory)
    directory.mkdir(parents=True, exist_ok=True)


def refuse_link(directory: Path) -> None:
    """Raises `OSError` where a folder is a symbolic link, which may lead anywhere."""
    if directory.is_symlink():
        raise OSError(errno.ELOOP, f"it is a symbolic link to {directory.readlink()}, which nothing is written through")


def write_file(path: Path, text: str) -> None:
    """Writes a file anew. A symbolic link of this name is replaced, and not what it leads to."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)


def _is_special(path: Path) -> bool:
    """Whether a path leads to a device, a pipe or the like. Raises `IsADirectoryError` where it is a folder."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return path.exists() and (not path.is_file() or str(path).startswith(_STREAMS))


def _writable(target: Path) -> os.stat_result | None:
    """Returns what the system says of an old file; None: there is none.

    Raises:
        PermissionError: it may not be written. It could be replaced all the same, which nobody wants who protected it.
    """
    if target.is_symlink() or not target.exists():
        return None
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    return target.stat()


def _create_beside(target: Path) -> Path:
    path = target.with_name(f".{target.name[:_MAX_NAME]}.{secrets.token_hex(6)}")
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))  # 0o666, of which the umask takes its part
    return path


def _flush(path: Path) -> None:
    """Waits until a file or a folder is on the disk. A disk that is full may say so only now."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
