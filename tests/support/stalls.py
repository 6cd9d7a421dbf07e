"""Runs a command while its processes are stopped at random moments, as a busy machine stops them.

    python tests/support/stalls.py --seed 0 -- python -m pytest -q tests/protein/sweep/test_loop.py

A test that fails here and not without it depends on the machine's speed: on which of two processes is faster, or on
what is done within a time. Stopped processes take no CPU, so this finds such tests also where others use the machine.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import time

import psutil


def stall(process: "subprocess.Popen[bytes]", draw: random.Random, longest: float) -> int:
    """Stops one, some or all processes of a family for a while, again and again, until it has ended."""
    while process.poll() is None:
        time.sleep(draw.uniform(0.05, longest))
        family: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(process.pid)
            family = [root, *root.children(recursive=True)]
        chosen = family if draw.random() < 0.3 else [one for one in family if draw.random() < 0.5]
        stopped = [one for one in chosen if _signal(one, signal.SIGSTOP)]
        time.sleep(draw.uniform(0.05, longest))
        for one in stopped:
            _signal(one, signal.SIGCONT)
    return process.returncode


def _signal(process: psutil.Process, number: signal.Signals) -> bool:
    """Sends a signal to a process that is still the same one. Returns whether it got it."""
    with contextlib.suppress(psutil.Error, ProcessLookupError):
        if process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED) or number == signal.SIGCONT:
            process.send_signal(number)
            return True
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--longest", type=float, default=1.5, help="seconds that a process is stopped or runs")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    words = given.command[1:] if given.command[:1] == ["--"] else given.command
    # A group of its own, so that a terminal's Ctrl-Z or Ctrl-C does not meet what is stopped here.
    process = subprocess.Popen(words, start_new_session=True)
    try:
        return stall(process, random.Random(given.seed), given.longest)
    except KeyboardInterrupt:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGCONT)
            os.killpg(process.pid, signal.SIGINT)
        return process.wait()


if __name__ == "__main__":
    raise SystemExit(main())
