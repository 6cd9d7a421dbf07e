"""The space-filling initial design: scrambled Sobol points with the cost parameter in its cheapest share.

Where the first trials are spent decides what a small budget can buy: ten points over the whole box cost several times
what ten points at the cheap end cost, and teach hardly more about the other parameters.
"""

import numpy as np
from scipy.stats import qmc

from protein.engine.budget import AffordableCost
from protein.engine.gp import Array
from protein.engine.history import Known
from protein.space import Space

_NUM_POINTS = 256  # of the sequence that are looked through for valid ones
_NUM_LOOKED_AHEAD = 4
_MIN_COSTS = 3  # below this many known costs, a prediction without a cost parameter is a guess


def initial_points(space: Space, *, seed: int, cost_share: float, start: Array | None, pull: float) -> Array:
    """Returns a sequence of valid points, `n x d`, in the order in which the design takes them.

    Args:
        space: at most 21201 parameters (the Sobol generator's limit).
        seed: of the scrambling; the same seed gives the same sequence.
        cost_share: the cost parameter stays in this lowest share of its unit range, in (0, 1].
        start: the user's own config, `d`, or None.
        pull: every second point lies this share of the way from its place to `start`, in [0, 1]: half of the design
            covers the space, half the surroundings of what somebody already found worth running.
    """
    rng = np.random.default_rng([seed, 1])
    x = qmc.Sobol(space.num_dims, scramble=True, rng=rng).random(_NUM_POINTS)
    if start is not None and pull > 0:
        x[1::2] += pull * (start - x[1::2])
    if space.cost_index is not None:
        x[:, space.cost_index] *= cost_share
    x = space.canonical(x)
    x = x[space.valid(x)]
    return np.concatenate([x, space.sample(_NUM_POINTS, rng)])


def interleaved(chosen: Array, filling: Array, num_filling: int) -> Array:
    """Returns chosen points, `k x d`, and the first `num_filling` of `filling` in turn, then the rest of `filling`."""
    turns = max(len(chosen), num_filling)
    rows = [row for i in range(turns) for row in (*chosen[i : i + 1], *filling[:num_filling][i : i + 1])]
    return np.concatenate([np.array(rows), filling[num_filling:]]) if rows else filling


def next_initial_point(points: Array, known: Known, allowance: AffordableCost, *, find_cheap: bool) -> Array | None:
    """Returns the next point of the design that was not tried and is not running, `d`, or None when all were.

    The position follows from the trials themselves, so an interrupted point comes again and a finished one never does.
    With `find_cheap` (no cost parameter is known) it is, once a few costs are, the one of the next
    `_NUM_LOOKED_AHEAD` points that should cost least.
    """
    untried = known.untried(points)
    if not len(untried):
        return None
    if find_cheap and allowance.model is not None and len(known.costs) >= _MIN_COSTS:
        untried = untried[:_NUM_LOOKED_AHEAD]
        return np.asarray(untried[int(np.argmin(allowance.model.predict(untried)[0]))])
    return np.asarray(untried[0])
