"""What source sweeps give to a new one: trials that the models use, and points to begin from.

A source trial is carried over into this space. Parameters that this space lacks are dropped. A parameter that the
source trial lacks takes the value of this sweep's initial config. A value a little outside its range (at most `_SLACK`
of the range's width on its scale) is moved to the end of the range. A trial with any other value that this space cannot
hold is left out.

Source scores count only by their own scale (see `protein.engine.score_model.ScoreScale`), and source costs up to a
factor, because the environment or the machine may be another. Scores and costs are used as far as they agree with the
new trials (see `protein.engine.joint_fit`). Source failures count in the same way in the failure model.

The source sweeps are stored with the new sweep, as plain data. This is a snapshot: a source sweep may grow, or be
deleted, and a resumed sweep still has the trials that it began with.

    {"asked": what was asked for, "sources": [{"sweep": name, "trials": [...]}, ...]}, or {} without a warm start

Earlier versions stored the one source alone: {"sweep": name, "trials": [...]}.
"""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from protein.engine.cost_model import CostModel
from protein.engine.failure_model import FailureModel
from protein.engine.gp import Array, subset
from protein.engine.history import History, teaches, whole_run_shares
from protein.engine.joint_fit import SourceTrials
from protein.engine.pareto import MIN_COST_SECONDS, front_indices
from protein.engine.score_model import ScoreModel
from protein.engine.settings import EngineSettings
from protein.errors import SpaceError
from protein.space import Categorical, Parameter, Space
from protein.spelling import counted
from protein.types import Measurement, Observation, Params, ParamValue, TrialRecord, TrialState

MAX_SNAPSHOT_TRIALS = 300  # of more, half are the best ones, and the rest are spread evenly over the scores
_SLACK = 0.05


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceSweep:
    """A source sweep, seen from this space.

    Attributes:
        scores: its trials with z.
        costs: its trials with ln of their cost.
        ends: its trials with +1 where they gave a score and -1 where they failed.
        x_front: `k x d`, its front by posterior mean, cheapest first; valid points of this space.
        x_best: `j x d`, its best few at any cost, best first; valid points of this space.
    """

    scores: SourceTrials
    costs: SourceTrials
    ends: SourceTrials
    x_front: Array
    x_best: Array

    @classmethod
    def of(
        cls, space: Space, start: Params | None, trials: Sequence[Observation], settings: EngineSettings
    ) -> "SourceSweep | None":
        """Returns what the source trials give; None when none of them has a score and lies in this space."""
        data = History.of(space, carried_over(space, start, trials), [])
        if not len(data.scores):
            return None
        x, scores, costs = data.x_scored, data.scores, data.costs
        score = ScoreModel.fit(space, x, scores, trend=settings.cost_trend, log_noise=settings.log_noise)
        cost = CostModel.fit(space, x, costs, on_gpu=data.on_gpu)
        log_costs = np.log(np.maximum(costs, MIN_COST_SECONDS))
        failure = FailureModel.fit(space, data.x_tried, data.ok)
        ends = np.where(data.ok, 1.0, -1.0)
        mean = score.predict(x)[0]
        valid = space.valid(x)
        x_valid, mean, costs = x[valid], mean[valid], costs[valid]
        return cls(
            scores=SourceTrials(x, score.scale.to_z(scores), lambda points: score.predict(points)[0]),
            costs=SourceTrials(x, log_costs, lambda points: cost.predict(points)[0]),
            ends=SourceTrials(data.x_tried, ends, lambda points: 2.0 * failure.p_ok(points) - 1.0),
            x_front=x_valid[front_indices(mean, costs)] if len(x_valid) else x_valid,
            x_best=x_valid[np.argsort(-mean, kind="stable")[: settings.num_source_best]],
        )

    def front_near(self, levels: Sequence[float]) -> Array:
        """Returns a point of the front near each level, `k x d`; a level is a share of the front's log-cost range."""
        if not len(self.x_front):
            return self.x_front
        log_cost = self.costs.expects(self.x_front)
        low, high = float(np.min(log_cost)), float(np.max(log_cost))
        chosen: list[int] = []
        for level in levels:
            distance = np.abs(log_cost - (low + level * (high - low)))
            order = [int(i) for i in np.argsort(distance, kind="stable") if int(i) not in chosen]
            chosen += order[:1]
        return np.asarray(self.x_front[chosen])


def beginnings(sources: Sequence[SourceSweep], levels: Sequence[float]) -> Iterator[tuple[Array, SourceSweep]]:
    """Yields points to begin from, `d` each, and their source sweeps: one near each level, of the fronts in turn."""
    with_front = [source for source in sources if len(source.x_front)]
    fronts = [source.front_near(levels[i :: len(with_front)]) for i, source in enumerate(with_front)]
    for turn in itertools.zip_longest(*fronts):
        yield from ((x, source) for x, source in zip(turn, with_front, strict=True) if x is not None)


def carried_over(space: Space, start: Params | None, trials: Sequence[Observation]) -> list[Observation]:
    """Returns the source trials that this space can hold, in its terms; see the head of this file."""
    found = []
    for observation in trials:
        if not teaches(observation):
            continue
        given = {**(start or {}), **observation.params}
        values: dict[str, ParamValue] = {}
        for parameter in space.parameters:
            with contextlib.suppress(KeyError, SpaceError):
                values[parameter.name] = _moved(parameter, given[parameter.name])
        with contextlib.suppress(SpaceError):  # a value that is active in this trial is unknown, or cannot be held
            found.append(dataclasses.replace(observation, params=space.only_active(values)))
    return found


def snapshot_of(
    name: str, trials: Sequence[TrialRecord], *, space: Space, fixed: Params, most: int = MAX_SNAPSHOT_TRIALS
) -> dict[str, Any]:
    """Returns the finished trials of a source sweep as a new sweep of `space` keeps them.

    Args:
        name: of the source sweep.
        trials: its trials. Those that run, and those whose end does not teach or that are excluded, are left out.
        space: of the new sweep; other parameters are dropped.
        fixed: dotted values that all trials of the source sweep ran with beside their params.
        most: trials that are kept.
    """
    finished = [trial for trial in trials if trial.end is not None and trial.end.teaches and not trial.excluded]
    scores = np.array([-math.inf if trial.score is None else trial.score for trial in finished])
    shares = {trial.number: share for trial, share in zip(trials, whole_run_shares(trials), strict=True)}
    kept = []
    for trial in (finished[i] for i in subset(scores, most)):
        values = {**fixed, **trial.params}
        kept.append(
            {
                "number": trial.number,
                "params": {name: values[name] for name in space.names if name in values},
                "state": str(trial.state),
                "end": str(trial.end),
                "score": trial.score,
                "cost_seconds": trial.run_seconds,
                "busy_share": shares[trial.number],
                "steps": trial.steps,
            }
        )
    return {"sweep": name, "trials": kept}


def num_usable_configs(source: Mapping[str, Any], space: Space, start: Params | None) -> int:
    """Returns the number of different configs with a score that `space` can hold; `start` as of `carried_over`."""
    held = carried_over(space, start, [_observation(trial) for trial in source["trials"]])
    return len({space.key(one.params) for one in held if one.score is not None})


def source_observations(snapshot: Mapping[str, Any]) -> list[list[Observation]]:
    """Returns the trials of each source of a snapshot as observations for the designer. An empty one has no source."""
    return [[_observation(trial) for trial in source["trials"]] for source in _sources(snapshot)]


def source_names(snapshot: Mapping[str, Any]) -> list[str]:
    """Returns the names of a snapshot's source sweeps, in their order."""
    return [source["sweep"] for source in _sources(snapshot)]


def described_sources(snapshot: Mapping[str, Any]) -> str:
    """Returns what a snapshot holds, as in "85 trials of sweeps 'a', 'b' and 'c'"."""
    count = sum(len(source["trials"]) for source in _sources(snapshot))
    *others, last = (f"'{name}'" for name in source_names(snapshot))
    listed = f"sweeps {', '.join(others)} and {last}" if others else f"sweep {last}"
    return f"{counted(count, 'trial')} of {listed}"


def _moved(parameter: Parameter, value: ParamValue) -> ParamValue:
    """Returns a value as the parameter can hold it. Raises `SpaceError` where it cannot."""
    if isinstance(parameter, Categorical) or isinstance(value, bool) or not isinstance(value, int | float):
        moved: ParamValue = value
    else:
        moved = parameter.clip(value)
        if not parameter.low <= value <= parameter.high:
            with np.errstate(all="ignore"):  # the log of a negative value is NaN, which counts as beyond the slack
                end, outside = parameter.encode(np.array([float(moved), float(value)]))
            if not abs(outside - end) <= _SLACK:
                parameter.check(value)
    parameter.check(moved)
    return moved


def _sources(snapshot: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Returns the sources of a snapshot of this or an earlier version."""
    alone = [snapshot] if "trials" in snapshot else []
    found: Sequence[Mapping[str, Any]] = snapshot.get("sources", alone)
    return found


def _observation(trial: Mapping[str, Any]) -> Observation:
    score, cost = trial["score"], trial["cost_seconds"]
    return Observation(
        params=trial["params"],
        state=TrialState(trial["state"]),
        end=trial.get("end"),  # earlier versions did not keep it
        score=score,
        cost_seconds=cost,
        busy_share=trial.get("busy_share"),  # nor this
        # The engine asks how far a trial came that was stopped.
        curve=(Measurement(steps=trial["steps"], elapsed_seconds=cost, score=score),),
    )
