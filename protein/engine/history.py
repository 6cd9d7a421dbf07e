"""History as arrays: what the models learn from, and which points are taken.

Notation
    x_...    `n x d` canonical unit coordinates, rows in lexicographic order: nothing depends on the order of trials
    taken    keys of every point that was tried or is running; a suggestion is none of them, re-evaluations apart

Interrupted trials are left out of everything: they were cut off from outside, say nothing about their params and may be
suggested again. So are trials that the space cannot read (it was changed since).

A trial that was stopped early counts as one that asked for the steps it reached: that is what its score and its cost
belong to. So do points of every trial's curve on the way. With a schedule over the run such a score is not what a run
of so many steps would give, so each carries the share of its run that was still to come, `unfinished`, and the score
model learns from the data whether that matters. It is told, too, which run they are of: the luck of a run's seed is in
all of its curve.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from protein.engine.gp import Array, Runs
from protein.errors import SpaceError
from protein.space import Space
from protein.types import Observation, Params, TrialState

T = TypeVar("T")
_CURVE_SHARES = (0.25, 0.5)  # of the run, at which a point of its curve is taken


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Everything that is known about the sweep's trials. `num_trials` counts finished and running ones."""

    x_scored: Array  # trials that gave a score ...
    scores: Array
    costs: Array  # ... their cost in seconds ...
    unfinished: Array  # ... and the share of the run that they did not come to, 0 for those that ran to their end
    x_curve: Array  # points of those trials' curves, `k x d`: the params with the steps of the point ...
    curve_scores: Array  # ... their scores ...
    curve_unfinished: Array  # ... the share of the run that was still to come ...
    curve_runs: Runs  # ... and which of the trials that gave a score they are of
    x_tried: Array  # the scored and the failed ones
    ok: NDArray[np.bool_]  # which of those gave a score; one that was stopped before its first score did not fail
    x_running: Array
    taken: frozenset[bytes]
    num_trials: int
    spent_seconds: float

    @classmethod
    def of(
        cls, space: Space, history: Sequence[Observation], running: Sequence[Params], *, max_curve_points: int = 0
    ) -> "Known":
        """Reads a sweep's finished and running trials, and of their curves at most so many points."""
        finished = [o for o in history if o.end is not None and o.end.teaches]
        _, x_asked = readable(space, finished, [o.params for o in finished])
        finished, x_finished = readable(space, finished, [reached(space, o) for o in finished])
        _, x_running = readable(space, list(running), list(running))
        # Ties in x are broken by the result, so that the order of repeated trials does not matter either.
        rows = [(x.tolist(), _score(o), o.cost_seconds) for o, x in zip(finished, x_finished, strict=True)]
        order = sorted(range(len(rows)), key=rows.__getitem__)
        finished, x_tried = [finished[i] for i in order], x_finished[order]
        x_running = x_running[sorted(range(len(x_running)), key=x_running.tolist().__getitem__)]
        # A trial that was stopped before it had a score is neither a success nor a failure.
        teaches = np.array([_has_score(o) or o.state is not TrialState.PRUNED for o in finished], dtype=bool)
        x_finished, x_tried = x_tried, x_tried[teaches]
        ok = np.array([_has_score(o) for o in finished], dtype=bool)[teaches]
        scored = [o for o in finished if _has_score(o)]
        x_curve, curve_scores, curve_unfinished, curve_runs = _curve_points(
            space, scored, x_tried[ok], max_curve_points
        )
        return cls(
            x_scored=x_tried[ok],
            scores=np.array([_score(o) for o in scored]),
            costs=np.array([o.cost_seconds for o in scored]),
            unfinished=np.array([_unfinished(space, o) for o in scored]),
            x_curve=x_curve,
            curve_scores=curve_scores,
            curve_unfinished=curve_unfinished,
            curve_runs=curve_runs,
            x_tried=x_tried,
            ok=ok,
            x_running=x_running,
            taken=frozenset(keys(np.concatenate([x_asked, x_finished, x_running]))),
            num_trials=len(x_finished) + len(x_running),
            spent_seconds=math.fsum(o.cost_seconds for o in history),
        )

    def untried(self, x_unit: Array) -> Array:
        """Returns the rows that no trial has, each once, in their order."""
        fresh: dict[bytes, int] = {}
        for i, key in enumerate(keys(x_unit)):
            if key not in self.taken:
                fresh.setdefault(key, i)
        return x_unit[list(fresh.values())]


def complete_runs(space: Space, history: Sequence[Observation]) -> tuple[list[list[int]], Array]:
    """Returns the distinct configs that were trained to their end: positions of the runs of each, and their places.

    Those are canonical unit coordinates, `n x d`, in lexicographic order; trials that the space cannot read are left
    out, as in `Known`.
    """
    complete = [i for i, o in enumerate(history) if o.state is TrialState.COMPLETE]
    complete, x = readable(space, complete, [history[i].params for i in complete])
    groups: dict[bytes, list[int]] = {}
    for position, key in enumerate(keys(x)):
        groups.setdefault(key, []).append(position)
    ordered = sorted(groups.values(), key=lambda group: x[group[0]].tolist())
    return [[complete[i] for i in group] for group in ordered], x[[group[0] for group in ordered]]


def keys(x_unit: Array) -> list[bytes]:
    """Returns what identifies each of n canonical points, `n x d`."""
    rounded = np.round(x_unit, 12) + 0.0  # + 0.0: -0.0 and 0.0 are the same point
    return [row.tobytes() for row in rounded]


def readable(space: Space, items: list[T], params: list[Params]) -> tuple[list[T], Array]:
    """Returns those of n items whose params the space can read, and their canonical coordinates, `m x d`."""
    if not items:
        return [], np.empty((0, space.num_dims))
    try:
        return items, space.canonical(space.to_unit_many(params))
    except SpaceError:  # at least one cannot be read: one by one
        if len(items) == 1:
            return [], np.empty((0, space.num_dims))
        halves = [readable(space, items[i], params[i]) for i in (slice(len(items) // 2), slice(len(items) // 2, None))]
        return [*halves[0][0], *halves[1][0]], np.concatenate([halves[0][1], halves[1][1]])


def reached(space: Space, observation: Observation) -> Params:
    """Returns an observation's params, the cost parameter lowered to the steps reached if it was stopped early."""
    name = space.cost_parameter
    if observation.state is not TrialState.PRUNED or name is None or not observation.curve:
        return observation.params
    asked = observation.params.get(name)
    if isinstance(asked, str) or asked is None:
        return observation.params
    # Moved into the range, on a scale of powers of two to the nearest one: the space has to be able to read it.
    return {**observation.params, name: space.parameter(name).clip(min(asked, observation.curve[-1].steps))}


def _unfinished(space: Space, observation: Observation) -> float:
    """The share of the steps asked for that the trial did not come to, in [0, 1]."""
    if observation.state is not TrialState.PRUNED or space.cost_parameter is None or not observation.curve:
        return 0.0
    asked = float(observation.params[space.cost_parameter])
    return min(max(1.0 - observation.curve[-1].steps / asked, 0.0), 1.0) if asked > 0 else 0.0


def _curve_points(
    space: Space, trials: Sequence[Observation], x_unit: Array, max_points: int
) -> tuple[Array, Array, Array, Runs]:
    """Returns points of n trials' curves, of the dearest trials first: x `k x d`, scores, unfinished shares, and which
    of the trials they are of, `k` each."""
    index = space.cost_index
    low = None if index is None else getattr(space.parameters[index], "low", None)
    found: list[tuple[Array, float, float, int]] = []
    for i in sorted(range(len(trials)), key=lambda i: (-trials[i].cost_seconds, i)):
        if index is None or low is None or len(found) >= max_points:
            break
        asked = float(trials[i].params[space.names[index]])
        if asked <= 0:  # a cost parameter may begin at 0: there is no share of no steps
            continue
        for share in _CURVE_SHARES:
            point = min(trials[i].curve, key=lambda point: abs(point.steps - share * asked), default=None)
            if point is None or point.score is None or abs(point.steps - share * asked) > 0.1 * asked:
                continue
            if point.steps >= low:
                x = x_unit[i].copy()
                x[index] = space.parameters[index].encode(np.array([point.steps]))[0]
                found.append((x, point.score, 1.0 - point.steps / asked, i))
    found = found[:max_points]
    if not found:
        return np.empty((0, space.num_dims)), np.empty(0), np.empty(0), np.empty(0, dtype=np.intp)
    x, scores, unfinished, runs = (np.array(column) for column in zip(*found, strict=True))
    return x, scores, unfinished, runs


def _has_score(observation: Observation) -> bool:
    return observation.state in (TrialState.COMPLETE, TrialState.PRUNED) and observation.score is not None


def _score(observation: Observation) -> float:
    return observation.score if _has_score(observation) and observation.score is not None else -math.inf
