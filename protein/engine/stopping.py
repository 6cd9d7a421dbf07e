"""Which running trials are stopped early: those that, judged by similar trials, will not come near the front.

Notation
    phi      share of a trial's steps that are done, in (0, 1]
    s(phi)   score of its learning curve there, linear between points
    S        its final score (of a finished trial)
    c        what it costs; for a running trial what it will have cost, the seconds so far over phi
    bar      the lower of two: the best final score at a cost of at most c, and the `bar_quantile` of all final scores

Like is compared with like:

- at the same share of the run, because under a learning-rate schedule a trial that is half-way differs from a finished
  trial of half the steps;
- among trials of a similar cost or more, because short runs end before learning takes off;
- the curve's score (of episodes in training) with the curve's score, because the final score is that of an evaluation.

A trial is stopped when it is in the lower half of the comparable ones at phi and none of those nearest to it there
reached the bar in the end. Nothing is assumed about the form of curves. One trial that took off late from a similar
score is enough to let it run on.

Source: the comparison with other trials' scores at the same point is the idea of the median rule (Golovin et al.,
Google Vizier: A Service for Black-Box Optimization, 2017). The rest is ours, measured in docs/decisions/engine.md.
"""

import dataclasses
import math
import zlib
from collections.abc import Sequence

import numpy as np

from protein.engine.history import amount_asked, last_step, steps_per_unit
from protein.space import Space
from protein.types import Measurement, Observation, Params, TrialState


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What the rule needs before it stops a trial. `docs/decisions/engine.md` says what was measured."""

    min_finished: int = 10  # complete trials before any is stopped
    first_share: float = 0.4  # of the run: no trial is stopped before it ...
    last_share: float = 0.9  # ... or after it, where little is left to save
    cost_share: float = 0.25  # comparable trials cost at least this share of what the running one will have cost
    num_nearest: int = 6  # of the comparable trials, those that are nearest to the running one ...
    nearest_share: float = 0.25  # ... or this share of them, where that is more
    bar_quantile: float = 0.8
    spared: float = 0.12  # this share of the trials to be stopped may finish, so that the models see how they end


def reason_to_stop(
    space: Space,
    history: Sequence[Observation],
    params: Params,
    curve: Sequence[Measurement],
    *,
    seed: int,
    rule: Rule | None = None,
) -> str | None:
    """Returns why a running trial should be stopped, or None. The words are true whether scores are minimised or not.

    Args:
        space: its cost parameter says how long a trial is meant to be.
        history: finished trials, in any order.
        params: of the running trial. A config that has a complete trial already is being measured again, and may
            finish.
        curve: its points so far.
        seed: decides, with the params, whether the trial is one of those that are spared.
        rule: the rule's numbers; None: the defaults, which were measured.
    """
    rule = rule or Rule()
    complete = [o for o in history if o.state is TrialState.COMPLETE and not o.excluded]
    own, unit, asked = _scored(curve), steps_per_unit(space, complete), amount_asked(space, params)
    if len(complete) < rule.min_finished or not own or unit is None or asked is None:
        return None
    key = space.key(params)
    if any(space.key(o.params) == key for o in complete):
        return None
    steps, seconds, score = own[-1]
    share = steps / (unit * asked)
    if not rule.first_share <= share <= rule.last_share:
        return None
    costs = np.array([o.run_seconds for o in complete])
    final = np.array([o.score for o in complete], dtype=np.float64)
    cost = seconds / share
    if cost < float(np.mean(costs)):  # there is little to save, and the models learn most from cheap trials
        return None
    affordable = costs <= cost
    if not affordable.any():  # all cost the same, and by rounding their mean is below each of them
        return None
    enough = costs >= rule.cost_share * cost
    # Only of these: there may be thousands of others, and to look at a curve takes time.
    then = np.array([_score_at(o, share) if long else math.nan for o, long in zip(complete, enough, strict=True)])
    comparable = np.isfinite(then)
    num_comparable = int(np.sum(comparable))
    num_nearest = max(rule.num_nearest, round(rule.nearest_share * num_comparable))
    if num_comparable < num_nearest:
        return None
    place = 1 + int(np.sum(then[comparable] > score))
    if place <= num_comparable / 2 + 1:
        return None
    bar = min(float(np.max(final[affordable])), float(np.quantile(final, rule.bar_quantile)))
    # Of equally near trials, those that ended best: so the order of the history does not matter, and in doubt the trial
    # runs on.
    nearest = np.lexsort((-final[comparable], np.abs(then[comparable] - score)))[:num_nearest]
    if float(np.max(final[comparable][nearest])) >= bar or _is_spared(params, seed, rule.spared):
        return None
    return (
        f"at {100 * share:.0f} % of its steps it ranked {place} of {num_comparable + 1} comparable trials,"
        f" and none of the {num_nearest} closest in rank ended near the front"
    )


def _scored(curve: Sequence[Measurement]) -> list[tuple[int, float, float]]:
    """Returns (steps, seconds, score) of the points that have a score, by steps."""
    return sorted((p.steps, p.elapsed_seconds, p.score) for p in curve if p.score is not None and p.steps > 0)


def _score_at(observation: Observation, share: float) -> float:
    """Returns the score at a share of a finished trial's steps; NaN where its curve had none yet."""
    points = _scored(observation.curve)
    if not points:
        return math.nan
    steps, _, scores = zip(*points, strict=True)
    return float(np.interp(share * last_step(observation), steps, scores, left=math.nan))


def _is_spared(params: Params, seed: int, probability: float) -> bool:
    """Draws whether a trial is spared: the same at every point of its curve."""
    key = zlib.crc32(repr(sorted(params.items())).encode())
    return bool(np.random.default_rng([seed, key]).random() < probability)
