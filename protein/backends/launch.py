"""Becomes the trial's process, after asking the kernel to kill it when the sweep dies.

Run as a script, `python -I launch.py SWEEP_PID COMMAND...`: the setting survives `exec`, and doing it here instead of
in a `preexec_fn` keeps Python code out of the window between fork and exec, unsafe in a process with threads.
Off Linux there is no such setting; a trial whose sweep is gone then ends at its next line of output (broken pipe).
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    sweep_pid, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != sweep_pid:  # the sweep died before the line above took effect
        sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
