"""How a trial's reports are read: the trainer's messages, and what a command says of its training.

Nothing here raises for what a process prints or writes. Four forms are read:

- JSON lines of our trainer: `start`, any number of `measurement`, then one of `result`, `failed` and `interrupted`
  (see `protein.trainer.events`). A line that is no message is text for the log.
- JSON lines of a command, such as `{"steps": 100, "score": 0.7, "cost_seconds": 3.5, "metrics": {"loss": 0.2}}`, or
  `{"result": 0.8}` for the final score. Only the score is needed. Other numbers of the object are metrics, too.
- A command's log, by regular expressions.
- A CSV file or event files of TensorBoard, followed while the command writes them below the trial's folder. What an
  earlier run has left there is not the trial's: it is left out where the trial begins anew.
"""

import contextlib
import csv
import dataclasses
import json
import math
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from protein.types import Measurement, is_score

MAX_STEPS = 2**53  # more is garbage, and would not fit the database
MAX_TEXT = 10_000  # characters of a line that a regular expression is matched against
MAX_SHOWN = 40  # characters of a score that is no number, in a message
MAX_FILE_BYTES = 256 << 20  # of a file; a larger one is no table of scores
MAX_COMMENTS = 5  # rows before the header
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")  # colours and cursor movements
_FIELDS = frozenset({"steps", "score", "cost_seconds", "metrics", "result"})
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(?![\d,])[^,]*")  # float() judges what follows
_EVENTS = "events.out.tfevents."
_MAX_RECORD = 64 << 20  # a longer one is no record
_FLOAT, _DOUBLE = 1, 2  # of a tensor's dtype

Message = Mapping[str, Any]


def measurement_in(message: Message) -> Measurement | None:
    """Returns a `measurement` message as a curve point, or None when it lacks usable steps and seconds."""
    count, elapsed = steps_in(message), seconds_in(message)
    if count is None or elapsed is None:
        return None
    return Measurement(
        steps=count,
        elapsed_seconds=elapsed,
        score=score_in(message),
        metrics=numbers_in(message.get("metrics")),
    )


def seconds_in(message: Message) -> float | None:
    """Returns the message's `elapsed_seconds` if it is a usable duration."""
    value = _finite(message.get("elapsed_seconds"))
    return value if value is not None and value >= 0 else None


def steps_in(message: Message) -> int | None:
    """Returns the message's `steps` if it is a usable count."""
    value = _finite(message.get("steps"))
    return int(value) if value is not None and 0 <= value <= MAX_STEPS else None


def score_in(message: Message) -> float | None:
    """Returns the message's `score`, or None when it is missing or no score (`protein.types.is_score`)."""
    value = _finite(message.get("score"))
    return value if value is not None and is_score(value) else None


def numbers_in(value: object) -> dict[str, float]:
    """Returns the finite numbers of a JSON object by name, without its other values."""
    if not isinstance(value, dict):
        return {}
    return {str(key): number for key, item in value.items() if (number := _finite(item)) is not None}


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One report. A score that is no usable number is `nan`.

    Attributes:
        steps: of training so far; None: the report does not say.
        score: as the command knows it; None: there is none yet.
        shown: the score as it was written, for messages.
        cost_seconds: so far, by the command's own account; None: the wall clock counts.
        metrics: further finite numbers.
        is_result: whether the score is final.
    """

    steps: int | None = None
    score: float | None = None
    shown: str = ""
    cost_seconds: float | None = None
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    is_result: bool = False


def from_json(line: bytes, *, any_field: bool = False) -> Said | None:
    """Returns the report that a line holds, or None where it is text for the log.

    With `any_field`, an object without a score is a report, too: only where nothing else is written.
    """
    text = line.strip()
    if not text.startswith(b"{"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    if not ("score" in found or "result" in found or (any_field and _FIELDS.intersection(found))):
        return None
    is_result = "result" in found
    given = found["result"] if is_result else found.get("score")
    if isinstance(given, dict):  # {"result": {"score": 0.8, "cost_seconds": 3.5}}
        found = {**found, **given}
        given = found.get("score")
    others = {key: value for key, value in found.items() if key not in _FIELDS}
    return Said(
        steps=steps_in({"steps": _unquoted(found.get("steps"))}),
        score=None if given is None else _number(given),
        shown=shown(given),
        cost_seconds=seconds_in({"elapsed_seconds": _unquoted(found.get("cost_seconds"))}),
        metrics=numbers_in(others) | numbers_in(found.get("metrics")),
        is_result=is_result,
    )


class PatternReader:
    """Reads scores from a log by regular expressions.

    The number is the group `score` (or `steps`), or the first group. The expression for the score may have both groups.
    Otherwise the steps are those of the last line in which they were found.
    """

    def __init__(self, score: str, steps: str) -> None:
        self._score = re.compile(score)
        self._steps = re.compile(steps) if steps else None
        self._last_steps: int | None = None

    def read(self, line: bytes) -> Said | None:
        """Returns the report that a line holds, if any."""
        text = _ANSI.sub("", line[:MAX_TEXT].decode(errors="replace"))
        if self._steps is not None and (found := self._steps.search(text)):
            self._last_steps = _count(_group(found, "steps"), self._last_steps)
        match = self._score.search(text)
        if match is None:
            return None
        steps = self._last_steps
        if "steps" in match.re.groupindex:
            steps = _count(match.group("steps"), steps)
        written = _group(match, "score")
        score = number_of(written)
        return Said(steps=steps, score=math.nan if score is None else score, shown=shown(written))


def number_of(text: str | None) -> float | None:
    """Returns the number that a text stands for, as in "0.5", "1,234", "87.5%" or "nan"; None where it is none.

    A comma is taken only between groups of three digits. In "0,512" it stands for a point, so this is no number.
    """
    if text is None:
        return None
    written = text.strip().rstrip(",;:.%)]")
    try:
        return float(written.replace(",", "") if _THOUSANDS.fullmatch(written) else written)
    except ValueError:
        return None


def shown(written: object) -> str:
    """Returns a score as it was written, for a message: texts that are no numbers in quotes, long ones cut."""
    words = str(written) if isinstance(written, str | int | float) else json.dumps(written)
    words = " ".join(words.split())
    words = words if len(words) <= MAX_SHOWN else f"{words[:MAX_SHOWN]}..."
    return words if number_of(words) is not None or not isinstance(written, str) else f"'{words}'"


def unread(last_line: str) -> str:
    """Returns what a last line without a score holds, and what reads it, to be added to a message; may be empty."""
    try:
        found = json.loads(last_line)
    except (ValueError, RecursionError):
        found = None
    numbers = numbers_in(found) if isinstance(found, dict) else {}
    if not numbers:
        return f"; its last line: {last_line}" if last_line else "; it printed nothing"
    name = next((key for key, value in numbers.items() if not value.is_integer()), next(reversed(numbers)))
    return (
        f"; its last line has {', '.join(numbers)}, and --score-regex '\"{re.escape(name)}\": ([^,}}]+)' would read"
        f" '{name}' as the score"
    )


def _group(match: re.Match[str], name: str) -> str | None:
    group: Any = match.group(name if name in match.re.groupindex else 1)
    return group if isinstance(group, str) else None


def _count(text: str | None, before: int | None) -> int | None:
    """Returns the steps that a text gives, or else those that were known before."""
    count = steps_in({"steps": number_of(text)})
    return before if count is None else count


def _unquoted(value: object) -> object:
    """Returns the number that a text stands for: json.dumps(..., default=str) writes those of NumPy so."""
    return number_of(value) if isinstance(value, str) else value


def _number(value: object) -> float:
    value = _unquoted(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


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
            if seen == self._seen or status.st_size > MAX_FILE_BYTES:
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

    def _left(self, path: Path) -> _Left | None:
        with contextlib.suppress(OSError):
            status = path.stat()
            data = path.read_bytes() if status.st_size <= MAX_FILE_BYTES else b""
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
            steps=None if steps is None else steps_in({"steps": steps}),
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
                data = file.read(MAX_FILE_BYTES)
                self._wrote = self._wrote or path not in self._read or bool(data)
                events, used = scalars(data)
                self._read[path] = self._read.get(path, 0) + used
                self._tags.update(event.tag for event in events)
                found += [
                    (event.wall_time, Said(steps=steps_in({"steps": event.step}), score=event.value))
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


# The event files of TensorBoard, read without it. A file is a row of records: the length (8 bytes, little-endian), its
# checksum (4), the data, its checksum (4). The data is a protocol buffer, `Event`: wall_time = 1, step = 2, summary = 5
# with values = 1, each with tag = 1 and simple_value = 2 or a tensor = 8 (dtype = 1, tensor_content = 4, float_val = 5,
# double_val = 6).
#
# Source: event.proto, summary.proto and tensor.proto of TensorBoard; record_writer of TensorFlow.


@dataclasses.dataclass(frozen=True, slots=True)
class Scalar:
    """One logged number."""

    tag: str
    step: int
    wall_time: float
    value: float


def scalars(data: bytes) -> tuple[list[Scalar], int]:
    """Returns the scalars of the whole records at the beginning of `data`, and how many bytes those are.

    A record that cannot be read is skipped. Where a length makes no sense, the rest is.
    """
    found: list[Scalar] = []
    position = 0
    while position + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, position)
        if length > _MAX_RECORD:
            return found, len(data)
        end = position + 12 + length + 4
        if end > len(data):
            break
        with contextlib.suppress(ValueError, struct.error, IndexError, TypeError):
            found += _event(data[position + 12 : end - 4])
        position = end
    return found, position


def _event(data: bytes) -> list[Scalar]:
    wall_time, step, values = 0.0, 0, list[bytes]()
    for field, value in _fields(data):
        if field == 1 and isinstance(value, bytes):
            (wall_time,) = struct.unpack("<d", value)
        elif field == 2 and isinstance(value, int):
            step = value
        elif field == 5 and isinstance(value, bytes):
            values += [one for number, one in _fields(value) if number == 1 and isinstance(one, bytes)]
    found = []
    for one in values:
        tag, number = "", None
        for field, value in _fields(one):
            if not isinstance(value, bytes):
                continue
            if field == 1:
                tag = value.decode(errors="replace")
            elif field == 2:
                (number,) = struct.unpack("<f", value)
            elif field == 8:
                number = _tensor(value)
        if number is not None:
            found.append(Scalar(tag, step, wall_time, float(number)))
    return found


def _tensor(data: bytes) -> float | None:
    """Returns the number of a tensor that holds a single float."""
    kind, content, single, double = 0, b"", b"", b""
    for field, value in _fields(data):
        if field == 1 and isinstance(value, int):
            kind = value
        elif isinstance(value, bytes):
            content = value if field == 4 else content
            single = value if field == 5 else single
            double = value if field == 6 else double
    size, form = (4, "<f") if kind == _FLOAT else (8, "<d")
    raw = content or (single if kind == _FLOAT else double)
    if kind not in (_FLOAT, _DOUBLE) or len(raw) != size:
        return None
    return float(struct.unpack(form, raw)[0])


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields the number and the raw value of every field of a protocol buffer."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        kind = key & 7
        if kind == 0:
            value, position = _varint(data, position)
            yield key >> 3, value
            continue
        if kind == 2:
            size, position = _varint(data, position)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"unknown wire type {kind}")
        if position + size > len(data):
            raise ValueError("a field is cut short")
        yield key >> 3, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")
