"""Laws: closed forms with known exponents, what is not told, extrapolation, and sweeps that cannot have any."""

import dataclasses
import math

import numpy as np
import pytest
from conditional_sweeps import CONDITIONAL
from conditional_sweeps import TRIALS as CONDITIONAL_TRIALS

from protein import Protein
from protein.engine import front_model, gp
from protein.engine.front_model import FrontModel
from protein.engine.gp import Array, conditioned
from protein.engine.history import History
from protein.engine.laws import CHECKED_TIMES, Laws, Plan, fit_laws
from protein.engine.recommend import contenders
from protein.engine.results import best
from protein.errors import UsageError
from protein.space import Categorical, Float, Integer, Parameter, Space
from protein.types import Observation, Params, TrialState

SPACE = Space(
    [
        Float("rate", 1e-5, 1e-1, scale="log"),
        Float("share", 0.0, 1.0),
        Float("unused", 1e-3, 1e3, scale="log"),
        Categorical("kind", ("a", "b")),
        Integer("steps", 1_000, 1_000_000, scale="log"),
    ],
    cost_parameter="steps",
)
SECONDS_A_STEP = 1e-4
EXPONENT = -0.5  # of the best rate over cost: two decades of the rate's four in the four decades from 0.1 s to 1,000 s


def best_rate(seconds: float) -> float:
    return float(0.003 * seconds**EXPONENT)


def observed(params: Params, noise: float = 0.0, factor: float = 1.0) -> Observation:
    """One trial of a quadratic in ln rate whose optimum moves; the share's best value is .7 at every cost."""
    seconds = SECONDS_A_STEP * float(params["steps"]) * factor
    miss = math.log10(float(params["rate"]) / best_rate(seconds))
    score = 0.3 * math.log10(seconds) - miss**2 - 6.0 * (float(params["share"]) - 0.7) ** 2 + (params["kind"] == "b")
    return Observation(params=params, state=TrialState.COMPLETE, score=score + noise, cost_seconds=seconds)


def trials(num: int = 60, seed: int = 0) -> list[Observation]:
    return [observed(params) for params in SPACE.from_unit_many(SPACE.sample(num, np.random.default_rng(seed)))]


def in_pairs(history: list[Observation]) -> list[Observation]:
    """Every second trial has gone on with the one before it."""
    return [dataclasses.replace(o, number=i, continues=i - 1 if i % 2 else None) for i, o in enumerate(history)]


def with_luck(model: FrontModel) -> FrontModel:
    """The same, but runs differ by much."""
    process = front_model._mode(model.score)
    process = conditioned(process.x, process.y, process.runs, process.kernel, process.noise, 0.3)
    return dataclasses.replace(model, score=dataclasses.replace(model.score, process=process))


@pytest.fixture(scope="module")
def laws() -> Laws:
    return fit_laws(SPACE, trials())


def test_a_quadratic_with_a_known_law_gives_its_exponent(laws: Laws) -> None:
    law = laws.laws[0]
    assert law.exponent is not None and law.kind == "power" and law.known and law.moves
    assert law.exponent.value == pytest.approx(EXPONENT, abs=0.06)
    assert law.exponent.low < EXPONENT < law.exponent.high


def test_best_values_are_found_within_the_trials_range_and_at_ten_times_the_cost(laws: Laws) -> None:
    assert laws.largest_seconds == pytest.approx(100.0, rel=0.2)
    for seconds in (laws.cheapest_seconds, laws.largest_seconds, 10.0 * laws.largest_seconds):
        rate = laws.values(seconds)["rate"].estimate
        assert rate is not None
        assert rate.value == pytest.approx(best_rate(seconds), rel=0.3)
        # Without noise the draws hardly differ within the range: 5 % is how finely the maxima are searched.
        assert 0.95 * rate.low < best_rate(seconds) < 1.05 * rate.high


def test_a_parameter_with_an_exponent_of_0_stays_where_it_is(laws: Laws) -> None:
    law = laws.laws[1]
    assert law.kind == "line" and law.known and not law.moves
    share = laws.values(1000.0)["share"].estimate
    assert share is not None and share.low < 0.7 < share.high


def test_a_parameter_that_does_not_matter_has_no_law(laws: Laws) -> None:
    law, value = laws.laws[2], laws.values(laws.largest_seconds)["unused"]
    assert not law.known and not law.moves
    assert value.estimate is not None and not value.known
    assert value.estimate.low < 1e-2 and value.estimate.high > 1e2  # 80 % of what a uniform distribution has


def test_a_categorical_has_shares(laws: Laws) -> None:
    value = laws.values(laws.largest_seconds)["kind"]
    assert laws.laws[3].kind == "shares" and laws.laws[3].exponent is None
    assert value.estimate is None and value.known and value.shares["b"] > 0.9
    assert sum(value.shares.values()) == pytest.approx(1.0)


def test_the_cost_parameter_follows_cost_and_leaves_its_range(laws: Laws) -> None:
    law = laws.laws[4]
    assert law.exponent is not None and law.exponent.value == pytest.approx(1.0, abs=0.05)
    plan = laws.plan(1000.0)
    assert plan.params["steps"] == pytest.approx(1000.0 / SECONDS_A_STEP, rel=0.05)
    assert plan.values["steps"].at_end == "beyond"
    assert plan.times_largest == pytest.approx(10.0, rel=0.2)


@pytest.mark.parametrize("steps", [Integer("steps", 1, 1000), Float("steps", 1.0, 1000.0)])
def test_the_law_of_a_cost_parameter_on_a_linear_scale_is_a_power(steps: Integer | Float) -> None:
    space = Space([Float("rate", 0.0, 1.0), steps], cost_parameter="steps")
    points = space.from_unit_many(space.sample(30, np.random.default_rng(0)))
    seen = [
        Observation(
            params=params,
            state=TrialState.COMPLETE,
            score=math.log(float(params["steps"])) - (float(params["rate"]) - 0.3) ** 2,
            cost_seconds=0.1 * float(params["steps"]),
        )
        for params in points
    ]
    law = fit_laws(space, seen).laws[1]
    assert law.exponent is not None and law.exponent.value == pytest.approx(1.0, abs=0.05)
    assert law.kind == "power"


def test_a_plan_is_better_than_the_recommended_config_at_ten_times_the_cost(laws: Laws) -> None:
    recommended = best(contenders(SPACE, trials()))
    assert recommended is not None
    plan = laws.plan(1000.0).params
    same_cost = {**recommended.params, "steps": plan["steps"]}
    assert (observed(plan).score or 0.0) > (observed(same_cost).score or 0.0) + 0.05


def test_intervals_grow_with_the_distance_from_the_trials(laws: Laws) -> None:
    widths = []
    for times in (1.0, 3.0, 10.0, 100.0):
        rate = laws.values(times * laws.largest_seconds)["rate"].estimate
        assert rate is not None
        widths.append(math.log(rate.high / rate.low))
    assert widths == sorted(widths) and widths[-1] > 1.5 * widths[0]


def test_values_keep_to_their_ranges_and_say_so(laws: Laws) -> None:
    values = laws.values(1e9)
    rate = values["rate"].estimate
    assert rate is not None and rate.low == rate.value == 1e-5 and values["rate"].at_end == "low"
    plan = laws.plan(1e9)
    SPACE.validate({**plan.params, "steps": 1000})


def test_a_trend_that_the_data_do_not_tell_is_held_from_ten_times_the_cost_on() -> None:
    """The share's best value is the same at every cost, and noise makes it look as if it fell a little."""
    noise = np.random.default_rng(5).normal(size=40)
    observations = [dataclasses.replace(o, score=o.score + e) for o, e in zip(trials(40), noise, strict=True)]
    noisy = fit_laws(SPACE, observations)
    told = {law.name: law.moves for law in noisy.laws if law.followed}
    assert told == {"rate": True, "share": False, "steps": True}
    near, edge, far = (noisy.plan(times * noisy.largest_seconds) for times in (5.0, CHECKED_TIMES, 16_900.0))
    assert near.params["share"] != edge.params["share"] == far.params["share"]
    assert float(far.params["rate"]) < float(edge.params["rate"]), "a trend that the data tell goes on"
    assert far.params["steps"] == pytest.approx(1_690.0 * float(edge.params["steps"]), rel=0.05)
    assert (near.held, edge.held, far.held) == ((), (), ("share",))


def test_laws_do_not_depend_on_the_order_of_trials(laws: Laws) -> None:
    other = fit_laws(SPACE, trials()[::-1])
    assert other.laws == laws.laws
    assert other.plan(500.0) == laws.plan(500.0)


def test_failed_and_unreadable_trials_are_left_out(laws: Laws) -> None:
    lost = Observation(params=SPACE.default(), state=TrialState.FAILED, score=None, cost_seconds=5e4, reason="diverged")
    strange = dataclasses.replace(trials(1)[0], params={"other": 1.0})
    assert fit_laws(SPACE, [lost, *trials(), strange]).laws == laws.laws


def test_the_engine_by_itself_gives_the_same_laws_in_both_directions(laws: Laws) -> None:
    engine = Protein(SPACE, direction="minimize")
    for one in trials():
        engine.observe(one.params, score=-(one.score or 0.0), cost_seconds=one.cost_seconds)
    assert engine.laws().laws == laws.laws


def test_constraints_hold_in_plans() -> None:
    space = Space(SPACE.parameters, cost_parameter="steps", constraints=("share <= 0.5",))
    allowed = [o for o in trials(120) if space.is_valid(o.params)]
    plan: Plan = fit_laws(space, allowed).plan(1000.0)
    assert float(plan.params["share"]) <= 0.5


def test_a_parameter_that_a_constraint_moves_is_named() -> None:
    parameters: list[Parameter] = [
        Float("lr", 1e-4, 1e-1, scale="log"),
        Integer("batch", 1, 1024, scale="log"),  # changes nothing
        Integer("steps", 100, 30_000, scale="log"),
    ]
    found = []
    for params in Space(parameters).from_unit_many(Space(parameters).sample(60, np.random.default_rng(0))):
        cost = 1e-3 * float(params["steps"])
        score = math.log10(cost) - (math.log10(float(params["lr"])) + 2.0 + 0.4 * math.log10(cost)) ** 2
        found.append(Observation(params=params, state=TrialState.COMPLETE, score=score, cost_seconds=cost))
    free = fit_laws(Space(parameters, cost_parameter="steps"), found).plan(300.0)
    space = Space(parameters, cost_parameter="steps", constraints=("batch * 300 >= steps",))
    plan = fit_laws(space, [one for one in found if space.is_valid(one.params)]).plan(300.0)
    assert (free.constrained, plan.constrained, plan.held) == ((), ("batch",), ())
    assert int(plan.params["batch"]) * 300 >= int(plan.params["steps"]) > 200_000


def test_no_plan_violates_a_constraint_of_the_cost_parameter_alone() -> None:
    space = Space(
        [Integer("steps", 100, 10_000, scale="log")],
        cost_parameter="steps",
        constraints=("steps * batch <= 80000",),
        fixed={"batch": 8},
    )
    found = [
        Observation(params=p, state=TrialState.COMPLETE, score=math.log(int(p["steps"])), cost_seconds=int(p["steps"]))
        for p in space.from_unit_many(np.linspace(0.0, 1.0, 20)[:, None])
    ]
    laws = fit_laws(space, found)
    assert laws.plan(5_000.0).params["steps"] == pytest.approx(5_000, rel=0.1)
    with pytest.raises(UsageError, match=r"no config with steps \d+ satisfies the constraints; give another cost"):
        laws.plan(200_000.0)


def _whole(params: Params) -> Params:
    """The nearest params whose steps are a multiple of the batch."""
    steps, batch = int(params["steps"]), int(params["batch"])
    return {**params, "steps": max(steps // batch, 1 + 99 // batch) * batch}


@pytest.mark.parametrize("constraint", ["batch * 8 <= steps", "steps <= batch * 512"])
def test_constraints_on_the_cost_parameter_hold_in_plans(constraint: str) -> None:
    rate, batch = Float("lr", 1e-4, 1e-1, scale="log"), Integer("batch", 16, 1024, scale="pow2")
    steps = Integer("steps", 100, 30_000, scale="log")
    space = Space([rate, batch, steps], cost_parameter="steps", constraints=(constraint,))
    rng = np.random.default_rng(0)
    sign = 1.0 if constraint.startswith("batch") else -1.0  # towards where it is violated
    found = []
    for x in space.sample(60, rng):
        params = space.from_unit(x)
        cost = 1e-3 * float(params["steps"])
        wanted = -2.0 - 0.4 * math.log10(cost)
        score = 2.0 * math.log10(cost) - 3.0 * (math.log10(float(params["lr"])) - wanted) ** 2
        score += sign * 0.2 * math.log2(float(params["batch"])) + 0.05 * rng.normal()
        found.append(Observation(params=params, state=TrialState.COMPLETE, score=score, cost_seconds=cost))
    laws = fit_laws(space, found)
    for seconds in (laws.cheapest_seconds, 2.0 * laws.cheapest_seconds, 10.0 * laws.largest_seconds):
        planned = dict(laws.plan(seconds).params)
        assert eval(constraint, {}, planned), (seconds, planned)
    whole = Space([rate, batch, steps], cost_parameter="steps", constraints=("steps % batch == 0",))
    plan = fit_laws(whole, [dataclasses.replace(one, params=_whole(one.params)) for one in found]).plan(200.0)
    assert int(plan.params["steps"]) % int(plan.params["batch"]) == 0
    never = Space([rate, batch, steps], cost_parameter="steps", constraints=("steps <= batch * 30",))
    laws = fit_laws(never, [one for one in found if never.is_valid(one.params)])
    with pytest.raises(UsageError, match=r"no config with steps \d+ satisfies the constraints; give another cost"):
        laws.plan(10.0 * laws.largest_seconds)


@pytest.mark.parametrize(
    ("observations", "message"),
    [
        ([], "laws need 10 configs that were trained to their end, and have 0; run more trials"),
        (trials(1), "laws need 10 configs that were trained to their end, and have 1; run more trials"),
        (trials(1) * 20, "laws need 10 configs that were trained to their end, and have 1; run more trials"),
        (
            [dataclasses.replace(o, cost_seconds=5.0) for o in trials(20)],
            "laws need trials of different cost: the most expensive took 5 s, less than 3 times the cheapest (5 s);"
            " widen the range of steps",
        ),
    ],
)
def test_too_few_trials_or_costs_are_one_line(observations: list[Observation], message: str) -> None:
    with pytest.raises(UsageError) as error:
        fit_laws(SPACE, observations)
    assert str(error.value) == message


def test_a_space_without_a_usable_cost_parameter_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"^laws need a cost parameter above 0, and the space has no cost parameter; "):
        fit_laws(Space(SPACE.parameters), trials())
    space = Space([Float("rate", 0.1, 1.0), Integer("epochs", 0, 5)], cost_parameter="epochs")
    with pytest.raises(UsageError, match=r"the space has a cost parameter, epochs, that may be 0 or less; "):
        fit_laws(space, [])


def test_a_cost_outside_of_the_laws_is_one_line(laws: Laws) -> None:
    with pytest.raises(UsageError, match=r"^a cost of 0.001 s is below [\d.]+ s, where the laws begin; ask for that "):
        laws.plan(1e-3)
    with pytest.raises(UsageError, match=r"^a cost must be a number of seconds, got nan$"):
        laws.plan(math.nan)
    with pytest.raises(UsageError, match=r"^a cost must be a number, got str '8h'$"):
        laws.plan("8h")  # type: ignore[arg-type]


def test_two_trials_of_equal_score_have_laws_that_tell_nothing() -> None:
    flat = [dataclasses.replace(o, score=1.0) for o in trials(20)]
    found = fit_laws(SPACE, flat)
    assert not any(law.known for law in found.laws[:4])
    assert found.plan(1000.0).params["steps"] == pytest.approx(1e7, rel=0.1)


@pytest.mark.parametrize("legs", [False, True])
def test_drawn_functions_have_the_mean_and_the_spread_of_the_posterior(
    monkeypatch: pytest.MonkeyPatch, legs: bool
) -> None:
    monkeypatch.setattr(front_model, "_TEMPER", 1.0)
    monkeypatch.setattr(gp, "_NUM_FEATURES", 4096)
    history = [observed(o.params, 0.1 * i) for i, o in enumerate(trials(12))]
    model = FrontModel.fit(SPACE, History.of(SPACE, in_pairs(history) if legs else history, []))
    model = with_luck(model) if legs else model
    places = SPACE.sample(20, np.random.default_rng(1))
    drawn = model.draws(4000, np.random.default_rng(2))(places)
    moved = front_model._moved(places, model.slopes, 4)
    mean, sd = model.score.predict(moved)
    assert np.allclose(drawn.mean(axis=1), mean, atol=0.08)
    assert np.allclose(drawn.std(axis=1), sd, rtol=0.15, atol=0.02)


@pytest.mark.parametrize("legs", [False, True])
def test_the_slopes_are_at_the_mode_of_their_posterior(legs: bool) -> None:
    """The posterior of the slopes at held hyperparameters, by the process's own density: no step makes it likelier."""
    data = History.of(SPACE, in_pairs(trials(40)) if legs else trials(40), [])
    model = with_luck(FrontModel.fit(SPACE, data)) if legs else FrontModel.fit(SPACE, data)
    assert len(set(front_model._mode(model.score).runs)) == (20 if legs else 40)
    low, high = model.log_cost_range
    free, sd = np.array([0, 1, 2]), front_model.SLOPE_SD * (high - low) / math.log(10.0)
    mode, covariance = front_model._slope_posterior(model.score, model.places, model.slopes, free, 4, sd)

    def log_density(slopes: Array) -> float:
        process, all_slopes = front_model._mode(model.score), np.zeros(5)
        all_slopes[free] = slopes
        x = process.x.copy()
        x[:, :3] = front_model._moved(model.places, all_slopes, 4)[:, :3]
        again = conditioned(x, process.y, process.runs, process.kernel, process.noise, process.run_variance)
        return again.log_density() - 0.5 * float(slopes @ slopes) / sd**2

    at_mode = log_density(mode)
    for step in np.eye(3):
        for sign in (-1.0, 1.0):
            length = math.sqrt(covariance[0, 0])
            assert log_density(mode + sign * 0.3 * length * step) < at_mode
    assert np.all(np.linalg.eigvalsh(covariance) > 0.0)


def test_legs_count_with_the_cost_of_their_whole_runs(laws: Laws) -> None:
    """Each of these trials has gone on with a run, for .05 s of its own; what it shows is that of the whole run."""
    legs = [dataclasses.replace(o, cost_seconds=0.05, continued_seconds=o.cost_seconds - 0.05) for o in trials()]
    found = fit_laws(SPACE, legs)
    assert [law.name for law in found.laws] == [law.name for law in laws.laws]
    assert found.largest_seconds == pytest.approx(laws.largest_seconds)
    exponents = [law.exponent.value for law in found.laws if law.exponent is not None]
    assert exponents == pytest.approx([law.exponent.value for law in laws.laws if law.exponent is not None], abs=1e-3)


def test_a_parameter_that_the_best_config_has_not_has_no_best_value_and_no_place_in_a_plan() -> None:
    found = fit_laws(CONDITIONAL, CONDITIONAL_TRIALS)
    for seconds in (found.largest_seconds, 10.0 * found.largest_seconds):
        values = found.values(seconds)
        assert values["depth"].is_absent and not values["depth"].known and values["model"].shares["svc"] > 0.9
        assert not values["C"].is_absent and values["C"].known
        plan = found.plan(seconds)
        assert "depth" not in plan.params and "C" in plan.params
        assert "depth" not in (*plan.held, *plan.constrained)
