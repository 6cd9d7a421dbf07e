"""All trials of a sweep as columns, kept in the server: what tables, fronts and parameter pages are made of.

A frame never changes. When the store has news, `Frame.updated` returns the next version, which shares what did not
change. So a page that is being answered sees one moment, and no request waits for another one.

Scores and predicted scores are in the user's direction here; `Frame.stored_score` gives them as the store keeps them.

Keys of columns: a field of the trial has its plain name (`score`, `cost_seconds`), and the others stand behind their
group: `params.train.learning_rate`, `metrics.train_score`, `timings.startup`.

Notation: `n` is the number of trials.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from protein.analysis.columns import Column, Indices, Kind, absent, column_of, joined_tables
from protein.api.recommended import score_range
from protein.columns import FIELDS, GROUPS, OTHERS, TABLE_FIELDS, TrialColumns, in_order
from protein.types import Direction, SweepRecord

Floats = npt.NDArray[np.float64]

_PARAMS = "params."
_DIGITS = 6  # significant ones of what is sent
_KINDS: Mapping[Any, Kind] = {
    int: Kind.INTEGER,
    float: Kind.NUMBER,
    bool: Kind.BOOLEAN,
    datetime: Kind.TIME,
    tuple: Kind.TAGS,
}
# The fields of a trial in the order in which tables show them, and what each holds. The cost of the run is a sum.
SHOWN: Mapping[str, Kind] = {
    "sweep": Kind.TEXT,
    **{name: _KINDS.get(FIELDS.get(name, float), Kind.TEXT) for name in (*TABLE_FIELDS, *OTHERS)},
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Trials of one or several sweeps as columns.

    Attributes:
        columns: key -> column of `n`; `sweep` and `number` together name a trial.
        revisions: `n`, the version of its frame at which each trial last changed.
    """

    columns: Mapping[str, Column]
    revisions: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.revisions)

    def group(self, name: str) -> dict[str, Column]:
        """Returns the columns of a group by their names without it: `params` gives name -> column."""
        prefix = name + "."
        return {key.removeprefix(prefix): column for key, column in self.columns.items() if key.startswith(prefix)}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Frame(Table):
    """All trials of one sweep, by number."""

    sweep: SweepRecord
    cursor: str | None  # of the store: what was read so far
    version: int  # counts the changes that this process has seen

    @classmethod
    def empty(cls, sweep: SweepRecord) -> "Frame":
        columns = {key: absent(0, kind) for key, kind in SHOWN.items()}
        return cls(sweep=sweep, cursor=None, version=0, columns=columns, revisions=np.zeros(0, np.int64))

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        """`n`, increasing."""
        numbers: npt.NDArray[np.int64] = self.columns["number"].values
        return numbers

    def stored_score(self) -> Floats:
        """Returns `n` scores as the store keeps them, to be maximised; NaN where there is none."""
        scores = self.columns["score"].floats()
        return scores if self.sweep.spec.direction is Direction.MAXIMIZE else -scores

    def within_limits(self) -> npt.NDArray[np.bool_]:
        """Returns which of n trials break no limit of the sweep by what they have measured, `n`."""
        kept = np.ones(len(self), dtype=bool)
        for limit in self.sweep.spec.limits:
            if (measured := self.columns.get(f"metrics.{limit.name}")) is not None:
                kept &= np.array([value != value or limit.holds(value) for value in measured.floats().tolist()])
        return kept

    def rows(self, numbers: Sequence[int]) -> Indices:
        """Returns where the trials of these numbers stand; numbers of no trial are left out."""
        wanted = np.asarray(numbers, np.int64)
        places = np.searchsorted(self.numbers, wanted)
        inside = places < len(self.numbers)
        found = places[inside]
        rows: Indices = found[self.numbers[found] == wanted[inside]].astype(np.int64)
        return rows

    def updated(self, sweep: SweepRecord, changes: TrialColumns) -> "Frame":
        """Returns the frame with changed and new trials taken over; itself where nothing changed."""
        if len(self) and sweep.spec.name != self.sweep.spec.name:  # it was renamed: all rows name it
            version = self.version + 1
            return dataclasses.replace(
                self,
                sweep=sweep,
                version=version,
                columns={**self.columns, "sweep": dataclasses.replace(self.columns["sweep"], words=(sweep.spec.name,))},
                revisions=np.full(len(self), version, np.int64),
            ).updated(sweep, changes)
        if not len(changes):
            if sweep == self.sweep and changes.cursor == self.cursor:
                return self
            return dataclasses.replace(self, sweep=sweep, cursor=changes.cursor)
        order = np.argsort(changes.number, kind="stable")
        numbers = changes.number[order]
        new = {key: column.taken(order) for key, column in _columns(sweep, changes).items()}
        version = self.version + 1
        if not len(self):
            revisions = np.full(len(numbers), version, np.int64)
            return Frame(sweep=sweep, cursor=changes.cursor, version=version, columns=new, revisions=revisions)
        all_numbers = np.union1d(self.numbers, numbers)
        base: Mapping[str, Column] = self.columns
        revisions = self.revisions
        if len(all_numbers) > len(self) and all_numbers[len(self) - 1] != self.numbers[-1]:
            # A number below the last one is new: the rows behind it move.
            places = np.searchsorted(all_numbers, self.numbers)
            base = {
                key: absent(0, column.kind).replaced(places, column, len(all_numbers)) for key, column in base.items()
            }
            moved = np.zeros(len(all_numbers), np.int64)
            moved[places] = revisions
            revisions = moved
        total = len(all_numbers)
        rows = np.searchsorted(all_numbers, numbers)
        columns = {}
        for key in _keys_in_order(dict.fromkeys((*base, *new)), sweep):
            old = base.get(key) or absent(len(self), new[key].kind)
            columns[key] = old.replaced(rows, new.get(key) or absent(len(rows), old.kind), total)
        grown = np.zeros(total, np.int64)
        grown[: len(revisions)] = revisions
        grown[rows] = version
        return Frame(sweep=sweep, cursor=changes.cursor, version=version, columns=columns, revisions=grown)


def together(frames: Sequence[Frame]) -> Table:
    """Returns the trials of several sweeps (at least one) as they are shown, one sweep below the other."""
    shown = [shown_columns(frame) for frame in frames]
    columns = shown[0] if len(frames) == 1 else joined_tables(shown, [len(frame) for frame in frames])
    return Table(columns=columns, revisions=np.concatenate([frame.revisions for frame in frames]))


def shown_columns(frame: Frame) -> Mapping[str, Column]:
    """Returns a sweep's columns with its predicted scores moved into the possible ones, as `text.clipped` does."""
    possible = score_range(frame.sweep.spec)
    if possible is None:
        return frame.columns
    clipped = {
        key: dataclasses.replace(frame.columns[key], values=np.clip(frame.columns[key].values, *possible))
        for key in ("predicted_score", "predicted_score_low", "predicted_score_high")
    }
    return {**frame.columns, **clipped}


def quality(frames: Sequence[Frame]) -> Floats:
    """Returns 1 for the best trial of each sweep, 1/2 for the second, 1/3 for the third, ..., `n`; NaN without a score.

    Scores of two environments cannot be compared, and these can: the best of several sweeps come in turn.
    """
    found = []
    for frame in frames:
        scores = frame.stored_score()
        has = np.flatnonzero(np.isfinite(scores))
        own = np.full(len(scores), np.nan)
        own[has[np.argsort(-scores[has], kind="stable")]] = 1.0 / (1.0 + np.arange(len(has)))
        found.append(own)
    return np.concatenate(found)


def rounded(values: Floats) -> Floats:
    """Returns finite numbers, `n`, to the digits that a chart can show: short numbers are quick to send."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        power = np.clip(_DIGITS - 1 - np.floor(np.log10(np.abs(values))), -300, 300)
        scale = 10.0 ** np.abs(power)
        found = np.where(power >= 0, np.round(values * scale) / scale, np.round(values / scale) * scale)
    return np.where((values == 0) | ~np.isfinite(found), values, found)


def _columns(sweep: SweepRecord, changes: TrialColumns) -> dict[str, Column]:
    """Returns the columns of some trials as they are shown. What the store says is NaN is missing: it keeps no NaN."""
    count = len(changes)
    columns = {}
    for key, kind in SHOWN.items():
        values = [sweep.spec.name] * count if key == "sweep" else getattr(changes, key)
        columns[key] = _column(values, kind)
    columns["continues"] = dataclasses.replace(columns["continues"], missing=changes.continues < 0)
    columns["continued_seconds"] = dataclasses.replace(columns["continued_seconds"], missing=changes.continues < 0)
    if sweep.spec.direction is Direction.MINIMIZE:
        low, high = columns["predicted_score_low"], columns["predicted_score_high"]
        columns["predicted_score_low"], columns["predicted_score_high"] = high, low
        for key in ("score", "predicted_score", "predicted_score_low", "predicted_score_high"):
            columns[key] = dataclasses.replace(columns[key], values=-columns[key].values + 0.0)
    for group in GROUPS:
        for name, values in getattr(changes, group).items():
            columns[f"{group}.{name}"] = _column(values, None)
    return columns | {
        key: _whole(column) for key, column in columns.items() if key.startswith(_PARAMS) and column.missing.any()
    }


def _keys_in_order(keys: Iterable[str], sweep: SweepRecord) -> list[str]:
    """Returns keys of columns with those of parameters in the order of the space, whatever trial had one first."""
    names = [key.removeprefix(_PARAMS) for key in keys if key.startswith(_PARAMS)]
    ordered = iter(in_order(names, sweep.spec.space))
    return [_PARAMS + next(ordered) if key.startswith(_PARAMS) else key for key in keys]


def _whole(column: Column) -> Column:
    """Returns a parameter's whole numbers as such: the store gives floats where a trial lacks the parameter."""
    values = np.where(column.missing, 0, column.values)
    if column.kind is not Kind.NUMBER or np.any(values != np.rint(values)) or np.any(np.abs(values) >= 2.0**53):
        return column
    return dataclasses.replace(column, kind=Kind.INTEGER, values=values.astype(np.int64))


def _column(values: Any, kind: Kind | None) -> Column:
    found = column_of(values, kind)
    if found.values.dtype == np.float64:
        return dataclasses.replace(found, missing=np.isnan(found.values))
    if found.kind is Kind.TEXT and "" in found.words:  # no reason, no note
        return dataclasses.replace(found, missing=found.missing | (found.values == found.words.index("")))
    return found
