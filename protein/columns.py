"""All trials of a sweep as columns, and a few curves as arrays: what tables, fronts and charts read.

A record for each trial, with its curve (`protein.types.TrialRecord`), is too much for a sweep of 100,000 trials. These
are the same facts by column. Scores are those that are stored, to be maximised (see `protein.direction`).
"""

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeAlias, get_args, get_origin, get_type_hints

from protein.types import Estimate, Limit, Params, SuggestionKind, TrialEnd, TrialRecord, TrialState

if TYPE_CHECKING:  # `protein --help` loads this file, and does not need numpy
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]

MAX_TEXT = 500  # characters of `origin` and `reason`; `Store.trial` has the whole text
MAX_CURVES = 1000  # that are asked for at once
MAX_CURVE_POINTS = 20_000  # of one curve

_OF_RECORDS = ("sweep_id", "cancel_requested", "curve", "artifacts", "provenance")  # that are no columns here


def _fields() -> Iterator[tuple[str, type]]:
    hints = get_type_hints(TrialRecord)
    for field in dataclasses.fields(TrialRecord):
        hint = hints[field.name]
        if get_origin(hint) is UnionType:  # or None
            hint = get_args(hint)[0]
        if field.name in _OF_RECORDS:
            continue
        for side in ("", "_low", "_high") if hint is Estimate else ("",):
            yield field.name + side, float if hint is Estimate else get_origin(hint) or hint


# The one list of a trial's fields is that of `protein.types.TrialRecord`. Each field is a column here, and from here on
# it is in the store's table, in data frames, in `--json` and on the pages, without a change there.
FIELDS: Mapping[str, Any] = dict(_fields())  # name -> int, float, str, bool, datetime, tuple, Mapping, or its enum
GROUPS = ("params", "metrics", "timings")  # fields that are columns by a name of the user's
TABLE_FIELDS = (  # in the order in which tables show them
    "number",
    "state",
    "end",
    "score",
    "cost_seconds",
    "steps",
    "predicted_score",
    "predicted_score_low",
    "predicted_score_high",
    "predicted_cost_seconds",
    "predicted_cost_seconds_low",
    "predicted_cost_seconds_high",
    "kind",
    "origin",
    "reason",
    "tags",
    "note",
    "excluded",
    "continues",
    "continued_seconds",
    "run_seconds",
    "lost_seconds",
    "suggest_seconds",
    "started_at",
    "finished_at",
)
# What heads of tables call the fields that they do not call by their names. A filter takes them.
HEADS: Mapping[str, str] = {
    "number": "trial",
    "cost_seconds": "cost",
    "predicted_score": "predicted score",
    "predicted_score_low": "predicted score, low",
    "predicted_score_high": "predicted score, high",
    "predicted_cost_seconds": "predicted cost",
    "predicted_cost_seconds_low": "predicted cost, low",
    "predicted_cost_seconds_high": "predicted cost, high",
    "kind": "suggested by",
    "origin": "why",
    "continued_seconds": "continued after",
    "run_seconds": "run cost",
    "lost_seconds": "lost, spent again",
    "suggest_seconds": "suggested in",
    "started_at": "started",
    "finished_at": "finished",
}
# Fields without a place of their own: everything shows them as they are, behind the others.
OTHERS = tuple(name for name in FIELDS if name not in (*TABLE_FIELDS, *GROUPS, "id", "owner", "seed"))


class JsonText(str):
    """A parameter's value that is no number, text or truth value, but None, a list or a table: its JSON, as a word.

    So tables, filters and pages show such a value in the same way, as `null` or `[64, 64]`. None in a column means that
    there is no value.
    It equals the text of the same characters, and is another type.
    """

    __slots__ = ()


def cell(value: Any) -> Any:
    """Returns what stands for a parameter's value in a column: a number, a text and a truth value for themselves."""
    return value if isinstance(value, bool | int | float | str) else JsonText(json.dumps(value, sort_keys=True))


def cells(params: Params) -> dict[str, Any]:
    """Returns what stands for each of some params."""
    return {name: cell(value) for name, value in params.items()}


def value_of(cell: Any) -> Any:
    """Returns the value that a cell stands for."""
    return json.loads(cell) if isinstance(cell, JsonText) else cell


def in_order(names: Iterable[str], space: Mapping[str, Any]) -> list[str]:
    """Returns the names of parameters as a sweep's stored space has them, and others behind, in their own order."""
    listed = space.get("parameters")
    own = [one.get("name") for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []
    places = {name: place for place, name in enumerate(own) if isinstance(name, str)}  # a damaged store holds anything
    return sorted(dict.fromkeys(names), key=lambda name: places.get(name, len(places)))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrialColumns:
    """n trials by number, with each of `FIELDS` as an attribute: a column of length n. A number that is missing is NaN.

    Integers, floats and booleans are arrays, words and texts are lists. A few columns differ from the field of the
    record: `origin` and `reason` are cut to `MAX_TEXT` characters, `continues` is -1 where a trial began a run of its
    own, times are seconds since 1970 in UTC, and params (in the order of the space), metrics and timings are columns by
    name. Params that are integers, floats and booleans are arrays of that type, everything else is an array of cells
    (see `cell`). Where some trial lacks a parameter, as it is not active there, a number is a float (NaN there) and any
    other cell is None.

    Where only some fields were asked for, the others are empty.
    """

    cursor: str  # ask with it for what has changed since
    columns: Mapping[str, Any]  # by the names in `FIELDS`

    def __getattr__(self, name: str) -> Any:
        if name not in FIELDS:
            raise AttributeError(f"trials have no column {name!r}")
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.number)

    @property
    def run_seconds(self) -> "Floats":
        """What whole runs have cost, from the first step on; more than the own cost where a trial continues one."""
        total: Floats = self.continued_seconds + self.cost_seconds
        return total


def broken_rows(columns: TrialColumns, limits: Iterable[Limit]) -> list[bool]:
    """Returns which of the trials break a limit by what they have measured; the metrics must be among the columns."""
    breaks = [False] * len(columns)
    for limit in limits:
        for row, value in enumerate(columns.metrics.get(limit.name, ())):
            breaks[row] |= value is not None and value == value and not limit.holds(float(value))
    return breaks


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
    confirms: bool


DOT_FIELDS = ("state", "end", "score", "cost_seconds", "continued_seconds", "lost_seconds", "excluded", "kind")


def dots(columns: TrialColumns) -> list[Dot]:
    """Returns the trials of columns that have at least `DOT_FIELDS`."""
    scores = [None if score != score else score for score in columns.score.tolist()]  # NaN is not itself
    costs = (columns.cost_seconds.tolist(), columns.run_seconds.tolist(), columns.lost_seconds.tolist())
    flags = (columns.excluded.tolist(), [kind is SuggestionKind.REEVALUATION for kind in columns.kind])
    fields = zip(columns.number.tolist(), columns.state, columns.end, scores, *costs, *flags, strict=True)
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
    """A sweep's trials in a few numbers. Excluded trials count in `ends` and in what was spent alone.

    Attributes:
        ends: how many trials ended how, without confirmations; None: how many have not finished, of both kinds.
        excluded: how many trials are excluded.
        spent_seconds: what all trials but confirmations have cost, unfinished ones and what was lost included.
        best: number of the complete trial with the highest score, of equal ones the cheapest run; None: there is none.
        best_score: its score, as it is stored.
        cut_short: number of the trial with the highest score among those that a limit of cost has ended, if any.
        running: numbers and owners of the running trials.
        waiting: numbers of the trials that wait to be taken up again, or for their first start.
        queued: numbers of those that wait for their first start, as people have queued them.
        confirmations: how many confirmations have finished.
        confirming_seconds: what confirmations have cost, unfinished ones and what was lost included.
    """

    ends: Mapping[TrialEnd | None, int]
    excluded: int
    spent_seconds: float
    best: int | None
    cut_short: int | None
    running: Mapping[int, str]
    waiting: tuple[int, ...] = ()
    queued: tuple[int, ...] = ()
    confirmations: int = 0
    confirming_seconds: float = 0.0
    best_score: float | None = None

    @property
    def total(self) -> int:
        """How many trials there are, confirmations included: they are numbered from 0 to one less."""
        return sum(self.ends.values()) + self.confirmations
