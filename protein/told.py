"""Reads what a user's own code tells, in whatever kind of number it has."""

from typing import Any

from protein.errors import UsageError


def number(value: Any, what: str) -> float:
    """Returns a number of any kind (of NumPy, a tensor of one element) as a float; it may be infinite or NaN.

    Raises:
        UsageError: it is none: "`what` must be a number, got ...".
    """
    try:
        if isinstance(value, str):  # float() would read some
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"{what} must be a number, got {shown(value)}") from error


def most_trials(value: Any) -> int | None:
    """Returns a limit of the number of trials, or None for none. Raises `UsageError` for anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"max_trials must be a whole number, 1 or more, or None for no limit, got {value!r}")
    return value


def shown(value: Any) -> str:
    """Returns the type and the beginning of a value, to end a message with."""
    return f"{type(value).__name__} {value!r:.80}"
