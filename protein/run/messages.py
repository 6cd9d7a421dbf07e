"""Reads the trainer's JSON lines. Nothing here raises, whatever a process prints: lines that are no messages are text
for the log.

The trainer writes one object a line: `start`, any number of `measurement`, then one of `result`, `failed` and
`interrupted` (see `protein.trainer.events`).
"""

import math
from collections.abc import Mapping
from typing import Any

from protein.trainer.events import killed_by as killed_by
from protein.trainer.events import parse_line as parse_line
from protein.types import Measurement, is_score

MAX_STEPS = 2**53  # more is garbage, and would not fit the database

Message = Mapping[str, Any]


def measurement(message: Message) -> Measurement | None:
    """Returns a `measurement` message as a curve point, or None when it lacks usable steps and seconds."""
    count, elapsed = steps(message), seconds(message)
    if count is None or elapsed is None:
        return None
    return Measurement(
        steps=count,
        elapsed_seconds=elapsed,
        score=score(message),
        metrics=numbers(message.get("metrics")),
    )


def seconds(message: Message) -> float | None:
    """Returns the message's `elapsed_seconds` if it is a usable duration."""
    value = _number(message.get("elapsed_seconds"))
    return value if value is not None and value >= 0 else None


def steps(message: Message) -> int | None:
    """Returns the message's `steps` if it is a usable count."""
    value = _number(message.get("steps"))
    return int(value) if value is not None and 0 <= value <= MAX_STEPS else None


def score(message: Message) -> float | None:
    """Returns the message's `score`, or None when it is missing or no score (`protein.types.is_score`)."""
    value = _number(message.get("score"))
    return value if value is not None and is_score(value) else None


def numbers(value: object) -> dict[str, float]:
    """Returns the finite numbers of a JSON object by name, without its other values."""
    if not isinstance(value, dict):
        return {}
    return {str(key): number for key, item in value.items() if (number := _number(item)) is not None}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
