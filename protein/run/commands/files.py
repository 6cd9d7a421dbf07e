"""Reads scores from a file that a command writes, while it grows: a CSV file, or event files of TensorBoard.

The file is found below the trial's folder. Nothing here raises for what is in it. What an earlier run has left there
is not the trial's: it is left out where the trial begins anew.
"""

import contextlib
import csv
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from protein.run import messages
from protein.run.commands.events import scalars
from protein.run.commands.reports import Said, number_of, shown

MAX_BYTES = 256 << 20  # of a file; a larger one is no table of scores
MAX_COMMENTS = 5  # rows before the header
_EVENTS = "events.out.tfevents."


class FileReader(Protocol):
    """Follows what a command writes."""

    def read(self, *, complete: bool = False) -> list[Said]:
        """Returns what is new since the last call; `complete`: the command has written all, its last line too."""
        ...

    def missing(self) -> str:
        """Says what was looked for and not found, for a trial without a score."""
        ...


class _Left(NamedTuple):
    """A file that an earlier run has left: its size and time, the checksum of its bytes, and how many rows it has."""

    size: int
    time: int
    checksum: int
    rows: int


class CsvReader:
    """Follows the rows of a CSV file with a header. A file that is written anew with more columns is followed, too."""

    def __init__(self, file: str, column: str, steps: str, directory: Path, *, begins: bool) -> None:
        """Reads none of the trial's rows yet.

        Args:
            file: relative to `directory`, or absolute. A pattern such as `**/progress.csv` takes the newest match.
            column: that of the score.
            steps: that of the steps; "": rows are counted.
            directory: the trial's folder.
            begins: whether the trial begins anew, so that what is there now is not its own.
        """
        self._file, self._column, self._steps, self._directory = file, column, steps, directory
        self._path: Path | None = None
        self._seen: tuple[int, int, bool] | None = None  # size and time of the last read, and whether it was complete
        self._rows = 0
        self._header: list[str] = []
        # A run that goes on may write on in its earlier file, or into one of its own.
        earlier = () if begins else matches(directory, file)
        self._earlier = {path: when for path in earlier if (when := _size_and_time(path)) is not None}
        found = matches(directory, file) if begins else []
        self._before = {path: left for path in found if (left := self._left(path)) is not None}

    def read(self, *, complete: bool = False) -> list[Said]:
        self._path = self._path or self._own()
        if self._path is None:
            return []
        if self._is_left() and (new := self._new_one()) is not None:
            self._path, self._rows, self._seen = new, 0, None
        try:
            status = self._path.stat()
            seen = status.st_size, status.st_mtime_ns, complete
            if seen == self._seen or status.st_size > MAX_BYTES:
                return []
            text = self._path.read_text(errors="replace")
        except OSError:
            return []
        self._seen = seen
        header, rows = self._table(text if complete else text[: text.rfind("\n") + 1])
        self._header = header or self._header
        fresh, self._rows = rows[self._rows :], max(len(rows), self._rows)
        return [said for row in fresh if (said := self._said(row)) is not None]

    def _own(self) -> Path | None:
        """Returns the newest match that the trial has written; its rows are counted from where the trial's begin."""
        for path in matches(self._directory, self._file):
            with contextlib.suppress(OSError):
                before, status = self._before.get(path), path.stat()
                if before is not None:
                    if (status.st_size, status.st_mtime_ns) == (before.size, before.time):
                        continue
                    with path.open("rb") as file:
                        same = status.st_size > before.size and zlib.crc32(file.read(before.size)) == before.checksum
                    self._rows = before.rows if same else 0  # a file that grew was appended to, another one is new
                return path
        return None

    def _is_left(self) -> bool:
        """Whether the file is one of an earlier run, in which this one has written nothing so far."""
        earlier = None if self._path is None else self._earlier.get(self._path)
        return self._path is not None and earlier is not None and _size_and_time(self._path) in (earlier, None)

    def _new_one(self) -> Path | None:
        """Returns the newest match that was not there when the run began to go on."""
        return next((path for path in matches(self._directory, self._file) if path not in self._earlier), None)

    def _left(self, path: Path) -> "_Left | None":
        with contextlib.suppress(OSError):
            status = path.stat()
            data = path.read_bytes() if status.st_size <= MAX_BYTES else b""
            rows = self._table(data.decode(errors="replace"))[1]
            return _Left(status.st_size, status.st_mtime_ns, zlib.crc32(data), len(rows))
        return None

    def _table(self, text: str) -> tuple[list[str], list[list[str]]]:
        """Returns the header and the rows below it; none where there is no row at all."""
        rows = []
        with contextlib.suppress(csv.Error):
            rows = [row for row in csv.reader(text.splitlines()) if row]
        headers = [[name.strip().lstrip("\ufeff#").strip() for name in row] for row in rows[:MAX_COMMENTS]]
        if not rows:
            return [], []
        first = next((place for place, header in enumerate(headers) if self._column in header), 0)  # after comments
        return headers[first], rows[first + 1 :]

    def _said(self, row: list[str]) -> Said | None:
        cells = dict(zip(self._header, row, strict=False))
        text = cells.get(self._column, "").strip()
        if not text:
            return None
        score, steps = number_of(text), number_of(cells.get(self._steps))
        return Said(
            steps=None if steps is None else messages.steps({"steps": steps}),
            score=float("nan") if score is None else score,
            shown=shown(text),
        )

    def missing(self) -> str:
        if self._path is None and self._before:
            return f"it left {next(iter(self._before))} as it was before the trial"
        if self._path is None:
            return f"it wrote no file {self._file} in its folder {self._directory}"
        if self._column not in self._header:
            listed = ", ".join(self._header)[:300] or "none"
            return f"{self._path} has no column '{self._column}'; its columns: {listed}"
        return f"the column '{self._column}' of {self._path} holds no number"


class EventReader:
    """Follows one scalar in all event files of TensorBoard below a folder."""

    def __init__(self, tag: str, folder: str, directory: Path, *, begins: bool) -> None:
        """Reads none of the trial's events yet; `begins`: what is there now is not its own, as it begins anew."""
        self._tag, self._folder = tag, directory / folder
        self._read: dict[Path, int] = {}  # how many bytes of each file were read, or are not the trial's
        self._wrote = False
        self._tags: set[str] = set()
        for path in self._files() if begins else []:
            with contextlib.suppress(OSError):
                self._read[path] = path.stat().st_size

    def _files(self) -> list[Path]:
        return sorted(self._folder.rglob(f"*{_EVENTS}*"))

    def read(self, *, complete: bool = False) -> list[Said]:
        found: list[tuple[float, Said]] = []
        for path in self._files():
            with contextlib.suppress(OSError), path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                data = file.read(MAX_BYTES)
                self._wrote = self._wrote or path not in self._read or bool(data)
                events, used = scalars(data)
                self._read[path] = self._read.get(path, 0) + used
                self._tags.update(event.tag for event in events)
                found += [
                    (event.wall_time, Said(steps=messages.steps({"steps": event.step}), score=event.value))
                    for event in events
                    if event.tag == self._tag
                ]
        return [said for _, said in sorted(found, key=lambda one: one[0])]

    def missing(self) -> str:
        if not self._wrote:
            return f"it wrote no event file of TensorBoard below {self._folder}"
        return f"no event file has the tag '{self._tag}'; tags: {_listed(self._tags)}"


def _size_and_time(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        status = path.stat()
        return status.st_size, status.st_mtime_ns
    return None


def matches(directory: Path, pattern: str) -> list[Path]:
    """Returns the file of this name, or all that match, the newest first, below a folder."""
    if not any(sign in pattern for sign in "*?["):
        path = directory / pattern
        return [path] if path.is_file() else []
    base, relative = directory, pattern
    if Path(pattern).is_absolute():
        base, relative = Path("/"), pattern.lstrip("/")
    with contextlib.suppress(OSError, ValueError):
        found = [path for path in base.glob(relative) if path.is_file()]
        return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)
    return []


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))[:300] or "none"
