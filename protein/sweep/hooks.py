"""Commands of the user's that a sweep calls when it has ended, or when it is in trouble: to send a message, to stop a
rented machine.

The command is a line for the shell. It finds the facts in its environment:

| variable | holds |
|---|---|
| `PROTEIN_SWEEP` | name of the sweep |
| `PROTEIN_REASON` | why it ended, or what the trouble is, in one line |
| `PROTEIN_BEST_SCORE` | best measured score; empty without one |
| `PROTEIN_BEST_TRIAL` | its number; empty without one |
| `PROTEIN_TRIALS` | how many trials have finished |
| `PROTEIN_SPENT_SECONDS` | what all trials have cost |
| `PROTEIN_STORE` | the store, without a password |

A command that fails, or takes too long, ends nothing: that is one line in the log.

One that is called after each trial finds more:

| variable | holds |
|---|---|
| `PROTEIN_TRIAL` | the trial's number |
| `PROTEIN_STATE`, `PROTEIN_END` | "complete", "pruned" or "failed", and how it ended |
| `PROTEIN_SCORE` | its score; empty without one |
| `PROTEIN_COST_SECONDS`, `PROTEIN_STEPS` | what it has cost, and the steps it made |
| `PROTEIN_PARAMS`, `PROTEIN_METRICS` | as JSON |
| `PROTEIN_REASON` | why it failed or was cut short; empty else |
| `PROTEIN_IS_BEST` | 1 where it has the best measured score so far; empty else |
"""

import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping

from protein.direction import shown_score, shown_trial
from protein.engine import pareto
from protein.errors import in_words
from protein.ports import Listener, SweepStatus
from protein.spelling import counted
from protein.types import TrialRecord, unbroken

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
