"""The language of constraints: what it means, held against Python itself, and what it refuses."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protein.errors import SpaceError
from protein.space import Categorical, Float, Integer, Space
from protein.space.constraints import Condition, Constraint, Partial


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "a.__class__() <= 1",
        "(lambda: 1)() == 1",
        "[a for a in (1,)] == 1",
        "a[0] <= 1",
        "a ** 9 <= 1",
        "a if a else a",
        "a in b",
        "a in [b, 2]",
        "a in []",
        "1 < a in [2]",
        "a is 1",
        "f'{a}' == 'x'",
        "a <= ",
        "a + 1",
        "a = 1",
        "a is b",
        "b'x' == a",
        "1" * 3000,
    ],
)
def test_anything_but_the_constraint_language_is_refused(text: str) -> None:
    with pytest.raises(SpaceError, match="constraint"):
        Constraint(text)


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("0 < a <= 2", {"a": [0.0, 1.0, 2.0, 3.0]}, [False, True, True, False]),
        ("a % 2 == 0 and not b", {"a": [2.0, 2.0, 3.0, 4.0], "b": [True, False, False, False]}, [0, 1, 0, 1]),
        ("a // b >= 2 or a == -1", {"a": [5.0, 4.0, -1.0, 1.0], "b": [2.0, 0.0, 1.0, 1.0]}, [1, 0, 1, 0]),
        ("a / b != 3", {"a": [3.0, 4.0, 0.0, 1.0], "b": [1.0, 1.0, 0.0, 0.0]}, [0, 1, 0, 0]),
        ("+a - b * 2 > 0", {"a": [3.0, 1.0, 5.0, 2.0], "b": [1.0, 1.0, 2.0, 1.0]}, [1, 0, 1, 0]),
    ],
)
def test_constraints_mean_what_python_means(text: str, values: dict[str, list[float]], expected: list[bool]) -> None:
    """Where Python would divide by zero, the point is invalid."""
    constraint = Constraint(text)
    columns = {name: np.array(column) for name, column in values.items()}
    assert constraint.satisfied(columns, 4).tolist() == [bool(e) for e in expected]


@pytest.mark.parametrize(
    ("text", "a", "b", "expected"),
    [
        ("not (a / b > 2)", 5, 0, False),
        ("a > 3 or not a // b <= 2", 1, 0, False),
        ("a > 3 or not a // b <= 2", 4, 0, True),
        ("b == 0 or a / b < 2", 5, 0, True),
        ("b != 0 and a % b == 1", 5, 0, False),
        ("not (b != 0 and a % b == 1)", 5, 0, True),
        ("not (a < 3 < a / b)", 5, 0, True),
        ("not (a < 3 < a / b)", 2, 0, False),
        ("not (0 / b == a)", 0, 0, False),
    ],
)
def test_a_division_by_zero_makes_a_point_invalid_where_python_would_divide(
    text: str, a: int, b: int, expected: bool
) -> None:
    space = Space([Integer("a", 0, 10), Integer("b", 0, 10)], constraints=[text])
    assert space.is_valid({"a": a, "b": b}) is expected
    assert space.valid(space.to_unit_many([{"a": a, "b": b}])).tolist() == [expected]


@pytest.mark.parametrize("text", ["not (a * 1e308 * 1e308 < 1)", "not (a * 1e308 - a * 1e309 < 1)"])
def test_arithmetic_that_is_not_finite_makes_a_point_invalid(text: str) -> None:
    assert Constraint(text).satisfied({"a": np.array([0.0, 10.0])}, 2).tolist() == [False, False]
    assert Constraint("a < 1 or " + text).satisfied({"a": np.array([0.0, 10.0])}, 2).tolist() == [True, False]


def test_infinite_values_are_compared_as_python_compares_them() -> None:
    values = {"a": np.array([2.0, math.inf]), "limit": np.asarray(math.inf)}
    assert Constraint("a < limit").satisfied(values, 2).tolist() == [True, False]


NUMBERS = st.sampled_from(["a", "b", "c", "0", "1", "2", "0.5", "True"])


def _longer(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    signs = st.sampled_from(["+", "-", "*", "/", "//", "%", "<", "<=", ">", ">=", "==", "!=", "and", "or"])
    return st.one_of(
        st.builds("({} {} {})".format, parts, signs, parts),
        st.builds("({} {} {} {} {})".format, parts, st.sampled_from("<>"), parts, st.sampled_from("<>"), parts),
        st.builds("(not {})".format, parts),
        st.builds("(-{})".format, parts),
        st.builds("({} {} [0, -2, 3])".format, parts, st.sampled_from(["in", "not in"])),
    )


VALUES = st.none() | st.sampled_from([-2.0, -0.5, 0.0, 1.0, 3.0])  # None: there is no value


@given(
    text=st.builds("{} or {}".format, *[st.recursive(NUMBERS, _longer, max_leaves=8)] * 2)
    | st.builds("not {}".format, st.recursive(NUMBERS, _longer, max_leaves=12)),
    rows=st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=20),
)
@example(text="not (a / b)", rows=[(1.0, 0.0, 0.0)])
@example(text="not ((a or b) > 2)", rows=[(1.0, 3.0, 0.0), (0.0, 3.0, 0.0)])
@example(text="(1 / b) and a or b", rows=[(None, 0.0, 0.0), (None, 1.0, 0.0), (1.0, None, 0.0)])
def test_expressions_are_what_python_evaluates_point_by_point(text: str, rows: list[tuple[float | None, ...]]) -> None:
    def slow(row: tuple[float | None, ...], missing: bool) -> bool:
        values = {name: value for name, value in zip("abc", row, strict=True) if value is not None}
        try:
            return bool(eval(text, {}, values))
        except ZeroDivisionError:
            return False
        except NameError:
            return missing

    columns = {
        name: Partial(np.array([value or 0.0 for value in column]), np.array([value is not None for value in column]))
        for name, column in zip("abc", zip(*rows, strict=True), strict=True)
    }
    assert Constraint(text).satisfied(columns, len(rows)).tolist() == [slow(row, True) for row in rows]
    assert Condition(text, "when").holds(columns, len(rows)).tolist() == [slow(row, False) for row in rows]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("depth is None", [True, False, False]),
        ("depth is not None and depth * 2 > 6", [False, False, True]),
        ("depth == None or depth < 4", [True, True, False]),
        ("depth in [None, 4]", [True, False, True]),
        ("depth not in [3, None]", [False, False, True]),
    ],
)
def test_none_is_a_value_that_is_compared_with_none_alone(text: str, expected: list[bool]) -> None:
    values = {"depth": np.array([None, 3, 4], dtype=object)}
    assert Constraint(text).satisfied(values, 3).tolist() == expected
    with pytest.raises(SpaceError, match="mixes text and numbers"):
        Constraint("depth < 4").satisfied(values, 3)


def test_and_or_of_text_and_numbers_keep_their_values() -> None:
    values = {"opt": np.array(["adam", ""], dtype=object), "a": np.array([0.0, 3.0])}
    assert Constraint("(opt or a) == 3").satisfied(values, 2).tolist() == [False, True]


def test_constraints_on_text_compare_like_with_like() -> None:
    space = Space(
        [Categorical("opt", ("adam", "muon")), Float("lr", 0.0, 1.0)],
        constraints=["opt == 'adam' or lr < 0.1"],
    )
    assert space.is_valid({"opt": "adam", "lr": 0.5})
    assert not space.is_valid({"opt": "muon", "lr": 0.5})
    with pytest.raises(SpaceError, match="mixes text and numbers"):
        Space([Categorical("opt", ("adam", "muon"))], constraints=["opt < 3"])
    with pytest.raises(SpaceError, match="mixes text and numbers"):
        Space([Categorical("opt", ("adam", "muon"))], constraints=["opt + 'x' == 'adamx'"])


def test_an_equality_of_a_number_and_a_text_is_no_crash() -> None:
    with pytest.raises(SpaceError, match="'a == 'auto'': none of 16384 points"):
        Space([Float("a", 0.0, 1.0)], constraints=["a == 'auto'"])
    mixed = Space([Categorical("a", ("auto", 1, 2)), Integer("b", 1, 3)], constraints=["a == b"])
    found = {mixed.key(mixed.from_unit(x)) for x in mixed.sample(200, np.random.default_rng(0))}
    assert found == {((int, 1), 1), ((int, 2), 2)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train.lambda < 0.5", "'lambda' is a word of Python, so rename a parameter that is called so; use"),
        ("a < ", r"does not parse \(invalid syntax\); use comparisons"),
        ("a < 1" + "0" * 400, "has a number of more than 308 digits; shorten it"),
    ],
)
def test_a_text_that_cannot_be_read_says_what_to_do(text: str, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        Constraint(text)
