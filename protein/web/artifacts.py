"""A trial's files: which there are, the end of its log, and pictures of its agent at play.

A stored path is not trusted. Only files in the folder of the sweep's artifacts are listed as there, read or sent
(`protein.web.security.inside`). Files are named by the trial and a name of this module's list, never by a path of the
request.
"""

import dataclasses
import json
import mimetypes
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from protein.config.resolve import file_name
from protein.errors import ProteinError, UsageError
from protein.sweep import resuming
from protein.types import TrialRecord
from protein.web.security import inside

MAX_FILES = 200  # of a trial that are listed
LOG_BYTES = 65_536  # of the end of a log that are read
LOG_FILE = "trial.log"  # as every kind of trial calls it
MAX_FOUND = 500  # lines of a log that a search returns
MAX_LINE = 2_000  # characters of a line of the log
PLAY_SECONDS = 120.0  # after which a playback is given up
NO_CHECKPOINT = "it left no checkpoint"
PLAYABLE = (".gif", ".png", ".jpg", ".jpeg", ".webp", ".mp4", ".webm")  # what the page shows itself


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file of a trial's. `path` is None where it is gone, or lies outside the folder of artifacts."""

    name: str  # unique in its trial: what a request gives
    kind: str
    path: Path | None
    size: int | None
    problem: str  # why it cannot be read; "" where it can


def files(root: Path, trial: TrialRecord) -> list[File]:
    """Returns a trial's artifacts, and what else lies in its own folder, each once."""
    found: dict[str, File] = {}
    for artifact in resuming.located(trial, root).artifacts:
        one = _file(root, Path(artifact.path), artifact.kind)
        name = one.name
        for count in range(2, MAX_FILES):  # two artifacts may have the same name in different folders
            if name not in found or found[name].path == one.path:
                break
            name = f"{count}-{one.name}"
        found[name] = dataclasses.replace(one, name=name)
    known = {one.path for one in found.values()}
    for path in _beside(root, trial):
        if path.resolve() not in known and path.name not in found and len(found) < MAX_FILES:
            found[path.name] = _file(root, path, "file")
    return list(found.values())


def find(root: Path, trial: TrialRecord, name: str) -> Path:
    """Returns the path of one of a trial's files. Raises `UsageError` where it cannot be read."""
    for one in files(root, trial):
        if one.name == name:
            if one.path is None:
                raise UsageError(f"{name} of trial {trial.number} cannot be read: {one.problem}")
            return one.path
    raise UsageError(f"trial {trial.number} has no file '{name[:80]}'")


def checkpoint(root: Path, trial: TrialRecord) -> tuple[Path | None, str]:
    """Returns the checkpoint that a trial has left; or why there is none that can be read."""
    kept = [one for one in files(root, trial) if one.kind == "checkpoint"]
    for one in reversed(kept):
        if one.path is not None:
            return one.path, ""
    return None, f"its checkpoint cannot be read: {kept[-1].problem}" if kept else NO_CHECKPOINT


def described(one: File) -> dict[str, Any]:
    """Returns a file as a page lists it: without its path."""
    kind, _ = mimetypes.guess_type(one.name)
    shown = one.path is not None and Path(one.name).suffix.lower() in PLAYABLE
    return {
        "name": one.name,
        "kind": one.kind,
        "size": one.size,
        "problem": one.problem,
        "media": kind if shown else None,
    }


def log(root: Path, trial: TrialRecord) -> Path | None:
    """Returns a trial's log, also while it runs and nothing is stored of its files; None: it has none."""
    kept = files(root, trial)
    for one in kept:
        if one.path is not None and (one.kind == "log" or one.name == LOG_FILE):
            return one.path
    return None


def tail(path: Path) -> dict[str, Any]:
    """Returns the last lines of a log, at most `LOG_BYTES`. Raises `UsageError` where it cannot be read."""
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            stream.seek(max(0, size - LOG_BYTES))
            content = stream.read(LOG_BYTES)
    except OSError as error:
        raise _unreadable(error) from error
    lines = content.decode("utf-8", "replace").splitlines()
    if size > LOG_BYTES:
        lines = lines[1:]  # the first is only the end of one
    return {"size": size, "cut": size > LOG_BYTES, "lines": [line[:MAX_LINE] for line in lines]}


def search(path: Path, wanted: str) -> dict[str, Any]:
    """Returns the lines of a whole log that hold a text in any case, the last `MAX_FOUND`, with their numbers from 1.

    Raises `UsageError` where it cannot be read.
    """
    wanted, found, count = wanted.casefold(), deque[tuple[int, str]](maxlen=MAX_FOUND), 0
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            number, begins = 0, True
            while line := stream.readline(LOG_BYTES):  # a line without an end is read in parts, not whole
                number += begins
                begins = line.endswith("\n")
                if wanted in line.casefold() and not (found and found[-1][0] == number):
                    count += 1
                    found.append((number, line.rstrip("\r\n")[:MAX_LINE]))
    except OSError as error:
        raise _unreadable(error) from error
    return {"count": count, "found": list(found)}


def _unreadable(error: OSError) -> UsageError:
    return UsageError(f"the log cannot be read: {error.strerror or error}")


def beginning(path: Path) -> str:
    """Returns the first `LOG_BYTES` of a text; nothing where it cannot be read."""
    try:
        with path.open("rb") as stream:
            return stream.read(LOG_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def play(checkpoint: Path, env: str, seed: int, stopping: threading.Event) -> bytes:
    """Returns a GIF of one episode that a checkpoint plays, by `protein eval` in a process of its own.

    It ends when `stopping` is set.

    Raises:
        UsageError: it cannot play; says why.
    """
    with tempfile.TemporaryDirectory(prefix="protein-view-") as folder:
        path, errors = Path(folder) / f"{file_name(env)}.gif", Path(folder) / "stderr"
        words = ["--checkpoint", str(checkpoint), "--gif", str(path), "--seed", str(seed), "--json"]
        _evaluate(words, Path(folder), stopping, f"an episode takes longer than {PLAY_SECONDS:.0f} s")
        if not path.exists():
            raise UsageError(f"the agent cannot be shown at play: {_last_line(errors) or 'no picture was drawn'}")
        return path.read_bytes()


def write(checkpoint: Path, prompt: str, seed: int, stopping: threading.Event) -> str:
    """Returns a text that begins with `prompt`, as a language model goes on, by `protein eval` in a process of its own.

    It ends when `stopping` is set.

    Raises:
        UsageError: it cannot write; says why.
    """
    with tempfile.TemporaryDirectory(prefix="protein-view-") as folder:
        words = ["--checkpoint", str(checkpoint), f"--prompt={prompt}", "--seed", str(seed), "--json"]
        written = _evaluate(words, Path(folder), stopping, f"writing takes longer than {PLAY_SECONDS:.0f} s")
        try:
            return str(json.loads(written)["text"])
        except (ValueError, KeyError, RecursionError) as error:
            raise UsageError(f"the model cannot write: {_last_line(Path(folder) / 'stderr')}") from error


def _evaluate(words: Sequence[str], folder: Path, stopping: threading.Event, too_long: str) -> str:
    """Runs `protein eval`; returns what it printed, and leaves its errors in the file `stderr` of the folder.

    Raises:
        UsageError: it was stopped, or `too_long`.
    """
    with (folder / "stderr").open("wb") as stderr, (folder / "stdout").open("wb") as stdout:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "protein", "eval", *words],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # a running sweep keeps the other cores
        )
        until = time.monotonic() + PLAY_SECONDS
        while process.poll() is None:
            if stopping.wait(0.05) or time.monotonic() > until:
                process.kill()
                process.wait()
                raise UsageError(f"{too_long}, so it was ended")
    return (folder / "stdout").read_text(errors="replace")


def _last_line(errors: Path) -> str:
    lines = errors.read_text(errors="replace").splitlines()
    return next((line.strip().removeprefix("error: ") for line in reversed(lines) if line.strip()), "")


def _file(root: Path, path: Path, kind: str) -> File:
    # A store that was copied with its folder has the old paths; the same file then lies in the new folder.
    for candidate in (path, root / path.parent.name / path.name):
        try:
            real = inside(root, candidate)
            return File(name=path.name, kind=kind, path=real, size=real.stat().st_size, problem="")
        except (ProteinError, OSError):
            continue
    problem = "it lies outside the folder of the sweep's artifacts" if _exists(path) else "it is no longer there"
    return File(name=path.name or kind, kind=kind, path=None, size=None, problem=problem)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # ValueError: a NUL character
        return False


def _beside(root: Path, trial: TrialRecord) -> list[Path]:
    """Returns the files in a trial's own folder, by name."""
    folder = root / f"{trial.number:04d}"
    try:
        return sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))[:MAX_FILES]
    except OSError:
        return []
