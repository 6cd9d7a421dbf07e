"""Linear constraints: what is feasible, against all points of small grids, and draws, against rejection."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from protein.engine.candidates import initial_points, middle, neighbours
from protein.errors import SpaceError
from protein.space import Categorical, Float, Integer, Space
from protein.space.constraints import Constraint
from protein.space.polytope import Polytope

WEIGHTS = [Float(f"w{i}", 0.0, 1.0) for i in range(10)]
TOTAL = " + ".join(weight.name for weight in WEIGHTS)
GRIDS = (
    Integer("a", -2, 3),
    Integer("b", 1, 10, step=3),
    Float("c", 0.5, 4.0, "pow2"),
    Float("d", 0.1, 0.7, step=0.2),
    Integer("e", 1, 5, "log"),
)
PLAIN = st.sampled_from([-3, -2, -1, -0.5, 0.5, 1, 2, 3])
TERMS = st.lists(st.tuples(PLAIN, st.sampled_from(GRIDS)), min_size=1, max_size=3)
ROWS = st.tuples(TERMS, st.sampled_from(["<=", "<", "==", ">=", ">"]), st.integers(-12, 12).map(lambda x: x / 2))


def text_of(row: tuple[list[tuple[float, Any]], str, float]) -> str:
    terms, relation, right = row
    return f"{' + '.join(f'{factor} * {one.name}' for factor, one in terms)} {relation} {right}"


@given(st.lists(ROWS, min_size=1, max_size=3))
@settings(max_examples=150, deadline=None)
def test_it_is_feasible_where_a_point_of_the_grid_is(rows: list[Any]) -> None:
    constraints = [Constraint(text_of(row)) for row in rows]
    lines = [line for one in constraints for line in one.linear({})]
    used = [one for one in GRIDS if any(one.name in line.coefficients for line in lines)]
    if len(lines) < len(rows):
        return  # its terms cancel out
    points = itertools.product(*(one.values() or () for one in used))
    columns = np.array(list(points)).T
    values = dict(zip([one.name for one in used], columns, strict=True))
    fine = np.ones(columns.shape[1], dtype=bool)
    close = np.zeros_like(fine)  # a sum that is a rounding error beside its limit is as good as on it
    for line in lines:
        total = sum(
            (factor * values[name] for name, factor in line.coefficients.items()), np.full(len(fine), line.constant)
        )
        close |= np.abs(total) < 1e-9
        limit = {"<=": total <= 1e-9, "<": total < -1e-9, "==": np.abs(total) <= 1e-9}
        fine &= limit[line.kind]
    found = Polytope(GRIDS, lines).point()
    assert (found is not None) == fine.any()
    if found is not None:
        assert np.abs(columns[:, fine].T - found).max(axis=1).min() < 1e-9, "it is one of the points of the grid"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + b <= 1", [({"a": 1, "b": 1}, -1, "<=")]),
        ("0.5 < a - 2 * (b + n) / 4", [({"a": -1, "b": 0.5}, 2.5, "<")]),
        ("n * a >= b and a == 3", [({"a": -4, "b": 1}, 0, "<="), ({"a": 1}, -3, "==")]),
        ("1 <= a <= -(-b)", [({"a": -1}, 1, "<="), ({"a": 1, "b": -1}, 0, "<=")]),
        ("a * b <= 1 and 2 * a < 1", [({"a": 2}, -1, "<")]),
        ("a / b <= 1", []),
        ("a <= 1 or b <= 1", []),
        ("not a <= 1", []),
        ("a != b", []),
        ("a == 'x'", []),
        ("a // 2 == 1", []),
        ("a / 0 < 1", []),
        ("a - a <= 1", []),
    ],
)
def test_what_is_linear(text: str, expected: list[Any]) -> None:
    assert [tuple(row) for row in Constraint(text).linear({"n": 4.0})] == expected


def test_what_cannot_be_met_is_proven_and_named_and_what_was_not_found_is_said_so() -> None:
    grid: list[Any] = [Integer("a", 0, 1000), Integer("b", 0, 1000)]
    real: list[Any] = [Float("x", 0.0, 1.0), Float("y", 1e-6, 1.0, "log")]
    impossible = [
        (grid, ["a <= 999", "2 * a == 2 * b + 1"], "constraint '2 * a == 2 * b + 1' cannot be met: no point"),
        (grid, ["a + b >= 1990", "a < 900"], "constraint 'a < 900' cannot be met: no point of the space meets it with"),
        (real, ["x + y > 2"], "constraint 'x + y > 2' cannot be met: no point of the space meets it; change a range"),
        (real, ["x < y and y < x"], "cannot be met"),
        ([*WEIGHTS, *real], [f"{TOTAL} <= x - 1.5"], "cannot be met"),
    ]
    for parameters, constraints, message in impossible:
        with pytest.raises(SpaceError) as refused:
            Space(parameters, constraints=constraints)
        assert message in str(refused.value)
    for tiny in ("x < 1e-9", "x <= 0", "0 < x < 2e-6", "x + y < 1.1e-6", "y <= 1e-6 and x >= 1 - 1e-6"):
        assert Space(real, constraints=[tiny]).sample(3, np.random.default_rng(0)).shape == (3, 2)
    with pytest.raises(SpaceError, match=r"'x \* x < -1': none of 16384 points .* and no other was found; widen"):
        Space(real, constraints=["x * x < -1"])
    with pytest.raises(SpaceError, match="no other was found"):
        Space(WEIGHTS, constraints=[f"{TOTAL} <= 0.01", "w0 * w1 > 0.5"])


@pytest.mark.parametrize("seed", range(2))
def test_walks_are_as_uniform_as_rejection(seed: int) -> None:
    """With linear and log scales, whole numbers, a grid and powers of two; two lines bound them."""
    parameters: list[Any] = [
        Float("x", 0.0, 2.0),
        Float("y", 1e-2, 1.0, "log"),
        Integer("n", 1, 6, "log"),
        Float("s", 0.0, 1.0, step=0.25),
        Integer("p", 1, 8, "pow2"),
        Float("z", -1.0, 1.0),
    ]
    space = Space(parameters, constraints=["x + 2 * y + s + 0.2 * p <= 2", "z >= x - 0.3 * n", "z <= x"])
    polytope = space._polytope
    assert polytope is not None
    rejected = space.sample(4000, np.random.default_rng(seed))
    walked = space._walked(polytope, 4000, np.random.default_rng(seed + 10))
    assert space.valid(walked).all() and len(walked) == 4000
    for columns in (
        *np.eye(6),
        np.array([1.0, 1, 0, 0, 0, 0]),
        np.array([1.0, 0, 0, 0, 0, -1]),
        np.array([0.0, 0, 1, 0, 1, 1]),
    ):
        assert stats.ks_2samp(rejected @ columns, walked @ columns).pvalue > 1e-3


def test_a_simplex_has_the_marginals_that_are_known() -> None:
    inside = Space(WEIGHTS, constraints=[f"{TOTAL} <= 1"]).sample(2000, np.random.default_rng(0))
    assert len(np.unique(inside, axis=0)) == 2000
    surface = Space(WEIGHTS, constraints=[f"{TOTAL} == 1"]).sample(2000, np.random.default_rng(1))
    assert np.abs(surface.sum(axis=1) - 1.0).max() < 1e-12 and len(surface) == 2000
    for i in range(10):
        assert stats.kstest(inside[:, i], stats.beta(1, 10).cdf).pvalue > 1e-3
        assert stats.kstest(surface[:, i], stats.beta(1, 9).cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    "constraints",
    [
        [f"{TOTAL} <= 1"],
        [f"{TOTAL} == 1"],
        [f"0.999 <= {TOTAL} <= 1.001", "w0 * w1 <= w2"],
        [f"{TOTAL} <= 0.5", "n + 10 * m == 57", "f <= 1e-3 * n"],
    ],
)
def test_all_points_of_a_search_are_valid_and_vary(constraints: list[str]) -> None:
    own: list[Any] = [
        Categorical("kind", ("a", "b")),
        Integer("n", 1, 64),
        Integer("m", 0, 9),
        Float("f", 1e-5, 1.0, "log"),
    ]
    space = Space([*WEIGHTS, *own], constraints=constraints)
    rng = np.random.default_rng(0)
    points = [
        space.sample(300, rng),
        initial_points(space, seed=0, cost_share=1.0, start=None, pull=0.0),
        neighbours(space, space.sample(4, rng), 100, (0.02, 0.5), rng),
        middle(space)[None, :],
        space.to_unit(space.snap({weight.name: 0.5 for weight in WEIGHTS}))[None, :],
    ]
    for found, least in zip(points, (300, 250, 60, 1, 1), strict=True):
        assert space.valid(found).all()
        assert len(np.unique(found, axis=0)) >= least
    assert math.isclose(points[0][:, space.names.index("kind")].mean(), 0.5, abs_tol=0.1), "others stay uniform"


def test_a_constraint_on_what_may_not_exist_binds_no_other_parameter_where_it_does_not_apply() -> None:
    kind, sometimes = Categorical("kind", ("a", "b")), Float("c", 0.0, 1.0, when="kind == 'a'")
    space = Space([*WEIGHTS, kind, sometimes], constraints=[f"c <= 0.5 and {TOTAL} >= 11"])
    points = space.sample(50, np.random.default_rng(0))
    assert len(points) == 50 and {params["kind"] for params in space.from_unit_many(points)} == {"b"}


def test_what_rejection_finds_needs_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line would take long to load it."""

    def fail(self: Polytope) -> None:
        raise AssertionError("a linear program for constraints that many points meet")

    monkeypatch.setattr(Polytope, "point", fail)
    space = Space(WEIGHTS, constraints=["w0 + w1 <= 1", "w2 <= w3"])
    assert len(space.sample(100, np.random.default_rng(0))) == 100
