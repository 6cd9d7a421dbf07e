"""What more budget is expected to buy a stored sweep: behind `protein status NAME` and `protein show --calibration`."""

import math
from collections.abc import Sequence

import numpy as np

from protein.api.reading import sampled
from protein.api.recommended import score_range
from protein.engine.outlook import Hindsight, hindsight, outlook
from protein.engine.results import Outlook
from protein.engine.sample import Sample
from protein.space import Space
from protein.types import Observation, SweepRecord, TrialRecord


def sweep_outlook(sweep: SweepRecord, trials: Sequence[TrialRecord], sample: Sample | None = None) -> Outlook | None:
    """Returns the outlook of a sweep; None where too little is known, or the sweep does not run this engine.

    Args:
        sweep: as it is stored.
        trials: its trials as they are stored.
        sample: where these trials are not all: what is known of the others (`protein.api.reading`).
    """
    if sweep.spec.method != "protein":
        return None
    if sample is None:
        trials, sample = sampled(trials)
    try:
        return outlook(Space.from_dict(sweep.spec.space), _history(trials), highest_score(sweep), sample)
    except (ValueError, ArithmeticError, np.linalg.LinAlgError):  # an outlook that fails must not hide the rest
        return None


def sweep_hindsight(sweep: SweepRecord, trials: Sequence[TrialRecord]) -> list[Hindsight]:
    """Returns earlier outlooks of a sweep, and what came of them; none where `sweep_outlook` has none."""
    if sweep.spec.method != "protein":
        return []
    try:
        return hindsight(Space.from_dict(sweep.spec.space), _history(trials), highest_score(sweep))
    except (ValueError, ArithmeticError, np.linalg.LinAlgError):
        return []


def highest_score(sweep: SweepRecord) -> float:
    """Returns the highest possible score; infinite where it is not known."""
    known = score_range(sweep.spec.env)
    return math.inf if known is None else known[1]


def _history(trials: Sequence[TrialRecord]) -> list[Observation]:
    """Returns the finished trials in the order in which they ended."""
    finished = [trial for trial in trials if trial.finished_at is not None]
    finished.sort(key=lambda trial: (trial.finished_at, trial.number))
    return [trial.observation() for trial in finished]
