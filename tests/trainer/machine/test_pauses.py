"""Whether the process was stopped, as each of its threads sees it."""

import hashlib
import os
import signal
import threading
import time

from protein.trainer.machine import pauses


def test_every_thread_sees_a_stop_while_the_main_one_computes() -> None:
    seen: list[int] = []

    def look() -> None:
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGCONT)
        time.sleep(0.1)
        seen.append(pauses.count())

    with pauses.watched():
        before = pauses.count()
        thread = threading.Thread(target=look)
        thread.start()
        while not seen:  # no handler of Python's runs within a call
            hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 3_000_000)
        thread.join()
        assert seen == [before + 1] and pauses.count() == before + 1
    assert pauses.count() == before + 1, "it is remembered afterwards"


def test_other_signals_are_no_stops_and_what_was_there_before_is_put_back() -> None:
    came: list[int] = []
    handlers = [signal.signal(one, lambda number, _: came.append(number)) for one in (signal.SIGUSR1, signal.SIGCONT)]
    try:
        with pauses.watched():
            before = pauses.count()
            os.kill(os.getpid(), signal.SIGUSR1)
            assert pauses.count() == before
        os.kill(os.getpid(), signal.SIGCONT)
        assert (came, pauses.count()) == ([signal.SIGUSR1, signal.SIGCONT], before)
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        for number, handler in zip((signal.SIGUSR1, signal.SIGCONT), handlers, strict=True):
            signal.signal(number, handler)
