"""Candidates for the acquisition: the whole box, the neighbourhood of good points, and ladders in the cost parameter.

All are canonical, valid points in unit coordinates. Neighbours change a random subset of the coordinates by a random
width, so that steps of one parameter and joint moves are both among them. A categorical coordinate is drawn anew.
"""

import math

import numpy as np

from protein.engine.gp import Array
from protein.engine.settings import EngineSettings
from protein.space import Categorical, Space

_MAX_LISTED = 1024  # spaces with at most this many points are listed completely
_WIDTHS = (0.02, 0.5)  # of neighbours' steps, drawn evenly in the logarithm


def all_points(space: Space) -> Array | None:
    """Returns every valid point, `n x d`, of a space with few points; None for a space with many."""
    values = [parameter.values() for parameter in space.parameters]
    counted = [numbers for numbers in values if numbers is not None]
    if len(counted) < len(values) or math.prod(len(numbers) for numbers in counted) > _MAX_LISTED:
        return None
    axes = [p.encode(np.array(numbers, float)) for p, numbers in zip(space.parameters, counted, strict=True)]
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    return np.asarray(grid[space.valid(grid)])


def neighbours(
    space: Space, centers: Array, num_each: int, widths: tuple[float, float], rng: np.random.Generator
) -> Array:
    """Returns points around centers, `k x d`: up to `k num_each` valid ones, `n x d`.

    Args:
        space: the space.
        centers: `k x d`.
        num_each: points drawn around each.
        widths: range of the steps' standard deviation, in unit coordinates.
        rng: source of randomness.
    """
    base = np.repeat(centers, num_each, axis=0)
    n, d = base.shape
    num_moved = np.minimum(rng.geometric(np.minimum(2.0 / d, 1.0), size=n), d)  # mostly few, sometimes many
    moved = rng.random((n, d)).argsort(axis=1) < num_moved[:, None]
    low, high = np.log(widths)
    width = np.exp(rng.uniform(low, high, size=(n, 1)))
    stepped = base + width * rng.standard_normal((n, d))
    stepped = np.where(
        stepped < 0.0, -stepped, np.where(stepped > 1.0, 2.0 - stepped, stepped)
    )  # reflected at the ends
    for i, parameter in enumerate(space.parameters):
        if isinstance(parameter, Categorical):
            stepped[:, i] = rng.random(n)
    x = space.canonical(np.clip(np.where(moved, stepped, base), 0.0, 1.0))
    return np.asarray(x[space.valid(x)])


def ladders(space: Space, centers: Array, num_rungs: int, rng: np.random.Generator) -> Array:
    """Returns each center, `k x d`, with the cost parameter at `num_rungs` jittered even steps, `n x d`."""
    if space.cost_index is None:
        return np.empty((0, space.num_dims))
    x = np.repeat(centers, num_rungs, axis=0)
    rungs = (np.tile(np.arange(num_rungs), len(centers)) + rng.random(len(x))) / num_rungs
    x[:, space.cost_index] = rungs
    x = space.canonical(x)
    return np.asarray(x[space.valid(x)])


def spread(space: Space, centers: Array, settings: EngineSettings, rng: np.random.Generator) -> Array:
    """Returns the first round of candidates, `n x d`, around centers, `k x d`, and over the whole box."""
    listed = all_points(space)
    if listed is not None:
        return listed
    parts = [space.sample(settings.num_uniform, rng)]
    if len(centers):
        num_each = max(1, settings.num_local // len(centers))
        parts += [neighbours(space, centers, num_each, _WIDTHS, rng), ladders(space, centers, settings.num_rungs, rng)]
    return np.concatenate(parts)
