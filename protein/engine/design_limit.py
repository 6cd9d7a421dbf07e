"""What a trial of the initial design may cost: twice what the initial config has cost, more if it is a longer run.

The design covers the ranges. Its trials are meant to be cheap, so the cost parameter stays low in them. But other
parameters can make a trial expensive, too: a deep, wide network costs many times the initial one at equal steps. No
model knows that yet. The initial config is what the user thinks a trial should cost, so it sets the limit:

    limit   factor * c * max(1, n / m)

where c is what the initial config cost, and n and m are the cost parameters of the trial and of the initial config. A
trial ends when it has cost this much, or when its pace shows that it will cost clearly more.
"""

from collections.abc import Sequence

from protein.engine.run_length import amount_asked, expected_seconds, steps_per_unit
from protein.space import Space
from protein.types import Measurement, Observation, Params, TrialState

_TOO_SLOW = 1.25  # times the limit: a pace that was measured at the beginning of a run may be wrong by that
_LEAST_LIMIT = 1.0  # seconds; below it there is little to save


def costs_too_much(
    space: Space,
    history: Sequence[Observation],
    start: Params,
    params: Params,
    curve: Sequence[Measurement],
    *,
    factor: float,
) -> str | None:
    """Returns why a running trial of the design should be stopped, or None.

    Args:
        space: its cost parameter says how long a trial is meant to be. Without one there is no limit: no trial of the
            design is meant to be cheaper than another one.
        history: finished trials. Without a complete trial of `start` there is no limit.
        start: the sweep's first config.
        params: of the running trial.
        curve: its points so far.
        factor: of the limit.
    """
    if space.cost_parameter is None or not curve or dict(params) == dict(start):
        return None
    complete = [o for o in history if o.state is TrialState.COMPLETE and not o.excluded]
    first = next((o for o in complete if dict(o.params) == dict(start)), None)
    asked, asked_first = amount_asked(space, params), amount_asked(space, start)
    if first is None or asked is None or asked_first is None:
        return None
    limit = factor * first.run_seconds * max(1.0, asked / asked_first)
    unit = steps_per_unit(space, complete)
    spent = curve[-1].elapsed_seconds
    expected = max(spent, 0.0 if unit is None else expected_seconds(curve, unit * asked))
    if limit < _LEAST_LIMIT or (spent <= limit and expected <= _TOO_SLOW * limit):
        return None
    return f"it would take {expected:.3g} s or more, and one of the first trials may take {limit:.3g} s"
