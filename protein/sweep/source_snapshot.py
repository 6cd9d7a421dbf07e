"""The source sweeps of a warm start, as plain data that is stored with the new sweep.

It is a snapshot: a source sweep may grow, or be deleted, and a resumed sweep still has the trials that it began with.
`protein.engine.warm_start` describes how the engine uses them.

    {"asked": what was asked for, "sources": [{"sweep": name, "trials": [...]}, ...]}, or {} without a warm start

Earlier versions stored the one source alone: {"sweep": name, "trials": [...]}.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from protein.engine.gp import subset
from protein.engine.history import whole_run_shares
from protein.engine.warm_start import carried_over
from protein.space import Space
from protein.types import Measurement, Observation, Params, TrialRecord, TrialState

MAX_TRIALS = 300  # in a snapshot. Of more, half are the best ones, and the rest are spread evenly over the scores


def of(
    name: str, trials: Sequence[TrialRecord], *, space: Space, fixed: Params, most: int = MAX_TRIALS
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


def num_configs(source: Mapping[str, Any], space: Space, start: Params | None) -> int:
    """Returns the number of different configs with a score that `space` can hold; `start` as of `carried_over`."""
    held = carried_over(space, start, [_observation(trial) for trial in source["trials"]])
    return len({space.key(one.params) for one in held if one.score is not None})


def observations(snapshot: Mapping[str, Any]) -> list[list[Observation]]:
    """Returns the trials of each source of a snapshot as observations for the designer. An empty one has no source."""
    return [[_observation(trial) for trial in source["trials"]] for source in _sources(snapshot)]


def names(snapshot: Mapping[str, Any]) -> list[str]:
    """Returns the names of a snapshot's source sweeps, in their order."""
    return [source["sweep"] for source in _sources(snapshot)]


def described(snapshot: Mapping[str, Any]) -> str:
    """Returns what a snapshot holds, as in "85 trials of sweeps 'a', 'b' and 'c'"."""
    count = sum(len(source["trials"]) for source in _sources(snapshot))
    *others, last = (f"'{name}'" for name in names(snapshot))
    listed = f"sweeps {', '.join(others)} and {last}" if others else f"sweep {last}"
    return f"{count} trial{'' if count == 1 else 's'} of {listed}"


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
