"""The points that the engine considers: candidates for the acquisition, and those of the initial design.

All are canonical, valid points in unit coordinates.

Candidates are the whole box, the neighbourhood of good points, and ladders in the cost parameter. Neighbours change a
random subset of the coordinates by a random width, so that steps of one parameter and joint moves are both among them.
A categorical coordinate is drawn anew. So are the coordinates of parameters that begin to exist because another one has
changed: at their centre they had no value.

The initial design fills the space: scrambled Sobol points with the cost parameter in its cheapest share. Where the
first trials lie decides what a small budget can buy. Ten points over the whole box cost several times as much as ten
points at the cheap end, and teach hardly more about the other parameters.
"""

import numpy as np
from numpy.typing import NDArray

from protein.engine.beliefs import Beliefs
from protein.engine.gp import Array
from protein.engine.settings import EngineSettings
from protein.space import Categorical, Space

_MAX_LISTED = 1024  # spaces with at most this many points are listed completely
_NUM_POINTS = 256  # of the initial design's sequence, of which the valid ones are kept
_MIDDLE_COST = 1 / 3
_MAX_OTHER_CHOICES = 4  # points of the design
_FEW = 1 / 8  # of steps to neighbours: where fewer are valid, the others are drawn back
_WIDTHS = (0.02, 0.5)  # of neighbours' steps, drawn evenly in the logarithm


def all_points(space: Space) -> Array | None:
    """Returns every valid point, `n x d`, of a space with few points; None for a space with many."""
    grid = space.canonical(np.full((1, space.num_dims), 0.5))
    for i, parameter in enumerate(space.parameters):
        values, active = parameter.values(), space.active(grid)[:, i]
        if values is None:
            return None
        num_each = np.where(active, len(values), 1)
        if num_each.sum() > _MAX_LISTED:
            return None
        axis = parameter.encode(np.array(values, float))
        column = [axis if is_active else grid[row, i : i + 1] for row, is_active in enumerate(active)]
        grid = np.repeat(grid, num_each, axis=0)
        grid[:, i] = np.concatenate(column)
    grid = space.canonical(grid) if space.is_conditional else grid
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
    if space.is_conditional:
        base, moved = _awake(space, base, rng), _some_active(space, base, rng)
    else:
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
    valid = space.valid(x)
    if np.mean(valid) >= _FEW:
        return np.asarray(x[valid])
    return np.concatenate([x[valid], space.drawn_back(base[~valid], x[~valid], rng)])


def _awake(space: Space, x: Array, rng: np.random.Generator) -> Array:
    """Returns canonical points, `n x d`, with drawn coordinates for what is not active, should it become so."""
    return np.where(space.active(x), x, rng.random(x.shape))


def _some_active(space: Space, x: Array, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Returns which coordinates of n points, `n x d`, move: mostly few, sometimes many, of those that are active."""
    active = space.active(x)
    num_active = active.sum(axis=1)
    num_moved = np.minimum(rng.geometric(np.minimum(2.0 / num_active, 1.0)), num_active)
    order = np.where(active, rng.random(x.shape), 1.0).argsort(axis=1).argsort(axis=1)
    return np.asarray(order < num_moved[:, None])


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


def believed(space: Space, beliefs: Beliefs, centers: Array, num_points: int, rng: np.random.Generator) -> Array:
    """Returns valid points drawn from beliefs, at most `num_points x d`: over the whole box, and around the centers."""
    held, half = list(beliefs.held), num_points // 2
    if not held:
        return np.empty((0, space.num_dims))
    near = centers[np.arange(half) % len(centers)]
    near[:, held] = rng.random((half, len(held)))
    x = beliefs.drawn(np.concatenate([rng.random((half, space.num_dims)), _awake(space, near, rng)]))
    return np.asarray(x[space.valid(x)])


def initial_points(
    space: Space, *, seed: int, cost_share: float, start: Array | None, pull: float, beliefs: Beliefs | None = None
) -> Array:
    """Returns a sequence of valid points, `n x d`, in the order in which the design takes them.

    Args:
        space: at most 21201 parameters (the Sobol generator's limit).
        seed: of the scrambling; the same seed gives the same sequence.
        cost_share: the cost parameter stays in this lowest share of its unit range, in (0, 1].
        start: the sweep's first trial, `d`, or None.
        pull: every second point is moved this share of the way to `start`, in [0, 1]. So half of the design covers the
            space, and half covers the surroundings of a config that the user believes in.
        beliefs: every second point, the same ones, has its values of these parameters drawn from the beliefs.
    """
    from scipy.stats import qmc  # late: it takes as long to load as all the rest of the engine

    rng = np.random.default_rng([seed, 1])
    x = qmc.Sobol(space.num_dims, scramble=True, rng=rng).random(_NUM_POINTS)
    believed = None if beliefs is None else beliefs.drawn(x[1::2])
    if start is not None and pull > 0:  # what does not exist at the start pulls nothing
        x[1::2] += pull * np.where(space.active(start[None, :]), start - x[1::2], 0.0)
    if beliefs is not None and believed is not None:
        x[1::2, beliefs.positions] = believed[:, beliefs.positions]
    if space.cost_index is not None:
        x[:, space.cost_index] *= cost_share
    x = space.canonical(x)
    x = x[space.valid(x)]
    return np.concatenate([x, space.sample(_NUM_POINTS, rng)])


def middle(space: Space) -> Array:
    """Returns where a sweep without an initial config begins, `d`: in the middle of every range.

    People place ranges around what they believe in. Where they state a belief, it is the belief's centre. The cost
    parameter is at the end of the lower third of its range, and a choice is the one that is named first. Where a
    constraint forbids that, it is the nearest of some valid ones.
    """
    x = np.full(space.num_dims, 0.5)
    for i, parameter in enumerate(space.parameters):
        if isinstance(parameter, Categorical):
            x[i] = parameter.encode(np.zeros(1))[0]
    if space.cost_index is not None:
        x[space.cost_index] = _MIDDLE_COST
    beliefs = Beliefs.of(space)
    for i, center in ({} if beliefs is None else beliefs.center).items():
        x[i] = center
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
