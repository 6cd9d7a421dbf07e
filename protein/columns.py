"""All trials of a sweep as columns, and a few curves as arrays: what tables, fronts and charts read.

A record for each trial, with its curve (`protein.types.TrialRecord`), is too much for a sweep of 100,000 trials. These
are the same facts by column. Scores are those that are stored, to be maximised (see `protein.direction`).
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from protein.types import SuggestionKind, TrialEnd, TrialState

if TYPE_CHECKING:  # `protein --help` loads this file, and does not need numpy
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]
    Flags: TypeAlias = NDArray[np.bool_]
    Values: TypeAlias = NDArray[Any]

MAX_TEXT = 500  # characters of `origin` and `reason`; `Store.trial` has the whole text
MAX_CURVES = 1000  # that are asked for at once
MAX_CURVE_POINTS = 20_000  # of one curve


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrialColumns:
    """n trials by number, all columns of length n. A number that a trial lacks is NaN.

    Where only some fields were asked for, the others are empty.

    Attributes:
        cursor: ask with it for what has changed since.
        number: counts from 0 within the sweep.
        id: unique within the store.
        state: one of five words.
        end: how it ended; None while it runs or waits.
        kind: which part of the engine suggested it.
        origin: the reason for the suggestion, cut to `MAX_TEXT` characters.
        reason: why it failed, was stopped or waits, cut to `MAX_TEXT` characters; "" otherwise.
        owner: of the trial, a process (see `protein.run.lease`).
        seed: of its training.
        score: of trials that ended with one.
        cost_seconds: of training; while it runs, of the last measurement.
        lost_seconds: what it spent and then spent again after an interruption; not in `cost_seconds`.
        steps: while it runs, of the last measurement.
        continues: number of the trial whose run it goes on with; -1: it began a run of its own.
        continued_seconds: of training that lay behind the checkpoint from which it went on.
        suggest_seconds: wall clock of the engine's own work.
        predicted_score, predicted_score_low, predicted_score_high: what was expected when it was suggested.
        predicted_cost_seconds, predicted_cost_seconds_low, predicted_cost_seconds_high: the same of its cost.
        started_at, finished_at: seconds since 1970 in UTC; `finished_at` is NaN while it runs.
        params: by dotted name. Integers, floats and booleans are arrays of that type, texts are objects. Where some
            trial lacks a parameter, a number is a float (NaN there) and anything else an object (None there).
        metrics: final figures beside the score, by name.
        timings: seconds that are recorded beside the cost, by name.
        tags: of each trial.
        note: of each trial, whole.
        excluded: whether the engine learns nothing from it.
    """

    cursor: str
    number: "Integers"
    id: "Integers"
    state: Sequence[TrialState]
    end: Sequence[TrialEnd | None]
    kind: Sequence[SuggestionKind]
    origin: Sequence[str]
    reason: Sequence[str]
    owner: Sequence[str]
    seed: "Integers"
    score: "Floats"
    cost_seconds: "Floats"
    lost_seconds: "Floats"
    steps: "Integers"
    continues: "Integers"
    continued_seconds: "Floats"
    suggest_seconds: "Floats"
    predicted_score: "Floats"
    predicted_score_low: "Floats"
    predicted_score_high: "Floats"
    predicted_cost_seconds: "Floats"
    predicted_cost_seconds_low: "Floats"
    predicted_cost_seconds_high: "Floats"
    started_at: "Floats"
    finished_at: "Floats"
    params: Mapping[str, "Values"]
    metrics: Mapping[str, "Floats"]
    timings: Mapping[str, "Floats"]
    tags: Sequence[tuple[str, ...]]
    note: Sequence[str]
    excluded: "Flags"

    def __len__(self) -> int:
        return len(self.number)

    @property
    def run_seconds(self) -> "Floats":
        """What whole runs have cost, from the first step on; more than the own cost where a trial continues one."""
        return self.continued_seconds + self.cost_seconds


FIELDS = tuple(field.name for field in dataclasses.fields(TrialColumns) if field.name != "cursor")


@dataclasses.dataclass(frozen=True, slots=True)
class Dot:
    """What is drawn and counted of a trial. `TrialRecord` has the same fields, and takes 50 times as long to read."""

    number: int
    state: TrialState
    end: TrialEnd | None
    score: float | None
    cost_seconds: float
    run_seconds: float
    lost_seconds: float
    excluded: bool


DOT_FIELDS = ("state", "end", "score", "cost_seconds", "continued_seconds", "lost_seconds", "excluded")


def dots(columns: TrialColumns) -> list[Dot]:
    """Returns the trials of columns that have at least `DOT_FIELDS`."""
    scores = [None if score != score else score for score in columns.score.tolist()]  # NaN is not itself
    costs = (columns.cost_seconds.tolist(), columns.run_seconds.tolist(), columns.lost_seconds.tolist())
    excluded = columns.excluded.tolist()
    fields = zip(columns.number.tolist(), columns.state, columns.end, scores, *costs, excluded, strict=True)
    return list(itertools.starmap(Dot, fields))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CurveColumns:
    """A trial's learning curve, thinned: `k` of its `num_points` points, in their order.

    Points without a value are left out. Where points were left out for their number, the lowest and the highest value
    of each stretch are kept, and the first and the last point.

    Attributes:
        number: of the trial.
        num_points: how many the stored curve has.
        steps: `k`.
        elapsed_seconds: `k`, of training.
        value: `k`, the score or the metric that was asked for.
    """

    number: int
    num_points: int
    steps: "Integers"
    elapsed_seconds: "Floats"
    value: "Floats"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SweepSummary:
    """A sweep's trials in a few numbers. Excluded trials count in `ends` and `spent_seconds` alone.

    Attributes:
        ends: how many trials ended how; None: how many have not finished.
        excluded: how many trials are excluded.
        spent_seconds: what all trials have cost, unfinished ones and what was lost included.
        best: number of the complete trial with the highest score, of equal ones the cheapest run; None: there is none.
        cut_short: number of the trial with the highest score among those that a limit of cost has ended, if any.
        running: numbers and owners of the running trials.
        waiting: numbers of the trials that wait to be taken up again.
    """

    ends: Mapping[TrialEnd | None, int]
    excluded: int
    spent_seconds: float
    best: int | None
    cut_short: int | None
    running: Mapping[int, str]
    waiting: tuple[int, ...] = ()
