"""A table of a device, measured cell by cell in a process of its own, and written down as it grows.

Time on the device is short and may end at any moment. So each cell has its own limit, and all together have one. What a
cell loses (it takes too long, the device fails, the process dies) is that cell alone: a new process goes on with the
next one. The result is written after each cell. This module loads no torch: the process that measures does.
"""

import contextlib
import dataclasses
import importlib
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from protein import files
from protein.trainer.errors import TrainerError

LONGEST_ERROR = 300  # characters


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """One call of a function, whose result is `row[key]`."""

    key: str
    function: str  # of the module that measures
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seconds: float = 20.0  # its limit


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the table. `section`: the heading under which it stands."""

    section: str
    name: str
    cells: Sequence[Cell]


Column = tuple[str, Callable[[Mapping[str, Any]], float | None], str]  # heading, value of a row, format


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """What stands above some rows, and their columns."""

    title: str
    columns: Sequence[Column]
    fresh: bool = False  # a process of its own: what its cells load would slow the others down


class Worker:
    """The process that measures, begun when it is needed, and again after it was lost."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None

    def measure(self, cell: Cell, until: float) -> tuple[Any, str | None]:
        """Returns a cell's result and None, or None and what went wrong; by `until` of the monotonic clock."""
        try:
            connection = self._begun(until)
            connection.send((cell.function, dict(cell.arguments)))
            seconds = min(cell.seconds, until - time.monotonic())
            if not connection.poll(max(seconds, 0.0)):
                self.end()
                return None, f"took more than {seconds:.0f} s"
            result, error, lost = connection.recv()
        except (EOFError, OSError):  # it has died, or does not begin in time
            code = None
            if self._process is not None:
                self._process.join(1.0)
                code = self._process.exitcode
            self.end()
            return None, "the process that measures died" + ("" if code is None else f" with exit code {code}")
        if lost:
            self.end()
        return result, error

    def end(self) -> None:
        """Kills the process and what it has started."""
        if self._process is not None and self._process.pid is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            self._process.join()
        self._process = None

    def _begun(self, until: float) -> Connection:
        if self._process is None or self._connection is None:
            context = multiprocessing.get_context("spawn")
            self._connection, theirs = context.Pipe()
            self._process = context.Process(target=_work, args=(theirs, self._module))
            self._process.start()
            theirs.close()
            if not self._connection.poll(max(until - time.monotonic(), 0.0)):
                raise EOFError
            self._connection.recv()  # it has loaded what it needs, which is no cell's time
        return self._connection


def _work(connection: Connection, name: str) -> None:
    os.setpgid(0, 0)
    module = importlib.import_module(name)
    connection.send(None)
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while True:
            function, arguments = connection.recv()
            try:
                connection.send((getattr(module, function)(**arguments), None, False))
            except TrainerError as error:
                connection.send((None, _words(error), False))
            except Exception as error:  # of the device, which may be of no use to this process any more
                connection.send((None, f"{type(error).__name__}: {_words(error)}", True))


def _words(error: Exception) -> str:
    """Returns an error's first line."""
    return (str(error).splitlines() or [""])[0][:LONGEST_ERROR]


def measure_all(
    rows: Iterable[Row],
    sections: Mapping[str, Section],
    measure: Callable[[Cell, float], tuple[Any, str | None]],
    *,
    until: float,
    write: Callable[[Sequence[Mapping[str, Any]]], None],
    renew: Callable[[], None] = lambda: None,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Measures rows in order, prints each when it is done, and has them written after each cell.

    Args:
        rows: the most important first.
        sections: by the rows' `section`.
        measure: see `Worker.measure`.
        until: when to end, by the monotonic clock.
        write: takes the rows so far.
        renew: called before and after the rows of a section that is `fresh`.

    Returns:
        the rows, and the names of those for which no time was left.
    """
    found: list[dict[str, Any]] = []
    left: list[str] = []
    before: str | None = None
    for row in rows:
        if time.monotonic() >= until:
            left.append(f"{row.section}: {row.name}")
            continue
        section = sections[row.section]
        if row.section != before:
            if section.fresh or (before is not None and sections[before].fresh):
                renew()
            print(f"\n{section.title:<32}" + "".join(f"{heading:>11}" for heading, _, _ in section.columns), flush=True)
            before = row.section
        result: dict[str, Any] = {"section": row.section, "name": row.name}
        found.append(result)
        for cell in row.cells:
            value, error = measure(cell, until) if time.monotonic() < until else (None, "no time was left")
            if error is None:
                result[cell.key] = value
            else:
                result.setdefault("errors", {})[cell.key] = error
            write(found)
        figures = (shown(value(result), how) for _, value, how in section.columns)
        print(f"  {row.name:<30}" + "".join(f"{figure:>11}" for figure in figures), flush=True)
        for key, error in result.get("errors", {}).items():
            print(f"    {key}: {error}", flush=True)
    return found, left


def shown(value: float | None, how: str) -> str:
    """Returns a figure of the table; what was not measured is a dash."""
    return "-" if value is None else format(value, how)


def at(*path: str) -> Callable[[Mapping[str, Any]], float | None]:
    """Returns the function that reads a row at a path of keys; None where nothing is."""

    def read(row: Mapping[str, Any]) -> float | None:
        value: Any = row
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return None if value is None else float(value)

    return read


def write_rows(path: Path, facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes the table so far: a reader finds the file of one moment, whole."""
    files.replace_file(path, (json.dumps({**facts, "rows": list(rows)}, indent=1) + "\n").encode())
