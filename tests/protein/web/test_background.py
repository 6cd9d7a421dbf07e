"""Work in a process of its own: its result, its errors, its end."""

import copy
import operator
import os
import threading
import time

import pytest
from patience import PATIENCE_SECONDS

from protein import Integer, Space
from protein.errors import ProteinError, UsageError
from protein.units import parse_duration
from protein.web.background import apart, give_back


def test_the_result_of_the_other_process_comes_back() -> None:
    assert apart(threading.Event(), os.getpid) != os.getpid()
    assert apart(threading.Event(), operator.add, [1.5], ["a"]) == [1.5, "a"]


def test_a_question_may_be_larger_than_a_pipe_holds() -> None:
    """The other process begins to read long after the first look at it."""
    stopping = threading.Event()
    timer = threading.Timer(PATIENCE_SECONDS, stopping.set)  # instead of waiting for ever
    timer.start()
    assert apart(stopping, len, b"x" * 10_000_000) == 10_000_000
    timer.cancel()


def test_a_space_with_constraints_goes_there_and_back() -> None:
    space = Space([Integer("a", 1, 9), Integer("b", 1, 9)], constraints=["a * 2 <= b"])
    back = apart(threading.Event(), copy.copy, space)
    assert back == space
    assert [back.is_valid({"a": a, "b": 2}) for a in (1, 4)] == [True, False]


def test_what_it_prints_is_no_part_of_the_result() -> None:
    assert apart(threading.Event(), print, "x" * 100_000) is None


def test_an_error_for_people_is_raised_here() -> None:
    with pytest.raises(UsageError, match="--under"):
        apart(threading.Event(), parse_duration, "soon", "--under")


def test_a_process_that_dies_is_an_error() -> None:
    with pytest.raises(ProteinError, match="has ended with status 3; ask again"):
        apart(threading.Event(), os._exit, 3)


def test_it_ends_when_the_server_ends() -> None:
    stopping = threading.Event()
    timer = threading.Timer(0.5, stopping.set)
    timer.start()
    with pytest.raises(ProteinError, match="has ended"):
        apart(stopping, time.sleep, 600.0)
    timer.join()


def test_memory_is_given_back_without_a_word() -> None:
    give_back()
