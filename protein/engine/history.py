"""A sweep's trials as arrays: what the models learn from, and which points are taken.

Notation
    x_...    `n x d` canonical unit coordinates, rows in lexicographic order: nothing depends on the order of
             trials, but for `slowdown`
    taken    keys of every point that was tried or is running; no suggestion is one of them
    steps    what a trial's curve counts, in the user's own unit
    asked    the value of the cost parameter; 1 in a space without one
    unit     steps that a trial makes for each unit of the cost parameter, the median of the complete trials
    share    of its run that a trial has made, steps / (unit asked), in [0, 1]

Trials whose end does not teach (`TrialEnd.teaches`; interrupted ones, for example) are left out of all arrays. Only
their cost counts. Their end tells nothing about their params, which may be suggested again. Trials that the space
cannot read, because it was changed since, are left out in the same way. So are trials that a person has excluded, but
their params are taken: the engine does not run an exploit a second time.

A trial that was stopped before its end counts as one that asked for the steps it reached: its score and its cost belong
to those (where the space lacks that number, to the nearest one, at the same seconds a step). The same holds for points
of a trial's curve. Without a cost parameter the trial stays where it is, and counts with the cost that its whole run
would have had. Where it is unknown how much of its run it made, its score teaches
nothing, and its cost is the least that a whole run costs. Under a learning-rate schedule, a score half-way differs from
the final score of a run half as long. So each score carries the share of its run that was still to come, `unfinished`,
and the score model learns from the data whether that matters. The model also knows which run each score is of. Runs of
one config differ (in their seeds), and this difference is in the whole curve of a run.

A busy machine does not make a config expensive. Where it is known for how long other programs had a trial's cores, the
models learn what it would have cost without them. What the next trial takes of the budget is that times `slowdown`.

A trial that continues another one has the cost of the whole run, as if it had been trained in one go. Both are scores
of one run. Each part of a run may have met other programs for a time of its own (`by_whole_runs`).
"""

import collections
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from protein.engine.gp import Array, Runs
from protein.errors import SpaceError
from protein.space import Categorical, Space
from protein.types import MAX_BUSY_SHARE, ON_GPU, Observation, Params, TrialEnd, TrialState

T = TypeVar("T")
SAME_LENGTH = 1.25  # where complete trials' steps, relative to what was asked, differ by more, there is no unit
MAX_ATTEMPTS = 5  # after which a config that was interrupted each time counts as tried: it may be what ends its trials
_NUM_RECENT = 5  # trials that show how busy the machine is now
_CURVE_SHARES = (0.25, 0.5)  # of the run, at which a point of its curve is taken


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The arrays that the models learn from.

    Attributes:
        x_scored: `n x d`, trials that gave a score, with the cost parameter at the value that they reached.
        scores: `n`, their scores.
        costs: `n`, the costs in seconds of their whole runs, on a calm machine; without a cost parameter, what stopped
            ones would have cost in the end.
        runs: `n`, which run each is of: the position among the n of the first trial of that run.
        metrics: `n`, what they measured beside the score, by name.
        unfinished: `n`, the share of the run that they did not reach; 0 for those that ran to their end.
        x_curve: `k x d`, points of those trials' curves: the params with the steps of the point.
        curve_scores: `k`, their scores.
        curve_unfinished: `k`, the share of the run that was still to come.
        curve_runs: `k`, which of the n trials they are of.
        x_tried: `m x d`, the trials that gave a score and those that failed.
        ok: `m`, which of them gave a score.
        x_stopped: `j x d`, trials that were stopped before their first score, after an unknown share of their run, or
            before the shortest run of the space.
        least_costs: `j`, the least that such runs cost: what was spent, or more where the pace is known.
        x_running: running trials.
        taken: keys of all points that were tried or are running, excluded ones included, and of those that were
            interrupted `MAX_ATTEMPTS` times. Of a trial that was stopped it is the one that was asked for: the shorter
            run that it became was not trained to its end.
        lost: keys of the points of trials whose end told nothing about them: interrupted, a mistake in the program, or
            a full disk.
        num_trials: number of finished and running trials, without those that do not teach.
        spent_seconds: the cost of all finished trials, including those that do not teach.
        slowdown: how many seconds a trial takes, now, for one that it would take without other programs; at least 1.
    """

    x_scored: Array
    scores: Array
    costs: Array
    runs: Runs
    metrics: Sequence[Mapping[str, float]]
    unfinished: Array
    x_curve: Array
    curve_scores: Array
    curve_unfinished: Array
    curve_runs: Runs
    x_tried: Array
    ok: NDArray[np.bool_]
    x_stopped: Array
    least_costs: Array
    x_running: Array
    taken: Set[bytes]
    lost: frozenset[bytes]
    num_trials: int
    spent_seconds: float
    slowdown: float

    @classmethod
    def of(
        cls, space: Space, history: Sequence[Observation], running: Sequence[Params], *, max_curve_points: int = 0
    ) -> "History":
        """Reads a sweep's finished and running trials, and at most `max_curve_points` points of their curves."""
        finished = [o for o in by_whole_runs(history) if teaches(o)]
        unit = steps_per_unit(space, finished)
        # Of any other trial, what was asked for is what was reached.
        asked = [o.params for o in finished if o.state is TrialState.PRUNED]
        _, x_asked = readable(space, asked, asked)
        ends = [(o, *reached(space, o, unit)) for o in finished]
        read, x_finished = readable(space, ends, [params for _, params, _ in ends])
        _, x_running = readable(space, list(running), list(running))
        excluded = [o.params for o in history if o.excluded]
        _, x_excluded = readable(space, excluded, excluded)
        lost = [o.params for o in history if not teaches(o) and not o.excluded]
        _, x_lost = readable(space, lost, lost)
        cut_short = [o.params for o in history if o.end is TrialEnd.INTERRUPTED and not o.excluded]
        attempts = collections.Counter(keys(readable(space, cut_short, cut_short)[1]))
        given_up = {key for key, count in attempts.items() if count >= MAX_ATTEMPTS}
        # Ties in x are broken by the result, so that the order of repeated trials does not matter either.
        seconds, heights = [o.run_seconds for o, _, _ in read], [_score(o) for o, _, _ in read]
        order = np.lexsort([seconds, heights, *x_finished.T[::-1]])
        read, x_finished = [read[i] for i in order], x_finished[order]
        x_running = x_running[np.lexsort(x_running.T[::-1])]
        # A trial that was stopped, and shows no score of a known share of its run, is neither a success nor a failure.
        has_score = np.array([_has_score(o) and share is not None for o, _, share in read], dtype=bool)
        pruned = np.array([o.state is TrialState.PRUNED for o, _, _ in read], dtype=bool)
        stopped = pruned & ~has_score
        scored = [
            (o, params, share)
            for (o, params, share), has in zip(read, has_score, strict=True)
            if has and share is not None
        ]
        x_scored = x_finished[has_score]
        x_curve, curve_scores, curve_unfinished, curve_runs = _curve_points(
            space, [o for o, _, _ in scored], x_scored, unit, max_curve_points
        )
        return cls(
            x_scored=x_scored,
            scores=np.array([_score(o) for o, _, _ in scored]),
            costs=np.array([o.calm_seconds / part_made(space, o, params, share) for o, params, share in scored]),
            runs=_runs([o for o, _, _ in scored], history),
            metrics=[o.metrics for o, _, _ in scored],
            unfinished=np.array([1.0 - share for _, _, share in scored]),
            x_curve=x_curve,
            curve_scores=curve_scores,
            curve_unfinished=curve_unfinished,
            curve_runs=curve_runs,
            x_tried=x_finished[~stopped],
            ok=has_score[~stopped],
            x_stopped=x_finished[stopped],
            # Where the share is known, x is where the trial got to; else it is what was asked for.
            least_costs=np.array(
                [
                    least_seconds(space, o, unit)
                    if share is None
                    else o.calm_seconds / part_made(space, o, params, share)
                    for o, params, share in read
                ]
            )[stopped],
            slowdown=_slowdown(history),
            x_running=x_running,
            taken=given_up.union(keys(np.concatenate([x_asked, x_finished[~pruned], x_running, x_excluded]))),
            lost=frozenset(keys(x_lost)),
            num_trials=len(x_finished) + len(x_running),
            spent_seconds=math.fsum(o.cost_seconds for o in history),
        )

    @property
    def on_gpu(self) -> Array | None:
        """Which of the n trials were on a GPU, 1 or 0; None: all were on one kind of device.

        Where a machine has a CPU alone, its trials do not say so.
        """
        found = np.array([float(metrics.get(ON_GPU, 0.0) > 0.0) for metrics in self.metrics])
        return found if len(np.unique(found)) > 1 else None

    def one_of_each_run(self) -> "History":
        """Returns the same history with one score of each run: its last one, where trials have continued each other.

        That of a run that was stopped counts only where the run has never been trained to an end.
        """
        last = {self.runs[i]: i for i in np.lexsort((self.costs, self.unfinished <= 0.0))}
        keep = sorted(last.values())
        scored: dict[str, Any] = {
            name: getattr(self, name)[keep] for name in ("x_scored", "scores", "costs", "unfinished")
        }
        none: dict[str, Any] = {"x_curve": self.x_curve[:0], "curve_scores": self.curve_scores[:0]}
        none |= {"curve_unfinished": self.curve_unfinished[:0], "curve_runs": self.curve_runs[:0]}
        metrics = [self.metrics[i] for i in keep]
        return dataclasses.replace(self, **scored, **none, runs=np.arange(len(keep)), metrics=metrics)

    def begins(self, space: Space, start: Params, fits: Callable[[Array], NDArray[np.bool_]] | None = None) -> bool:
        """Whether the next trial is that of the initial config: no trial counts yet, or its own one told nothing.

        Not where somebody has excluded it.

        Args:
            space: the space.
            start: the initial config.
            fits: which of n points, `n x d`, fit the budget: once a trial counts, the initial config comes again only
                if it fits. None: not known, so it does not come again.
        """
        x = space.canonical(space.to_unit(start)[None, :])
        if not len(self.untried(x)):
            return False
        return self.num_trials == 0 or (fits is not None and keys(x)[0] in self.lost and bool(fits(x)[0]))

    def untried(self, x_unit: Array) -> Array:
        """Returns the rows that no trial has, each once, in their order."""
        fresh: dict[bytes, int] = {}
        for i, key in enumerate(keys(x_unit)):
            if key not in self.taken:
                fresh.setdefault(key, i)
        return x_unit[list(fresh.values())]


def _slowdown(history: Sequence[Observation]) -> float:
    """Returns the mean slowdown of the last trials of which it is known."""
    known = [o for o in history if o.busy_share is not None and o.cost_seconds > 0.0][-_NUM_RECENT:]
    measured = math.fsum(o.cost_seconds for o in known)
    return measured / math.fsum(o.cost_seconds * (1.0 - (o.busy_share or 0.0)) for o in known) if known else 1.0


def by_whole_runs(history: Sequence[Observation]) -> list[Observation]:
    """Returns the n trials with the busy share of the whole run that each of them ends, not of its last part alone."""
    found = zip(history, whole_run_shares(history), strict=True)
    return [o if o.busy_share == share else dataclasses.replace(o, busy_share=share) for o, share in found]


class Leg(Protocol):
    """What a trial has that may go on with an earlier one: an `Observation` or a `TrialRecord`."""

    @property
    def number(self) -> int | None: ...
    @property
    def continues(self) -> int | None: ...
    @property
    def cost_seconds(self) -> float: ...
    @property
    def continued_seconds(self) -> float: ...
    @property
    def run_seconds(self) -> float: ...
    @property
    def busy_share(self) -> float | None: ...


def whole_run_shares(trials: Sequence[Leg]) -> list[float | None]:
    """Returns the busy share of the whole run that each of n trials ends; None: not known."""
    busy = {trial.number: trial.busy_share for trial in trials}
    parts = [
        part for part in trials if part.continues is not None and part.continues in busy and part.run_seconds > 0.0
    ]
    for part in sorted(
        parts, key=lambda part: part.number or 0
    ):  # a part has a higher number than what it went on with
        behind = busy[part.continues]
        if behind != part.busy_share:
            seconds = part.cost_seconds * (part.busy_share or 0.0) + part.continued_seconds * (behind or 0.0)
            busy[part.number] = min(seconds / part.run_seconds, MAX_BUSY_SHARE)  # rounding may go beyond it
    of_parts = {id(part) for part in parts}
    return [busy[trial.number] if id(trial) in of_parts else trial.busy_share for trial in trials]


def teaches(observation: Observation) -> bool:
    """Whether a trial tells something about its params: by its end (see `TrialEnd.teaches`), and not excluded."""
    return observation.end is not None and observation.end.teaches and not observation.excluded


def complete_runs(space: Space, history: Sequence[Observation]) -> tuple[list[list[int]], Array]:
    """Returns the n distinct configs that were trained to their end: the positions of each one's runs, and x.

    x is `n x d`, canonical unit coordinates in lexicographic order. Excluded trials, and those that the space cannot
    read, are left out.
    """
    complete = [i for i, o in enumerate(history) if o.state is TrialState.COMPLETE and not o.excluded]
    complete, x = readable(space, complete, [history[i].params for i in complete])
    groups: dict[bytes, list[int]] = {}
    for position, key in enumerate(keys(x)):
        groups.setdefault(key, []).append(position)
    first = np.array([group[0] for group in groups.values()], dtype=np.intp)
    order, listed = np.lexsort(x[first].T[::-1]), list(groups.values())
    return [[complete[i] for i in listed[k]] for k in order], x[first[order]]


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


def steps_per_unit(space: Space, history: Sequence[Observation]) -> float | None:
    """Returns the unit, or None where the middle half of the complete trials do not agree on one.

    Where no complete trial has a curve, it is 1 with a cost parameter, and None without one.
    """
    complete = [o for o in history if o.state is TrialState.COMPLETE and o.curve]
    found = [last_step(o) / asked for o in complete if (asked := amount_asked(space, o.params)) is not None]
    if not found:
        return None if space.cost_parameter is None else 1.0
    low, unit, high = (float(q) for q in np.quantile(found, [0.25, 0.5, 0.75]))
    return unit if low > 0 and high <= SAME_LENGTH * low else None


def amount_asked(space: Space, params: Params) -> float | None:
    """Returns the cost parameter's value; 1 in a space without one; None where it is not a number above 0."""
    if space.cost_parameter is None:
        return 1.0
    value = params.get(space.cost_parameter)
    return float(value) if isinstance(value, int | float) and value > 0 else None


def last_step(observation: Observation) -> int:
    """Returns the steps of a trial whose curve has at least one point."""
    return max(point.steps for point in observation.curve)


def least_seconds(space: Space, observation: Observation, unit: float | None) -> float:
    """Returns the least that a stopped trial's whole run costs: at the pace of its curve where that is known."""
    asked, seconds = amount_asked(space, observation.params), observation.calm_seconds
    if unit is None or asked is None or not observation.curve:
        return seconds
    made = last_step(observation) / unit
    return seconds * asked / made if 0.0 < made < asked else seconds


def reached(space: Space, observation: Observation, unit: float | None) -> tuple[Params, float | None]:
    """Returns a finished trial's params, the cost parameter lowered to what it reached, and its share.

    The share is 1 for a trial that was not stopped, and None where it is unknown, or where the space has no run as
    short as that; then the params are as they were.
    """
    params = observation.params
    if observation.state is not TrialState.PRUNED:
        return params, 1.0
    if unit is None or not observation.curve:
        return params, None
    asked = amount_asked(space, params)
    if asked is None:  # a cost parameter may begin at 0, and there is no share of 0 steps
        return params, 1.0
    made = last_step(observation) / unit
    if made > SAME_LENGTH * asked:  # a run that was cut short cannot be longer: it counts other steps
        return params, None
    if space.cost_parameter is None:
        return params, min(made, 1.0) if made > 0 else None
    parameter = space.parameter(space.cost_parameter)
    assert not isinstance(parameter, Categorical)
    if made * SAME_LENGTH < parameter.low:  # its score and its cost are not those of the shortest run
        return params, None
    # Moved into the range (on a scale of powers of two, to the nearest one): the space has to be able to read it.
    lowered = parameter.clip(parameter.raw(min(made, asked)))
    return {**params, space.cost_parameter: lowered}, min(made / asked, 1.0)


def part_made(space: Space, observation: Observation, params: Params, share: float) -> float:
    """Returns which part of a run of `params` a trial made, given what `reached` returned for it.

    That is the share in a space without a cost parameter. With one it is about 1: the steps that were made are moved
    into the range, and on a scale of powers of two to the nearest one.
    """
    asked, counted = amount_asked(space, observation.params), amount_asked(space, params)
    return 1.0 if asked is None or counted is None or share == 0.0 else share * asked / counted


def _curve_points(
    space: Space, trials: Sequence[Observation], x_unit: Array, unit: float | None, max_points: int
) -> tuple[Array, Array, Array, Runs]:
    """Returns points of n trials' curves, of the most expensive trials first.

    These are x, `k x d`, and `k` each of scores, unfinished shares, and which of the trials they are of.
    """
    index = space.cost_index
    low = None if index is None else getattr(space.parameters[index], "low", None)
    found: list[tuple[Array, float, float, int]] = []
    for i in sorted(range(len(trials)), key=lambda i: (-trials[i].run_seconds, i)):
        if index is None or low is None or unit is None or len(found) >= max_points:
            break
        asked = amount_asked(space, trials[i].params)
        if asked is None:  # a cost parameter may begin at 0, and there is no share of 0 steps
            continue
        # A language model reports more often than it measures its score.
        scored = [(point, point.score) for point in trials[i].curve if point.score is not None]
        for share in _CURVE_SHARES:
            wanted = share * asked * unit
            nearest = min(scored, key=lambda pair: abs(pair[0].steps - wanted), default=None)
            if nearest is None or abs(nearest[0].steps - wanted) > 0.1 * asked * unit:
                continue
            point, score = nearest
            made = point.steps / unit
            if made >= low:
                x = x_unit[i].copy()
                x[index] = space.parameters[index].encode(np.array([made]))[0]
                found.append((x, score, 1.0 - made / asked, i))
    found = found[:max_points]
    if not found:
        return np.empty((0, space.num_dims)), np.empty(0), np.empty(0), np.empty(0, dtype=np.intp)
    x, scores, unfinished, runs = (np.array(column) for column in zip(*found, strict=True))
    return x, scores, unfinished, runs


def _runs(trials: Sequence[Observation], history: Sequence[Observation]) -> Runs:
    """Returns which run each of n trials is of, `n`."""
    parents = {o.number: o.continues for o in history if o.number is not None and o.continues is not None}
    first: dict[int, int] = {}  # position of the first trial of a run, by the number of the trial that began it
    labels = []
    for i, trial in enumerate(trials):
        root = trial.number
        while root in parents:
            root = parents[root]
        labels.append(i if root is None else first.setdefault(root, i))
    return np.array(labels, dtype=np.intp)


def _has_score(observation: Observation) -> bool:
    return observation.state in (TrialState.COMPLETE, TrialState.PRUNED) and observation.score is not None


def _score(observation: Observation) -> float:
    return observation.score if _has_score(observation) and observation.score is not None else -math.inf
