"""One field of many trials as an array: the form in which trials are sorted, filtered and sent to the page.

A column is in one of two forms. Numbers, whole numbers, truth values and times (seconds since 1970, UTC) are arrays of
their own. Everything else is coded: `values` are indices into the sorted `words`. Sorting or comparing codes is as fast
as sorting numbers, however long the texts are.

A value may be missing: a failed trial has no score, and a trial of another sweep may not have a parameter. NaN is not
missing. It is a value, which sorts behind all other numbers.

Notation: `n` is the number of trials.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

Value = bool | int | float | str | tuple[str, ...]
Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]


class Kind(StrEnum):
    """What a column holds."""

    NUMBER = "number"  # float64
    INTEGER = "integer"  # int64
    BOOLEAN = "boolean"  # int64, 0 or 1
    TIME = "time"  # float64, seconds since 1970-01-01, UTC
    TEXT = "text"  # coded
    TAGS = "tags"  # coded; a word is a tuple of texts
    MIXED = "mixed"  # coded; values of several types, as choices may have

    @property
    def coded(self) -> bool:
        return self in (Kind.TEXT, Kind.TAGS, Kind.MIXED)


_DTYPES: Mapping[Kind, Any] = {
    Kind.NUMBER: np.float64,
    Kind.TIME: np.float64,
    Kind.INTEGER: np.int64,
    Kind.BOOLEAN: np.int64,
}
_EXACT = 2.0**53  # up to here each integer is a double
_TYPE_ORDER = {bool: 0, int: 1, float: 1, str: 2, tuple: 3}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One field of `n` trials. It never changes; `replaced` returns a new one.

    Attributes:
        kind: what it holds.
        values: `n`, numbers or indices into `words`; what stands where a value is missing means nothing.
        missing: `n`, where there is no value.
        words: of a coded column, its distinct values, sorted.
    """

    kind: Kind
    values: npt.NDArray[Any]
    missing: Mask
    words: tuple[Value, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    def value(self, row: int) -> Value | None:
        """Returns the value of one row, None where it is missing."""
        return None if self.missing[row] else self._value(self.values[row])

    def code(self, word: Value) -> int:
        """Returns what stands for a word in `values` of a coded column; -1 where it is none of its words."""
        return next((code for code, one in enumerate(self.words) if _typed(one) == _typed(word)), -1)

    def listed(self, rows: Indices | None = None) -> list[Value | None]:
        """Returns the values of some rows, in their order, or of all; None where one is missing."""
        values = self.values if rows is None else self.values[rows]
        missing = self.missing if rows is None else self.missing[rows]
        plain: list[Any] = values.tolist()
        if self.kind.coded:
            words = self.words
            return [None if gone else words[code] for code, gone in zip(plain, missing.tolist(), strict=True)]
        if self.kind is Kind.BOOLEAN:
            return [None if gone else bool(one) for one, gone in zip(plain, missing.tolist(), strict=True)]
        if not missing.any():
            return plain
        return [None if gone else one for one, gone in zip(plain, missing.tolist(), strict=True)]

    def floats(self) -> npt.NDArray[np.float64]:
        """Returns `n` numbers, NaN where one is missing; a coded column gives the numbers among its words."""
        if self.kind.coded:
            table = np.array([_number(word) for word in self.words] or [math.nan])
            found = table[np.where(self.missing, 0, self.values)]
        else:
            found = self.values.astype(np.float64)
        found[self.missing] = math.nan
        return found

    def sort_keys(self, *, descending: bool) -> list[npt.NDArray[Any]]:
        """Returns keys for `numpy.lexsort`, the most important last: missing values come last, NaN before them."""
        values = self.values
        keys = [-values if descending else values]
        if values.dtype == np.float64:
            unordered = np.isnan(values)
            keys = [np.where(unordered, 0.0, keys[0]), unordered]
        return [*(np.where(self.missing, np.zeros((), key.dtype), key) for key in keys), self.missing]

    def taken(self, rows: Indices) -> "Column":
        """Returns the column of some rows only."""
        return dataclasses.replace(self, values=self.values[rows], missing=self.missing[rows])

    def replaced(self, rows: Indices, other: "Column", num_rows: int) -> "Column":
        """Returns the column of `num_rows` rows, some of which have the values of another one.

        Args:
            rows: `len(other)`, where its values go; rows beyond the present ones may be among them.
            other: the new values, perhaps of another kind.
            num_rows: at least `n`; rows that neither has are missing.
        """
        kind = _common([column for column in (self, other) if not column.missing.all()] or [self])
        parts = [column if not column.missing.all() else absent(len(column), kind) for column in (self, other)]
        mine, theirs, words = _aligned(kind, parts)
        values = np.zeros(num_rows, mine.dtype)
        values[: len(mine)] = mine
        values[rows] = theirs
        missing = np.ones(num_rows, np.bool_)
        missing[: len(self.missing)] = self.missing
        missing[rows] = other.missing
        return Column(kind=kind, values=values, missing=missing, words=words)

    def _value(self, stored: Any) -> Value:
        if self.kind.coded:
            return self.words[int(stored)]
        if self.kind is Kind.BOOLEAN:
            return bool(stored)
        return int(stored) if self.kind is Kind.INTEGER else float(stored)


def column_of(
    values: "Iterable[Any] | npt.NDArray[Any]", kind: Kind | None = None, known: Iterable[Any] = ()
) -> Column:
    """Returns a column of plain values, None where one is missing.

    Args:
        values: plain values, or an array of numbers, none of which is missing.
        kind: what it holds; None: what the values' types say. `Kind.NUMBER` also takes whole numbers.
        known: further values that the column could hold. Of a coded one they are among its words.
    """
    if further := list(known):
        column = column_of([*further, *values], kind)
        return dataclasses.replace(column, values=column.values[len(further) :], missing=column.missing[len(further) :])
    if isinstance(values, np.ndarray) and values.dtype != object:
        return _of_array(values, kind)
    listed = list(values)
    if kind is None:
        kind = _kind_of({type(value) for value in listed if value is not None}, listed)
    missing = np.fromiter((value is None for value in listed), np.bool_, len(listed))
    if kind.coded:
        listed = [tuple(value) if isinstance(value, list) else value for value in listed]
        return _coded(kind, listed, missing)
    filled = [0 if value is None else value for value in listed] if missing.any() else listed
    return Column(kind=kind, values=np.array(filled, _DTYPES[kind]).reshape(len(listed)), missing=missing)


def absent(num_rows: int, kind: Kind = Kind.NUMBER) -> Column:
    """Returns a column without any value."""
    dtype = np.int32 if kind.coded else _DTYPES[kind]
    return Column(kind=kind, values=np.zeros(num_rows, dtype), missing=np.ones(num_rows, np.bool_))


def joined(columns: Sequence[Column]) -> Column:
    """Returns several columns (at least one), one below the other."""
    if len(columns) == 1:
        return columns[0]
    kind = _common([column for column in columns if not column.missing.all()] or columns[:1])
    parts = [column if not column.missing.all() else absent(len(column), kind) for column in columns]
    *arrays, words = _aligned(kind, parts)
    missing = np.concatenate([column.missing for column in columns])
    return Column(kind=kind, values=np.concatenate(arrays), missing=missing, words=words)


def joined_tables(tables: Sequence[Mapping[str, Column]], lengths: Sequence[int]) -> dict[str, Column]:
    """Returns several tables, one below the other; columns that one of them lacks are missing in its rows."""
    names = dict.fromkeys(name for table in tables for name in table)
    return {
        name: joined([table.get(name) or absent(length) for table, length in zip(tables, lengths, strict=True)])
        for name in names
    }


def _of_array(values: npt.NDArray[Any], kind: Kind | None) -> Column:
    if kind is None:
        kinds = {"b": Kind.BOOLEAN, "i": Kind.INTEGER, "u": Kind.INTEGER, "f": Kind.NUMBER}
        kind = kinds.get(values.dtype.kind, Kind.TEXT)
    if kind.coded:
        return column_of(values.tolist(), kind)
    return Column(kind=kind, values=values.astype(_DTYPES[kind]), missing=np.zeros(len(values), np.bool_))


def _kind_of(types: set[type], values: Sequence[Any]) -> Kind:
    if types <= {bool} and types:
        return Kind.BOOLEAN
    if types <= {int} and types and all(value is None or -(2**63) <= value < 2**63 for value in values):
        return Kind.INTEGER
    if types <= {int, float}:
        return Kind.NUMBER
    if types <= {list, tuple}:
        return Kind.TAGS
    return Kind.TEXT if types == {str} else Kind.MIXED


def _common(columns: Sequence[Column]) -> Kind:
    """Returns the kind that holds the values of all columns exactly."""
    distinct = {column.kind for column in columns}
    if len(distinct) == 1:
        return columns[0].kind
    if not distinct <= {Kind.NUMBER, Kind.INTEGER}:
        return Kind.MIXED
    integers = [column.values for column in columns if column.kind is Kind.INTEGER]
    return Kind.NUMBER if all(np.all(np.abs(v.astype(np.float64)) <= _EXACT) for v in integers) else Kind.MIXED


def _aligned(kind: Kind, columns: Sequence[Column]) -> list[Any]:
    """Returns the arrays of columns in one kind, and behind them the words that they share."""
    if not kind.coded:
        return [*(column.values.astype(_DTYPES[kind]) for column in columns), ()]
    coded = [column if column.kind.coded else _coded(kind, column.listed(), column.missing) for column in columns]
    words = _sorted(word for column in coded for word in column.words)
    if all(column.words == words for column in coded):
        return [*(column.values for column in coded), words]
    place = {_typed(word): code for code, word in enumerate(words)}
    arrays = []
    for column in coded:
        table = np.array([place[_typed(word)] for word in column.words] or [0], np.int32)
        arrays.append(table[np.where(column.missing, 0, column.values)])
    return [*arrays, words]


def _coded(kind: Kind, values: Sequence[Any], missing: Mask) -> Column:
    words = _sorted(value for value in values if value is not None)
    place = {_typed(word): code for code, word in enumerate(words)}
    codes = (0 if value is None else place[_typed(value)] for value in values)
    return Column(kind=kind, values=np.fromiter(codes, np.int32, len(values)), missing=missing, words=words)


def _sorted(words: Iterable[Any]) -> tuple[Value, ...]:
    distinct = {_typed(word): word for word in words}.values()
    return tuple(sorted(distinct, key=lambda word: (_TYPE_ORDER.get(type(word), 9), word, type(word).__name__)))


def _typed(word: Any) -> tuple[type, Any]:
    """Returns what tells a word from all others: True, 1 and 1.0 are equal, and are three different choices."""
    return type(word), word


def _number(word: Value) -> float:
    return float(word) if isinstance(word, bool | int | float) else math.nan
