"""Where the budget went: to the front, to trials that a cheaper one beats, to failures.

A trial is *dominated* when a trial that was trained to its end cost no more and scored no worse. Nearly every trial of
a search is dominated in the end, and cheap ones are the price of searching. Expensive ones are not: a search that keeps
running them wastes its budget. So they are counted apart.

Notation
    expensive   costs more than the median of the trials that were trained to their end
    seconds     each trial's own cost; trials are compared by the cost of their whole run
    lost        seconds of training that an interruption has undone, so that they were spent again. No trial's cost has
                them, and the budget does

Excluded trials beat no other trial, and are counted apart. Scores are the measured ones. The share is a description of
a sweep, not a judgement of one trial: what is dominated is known only afterwards.
"""

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from protein.engine.pareto import Scored, front_indices
from protein.types import TrialState

Array = npt.NDArray[np.float64]


class Spent(Scored, Protocol):
    """What the functions below need of a trial; `TrialRecord` has it."""

    @property
    def cost_seconds(self) -> float: ...

    @property
    def lost_seconds(self) -> float: ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Seconds of training by what they bought. The parts add up to `total`.

    Attributes:
        front: trials of the measured front.
        dominated_expensive: dominated trials that cost more than `expensive_above`.
        dominated_cheap: the other dominated trials.
        cut_short: trials that were stopped, and that no trial dominates or that have no score.
        failed: failed trials, interrupted ones included.
        excluded: trials that a person has excluded, and that have not failed.
        running: what trials that have not finished have cost so far.
        lost: what interruptions have undone, in all trials.
        expensive_above: the limit in seconds; None where no trial was trained to its end.
        num_dominated_expensive: how many trials these are.
    """

    front: float
    dominated_expensive: float
    dominated_cheap: float
    cut_short: float
    failed: float
    excluded: float
    running: float
    lost: float
    expensive_above: float | None
    num_dominated_expensive: int

    @property
    def total(self) -> float:
        parts = (self.front, self.dominated_expensive, self.dominated_cheap)
        return sum((*parts, self.cut_short, self.failed, self.excluded, self.running, self.lost))

    @property
    def share(self) -> float:
        """The share of all seconds, from 0 to 1, that went to expensive trials that are dominated."""
        return self.dominated_expensive / self.total if self.total > 0 else 0.0


def spending(trials: Sequence[Spent]) -> Spending:
    """Returns where a sweep's seconds went; scores are to be maximised."""
    return spending_of(
        [trial.state for trial in trials],
        np.array([np.nan if trial.score is None else trial.score for trial in trials], dtype=np.float64),
        np.array([trial.cost_seconds for trial in trials], dtype=np.float64),
        np.array([trial.run_seconds for trial in trials], dtype=np.float64),
        np.array([trial.excluded for trial in trials], dtype=np.bool_),
        np.array([trial.lost_seconds for trial in trials], dtype=np.float64),
    )


def spending_of(
    states: Sequence[str], scores: Array, own: Array, run: Array, excluded: npt.NDArray[np.bool_], lost: Array
) -> Spending:
    """Returns where the seconds of n trials went.

    Args:
        states: `n`, values of `TrialState`.
        scores: `n`, to be maximised; NaN where there is none.
        own: `n`, each trial's own cost in seconds.
        run: `n`, the cost of its whole run.
        excluded: `n`, which of them a person has excluded.
        lost: `n`, what interruptions have undone of each.
    """
    state = np.array(states, dtype=object)
    left_out = excluded & ((state == TrialState.COMPLETE) | (state == TrialState.PRUNED))
    complete = (state == TrialState.COMPLETE) & ~np.isnan(scores) & ~left_out
    pruned = (state == TrialState.PRUNED) & ~left_out
    on_front = np.zeros(len(state), dtype=bool)
    on_front[np.flatnonzero(complete)[front_indices(scores[complete], run[complete])]] = True
    beaten = complete & ~on_front
    stopped = np.flatnonzero(pruned & ~np.isnan(scores))
    beaten[stopped] = scores[stopped] <= best_within(scores[complete], run[complete], run[stopped])
    limit = float(np.median(run[complete])) if complete.any() else None
    expensive = run > limit if limit is not None else np.zeros(len(state), dtype=bool)

    def seconds(which: np.ndarray) -> float:
        return float(own[which].sum())

    return Spending(
        front=seconds(on_front),
        dominated_expensive=seconds(beaten & expensive),
        dominated_cheap=seconds(beaten & ~expensive),
        cut_short=seconds(pruned & ~beaten),
        failed=seconds(state == TrialState.FAILED),
        excluded=seconds(left_out),
        running=seconds((state == TrialState.RUNNING) | (state == TrialState.WAITING)),
        lost=float(lost.sum()),
        expensive_above=limit,
        num_dominated_expensive=int((beaten & expensive).sum()),
    )


def best_within(scores: Array, costs: Array, limits: Array) -> Array:
    """Returns for each of `m` limits of cost the best of `n` scores within it, `m`; -inf where there is none."""
    order = np.argsort(costs, kind="stable")
    best = np.concatenate([[-np.inf], np.maximum.accumulate(scores[order])]) if len(order) else np.array([-np.inf])
    return np.asarray(best[np.searchsorted(costs[order], limits, side="right")])
