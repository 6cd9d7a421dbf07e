"""Ctrl-C, SIGTERM and a closed terminal: the first signal asks the work to end in order, the second one kills it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def caught(stop: threading.Event) -> Iterator[None]:
    """Sets `stop` on the first signal, raises KeyboardInterrupt on the second, and restores the handlers at the end.

    The main thread must ask `stop.is_set()` and never wait for `stop`: the handler runs in that thread, and `set` would
    never get the lock that an interrupted `wait` holds.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    # An ignored signal stays ignored, so that `nohup protein sweep ...` outlives its terminal.
    wanted = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
