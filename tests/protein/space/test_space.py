"""The search space: what it accepts, what it refuses and how, and its round trips."""

import dataclasses
import hashlib
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from patience import PATIENCE_SECONDS

from protein.errors import SpaceError
from protein.space import Categorical, Float, Integer, Parameter, Space
from protein.space.parameters import Scale, identity, unit_belief

MIXED = Space(
    [
        Float("train.learning_rate", 1e-5, 0.1, scale="log", default=3e-3),
        Float("train.gamma", 0.9, 0.9999, scale="logit", default=0.995),
        Float("train.clip", 0.05, 0.4),
        Float("train.scale", 0.25, 4.0, scale="pow2"),
        Integer("train.total_timesteps", 10_000, 10_000_000, scale="log", default=1_000_000),
        Integer("train.epochs", 1, 8),
        Integer("train.minibatch_size", 64, 8192, scale="pow2"),
        Integer("train.horizon", 8, 256, scale="pow2", default=64),
        Categorical("policy.activation", ("tanh", "relu", "gelu")),
        Categorical("train.anneal", (True, False)),
    ],
    cost_parameter="train.total_timesteps",
    constraints=["train.minibatch_size <= env.num_envs * train.horizon", "train.anneal or train.epochs < 8"],
    fixed={"env.num_envs": 16},
)


def test_default_takes_defaults_and_middles() -> None:
    default = MIXED.default()
    assert default["train.learning_rate"] == 3e-3
    assert default["train.total_timesteps"] == 1_000_000
    assert default["policy.activation"] == "relu"
    assert default["train.clip"] == pytest.approx(0.225)


@given(st.lists(st.floats(0.0, 1.0), min_size=10, max_size=10))
@settings(max_examples=300, deadline=None)
def test_params_from_the_unit_cube_round_trip_exactly(x: list[float]) -> None:
    params = MIXED.from_unit(x)
    x_unit = MIXED.to_unit(params)
    assert MIXED.from_unit(x_unit) == params
    assert np.array_equal(MIXED.canonical(x_unit[None, :])[0], x_unit)
    assert [type(v) for v in params.values()] == [float] * 4 + [int] * 4 + [str, bool]


STRANGE: list[Any] = [True, "2", "tanh", None, 3, 2.0, 64.5, 10**400, -1, 0, math.nan, math.inf, np.float64(2.0), []]


@given(st.integers(0, 9), st.lists(st.floats(0.0, 1.0), min_size=1, max_size=5), st.sampled_from(STRANGE))
@settings(max_examples=300, deadline=None)
def test_many_values_are_read_and_refused_like_one(index: int, x: list[float], strange: Any) -> None:
    parameter = MIXED.parameters[index]
    values: list[Any] = [parameter.raw(number) for number in parameter.decode(np.array(x)).tolist()]
    assert parameter.numbers(values).tolist() == [parameter.numeric(value) for value in values]
    try:
        parameter.check(strange)
    except SpaceError as error:
        with pytest.raises(SpaceError) as refused:
            parameter.numbers([*values, strange])
        assert str(refused.value) == str(error)
    else:
        assert parameter.numbers([*values, strange])[-1] == parameter.numeric(strange)


@example(low=118927.99999999988, ratio=2.0, x=2.2e-311, scale="log")  # rounds to a number just above the low end
@given(
    low=st.floats(1e-12, 1e6),
    ratio=st.floats(1.001, 1e9),
    x=st.floats(0.0, 1.0),
    scale=st.sampled_from(["linear", "log"]),
)
@settings(max_examples=300, deadline=None)
def test_a_float_of_any_range_round_trips_exactly(low: float, ratio: float, x: float, scale: Scale) -> None:
    space = Space([Float("v", low, low * ratio, scale=scale)])
    params = space.from_unit([x])
    assert space.from_unit(space.to_unit(params)) == params
    assert low <= float(params["v"]) <= low * ratio


def _endless() -> list[Any]:
    """Returns a list that holds itself."""
    endless: list[Any] = []
    endless.append(endless)
    return endless


GRIDS = st.tuples(st.booleans(), st.integers(-500, 500), st.integers(1, 60), st.integers(2, 300), st.integers(0, 9))


@given(grid=GRIDS, scale=st.sampled_from(["linear", "log"]), rest=st.floats(0.0, 0.9))
@settings(max_examples=200, deadline=None)
def test_a_grid_has_the_decimal_numbers_that_people_write(
    grid: tuple[bool, int, int, int, int], scale: Scale, rest: float
) -> None:
    """Low, low + step and so on, each with a bin of its own, also where the range is no multiple of the step."""
    whole, low, step, count, digits = grid
    whole, digits, low = whole and rest == 0, 0 if whole else digits, abs(low) + 1 if scale == "log" else low
    unit = Decimal(1).scaleb(-digits)
    values = [float((low + i * step) * unit) for i in range(count)]
    high = float(Decimal(low + (count - 1) * step) * unit + Decimal(rest) * step * unit)
    p: Float | Integer = (
        Integer("v", low, int(high), scale, step=step)
        if whole
        else Float("v", values[0], high, scale, step=float(step * unit))
    )
    space = Space([p])
    assert p.high == values[-1] and list(p.values() or ()) == values
    numbers = np.array(values)
    x_unit = p.encode(numbers)
    assert np.array_equal(p.decode(x_unit), numbers)
    assert np.array_equal(p.decode(space.canonical(x_unit[:, None])[:, 0]), numbers)
    assert Space.from_dict(json.loads(json.dumps(space.to_dict()))) == space
    assert set(p.decode(np.linspace(0.0, 1.0, 4 * count)).tolist()) <= set(values)
    if scale == "linear":  # equal bins
        edges = np.linspace(0.0, 1.0, count + 1)
        for at in (edges[:-1] + 1e-6, edges[1:] - 1e-6):
            assert np.array_equal(p.decode(at), numbers)


def test_values_beside_the_grid_are_refused_but_for_errors_of_a_sum() -> None:
    rate, width = Float("rate", 0.0, 0.5, step=0.1), Integer("width", 8, 100, step=8)
    rate.check(0.1 + 0.2)
    assert rate.numbers([0.1 + 0.2, 0.4]).tolist() == [0.3, 0.4] and rate.numeric(0.1 + 0.2) == 0.3
    space = Space([rate, width])
    assert space.key({"rate": 0.1 + 0.2, "width": 8}) == space.key({"rate": 0.3, "width": 8})
    for parameter, value, message in (
        (rate, 0.25, "0.25 is not one of 0.0, 0.1, ... 0.5, in steps of 0.1; the nearest is 0.2"),
        (width, 20, "20 is not one of 8, 16, ... 96, in steps of 8; the nearest is 24"),
        (width, 100, "100 is outside its range [8, 96]"),
    ):
        with pytest.raises(SpaceError, match=re.escape(message)):
            parameter.check(value)
        with pytest.raises(SpaceError, match=re.escape(message)):
            parameter.numbers([value])
        parameter.check(parameter.clip(value))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(-9, 9).map(lambda x: x + 0.0)
    | st.text("a0é", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab", max_size=1), inner, max_size=2),
    max_leaves=5,
)


@given(st.lists(VALUES, min_size=2, max_size=5, unique_by=lambda value: repr(identity(value))))
@settings(max_examples=100, deadline=None)
def test_any_value_of_json_is_a_choice(choices: list[Any]) -> None:
    parameter = Categorical("x", choices)
    space = Space([parameter, Float("y", 0.0, 1.0)], fixed={"z": choices[0]}, constraints=["y <= 1 or z == 3"])
    again = Space.from_dict(json.loads(json.dumps(space.to_dict())))
    assert again == space and hash(again) == hash(space)
    numbers = parameter.numbers(choices)
    assert numbers.tolist() == list(range(len(choices)))
    for number, choice in zip(numbers, choices, strict=True):
        params = {"x": parameter.raw(number), "y": 0.5}
        assert identity(params["x"]) == identity(choice)
        assert identity(again.from_unit(again.to_unit(params))["x"]) == identity(choice)
        assert space.snap(params) == params and space.is_valid(params)
    assert len({space.key({"x": choice, "y": 0.5}) for choice in choices}) == len(choices)
    assert space.valid(space.sample(8, np.random.default_rng(0))).all()


def test_a_choice_that_a_user_changes_stays_as_it_was_in_the_space() -> None:
    given: list[Any] = [[32, 32], {"a": [1]}, None]
    space = Space([Categorical("x", given)])
    given[0].append(64)
    for place in (0.1, 0.5):
        changed = space.from_unit([place])["x"]
        changed.clear()
    space.to_dict()["parameters"][0]["choices"][0].clear()
    assert space.parameters[0] == Categorical("x", [[32, 32], {"a": [1]}, None])
    assert space.snap({}) == {"x": {"a": [1]}}, "a value that is missing is not None"


@given(low=st.floats(1e-9, 0.5), high=st.floats(0.500001, 1.0 - 1e-9), x=st.floats(0.0, 1.0))
@settings(max_examples=300, deadline=None)
def test_a_logit_float_round_trips_exactly(low: float, high: float, x: float) -> None:
    space = Space([Float("v", low, high, scale="logit")])
    params = space.from_unit([x])
    assert space.from_unit(space.to_unit(params)) == params


@pytest.mark.parametrize(
    ("low", "high", "scale"),
    [
        (1e-310, 1e-300, "log"),
        (1e-308, 1.0, "log"),
        (1e-300, 1e300, "log"),
        (1.0, sys.float_info.max, "log"),
        (1.0, 1.0000001, "log"),
        (1000.0, 1000.5, "log"),
        (0.5, 0.5000001, "logit"),
        (0.0, 1e-310, "linear"),
        (1.7e308, sys.float_info.max, "linear"),
        (-1e308, 7e307, "linear"),
    ],
)
def test_a_range_of_extreme_or_narrow_values_is_searched_from_end_to_end(low: float, high: float, scale: Scale) -> None:
    space = Space([Float("x", low, high, scale=scale)])
    values = [params["x"] for params in space.from_unit_many(np.linspace(0.0, 1.0, 2001)[:, None])]
    assert len(set(values)) == 2001 and values == sorted(values) and (values[0], values[-1]) == (low, high)
    assert [space.from_unit(space.to_unit({"x": value}))["x"] for value in values] == values


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0 + 1e-15), (1e15, 1e15 + 2.0)])
def test_a_range_of_few_float64_numbers_round_trips(low: float, high: float) -> None:
    space = Space([Float("x", low, high)])
    values = {params["x"] for params in space.from_unit_many(np.linspace(0.0, 1.0, 2001)[:, None])}
    assert all(space.from_unit(space.to_unit({"x": value}))["x"] == value for value in values)


def test_values_of_usual_ranges_stay_as_they_were_in_stored_sweeps() -> None:
    """To the last bit: stored sweeps are replayed."""
    ranges: list[tuple[float, float, Scale]] = [
        (1e-5, 0.1, "log"),
        (1e-16, 1e3, "log"),
        (0.99, 0.999, "log"),
        (123.456789, 987.654321, "log"),
        (0.9, 0.9999, "logit"),
        (0.5, 0.51, "logit"),
        (0.05, 0.4, "linear"),
        (-3.0, 1e6, "linear"),
        (1e9, 1e9 + 1.0, "linear"),
        (0.25, 4.0, "pow2"),
    ]
    x = np.linspace(0.0, 1.0, 1001)
    found = b"".join(
        Float("x", low, high, scale=scale).decode(x).astype("<f8").tobytes() for low, high, scale in ranges
    )
    assert hashlib.sha256(found).hexdigest()[:16] == "5c185725996851db"


@given(low=st.integers(-(10**6), 10**6), width=st.integers(1, 10**11), x=st.floats(0.0, 1.0))
@settings(max_examples=300, deadline=None)
def test_every_integer_owns_a_bin(low: int, width: int, x: float) -> None:
    space = Space([Integer("n", low, low + width)])
    for value in (low, low + width, space.from_unit([x])["n"]):
        assert space.from_unit(space.to_unit({"n": value})) == {"n": value}


@given(low=st.integers(1, 10**6), factor=st.integers(2, 10**5))
@settings(max_examples=200, deadline=None)
def test_every_integer_of_a_log_range_round_trips(low: int, factor: int) -> None:
    space = Space([Integer("n", low, low * factor, scale="log")])
    for value in (low, low + 1, low * factor // 2, low * factor - 1, low * factor):
        if low <= value <= low * factor:
            assert space.from_unit(space.to_unit({"n": value})) == {"n": value}


def test_linear_integers_are_drawn_equally_often() -> None:
    space = Space([Integer("n", 1, 4)])
    x = (np.arange(4000) + 0.5)[:, None] / 4000
    values = [p["n"] for p in space.from_unit_many(x)]
    assert [values.count(v) for v in (1, 2, 3, 4)] == [1000] * 4


@pytest.mark.parametrize(
    ("value", "scale", "low", "high"),
    [
        (3e-4, "log", 1e-6, 1.0),
        (0.995, "logit", 0.8, 0.9999),
        (0.0625, "linear", 0.0, 1.0),
        (123456.0, "log", 1.0, 1e9),
    ],
)
def test_a_hand_written_value_is_kept_to_the_last_bit(value: float, scale: Scale, low: float, high: float) -> None:
    space = Space([Float("v", low, high, scale=scale)])
    assert space.from_unit(space.to_unit({"v": value})) == {"v": value}


def test_features_put_choices_one_apart_and_keep_numbers() -> None:
    x = MIXED.sample(50, np.random.default_rng(0))
    features = MIXED.features(x)
    assert features.shape == (50, 8 + 3 + 2)
    assert MIXED.feature_groups() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 9, 9]
    assert np.array_equal(features[:, :8], x[:, :8])
    activations = features[:, 8:11]
    distances = {round(float(np.linalg.norm(a - b)), 9) for a in activations for b in activations}
    assert distances == {0.0, 1.0}


def test_sampled_points_are_valid_canonical_and_seeded() -> None:
    x = MIXED.sample(500, np.random.default_rng(3))
    assert x.shape == (500, 10)
    assert np.array_equal(MIXED.canonical(x), x)
    assert all(MIXED.is_valid(params) for params in MIXED.from_unit_many(x))
    assert np.array_equal(x, MIXED.sample(500, np.random.default_rng(3)))


def test_a_sample_of_no_points_is_empty() -> None:
    assert MIXED.sample(0, np.random.default_rng(0)).shape == (0, MIXED.num_dims)


def test_rare_valid_points_are_found_or_the_known_one_is_returned() -> None:
    space = Space([Float("a", 0.0, 1.0), Float("b", 0.0, 1.0)], constraints=["a + b < 0.02"])
    x = space.sample(5, np.random.default_rng(0))
    assert len(x) >= 1
    assert space.valid(x).all()
    needle = Space([Float("a", 0.0, 1.0, default=0.5)], constraints=["a == 0.5"])
    assert needle.from_unit(needle.sample(3, np.random.default_rng(0))[0]) == {"a": 0.5}


@pytest.mark.parametrize(
    ("parameters", "constraints"),
    [
        ([Integer(name, 0, 1000) for name in "abc"], ["a == b == c"]),
        ([Integer(name, 0, 1000) for name in "abc"], ["a == c", "b == c and a > 10"]),
        ([Integer(name, 0, 1000) for name in "abc"], ["a + b + c == 1200"]),
        ([Float(name, 0.0, 1.0) for name in "abc"], ["a + b + c == 1"]),
        ([Float(name, 1e-5, 0.1, scale="log") for name in "ab"], ["a == b"]),
        (
            [Integer("width", 64, 4096), Integer("heads", 1, 64), Categorical("size", (16, 32))],
            ["width == heads * size"],
        ),
    ],
)
def test_points_on_an_equality_are_found(parameters: list[Parameter], constraints: list[str]) -> None:
    space = Space(parameters, constraints=constraints)
    x = space.sample(200, np.random.default_rng(1))
    assert len(np.unique(x, axis=0)) >= 50
    assert space.valid(x).all()
    assert np.array_equal(space.canonical(x), x)
    assert np.array_equal(x, space.sample(200, np.random.default_rng(1)))


def test_json_round_trip() -> None:
    data = json.loads(json.dumps(MIXED.to_dict()))
    again = Space.from_dict(data)
    assert again == MIXED
    assert again.from_unit(np.full(10, 0.3)) == MIXED.from_unit(np.full(10, 0.3))
    assert hash(again) == hash(MIXED)
    with pytest.raises(SpaceError, match="not a stored space"):
        Space.from_dict({"parameters": [{"type": "floot"}]})


def test_a_belief_is_stored_with_the_space_and_a_space_without_one_is_stored_as_ever() -> None:
    believed = Space(
        [
            Float("lr", 1e-5, 0.1, "log", belief=(3e-4, 3)),
            Integer("batch", 8, 64, "pow2", belief=(32, 2)),
            Categorical("opt", ("adam", "sgd", "lion"), belief=("adam", 0.7)),
        ]
    )
    again = Space.from_dict(json.loads(json.dumps(believed.to_dict())))
    assert again == believed and again.parameters == believed.parameters
    assert again != Space([dataclasses.replace(p, belief=None) for p in believed.parameters])
    assert all("belief" not in fields for fields in MIXED.to_dict()["parameters"])


@given(
    scale=st.sampled_from(["linear", "log", "logit", "pow2"]),
    low=st.floats(0.001, 0.4),
    width=st.floats(0.01, 0.5),
    at=st.floats(0.0, 0.5),
    spread=st.floats(0.01, 0.5),
)
@settings(max_examples=100, deadline=None)
def test_a_spread_is_a_distance_or_a_factor_on_the_scale(
    scale: Scale, low: float, width: float, at: float, spread: float
) -> None:
    """One standard deviation above the centre lies the value that the user means."""
    if scale == "pow2":
        parameter = Float("a", 2.0**-8, 2.0**8, scale, belief=(0.25, 2.0 ** round(1 + 10 * spread)))
    else:
        parameter = Float("a", low, low + width, scale)
        center = float(parameter.decode(np.array([at]))[0])
        parameter = dataclasses.replace(parameter, belief=(center, 1.0 + spread if scale == "log" else spread))
    assert parameter.belief is not None
    center, stated = parameter.belief
    odds = center / (1.0 - center) * math.exp(stated)
    above = {"linear": center + stated, "logit": odds / (1.0 + odds)}.get(scale, center * stated)
    x, sd = unit_belief(parameter, parameter.belief)
    # The value may lie beyond the range, where a coordinate is still defined on every scale.
    assert x + sd == pytest.approx(float(parameter.encode(np.array([above]))[0]), rel=1e-3, abs=1e-6)
    assert x == pytest.approx(float(parameter.encode(np.array([center]))[0]))


def test_snap_keeps_what_is_valid_to_the_last_bit() -> None:
    params = {**MIXED.default(), "train.learning_rate": 0.00123456789}
    assert MIXED.snap(params) == params


def test_snap_clips_fills_and_repairs() -> None:
    snapped = MIXED.snap(
        {
            "train.learning_rate": 5.0,
            "train.horizon": 100,
            "train.minibatch_size": 8192,
            "policy.activation": "sine",
            "train.anneal": "false",
            "unknown": 1,
        }
    )
    MIXED.validate(snapped)
    assert snapped["train.learning_rate"] == 0.1
    assert snapped["policy.activation"] == "relu"
    assert snapped["train.gamma"] == 0.995
    # 8192 > 16 * 128: the nearest way out moves minibatch_size and horizon, nothing else.
    assert snapped["train.epochs"] == MIXED.default()["train.epochs"]
    assert snapped["train.total_timesteps"] == 1_000_000


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"train.learning_rat": 1e-3}, "did you mean 'train.learning_rate'"),
        ({7: 1e-3}, "unknown parameter '7'; known: "),
        ({"train.learning_rate": 1.0}, r"1.0 is outside its range \[1e-05, 0.1\]"),
        ({"train.learning_rate": math.nan}, "outside its range"),
        ({"train.learning_rate": True}, "True is not a number"),
        ({"train.epochs": 2.0}, "2.0 is a float, not a whole number; give 2"),
        ({"train.epochs": 2.5}, "2.5 is not a whole number"),
        ({"train.epochs": True}, "True is not a whole number"),
        ({"train.minibatch_size": 100}, "100 is not a power of two"),
        ({"policy.activation": "sin"}, "'sin' is not one of its choices 'tanh', 'relu', 'gelu'"),
        ({"train.anneal": 1}, "1 is not one of its choices True, False"),
        ({"train.minibatch_size": 8192}, "constraint 'train.minibatch_size <= .* is violated by env.num_envs = 16, "),
    ],
)
def test_validate_names_value_and_limit(params: dict[str, Any], message: str) -> None:
    given_params = {**MIXED.default(), **params}
    with pytest.raises(SpaceError, match=message):
        MIXED.validate(given_params)
    assert not MIXED.is_valid(given_params)


def test_a_missing_value_is_named() -> None:
    params = MIXED.default()
    del params["train.gamma"]
    with pytest.raises(SpaceError, match=r"'train\.gamma' has no value"):
        MIXED.validate(params)
    with pytest.raises(SpaceError, match=r"'train\.gamma' has no value"):
        MIXED.to_unit(params)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Float("a", 1.0, 1.0), "its lowest value 1.0 is not below its highest 1.0; widen"),
        (lambda: Integer("a", 5, 2), "its lowest value 5 is not below its highest 2; swap them"),
        (lambda: Float("a", 0.0, 1.0, scale="log"), "lowest value 0.0 of a log range must be above 0"),
        (lambda: Integer("a", 0, 8, scale="log"), "log range must be above 0"),
        (lambda: Float("a", 0.0, 0.5, scale="logit"), r"must lie inside \(0, 1\)"),
        (lambda: Float("a", 0.5, 1.0, scale="logit"), r"must lie inside \(0, 1\)"),
        (lambda: Integer("a", 1, 4, scale="logit"), "no logit scale"),
        (lambda: Integer("a", 48, 64, scale="pow2"), "48 of a pow2 range is not a power of two"),
        (lambda: Float("a", 0.3, 4.0, scale="pow2"), "0.3 of a pow2 range is not a power of two"),
        (lambda: Float("a", 0.0, 1.0, scale="lag"), "did you mean 'log'"),  # type: ignore[arg-type]
        (lambda: Float("a", 0.0, math.inf), "not finite; give the range two finite ends"),
        (lambda: Float("a", "0", 1.0), "'0' is not a number; for names, list them as choices"),  # type: ignore[arg-type]
        (lambda: Integer("a", 0.5, 1), "0.5 is not a whole number; give a whole number"),  # type: ignore[arg-type]
        (lambda: Integer("a", 0, 10**15), "count in larger units"),
        (lambda: Float("a", 0.1, 0.9, step=2.0), r"step 2.0 is larger than its range \[0.1, 0.9\], which leaves one"),
        (lambda: Integer("a", 1, 9, step=0), "step 0 must be above 0"),
        (lambda: Integer("a", 1, 9, step=0.5), "step 0.5 is not a whole number"),  # type: ignore[arg-type]
        (lambda: Float("a", 0.0, 1.0, step=True), "step True is not a number"),
        (lambda: Float("a", 0.0, 1.0, step=math.nan), "step nan must be above 0 and finite"),
        (lambda: Float("a", 0.0, 1.0, step=1e-17), "step 1e-17 is too small"),
        (lambda: Float("a", 1e17, 2e17, step=1.0), "step 1.0 is too small"),
        (lambda: Float("a", 0.1, 0.9, "logit", step=0.1), "a logit scale has no step"),
        (lambda: Float("a", 0.0, 1.0, step=0.1, default=0.25), "value 0.25 is not one of 0.0, 0.1, ... 1.0"),
        (lambda: Float("a", 0.0, 1.0, default=2.0), "value 2.0 is outside its range"),
        (lambda: Categorical("a", ("x",)), "has 1 choice; give two or more"),
        (lambda: Categorical("a", ("x", "x")), "lists a choice twice in .*; keep each choice once"),
        (lambda: Categorical("a", "xy"), "must be a list"),
        (lambda: Categorical("a", ("x", "y"), default="z"), "value 'z' is not one of its choices"),
        (lambda: Categorical("a", ("x", {1: 2})), r"choice {1: 2} is no value of JSON: None, a bool, a finite number"),
        (lambda: Categorical("a", ("x", [math.nan])), r"choice \[nan\] is no value of JSON"),
        (lambda: Categorical("a", ("x", object)), "is no value of JSON"),
        (lambda: Categorical("a", ([1, 2], (1, 2))), "lists a choice twice"),
        (lambda: Categorical("a", ([1], [1.0])).check([True]), r"\[True\] is not one of its choices \[1\], \[1.0\]"),
        (lambda: Categorical("a", (1, _endless())), "is no value of JSON"),
        (lambda: Float("a b", 0.0, 1.0), "not a dotted name such as .*: use letters, digits and underscores"),
        (lambda: Float("a-b", 0.0, 1.0), "no digit first; call it 'a_b', and use --params dashes or {a_b} for a flag"),
        (lambda: Float("1-b", 0.0, 1.0), "no digit first$"),
        (lambda: Space([]), "no parameters"),
        (lambda: Space({"a": (0.0, 1.0)}), "is given a list"),  # type: ignore[arg-type]
        (lambda: Space(["a"]), "made of Float, Integer and Categorical, got 'a'"),  # type: ignore[list-item]
        (lambda: Space([Float("a", 0.0, 1.0), Float("a", 0.0, 2.0)]), "'a' is given twice"),
        (lambda: Space([Float("a", 0.0, 1.0)], fixed={"a": 1.0}), "'a' is given twice"),
        (lambda: Space([Float("steps", 0.0, 1.0)], cost_parameter="stepz"), "did you mean 'steps'"),
        (lambda: Space([Categorical("a", (1, 2))], cost_parameter="a"), "is categorical"),
        (lambda: Space([Float("a", 0.0, 1.0)], constraints=["a > 2"]), "'a > 2' cannot be met"),
        (lambda: Space([Float("abc", 0.0, 1.0)], constraints=["abd > 2"]), "did you mean 'abc'"),
        (lambda: Space([Float("a", 0.0, 1.0)], constraints="a > 2"), "must be a list of texts"),
        (lambda: Space([Float("a", 0.0, 1.0)], constraints=None), "must be a list of texts, got None"),  # type: ignore[arg-type]
        (lambda: Space([Float("a", 0.0, 1.0)], fixed={"b": [{1}]}), r"'b' is fixed to \[\{1\}\], which is no value of"),
        (lambda: Space([Float("a", 0.0, 1.0)], fixed=["b"]), r"fixed must map names to values, .* got \['b'\]"),  # type: ignore[arg-type]
        (lambda: Space([Float("a", 0.0, 1.0)], fixed={"b": 10**400}), "'b' is fixed to a number of more than"),
        (lambda: Categorical("a", {"x", "y"}), "got a set; a sweep needs their order"),  # type: ignore[arg-type]
        (
            lambda: Float("a", 0.1, 1.0, belief=(2.0, 0.1)),
            r"centre of the belief, 2.0 is outside its range \[0.1, 1.0\]",
        ),
        (lambda: Float("a", 0.1, 1.0, belief=(math.nan, 0.1)), "centre of the belief, nan is outside its range"),
        (lambda: Float("a", 0.1, 1.0, belief=(0.2, 0)), "spread 0 of its belief must be above 0"),
        (lambda: Float("a", 0.1, 1.0, belief=(0.2, math.inf)), "inf in its belief is not a finite number"),
        (lambda: Float("a", 0.1, 1.0, belief=(0.2, "1")), "'1' in its belief is not a finite number"),  # type: ignore[arg-type]
        (lambda: Float("a", 0.1, 1.0, "log", belief=(0.2, 1)), "must be above 1; on a log scale it is a factor"),
        (lambda: Integer("a", 1, 64, "pow2", belief=(48, 2)), "centre of the belief, 48 is not a power of two"),
        (lambda: Integer("a", 1, 64, belief=(4.0, 2)), "4.0 is a float, not a whole number; give 4"),  # type: ignore[arg-type]
        (lambda: Float("a", 0.1, 1.0, belief=0.2), "a belief is a centre and a spread, as in .3e-4, 3., got 0.2"),  # type: ignore[arg-type]
        (lambda: Float("a", 0.1, 1.0, belief=(0.2, 1, 3)), "a belief is a centre and a spread"),  # type: ignore[arg-type]
        (lambda: Categorical("a", ("x", "y"), belief=("z", 0.7)), "the belief, 'z' is not one of its choices"),
        (lambda: Categorical("a", ("x", "y"), belief=("x", 0.5)), "probability 0.5 .* must lie between 0.5, .*, and 1"),
        (lambda: Categorical("a", ("x", "y"), belief=("x", 1)), "probability 1 of its belief must lie between"),
        (lambda: Categorical("a", ("x", "y"), belief="x"), "a belief is a choice and its probability, got 'x'"),  # type: ignore[arg-type]
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        build()


def test_a_fixed_cost_parameter_counts_as_none() -> None:
    space = Space([Float("a", 0.0, 1.0)], cost_parameter="steps", fixed={"steps": 100})
    assert space.cost_parameter is None
    assert space.cost_index is None


def test_importing_the_space_loads_neither_torch_nor_scipy() -> None:
    code = "import sys, protein.space; print([m for m in ('torch', 'scipy', 'gpytorch') if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
    )
    assert result.stdout.strip() == "[]"
