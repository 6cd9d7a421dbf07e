"""Which trials of a very large sweep are read to recommend a config, or to look ahead.

The score model conditions on at most `MAX_POINTS` trials anyway: the highest scores, and others spread evenly over the
rest (`protein.engine.gp.subset`). So it learns from the same ones here. A config can only be recommended if it has
measured well for what it cost. The contenders are therefore those that the model learns from, the measured front, the
highest scores overall, and the highest of each stretch of log cost. Whoever reads them adds the other runs of the same
configs, since all runs of a config count.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from protein.engine.pareto import MIN_COST_SECONDS, front_indices

Floats = NDArray[np.float64]

MAX_WHOLE = 2000  # trials of a sweep that is read whole
_NUM_TOP = 800
_NUM_BINS, _NUM_IN_BIN = 24, 20  # of log cost


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the models need to know of a sweep of which only some trials are at hand.

    Attributes:
        taught: numbers of the trials that the models learn from.
        top: those of them with the highest scores; the others stand for all the rest.
        scores: of all trials of the sweep, `n`, to be maximised: they give the model its scale.
        num_complete: how many trials of the sweep were trained to their end.
        spent_seconds: what all finished trials have cost.
    """

    taught: frozenset[int]
    top: frozenset[int]
    scores: Floats
    num_complete: int
    spent_seconds: float

    @property
    def rest_weight(self) -> float:
        """For how many trials each of `taught` stands that is not in `top`."""
        return (len(self.scores) - len(self.top)) / max(len(self.taught) - len(self.top), 1)


def choose(
    number: NDArray[np.int64], score: Floats, run_seconds: Floats, complete: NDArray[np.bool_], spent_seconds: float
) -> tuple[Sample, list[int]]:
    """Returns the sample, and the numbers of all trials that are worth reading.

    Args:
        number: `n`, of the trials that have a score and are not excluded, complete or stopped ones.
        score: `n`, to be maximised.
        run_seconds: `n`, costs of their whole runs.
        complete: `n`, whether they were trained to their end.
        spent_seconds: what all finished trials of the sweep have cost.
    """
    from protein.engine.gp import MAX_POINTS, subset  # late: with scipy, which known answers do not need

    taught = subset(score, MAX_POINTS)
    top = taught[np.argsort(-score[taught], kind="stable")[: MAX_POINTS // 2]]
    whole = np.flatnonzero(complete)
    order = whole[np.argsort(-score[whole], kind="stable")]  # highest first
    log_cost = np.log(np.maximum(run_seconds[order], MIN_COST_SECONDS))
    low, high = (float(log_cost.min()), float(log_cost.max())) if len(log_cost) else (0.0, 0.0)
    edges = np.linspace(low, high, _NUM_BINS + 1)[1:-1]
    bins = np.digitize(log_cost, edges)
    kept = [order[np.flatnonzero(bins == i)[:_NUM_IN_BIN]] for i in range(_NUM_BINS)]
    front = whole[front_indices(score[whole], run_seconds[whole])]
    needed = np.unique(np.concatenate([taught, order[:_NUM_TOP], front, *kept]))
    sample = Sample(
        taught=frozenset(number[taught].tolist()),
        top=frozenset(number[top].tolist()),
        scores=score,
        num_complete=len(whole),
        spent_seconds=spent_seconds,
    )
    return sample, [int(n) for n in number[needed]]
