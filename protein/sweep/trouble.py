"""What is wrong, and ends a sweep or holds its trials back: failures in a row, preemptions, a full disk or memory.

After `MAX_FAILURES_IN_A_ROW` trials that failed one after the other, something is broken that other params will not
mend, or the sweep searches where nothing works. So no other trial is started, and the sweep says what the failed trials
share and the successful ones don't.

A preemption says nothing about a trial. But where trials lose their places one after the other, and none gets as far as
a report, the places are broken. Otherwise the sweep would go on trying without end.

One trial is enough where it shows that no trial can work: see `fatal`.

While too little disk is free, no trial is started; the sweep goes on by itself when there is room again. While too
little memory is free, the youngest trial is ended, and waits: otherwise the system would choose a process to kill, and
it might choose the sweep. Memory is that of the machine. The limit of a container is not seen here.
"""

import collections
import re
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import psutil

from protein.columns import cell
from protein.errors import UsageError
from protein.ports import Finished
from protein.run.command import SECTION
from protein.spelling import counted
from protein.types import PREEMPTED, Outcome, ParamValue, SweepSpec, TrialEnd, TrialRecord, TrialState

MAX_FAILURES_IN_A_ROW = 10
MAX_PREEMPTIONS_IN_A_ROW = 10  # and at least two for each trial that has run beside others
CHECK_SECONDS = 5.0
MIN_FREE_DISK_BYTES = 512 << 20  # for trials that write checkpoints or whatever they like
MIN_FREE_DISK_OF_STORE_BYTES = 32 << 20  # where nothing but the store is written
MIN_FREE_MEMORY_SHARE, MIN_FREE_MEMORY_BYTES = 0.03, 512 << 20  # the smaller of the two
_MAX_SHARED = 3  # parameters that are named
_MAX_REASON = 200  # characters
_NOT_LOADED = re.compile(r"(?:^|: )(?:SyntaxError|IndentationError|TabError|ImportError|ModuleNotFoundError): ")


def fatal(event: Finished, spec: SweepSpec, trials: Collection[TrialRecord]) -> BaseException | None:
    """Returns why no other trial makes sense after this one; None: others do.

    It is a mistake in the function or in the command, or a full disk. A command that ends without a score, or refuses
    its arguments, has a mistake only where no trial has had a score; elsewhere the trial has failed for its params. A
    program that cannot be loaded may lack a module that only some params need, so a second trial has to fail alike.
    """
    if event.error is not None:
        return event.error
    outcome, number = event.outcome, event.trial.number
    if outcome.end is TrialEnd.DISK:
        return UsageError(f"trial {number} failed, {outcome.reason}; then run the same command again to resume")
    if any(one.score is not None for one in trials):
        return None
    correct = f"Correct it and run the sweep again{', with --accept-changes' if SECTION in spec.config else ''}"
    if outcome.end is TrialEnd.MISTAKE:
        return UsageError(f"trial {number}: {outcome.reason}. {correct}")
    if _NOT_LOADED.search(outcome.reason):
        same = [one.number for one in trials if one.number != number and one.reason == outcome.reason]
        if same:
            return UsageError(f"trials {same[-1]} and {number} failed in the same words: {outcome.reason}. {correct}")
    return None


def shortened(trial: TrialRecord) -> str:
    """Returns a trial's reason, or how it has ended, in one line that is not too long."""
    return " ".join((trial.reason or str(trial.end)).split())[:_MAX_REASON]


class Failures:
    """Counts the failures in a row, those of a command that cannot be started included.

    Others that tell nothing about a trial's params do not count, nor end a row.
    """

    def __init__(self) -> None:
        self._row: list[TrialRecord] = []

    def add(self, trial: TrialRecord) -> None:
        """Counts a trial that has finished."""
        if trial.state is not TrialState.FAILED:
            self._row = []
        elif trial.end is not None and (trial.end.teaches or trial.end is TrialEnd.MISTAKE):
            self._row.append(trial)

    @property
    def too_many(self) -> bool:
        return len(self._row) >= MAX_FAILURES_IN_A_ROW

    def explanation(self, trials: Collection[TrialRecord]) -> str:
        """Returns in one line what the failed trials share; `trials` are all of the sweep."""
        row = self._row
        good = [trial for trial in trials if trial.state is TrialState.COMPLETE and not trial.excluded]
        last = " ".join(row[-1].reason.split())[:_MAX_REASON]
        parts = [f"{counted(len(row), 'trial')} in a row failed, the last one with: {last}"]
        reason, count = collections.Counter(trial.reason for trial in row).most_common(1)[0]
        if count == len(row):
            parts.append("all have the same reason")
        elif count > 1:
            parts.append(f"{count} of them with: {' '.join(reason.split())[:_MAX_REASON]}")
        parts += shared_params(row, good)[:_MAX_SHARED]
        machines = {trial.provenance.machine for trial in row}
        if len(machines) == 1 and good and machines.isdisjoint(trial.provenance.machine for trial in good):
            parts.append(f"all ran on {machines.pop()}, where no trial has succeeded")
        if not good:
            parts.append("no trial of this sweep has succeeded yet")
        log = row[-1].artifact("log")
        return "; ".join(parts) + (f"; see {log}" if log else "")


class Preemptions:
    """Counts the preemptions in a row. A report of any trial, and any other end, ends the row."""

    def __init__(self) -> None:
        self._reasons: list[str] = []
        self._together = 0  # the most trials that ran at once during this row

    def add(self, outcome: Outcome, num_running: int) -> None:
        """Counts a trial's end; `num_running` trials ran at that moment, itself included."""
        if outcome.end is TrialEnd.INTERRUPTED and outcome.reason.startswith(PREEMPTED):
            self._reasons.append(outcome.reason.removeprefix(PREEMPTED))
            self._together = max(self._together, num_running)
        else:
            self.end_row()

    def end_row(self) -> None:
        """A trial has got somewhere."""
        self._reasons, self._together = [], 0

    @property
    def too_many(self) -> bool:
        """Whether the places are broken. A whole cluster that dies at once, once, is no row of its own."""
        return len(self._reasons) >= max(MAX_PREEMPTIONS_IN_A_ROW, 2 * self._together)

    def explanation(self) -> str:
        """Returns in one line why trials lost their places."""
        last = " ".join(self._reasons[-1].split())[:_MAX_REASON]
        times = counted(len(self._reasons), "time")
        parts = [f"trials were preempted {times} in a row before any report, the last time: {last}"]
        if len(set(self._reasons)) == 1:
            parts.append("the reason was always the same")
        return "; ".join([*parts, "look at the machines where trials run, or name others"])


class Watch:
    """The state of the machine, looked at every few seconds.

    Attributes:
        disk: what is wrong with the disk, in words; "" if nothing is.
        memory: the same of the memory.
    """

    def __init__(self, places: Sequence[Path], min_free_disk_bytes: int) -> None:
        """Looks at nothing yet.

        Args:
            places: files and folders on whose disks there must be room. They need not exist yet.
            min_free_disk_bytes: how much room there must be on each.
        """
        self._places, self._min_free_disk = places, min_free_disk_bytes
        self._looked_at: float | None = None
        self.disk = self.memory = ""

    def look(self) -> bool:
        """Looks at the machine if it is time. Returns whether it has looked."""
        now = time.monotonic()
        if self._looked_at is not None and now - self._looked_at < CHECK_SECONDS:
            return False
        self._looked_at = now
        self.disk = _disk(self._places, self._min_free_disk, low=bool(self.disk))
        self.memory = _memory(low=bool(self.memory))
        return True


def shared_params(failed: Sequence[TrialRecord], good: Sequence[TrialRecord]) -> list[str]:
    """Returns in words which values of parameters all failed trials share and no successful one has.

    Nothing is said where no trial has succeeded: then every parameter would tell them apart. Nor is it of a parameter
    that is active in no successful trial: what it depends on tells them apart.
    """
    found = []
    for name in failed[0].params if good else ():
        bad = [cell(trial.params[name]) for trial in failed if name in trial.params]
        fine = [cell(trial.params[name]) for trial in good if name in trial.params]
        if len(bad) < len(failed) or not fine:
            continue
        if all(map(_is_number, [*bad, *fine])):
            line = _beyond(name, [float(value) for value in bad], [float(value) for value in fine])
            if line is not None:
                found.append(line)
        elif not set(bad) & set(fine):
            found.append(f"all have {name} = {' or '.join(sorted({str(value) for value in bad}))}, no success has")
    return found


def _is_number(value: ParamValue | None) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _beyond(name: str, bad: list[float], fine: list[float]) -> str | None:
    if min(bad) > max(fine):
        return f"all have {name} >= {min(bad):.4g}, successes at most {max(fine):.4g}"
    if max(bad) < min(fine):
        return f"all have {name} <= {max(bad):.4g}, successes at least {min(fine):.4g}"
    return None


def _disk(places: Sequence[Path], least: int, *, low: bool) -> str:
    floor = least * (1.25 if low else 1.0)  # a little more, so that it does not go to and fro
    for place in places:
        there = next((path for path in (place.absolute(), *place.absolute().parents) if path.exists()), None)
        if there is None:
            continue
        try:
            free = psutil.disk_usage(str(there)).free
        except OSError:
            continue
        if free < floor:
            return f"{_mib(free)} are free on the disk of {place}, below the limit of {_mib(floor)}"
    return ""


def _memory(*, low: bool) -> str:
    memory = psutil.virtual_memory()
    floor = min(MIN_FREE_MEMORY_SHARE * memory.total, MIN_FREE_MEMORY_BYTES) * (2.0 if low else 1.0)
    if memory.available >= floor:
        return ""
    return f"{_mib(memory.available)} of this machine's memory are free, below the limit of {_mib(floor)}"


def _mib(size: float) -> str:
    return f"{size / (1 << 20):,.0f} MiB"
