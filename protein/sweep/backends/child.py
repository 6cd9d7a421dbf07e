"""The first thing that runs in a trial's process, forked from a server that has already imported the trainer.

Importing torch takes two to three seconds; forking from a process that has done it takes some hundredths. Nothing here
may be imported by the trainer, or import it before it runs.
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
    """Becomes the trial: its own session, stdout to the sweep, stderr to its log, and then `entry`.

    The fork server ends when the sweep does, however that ends, and the kernel then kills this process. Off Linux there
    is no such signal; a trial whose sweep is gone then ends at its next line of output (broken pipe).

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
    os.setsid()  # a Ctrl-C reaches the sweep alone, which then ends its trials in order
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
