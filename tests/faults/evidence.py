"""What trials themselves say they have done, past everything that is tested: one line in one file for each step.

begin   a run of a trial starts, `from_seconds` being what lies behind the state that it goes on from
spent   its cost so far, in seconds
end     it has said its result
overlap another run of the same trial was alive when it began
"""

import dataclasses
import fcntl
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FILE = "FAULTS_EVIDENCE"  # the environment variable with the file's path


def write(what: str, number: int, seconds: float = 0.0) -> None:
    line = json.dumps({"what": what, "number": number, "pid": os.getpid(), "seconds": seconds}) + "\n"
    descriptor = os.open(os.environ[FILE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, line.encode())  # one write: lines of several processes do not mix
    os.close(descriptor)


def begin(number: int, from_seconds: float = 0.0) -> int:
    """Says that a run begins, and whether another one of this trial is alive. Keep the returned lock to the end."""
    lock = os.open(f"{os.environ[FILE]}.{number}", os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        write("overlap", number)
    write("begin", number, from_seconds)
    return lock


@dataclasses.dataclass(slots=True)
class Attempt:
    """One run of one trial."""

    number: int
    pid: int
    from_seconds: float
    seconds: float
    ended: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Evidence:
    attempts: Sequence[Attempt]
    overlaps: Sequence[int]  # numbers of trials

    @classmethod
    def read(cls, path: Path) -> "Evidence":
        attempts: list[Attempt] = []
        overlaps: list[int] = []
        alive: dict[tuple[int, int], Attempt] = {}
        lines: list[dict[str, Any]] = (
            [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        )
        for line in lines:
            number, pid, seconds = line["number"], line["pid"], line["seconds"]
            if line["what"] == "overlap":
                overlaps.append(number)
            elif line["what"] == "begin":
                attempts.append(Attempt(number, pid, seconds, seconds))
                alive[number, pid] = attempts[-1]
            else:
                alive[number, pid].seconds = max(alive[number, pid].seconds, seconds)
                alive[number, pid].ended |= line["what"] == "end"
        return cls(attempts, overlaps)

    def spent(self, number: int) -> float | None:
        """Returns what all runs of a trial have really cost; None: it never ran."""
        runs = [one for one in self.attempts if one.number == number]
        return sum(one.seconds - one.from_seconds for one in runs) if runs else None
