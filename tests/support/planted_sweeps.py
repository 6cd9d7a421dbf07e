"""Sweeps of planted functions, for tests of `protein.analysis`: what they must find is known."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from protein.space import Space
from protein.types import Observation, TrialState

Array = NDArray[np.float64]


def searched(
    space: Space,
    score: Callable[[Array], float],
    *,
    num_trials: int,
    seed: int,
    noise: float = 0.3,
    seconds: Callable[[Array], float] = lambda x: 10.0,
    num_random: int | None = None,
) -> list[Observation]:
    """Returns trials like those of a search: random ones, then moves of some coordinates of one of the best four.

    Args:
        space: without constraints.
        score: of a point, `d` unit coordinates.
        num_trials: all complete.
        seed: of the points and the noise.
        noise: standard deviation that is added to the score.
        seconds: cost of a point.
        num_random: how many are random; None: all.
    """
    rng = np.random.default_rng(seed)
    x, scores = np.empty((num_trials, space.num_dims)), np.empty(num_trials)
    for i in range(num_trials):
        point = rng.random(space.num_dims)
        if num_random is not None and i >= num_random:
            moved = rng.random(space.num_dims) < 0.4
            start = x[rng.choice(np.argsort(scores[:i])[-4:])]
            point = np.clip(np.where(moved, start + 0.25 * rng.normal(size=space.num_dims), start), 0.0, 1.0)
        x[i] = space.canonical(point[None, :])[0]
        scores[i] = score(x[i]) + noise * rng.normal()
    return [
        Observation(
            params=params, state=TrialState.COMPLETE, score=float(s), cost_seconds=float(seconds(point)), number=i
        )
        for i, (params, point, s) in enumerate(zip(space.from_unit_many(x), x, scores, strict=True))
    ]
