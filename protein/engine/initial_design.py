"""The space-filling initial design: scrambled Sobol points with the cost parameter in its cheapest share.

Where the first trials lie decides what a small budget can buy. Ten points over the whole box cost several times as much
as ten points at the cheap end, and teach hardly more about the other parameters.
"""

import numpy as np

from protein.engine.budget import AffordableCost
from protein.engine.gp import Array
from protein.engine.history import History
from protein.space import Categorical, Space

_NUM_POINTS = 256  # of the sequence, of which the valid ones are kept
_NUM_LOOKED_THROUGH = 4  # next points of the design; without a cost parameter, the cheapest of them is taken
_MIDDLE_COST = 1 / 3
_MAX_OTHER_CHOICES = 4  # points of the design
_MIN_COSTS = 3  # with fewer measured costs, a prediction without a cost parameter is a guess


def initial_points(space: Space, *, seed: int, cost_share: float, start: Array | None, pull: float) -> Array:
    """Returns a sequence of valid points, `n x d`, in the order in which the design takes them.

    Args:
        space: at most 21201 parameters (the Sobol generator's limit).
        seed: of the scrambling; the same seed gives the same sequence.
        cost_share: the cost parameter stays in this lowest share of its unit range, in (0, 1].
        start: the sweep's first trial, `d`, or None.
        pull: every second point is moved this share of the way to `start`, in [0, 1]. So half of the design covers the
            space, and half covers the surroundings of a config that the user believes in.
    """
    from scipy.stats import qmc  # late: it takes as long to load as all the rest of the engine

    rng = np.random.default_rng([seed, 1])
    x = qmc.Sobol(space.num_dims, scramble=True, rng=rng).random(_NUM_POINTS)
    if start is not None and pull > 0:
        x[1::2] += pull * (start - x[1::2])
    if space.cost_index is not None:
        x[:, space.cost_index] *= cost_share
    x = space.canonical(x)
    x = x[space.valid(x)]
    return np.concatenate([x, space.sample(_NUM_POINTS, rng)])


def middle(space: Space) -> Array:
    """Returns where a sweep without an initial config begins, `d`: in the middle of every range.

    People place ranges around what they believe in. The cost parameter is at the end of the lower third of its range,
    and a choice is the one that is named first. Where a constraint forbids that, it is the nearest of some valid ones.
    """
    x = np.full(space.num_dims, 0.5)
    for i, parameter in enumerate(space.parameters):
        if isinstance(parameter, Categorical):
            x[i] = parameter.encode(np.zeros(1))[0]
    if space.cost_index is not None:
        x[space.cost_index] = _MIDDLE_COST
    x = space.canonical(x[None, :])
    if not space.valid(x)[0]:
        near = space.sample(_NUM_POINTS, np.random.default_rng(0))
        x = near[np.argmin(np.sum((near - x) ** 2, axis=1))][None, :]
    return np.asarray(x[0])


def other_choices(space: Space, x: Array) -> Array:
    """Returns valid points, `k x d`, that are x, `d`, with other choices: each choice of every parameter once.

    The choice that is named first is no belief. If it alone were tried in the middle, it would seem better than those
    that were tried beside bad values only. There are at most `_MAX_OTHER_CHOICES` points, and none without choices.
    """
    choices = {i: len(p.choices) for i, p in enumerate(space.parameters) if isinstance(p, Categorical)}
    num_points = min(max(choices.values(), default=1) - 1, _MAX_OTHER_CHOICES)
    points = np.repeat(x[None, :], num_points, axis=0)
    for i, num_choices in choices.items():
        parameter = space.parameters[i]
        turned = (parameter.decode(points[:, i]) + 1 + np.arange(num_points)) % num_choices
        points[:, i] = parameter.encode(turned)
    points = space.canonical(points)
    return points[space.valid(points)]


def interleaved(chosen: Array, filling: Array, num_filling: int) -> Array:
    """Returns chosen points, `k x d`, alternating with the first `num_filling` of `filling`; then the other ones."""
    turns = max(len(chosen), num_filling)
    rows = [row for i in range(turns) for row in (*chosen[i : i + 1], *filling[:num_filling][i : i + 1])]
    return np.concatenate([np.array(rows), filling[num_filling:]]) if rows else filling


def next_initial_point(points: Array, data: History, affordable: AffordableCost, *, find_cheap: bool) -> Array | None:
    """Returns the next point of the design, `d`, that was not tried and is not running; None when there is none.

    The position follows from the trials themselves, so an interrupted point comes again and a finished one never does.
    With `find_cheap` (there is no cost parameter) and once a few costs are known, it is the one of the next
    `_NUM_LOOKED_THROUGH` points that should cost least.
    """
    untried = data.untried(points)
    if not len(untried):
        return None
    if find_cheap and affordable.model is not None and len(data.costs) >= _MIN_COSTS:
        untried = untried[:_NUM_LOOKED_THROUGH]
        return np.asarray(untried[int(np.argmin(affordable.model.predict(untried)[0]))])
    return np.asarray(untried[0])
