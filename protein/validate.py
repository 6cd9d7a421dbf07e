"""Checks the values that a user's own code passes in, and makes plain Python values of them."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from protein.errors import UsageError
from protein.reporting import is_truth
from protein.types import Direction

MAX_DEPTH = 16  # of lists and tables in each other


def number(value: Any, what: str) -> float:
    """Returns a number of any kind (of NumPy, a tensor of one element) as a float; it may be infinite or NaN.

    Raises:
        UsageError: "`what` must be a number, got ..." for anything else.
    """
    try:
        if isinstance(value, str | bytes):  # float() would read some
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"{what} must be a number, got {shown(value)}") from error


def score_of(value: Any, what: str) -> float:
    """Returns a score, as `number` does, and raises as it does for a bool, too: that is an answer, and no measure."""
    if is_truth(value):
        raise UsageError(f"{what} must be a number, got {shown(value)}")
    return number(value, what)


def seconds(value: Any, what: str) -> float | None:
    """Returns a limit of seconds, above 0, or None for none. Raises `UsageError` for anything else."""
    if value is None:
        return None
    limit = math.nan if isinstance(value, bool) else number(value, what)
    if not (math.isfinite(limit) and limit > 0):
        raise UsageError(f"{what} must be above 0 seconds, or None for no limit, got {value}")
    return limit


def seed(value: Any) -> int:
    """Returns a seed. Raises `UsageError` for anything but a whole number, 0 or more."""
    return _whole(value, "seed must be a whole number, 0 or more", 0)


def most_trials(value: Any) -> int | None:
    """Returns a limit of the number of trials, or None for none. Raises `UsageError` for anything else."""
    if value is None:
        return None
    return _whole(value, "max_trials must be a whole number, 1 or more, or None for no limit", 1)


def contenders(value: Any) -> int | None:
    """Returns how many contenders are compared, or None where it is not said. Raises `UsageError` for anything else."""
    if value is None:
        return None
    return _whole(value, "contenders must be a whole number, 2 or more, as one alone is compared with nothing", 2)


def workers(value: Any) -> int | None:
    """Returns a number of workers, or None where it follows from the GPUs. Raises `UsageError` for anything else."""
    if value is None:
        return None
    return _whole(value, "workers must be a whole number, 1 or more", 1)


def direction(value: Any) -> Direction:
    """Returns a direction. Raises `UsageError` for anything but "maximize" and "minimize"."""
    if value not in tuple(Direction):
        raise UsageError(f"direction must be 'maximize' or 'minimize', got {value!r}")
    return Direction(value)


def score_range(value: Any, what: str = "score_range") -> list[float | None] | None:
    """Returns the lowest and the highest possible score as a sweep keeps them: None for an end that is open.

    Raises:
        UsageError: no pair of numbers, the lowest first.
    """
    if value is None:
        return None
    pair = None if isinstance(value, str | Mapping) or not isinstance(value, Iterable) else list(value)
    if pair is None or len(pair) != 2:
        raise UsageError(f"{what} must be the lowest and the highest possible score, as in (0, 1), got {shown(value)}")
    ends: list[float | None] = []
    for given, open_end in zip(pair, (-math.inf, math.inf), strict=True):
        end = plain(given)
        if end is not None and (isinstance(end, bool) or not isinstance(end, int | float) or math.isnan(end)):
            raise UsageError(f"{what}: {given!r:.80} is not a number; give numbers, and None for an open end")
        ends.append(None if end is None or end == open_end else float(end))
    low, high = ends
    if low is None and high is None:
        raise UsageError(f"{what} has two open ends, so it says nothing; leave it out")
    if not (-math.inf if low is None else low) < (math.inf if high is None else high):
        raise UsageError(f"{what}: the lowest score {low} is not below the highest {high}; swap them or widen it")
    return ends


def listed(values: Any, what: str) -> list[Any]:
    """Returns the values of an iterable. Raises `UsageError`, "`what`, got ...", for text, a mapping, anything else."""
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise UsageError(f"{what}, got {shown(values)}")
    return list(values)


def plain(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Returns a scalar of NumPy as a bool, number or text of Python, and tuples as lists; anything else unchanged.

    Lists and tables are copies, down to a `depth`.
    """
    if isinstance(value, list | tuple) and depth > 0:
        return [plain(one, depth - 1) for one in value]
    if isinstance(value, dict) and depth > 0:
        return {name: plain(one, depth - 1) for name, one in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def is_json(value: Any, depth: int = MAX_DEPTH) -> bool:
    """Whether a value can be one of JSON's, nested no deeper than `depth`: no NaN or infinity, texts as keys."""
    if isinstance(value, list):
        return depth > 0 and all(is_json(one, depth - 1) for one in value)
    if isinstance(value, dict):
        return depth > 0 and all(isinstance(name, str) and is_json(one, depth - 1) for name, one in value.items())
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int | str)


def plain_params(params: Any) -> Any:
    """Returns a copy of params with plain values; anything but a mapping unchanged, for `Space.validate` to reject."""
    return {name: plain(value) for name, value in params.items()} if isinstance(params, Mapping) else params


def shown(value: Any) -> str:
    """Returns the type and the beginning of a value in one line, to end a message with."""
    return f"{type(value).__name__} {' '.join(repr(value).split()):.80}"


def _whole(value: Any, what: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise UsageError(f"{what}, got {value!r}")
    return int(value)
