"""Ctrl-C, SIGTERM and a closed terminal: the first asks the work to end in order, a second one kills."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def caught(stop: threading.Event) -> Iterator[None]:
    """Sets `stop` on the first signal and raises KeyboardInterrupt on a second; in the end all is as it was before."""

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    # What is ignored stays ignored: `nohup protein sweep ...` outlives its terminal.
    wanted = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
