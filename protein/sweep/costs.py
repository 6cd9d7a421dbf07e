"""Refuses costs that cannot be true: 1e300 seconds would spend any budget, and no model could learn beside it."""

import dataclasses

from protein.ports import Finished, TrialProgress
from protein.types import MAX_COST_SECONDS, TrialEnd


def problem(event: TrialProgress | Finished) -> str | None:
    """Returns in one line what is wrong with the costs of an event, if anything is."""
    if isinstance(event, Finished):
        costs = [event.outcome.cost_seconds]
    else:
        costs = [point.elapsed_seconds for point in event.measurements]
    worst = max(costs, default=0.0)
    if worst <= MAX_COST_SECONDS:
        return None
    return f"reported a cost of {worst:.3g} s, beyond the limit of {MAX_COST_SECONDS:g} s (31 years); report seconds"


def without_garbage(event: TrialProgress) -> TrialProgress:
    """Returns an event without the points of the curve whose cost cannot be true."""
    good = tuple(point for point in event.measurements if point.elapsed_seconds <= MAX_COST_SECONDS)
    return dataclasses.replace(event, measurements=good)


def failed(event: Finished, reason: str, cost_seconds: float) -> Finished:
    """Returns the end of a trial that has reported such a cost; `cost_seconds` is what is known of the true one."""
    outcome = dataclasses.replace(
        event.outcome, end=TrialEnd.CRASHED, score=None, reason=reason, cost_seconds=cost_seconds
    )
    return dataclasses.replace(event, outcome=outcome)
