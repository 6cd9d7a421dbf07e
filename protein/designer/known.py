"""History as arrays: what the models learn from, and which points are taken.

Notation
    x_...    `n x d` canonical unit coordinates, rows in lexicographic order: nothing depends on the order of trials
    taken    keys of every point that was tried or is running; a suggestion is none of them

Interrupted trials are left out of everything: they were cut off from outside, say nothing about their params and may be
suggested again. So are trials that the space cannot read (it was changed since).
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from protein.errors import SpaceError
from protein.gp import Array
from protein.space import Space
from protein.types import INTERRUPTED, Observation, Params, TrialState


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Everything that is known about the sweep's trials. `num_trials` counts finished and running ones."""

    x_scored: Array  # trials that gave a score ...
    scores: Array
    costs: Array  # ... and their cost in seconds
    x_tried: Array  # the scored and the failed ones
    ok: NDArray[np.bool_]  # which of those gave a score
    x_running: Array
    taken: frozenset[bytes]
    num_trials: int

    @classmethod
    def of(cls, space: Space, history: Sequence[Observation], running: Sequence[Params]) -> "Known":
        """Reads a sweep's finished and running trials."""
        finished = [
            (o, x) for o in history if o.reason != INTERRUPTED and (x := _coordinates(space, o.params)) is not None
        ]
        # Ties in x are broken by the result, so that the order of repeated trials does not matter either.
        finished.sort(key=lambda pair: (pair[1].tolist(), _score(pair[0]), pair[0].cost_seconds))
        ok = np.array([_has_score(o) for o, _ in finished], dtype=bool)
        x_tried = _stack(space, (x for _, x in finished))
        x_running = _stack(
            space, sorted((x for p in running if (x := _coordinates(space, p)) is not None), key=_as_list)
        )
        scored = [o for o, _ in finished if _has_score(o)]
        return cls(
            x_scored=x_tried[ok],
            scores=np.array([_score(o) for o in scored]),
            costs=np.array([o.cost_seconds for o in scored]),
            x_tried=x_tried,
            ok=ok,
            x_running=x_running,
            taken=frozenset(keys(np.concatenate([x_tried, x_running]))),
            num_trials=len(x_tried) + len(x_running),
        )

    def untried(self, x_unit: Array) -> Array:
        """Returns the rows that no trial has, each once, in their order."""
        fresh: dict[bytes, int] = {}
        for i, key in enumerate(keys(x_unit)):
            if key not in self.taken:
                fresh.setdefault(key, i)
        return x_unit[list(fresh.values())]


def keys(x_unit: Array) -> list[bytes]:
    """Returns what identifies each of n canonical points, `n x d`."""
    rounded = np.round(x_unit, 12) + 0.0  # + 0.0: -0.0 and 0.0 are the same point
    return [row.tobytes() for row in rounded]


def _coordinates(space: Space, params: Params) -> Array | None:
    try:
        return np.asarray(space.canonical(space.to_unit(params)[None, :])[0])
    except SpaceError:
        return None


def _has_score(observation: Observation) -> bool:
    return observation.state is TrialState.COMPLETE and observation.score is not None


def _score(observation: Observation) -> float:
    return observation.score if _has_score(observation) and observation.score is not None else -math.inf


def _as_list(x: Array) -> list[float]:
    values: list[float] = x.tolist()
    return values


def _stack(space: Space, rows: Iterable[Array]) -> Array:
    listed = list(rows)
    return np.stack(listed) if listed else np.empty((0, space.num_dims))
