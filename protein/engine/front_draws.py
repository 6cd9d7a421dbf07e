"""Draws of the best config at every cost: read off the front model within the trials' range, a line beyond it.

Notation
    v        0 at the cheapest and 1 at the most expensive trial (see `protein.engine.front_model`)
    places   `J x S x d`: the best coordinates of S drawn functions at each of `LEVELS` of v

Beyond v = 1 each draw goes on in a straight line from its best config there, with a slope from the posterior of the
front model's slopes. Half of how the draws' mean moves otherwise within the range is added to it. A random term that
grows in proportion to the distance stands for laws that bend. Coordinates end at the ends of their ranges.

A parameter that hardly changes the score has no best value. It is not told: its draws are spread evenly over its range.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from protein.engine.front_model import FrontModel
from protein.engine.gp import Array
from protein.space import Categorical, Space

NUM_DRAWS = 64
LEVELS = (0.4, 0.6, 0.8, 1.0)
MIN_EFFECT = 0.15  # standard deviations of the scores that a parameter must be able to change, to have a best value
_FOLLOWED_EFFECT, _FOLLOWED_EVIDENCE = 0.02, 0.5  # the same, and standard deviations of the slope, for a plan to follow
_DEPARTURE_SHARE = 0.5  # of how the draws' mean departs from the law within the trials' range, carried on beyond it
_BEND = 0.03  # standard deviation of the growing term, in unit coordinates for each factor of 10 in cost
_NUM_EFFECT_POINTS = 8  # over a parameter's range, to see how much it changes the score


@dataclasses.dataclass(frozen=True, slots=True)
class FrontDraws:
    """See the head of this file.

    Attributes:
        places: `J x S x d`.
        slopes: `S x d`, over v.
        mean_slope: `d`, their mean.
        followed: `d`, which parameters can change the score at all and have a mean slope that is at least half a
            standard deviation from 0.
        bends: `S x d`, standard normal.
        effects: `d`, how much each parameter can change the score, in standard deviations of the scores.
        told: `d`, which parameters can change it enough to have a best value.
    """

    places: Array
    slopes: Array
    mean_slope: Array
    followed: NDArray[np.bool_]
    bends: Array
    effects: Array
    told: NDArray[np.bool_]

    @classmethod
    def of(cls, model: FrontModel, rng: np.random.Generator) -> "FrontDraws":
        """Draws the best places of a front model."""
        space, levels = model.space, np.array(LEVELS)
        places = model.best_places(levels, NUM_DRAWS, rng)
        effects = _effects(model, places[-1])
        fixed = _without_line(space)
        told = (effects >= MIN_EFFECT) | (np.arange(space.num_dims) == space.cost_index)
        centred = levels - levels.mean()
        lines = np.tensordot(centred, places.mean(axis=1), axes=(0, 0)) / float(centred @ centred)
        departure = _DEPARTURE_SHARE * (lines - model.slopes)
        mean_slope = np.where(fixed, 0.0, model.slopes + departure)
        factor = np.linalg.cholesky(model.slope_covariance + 1e-12 * np.eye(space.num_dims))
        slopes = mean_slope + rng.standard_normal((NUM_DRAWS, space.num_dims)) @ factor.T
        even = (rng.permuted(np.tile(np.arange(NUM_DRAWS), (space.num_dims, 1)), axis=1).T + 0.5) / NUM_DRAWS
        return cls(
            places=np.where(told, places, even),
            slopes=np.where(fixed, 0.0, slopes),
            mean_slope=mean_slope,
            followed=~fixed
            & (effects >= _FOLLOWED_EFFECT)
            & (np.abs(mean_slope) >= _FOLLOWED_EVIDENCE * np.sqrt(np.diag(model.slope_covariance))),
            bends=np.where(fixed, 0.0, rng.standard_normal((NUM_DRAWS, space.num_dims))),
            effects=effects,
            told=told,
        )

    def at(self, model: FrontModel, seconds: float) -> Array:
        """Returns the best coordinates at a cost in every draw, `S x d`; the cost parameter's stand for nothing."""
        v = model.level(seconds)
        if v > 1.0:
            decades = (v - 1.0) * (model.log_cost_range[1] - model.log_cost_range[0]) / math.log(10.0)
            far = self.places[-1] + np.where(self.told, self.slopes * (v - 1.0) + _BEND * decades * self.bends, 0.0)
            return np.asarray(np.clip(far, 0.0, 1.0))
        position = float(np.interp(v, LEVELS, np.arange(len(LEVELS))))
        below = min(int(position), len(LEVELS) - 2)
        share = position - below
        between = (1.0 - share) * self.places[below] + share * self.places[below + 1]
        return np.asarray(np.where(_without_line(model.space), self.places[below + round(share)], between))


def _effects(model: FrontModel, places: Array) -> Array:
    """Returns how much each parameter can change the expected score near the best places, `S x d`, in z, `d`.

    It is by how much the best value over the parameter's range is better than a random one, all others held.
    """
    points = (np.arange(_NUM_EFFECT_POINTS) + 0.5) / _NUM_EFFECT_POINTS
    effects = np.empty(model.space.num_dims)
    for i in range(model.space.num_dims):
        x = np.repeat(places, _NUM_EFFECT_POINTS, axis=0)
        x[:, i] = np.tile(points, len(places))
        expected = model.expects(x).reshape(len(places), _NUM_EFFECT_POINTS)
        effects[i] = np.mean(expected.max(axis=1) - expected.mean(axis=1))
    return effects


def _without_line(space: Space) -> NDArray[np.bool_]:
    """Returns which parameters have no line over ln cost of their own, `d`: categoricals and the cost parameter."""
    fixed = [isinstance(p, Categorical) or i == space.cost_index for i, p in enumerate(space.parameters)]
    return np.array(fixed)
