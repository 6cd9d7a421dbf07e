"""The files that a command writes its scores to, followed while it writes them: tables, and TensorBoard's event files.

All other numbers beside the score are metrics: the other columns of its row, and of event files the other scalars that
were written since the last score.

A table is a CSV file, with commas, tabs, `;`, `|` or spaces between its cells, or a file of JSON Lines. The file shows
which one it is.

The last score that is told of a trial is always that which a plain reader of the final file gives. Programs append to
their files, write them anew with more columns, cut them off, replace them, or open them anew at each start. So what was
read of a file is known by a checksum of each row's steps and score with all rows before it. Rows that were told are not
told again, and as soon as a row is another one, it is told with all that follow.

What an earlier run has left is not the trial's: it is left out where the trial begins anew. Where it goes on, it is
told again.
"""

import contextlib
import csv
import dataclasses
import fnmatch
import io
import itertools
import json
import math
import os
import re
import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple, Protocol

from protein.run.reports import Commas, Remark, Said, number_of, scored, steps_in

MAX_LISTED = 300  # characters of names in a message
MAX_FILE_BYTES = 1 << 30  # of a table; a larger one is no table of scores
_READ_BYTES = 64 << 20  # of a file at once
_DELIMITERS = (",", "\t", ";", "|", " ")
_ENCODINGS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}  # by their first bytes, as Windows writes them
_NO_VALUE = re.compile(r"n/?a|<na>|none|null|:?-+:?", re.IGNORECASE)  # in a cell; Keras writes NA
_DOCUMENT = re.compile(r"\s*(?:\{|\[\s*(?:\{|$))")  # how JSON begins
_EVENTS = "events.out.tfevents."
_MAX_RECORD = 64 << 20  # a longer one is no record
_NUMBERS = {1: "<f", 2: "<d", 3: "<i", 9: "<q", 19: "<e"}  # of a tensor, by its dtype


class FileReader(Protocol):
    """Follows what a command writes."""

    def read(self, *, complete: bool = False) -> list[Said]:
        """Returns what is new since the last call; `complete`: the command has written all, its last line too."""
        ...

    def wrong(self) -> str:
        """Says why no score can be read, whatever the command still writes; "": there is no such reason so far."""
        ...

    def missing(self) -> str:
        """Says what was looked for and not found, for a trial without a score."""
        ...


class Row(NamedTuple):
    """Steps and a score as they were written, when (of events), in seconds since 1970, and what stands beside them."""

    steps: str
    score: str
    at: float = 0.0
    others: tuple[tuple[str, str], ...] = ()  # names and values; () in rows that were told


class Told:
    """Which rows of one file were told. Each is told once, however the file is written anew."""

    def __init__(self, marks: Sequence[int] = ()) -> None:
        """Those with these checksums were (see `marks_of`)."""
        self.marks = marks

    def fresh(self, rows: Sequence[Row], *, complete: bool) -> Sequence[Row]:
        """Returns the rows that are to be told now.

        Args:
            rows: all that the file has.
            complete: whether no more will come.
        """
        marks = marks_of(rows)
        least = min(len(marks), len(self.marks))
        same = bisect_left(range(least), True, key=lambda place: marks[place] != self.marks[place])
        if same == len(marks) < len(self.marks) and not complete:
            return ()  # it is being written anew, and will have these again; or it begins with the same by chance
        self.marks = marks
        return rows[same:]


def marks_of(rows: Iterable[Row]) -> list[int]:
    """Returns for each row a checksum of it and of all rows before it."""
    chain = itertools.accumulate(
        rows, lambda mark, row: zlib.crc32(f"{row.steps}\0{row.score}\1".encode(), mark), initial=0
    )
    return list(chain)[1:]


class _State(NamedTuple):
    """By which a change of a file is seen: its inode, its size in bytes, and when it was written in nanoseconds."""

    inode: int
    size: int
    time: int

    @classmethod
    def of(cls, path: Path) -> "_State | None":
        with contextlib.suppress(OSError):
            status = path.stat()
            return cls(status.st_ino, status.st_size, status.st_mtime_ns)
        return None


@dataclasses.dataclass(slots=True)
class _Table:
    """What is known of one file.

    Attributes:
        left: its state when the trial began; None: it was not there.
        checksum: of its bytes then.
        cut: its size then, if an earlier run of the trial was killed in the middle of a row; else 0.
        told: which of its rows were told, or are of an earlier run.
        base: how many of its first rows are of an earlier run.
        is_ours: whether this run has written rows to it.
        seen: its state at the last look.
        is_new: whether what was seen then is still to be told.
        header: its names.
        rows: that it had.
        rest: names and values of rows that stand behind the last score.
        delimiter: of its cells; "": it has JSON Lines.
        wrong: why it cannot be read; "": it can.
    """

    left: _State | None = None
    checksum: int = 0
    cut: int = 0
    told: Told = dataclasses.field(default_factory=Told)
    base: int = 0
    is_ours: bool = False
    seen: _State | None = None
    is_new: bool = False
    header: list[str] = dataclasses.field(default_factory=list)
    rows: Sequence[Row] = ()
    rest: dict[str, str] = dataclasses.field(default_factory=dict)
    delimiter: str = ""
    wrong: str = ""


class TableReader:
    """Follows one column of a table. Of several files that match, the newest one counts that this run has written."""

    def __init__(
        self, file: str, column: str, steps: str, directory: Path, *, begins: bool, commas: Commas, remark: Remark
    ) -> None:
        """Reads what is there when the trial begins.

        Args:
            file: relative to `directory`, or absolute. A pattern such as `**/progress.csv` takes the newest match.
            column: that of the score. In JSON Lines, dots lead into objects: `eval.reward`.
            steps: that of the steps; "": rows are counted.
            directory: the trial's folder.
            begins: whether the trial begins anew, so that what is there now is not its own.
            commas: what they stand for in numbers. They learn from all numbers of the column.
            remark: takes what a person should know.
        """
        self._file, self._column, self._steps, self._directory = file, column, steps, directory
        self._begins, self._commas, self._remark = begins, commas, remark
        self._cuts: set[str] = set()  # that were said
        self._tables: dict[Path, _Table] = {}
        self._ours: list[Path] = []  # with the column, in the order in which they were first seen
        self._wrong = ""
        self._last: tuple[Path, Row] | None = None  # that was told
        self._before: list[Said] = []
        for path in reversed(matches(directory, file)):
            table = self._tables[path] = _Table()
            self._look(path, table, complete=False)
            table.left, table.checksum = table.seen, _checksum(path, table.seen)
            if begins:
                table.told, table.base = Told(marks_of(table.rows)), len(table.rows)
            else:
                table.cut = _cut(path, table.left)
                self._before += self._tell(path, table, complete=False)
        self.rows_behind = len(self._before)  # of an earlier run of the trial; they are told first

    def read(self, *, complete: bool = False) -> list[Said]:
        said, self._before = self._before, []
        found = []
        for path in matches(self._directory, self._file):
            table = self._tables.setdefault(path, _Table())
            state = _State.of(path)
            if state is not None and (state != table.seen or complete):
                grew = table.is_ours and state != table.seen
                self._look(path, table, complete=complete)
                table.is_ours = self._is_ours(path, table, complete=complete)
                if grew and path in self._ours[:-1]:
                    names = f"{path}, {self._ours[-1]}"
                    self._wrong = (
                        f"several files that match {self._file} are written in turn: {names}; name one of them"
                    )
            if table.is_ours and self._column in table.header:
                found.append(path)
        self._ours += [path for path in reversed(found) if path not in self._ours]
        if not found:
            return said
        self._wrong = self._wrong or self._tables[found[0]].wrong
        return said if self._wrong else [*said, *self._tell(found[0], self._tables[found[0]], complete=complete)]

    def _is_ours(self, path: Path, table: _Table, *, complete: bool) -> bool:
        """Whether a file has rows of this run. If it is another file by now, all its rows are."""
        if table.left is None or table.seen is None or table.base == 0:
            return table.seen != table.left
        if table.seen == table.left:
            return False
        marks, base = marks_of(table.rows[: table.base]), table.told.marks[: table.base]
        # The trial has appended to it, or others write there, too, with their rows.
        keeps_rows = table.is_ours or not path.is_relative_to(self._directory)
        grew = table.seen.size > table.left.size and _checksum(path, table.left) == table.checksum
        if marks == base and (grew or keeps_rows):
            return table.is_ours or len(table.rows) > table.base
        if marks == base[: len(marks)] and keeps_rows and not complete:
            return table.is_ours  # it is being written anew
        table.told, table.base = Told(), 0
        return True

    def _look(self, path: Path, table: _Table, *, complete: bool) -> None:
        """Reads a file."""
        with contextlib.suppress(OSError):
            state = _State.of(path)
            is_large = state is not None and state.size > MAX_FILE_BYTES
            cut = table.cut if table.cut and _checksum(path, table.left) == table.checksum else 0
            with path.open("rb") as file:
                encoding = _ENCODINGS.get(file.read(2))
                file.seek(0)
                texts = io.TextIOWrapper(file, encoding, errors="replace") if encoding else _decoded(file, cut)
                lines = _lines(texts, complete=complete)
                header, rows = self._parse(itertools.islice(lines, 10) if is_large else lines, table)
            table.seen, table.is_new, table.rows, table.header = state, True, rows, header or table.header
            if is_large:
                limit = f"{MAX_FILE_BYTES >> 20:,} MiB"
                table.wrong = f"{path} is larger than {limit}, so no score is read from it; write fewer rows"
            elif (count := header.count(self._column)) > 1:
                table.wrong = f"{path} has {count} columns '{self._column}'; give them names of their own"
            elif count and self._steps and self._steps not in header and table.delimiter:
                table.wrong = f"{path} has no column '{self._steps}' for the steps; {_listed(header)}"

    def _tell(self, path: Path, table: _Table, *, complete: bool) -> list[Said]:
        """Returns what is to be told of a file that was looked at."""
        if not table.is_new:
            return []
        table.is_new, rows = False, table.rows
        fresh = table.told.fresh(rows, complete=complete)
        if complete and not fresh and len(rows) > table.base and (path, rows[-1]._replace(others=())) != self._last:
            fresh = rows[-1:]  # the last row that is told is that of the final file
        if not fresh:
            return []
        self._last = path, fresh[-1]._replace(others=())
        if table.delimiter == ";" and any("," in row.score for row in rows):
            self._commas.see("0,5")  # it stands between cells where commas are decimal ones
        for row in rows:
            self._commas.see(row.score)
        said = [self._said(row) for row in fresh]
        rest = _metrics(fresh[-1]._replace(others=tuple(table.rest.items())), self._commas) if complete else {}
        return [*said, Said(steps=said[-1].steps, metrics=rest)] if rest else said

    def _said(self, row: Row) -> Said:
        steps = number_of(row.steps, self._commas)
        said = scored(row.score, self._commas)
        count = None if steps is None else steps_in({"steps": steps})
        return dataclasses.replace(said, steps=count, metrics=_metrics(row, self._commas))

    def _parse(self, lines: Iterator[str], table: _Table) -> tuple[list[str], list[Row]]:
        """Returns the names of a table's columns, and the rows that have a score."""
        first: list[str] = []
        while line := next(lines, ""):
            if _DOCUMENT.match(line):
                table.delimiter = ""
                return self._objects(itertools.chain((line,), lines), table)
            headers = {delimiter: _names(line, delimiter) for delimiter in _DELIMITERS}
            fitting = [delimiter for delimiter, names in headers.items() if self._column in names]
            first = first or max(headers.values(), key=len)
            if not fitting:
                continue
            below = next(lines, "")
            lines = itertools.chain([below] if below else [], lines)
            delimiter = max(fitting, key=lambda one: len(headers[one]))
            if delimiter == " " and below and not 0 <= len(_names(below, " ")) - len(headers[" "]) <= 1:
                # They are only within its cells; or it is a comment that has the name as a word.
                others = [one for one in fitting if one != " " and len(_names(below, one)) == len(headers[one])]
                if not others:
                    continue
                delimiter = max(others, key=lambda one: len(headers[one]))
            header = headers[delimiter]
            table.delimiter = delimiter
            return header, list(self._rows(lines, header, delimiter if len(header) > 1 else "\t", table))
        return first, []

    def _rows(self, lines: Iterator[str], header: list[str], delimiter: str, table: _Table) -> Iterator[Row]:
        """Yields the rows below a header that have a score. In one column alone, a comma is one of a number.

        What rows without a score hold counts with the next one that has one. Those that were told go without what
        stands beside their scores: a large table would take much memory.
        """
        count = 0
        table.rest = {}
        if delimiter == " ":
            lines = (line.strip().replace("\t", " ") for line in lines)
        # R writes names of rows without a name in the header. One such row may be half a row with the next one.
        shift: int | None = None
        first: list[str] = []
        reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
        while True:
            try:
                row = [cell.strip() for cell in next(reader)]
            except StopIteration:
                return
            except csv.Error as error:
                if str(error) not in self._cuts:
                    self._cuts.add(str(error))
                    self._remark("csv", f"wrote a row that is left out: {error}")
                continue
            if self._column in row:  # a header again, as a program writes it at each start
                end = row[-len(header) :]
                if len(end) == len(header) > 1 and end[1:] == header[1:] and end[0].endswith(header[0]):
                    continue  # the same, perhaps behind half a row
                header = row[1:] if row[0] in ("#", "%") else [row[0].lstrip("#% "), *row[1:]]
                shift, first = None, []
                continue
            while len(row) > len(header) and not row[-1]:
                row.pop()
            if not row or row[0].startswith("#"):
                continue
            is_longer = len(row) == len(header) + 1 and delimiter != ","
            if shift is None and is_longer and not first:
                first = row
                continue
            shift = int(is_longer) if shift is None else shift
            for one in (first, row) if first else (row,):
                if len(one) > len(header) + shift:  # half a row with the next one, or decimal commas between commas
                    yield Row("", f"a row of {len(one)} cells below {len(header)} names: {delimiter.join(one)}")
                    continue
                cells = dict(zip(header, one[shift:], strict=False))
                score = cells.get(self._column, "")
                table.rest |= self._others(cells)
                if score and not _NO_VALUE.fullmatch(score):
                    count += 1
                    others = tuple(table.rest.items()) if count >= len(table.told.marks) else ()
                    table.rest = {}
                    yield Row(cells.get(self._steps, ""), score, others=others)
            first = []

    def _others(self, cells: Mapping[str, str]) -> dict[str, str]:
        """Returns the names and values of a row that are neither its score nor its steps."""
        own = (self._column, self._steps)
        return {name: cell for name, cell in cells.items() if name and cell and name not in own}

    def _objects(self, lines: Iterator[str], table: _Table) -> tuple[list[str], list[Row]]:
        """Returns the names in JSON Lines, and the rows. A line that is no object is passed over.

        Where none is one, the file may be a single object, or a list of them, over several lines.
        """
        names: dict[str, None] = {}
        rows: list[Row] = []
        table.rest = {}
        every = list(lines)
        objects = [found for line in every if isinstance(found := _json(line), dict)]
        document = [] if objects else _json("".join(every))
        listed = document if isinstance(document, list) else [document]
        for found in objects or [one for one in listed if isinstance(one, dict)]:
            names.update(dict.fromkeys(map(str, found)))
            score, steps = _cell(found, self._column), _cell(found, self._steps)
            table.rest |= self._others(_numbers_of(found))
            if score:
                names[self._column] = None
                others = tuple(table.rest.items()) if len(rows) + 1 >= len(table.told.marks) else ()
                rows.append(Row(steps, score, others=others))
                table.rest = {}
        return list(names), rows

    def wrong(self) -> str:
        return self._wrong

    def missing(self) -> str:
        written = [path for path, table in self._tables.items() if table.is_ours or not self._begins]
        if not written and self._tables:
            return f"it left {next(iter(self._tables))} as it was before the trial"
        if not written:
            return f"it wrote no file {self._file} in its folder {self._directory}"
        header = self._tables[written[-1]].header
        if self._column not in header:
            return f"{written[-1]} has no column '{self._column}'; {_listed(header)}"
        return f"the column '{self._column}' of {written[-1]} holds no number"


def _listed(header: list[str]) -> str:
    return f"its columns: {', '.join(header)[:MAX_LISTED] or 'none'}"


def _checksum(path: Path, state: _State | None) -> int:
    """Returns that of the bytes that a file had in a state, or of fewer if it has fewer."""
    left, found = 0 if state is None else state.size, 0
    with contextlib.suppress(OSError), path.open("rb") as file:
        while left > 0 and (data := file.read(min(left, _READ_BYTES))):
            found, left = zlib.crc32(data, found), left - len(data)
    return found


def _cut(path: Path, state: _State | None) -> int:
    """Returns the size of a file that ends in the middle of a row; else 0."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return state.size if state is not None and file.read(1) != b"\n" else 0
    return 0


def _decoded(file: Iterable[bytes], cut: int) -> Iterator[str]:
    """Yields the lines of a file, without the half of a row that ends after `cut` bytes, if another row follows it."""
    begin = 0
    for line in file:
        end = begin + len(line)
        is_glued = begin < cut < end and line[cut - begin :].strip()
        yield (line[cut - begin :] if is_glued else line).decode(errors="replace")
        begin = end


def _lines(file: Iterable[str], *, complete: bool) -> Iterator[str]:
    """Yields the lines of a file that are not empty; the last one only with its end, or if it is complete."""
    for line in file:
        if not line.endswith("\n") and not complete:
            return
        if line.strip("\ufeff\0 \t\r\n"):
            yield line.replace("\0", "").lstrip("\ufeff")


def _names(line: str, delimiter: str) -> list[str]:
    """Returns the names in a line, if it is a header. Some programs begin it with a sign of a comment."""
    with contextlib.suppress(csv.Error, StopIteration):
        words = line.strip().lstrip("#%").strip()
        words = words.replace("\t", " ") if delimiter == " " else words
        return [name.strip() for name in next(csv.reader([words], delimiter=delimiter, skipinitialspace=True))]
    return []


def _json(text: str) -> Any:
    """Returns what a text holds; None: it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _numbers_of(found: Mapping[Any, Any], prefix: str = "") -> dict[str, str]:
    """Returns the numbers of an object as texts; those within objects have dots in their names."""
    numbers: dict[str, str] = {}
    for name, value in found.items():
        if isinstance(value, dict):
            numbers |= _numbers_of(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            numbers[f"{prefix}{name}"] = repr(value)
    return numbers


def _metrics(row: Row, commas: Commas) -> dict[str, float]:
    """Returns the finite numbers that stand beside a score, by name."""
    numbers = ((name, number_of(text, commas)) for name, text in row.others)
    return {name: number for name, number in numbers if number is not None and math.isfinite(number)}


def _cell(found: object, name: str) -> str:
    """Returns a value of an object as text; "": there is none. Dots in a name lead into objects."""
    while isinstance(found, dict) and name not in found and "." in name:
        part, _, name = name.partition(".")
        found = found.get(part)
    value = found.get(name) if isinstance(found, dict) else None
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


@dataclasses.dataclass(slots=True)
class _Events:
    """What was read of one event file.

    Attributes:
        folder: that it is in, relative to the one that is searched.
        size: how many bytes were read, or are not the trial's.
        rows: its events of the tag.
        others: the last value of each other tag since the last of these.
        told: which of them were.
        is_ours: whether this run has written events of the tag to it.
        is_new: whether it has rows that were not looked at.
        is_broken: whether it cannot be read any further.
    """

    folder: PurePath
    size: int = 0
    rows: list[Row] = dataclasses.field(default_factory=list)
    others: dict[str, str] = dataclasses.field(default_factory=dict)
    told: Told = dataclasses.field(default_factory=Told)
    is_ours: bool = False
    is_new: bool = False
    is_broken: bool = False


class EventReader:
    """Follows one scalar in the event files of TensorBoard below a folder.

    A folder of event files is a run of its own, with curves of its own. So a run of the trial may write the tag to one
    folder alone, or the folder is named with the tag. A trial that goes on may do so in a folder of its own.
    """

    def __init__(self, tag: str, folder: str, directory: Path, *, begins: bool, remark: Remark) -> None:
        """Reads what is there when the trial begins.

        Args:
            tag: of the scalar, as it is, or after its folder: `validation:epoch_loss`. The folder may be the end of a
                path, or a pattern: `PPO_*:rollout/ep_rew_mean`. `.` is the folder that is searched.
            folder: that is searched, relative to the trial's folder.
            directory: the trial's folder.
            begins: whether the trial begins anew: what is there now is not its own.
            remark: takes what a person should know.
        """
        self._tag, self._root, self._remark = tag, directory / folder, remark
        places = [place for place, sign in enumerate(tag) if sign == ":"]
        self._wanted = [("", tag), *((tag[:place], tag[place + 1 :]) for place in places)]
        self._files: dict[tuple[Path, int], _Events] = {}  # by path and inode
        self._tags: set[tuple[str, str]] = set()  # tags, and the folders that have them
        self._wrote = False
        self._last: Row | None = None  # that was told
        for path in self._paths():
            with contextlib.suppress(OSError):
                status = path.stat()
                one = self._files[path, status.st_ino] = _Events(path.relative_to(self._root).parent)
                if begins:
                    one.size = status.st_size
                else:
                    self._look(path, one, status.st_size)
        self._before = self._tell(complete=False)

    def _paths(self) -> list[Path]:
        """Returns the event files; where a link leads to one of them, as W&B makes some, the file alone."""
        found = sorted(self._root.rglob(f"*{_EVENTS}*"), key=lambda path: (path.is_symlink(), path))
        return list({path.resolve(): path for path in reversed(found)}.values())[::-1]

    def read(self, *, complete: bool = False) -> list[Said]:
        said, self._before = self._before, []
        for path in self._paths():
            with contextlib.suppress(OSError):
                status = path.stat()
                key = path, status.st_ino
                self._wrote |= key not in self._files
                one = self._files.setdefault(key, _Events(path.relative_to(self._root).parent))
                rows = len(one.rows)
                self._look(path, one, status.st_size)
                one.is_ours |= len(one.rows) > rows
        return said if self.wrong() else [*said, *self._tell(complete=complete)]

    def _look(self, path: Path, one: _Events, size: int) -> None:
        """Reads what is new in a file."""
        if size < one.size:  # it was cut off
            one.size, one.rows, one.others, one.is_broken = 0, [], {}, False
        if size == one.size or one.is_broken:
            return
        self._wrote = True
        with path.open("rb") as file:
            file.seek(one.size)
            while data := file.read(_READ_BYTES):
                events, used, is_broken = scalars(data)
                for event in events:
                    self._tags.add((event.tag, one.folder.as_posix()))
                    if any(event.tag == tag and _is_named(one.folder, where) for where, tag in self._wanted):
                        at = max(event.wall_time, one.rows[-1].at) if one.rows else event.wall_time
                        one.rows.append(Row(str(event.step), repr(event.value), at, tuple(one.others.items())))
                        one.is_new, one.others = True, {}
                    else:
                        one.others[event.tag] = repr(event.value)
                one.size += used
                if is_broken:
                    self._remark("events", f"wrote {path}, which cannot be read beyond byte {one.size:,}")
                    one.size, one.is_broken = size, True
                    return
                file.seek(one.size)
                if used == 0:
                    return

    def _tell(self, *, complete: bool) -> list[Said]:
        """Returns what is new, in the order in which it was written."""
        fresh: list[Row] = []
        for one in self._files.values():
            if one.is_new:
                told = one.told.fresh(one.rows, complete=complete)
                fresh += told
                one.rows[len(one.rows) - len(told) :] = [row._replace(others=()) for row in told]
                one.is_new = False
        fresh.sort(key=lambda row: row.at)
        if complete:  # the last row that is told is that of the final files of this run
            ours = [one for one in self._files.values() if one.is_ours and one.rows]
            last = max((one.rows[-1] for one in ours), key=lambda row: row.at, default=None)
            if last is not None and last[:3] != (fresh[-1] if fresh else self._last or ())[:3]:
                fresh.append(last)
        self._last = fresh[-1]._replace(others=()) if fresh else self._last
        commas = Commas()
        said = [
            Said(steps=steps_in({"steps": int(row.steps)}), score=float(row.score), metrics=_metrics(row, commas))
            for row in fresh
        ]
        if complete and self._last is not None:  # what was written after the last score
            rest = [item for one in self._files.values() if one.is_ours and one.rows for item in one.others.items()]
            if metrics := _metrics(self._last._replace(others=tuple(rest)), commas):
                said.append(Said(steps=steps_in({"steps": int(self._last.steps)}), metrics=metrics))
        return said

    def wrong(self) -> str:
        folders = sorted({one.folder.as_posix() for one in self._files.values() if one.is_ours})
        if len(folders) < 2:
            return ""
        tag = next(tag for _, tag in self._wanted if any((tag, folder) in self._tags for folder in folders))
        one = min(reversed(folders), key=lambda folder: len(PurePath(folder).parts))
        return (
            f"the tag '{tag}' is in several folders: {', '.join(folders)[:MAX_LISTED]}; name one of them, as in"
            f" --score-tensorboard {one}:{tag}"
        )

    def missing(self) -> str:
        if not self._wrote:
            return f"it wrote no event file of TensorBoard below {self._root}"
        named = len(self._wanted) > 1
        tags = {f"{folder}:{tag}" if named else tag for tag, folder in self._tags}
        return f"no event file has the tag '{self._tag}'; tags: {', '.join(sorted(tags))[:MAX_LISTED] or 'none'}"


def _is_named(folder: PurePath, name: str) -> bool:
    """Whether a name is that of a folder: the end of its path, or a pattern of that; "": any folder has it."""
    parts = PurePath(name).parts
    if not parts:
        return not name or not folder.parts
    ends = folder.parts[-len(parts) :]
    return len(ends) == len(parts) and all(map(fnmatch.fnmatchcase, ends, parts))


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
        return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path), reverse=True)
    return []


# The event files of TensorBoard, read without it. A file is a row of records: the length (8 bytes, little-endian), its
# checksum (4), the data, its checksum (4). The data is a protocol buffer, `Event`: wall_time = 1, step = 2, summary = 5
# with values = 1, each with tag = 1 and simple_value = 2 or a tensor = 8 (dtype = 1, tensor_content = 4, float_val = 5,
# double_val = 6, int_val = 7, int64_val = 10).
#
# Source: event.proto, summary.proto and tensor.proto of TensorBoard; record_writer of TensorFlow.


@dataclasses.dataclass(frozen=True, slots=True)
class Scalar:
    """One logged number."""

    tag: str
    step: int
    wall_time: float
    value: float


def scalars(data: bytes) -> tuple[list[Scalar], int, bool]:
    """Returns the scalars of the whole records at the beginning, their bytes in all, and whether the rest is lost.

    A record that cannot be read is skipped. Where a length makes no sense, nothing behind it can be read.
    """
    found: list[Scalar] = []
    position = 0
    while position + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, position)
        if length > _MAX_RECORD:
            return found, position, True
        end = position + 12 + length + 4
        if end > len(data):
            break
        with contextlib.suppress(ValueError, struct.error, IndexError, TypeError):
            found += _event(data[position + 12 : end - 4])
        position = end
    return found, position, False


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
    """Returns the number of a tensor that holds a single one."""
    kind, raw, whole = 0, b"", None
    for field, value in _fields(data):
        if field == 1 and isinstance(value, int):
            kind = value
        elif field in (4, 5, 6) and isinstance(value, bytes):
            raw = value
        elif field in (7, 10):
            number, end = (value, 0) if isinstance(value, int) else _varint(value, 0)
            whole = number if isinstance(value, int) or end == len(value) else None
    if whole is not None:
        return float(whole - (1 << 64) if whole >> 63 else whole)
    form = _NUMBERS.get(kind, "")
    return float(struct.unpack(form, raw)[0]) if form and len(raw) == struct.calcsize(form) else None


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
