"""Whether this process was stopped for a while (Ctrl-Z, SIGSTOP). The clock goes on then, and the run does not."""

import contextlib
import signal
import threading
from collections.abc import Iterator

_count = 0


def count() -> int:
    """Returns how often a process that is `watched` has gone on after a stop."""
    return _count


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Counts the stops meanwhile. Only the main thread can do that; elsewhere none is seen."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGCONT"):
        yield
        return

    def goes_on(*_: object) -> None:
        global _count
        _count += 1

    before = signal.signal(signal.SIGCONT, goes_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGCONT, before)
