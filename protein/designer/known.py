"""History as arrays: what the models learn from, and which points are taken.

Notation
    x_...    `n x d` canonical unit coordinates, rows in lexicographic order: nothing depends on the order of trials
    taken    keys of every point that was tried or is running; a suggestion is none of them

Interrupted trials are left out of everything: they were cut off from outside, say nothing about their params and may be
suggested again. So are trials that the space cannot read (it was changed since).

A trial that was stopped at its cost cap counts as one that asked for the steps it reached: that is what its score and
its cost belong to. (A schedule that it did not get to finish makes the score a little low.)
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from protein.errors import SpaceError
from protein.gp import Array
from protein.space import Space
from protein.types import INTERRUPTED, Observation, Params, TrialState

T = TypeVar("T")


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
    spent_seconds: float

    @classmethod
    def of(cls, space: Space, history: Sequence[Observation], running: Sequence[Params]) -> "Known":
        """Reads a sweep's finished and running trials."""
        finished = [o for o in history if o.reason != INTERRUPTED]
        _, x_asked = _readable(space, finished, [o.params for o in finished])
        finished, x_finished = _readable(space, finished, [_reached(space, o) for o in finished])
        _, x_running = _readable(space, list(running), list(running))
        # Ties in x are broken by the result, so that the order of repeated trials does not matter either.
        rows = [(x.tolist(), _score(o), o.cost_seconds) for o, x in zip(finished, x_finished, strict=True)]
        order = sorted(range(len(rows)), key=rows.__getitem__)
        finished, x_tried = [finished[i] for i in order], x_finished[order]
        x_running = x_running[sorted(range(len(x_running)), key=x_running.tolist().__getitem__)]
        ok = np.array([_has_score(o) for o in finished], dtype=bool)
        scored = [o for o in finished if _has_score(o)]
        return cls(
            x_scored=x_tried[ok],
            scores=np.array([_score(o) for o in scored]),
            costs=np.array([o.cost_seconds for o in scored]),
            x_tried=x_tried,
            ok=ok,
            x_running=x_running,
            taken=frozenset(keys(np.concatenate([x_asked, x_tried, x_running]))),
            num_trials=len(x_tried) + len(x_running),
            spent_seconds=math.fsum(o.cost_seconds for o in history),
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


def _readable(space: Space, items: list[T], params: list[Params]) -> tuple[list[T], Array]:
    """Returns those of n items whose params the space can read, and their canonical coordinates, `m x d`."""
    if not items:
        return [], np.empty((0, space.num_dims))
    try:
        return items, space.canonical(space.to_unit_many(params))
    except SpaceError:  # at least one cannot be read: one by one
        if len(items) == 1:
            return [], np.empty((0, space.num_dims))
        halves = [_readable(space, items[i], params[i]) for i in (slice(len(items) // 2), slice(len(items) // 2, None))]
        return [*halves[0][0], *halves[1][0]], np.concatenate([halves[0][1], halves[1][1]])


def _reached(space: Space, observation: Observation) -> Params:
    """Returns an observation's params, the cost parameter lowered to the steps reached if it was stopped early."""
    name = space.cost_parameter
    if observation.state is not TrialState.PRUNED or name is None or not observation.curve:
        return observation.params
    asked = observation.params.get(name)
    low = getattr(space.parameters[space.names.index(name)], "low", None)
    if isinstance(asked, str) or asked is None or low is None:
        return observation.params
    return {**observation.params, name: max(low, min(asked, observation.curve[-1].steps))}


def _has_score(observation: Observation) -> bool:
    return observation.state in (TrialState.COMPLETE, TrialState.PRUNED) and observation.score is not None


def _score(observation: Observation) -> float:
    return observation.score if _has_score(observation) and observation.score is not None else -math.inf
