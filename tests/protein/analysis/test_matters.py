"""What matters: shares against closed forms, a slow reference and planted functions; conditions, constraints, costs."""

import dataclasses
import functools
import json
import math

import numpy as np
import pytest
from conditional_sweeps import CONDITIONAL
from conditional_sweeps import TRIALS as CONDITIONAL_TRIALS
from planted_sweeps import Array, searched

from protein.analysis import matters as module
from protein.analysis.matters import matters
from protein.analysis.model_maps import SweepModel
from protein.engine.results import Matter, Matters, Share
from protein.errors import UsageError
from protein.space import Categorical, Float, Integer, Space
from protein.types import Observation, TrialState

CUBE = Space([Float("much", 0.0, 1.0), Float("less", 0.0, 1.0), Float("nothing", 0.0, 1.0)])


def by_name(found: Matters) -> dict[str, Matter]:
    assert not found.problem
    return {one.name: one for one in found.parameters}


@functools.cache
def additive() -> SweepModel:
    return SweepModel.fit(CUBE, searched(CUBE, lambda x: 4.0 * x[0] + 2.0 * x[1], num_trials=60, seed=0, noise=0.05))


def test_of_an_additive_function_every_share_is_the_closed_form() -> None:
    found = by_name(matters(additive()))
    for name, share in (("much", 0.8), ("less", 0.2), ("nothing", 0.0)):
        one = found[name]
        for estimate in (one.share, one.whole, one.alone):
            assert estimate.value == pytest.approx(share, abs=0.05) and estimate.low <= estimate.value <= estimate.high
    assert [one.verdict for one in found.values()] == ["matters", "matters", "hardly"]
    assert sum(one.share.value for one in found.values()) == pytest.approx(1.0)
    assert found["much"].best is not None and found["much"].best[0] > 0.9 and found["nothing"].best is None
    assert not matters(additive()).pairs


def test_shares_over_the_whole_space_are_the_sobol_indices_of_the_drawn_functions() -> None:
    """Against plain Monte Carlo over the same draws, of a function with strong interactions."""

    def ishigami(x: Array) -> float:
        a, b, c = (x - 0.5) * 2.0 * math.pi
        return float(math.sin(a) + 7.0 * math.sin(b) ** 2 + 0.1 * c**4 * math.sin(a))

    model = SweepModel.fit(CUBE, searched(CUBE, ishigami, num_trials=60, seed=1, noise=0.05))
    found = matters(model)
    draw = model.score.draws(module._NUM_DRAWS, np.random.default_rng(module._SEED))
    first, second = np.random.default_rng(0).random((2, 1500, 3))
    f, other = draw(first), draw(second)
    variance = np.var(np.concatenate([f, other]), axis=0)
    for i, name in enumerate(CUBE.names):
        mixed = first.copy()
        mixed[:, i] = second[:, i]
        f_mixed = draw(mixed)
        total = np.mean((f - f_mixed) ** 2, axis=0) / (2.0 * variance)
        alone = 1.0 - np.mean((other - f_mixed) ** 2, axis=0) / (2.0 * variance)
        one = by_name(found)[name]
        assert one.whole.value == pytest.approx(float(np.mean(total)), abs=0.05)
        assert one.alone.value == pytest.approx(float(np.mean(alone)), abs=0.05)
        assert one.whole.low == pytest.approx(float(np.quantile(total, 0.1)), abs=0.07)
        assert one.whole.high == pytest.approx(float(np.quantile(total, 0.9)), abs=0.07)


def test_where_parameters_act_together_the_pair_is_named() -> None:
    trials = searched(CUBE, lambda x: -9.0 * (x[0] - x[1]) ** 2 + x[2], num_trials=80, seed=2, noise=0.02)
    found = matters(SweepModel.fit(CUBE, trials))
    assert found.pairs[0].names == ("much", "less") and found.pairs[0].share.verdict == "matters"
    parameters = by_name(found)
    assert parameters["much"].alone.high < parameters["much"].whole.low


def test_the_share_is_near_the_best_configs_where_another_effect_is_only_far_from_them() -> None:
    """Where `much` is low, nothing learns, and `less` makes a large difference; near the best it makes none."""
    trials = searched(
        CUBE, lambda x: 4.0 * x[0] + 3.0 * max(0.5 - x[0], 0.0) * x[1] + 0.8 * x[2], num_trials=100, seed=3, noise=0.02
    )
    found = by_name(matters(SweepModel.fit(CUBE, trials)))
    assert found["nothing"].share.value > 2.0 * found["less"].share.value


def test_few_trials_leave_doubt_and_more_take_it_away() -> None:
    trials = searched(CUBE, lambda x: 3.0 * x[0] + 1.5 * x[1], num_trials=80, seed=4, noise=0.3)
    few, many = (by_name(matters(SweepModel.fit(CUBE, trials[:n]))) for n in (10, 80))
    widths = [[one.share.high - one.share.low for one in found.values()] for found in (few, many)]
    assert np.mean(widths[1]) < 0.5 * np.mean(widths[0])
    assert few["nothing"].verdict == "maybe" and many["nothing"].verdict == "hardly"


def test_conditional_parameters_have_the_share_where_they_are_active_and_steps_are_apart() -> None:
    model = SweepModel.fit(CONDITIONAL, CONDITIONAL_TRIALS)
    found = by_name(matters(model))
    order = [(("matters", "maybe", "hardly").index(one.verdict), -one.share.value) for one in found.values()]
    assert order == sorted(order) and found["steps"].is_cost and found["steps"].verdict == "matters"
    assert not found["depth"].active and found["depth"].share.value > 0.05  # the best configs are no trees
    assert sum(one.share.value for one in found.values() if one.active and not one.is_cost) == pytest.approx(1.0)
    assert found["model"].choices[0][0] == "svc"
    cost = matters(model, "cost").parameters
    assert cost[0].name == "steps" and cost[0].share.low > 0.9 and not cost[0].is_cost
    assert all(one.verdict == "hardly" and one.best is None and not one.choices for one in cost[1:])


def test_all_kinds_of_parameters_and_constraints() -> None:
    space = Space(
        [
            Integer("a", 1, 512, scale="pow2"),
            Integer("b", 1, 512, scale="pow2"),
            Float("c", 0.0, 1.0, step=0.25),
            Categorical("d", (None, "x", True)),
            Float("left", 0.0, 1.0),
            Float("right", 0.0, 1.0),
        ],
        constraints=["a <= b", "left + right == 1"],
    )
    x = space.sample(40, np.random.default_rng(0))
    params = space.from_unit_many(x)
    trials = [
        Observation(
            params=one,
            state=TrialState.COMPLETE,
            score=float(at[1] - 3.0 * (at[4] - 0.3) ** 2),
            cost_seconds=1,
            number=i,
        )
        for i, (one, at) in enumerate(zip(params, x, strict=True))
    ]
    found = matters(SweepModel.fit(space, trials))
    parameters = by_name(found)
    for name in ("b", "left", "right"):  # the last two cannot move alone
        assert parameters[name].verdict == "matters", name
    assert parameters["c"].verdict == parameters["d"].verdict == "hardly"
    assert isinstance(parameters["b"].best, tuple) and all(isinstance(one, int) for one in parameters["b"].best)
    assert Matters.read(json.loads(json.dumps(dataclasses.asdict(found)))) == found
    assert matters(SweepModel.fit(space, trials)) == found  # a function of the trials alone


def test_says_why_there_is_no_answer() -> None:
    trials = searched(CUBE, lambda x: x[0], num_trials=12, seed=5)
    few = matters(SweepModel.fit(CUBE, trials[:9]))
    assert few.problem == "needs 10 trials with a score, and has 9; run more" and not few.parameters
    same = matters(SweepModel.fit(CUBE, [dataclasses.replace(one, score=2.0) for one in trials]))
    assert same.problem == "all 12 trials have the same score"
    with pytest.raises(UsageError, match="score or cost, got 'time'"):
        matters(SweepModel.fit(CUBE, trials), "time")  # type: ignore[arg-type]


def test_of_what_no_trial_has_tried_nothing_is_claimed() -> None:
    space = Space([Categorical("kind", ("a", "b")), Float("own", 0.0, 1.0, when="kind == 'b'"), Float("x", 0.0, 1.0)])
    trials = [
        dataclasses.replace(one, params={"kind": "a", "x": one.params["x"]})
        for one in searched(space, lambda x: 3.0 * x[2], num_trials=20, seed=6, noise=0.05)
    ]
    found = by_name(matters(SweepModel.fit(space, trials)))
    assert found["kind"].verdict == found["own"].verdict == "maybe" and found["x"].share.value > 0.05
    same = [dataclasses.replace(one, params=trials[0].params) for one in trials]
    assert {one.verdict for one in matters(SweepModel.fit(space, same)).parameters} == {"maybe"}


def test_the_rule_and_the_words() -> None:
    assert Share(value=0.43, low=0.3, high=0.55).text() == "43 % [30, 55]"
    ends = ((0.046, 0.9, "matters"), (0.044, 0.046, "maybe"), (0.0, 0.044, "hardly"))
    assert [Share(value=low, low=low, high=high).verdict for low, high, _ in ends] == [word for *_, word in ends]
