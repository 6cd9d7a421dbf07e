"""What commands print for scripts, and the files that they write."""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protein import files
from protein.errors import UsageError, remedy
from protein.units import format_duration
from protein.view import commands
from protein.view.text import MAX_CELL, cleaned

if TYPE_CHECKING:
    from rich.status import Status

    from protein.api.sweep_files import Moved


_TAKEN: ContextVar[list[Any] | None] = ContextVar("taken", default=None)


@contextlib.contextmanager
def taken() -> Iterator[list[Any]]:
    """Yields a list of what would be printed as JSON within the block: `protein mcp` answers with it."""
    values: list[Any] = []
    before = _TAKEN.set(values)
    try:
        yield values
    finally:
        _TAKEN.reset(before)


def print_json(value: Any) -> None:
    """Prints one JSON value; its keys are stable."""
    if (values := _TAKEN.get()) is not None:
        values.append(value)
        return
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def answer(as_json: bool, value: Any, lines: Iterable[str]) -> int:
    """Prints what a command has done, as JSON or in lines. Returns its exit code, 0."""
    if as_json:
        print_json(value)
        return 0
    from protein.view.tables import make_console  # late, as below

    console = make_console()
    for line in lines:
        console.print(line, soft_wrap=True)
    return 0


def working(what: str) -> "Status":
    """Returns a context in which a terminal shows that work goes on; elsewhere it prints nothing."""
    from rich.console import Console  # late: `protein --help` does not need it
    from rich.text import Text

    return Console(file=sys.stderr).status(Text(cleaned(what, MAX_CELL)))


class Progress:
    """Prints on stderr how far a long piece of work is, and how long it will take: a line every two seconds.

    Of short work it prints nothing.
    """

    SECONDS = 2.0

    def __init__(self, counted: str = "", *, shown: Callable[[float], str] = "{:,}".format) -> None:
        """`counted` says what the numbers count, as in "trials written"; `shown` makes a number a text."""
        self._counted, self._shown = f" {counted}" if counted else "", shown
        self._what: str | None = None
        self._printed = self._started = 0.0
        self._begun = 0

    def __call__(self, what: str, done: int, of: int, *, part: float = 0.0) -> None:
        """Prints a line if it is time for one. The first call for each `what` says where the work begins.

        Args:
            what: is done, in words.
            done: how much of it.
            of: how much there is to do.
            part: of the next one that is done, at most, in [0, 1).
        """
        now = time.monotonic()
        if what != self._what:
            self._printed = now if self._what is None else self._printed
            self._what, self._started, self._begun = what, now, done
        if now - self._printed < self.SECONDS:
            return
        self._printed = now
        line = f"{cleaned(what, MAX_CELL)}: {self._shown(min(done, of))} of {self._shown(of)}{self._counted}"
        reached = done + part
        if self._begun < reached < of:
            left = (now - self._started) / (reached - self._begun) * (of - reached)
            line += f", about {format_duration(max(round(left), 1))} left"
        print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an error while a file is written into one line. Raises `UsageError`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        also = remedy(error)
        raise UsageError(
            f"{path} cannot be written ({reason}); give another path{f' or {also}' if also else ''}"
        ) from error


def require_file(flag: str, path: Path) -> None:
    """Raises `UsageError` when a file cannot be written at `path`. Makes nothing."""
    if path.is_dir():
        raise UsageError(f"{flag} {path} is a folder; give the path of a file")
    with writing(path):
        files.require_replaceable(path)


def moved_plain(found: "Iterable[Moved]") -> list[dict[str, object]]:
    """Returns what was moved, for JSON."""
    return [
        {
            "sweep": one.name,
            "trials": one.num_trials,
            "points": one.num_points,
            "running": list(one.running),
            "paused": one.paused,
        }
        for one in found
    ]


def moved_lines(found: "Iterable[Moved]") -> list[str]:
    """Returns what was moved: a line each sweep."""
    said = []
    for one in found:
        trials = "1 trial" if one.num_trials == 1 else f"{one.num_trials:,} trials"
        line = f"{one.name}: {trials} with {one.num_points:,} curve points"
        if one.running:
            numbers = ", ".join(map(str, one.running[:5])) + (", ..." if len(one.running) > 5 else "")
            which, end = ("trial", "ends") if len(one.running) == 1 else ("trials", "end")
            line += f"; {which} {numbers} had not finished, and {end} as interrupted when the copy is resumed"
        if one.paused:
            line += f"; it is paused, and so is the copy, until {commands.command('resume', one.name)}"
        said.append(line)
    return said
