"""The first code that runs in a trial's process, which is forked from a server that has imported the trainer.

Importing torch takes two to three seconds. Forking from a process that has imported it takes some hundredths of a
second. The trainer must not import this module, and this module must not import the trainer before it runs.
"""

import ctypes
import importlib
import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path

PR_SET_PDEATHSIG = 1
SAFE_PATH = "PYTHONSAFEPATH"  # the environment variable that keeps Python from searching the working directory first


def run(entry: str, arguments: list[str], output: Connection, log: Path, safe_path: str | None) -> None:
    """Runs the trial in this process, in a session of its own, with stdout to the sweep and stderr to the log.

    The server ends when the sweep ends, for any reason, and the kernel then kills this process. Only Linux does that.
    Elsewhere a trial whose sweep has ended fails at its next line of output (broken pipe).

    Args:
        entry: `module:function`; called with `arguments`, its return value is the exit code.
        arguments: the command line.
        output: the writing end of the sweep's pipe.
        log: appended to.
        safe_path: the value of `SAFE_PATH` for the trial, as the user has set it: the server has one of its own.
    """
    restore(SAFE_PATH, safe_path)
    server = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != server:  # the server died before the line above took effect
            sys.exit(1)
    os.setsid()  # so that Ctrl-C reaches the sweep alone, which then ends its trials in order
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 2)
    os.dup2(output.fileno(), 1)
    os.close(descriptor)
    output.close()
    module, _, function = entry.partition(":")
    sys.exit(getattr(importlib.import_module(module), function)(arguments))


def restore(name: str, value: str | None) -> None:
    """Gives an environment variable the value that it had; None: it was not set."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
