"""Reads scores from a file that a command writes, while it grows: a CSV file, or event files of TensorBoard.

The file is found below the trial's folder. Nothing here raises for what is in it.
"""

import contextlib
import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from protein.sweep.backends import messages
from protein.sweep.commands.events import scalars
from protein.sweep.commands.reports import Said, number_of, shown

MAX_BYTES = 256 << 20  # of a file; a larger one is no table of scores
MAX_COMMENTS = 5  # rows before the header
_EVENTS = "events.out.tfevents."


class FileReader(Protocol):
    """Follows what a command writes."""

    def read(self) -> list[Said]:
        """Returns what is new since the last call."""
        ...

    def missing(self) -> str:
        """Says what was looked for and not found, for a trial without a score."""
        ...


class CsvReader:
    """Follows the rows of a CSV file with a header. A file that is written anew with more columns is followed, too."""

    def __init__(self, file: str, column: str, steps: str, directory: Path) -> None:
        """Reads nothing yet.

        Args:
            file: relative to `directory`, or absolute. A pattern such as `**/progress.csv` takes the newest match.
            column: that of the score.
            steps: that of the steps; "": rows are counted.
            directory: the trial's folder.
        """
        self._file, self._column, self._steps, self._directory = file, column, steps, directory
        self._path: Path | None = None
        self._seen: tuple[int, int] | None = None  # size and time of the last read
        self._rows = 0
        self._header: list[str] = []

    def read(self) -> list[Said]:
        self._path = self._path or newest(self._directory, self._file)
        if self._path is None:
            return []
        try:
            status = self._path.stat()
            seen = status.st_size, status.st_mtime_ns
            if seen == self._seen or status.st_size > MAX_BYTES:
                return []
            text = self._path.read_text(errors="replace")
        except OSError:
            return []
        self._seen = seen
        complete = text[: text.rfind("\n") + 1]
        rows = []
        with contextlib.suppress(csv.Error):
            rows = [row for row in csv.reader(complete.splitlines()) if row]
        headers = [[name.strip().lstrip("\ufeff#").strip() for name in row] for row in rows[:MAX_COMMENTS]]
        if not rows:
            return []
        first = next((place for place, header in enumerate(headers) if self._column in header), 0)  # after comments
        self._header, rows = headers[first], rows[first:]
        fresh, self._rows = rows[1 + self._rows :], max(len(rows) - 1, self._rows)
        return [said for row in fresh if (said := self._said(row)) is not None]

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
        if self._path is None:
            return f"it wrote no file {self._file} in its folder {self._directory}"
        if self._column not in self._header:
            listed = ", ".join(self._header)[:300] or "none"
            return f"{self._path} has no column '{self._column}'; its columns: {listed}"
        return f"the column '{self._column}' of {self._path} holds no number"


class EventReader:
    """Follows one scalar in all event files of TensorBoard below a folder."""

    def __init__(self, tag: str, folder: str, directory: Path) -> None:
        self._tag, self._folder = tag, directory / folder
        self._read: dict[Path, int] = {}  # how many bytes of each file were read
        self._tags: set[str] = set()

    def read(self) -> list[Said]:
        found: list[tuple[float, Said]] = []
        for path in sorted(self._folder.rglob(f"*{_EVENTS}*")):
            with contextlib.suppress(OSError), path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                data = file.read(MAX_BYTES)
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
        if not self._read:
            return f"it wrote no event file of TensorBoard below {self._folder}"
        return f"no event file has the tag '{self._tag}'; tags: {_listed(self._tags)}"


def newest(directory: Path, pattern: str) -> Path | None:
    """Returns the file of this name, or the newest one that matches, below a folder; None: there is none yet."""
    if not any(sign in pattern for sign in "*?["):
        path = directory / pattern
        return path if path.is_file() else None
    base, relative = directory, pattern
    if Path(pattern).is_absolute():
        base, relative = Path("/"), pattern.lstrip("/")
    with contextlib.suppress(OSError, ValueError):
        return max((path for path in base.glob(relative) if path.is_file()), key=lambda path: path.stat().st_mtime)
    return None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))[:300] or "none"
