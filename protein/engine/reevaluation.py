"""Runs a contender again, with a new seed, where that may change which config is recommended.

The best measured score is partly luck. When little of the budget is left, the question is less "is there a better
config?" than "which of these is best?". Another run of the right one answers it.

Notation
    i, mu_i, sd_i   a contender (a config trained to its end): posterior of its noiseless score z
    v_i             the noise variance of one more run of it
    f_i             the highest mu of the other contenders
    s_i             standard deviation of the change of mu_i by one more run: sd_i^2 / sqrt(sd_i^2 + v_i)
    h(u)            phi(u) + u Phi(u)

One more run of contender i may move it up or down, and so change which config is recommended. On average, the true
score of the recommended config rises by s_i h(-|mu_i - f_i| / s_i), the knowledge gradient. It is priced by cost like
any trial (see `protein.engine.acquisition`). Where the noise is small compared with the gaps between contenders, the
gain is below `reevaluation_gain`. Then nothing is run again, and the search goes on. Without a budget the sweep has no
planned end, and nothing is run again.

Posteriors are those of the recommendation (`protein.engine.recommend`): from final scores alone, no points of curves.

Source: Frazier, Powell and Dayanik, A Knowledge-Gradient Policy for Sequential Information Collection (2008),
section 3.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from protein.engine.acquisition import log_h
from protein.engine.budget import AffordableCost
from protein.engine.gp import Array
from protein.engine.history import History, complete_runs, keys
from protein.engine.score_model import fit_score_model
from protein.engine.settings import EngineSettings
from protein.space import Space
from protein.types import Budget, Observation, Params

MAX_RUNS = 4  # of one config, its first included
_MAX_CONTENDERS = 300  # of the highest measured scores: the others gain nothing, and thousands would take seconds


@dataclasses.dataclass(frozen=True, slots=True)
class Repeat:
    """A contender to be run again: its params as they were, `x_unit` of `d`, and the reason."""

    params: Params
    x_unit: Array
    origin: str


def reevaluation(
    space: Space,
    history: Sequence[Observation],
    data: History,
    affordable: AffordableCost,
    settings: EngineSettings,
    budget: Budget,
) -> Repeat | None:
    """Returns the contender that should be run again now, or None where the search should go on.

    Args:
        space: the space.
        history: the finished trials.
        data: finished and running trials as arrays.
        affordable: what one trial may cost.
        settings: the last `reevaluation_share` of the budget may be spent on repeats.
        budget: what is left.
    """
    remaining = budget.remaining_seconds
    if remaining is None or remaining > settings.reevaluation_share * affordable.total_seconds:
        return None
    groups, x = complete_runs(space, history)
    if len(groups) < 2:
        return None
    if len(groups) > _MAX_CONTENDERS:
        means = np.array([math.fsum((history[i].score or 0.0) / len(group) for i in group) for group in groups])
        keep = np.sort(np.argsort(-means, kind="stable")[:_MAX_CONTENDERS])
        groups, x = [groups[i] for i in keep], x[keep]
    score = fit_score_model(space, data.one_of_each_run(), settings, averaged=True)
    score = score.fantasize(data.x_running) if len(data.x_running) else score
    mean, sd = score.predict(x)
    gain = expected_gain(mean, sd, score.noise_at(x))
    busy = set(keys(data.x_running))
    free = [len(group) < MAX_RUNS and key not in busy for group, key in zip(groups, keys(x), strict=True)]
    may = np.array(free) & (gain >= settings.reevaluation_gain) & affordable.fits(x)
    if not may.any():
        return None
    cost = np.array([math.fsum(history[i].run_seconds / len(group) for i in group) for group in groups])
    price = (cost + settings.price_floor * affordable.total_seconds) ** settings.cost_exponent
    best = int(np.argmax(np.where(may, gain / price, -np.inf)))
    # Any of its runs would do, but the choice may not depend on the order of the history.
    first = min((history[i] for i in groups[best]), key=lambda o: (o.number or 0, o.score, sorted(o.params.items())))
    name = f"trial {first.number}" if first.number is not None else f"the config that scored {first.score:.4g}"
    return Repeat(first.params, x[best], f"re-evaluation of {name}, which may be the best")


def expected_gain(mean: Array, sd: Array, noise: Array) -> Array:
    """Returns the knowledge gradient of n >= 2 contenders, `n`, in units of z.

    Args:
        mean, sd: posterior of the noiseless z, `n` each, sd above 0.
        noise: variance of one measurement of each, `n`, 0 or more.
    """
    moved = sd * sd / np.sqrt(sd * sd + noise)
    second, top = np.argsort(mean, kind="stable")[-2:]
    others = np.full(len(mean), mean[top])
    others[top] = mean[second]
    return np.asarray(moved * np.exp(log_h(-np.abs(mean - others) / moved)))
