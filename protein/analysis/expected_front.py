"""The front of expected true scores: which configs are worth their cost, when luck is left out.

The measured front keeps the highest measured score for every cost. Of many noisy scores the highest is mostly a lucky
one, so that front is too good, and its last point is the luckiest trial. The expected front compares the same configs
by the posterior mean of their true score (`protein.engine.recommend`), which uses all runs of a config and what similar
configs scored. A lucky run moves its config only as far as the noise allows.

Notation
    c_i, mu_i   expected cost in seconds and posterior mean of the true score of contender i
    F(t)        max of mu_i over c_i <= t: a staircase that rises from left to right
    front       the contenders at which F rises, cheapest first; of equal ones the first

So F(t) is what `results.best(contenders, t)` recommends, for every t at once.
"""

from collections.abc import Sequence

from protein.engine import pareto
from protein.engine.results import Contender


def expected_front(contenders: Sequence[Contender]) -> list[Contender]:
    """Returns the contenders at which the best expected score rises with cost, cheapest first.

    Args:
        contenders: of one sweep (`recommend.contenders`), with scores that are to be maximised.
    """
    index = pareto.front_indices([c.score.value for c in contenders], [c.expected_cost_seconds for c in contenders])
    return [contenders[i] for i in index]
