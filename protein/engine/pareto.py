"""The Pareto front of score (higher is better) against cost (lower is better), its knee and its hypervolume.

Notation
    s_i, c_i   score and cost in seconds of a record; costs below `MIN_COST_SECONDS` count as that, so that ln c exists
    f(t)       the best score at cost <= t: a staircase that rises from left to right
    front      the records at which the staircase rises, cheapest first

Only COMPLETE records with a score take part, unless a person has excluded them. A failed trial has no score, and a
stopped one was not measured to its end. A record that has continued another one counts with the cost of the whole run.
"""

import math
from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from protein.types import TrialState

MIN_COST_SECONDS = 1e-3  # below the resolution that any trial's cost has
_ROUNDING = 1e-9  # a point that lies above the chord by less lies on it


class Scored(Protocol):
    """What the functions below need of a record: `Observation` and `TrialRecord` both have it."""

    @property
    def state(self) -> TrialState: ...
    @property
    def score(self) -> float | None: ...
    @property
    def run_seconds(self) -> float: ...
    @property
    def excluded(self) -> bool: ...


R = TypeVar("R", bound=Scored)


def front(records: Sequence[R]) -> list[R]:
    """Returns the non-dominated records, cheapest first; of equal ones the first."""
    done = _complete(records)
    return [done[i] for i in front_indices([_score(r) for r in done], [r.run_seconds for r in done])]


def front_indices(scores: ArrayLike, costs: ArrayLike) -> NDArray[np.intp]:
    """Returns which of n points no other point beats, cheapest first, `num_front`.

    Args:
        scores: `n`, finite.
        costs: `n`, in seconds.
    """
    s, c = np.asarray(scores, dtype=np.float64), _clamp(costs)
    order = np.lexsort((-s, c))  # by cost, at equal cost the better score first; stable, so the earlier of equal ones
    if not len(order):
        return order
    best_before = np.concatenate([[-np.inf], np.maximum.accumulate(s[order])[:-1]])
    return np.asarray(order[s[order] > best_before])


def best_under(records: Sequence[R], seconds: float = math.inf) -> R | None:
    """Returns the complete record of highest score that cost at most `seconds` (of equal ones the cheapest), if any."""
    affordable = [record for record in front(records) if record.run_seconds <= seconds]
    return affordable[-1] if affordable else None


def knee_index(scores: ArrayLike, costs: ArrayLike) -> int | None:
    """Returns which of n points is the front's knee, or None when the front has none.

    The knee is the point that lies furthest above the chord, the line from the cheapest to the most expensive point of
    the front, with both axes (score, ln cost) scaled to [0, 1]. Up to the knee, cost buys more than on average; beyond
    it, less. Where no point lies above the chord, there is no such place and no knee: on a front of one or two points,
    and on a front that keeps rising ever more steeply.

    Args:
        scores: `n`, finite.
        costs: `n`, in seconds.
    """
    index = front_indices(scores, costs)
    if len(index) <= 2:
        return None
    s, t = np.asarray(scores, dtype=np.float64)[index], np.log(_clamp(costs)[index])
    above = (s - s[0]) / (s[-1] - s[0]) - (t - t[0]) / (t[-1] - t[0])
    furthest = int(np.argmax(above))
    return int(index[furthest]) if above[furthest] > _ROUNDING else None


def hypervolume(scores: ArrayLike, costs: ArrayLike, *, reference_score: float, reference_cost: float) -> float:
    """Returns the area between the staircase and the reference in (score, ln cost), in score units times e-folds.

    It is the integral of max(0, f(t) - reference_score) over ln t up to ln reference_cost.

    Args:
        scores: `n`, finite.
        costs: `n`, in seconds.
        reference_score: score that counts for nothing.
        reference_cost: cost in seconds, above 0, from which on nothing counts.

    Raises:
        ValueError: when `reference_cost` is not above 0 or the reference is not finite.
    """
    if not (math.isfinite(reference_score) and math.isfinite(reference_cost) and reference_cost > 0):
        raise ValueError(
            f"a reference needs a finite score and a cost above 0, got {reference_score}, {reference_cost}"
        )
    s, c = np.asarray(scores, dtype=np.float64), _clamp(costs)
    counts = (s > reference_score) & (c < reference_cost)
    s, c = s[counts], c[counts]
    index = front_indices(s, c)
    edges = np.log(np.append(c[index], reference_cost))
    return float(np.sum((s[index] - reference_score) * np.diff(edges)))


def _complete(records: Sequence[R]) -> list[R]:
    complete = (record for record in records if record.state is TrialState.COMPLETE and not record.excluded)
    return [record for record in complete if record.score is not None]


def _score(record: Scored) -> float:
    assert record.score is not None
    return record.score


def _clamp(costs: ArrayLike) -> NDArray[np.float64]:
    return np.maximum(np.asarray(costs, dtype=np.float64), MIN_COST_SECONDS)
