"""Calls of the store, repeated for some minutes while it is unavailable, so that a long sweep is not lost.

A disk may be full for a while, or a server starts again. A server that dies between a commit and its answer leaves open
whether the write is stored. So what is stored is looked at before a write is repeated.
"""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from protein.errors import StoreUnavailable
from protein.ports import Listener

STORE_PATIENCE_SECONDS = 600.0  # how long an unavailable store is tried again
STORE_RETRY_SECONDS = 5.0
PAUSE_SECONDS = 0.1  # between two looks at whether the sweep is to stop

T = TypeVar("T")


class StoreCalls:
    """Calls the store for one sweep.

    Attributes:
        seconds: the wall clock that the store has taken, without waiting for it to be available.
    """

    def __init__(self, listener: Listener, stop: threading.Event) -> None:
        """Takes who is told when the store is unavailable, and what ends the waiting for it."""
        self.seconds = 0.0
        self._listener, self._stop = listener, stop

    def repeat(self, call: Callable[[], T], again: Callable[[], T] | None = None) -> T:
        """Calls the store, again and again while it is unavailable, for at most `STORE_PATIENCE_SECONDS`.

        Args:
            call: the first call, which may have been stored although its answer was lost.
            again: what is called from the second time on, where `call` must not be stored twice; None: `call`.

        Raises:
            StoreUnavailable: for too long, or when the sweep is to stop.
        """
        began = time.monotonic()
        while True:
            tried = time.monotonic()
            try:
                result = call()
            except StoreUnavailable as error:
                if time.monotonic() - began > STORE_PATIENCE_SECONDS or self._stop.is_set():
                    raise
                self._listener.log(f"the store is unavailable, trying again in {STORE_RETRY_SECONDS:.0f} s: {error}")
                self._pause(STORE_RETRY_SECONDS)
                call = again or call
            else:
                self.seconds += time.monotonic() - tried
                return result

    def _pause(self, seconds: float) -> None:
        """Waits, at most until the sweep is to stop. Not by `stop.wait`: a signal's handler may set `stop`."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._stop.is_set():
            time.sleep(min(PAUSE_SECONDS, seconds))
