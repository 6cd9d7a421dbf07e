"""What was measured of this machine, kept for the next run, so that no time is spent on it twice.

It is one small JSON file in the user's cache folder (`path()`). A measurement is found by facts: whatever it depends
on, such as the device's name, the driver, the version of torch and the sizes. With other facts it is another one.
Nothing depends on the file: where it is missing, damaged or cannot be written, the next run measures again. Two
processes that write at once do not mix, and the one that comes first may lose what it has added.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protein import files

MOST = 1000  # measurements; of more, the oldest are dropped


def path() -> Path:
    """Returns where the file is. Raises `RuntimeError` where this user has no home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "protein" / "measured.json"


def recall(facts: Mapping[str, Any]) -> Any:
    """Returns what was kept for these facts, plain JSON; None: nothing was. It may be anything, so check it."""
    return _read().get(_key(facts))


def keep(facts: Mapping[str, Any], value: Any) -> None:
    """Keeps a value, plain JSON, for these facts, which are plain JSON, too."""
    known = {**_read(), _key(facts): value}
    text = json.dumps(dict(list(known.items())[-MOST:]), indent=0)
    with contextlib.suppress(OSError, RuntimeError):
        files.replace_file(path(), text.encode())


def _read() -> dict[str, Any]:
    with contextlib.suppress(OSError, RuntimeError, ValueError, RecursionError):
        found = json.loads(path().read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
    return {}


def _key(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(dict(facts), sort_keys=True).encode()).hexdigest()[:24]
