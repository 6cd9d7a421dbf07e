"""Which parameters of a stored sweep have their best values on the end of their range, for the commands."""

from collections.abc import Sequence
from typing import Any

from protein.analysis.range_ends import RangeEnd, range_ends
from protein.engine.sample import Sample
from protein.errors import SpaceError
from protein.space import Space
from protein.types import SweepRecord, TrialRecord


def sweep_range_ends(sweep: SweepRecord, trials: Sequence[TrialRecord], sample: Sample | None = None) -> list[RangeEnd]:
    """Returns them, most certain first (see `protein.analysis.range_ends`); none where too little is known.

    Args:
        sweep: as it is stored.
        trials: its trials as they are stored.
        sample: where these trials are not all: what is known of the others (`protein.api.reading`).
    """
    try:
        space = Space.from_dict(sweep.spec.space)
    except SpaceError:
        return []
    learnt = [trial.observation() for trial in trials if trial.state.finished and not trial.excluded]
    return range_ends(space, learnt, sample)


def plain(end: RangeEnd) -> dict[str, Any]:
    """Returns one as plain data, for `--json`."""
    return {
        "name": end.name,
        "end": end.end,
        "bound": end.bound,
        "best_value": end.best_value,
        "probability": end.probability,
        "text": end.text(),
    }
