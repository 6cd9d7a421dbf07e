"""What must hold after every fault. Everything is read past the code that is tested: raw rows, processes, outputs.

A `Snapshot` holds the rows of all finished trials. Rows that were in an earlier snapshot must be in each later one,
bit for bit. Each function returns what is wrong, a line for each violation; nothing: all is well.
"""

import contextlib
import dataclasses
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg.rows import dict_row

from protein.types import TrialEnd
from tests.faults.evidence import Evidence

Row = dict[str, Any]
MARK = "FAULTS_MARK"  # an environment variable that every process of one disturbed sweep has inherited
COST_SECONDS_PER_KILL = 1.0
_FRAME = re.compile(r'^  File "([^"]+)"', re.MULTILINE)
_RUNNING = ("running", "waiting")
# A fault that ends a trial says nothing about its params: these ends have to be the trial's own.
_OWN_ENDS = (TrialEnd.COMPLETE, TrialEnd.CAPPED, TrialEnd.OUT_OF_BUDGET, TrialEnd.STOPPED_EARLY, TrialEnd.INTERRUPTED)


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """The trials of a store at one moment, as the database gives them; `finished` has all rows of each by its id."""

    trials: Sequence[Row]
    finished: Mapping[int, str]

    @classmethod
    def read(cls, url: str) -> "Snapshot":
        """Reads a store; empty where it has no tables yet."""
        with _connection(url) as select:
            trials = list(select("SELECT * FROM trials ORDER BY id"))
            rows = {row["id"]: [row] for row in trials if row["state"] not in _RUNNING}
            for table, order in (("measurements", "trial_id, position"), ("artifacts", "id")):
                for row in select(f"SELECT * FROM {table} ORDER BY {order}"):
                    if row["trial_id"] in rows:
                        rows[row["trial_id"]].append(row)
        return cls(trials, {key: repr(found) for key, found in rows.items()})


@contextlib.contextmanager
def _connection(url: str) -> Iterator[Any]:
    """Yields a function that returns the rows of a query; none where the table is missing."""
    connection: Any
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)
        connection.row_factory = lambda cursor, row: dict(zip([c[0] for c in cursor.description], row, strict=True))
        connection.execute("BEGIN")
    else:
        connection = psycopg.connect(url.replace("+psycopg", ""), row_factory=dict_row)
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")

    def select(query: str) -> list[Row]:
        try:
            return list(connection.execute(query).fetchall())
        except (sqlite3.OperationalError, psycopg.errors.UndefinedTable) as error:
            if "no such table" in str(error) or isinstance(error, psycopg.errors.UndefinedTable):
                connection.rollback()
                return []
            raise

    try:
        yield select
    finally:
        connection.close()


def changed(before: Snapshot, now: Snapshot) -> list[str]:
    """Every finished trial stays, and no bit of it changes."""
    numbers = {row["id"]: row["number"] for row in before.trials}
    return [
        f"finished trial {numbers[key]} {'has changed' if key in now.finished else 'is lost'}"
        for key, rows in before.finished.items()
        if now.finished.get(key) != rows
    ]


def misnumbered(now: Snapshot) -> list[str]:
    """Trials are numbered from 0 without gaps, each number once."""
    numbers = sorted(row["number"] for row in now.trials)
    twice = [number for number, count in Counter(numbers).items() if count > 1]
    wrong = [f"trial {number} is there {numbers.count(number)} times" for number in twice]
    gaps = sorted(set(range(len(set(numbers)))) - set(numbers))
    return wrong + [f"trial {number} is missing" for number in gaps]


def owned_twice(evidence: Evidence) -> list[str]:
    """No trial is run by two processes at once."""
    return [f"trial {number} was run by two processes at once" for number in evidence.overlaps]


def run_again(before: Snapshot, attempts_before: int, evidence: Evidence) -> list[str]:
    """No trial that had finished at a snapshot is run again. The snapshot knows how many runs had begun by then."""
    finished = {row["number"] for row in before.trials if row["id"] in before.finished}
    again = {one.number for one in evidence.attempts[attempts_before:]} & finished
    return [f"trial {number} was run again after it had finished" for number in sorted(again)]


def wrong_ends(now: Snapshot) -> list[str]:
    """A trial that ended for a fault is interrupted, and has not failed, also where it was killed itself."""
    odd = [row for row in now.trials if row["state"] not in _RUNNING and row["ended_as"] not in _OWN_ENDS]
    return [f"trial {row['number']} ended as {row['ended_as']}: {row['reason']!r:.120}" for row in odd]


def cost_errors(now: Snapshot, evidence: Evidence) -> dict[int, float]:
    """Returns by how many seconds each finished trial's stored cost is off from what it has really cost."""
    errors = {}
    for row in now.trials:
        spent = evidence.spent(row["number"])
        if row["state"] not in _RUNNING:
            errors[row["number"]] = row["cost_seconds"] + row.get("lost_seconds", 0.0) - (spent or 0.0)
    return errors


def wrong_cost(now: Snapshot, evidence: Evidence, kills: int) -> list[str]:
    """All costs together are off by at most `COST_SECONDS_PER_KILL`; that of a trial that was run once is exact.

    A trial may have been interrupted before it told that it ran: then its store says that it lost something.
    """
    errors = cost_errors(now, evidence)
    total = sum(abs(error) for error in errors.values())
    wrong = []
    if total > COST_SECONDS_PER_KILL * kills + 1e-6:
        worst = max(errors, key=lambda number: abs(errors[number]))
        wrong.append(f"costs are off by {total:.2f} s after {kills} kills, trial {worst} by {errors[worst]:+.2f} s")
    runs = Counter(one.number for one in evidence.attempts)  # what was run once was never interrupted
    whole = [row["number"] for row in now.trials if row["state"] == "complete" and not row.get("lost_seconds", 0.0)]
    complete = {number for number in whole if runs[number] == 1}
    return wrong + [
        f"the cost of complete trial {number} is off by {error:+.3f} s"
        for number, error in errors.items()
        if number in complete and abs(error) > 1e-6
    ]


def processes(mark: str) -> list[psutil.Process]:
    """Returns the living processes that carry a mark, zombies not counted."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            variables = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            if f"{MARK}={mark}".encode() in variables and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def left_behind(mark: str) -> list[str]:
    """No process of a sweep lives on after it."""
    wrong = []
    for process in processes(mark):
        with contextlib.suppress(psutil.Error):
            wrong.append(f"process {process.pid} was left behind: {' '.join(process.cmdline())[-160:]}")
    return wrong


def tracebacks(outputs: Iterable[Path]) -> list[str]:
    """No output of any process has a traceback, but of a Ctrl-C before Python has come to the program."""
    wrong = []
    for path in outputs:
        with contextlib.suppress(FileNotFoundError):
            _, *found = path.read_text(errors="replace").split("Traceback (most recent call last)")
            for one in found:
                files, last = _FRAME.findall(one), next((line for line in one.splitlines()[1:] if line[:1].strip()), "")
                if last != "KeyboardInterrupt" or not _is_pythons_start(files):
                    wrong.append(f"a traceback in {path.name}: {last:.200}")
    return wrong


def _is_pythons_start(files: Sequence[str]) -> bool:
    """Whether these files of a traceback are of what Python does before it runs the program: `site` loads others."""
    return files[:1] == ["<frozen site>"] or (bool(files) and all(file.startswith("<frozen ") for file in files))
