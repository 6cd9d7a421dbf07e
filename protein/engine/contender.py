"""The configs that could be recommended, and which of them is: without the models that say what to expect of each.

So a command that shows answers which are known already need not load the models (`protein.api.answers`).
"""

import dataclasses
import math
from collections.abc import Sequence

from protein.engine import pareto
from protein.types import Estimate, Params

MODEL = "score model"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A config that could be recommended to the user."""

    params: Params
    score: Estimate  # the posterior of its true score
    expected_cost_seconds: float  # mean of what its runs cost, each from its first step, without other programs
    trials: tuple[int, ...]  # positions of its complete runs among the observations, oldest first
    measured: tuple[float, ...]  # their scores
    basis: str  # where `score` comes from: `MODEL`, with what went wrong in it, or "mean of its own runs, ..."

    @property
    def runs(self) -> int:
        """How often it was trained to its end."""
        return len(self.trials)


def best(contenders: Sequence[Contender], under_seconds: float = math.inf) -> Contender | None:
    """Returns the best expected contender among those expected to cost at most `under_seconds`, if any.

    Of contenders with the same expected score, the cheapest is taken.
    """
    affordable = [contender for contender in contenders if contender.expected_cost_seconds <= under_seconds]
    return max(affordable, key=lambda c: (c.score.value, -c.expected_cost_seconds), default=None)


def spoken_of(values: Sequence[float], costs: Sequence[float], measured: Sequence[float]) -> set[int]:
    """Returns which of n contenders some question about a recommendation names, whatever its limit of cost.

    These are for every limit the best expected and the best measured one, the cheapest one, and the knee.

    Args:
        values: `n`, expected scores.
        costs: `n`, expected costs in seconds.
        measured: `n`, the highest measured score of each.
    """
    kept: set[int] = set()
    rising: tuple[list[float], list[float]] = ([], [])
    for i in sorted(range(len(costs)), key=lambda i: (costs[i], i)):
        for best, value in zip(rising, (values[i], measured[i]), strict=True):
            if not best or value >= best[-1]:  # equal ones, too: which of them is named depends on the question
                best.append(value)
                kept.add(i)
    position = pareto.knee_index(values, costs)
    return kept if position is None else kept | {position}


def knee(contenders: Sequence[Contender]) -> Contender | None:
    """Returns the knee of the front of expected scores and costs; None where it has none (`pareto.knee_index`)."""
    position = pareto.knee_index([c.score.value for c in contenders], [c.expected_cost_seconds for c in contenders])
    return None if position is None else contenders[position]
