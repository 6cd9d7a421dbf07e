"""Which running trial is hopeless: it will not reach the front, to judge by how others went on that once stood like it.

Notation
    phi      share of a trial's steps that are done, in (0, 1]
    s(phi)   score of its learning curve there, between points linearly
    S        its final score (of a finished trial)
    c        what it costs, or, while it runs, what it will have cost: the seconds so far over phi
    f(c)     the best final score of finished trials that cost at most c

Like is compared with like: at the same share of the run, because under a learning-rate schedule a trial that is half
way is not what a trial of half the steps is, however equal their steps; and the curve's score (of episodes in training)
with the curve's, because the final score comes of an evaluation.

The forecast is by neighbours: of the finished trials, the `num_neighbours` whose s(phi) was nearest to the running
trial's. If not even the best of their final scores reached f(c), the trial is hopeless. Nothing is assumed about the
curves' form, and one trial that took off late from where this one stands is enough to let it run on.

Source: that other trials' scores at the same point make a yardstick is the median rule's idea (Golovin et al., Google
Vizier: A Service for Black-Box Optimization, 2017); the rest is ours, measured in docs/log.md.
"""

import dataclasses
import math
import zlib
from collections.abc import Sequence

import numpy as np

from protein.space import Space
from protein.types import Measurement, Observation, Params, TrialState

_SAME_STEPS = 1.25  # finished trials whose steps, relative to what was asked, differ by more are of unknown length


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What the rule needs before it stops anything."""

    min_finished: int = 10  # complete trials with a curve
    first_share: float = 1.0 / 3.0  # of the run: before it nothing is stopped
    last_share: float = 0.9  # nor after it, where nothing is left to save
    min_neighbours: int = 6
    neighbour_share: float = 0.25  # of the finished trials, where that is more
    spared: float = 0.12  # share of the hopeless that may finish all the same, so that the models see how those end


def reason_to_stop(
    space: Space,
    history: Sequence[Observation],
    params: Params,
    curve: Sequence[Measurement],
    *,
    seed: int,
    rule: Rule | None = None,
) -> str | None:
    """Returns why a running trial is hopeless, in words without units of the score, or None.

    Args:
        space: its cost parameter says how long a trial is meant to be.
        history: finished trials, in any order.
        params: of the running trial.
        curve: its points so far, oldest first.
        seed: decides, with the params, whether the trial is one of those that are spared.
        rule: the numbers above.
    """
    rule = rule or Rule()
    finished = [o for o in history if o.state is TrialState.COMPLETE and len(_scored(o.curve)) > 1]
    own = _scored(curve)
    length = _length(space, finished, params)
    if len(finished) < rule.min_finished or not own or length is None:
        return None
    share, score = own[-1].steps / length, own[-1].score
    if not rule.first_share <= share <= rule.last_share or score is None:
        return None
    if any(dict(o.params) == dict(params) for o in history):  # a re-evaluation is there to be finished
        return None
    cost = own[-1].elapsed_seconds / share
    costs = np.array([o.cost_seconds for o in finished])
    if cost < float(np.median(costs)):
        return None
    then = np.array([_score_at(o, share) for o in finished])
    final = np.array([o.score for o in finished], dtype=np.float64)
    known = np.isfinite(then)
    count = max(rule.min_neighbours, round(rule.neighbour_share * int(np.sum(known))))
    if int(np.sum(known)) < count:
        return None
    affordable = costs <= cost
    front = float(np.max(final[affordable]))
    nearest = np.argsort(np.abs(then[known] - score), kind="stable")[:count]
    if float(np.max(final[known][nearest])) >= front or _is_spared(params, seed, rule.spared):
        return None
    place = 1 + int(np.sum(then[known] > score))
    return (
        f"at {share:.0%} of its steps in place {place} of {int(np.sum(known)) + 1},"
        f" and none of the {count} trials that stood like it there came up to the best at its cost"
    )


def _scored(curve: Sequence[Measurement]) -> list[Measurement]:
    return [point for point in curve if point.score is not None and point.steps > 0]


def _length(space: Space, finished: Sequence[Observation], params: Params) -> float | None:
    """Returns the steps that a trial of these params is meant to make; None where the finished ones do not tell.

    Curves count steps of the user's own kind. They are taken to be proportional to the cost parameter, or equal for
    all where there is none, if the finished trials agree.
    """
    name = space.cost_parameter
    asked = [_number(o.params.get(name)) if name is not None else 1.0 for o in finished]
    own = _number(params.get(name)) if name is not None else 1.0
    ratios = [o.curve[-1].steps / a for o, a in zip(finished, asked, strict=True) if a is not None]
    if own is None or not ratios:
        return None
    low, ratio, high = (float(q) for q in np.quantile(ratios, [0.1, 0.5, 0.9]))
    return ratio * own if low > 0 and high <= _SAME_STEPS * low else None


def _number(value: object) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return float(value) if usable else None  # type: ignore[arg-type]


def _score_at(observation: Observation, share: float) -> float:
    """Returns the score at a share of a finished trial's steps; NaN where its curve had none yet."""
    points = _scored(observation.curve)
    shares = [point.steps / observation.curve[-1].steps for point in points]
    scores: list[float] = [point.score for point in points if point.score is not None]
    return float(np.interp(share, shares, scores, left=math.nan))


def _is_spared(params: Params, seed: int, probability: float) -> bool:
    """Draws whether a trial is spared: the same at every point of its curve."""
    key = zlib.crc32(repr(sorted(params.items())).encode())
    return bool(np.random.default_rng([seed, key]).random() < probability)
