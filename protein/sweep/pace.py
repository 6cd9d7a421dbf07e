"""How long a running trial will take: judged by its own pace, before it has reached its cap.

Notation
    steps   what a trial's curve counts
    total   steps of a trial that is trained to its end
    pace    seconds a step since the first point of the curve; what comes before it is compiling, or filling caches

Our own trainer's configs say how many steps a trial makes. Of any other program it is known once some trials are
complete and agree on it (`protein.engine.run_length`).
"""

import math
from collections.abc import Sequence

from protein.engine.run_length import amount_asked, steps_per_unit
from protein.space import Space
from protein.types import Measurement, Observation, Params, TrialState

_MIN_COMPLETE = 3  # trials; one alone could have counted other steps than this one


def expected_seconds(curve: Sequence[Measurement], total_steps: float) -> float:
    """Returns what a run costs in all at the pace of its curve; 0 while the curve does not tell."""
    if len(curve) < 2 or not 0 < curve[0].steps < curve[-1].steps <= total_steps:
        return 0.0
    pace = (curve[-1].elapsed_seconds - curve[0].elapsed_seconds) / (curve[-1].steps - curve[0].steps)
    expected = curve[-1].elapsed_seconds + pace * (total_steps - curve[-1].steps)
    return expected if math.isfinite(expected) else 0.0


def steps_by_others(space: Space, history: Sequence[Observation], params: Params) -> float | None:
    """Returns the steps that a trial with these params makes, judged by complete trials; None where they do not tell.

    Args:
        space: its cost parameter says how long a trial is meant to be; without one, all have the same length.
        history: finished trials.
        params: those of the trial.
    """
    complete = [o for o in history if o.state is TrialState.COMPLETE and o.curve and not o.excluded]
    if len(complete) < _MIN_COMPLETE:
        return None
    unit, asked = steps_per_unit(space, complete), amount_asked(space, params)
    return None if unit is None or asked is None else unit * asked
