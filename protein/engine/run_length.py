"""How much of its run a trial has made.

Notation
    steps   what a trial's curve counts, in the user's own unit
    asked   the value of the cost parameter; 1 in a space without one
    unit    steps that a trial makes for each unit of the cost parameter, the median of the complete trials
    share   of its run that a trial has made, steps / (unit asked), in [0, 1]

A stopped trial whose share is unknown has a score of nobody knows what, and a cost that is only the least that a whole
run costs.
"""

from collections.abc import Sequence

import numpy as np

from protein.space import Categorical, Space
from protein.types import Observation, Params, TrialState

SAME_LENGTH = 1.25  # where complete trials' steps, relative to what was asked, differ by more, there is no unit


def steps_per_unit(space: Space, history: Sequence[Observation]) -> float | None:
    """Returns the unit, or None where the middle half of the complete trials do not agree on one.

    Where no complete trial has a curve, it is 1 with a cost parameter, and None without one.
    """
    complete = [o for o in history if o.state is TrialState.COMPLETE and o.curve]
    found = [last_step(o) / asked for o in complete if (asked := amount_asked(space, o.params)) is not None]
    if not found:
        return None if space.cost_parameter is None else 1.0
    low, unit, high = (float(q) for q in np.quantile(found, [0.25, 0.5, 0.75]))
    return unit if low > 0 and high <= SAME_LENGTH * low else None


def amount_asked(space: Space, params: Params) -> float | None:
    """Returns the cost parameter's value; 1 in a space without one; None where it is not a number above 0."""
    if space.cost_parameter is None:
        return 1.0
    value = params.get(space.cost_parameter)
    return float(value) if isinstance(value, int | float) and value > 0 else None


def last_step(observation: Observation) -> int:
    """Returns the steps of a trial whose curve has at least one point."""
    return max(point.steps for point in observation.curve)


def least_seconds(space: Space, observation: Observation, unit: float | None) -> float:
    """Returns the least that a stopped trial's whole run costs: at the pace of its curve where that is known."""
    asked, seconds = amount_asked(space, observation.params), observation.calm_seconds
    if unit is None or asked is None or not observation.curve:
        return seconds
    made = last_step(observation) / unit
    return seconds * asked / made if 0.0 < made < asked else seconds


def reached(space: Space, observation: Observation, unit: float | None) -> tuple[Params, float | None]:
    """Returns a finished trial's params, the cost parameter lowered to what it reached, and its share.

    The share is 1 for a trial that was not stopped, and None where it is unknown, or where the space has no run as
    short as that; then the params are as they were.
    """
    params = observation.params
    if observation.state is not TrialState.PRUNED:
        return params, 1.0
    if unit is None or not observation.curve:
        return params, None
    asked = amount_asked(space, params)
    if asked is None:  # a cost parameter may begin at 0, and there is no share of 0 steps
        return params, 1.0
    made = last_step(observation) / unit
    if made > SAME_LENGTH * asked:  # a run that was cut short cannot be longer: it counts other steps
        return params, None
    if space.cost_parameter is None:
        return params, min(made, 1.0) if made > 0 else None
    parameter = space.parameter(space.cost_parameter)
    assert not isinstance(parameter, Categorical)
    if made * SAME_LENGTH < parameter.low:  # its score and its cost are not those of the shortest run
        return params, None
    # Moved into the range (on a scale of powers of two, to the nearest one): the space has to be able to read it.
    lowered = parameter.clip(parameter.raw(min(made, asked)))
    return {**params, space.cost_parameter: lowered}, min(made / asked, 1.0)


def part_made(space: Space, observation: Observation, params: Params, share: float) -> float:
    """Returns which part of a run of `params` a trial made, given what `reached` returned for it.

    That is the share in a space without a cost parameter. With one it is about 1: the steps that were made are moved
    into the range, and on a scale of powers of two to the nearest one.
    """
    asked, counted = amount_asked(space, observation.params), amount_asked(space, params)
    return 1.0 if asked is None or counted is None or share == 0.0 else share * asked / counted
