"""The source sweep of a warm start, as plain data that is stored with the new sweep.

It is a snapshot: the source sweep may grow, or be deleted, and a resumed sweep still has the trials that it began with.
`protein.engine.warm_start` describes how the engine uses them.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from protein.engine.gp import subset
from protein.errors import UsageError
from protein.space import Space
from protein.types import Measurement, Observation, Params, TrialRecord, TrialState

MAX_TRIALS = 300  # in a snapshot. Of more, half are the best ones, and the rest are spread evenly over the scores


def snapshot(name: str, trials: Sequence[TrialRecord], *, space: Space, fixed: Params) -> dict[str, Any]:
    """Returns the finished trials of a source sweep as a new sweep of `space` keeps them.

    Args:
        name: of the source sweep.
        trials: its trials. Those that run, and those whose end does not teach, are left out.
        space: of the new sweep; other parameters are dropped.
        fixed: dotted values that all trials of the source sweep ran with beside their params.

    Raises:
        UsageError: no trial has a score.
    """
    finished = [trial for trial in trials if trial.end is not None and trial.end.teaches]
    if not any(trial.score is not None for trial in finished):
        raise UsageError(
            f"the source sweep '{name}' has no finished trial with a score; give it more time, or drop the warm start"
        )
    scores = np.array([-math.inf if trial.score is None else trial.score for trial in finished])
    kept = []
    for trial in (finished[i] for i in subset(scores, MAX_TRIALS)):
        values = {**fixed, **trial.params}
        kept.append(
            {
                "number": trial.number,
                "params": {name: values[name] for name in space.names if name in values},
                "state": str(trial.state),
                "end": str(trial.end),
                "score": trial.score,
                "cost_seconds": trial.run_seconds,
                "steps": trial.steps,
            }
        )
    return {"sweep": name, "trials": kept}


def observations(snapshot: Mapping[str, Any]) -> list[Observation]:
    """Returns the trials of a snapshot as observations for the designer. An empty snapshot has none."""
    return [_observation(trial) for trial in snapshot.get("trials", ())]


def _observation(trial: Mapping[str, Any]) -> Observation:
    score, cost = trial["score"], trial["cost_seconds"]
    return Observation(
        params=trial["params"],
        state=TrialState(trial["state"]),
        end=trial.get("end"),  # earlier versions did not keep it
        score=score,
        cost_seconds=cost,
        # The engine asks how far a trial came that was stopped.
        curve=(Measurement(steps=trial["steps"], elapsed_seconds=cost, score=score),),
    )
