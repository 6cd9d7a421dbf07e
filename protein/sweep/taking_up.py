"""Reads a sweep that is taken up again, with the learning curves that the engine learns from.

Curves are most of a store: of 10,000 trials with 100 points each, reading all took 13 s and 1.1 GB. The engine looks at
few of them. The score model takes points from the curves of the most expensive trials (`protein.engine.history`), and
the rule for early stopping compares a running trial with others (`protein.engine.stopping`), for which a sample is
enough. So a sweep of at most `MAX_WHOLE` trials is read whole, and of a larger one the curves of the most expensive
trials, and of others spread evenly over the scores. The rest have one point: how many steps they made.
"""

import numpy as np

from protein.engine.sample import MAX_WHOLE
from protein.ports import Store
from protein.types import Measurement, TrialRecord, TrialState

NUM_EXPENSIVE = 300
NUM_SPREAD = 700
_PART = 200  # trials whose curves are read in one query


def read(store: Store, sweep_id: int, *, most: int = MAX_WHOLE) -> list[TrialRecord]:
    """Returns all trials of a sweep by number; see the head of this file."""
    known = store.summaries([sweep_id])[sweep_id]
    if sum(known.ends.values()) <= most:
        return store.trials(sweep_id)
    trials = store.trials(sweep_id, curves=False)
    chosen = sorted({*_with_curves(trials), *known.running})
    whole: dict[int, TrialRecord] = {}
    for first in range(0, len(chosen), _PART):
        whole |= {trial.number: trial for trial in store.trials(sweep_id, numbers=chosen[first : first + _PART])}
    for i, trial in enumerate(trials):  # in place: both forms of 100,000 trials would take twice the memory
        trials[i] = whole.get(trial.number) or _with_last_point(trial)
    return trials


def _with_curves(trials: list[TrialRecord]) -> list[int]:
    """Returns the numbers of the finished trials whose curves are read."""
    scored = [trial for trial in trials if trial.state.finished and trial.score is not None and not trial.excluded]
    expensive = sorted(scored, key=lambda trial: (-trial.run_seconds, trial.number))[:NUM_EXPENSIVE]
    complete = [trial for trial in scored if trial.state is TrialState.COMPLETE]
    complete.sort(key=lambda trial: (-(trial.score or 0.0), trial.number))
    places = np.linspace(0, len(complete) - 1, min(NUM_SPREAD, len(complete))).round().astype(int)
    return [trial.number for trial in (*expensive, *(complete[i] for i in places))]


def _with_last_point(trial: TrialRecord) -> TrialRecord:
    """Returns a trial whose curve is one point without a score; the engine asks how many steps it made."""
    if not trial.steps:
        return trial
    point = Measurement(steps=trial.steps, elapsed_seconds=trial.cost_seconds, score=None)
    return TrialRecord(**{**vars(trial), "curve": (point,)})  # `dataclasses.replace` takes three times as long
