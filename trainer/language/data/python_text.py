"""The built-in corpus `python`: the source text of the standard library of the Python that runs, by bytes.

It needs no network. A file goes to the training or to the validation part by its content alone, so a copy of a file is
in the same part. Tests are left out, as many installations have none. So are installed packages, tables that were
generated (of character sets, of help topics), and the files that were written when this Python was built, which name
its machine.

The tokens are kept in the user's cache, in a folder named after the version and the files' sizes. They are written
beside it and then renamed, so several runs may start at once. All make the same tokens, and the first to finish wins.
"""

import hashlib
import os
import platform
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from .preparing import Document, Split, write_folder
from .shards import FILE_NAME
from .tokenizer import Bytes

VALIDATION_SHARE = 0.1  # of the files
_VERSION = 1  # of the rules by which files are taken and split
_LEFT_OUT = frozenset(
    {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "encodings", "pydoc_data"}
)
_BUILT = ("_sysconfigdata", "_sysconfig_vars")


def folder() -> Path:
    """Returns the folder of the corpus, and makes it where it is not there yet, within a second.

    Raises:
        DataError: this Python has no source text.
        DiskError: the folder cannot be written.
    """
    root = sysconfig.get_paths()["stdlib"]
    files = sorted(_files(root))
    listing = hashlib.blake2b(digest_size=6)
    for path in files:
        listing.update(f"{path.removeprefix(root)} {os.stat(path).st_size}\n".encode())  # noqa: PTH116
    name = f"python-{platform.python_version()}-{_VERSION}-{listing.hexdigest()}"
    target = cache_folder() / name
    if not (target / FILE_NAME).exists():
        documents = [Document(path=Path(path)) for path in files]
        split = Split(validation_share=VALIDATION_SHARE)
        write_folder(target, documents, Bytes(), split, shared=True, remedy="set XDG_CACHE_HOME to another folder")
    return target


def cache_folder() -> Path:
    """Returns where made corpora are kept; it may not exist."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "protein" / "text"


def _files(root: str) -> Iterator[str]:
    """Yields the paths, as texts: every run lists them, and `Path` would take most of the time."""
    for parent, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        yield from (f"{parent}/{name}" for name in names if name.endswith(".py") and not name.startswith(_BUILT))
