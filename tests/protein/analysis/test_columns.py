"""Columns: plain values survive them, missing ones too; changes, joins and orders against plain Python."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protein.analysis.columns import Kind, absent, column_of, joined, joined_tables

_VALUES = st.one_of(
    st.lists(st.one_of(st.none(), st.floats(allow_nan=False)), max_size=12),
    st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), max_size=12),
    st.lists(st.one_of(st.none(), st.booleans()), max_size=12),
    st.lists(st.one_of(st.none(), st.text(max_size=5)), max_size=12),
    st.lists(st.one_of(st.none(), st.integers(2, 99), st.text(max_size=3)), max_size=12),
)


@given(_VALUES)
def test_values_come_back(values: list[Any]) -> None:
    column = column_of(values)
    assert column.listed() == values
    assert [column.value(row) for row in range(len(values))] == values


@given(_VALUES, _VALUES)
def test_joined_columns_hold_the_values_of_both(one: list[Any], other: list[Any]) -> None:
    assert joined([column_of(one), column_of(other)]).listed() == one + other


def test_true_and_1_stay_what_they_are() -> None:
    values: list[Any] = [1.0, "a", True, 1, None, False, 0]
    assert [repr(value) for value in column_of(values).listed()] == [repr(value) for value in values]
    mixed = column_of(values)
    assert [mixed.code(value) for value in values if value is not None] == mixed.values[~mixed.missing].tolist()
    assert mixed.code("b") == -1
    for one, other in ((values, values[::-1]), ([True, False], [0, 1])):
        found = joined([column_of(one), column_of(other)]).listed()
        assert [repr(value) for value in found] == [repr(value) for value in [*one, *other]]


@given(_VALUES, _VALUES, st.randoms(use_true_random=False))
def test_replaced_values_stand_where_they_belong(old: list[Any], new: list[Any], random: Any) -> None:
    size = len(old) + len(new) + random.randint(0, 2)
    rows = sorted(random.sample(range(size), len(new)))
    expected = [*old, *[None] * (size - len(old))]
    for row, value in zip(rows, new, strict=True):
        expected[row] = value
    assert column_of(old).replaced(np.array(rows, np.int64), column_of(new), size).listed() == expected


@given(st.lists(st.one_of(st.none(), st.just(math.nan), st.integers(-3, 3).map(float)), max_size=15), st.booleans())
def test_missing_values_sort_last_and_nan_before_them(values: list[float | None], descending: bool) -> None:
    order = np.lexsort(column_of(values, Kind.NUMBER).sort_keys(descending=descending))

    def rank(row: int) -> tuple[int, float]:
        value = values[row]
        if value is None:
            return 2, 0.0
        return (1, 0.0) if math.isnan(value) else (0, -value if descending else value)

    assert order.tolist() == sorted(range(len(values)), key=rank)  # both are stable


def test_texts_sort_by_their_letters_and_mixed_values_numbers_first() -> None:
    texts = column_of(["b", None, "a", "c"])
    assert np.lexsort(texts.sort_keys(descending=True)).tolist() == [3, 0, 2, 1]
    mixed = column_of(["auto", 64, 32, "a"])
    assert mixed.kind is Kind.MIXED
    assert np.lexsort(mixed.sort_keys(descending=False)).tolist() == [2, 1, 3, 0]


def test_numbers_of_a_column_of_any_kind() -> None:
    np.testing.assert_array_equal(column_of([1, None, 3]).floats(), [1, math.nan, 3])
    np.testing.assert_array_equal(column_of(["x", 64, None]).floats(), [math.nan, 64, math.nan])
    np.testing.assert_array_equal(column_of([True, None, False]).floats(), [1, math.nan, 0])


def test_a_column_without_values_takes_the_kind_of_the_others() -> None:
    found = joined_tables([{"a": column_of(["x"])}, {"b": column_of([1])}], [1, 1])
    assert {name: column.listed() for name, column in found.items()} == {"a": ["x", None], "b": [None, 1]}
    assert found["a"].kind is Kind.TEXT and found["b"].kind is Kind.INTEGER
    assert absent(2).listed() == [None, None]


def test_integers_keep_every_digit() -> None:
    large = 2**62 + 1
    assert column_of([large, None]).listed() == [large, None]
    assert column_of(np.array([large])).listed() == [large]


@pytest.mark.parametrize("kind", list(Kind))
def test_no_values_at_all(kind: Kind) -> None:
    assert column_of([], kind).listed() == []
    assert column_of([None, None], kind).listed() == [None, None]
