"""Slow work for pages: fits of the engine's models, which take seconds. A page never waits for them.

A piece of work has a name, such as a sweep and "front", and a version, such as its number of trials. One thread
does one piece after the other, so that pages and a running sweep keep the processor. A page that asks gets the newest
result that there is, is told whether it is of this version, and asks again while it is not.

The server stays small. Fits and forests load packages of 100 MB and make matrices of as much. So work that needs much
memory is done by a process of its own, which gives all of it back when it ends (`apart`), and what this process has
freed is given back to the system.
"""

import contextlib
import ctypes
import dataclasses
import functools
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from protein.errors import ProteinError

PATIENCE_SECONDS = 0.4  # how long an answer waits for a result that may be there at once
T = TypeVar("T")
_POLL_SECONDS = 0.2
_M_ARENA_MAX = -8  # of glibc's malloc.h
RETRY_SECONDS = 20.0  # after which a failure is tried again when it is asked for: a store may have been away
MAX_RESULTS = 64  # kept; the one that was asked for least recently is dropped
_NOT_YET = object()  # the version of a piece that is made again


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a page gets. `value` is of an earlier version where `state` is "computing", None where there is none.

    `state` is "ready", "computing" or "failed"; `error` is a line for people where it failed.
    """

    state: str
    value: Any = None
    error: str = ""


@dataclasses.dataclass(slots=True)
class _Piece:
    version: Hashable = None  # of `value` or `error`
    value: Any = None
    error: str = ""
    failed_at: float = 0.0  # on the monotonic clock
    wanted: Hashable = None  # the version that is waited for
    make: Callable[[], Any] | None = None
    done: threading.Event = dataclasses.field(default_factory=threading.Event)


class Background:
    """Does pieces of work, each once for each version. May be asked from any thread."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping
        self._pieces: OrderedDict[Hashable, _Piece] = OrderedDict()
        self._queue: OrderedDict[Hashable, None] = OrderedDict()
        self._lock = threading.Condition()
        self._thread: threading.Thread | None = None

    def ask(
        self,
        name: Hashable,
        version: Hashable,
        make: Callable[[], Any],
        *,
        patience: float | None = None,
        retry: float = RETRY_SECONDS,
    ) -> Progress:
        """Returns the result of a piece of work, or begins it and returns what is known so far.

        Args:
            name: of the piece.
            version: of what it is made from.
            make: does the work; only the newest request's is called.
            patience: seconds to wait for the result; None: `PATIENCE_SECONDS`.
            retry: seconds after which work that failed is done again.
        """
        with self._lock:
            piece = self._pieces.setdefault(name, _Piece())
            self._pieces.move_to_end(name)
            while len(self._pieces) > MAX_RESULTS:
                self._pieces.popitem(last=False)
            if piece.version == version and piece.wanted is None:
                if not piece.error or time.monotonic() - piece.failed_at < retry:
                    return self._progress(piece, version)
                piece.version = _NOT_YET
            if piece.wanted != version:
                piece.wanted, piece.make = version, make
                piece.done.clear()
                self._queue[name] = None
                self._begin()
                self._lock.notify()
        piece.done.wait(PATIENCE_SECONDS if patience is None else patience)
        with self._lock:
            return self._progress(piece, version)

    def known(self, name: Hashable) -> Progress | None:
        """Returns how far a piece of work is, without beginning it; None where nobody has asked for it."""
        with self._lock:
            piece = self._pieces.get(name)
            if piece is None:
                return None
            return self._progress(piece, piece.version if piece.wanted is None else piece.wanted)

    def _progress(self, piece: _Piece, version: Hashable) -> Progress:
        if piece.version != version:
            return Progress(state="computing", value=piece.value)
        return (
            Progress(state="failed", error=piece.error) if piece.error else Progress(state="ready", value=piece.value)
        )

    def _begin(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="protein-view-background", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            with self._lock:
                if not self._queue and not self._lock.wait_for(lambda: bool(self._queue), timeout=1.0):
                    continue
                name, _ = self._queue.popitem(last=False)
                piece = self._pieces.get(name)
                if piece is None or piece.make is None:
                    continue
                version, make = piece.wanted, piece.make
            value, error = None, ""
            try:
                value = make()
            except ProteinError as problem:
                error = str(problem)
            except Exception as problem:  # whatever it is, the pages go on without this result
                error = f"this could not be computed ({type(problem).__name__}: {problem})"
            with self._lock:
                if error:
                    piece.version, piece.error, piece.failed_at = version, error, time.monotonic()
                else:
                    piece.version, piece.value, piece.error = version, value, ""
                if piece.wanted == version:
                    piece.wanted = piece.make = None
                    piece.done.set()
                else:  # something newer was asked for meanwhile
                    self._queue[name] = None
            del value
            give_back()


def apart(stopping: threading.Event, work: Callable[..., T], *given: Any) -> T:
    """Returns what a function returns, called in a process of its own.

    When `stopping` is set, the process is ended. The arguments `given` and the result can be pickled.

    Raises:
        ProteinError: `work` has raised it, or the process has ended without an answer.
    """
    command = [sys.executable, "-P", "-m", "protein.web.background"]
    # From a file: what `communicate` could not write before it timed out is lost, and neither side would ever go on.
    with tempfile.TemporaryFile() as question:
        pickle.dump((work, given), question)
        question.seek(0)
        with subprocess.Popen(command, stdin=question, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            while True:
                try:
                    answer, _ = process.communicate(timeout=_POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
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
