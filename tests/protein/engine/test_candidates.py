"""Candidates for the acquisition, and the points of the initial design."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protein.engine.budget import SPACE_EXHAUSTED, why_nothing
from protein.engine.candidates import all_points, middle, other_choices
from protein.space import Categorical, Float, Integer, Space
from protein.space.parameters import Parameter, Scale
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


# Where a sweep without an initial config begins: the middle of every range, in closed form and under constraints.

PARAMETERS: list[Parameter] = [
    Float("rate", 1e-4, 1e-2, scale="log"),
    Float("clip", 0.1, 0.5),
    Float("gamma", 0.9, 0.99, scale="logit"),
    Integer("layers", 1, 5),
    Integer("epochs", 10, 1000, scale="log"),
    Integer("width", 8, 128, scale="pow2"),
    Categorical("optimizer", ("muon", "adam", "sgd")),
    Categorical("bias", (True, False)),
]


def test_the_middle_is_that_of_each_scale_and_of_choices_the_first() -> None:
    space = Space(PARAMETERS)
    params = space.from_unit(middle(space))
    space.validate(params)
    odds = math.sqrt(0.9 / 0.1 * 0.99 / 0.01)  # of gamma: the geometric mean of those at both ends
    assert params == {
        "rate": pytest.approx(1e-3),
        "clip": pytest.approx(0.3),
        "gamma": pytest.approx(odds / (1.0 + odds), abs=1e-4),
        "layers": 3,
        "epochs": round(math.sqrt(9.5 * 1000.5)),
        "width": 32,
        "optimizer": "muon",
        "bias": True,
    }


def test_defaults_are_no_initial_config() -> None:
    space = Space([Float("clip", 0.0, 1.0, default=0.9), Categorical("kind", ("a", "b"), default="b")])
    assert space.from_unit(middle(space)) == {"clip": 0.5, "kind": "a"}


def test_each_other_choice_comes_once_with_the_rest_in_the_middle() -> None:
    space = Space(PARAMETERS)
    x = middle(space)
    others = [space.from_unit(point) for point in other_choices(space, x)]
    assert [(params["optimizer"], params["bias"]) for params in others] == [("adam", False), ("sgd", True)]
    for params in others:
        assert {**params, "optimizer": "muon", "bias": True} == space.from_unit(x)


def test_other_choices_are_few_and_valid_and_none_without_choices() -> None:
    numbers = Space([Float("clip", 0.0, 1.0)])
    assert other_choices(numbers, middle(numbers)).shape == (0, 1)
    many = Space([Categorical("kind", tuple(range(9))), Float("clip", 0.0, 1.0)])
    kinds = [many.from_unit(x)["kind"] for x in other_choices(many, middle(many))]
    assert kinds == [1, 2, 3, 4]
    some = Space([Categorical("kind", ("a", "b", "c"))], constraints=("kind != 'b'",))
    assert [some.from_unit(x)["kind"] for x in other_choices(some, middle(some))] == ["c"]


@pytest.mark.parametrize(("scale", "third"), [("linear", 1.0 + 999.0 / 3.0), ("log", 10.0)])
def test_the_cost_parameter_is_at_its_lower_third(scale: Scale, third: float) -> None:
    space = Space([*PARAMETERS, Float("seconds", 1.0, 1000.0, scale=scale)], cost_parameter="seconds")
    params = space.from_unit(middle(space))
    assert params["seconds"] == pytest.approx(third)
    others = Space(PARAMETERS)
    assert {name: params[name] for name in others.names} == others.from_unit(middle(others))


def test_under_a_constraint_it_is_a_valid_point_near_the_middle() -> None:
    sides = [Float("x", 0.0, 1.0), Float("y", 0.0, 1.0)]
    within = Space(sides, constraints=("x + y <= 1.5",))
    assert np.array_equal(middle(within), [0.5, 0.5]), "nothing moves where the middle is allowed"
    beside = Space(sides, constraints=("x + y <= 0.8",))
    x = middle(beside)
    assert beside.is_valid(beside.from_unit(x)) and np.array_equal(x, middle(beside))
    assert math.hypot(*(x - 0.5)) < 0.1 * math.sqrt(2.0) + 0.1, "the nearest valid point of all is the first term away"


def test_it_is_a_point_that_comes_back_from_its_values() -> None:
    space = Space(PARAMETERS, constraints=("layers * width <= 64",))
    x = middle(space)
    assert space.is_valid(space.from_unit(x))
    assert np.allclose(space.canonical(space.to_unit(space.from_unit(x))[None, :])[0], x, atol=1e-9)
