"""Conditional parameters: which exist at a point, held against Python itself, and which conditions are refused."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from protein.engine.candidates import all_points, initial_points, middle, neighbours, other_choices
from protein.errors import SpaceError
from protein.space import Categorical, Float, Integer, Parameter, Space
from protein.space.constraints import Constraint
from protein.types import ParamValue

MODEL = Categorical("model", ("svc", "tree", "linear"))
NESTED = Space(
    [
        MODEL,
        Float("C", 1e-3, 1e3, "log", when="model in ['svc', 'linear']"),
        Categorical("kernel", ("linear", "rbf", "poly"), when="model == 'svc'"),
        Float("gamma", 1e-4, 1.0, "log", when="kernel == 'rbf' or kernel == 'poly'"),
        Integer("degree", 2, 5, when="kernel == 'poly' and C < 100"),
        Integer("depth", 1, 20, default=8, when="model == 'tree'"),
        Float("leaf", 0.0, 0.5, when="depth > 3"),
    ]
)

ATOMS = {
    "a": ("a == 'x'", "a != 'y'", "a in ['x', 'z']", "a not in ('y',)"),
    "b": ("b > 2", "1 <= b < 4", "b % 2 == 0", "6 / b > 3", "b == 3"),
    "c": ("c < 0.5", "c * 2 > b", "not c > 0.25"),
    "d": ("d", "not d", "d == True"),
    "e": ("e == 'x' and c < 0.75", "e == a"),
    "limit": ("limit > b",),
}


def _parameter(name: str, when: str | None) -> Parameter:
    build: dict[str, Callable[..., Parameter]] = {
        "a": functools.partial(Categorical, choices=("x", "y", "z")),
        "b": functools.partial(Integer, low=0, high=5),
        "c": functools.partial(Float, low=0.0, high=1.0),
        "d": functools.partial(Categorical, choices=(True, False)),
        "e": functools.partial(Categorical, choices=("x", "w"), default="w"),
    }
    return build[name](name, when=when)


@st.composite
def conditional_spaces(draw: st.DrawFn, names: str = "abcde") -> Space:
    """Spaces whose later parameters depend on earlier ones, with a constraint that may need what does not exist."""
    parameters: list[Parameter] = []
    order = draw(st.permutations(names))
    for i, name in enumerate(order):
        atoms = [
            atom
            for one in (*order[:i], "limit")
            for atom in ATOMS[one]
            if not set("abcde") & set(_names(atom)) - {*order[:i]}
        ]
        joined = st.builds(
            "{} {} {}".format, st.sampled_from(atoms), st.sampled_from(("and", "or")), st.sampled_from(atoms)
        )
        when = draw(st.none() | st.sampled_from(atoms) | joined) if atoms else None
        parameters.append(_parameter(name, when))
    constraints = draw(st.sampled_from([(), ("c < 0.8 or b < 4",), ("b + 2 * c <= 6",), ("a != 'y'", "d or b > 1")]))
    try:
        return Space(
            parameters,
            constraints=[text for text in constraints if set(_names(text)) <= set(order)],
            fixed={"limit": 3},
        )
    except SpaceError as error:
        assume("always true" not in str(error) and "never true" not in str(error))
        raise


def _names(text: str) -> set[str]:
    return Constraint(text).names


def exist(space: Space, full: dict[str, Any]) -> dict[str, Any]:
    """Python's own answer: the values, of all of a point, whose conditions hold in order."""
    found: dict[str, Any] = {}
    for parameter in space.parameters:
        if parameter.when is None or holds(parameter.when, {**space.fixed, **found}, missing=False):
            found[parameter.name] = full[parameter.name]
    return found


def holds(text: str, values: dict[str, Any], *, missing: bool) -> bool:
    try:
        return bool(eval(text, {}, values))
    except NameError:
        return missing
    except ZeroDivisionError:
        return False


@settings(max_examples=60, deadline=None)
@given(conditional_spaces(), st.integers(0, 2**32))
def test_what_exists_is_what_python_says(space: Space, seed: int) -> None:
    x = np.random.default_rng(seed).random((8, space.num_dims))
    canonical, active = space.canonical(x), space.active(x)
    np.testing.assert_array_equal(space.canonical(canonical), canonical)
    params = space.from_unit_many(x)
    np.testing.assert_array_equal(space.to_unit_many(params), canonical)
    valid = space.valid(x)
    for i, row in enumerate(x):
        full = {p.name: p.raw(p.decode(row[k : k + 1])[0]) for k, p in enumerate(space.parameters)}
        expected = exist(space, full)
        assert params[i] == expected
        assert dict(zip(space.names, active[i], strict=True)) == {name: name in expected for name in space.names}
        met = [holds(text, {**space.fixed, **expected}, missing=True) for text in space.constraints]
        assert valid[i] == all(met) == space.is_valid(expected)
        # Whatever values are given to what does not exist: it is the same point, and no valid one.
        np.testing.assert_array_equal(space.to_unit(full), canonical[i])
        if full != expected:
            assert not space.is_valid(full)
    snapped = space.snap(full)
    assert space.is_valid(snapped)
    assert snapped == expected or not valid[-1]
    keys = {space.key(one) for one in params}
    assert len(keys) == len(np.unique(canonical, axis=0))


@settings(max_examples=30, deadline=None)
@given(conditional_spaces(), st.integers(0, 2**32))
def test_every_point_that_the_engine_considers_is_canonical_and_valid(space: Space, seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = middle(space)
    centers = np.concatenate([start[None, :], space.sample(3, rng)])
    found = [
        centers,
        other_choices(space, start),
        neighbours(space, centers, 20, (0.02, 0.5), rng),
        initial_points(space, seed=1, cost_share=0.5, start=start, pull=0.5),
    ]
    for x in found:
        np.testing.assert_array_equal(space.canonical(x), x)
        assert space.valid(x).all()
    assert Space.from_dict(space.to_dict()) == space


@settings(max_examples=30, deadline=None)
@given(conditional_spaces("abde"))
def test_each_point_of_a_small_space_is_listed_once(space: Space) -> None:
    listed = all_points(space)
    assert listed is not None
    np.testing.assert_array_equal(space.canonical(listed), listed)
    grids = np.meshgrid(*[(np.arange(6) + 0.5) / 6 for _ in space.names], indexing="ij")  # of 2, 3 and 6 values
    everything = space.canonical(np.stack([grid.ravel() for grid in grids], axis=1))
    everything = np.unique(everything[space.valid(everything)], axis=0)
    np.testing.assert_array_equal(np.unique(listed, axis=0), everything)
    assert len(listed) == len(everything)


def test_what_begins_to_exist_near_a_centre_is_drawn_and_not_in_the_middle() -> None:
    tree = NESTED.to_unit({"model": "tree", "depth": 2})
    near = neighbours(NESTED, tree[None, :], 400, (0.2, 0.5), np.random.default_rng(0))
    params = NESTED.from_unit_many(near)
    values = {one["C"] for one in params if one["model"] == "svc"}
    assert len(values) > 50
    assert min(map(float, values)) < 0.01
    assert max(map(float, values)) > 100.0
    assert all(one["model"] == "tree" or len(one) > 1 for one in params)
    assert sum(one == {"model": "tree", "depth": 2} for one in params) < 100  # what moves is what exists there


def test_models_see_no_value_of_what_does_not_exist() -> None:
    x = NESTED.to_unit_many([{"model": "tree", "depth": 2}, {"model": "linear", "C": 1.0}])
    features, groups = NESTED.features(x), NESTED.feature_groups()
    assert features.shape[1] == len(groups)
    moved = x.copy()
    moved[0, 1:4] = 0.99  # C, kernel and gamma of a tree
    np.testing.assert_array_equal(NESTED.features(moved), features)


def test_the_number_of_parameters_that_a_point_has() -> None:
    assert NESTED.num_active == pytest.approx(
        1 + 2 / 3 + 1 / 3 + 2 / 9 + 1 / 9 * 5 / 6 + 1 / 3 + 1 / 3 * 17 / 20, abs=0.05
    )
    assert Space([Categorical(f"m{i}", (1, 2)) for i in range(5)]).num_active == 5.0


def test_defaults_and_snapped_params_lack_what_does_not_exist() -> None:
    assert NESTED.default() == {"model": "tree", "depth": 8, "leaf": 0.25}
    assert NESTED.snap({"model": "linear", "depth": 3, "C": 1e9, "kernel": "rbf"}) == {"model": "linear", "C": 1e3}
    assert NESTED.snap({"model": "svc", "C": 1.5, "gamma": 0.1, "leaf": 0.1}) == {
        "model": "svc",
        "C": 1.5,
        "kernel": "rbf",
        "gamma": 0.1,
    }


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"model": "tree", "depth": 2, "C": 1.0},
            r"'C' has a value, but exists only when model in \['svc', 'linear'\]",
        ),
        ({"model": "svc", "C": 1.0}, "'kernel' has no value, and model == 'svc' holds; give one"),
        ({"model": "svc", "C": 1.0, "kernel": "linear", "gamma": 0.1}, "'gamma' has a value, but exists only when"),
        ({"C": 1.0}, "'model' has no value; give one"),
        ({"model": "tree", "depth": 99}, r"99 is outside its range \[1, 20\]"),
    ],
)
def test_params_that_are_not_those_of_a_point_are_refused(params: dict[str, ParamValue], message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        NESTED.validate(params)


def _with(when: Any, *before: Parameter, **given: Any) -> Callable[[], Space]:
    return lambda: Space([*before, Float("C", 0.0, 1.0, when=when)], **given)


LARGE = Integer("n", 1, 10**9)
UNIT = Float("u", 0.0, 1.0)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            _with("model == 'svm'", MODEL),
            "compares 'model' with 'svm', which is none of its choices; did you",
        ),
        (_with("model in ['svc', 'tre']", MODEL), "compares 'model' with 'tre', which is none of its choices; did you"),
        (_with("modle == 'svc'", MODEL), "mentions unknown parameter 'modle'; did you mean 'model'"),
        (_with("model = 'svc'", MODEL), "parameter 'C': when 'model = 'svc'' does not parse"),
        (_with("model < 3", MODEL), "mixes text and numbers"),
        (_with("model.lower() == 'svc'", MODEL), "not allowed"),
        (_with("model != 'svc' or model == 'svc'", MODEL), "is always true; leave it out"),
        (_with("model == 'svc' and model == 'tree'", MODEL), "is never true; change it, or drop the parameter"),
        (_with("n > 1000000000", LARGE), "is never true"),
        (_with("n >= 1", LARGE), "is always true"),
        (_with("u > 1", UNIT), "is never true; change"),
        (_with("u > 0.5 and v == 1", UNIT, Integer("v", 1, 2, when="u < 0.5")), "is never true; change"),
        (_with("u + n < 1", UNIT, LARGE), "is never true at any of [0-9]+ points"),
        (_with("u + n >= 1", UNIT, LARGE), "is always true at all of [0-9]+ points"),
        (_with("steps > 3", UNIT, fixed={"steps": 2}), "is never true"),
        (_with("C > 0.5", UNIT), r"makes 'C' depend on itself \('C' -> 'C'\)"),
        (_with("u > 0.5", Float("u", 0, 1, when="C > 0.5")), "'u' depend on itself"),
        (
            lambda: Space([Float("C", 0, 1, when="u > 0.5"), UNIT]),
            "depends on 'u', which is listed after it; list 'u' first",
        ),
        (_with("u > 0.5", UNIT, cost_parameter="C"), "the cost parameter must exist in every trial"),
        (_with("u > 0.5", UNIT, cost_parameter="u"), "depends on the cost parameter, which changes"),
        (_with("", MODEL), "when = '' is no condition"),
        (_with(True, MODEL), "when = True is no condition"),
        (_with(["model == 'svc'"], MODEL), "is no condition"),
    ],
)
def test_a_condition_that_cannot_be_meant_is_refused_in_one_line(build: Callable[[], object], message: str) -> None:
    with pytest.raises(SpaceError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "parents", [(LARGE, "n > 999999999"), (LARGE, "n < 2"), (UNIT, "u == 0.123456789"), (UNIT, "u > 0.999999")]
)
def test_a_condition_that_is_rarely_true_is_kept(parents: tuple[Parameter, str]) -> None:
    parent, when = parents
    assert Space([parent, Float("C", 0.0, 1.0, when=when)]).is_conditional


def test_a_stored_space_without_conditions_has_no_new_key() -> None:
    assert set(Space([UNIT]).to_dict()["parameters"][0]) == {"type", "name", "low", "high", "scale", "default"}


_PLAIN = st.one_of(st.integers(-3, 3), st.sampled_from(["a", "[1]", "", None, 0.5]))
_JSON = st.recursive(
    _PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
)


@given(choices=st.lists(_JSON, min_size=2, max_size=5, unique_by=repr), data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_condition_names_any_choice_as_python_writes_it(choices: list[Any], data: st.DataObject) -> None:
    """Also a list or a table, alone or among others, on either side."""
    parent, chosen = Categorical("m", choices), data.draw(st.sampled_from(choices))
    some = data.draw(st.lists(st.sampled_from(choices), min_size=1, max_size=len(choices) - 1))
    for text, holds in (
        (f"m == {chosen!r}", [one == chosen for one in choices]),
        (f"{chosen!r} != m", [one != chosen for one in choices]),
        (f"m in {some!r}", [one in some for one in choices]),
    ):
        if all(holds) or not any(holds):  # which is refused
            continue
        space = Space([parent, Float("x", 0.0, 1.0, when=text)])
        x_unit = space.to_unit_many([{"m": one, "x": 0.5} for one in choices])
        assert space.active(x_unit)[:, 1].tolist() == holds, text
        assert Space.from_dict(space.to_dict()) == space


@pytest.mark.parametrize("text", ["m == [m]", "m == {1: 2}", "m == {**m}", "m == [1][0]", "m in [[x]]", "m == [1 + 1]"])
def test_a_list_or_table_in_a_condition_holds_plain_values(text: str) -> None:
    with pytest.raises(SpaceError, match="not allowed; use comparisons"):
        Space([Categorical("m", [[1], "x"]), Float("x", 0.0, 1.0, when=text)])


def test_a_list_that_is_no_choice_is_refused_by_name() -> None:
    with pytest.raises(SpaceError, match=r"compares 'm' with \[1, 3\], which is none of its choices"):
        Space([Categorical("m", [[1, 2], "x"]), Float("x", 0.0, 1.0, when="m == [1, 3]")])
