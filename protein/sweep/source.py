"""The former sweep that a sweep began from, as plain data that is stored with the new one.

It is a snapshot: the former sweep may grow, or vanish, and a resumed sweep still sees what it began from. What the
engine makes of it is `protein.engine.warm_start`'s business.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from protein.engine.gp import subset
from protein.errors import UsageError
from protein.space import Space
from protein.types import Measurement, Observation, Params, TrialRecord, TrialState

MAX_TRIALS = 300  # that are taken over: of more, half are the best and the rest are spread evenly over the scores


def snapshot(name: str, trials: Sequence[TrialRecord], *, space: Space, fixed: Params) -> dict[str, Any]:
    """Returns what a new sweep of `space` takes over from the finished trials of a former one.

    Args:
        name: of the former sweep.
        trials: its trials; running ones and those that say nothing are left out.
        space: the new sweep's: other parameters are dropped.
        fixed: dotted values that all former trials ran with beside their params.

    Raises:
        UsageError: no former trial has a score.
    """
    finished = [trial for trial in trials if trial.end is not None and trial.end.teaches]
    if not any(trial.score is not None for trial in finished):
        raise UsageError(f"the prior '{name}' has no finished trial with a score; give it more time, or drop the prior")
    scores = np.array([-math.inf if trial.score is None else trial.score for trial in finished])
    taken = []
    for trial in (finished[i] for i in subset(scores, MAX_TRIALS)):
        values = {**fixed, **trial.params}
        taken.append(
            {
                "number": trial.number,
                "params": {name: values[name] for name in space.names if name in values},
                "state": str(trial.state),
                "end": str(trial.end),
                "score": trial.score,
                "cost_seconds": trial.cost_seconds,
                "steps": trial.steps,
            }
        )
    return {"sweep": name, "trials": taken}


def observations(prior: Mapping[str, Any]) -> list[Observation]:
    """Returns a snapshot's trials as the designer reads them; none of an empty one."""
    return [_observation(trial) for trial in prior.get("trials", ())]


def _observation(trial: Mapping[str, Any]) -> Observation:
    score, cost = trial["score"], trial["cost_seconds"]
    return Observation(
        params=trial["params"],
        state=TrialState(trial["state"]),
        end=trial.get("end"),  # earlier versions kept none
        score=score,
        cost_seconds=cost,
        # Of a trial that was stopped, the engine asks how far it had come.
        curve=(Measurement(steps=trial["steps"], elapsed_seconds=cost, score=score),),
    )
