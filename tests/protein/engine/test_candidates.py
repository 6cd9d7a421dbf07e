"""Small spaces are listed completely, whatever kinds of parameters they have."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protein.engine.budget import SPACE_EXHAUSTED, why_nothing
from protein.engine.candidates import all_points
from protein.space import Categorical, Float, Integer, Parameter, Space
from protein.types import Budget


@st.composite
def parameters(draw: st.DrawFn, name: str) -> Parameter:
    kind = draw(st.sampled_from(("linear", "log", "pow2", "float pow2", "categorical")))
    if kind == "categorical":
        return Categorical(name, tuple(range(draw(st.integers(2, 40)))))
    if kind == "float pow2":
        exponent = draw(st.integers(-20, 20))
        return Float(name, 2.0**exponent, 2.0 ** (exponent + draw(st.integers(1, 9))), scale="pow2")
    if kind == "pow2":
        exponent = draw(st.integers(0, 20))
        return Integer(name, 2**exponent, 2 ** (exponent + draw(st.integers(1, 9))), scale="pow2")
    low = draw(st.integers(1 if kind == "log" else -1000, 1000))
    return Integer(name, low, low + draw(st.integers(1, 1100)), scale="log" if kind == "log" else "linear")


def num_values(parameter: Parameter) -> int:
    if isinstance(parameter, Categorical):
        return len(parameter.choices)
    if parameter.scale == "pow2":
        return int(np.log2(parameter.high / parameter.low)) + 1
    assert isinstance(parameter, Integer)
    return parameter.high - parameter.low + 1


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 3))
def test_every_point_of_a_small_space_is_listed_once(data: st.DataObject, num_dims: int) -> None:
    space = Space([data.draw(parameters(f"p{i}")) for i in range(num_dims)])
    total = int(np.prod([num_values(parameter) for parameter in space.parameters]))
    listed = all_points(space)
    assert (listed is None) == (total > 1024)
    if listed is not None:
        found = {tuple(params.values()) for params in space.from_unit_many(listed)}
        assert len(listed) == len(found) == total
        np.testing.assert_array_equal(space.canonical(listed), listed)


def test_each_value_of_a_log_scaled_integer_is_listed_where_its_bin_is_narrow() -> None:
    space = Space([Integer("n", 1, 1000, scale="log")])
    listed = all_points(space)
    assert listed is not None
    assert [params["n"] for params in space.from_unit_many(listed)] == list(range(1, 1001))


def test_a_space_with_a_real_parameter_is_not_listed() -> None:
    assert all_points(Space([Integer("n", 1, 2), Float("x", 0.0, 1e-9)])) is None
    assert all_points(Space([Integer("n", 1, 10**12)])) is None


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_a_space_is_exhausted_only_when_every_value_was_tried(scale: str) -> None:
    space = Space([Integer("n", 1, 1000, scale=scale)])  # type: ignore[arg-type]
    tried = [{"n": n} for n in range(1, 1001)]
    assert why_nothing(space, [], tried, Budget()) == SPACE_EXHAUSTED
    for left in (1, 500, 899, 999, 1000):
        others = [params for params in tried if params["n"] != left]
        assert why_nothing(space, [], others, Budget()) != SPACE_EXHAUSTED, left
