"""Which trials of a very large sweep are read, to recommend a config, to look ahead, or to map the model.

There is one rule, so that every command and page fits the same trials. A sweep of at most `MAX_WHOLE` trials is read
whole. The score model conditions on at most `MAX_POINTS` trials anyway: the highest scores, and others spread evenly
over the rest (`protein.engine.gp.subset`). So it learns from the same ones here. A config can only be recommended if it
has measured well for what it cost. The contenders are therefore those that the model learns from, the measured front,
the highest scores overall, and the highest of each stretch of log cost. In these, trials that have broken a limit on a
metric come last. Whoever reads them adds the other runs of the same configs, since all runs of a config count.

A resumed sweep has all trials, and its models condition on the same ones of them. Of their curves, the score model
takes points from those of the most expensive trials (`protein.engine.history`), and the rule for early stopping
compares a running trial with others (`protein.engine.stopping`), for which a sample is enough (`with_curves`).
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from protein.columns import cells
from protein.engine.pareto import MIN_COST_SECONDS, front_indices
from protein.types import Limit, Observation, SuggestionKind, TrialEnd, TrialRecord, TrialState, broken

Floats = NDArray[np.float64]

MAX_WHOLE = 2000  # trials of a sweep that is read whole
_NUM_TOP = 800
_NUM_BINS, _NUM_IN_BIN = 24, 20  # of log cost
NUM_EXPENSIVE = 300  # the most expensive trials of a large sweep, whose curves are read ...
NUM_SPREAD = 700  # ... and others, spread over the scores
_LIMITS = (TrialEnd.CAPPED, TrialEnd.OUT_OF_BUDGET)
Known = TypeVar("Known", TrialRecord, Observation)


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
    number: NDArray[np.int64],
    score: Floats,
    run_seconds: Floats,
    complete: NDArray[np.bool_],
    spent_seconds: float,
    breaks: NDArray[np.bool_] | None = None,
) -> tuple[Sample, list[int]]:
    """Returns the sample, and the numbers of all trials that are worth reading.

    Args:
        number: `n`, of the trials that have a score and are not excluded, complete or stopped ones.
        score: `n`, to be maximised.
        run_seconds: `n`, costs of their whole runs.
        complete: `n`, whether they were trained to their end.
        spent_seconds: what all finished trials of the sweep have cost.
        breaks: `n`, whether they break a limit; None: there are no limits.
    """
    from protein.engine.gp import MAX_POINTS, subset  # late: with scipy, which known answers do not need

    taught = subset(score, MAX_POINTS)
    top = taught[np.argsort(-score[taught], kind="stable")[: MAX_POINTS // 2]]
    whole = np.flatnonzero(complete)
    breaks = np.zeros(len(number), dtype=bool) if breaks is None else breaks
    order = whole[np.lexsort((-score[whole], breaks[whole]))]  # highest first
    log_cost = np.log(np.maximum(run_seconds[order], MIN_COST_SECONDS))
    low, high = (float(log_cost.min()), float(log_cost.max())) if len(log_cost) else (0.0, 0.0)
    edges = np.linspace(low, high, _NUM_BINS + 1)[1:-1]
    bins = np.digitize(log_cost, edges)
    kept = [order[np.flatnonzero(bins == i)[:_NUM_IN_BIN]] for i in range(_NUM_BINS)]
    able = whole[~breaks[whole]]
    front = able[front_indices(score[able], run_seconds[able])]
    needed = np.unique(np.concatenate([taught, order[:_NUM_TOP], front, *kept]))
    sample = Sample(
        taught=frozenset(number[taught].tolist()),
        top=frozenset(number[top].tolist()),
        scores=score,
        num_complete=len(whole),
        spent_seconds=spent_seconds,
    )
    return sample, [int(n) for n in number[needed]]


def sampled(
    trials: Sequence[Known], *, most: int = MAX_WHOLE, limits: Sequence[Limit] = ()
) -> tuple[Sequence[Known], Sample | None]:
    """Returns of trials at hand those that `protein.api.answers.readable` reads from a store, and their sample."""
    if len(trials) <= most:
        return trials, None
    rows = [
        (t.number, t.state, t.end, getattr(t, "kind", None), t.score, t.run_seconds, t.cost_seconds, t.excluded)
        for t in trials
    ]
    number, state, end, kind, score, run_seconds, cost_seconds, excluded = zip(*rows, strict=True)
    numbers, scores = np.array(number, dtype=np.int64), np.array(score, dtype=np.float64)
    costs = (np.array(run_seconds), np.array(cost_seconds), np.array(excluded))
    breaks = np.array([bool(broken(limits, trial.metrics)) for trial in trials])
    sample, needed, noted = sample_of(numbers, state, end, kind, scores, *costs, breaks)
    chosen = set(needed)
    params = {_config(trial) for trial in trials if trial.number in chosen}
    chosen.update(noted)
    kept = [trial for trial in trials if trial.number in chosen or _config(trial) in params]
    return kept, sample


def _config(trial: Known) -> frozenset[tuple[str, Any]]:
    """Returns what two trials of one config have in common, whatever the order of its names is."""
    return frozenset(cells(trial.params).items())


def with_curves(trials: Sequence[TrialRecord]) -> list[int]:
    """Returns the numbers of the finished trials of a large sweep whose curves a resumed sweep reads."""
    scored = [trial for trial in trials if trial.state.finished and trial.score is not None and not trial.excluded]
    expensive = sorted(scored, key=lambda trial: (-trial.run_seconds, trial.number))[:NUM_EXPENSIVE]
    complete = [trial for trial in scored if trial.state is TrialState.COMPLETE]
    complete.sort(key=lambda trial: (-(trial.score or 0.0), trial.number))
    places = np.linspace(0, len(complete) - 1, min(NUM_SPREAD, len(complete))).round().astype(int)
    return [trial.number for trial in (*expensive, *(complete[i] for i in places))]


def sample_of(
    number: Any,
    state: Sequence[TrialState],
    end: Sequence[TrialEnd | None],
    kind: Sequence[SuggestionKind | None],
    score: Any,
    run_seconds: Any,
    cost_seconds: Any,
    excluded: Any,
    breaks: Any,
) -> tuple[Sample, list[int], list[int]]:
    """Returns the sample, the trials that are needed for it, and others that are spoken of, by number.

    Those are the initial config, the best trial that was cut short, and an excluded one.
    """
    complete = np.array([one is TrialState.COMPLETE for one in state])
    pruned = np.array([one is TrialState.PRUNED for one in state])
    scored = np.flatnonzero((complete | pruned) & ~np.isnan(score) & ~excluded)
    # As in a sweep that is read whole: what confirmations have cost is no cost of the search.
    ended = [e is not None and k is not SuggestionKind.REEVALUATION for e, k in zip(end, kind, strict=True)]
    spent = float(np.sum(cost_seconds[np.array(ended)]))
    costs = run_seconds[scored]
    sample, needed = choose(number[scored], score[scored], costs, complete[scored], spent, breaks[scored])
    noted = [i for i, one in enumerate(kind) if one is SuggestionKind.INITIAL_CONFIG]
    cut = [i for i in scored.tolist() if end[i] in _LIMITS]
    noted += sorted(cut, key=lambda i: (-score[i], i))[:1]
    noted += np.flatnonzero(excluded & complete)[:1].tolist()
    return sample, needed, [int(number[i]) for i in noted]
