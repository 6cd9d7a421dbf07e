"""Sweeps as files: JSON lines, which anything reads, and Parquet, which is smaller and made for data frames.

Both hold all that the store holds, exactly. Floats are written with every digit, times to the microsecond. A file ends
with what it should hold, so a cut file is noticed: JSON lines with a count and a checksum of all that comes before, and
Parquet with its footer and a checksum of each page.

    {"protein": "sweeps", "version": 1, "sweeps": ["pong"]}
    {"sweep": {"name": "pong", ...}, "trials": 200}
    {"trial": {"number": 0, ...}, "curve": {"steps": [...], "score": [...], ...}, "artifacts": [...], ...}
    {"end": {"trials": 200, "points": 20000, "sha256": "..."}}
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from protein import files
from protein.api import sweep_parquet
from protein.errors import UsageError, remedy
from protein.storage.transfer import SWEEP_KINDS, TRIAL_KINDS, Item, StoredSweep, StoredTrial

ENDINGS = (".jsonl", ".parquet")
VERSION = 1  # of both formats
_KIND = "sweeps"
_TIMES = {name for kinds in (SWEEP_KINDS, TRIAL_KINDS) for name, kind in kinds.items() if kind == "time"}
_CURVE = ("steps", "elapsed_seconds", "score", "metrics")
_MAX_HEAD_BYTES = 1_000_000  # of a file's first line


def ending(path: Path) -> str:
    """Returns how a file's name ends. Raises `UsageError` unless it says which format the file has."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"{path}: the name of a file of sweeps ends with {' or '.join(ENDINGS)}; give it such a name")
    return path.suffix.lower()


def write(path: Path, sweeps: Sequence[str], items: Iterable[Item]) -> None:
    """Writes sweeps into a file, which is there whole or not at all: an earlier one stays until the end.

    Args:
        path: of the file; its ending selects the format.
        sweeps: their names, in the order in which they come.
        items: see `protein.storage.transfer`.

    Raises:
        UsageError: the file cannot be written.
    """
    kind = ending(path)
    if path.is_dir():
        raise UsageError(f"{path} is a folder; give the path of a file")
    try:
        with files.replacing(path) as unfinished:
            if kind == ".parquet":
                sweep_parquet.write(unfinished, items, VERSION)
            else:
                with unfinished.open("wb") as file:
                    _write_lines(file, sweeps, items)
    except OSError as error:
        also = remedy(error)
        reason = error.strerror or " ".join(str(error).split())
        raise UsageError(
            f"{path} cannot be written ({reason}); give another path{f' or {also}' if also else ''}"
        ) from error


def read(path: Path) -> Iterator[Item]:
    """Yields the sweeps of a file; at its end it has been checked whole.

    Raises:
        UsageError: it is no such file, from a newer version, damaged or cut.
    """
    kind = ending(path)
    if not path.is_file():
        raise UsageError(f"there is no file {path}; give one that protein export has written")
    try:
        if kind == ".parquet":
            yield from sweep_parquet.read(path, VERSION)
        else:
            with path.open("rb") as file:
                yield from _read_lines(file, path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror or error}); give another") from error


def _write_lines(file: IO[bytes], sweeps: Sequence[str], items: Iterable[Item]) -> None:
    digest, trials, points = hashlib.sha256(), 0, 0

    def put(value: Mapping[str, Any]) -> None:
        line = json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        digest.update(line)
        file.write(line)

    put({"protein": _KIND, "version": VERSION, "sweeps": list(sweeps)})
    for item in items:
        if isinstance(item, StoredSweep):
            put({"sweep": _plain(item.values), "trials": item.num_trials})
            continue
        value: dict[str, Any] = {"trial": _plain(item.values)}
        if item.steps:
            value["curve"] = {name: list(getattr(item, name)) for name in _CURVE}
        if item.artifacts:
            value["artifacts"] = [list(pair) for pair in item.artifacts]
        if item.annotation is not None:
            value["annotation"] = item.annotation
        put(value)
        trials, points = trials + 1, points + len(item.steps)
    put({"end": {"trials": trials, "points": points, "sha256": digest.hexdigest()}})


def _read_lines(file: IO[bytes], path: Path) -> Iterator[Item]:
    digest, trials, points = hashlib.sha256(), 0, 0
    head = _parsed(file.readline(_MAX_HEAD_BYTES), path, 1)
    if head.get("protein") != _KIND:
        raise UsageError(f"{path} is no file of sweeps; protein export writes such files")
    if head.get("version") != VERSION:
        raise UsageError(
            f"{path} has version {head.get('version')!r:.20} of the format, and this version of protein reads {VERSION}"
            "; upgrade with: pip install --upgrade protein-sweep"
        )
    file.seek(0)
    for number, line in enumerate(file, start=1):
        value = head if number == 1 else _parsed(line, path, number)
        if "end" in value:
            found = {"trials": trials, "points": points, "sha256": digest.hexdigest()}
            if value["end"] != found or file.readline():
                raise UsageError(f"{path} is damaged: it does not hold what it held when it was written; export again")
            return
        digest.update(line)
        if number == 1:
            continue
        try:
            if "sweep" in value:
                yield StoredSweep(values=_values(value["sweep"]), num_trials=int(value["trials"]))
                continue
            curve = value.get("curve", dict.fromkeys(_CURVE, ()))
            item = StoredTrial(
                values=_values(value["trial"]),
                **{name: curve[name] for name in _CURVE},
                artifacts=[(kind, place) for kind, place in value.get("artifacts", ())],
                annotation=value.get("annotation"),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"line {number} of {path} is damaged ({_one_line(error)}); export again") from error
        trials, points = trials + 1, points + len(item.steps)
        yield item
    raise UsageError(f"{path} is cut: its last line is missing; export again")


def _parsed(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        if number == 1:
            raise UsageError(f"{path} is no file of sweeps; protein export writes such files") from error
        what = "is cut" if not line.endswith(b"\n") else f"is damaged in line {number}"
        raise UsageError(f"{path} {what}; export again") from error
    if not isinstance(value, dict):
        raise UsageError(f"{path} is no file of sweeps; protein export writes such files")
    return value


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}


def _values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _moment(value) if name in _TIMES else value for name, value in values.items()}


def _moment(value: Any) -> datetime | None:
    if value is None:
        return None
    found = datetime.fromisoformat(value)
    if found.tzinfo is None:
        raise ValueError(f"the time {value!r:.40} has no time zone")
    return found.astimezone(UTC)


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]
