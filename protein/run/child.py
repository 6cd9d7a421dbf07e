"""The first code that runs in a trial's process, which is forked from a server that has imported the trainer.

Importing torch takes two to three seconds. Forking from a process that has imported it takes some hundredths of a
second. The trainer must not import this module, and this module must not import the trainer before it runs.
"""

import ctypes
import dataclasses
import importlib
import os
import signal
import sys
from collections.abc import Callable, Mapping

from protein.run import devices
from protein.types import Resources

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


# What a trial does. It is sent to the server, called with the sweep's pipe, and returns the exit code.
Work = Callable[[int], int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """What the server of trials is told of a trial that it is to start."""

    work: Work
    environment: Mapping[str, str]  # all variables
    working_directory: str
    path: list[str]  # where modules are looked for
    resources: Resources
    log: str | None  # a file for what the trial writes to stderr, which is then bounded; None: stderr is the sweep's


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command:
    """A command line that a trial runs inside of its process."""

    entry: str  # `module:function`; called with `arguments`, its return value is the exit code
    arguments: list[str]

    def __call__(self, output: int) -> int:
        """Runs it with stdout to the sweep. Returns the exit code."""
        os.dup2(output, 1)
        os.close(output)
        module, _, function = self.entry.partition(":")
        code: int = getattr(importlib.import_module(module), function)(self.arguments)
        return code


def become_trial(start: Start, server: int) -> None:
    """Makes this process a trial's: in a session of its own, on its own cores, with its own environment.

    When the server of trials dies, for any reason, the kernel kills this process. And it makes this process the parent
    of all that its descendants leave behind, in whatever session, so that the server finds them when the trial ends.
    Only Linux does these two. Elsewhere the trial fails at its next line of output (broken pipe) when the sweep has
    ended, and a child that has begun a session of its own outlives the trial.

    Args:
        start: of the trial.
        server: the process id of the server.
    """
    become_subreaper()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != server:  # it died before the line above took effect
            os._exit(1)
    os.setsid()  # so that Ctrl-C reaches the sweep alone, which then ends its trials in order
    os.environ.clear()
    os.environ.update(start.environment)
    os.environ.update(devices.environment(start.resources, start.environment))
    devices.pin(start.resources)
    sys.path[:] = start.path
    os.chdir(start.working_directory)


def become_subreaper() -> None:
    """Makes this process the parent of its orphaned descendants. Only Linux can."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
