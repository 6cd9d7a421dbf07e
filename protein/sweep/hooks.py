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
"""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping

from protein.direction import shown_score
from protein.engine import pareto
from protein.ports import Listener, SweepStatus

HOOK_SECONDS = 60.0  # after which the command is killed
_MAX_OUTPUT = 300  # characters of what it printed that are quoted


def facts(status: SweepStatus, reason: str, store: str) -> dict[str, str]:
    """Returns the variables of the table above."""
    best = pareto.best_under(status.trials)
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
