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
import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import psutil

from protein.columns import cell
from protein.direction import shown_score, shown_trial
from protein.engine import pareto
from protein.errors import ProteinError, UsageError
from protein.ports import Finished, Listener, SweepStatus
from protein.run.command import SECTION
from protein.spelling import counted
from protein.types import PREEMPTED, Outcome, ParamValue, SweepSpec, TrialEnd, TrialRecord, TrialState, unbroken

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


def in_words(error: BaseException) -> str:
    """Returns an error in one line. Of one that is not ours the kind is named, as its text may say little."""
    text = " ".join(str(error).split())
    return text if text and isinstance(error, ProteinError) else f"{type(error).__name__}: {text}".removesuffix(": ")


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


# Commands of the user's that a sweep calls when it has ended, or when it is in trouble: to send a message, to stop a
# rented machine.
#
# The command is a line for the shell. It finds the facts in its environment:
#
# | variable | holds |
# |---|---|
# | `PROTEIN_SWEEP` | name of the sweep |
# | `PROTEIN_REASON` | why it ended, or what the trouble is, in one line |
# | `PROTEIN_BEST_SCORE` | best measured score; empty without one |
# | `PROTEIN_BEST_TRIAL` | its number; empty without one |
# | `PROTEIN_TRIALS` | how many trials have finished |
# | `PROTEIN_SPENT_SECONDS` | what all trials have cost |
# | `PROTEIN_STORE` | the store, without a password |
#
# A command that fails, or takes too long, ends nothing: that is one line in the log.
#
# One that is called after each trial finds more:
#
# | variable | holds |
# |---|---|
# | `PROTEIN_TRIAL` | the trial's number |
# | `PROTEIN_STATE`, `PROTEIN_END` | "complete", "pruned" or "failed", and how it ended |
# | `PROTEIN_SCORE` | its score; empty without one |
# | `PROTEIN_COST_SECONDS`, `PROTEIN_STEPS` | what it has cost, and the steps it made |
# | `PROTEIN_PARAMS`, `PROTEIN_METRICS` | as JSON |
# | `PROTEIN_REASON` | why it failed or was cut short; empty else |
# | `PROTEIN_IS_BEST` | 1 where it has the best measured score so far; empty else |

BY_HAND_SECONDS = 5.0  # that calls after trials have left when a person has ended the sweep
HOOK_SECONDS = 60.0  # after which the command is killed
_MAX_OUTPUT = 300  # characters of what it printed that are quoted


def facts(status: SweepStatus, reason: str, store: str) -> dict[str, str]:
    """Returns the variables of the table above."""
    best = pareto.best_under(unbroken(status.trials, status.sweep.spec.limits))
    score = None if best is None else shown_score(best.score, status.sweep.spec.direction)
    values = {
        "PROTEIN_SWEEP": status.sweep.spec.name,
        "PROTEIN_REASON": " ".join(reason.split()),
        "PROTEIN_BEST_SCORE": "" if score is None else repr(score),
        "PROTEIN_BEST_TRIAL": "" if best is None else str(best.number),
        "PROTEIN_TRIALS": str(sum(trial.state.finished for trial in status.trials)),
        "PROTEIN_SPENT_SECONDS": f"{status.spent_seconds:.3f}",
        "PROTEIN_STORE": store,
    }
    return {name: value.replace("\0", "\ufffd") for name, value in values.items()}


def begin(
    flag: str, command: str, status: SweepStatus, reason: str, store: str, listener: Listener
) -> threading.Thread:
    """Calls a command in a thread, which is returned, so that trials are watched meanwhile. See `facts` and `call`."""
    arguments = (flag, command, facts(status, reason, store), listener.log)
    thread = threading.Thread(target=call, args=arguments, name=flag, daemon=True)
    thread.start()
    return thread


def call(
    flag: str, command: str, values: Mapping[str, str], log: Callable[[str], None], *, seconds: float = HOOK_SECONDS
) -> None:
    """Runs a command to its end, at most `seconds`. What goes wrong is logged as one line.

    Args:
        flag: as the user gave it, for the message.
        command: a line for the shell.
        values: variables that are added to the environment.
        log: takes the line.
        seconds: after which the command and all that it started are killed.
    """
    try:
        process = subprocess.Popen(
            command,
            shell=True,
            env={**os.environ, **values},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        log(f"{flag} cannot be started: {error}")
        return
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        log(f"{flag} was killed after {seconds:g} s, its limit: {command}")
        return
    if process.returncode:
        said = " ".join(output.decode(errors="replace").split())[-_MAX_OUTPUT:]
        log(f"{flag} failed with code {process.returncode}: {command}" + (f" ({said})" if said else ""))


def facts_of(trial: TrialRecord, status: SweepStatus, store: str) -> dict[str, str]:
    """Returns the variables of both tables above, for a trial that has just ended."""
    values = facts(status, trial.reason, store)
    score = shown_score(trial.score, status.sweep.spec.direction)
    own = {
        "PROTEIN_TRIAL": str(trial.number),
        "PROTEIN_STATE": str(trial.state),
        "PROTEIN_END": str(trial.end),
        "PROTEIN_SCORE": "" if score is None else repr(score),
        "PROTEIN_COST_SECONDS": f"{trial.cost_seconds:.3f}",
        "PROTEIN_STEPS": str(trial.steps),
        "PROTEIN_PARAMS": json.dumps(dict(trial.params)),
        "PROTEIN_METRICS": json.dumps(dict(trial.metrics)),
        "PROTEIN_IS_BEST": "1" if values["PROTEIN_BEST_TRIAL"] == str(trial.number) else "",
    }
    return values | own


class AfterTrials:
    """Calls a command or a function of the user's after each trial, one after the other, beside the loop."""

    def __init__(self, on_trial: str | Callable[[TrialRecord], object], store: str, log: Callable[[str], None]) -> None:
        self._on_trial, self._store, self._log = on_trial, store, log
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._work, name="on-trial", daemon=True)
        self._thread.start()

    def add(self, trial: TrialRecord, status: SweepStatus) -> None:
        """Has it called with a trial that has ended. Returns at once."""
        on_trial = self._on_trial
        if isinstance(on_trial, str):
            values = facts_of(trial, status, self._store)
            self._calls.put(lambda: call("--on-trial", on_trial, values, self._log))
        else:
            shown = shown_trial(trial, status.sweep.spec.direction)
            self._calls.put(lambda: self._call(on_trial, shown))

    def close(self, seconds: float) -> None:
        """Waits for the calls that are left, for so long at most. Those that have not begun then are left out."""
        self._calls.put(None)
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._given_up.set()
            left = max(self._calls.qsize() - 1, 0)
            self._log(
                f"{self._name} still ran {seconds:g} s after the sweep's end, and is not waited for;"
                f" {counted(left, 'trial was', 'trials were')} left out"
            )

    @property
    def _name(self) -> str:
        return "--on-trial" if isinstance(self._on_trial, str) else "on_trial"

    def _work(self) -> None:
        while (one := self._calls.get()) is not None and not self._given_up.is_set():
            one()

    def _call(self, function: Callable[[TrialRecord], object], trial: TrialRecord) -> None:
        try:
            function(trial)
        except BaseException as error:  # the sweep goes on whatever it is, also SystemExit
            self._log(f"on_trial failed at trial {trial.number}: {in_words(error)}")
