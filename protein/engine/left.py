"""Says why a designer had nothing left to suggest."""

import math
from collections.abc import Sequence

from protein.engine.candidates import all_points
from protein.engine.history import Known
from protein.space import Space
from protein.types import Observation, Params

BUDGET_SPENT = "the budget is spent"
SPACE_EXHAUSTED = "every config of the space was tried"


def limit_reached(max_trials: int) -> str:
    """Returns in a few words that no more trials are allowed."""
    return f"the limit of {max_trials} trial{'' if max_trials == 1 else 's'} is reached"


def why_nothing(
    space: Space,
    history: Sequence[Observation],
    running: Sequence[Params],
    *,
    remaining_seconds: float | None,
    max_trial_seconds: float | None,
) -> str:
    """Returns in a few words why `suggest` gave None for these arguments (see `protein.ports.Designer`)."""
    if remaining_seconds is not None and remaining_seconds <= 0:
        return BUDGET_SPENT
    points = all_points(space)
    if points is not None and not len(Known.of(space, history, running).untried(points)):
        return SPACE_EXHAUSTED
    remaining = math.inf if remaining_seconds is None else remaining_seconds
    cap = math.inf if max_trial_seconds is None else max_trial_seconds
    if remaining == cap == math.inf:
        return "no new config was found"
    limit = "what is left of the budget" if remaining <= cap else "what one trial may cost"
    return f"no new config is expected to fit {limit}"
