"""Whether this process was stopped for a while (Ctrl-Z, SIGSTOP). The clock goes on then, and the run does not."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

_MANY = 1 << 16  # bytes that a pipe holds
_count = 0
_signals: int | None = None  # the end of a pipe that a byte for every signal goes into
_turn = threading.Lock()


def count() -> int:
    """Returns how often a process that is `watched` has gone on after a stop. Any thread may ask."""
    global _count
    with _turn, contextlib.suppress(BlockingIOError):
        if _signals is not None:
            _count += os.read(_signals, _MANY).count(signal.SIGCONT)
    return _count


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Counts the stops meanwhile. Only the main thread can do that; elsewhere none is seen."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGCONT"):
        yield
        return

    # Python's own handlers wait until the main thread leaves a long call, such as of torch. The byte comes at once.
    global _signals
    before = signal.signal(signal.SIGCONT, lambda *_: None)
    _signals, writing = os.pipe()
    os.set_blocking(_signals, False)
    os.set_blocking(writing, False)
    other = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        count()
        signal.set_wakeup_fd(other)
        with _turn:
            os.close(_signals)
            os.close(writing)
            _signals = None
        signal.signal(signal.SIGCONT, before)
