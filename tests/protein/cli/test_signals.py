"""Signals: the first ends in order, the second at once, and what was ignored stays ignored."""

import signal
import threading

import pytest

from protein.cli.signals import caught


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks_and_the_second_kills(number: signal.Signals) -> None:
    ours, stop = signal.signal(number, signal.SIG_DFL), threading.Event()  # `nohup` and `&` have signals ignored
    try:
        with caught(stop):
            signal.raise_signal(number)
            assert stop.is_set()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, ours)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before, stop = signal.signal(signal.SIGHUP, signal.SIG_IGN), threading.Event()
    try:
        with caught(stop):
            signal.raise_signal(signal.SIGHUP)
        assert not stop.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)
