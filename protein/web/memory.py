"""Keeps the server small: work that needs much memory is done by a process of its own, and freed memory is given back.

Fits and forests load packages of 100 MB and make matrices of as much. A process that ends gives all of it back.
"""

import contextlib
import ctypes
import functools
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from protein.errors import ProteinError

T = TypeVar("T")
_POLL_SECONDS = 0.2
_M_ARENA_MAX = -8  # of glibc's malloc.h


def apart(stopping: threading.Event, work: Callable[..., T], *given: Any) -> T:
    """Returns what a function returns, called in a process of its own.

    Args:
        stopping: when it is set, the process is ended.
        work: a function of a module.
        given: its arguments, which can be pickled, as the result can.

    Raises:
        ProteinError: `work` has raised it, or the process has ended without an answer.
    """
    command = [sys.executable, "-m", "protein.web.memory"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        question: bytes | None = pickle.dumps((work, given))
        while True:
            try:
                answer, _ = process.communicate(question, timeout=_POLL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                question = None  # communicate() goes on with what it was given first
                if stopping.is_set():
                    process.kill()
    if process.returncode != 0:
        raise ProteinError(f"the process that computes this has ended with status {process.returncode}; ask again")
    found = pickle.loads(answer)  # of our own process
    if isinstance(found, BaseException):
        raise found
    value: T = found
    return value


def keep_small() -> None:
    """Makes the threads of this process share one heap: with one for each, most of them hold what they have freed."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Gives memory that was freed back to the system, where the C library can: glibc keeps much of it otherwise."""
    trim = _trim()
    if trim is not None:
        trim(0)


@functools.cache
def _trim() -> Callable[[int], int] | None:
    with contextlib.suppress(OSError, AttributeError, TypeError):
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
        return found
    return None


def main() -> None:
    """Answers one question: reads it from standard input, and writes the answer to standard output."""
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr  # what the work prints is no part of the answer
    work, given = pickle.load(sys.stdin.buffer)
    try:
        found = work(*given)
    except ProteinError as error:
        found = error
    pickle.dump(found, answers)


if __name__ == "__main__":
    main()
