"""Reads the trials that a recommendation or an outlook needs: all of a usual sweep, some of a very large one."""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from protein.columns import DOT_FIELDS, TrialColumns
from protein.engine.sample import MAX_WHOLE, Sample, choose
from protein.ports import Store
from protein.types import Observation, SuggestionKind, SweepRecord, TrialEnd, TrialRecord, TrialState

FIELDS = (*DOT_FIELDS, "kind")
Known = TypeVar("Known", TrialRecord, Observation)
_LIMITS = (TrialEnd.CAPPED, TrialEnd.OUT_OF_BUDGET)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Readable:
    """A sweep's trials as far as they are needed.

    Attributes:
        trials: by number; of each curve, one point at most.
        columns: of all trials, those of `FIELDS`.
        sample: None where `trials` are all of the sweep.
    """

    trials: Sequence[TrialRecord]
    columns: TrialColumns
    sample: Sample | None


def readable(store: Store, sweep: SweepRecord, *, most: int = MAX_WHOLE) -> Readable:
    """Reads a sweep: all of its trials, or, if it has more than `most`, a sample (`protein.engine.sample`)."""
    columns = store.columns(sweep.id, fields=FIELDS)
    if len(columns) <= most:
        trials = store.trials(sweep.id, curves=False, last_points=True)
        return Readable(trials=trials, columns=columns, sample=None)
    words = (columns.state, columns.end, columns.kind)
    costs = (columns.run_seconds, columns.cost_seconds, columns.excluded)
    sample, needed, noted = _choose(columns.number, *words, columns.score, *costs)
    if any(kind is SuggestionKind.REEVALUATION for kind in columns.kind):
        needed = store.same_params(sweep.id, needed)
    trials = store.trials(sweep.id, curves=False, last_points=True, numbers={*needed, *noted})
    return Readable(trials=trials, columns=columns, sample=sample)


def sampled(trials: Sequence[Known], *, most: int = MAX_WHOLE) -> tuple[Sequence[Known], Sample | None]:
    """Returns of trials at hand the same that `readable` reads, and their sample."""
    if len(trials) <= most:
        return trials, None
    rows = [
        (t.number, t.state, t.end, getattr(t, "kind", None), t.score, t.run_seconds, t.cost_seconds, t.excluded)
        for t in trials
    ]
    number, state, end, kind, score, run_seconds, cost_seconds, excluded = zip(*rows, strict=True)
    numbers, scores = np.array(number, dtype=np.int64), np.array(score, dtype=np.float64)
    costs = (np.array(run_seconds), np.array(cost_seconds), np.array(excluded))
    sample, needed, noted = _choose(numbers, state, end, kind, scores, *costs)
    chosen = set(needed)
    params = {frozenset(trial.params.items()) for trial in trials if trial.number in chosen}  # named in any order
    chosen.update(noted)
    kept = [trial for trial in trials if trial.number in chosen or frozenset(trial.params.items()) in params]
    return kept, sample


def _choose(
    number: Any,
    state: Sequence[TrialState],
    end: Sequence[TrialEnd | None],
    kind: Sequence[SuggestionKind | None],
    score: Any,
    run_seconds: Any,
    cost_seconds: Any,
    excluded: Any,
) -> tuple[Sample, list[int], list[int]]:
    """Returns the sample, the trials that are needed for it, and others that are spoken of, by number.

    Those are the initial config, the best trial that was cut short, and an excluded one.
    """
    complete = np.array([one is TrialState.COMPLETE for one in state])
    pruned = np.array([one is TrialState.PRUNED for one in state])
    scored = np.flatnonzero((complete | pruned) & ~np.isnan(score) & ~excluded)
    spent = float(np.sum(cost_seconds[np.array([one is not None for one in end])]))
    sample, needed = choose(number[scored], score[scored], run_seconds[scored], complete[scored], spent)
    noted = [i for i, one in enumerate(kind) if one is SuggestionKind.INITIAL_CONFIG]
    cut = [i for i in scored.tolist() if end[i] in _LIMITS]
    noted += sorted(cut, key=lambda i: (-score[i], i))[:1]
    noted += np.flatnonzero(excluded & complete)[:1].tolist()
    return sample, needed, [int(number[i]) for i in noted]
