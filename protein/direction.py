"""Scores as the user knows them: a sweep that minimises has them negated in its store, and nobody should see that.

Everything inside, the store included, maximises. What is shown goes through here at the very end, after what compares
scores (fronts, recommendations) has run.

Notation
    sign   what a score inside is multiplied with to be shown: 1 for a sweep that maximises, -1 for one that minimises
"""

import dataclasses
from typing import TYPE_CHECKING

from protein.types import Direction, Estimate, SweepSpec, TrialRecord

if TYPE_CHECKING:
    from protein.engine.recommend import (
        Contender,  # which loads the models, and no command that lists trials needs them
    )


def sign_of(spec: SweepSpec) -> float:
    """Returns a stored sweep's sign; only a sweep over a function can minimise."""
    return -1.0 if spec.direction is Direction.MINIMIZE else 1.0


def score(value: float | None, sign: float) -> float | None:
    return None if value is None else sign * value + 0.0  # + 0.0: no score is "-0.00"


def estimate(value: Estimate | None, sign: float) -> Estimate | None:
    if value is None or sign > 0:
        return value
    return Estimate(value=-value.value, low=-value.high, high=-value.low)


def trial(record: TrialRecord, sign: float) -> TrialRecord:
    """Returns a trial with its score, its prediction and its curve as they are shown."""
    if sign > 0:
        return record
    return dataclasses.replace(
        record,
        score=score(record.score, sign),
        predicted_score=estimate(record.predicted_score, sign),
        curve=tuple(dataclasses.replace(point, score=score(point.score, sign)) for point in record.curve),
    )


def contender(one: "Contender", sign: float) -> "Contender":
    """Returns a config that could be recommended with its scores as they are shown."""
    if sign > 0:
        return one
    expected = estimate(one.score, sign)
    assert expected is not None
    return dataclasses.replace(one, score=expected, measured=tuple(-value + 0.0 for value in one.measured))
