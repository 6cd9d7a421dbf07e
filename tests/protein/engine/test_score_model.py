"""The score model: its scale, its invariances, and what it learns."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from protein.engine.gp import Array
from protein.engine.score_model import ScoreModel, ScoreScale
from protein.space import Categorical, Float, Integer, Space
from protein.types import Z80

pytestmark = pytest.mark.usefixtures("one_blas_thread")

SPACE = Space(
    [
        Float("lr", 1e-5, 1e-1, scale="log"),
        Integer("steps", 1000, 1_000_000, scale="log"),
        Categorical("opt", ("adam", "muon")),
        Integer("width", 16, 256, scale="pow2"),
    ],
    cost_parameter="steps",
)
scores = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


@given(scores)
@settings(deadline=None)
def test_the_score_scale_is_monotone_and_invertible(values: list[float]) -> None:
    scale = ScoreScale.of(np.array(values))
    z = scale.to_z(np.array(sorted(values)))
    assert np.isfinite(z).all()
    assert (np.diff(z) >= 0).all()
    if scale.sd > 0:
        width = max(values) - min(values)
        for value, at in zip(sorted(values), z, strict=True):
            assert scale.to_score(float(at)) == pytest.approx(value, rel=1e-6, abs=1e-6 * width)


@given(scores, st.floats(1e-3, 1e3), st.floats(-1e3, 1e3))
@settings(deadline=None)
def test_units_of_the_score_do_not_matter(values: list[float], factor: float, shift: float) -> None:
    original = np.round(np.array(values), 3)
    assume(1e-3 * factor > 1e-8 * abs(shift))  # else differences are lost in the shift's rounding
    z = ScoreScale.of(original).to_z(original)
    moved = original * factor + shift
    assert ScoreScale.of(moved).to_z(moved) == pytest.approx(z, abs=1e-3)


@pytest.mark.parametrize("bad", [-1e2, -1e6, -1e30])
@pytest.mark.parametrize(
    "good",
    [
        [0.1, 0.3, 0.5, 0.7, 0.9, 0.2, 0.6],
        [1.0, 2.0],
        [0.0] * 9 + [0.5, 1.0],  # an interquartile range of exactly 0
        [0.0, 0.2, 0.5] + [1.0] * 9,
        [0.0] * 20 + [1.0],
    ],
)
def test_one_terrible_score_does_not_press_the_others_together(good: list[float], bad: float) -> None:
    values = np.array([*good, bad])
    z = ScoreScale.of(values).to_z(values)
    assert z[-1] == min(z)
    alone = ScoreScale.of(values[:-1]).to_z(values[:-1])
    assert max(z[:-1]) - min(z[:-1]) > 0.05 * (max(alone) - min(alone))
    order = np.argsort(values)
    assert (np.diff(z[order])[np.diff(values[order]) > 0] > 1e-3).all()


def test_a_plateau_does_not_press_the_good_scores_together() -> None:
    """Most scores lie on a floor, which is exact, or as narrow as rounding or noise leave it."""
    good = np.linspace(0.3, 0.98, 8)
    for width in (0.0, 1e-12, 1e-6, 1e-3):
        values = np.concatenate([width * np.linspace(-1.0, 1.0, 30), good])
        z = ScoreScale.of(values).to_z(values)
        assert z[-1] - z[-8] > 0.5 * (z[-1] - z[0])
        assert np.diff(z[-8:]) == pytest.approx(np.full(7, (z[-1] - z[-8]) / 7))


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=30), st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
@settings(deadline=None)
def test_all_but_the_best_score_above_the_median_are_on_a_line(values: list[float], at: float, width: float) -> None:
    """No two good scores are pressed into one: z of those between the median and the second best is linear."""
    s = np.sort(np.round(np.array([*values, at, at + width]), 3))
    scale = ScoreScale.of(s)
    assert scale.high >= s[-2] and scale.low <= np.median(s)
    if scale.sd > 0.0:
        upper = s[s >= np.median(s)][:-1]
        assert scale.to_z(upper) == pytest.approx((upper - scale.mean) / scale.sd, abs=1e-9)


def test_a_single_absurdly_good_score_leaves_the_others_apart() -> None:
    values = np.array([0.1, 0.5, 0.2, 0.9, 1e30])
    z = ScoreScale.of(values).to_z(values)
    assert z[4] == max(z) and z[3] - z[0] > 0.02
    assert ScoreScale.of(values).to_score(float(z[4])) == pytest.approx(1e30, rel=1e-3)


@pytest.mark.parametrize("values", [[3.0], [3.0, 4.0], [4.0, 3.0, 3.0], [1e300, -1e300], [1e300, -1e300, 0.0, 1.0]])
def test_few_and_extreme_scores_have_a_finite_scale(values: list[float]) -> None:
    scale = ScoreScale.of(np.array(values))
    z = scale.to_z(np.array(values))
    assert np.isfinite(z).all() and (np.diff(z[np.argsort(values)]) >= 0.0).all()
    assert (z.max() > z.min()) == (len(values) > 1)


def test_equal_scores_and_huge_scores_have_a_scale() -> None:
    assert ScoreScale.of(np.full(5, 3.0)).to_z(np.full(5, 3.0)).tolist() == [0.0] * 5
    assert ScoreScale.of(np.full(5, 3.0)).to_score(1.0) == pytest.approx(3.0)
    huge = np.array([1e200, -1e200, 0.0, 5e199])
    assert np.isfinite(ScoreScale.of(huge).to_z(huge)).all()


def test_the_score_model_predicts_and_fantasizes() -> None:
    rng = np.random.default_rng(0)
    x = SPACE.sample(40, rng)
    values = 100.0 - 50.0 * (x[:, 0] - 0.5) ** 2
    model = ScoreModel.fit(SPACE, x, values)
    new = SPACE.sample(20, rng)
    mean, sd = model.predict(new)
    predicted = [model.scale.to_score(float(m)) for m in mean]
    assert predicted == pytest.approx((100.0 - 50.0 * (new[:, 0] - 0.5) ** 2).tolist(), abs=2.0)
    fantasized_mean, fantasized_sd = model.fantasize(new[:3]).predict(new)
    assert fantasized_mean == pytest.approx(mean, abs=0.05)
    assert (fantasized_sd[:3] < sd[:3]).all()


def test_trials_that_run_have_shown_nothing_that_narrows_the_other_intervals() -> None:
    x = SPACE.sample(10, np.random.default_rng(5))
    model = ScoreModel.fit(SPACE, x, -((x[:, 0] - 0.5) ** 2))
    running = np.repeat(x[:1], 64, axis=0)
    [alone] = model.estimates(x[5:6], measured=True)
    [beside] = model.fantasize(running).estimates(x[5:6], measured=True)
    assert beside.high - beside.low == pytest.approx(alone.high - alone.low, rel=0.05)


@pytest.mark.parametrize("num_runs", [8, 80])
def test_intervals_of_few_runs_are_wider_than_their_posterior(num_runs: int) -> None:
    """The mode of the hyperparameters is taken for known: see `ScoreModel.estimates`. Points of one run are one."""
    x = SPACE.sample(num_runs, np.random.default_rng(0))
    runs = np.arange(2 * num_runs) // 2
    model = ScoreModel.fit(SPACE, np.repeat(x, 2, axis=0), np.sin(5.0 * x[runs, 0]), runs=runs)
    at = np.full((1, SPACE.num_dims), 0.5)
    mean, sd = (float(v[0]) for v in model.predict(at))
    low, high = (model.scale.to_score(mean + side * Z80 * sd * (1.0 + 8.0 / num_runs)) for side in (-1, 1))
    (estimate,) = model.estimates(at, measured=False)
    assert (estimate.low, estimate.high) == pytest.approx((low, high))
    (hoped,) = model.estimates(at, measured=False, chosen=True)
    assert hoped.value == pytest.approx(model.scale.to_score(mean - 0.5 * sd))
    assert hoped.high - hoped.low == pytest.approx(high - low)


def test_points_on_the_way_are_not_taken_for_results_where_a_schedule_makes_them_worse() -> None:
    rng = np.random.default_rng(0)
    ends, ways = SPACE.sample(25, rng), SPACE.sample(50, rng)

    def truth(x: Array) -> Array:
        return np.asarray(10.0 * np.sin(3.0 * x[:, 0]) + 4.0 * x[:, 1])

    x = np.concatenate([ends, ways])
    unfinished = np.concatenate([np.zeros(25), np.full(50, 0.5)])
    scores = truth(x) - 8.0 * unfinished  # half way through a run everything scores four points less
    new = SPACE.sample(100, rng)

    def error(model: ScoreModel) -> float:
        predicted = np.array([model.scale.to_score(float(m)) for m in model.predict(new)[0]])
        return float(np.mean(np.abs(predicted - truth(new))))

    told = error(ScoreModel.fit(SPACE, x, scores, unfinished=unfinished))
    assert told < 0.3 * error(ScoreModel.fit(SPACE, x, scores)), "taken for results they mislead"
    assert told < error(ScoreModel.fit(SPACE, ends, truth(ends))) * 1.1, "and told apart they do no harm"


def test_more_steps_are_expected_to_help_until_the_data_say_otherwise() -> None:
    rng = np.random.default_rng(0)
    cheap = SPACE.sample(12, rng)
    cheap[:, 1] *= 0.3
    cheap = SPACE.canonical(cheap)
    flat = 0.01 * rng.standard_normal(12)
    expensive = cheap.copy()
    expensive[:, 1] = 0.9
    hopeful = ScoreModel.fit(SPACE, cheap, flat, trend=1.0)
    assert (hopeful.predict(expensive)[0] - hopeful.predict(cheap)[0]).mean() > 0.3
    x = SPACE.canonical(np.concatenate([cheap, expensive]))
    taught = ScoreModel.fit(SPACE, x, np.concatenate([flat, 0.01 * rng.standard_normal(12)]), trend=1.0)
    new = SPACE.sample(50, rng)
    low, high = new.copy(), new.copy()
    low[:, 1], high[:, 1] = 0.1, 0.9
    assert abs((taught.predict(high)[0] - taught.predict(low)[0]).mean()) < 0.6


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=8), st.sampled_from([(0.0, 1.0), (-math.inf, 1.0)]))
@settings(max_examples=25, deadline=None)
def test_estimates_stay_among_the_possible_scores(values: list[float], possible: tuple[float, float]) -> None:
    rng = np.random.default_rng(0)
    model = ScoreModel.fit(SPACE, SPACE.sample(len(values), rng), np.array(values))
    x = SPACE.sample(20, rng)
    told = dataclasses.replace(model, score_range=possible)
    for free, one in zip(model.estimates(x, measured=True), told.estimates(x, measured=True), strict=True):
        assert possible[0] <= one.low <= one.value <= one.high <= possible[1]
        assert one.high == min(max(free.high, possible[0]), 1.0), "and is otherwise the same"
    assert max(told.expected(x)) <= 1.0
    assert model.highest_z == math.inf and (told.highest_z == math.inf or told.scale.to_score(told.highest_z) >= 0.999)
