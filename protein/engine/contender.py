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


def knee(contenders: Sequence[Contender]) -> Contender | None:
    """Returns the knee of the front of expected scores and costs; None where it has none (`pareto.knee_index`)."""
    position = pareto.knee_index([c.score.value for c in contenders], [c.expected_cost_seconds for c in contenders])
    return None if position is None else contenders[position]
