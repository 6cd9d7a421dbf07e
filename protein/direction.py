"""Where a score's sign flips: scores are stored to be maximised, and shown as the user knows them.

Everything inside, the store included, maximises: the scores of a sweep that minimises are negated there. What the user
gives goes through `stored_score`. What the user sees goes through the `shown_` functions at the end, after everything
that compares scores (fronts, recommendations). For a sweep that maximises, these change nothing. Optuna's studies flip
their scores themselves, in `protein.optuna`.
"""

import dataclasses
from typing import TYPE_CHECKING, overload

from protein.types import Direction, Estimate, TrialRecord

if TYPE_CHECKING:
    from protein.engine.results import Contender


@overload
def stored_score(value: float, direction: Direction) -> float: ...
@overload
def stored_score(value: float | None, direction: Direction) -> float | None: ...
def stored_score(value: float | None, direction: Direction) -> float | None:
    """Returns a score of the user's as it is stored."""
    return _flipped(value, direction)


def stored_range(possible: tuple[float, float] | None, direction: Direction) -> tuple[float, float] | None:
    """Returns the lowest and the highest possible score of the user's as scores are stored; None for None."""
    if possible is None or direction is Direction.MAXIMIZE:
        return possible
    low, high = possible
    return stored_score(high, direction), stored_score(low, direction)


@overload
def shown_score(value: float, direction: Direction) -> float: ...
@overload
def shown_score(value: float | None, direction: Direction) -> float | None: ...
def shown_score(value: float | None, direction: Direction) -> float | None:
    """Returns a stored score as the user knows it."""
    return _flipped(value, direction)


def shown_estimate(value: Estimate | None, direction: Direction) -> Estimate | None:
    """Returns a predicted score as the user knows it."""
    if value is None or direction is Direction.MAXIMIZE:
        return value
    return Estimate(
        value=shown_score(value.value, direction),
        low=shown_score(value.high, direction),
        high=shown_score(value.low, direction),
    )


def shown_trial(record: TrialRecord, direction: Direction) -> TrialRecord:
    """Returns a trial whose score, prediction and curve are as the user knows them."""
    if direction is Direction.MAXIMIZE:
        return record
    return dataclasses.replace(
        record,
        score=shown_score(record.score, direction),
        predicted_score=shown_estimate(record.predicted_score, direction),
        curve=tuple(dataclasses.replace(point, score=shown_score(point.score, direction)) for point in record.curve),
    )


def shown_contender(one: "Contender", direction: Direction) -> "Contender":
    """Returns a config that could be recommended, with its scores as the user knows them."""
    if direction is Direction.MAXIMIZE:
        return one
    expected = shown_estimate(one.score, direction)
    assert expected is not None
    measured = tuple(shown_score(value, direction) for value in one.measured)
    return dataclasses.replace(one, score=expected, measured=measured)


def _flipped(value: float | None, direction: Direction) -> float | None:
    if value is None:
        return None
    return (value if direction is Direction.MAXIMIZE else -value) + 0.0  # + 0.0: no score is "-0.00"
