"""Beliefs: drawn, weighed, tested against results; and what the engine does with right and wrong ones."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import truncnorm

from protein.engine.beliefs import Beliefs
from protein.engine.gp import Array, GaussianProcess
from protein.engine.history import History
from protein.engine.score_model import ScoreModel
from protein.engine.settings import EngineSettings
from protein.space import Categorical, Float, Integer, Parameter, Space
from protein.space.parameters import unit_belief
from protein.sweep.methods import make_designer
from protein.types import Budget, Observation, Params, Suggestion, TrialState

SETTINGS = EngineSettings()


def space(lr: tuple[float, float] | None, opt: tuple[str, float] | None = None) -> Space:
    return Space(
        [
            Float("lr", 1e-5, 1e-1, "log", belief=lr),
            Float("clip", 0.05, 0.4),
            Categorical("opt", ("adam", "sgd", "lion"), belief=opt),
        ]
    )


def beliefs(of: Space) -> Beliefs:
    found = Beliefs.of(of, SETTINGS.belief_doubt)
    assert found is not None
    return found


def test_draws_are_those_of_the_truncated_normal_and_of_the_choices() -> None:
    believed = space((1e-4, 3.0), ("sgd", 0.7))
    q = (np.arange(2000) + 0.5) / 2000
    drawn = beliefs(believed).drawn(np.column_stack([q, q, q]))
    lr = believed.parameters[0]
    assert isinstance(lr, Float) and lr.belief is not None
    center, sd = unit_belief(lr, lr.belief)
    expected = truncnorm.ppf(q, -center / sd, (1.0 - center) / sd, loc=center, scale=sd)
    assert np.allclose(drawn[:, 0], expected, atol=1e-6)
    assert np.allclose(drawn[:, 1], q, atol=1e-6), "without a belief nothing is drawn"
    names = [params["opt"] for params in believed.from_unit_many(drawn)]
    assert [names.count(name) / 2000 for name in ("adam", "sgd", "lion")] == pytest.approx([0.15, 0.7, 0.15], abs=1e-3)


PARAMETERS = st.one_of(
    st.builds(
        lambda x, s: Float("a", 1e-5, 1e-1, "log", belief=(float(10.0 ** (4.0 * x - 5.0)), 1.0 + s)),
        st.floats(0.0, 1.0),
        st.floats(1e-9, 1e9),
    ),
    st.builds(
        lambda x, s: Float("a", -2.0, 5.0, belief=(7.0 * x - 2.0, s)), st.floats(0.0, 1.0), st.floats(1e-9, 1e300)
    ),
    st.builds(
        lambda x, s: Float("a", 0.5, 0.999, "logit", belief=(0.5 + 0.499 * x, s)),
        st.floats(0.0, 1.0),
        st.floats(1e-9, 1e9),
    ),
    st.builds(lambda n, s: Integer("a", 1, 9, belief=(n, s)), st.integers(1, 9), st.floats(1e-9, 1e9)),
    st.builds(
        lambda n, s: Float("a", 0.0, 0.5, step=0.05, belief=(round(0.05 * n, 2), s)),
        st.integers(0, 10),
        st.floats(1e-9, 1e9),
    ),
    st.builds(lambda n, s: Integer("a", 1, 999, "log", belief=(n, s)), st.integers(1, 999), st.floats(1.001, 1e9)),
    st.builds(lambda n, s: Integer("a", 2, 64, "pow2", belief=(2**n, s)), st.integers(1, 6), st.floats(1.001, 1e9)),
    st.builds(
        lambda n, p: Categorical("a", ("x", True, 1), belief=(("x", True, 1)[n], p)),
        st.integers(0, 2),
        st.floats(0.34, 0.9999),
    ),
)


@given(PARAMETERS, st.booleans(), st.integers(0, 99))
@example(Float("a", 1e-5, 1e-1, "log", belief=(1e-1, 1.0 + 1e-15)), True, 0)
@settings(max_examples=100, deadline=None)
def test_any_belief_is_drawn_and_weighed(parameter: Parameter, constrained: bool, seed: int) -> None:
    believed = Space([parameter, Float("b", 0.0, 1.0)], constraints=["b > 0.3"] if constrained else [])
    rng, found = np.random.default_rng(seed), beliefs(believed)
    x = believed.sample(20, rng)
    drawn = found.drawn(x)
    assert np.array_equal(believed.canonical(drawn), drawn), "points of the space"
    weight = found.log_weight(np.concatenate([x, drawn]))
    assert np.all((math.log(0.1) - 1e-9 <= weight) & (weight <= 1e-9)), "at most 1 / w less worth"
    center = x[:1].copy()
    center[0, 0] = found.center[0]
    assert found.log_weight(center)[0] == pytest.approx(0.0, abs=1e-6)
    doubted = dataclasses.replace(found, held={0: 0.4}).log_weight(np.concatenate([x, drawn]))
    assert np.all((weight - 1e-9 <= doubted) & (math.log(0.4) - 1e-9 <= doubted)), "what is in doubt sways less"


def log_odds(believed: Space, x: Array, scores: Array) -> list[float]:
    return [float(one) for one in beliefs(believed).log_odds(ScoreModel.fit(believed, x, scores), x)]


def test_the_odds_are_those_that_functions_drawn_from_the_model_show() -> None:
    believed = space((1e-4, 3.0))
    x = believed.sample(6, np.random.default_rng(3))
    score = ScoreModel.fit(believed, x, np.random.default_rng(4).standard_normal(6))
    process = score.process
    assert isinstance(process, GaussianProcess)
    places = np.random.default_rng(5).random((8, process.x.shape[1]))
    weights = np.array([1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0]) / 4.0
    cross = process.kernel(places, process.x)
    inverse = np.linalg.inv(process.chol @ process.chol.T)
    covariance = process.kernel(places, places) - cross @ inverse @ cross.T
    expected = weights @ cross @ inverse @ process.y, math.sqrt(weights @ covariance @ weights)
    assert process.contrast(places, weights) == pytest.approx(expected, rel=1e-6)


def test_equal_scores_say_nothing_and_no_result_is_too_clear() -> None:
    believed = space((1e-4, 3.0), ("lion", 0.8))
    x = believed.sample(30, np.random.default_rng(0))
    assert log_odds(believed, x, np.zeros(30)) == pytest.approx([0.0, 0.0])
    extreme = log_odds(believed, x, np.where(x[:, 0] > 0.5, 1e9, -1e9))
    assert extreme[0] < -3.0 and np.isfinite(extreme).all()


def landscape(x: Array) -> Array:
    """Highest at lr = 1e-4, and with sgd."""
    return np.asarray(-8.0 * (x[:, 0] - 0.25) ** 2 + 0.5 * (np.abs(x[:, 2] - 0.5) < 0.1))


@pytest.mark.parametrize(
    ("lr", "opt", "dropped"),
    [
        ((1e-4, 3.0), ("sgd", 0.8), []),
        ((3e-2, 2.0), ("sgd", 0.8), ["lr"]),
        ((1e-4, 3.0), ("lion", 0.95), ["opt"]),
    ],
)
def test_results_contradict_a_wrong_belief_and_no_right_one(
    lr: tuple[float, float], opt: tuple[str, float], dropped: list[str]
) -> None:
    believed = space(lr, opt)
    x = believed.sample(40, np.random.default_rng(1))
    data = History.of(believed, [observed(believed, params) for params in believed.from_unit_many(x)], [])
    score = ScoreModel.fit(believed, data.x_scored, data.scores)
    tested = beliefs(believed).tested(score, data.x_scored, SETTINGS)
    assert tested.dropped == dropped


def observed(believed: Space, params: Params) -> Observation:
    score = float(landscape(believed.to_unit_many([params]))[0])
    return Observation(params=params, state=TrialState.COMPLETE, score=score, cost_seconds=1.0)


def play(believed: Space, num_trials: int, start: Params | None = None) -> list[Suggestion]:
    quick = EngineSettings(num_uniform=60, num_local=60, num_refinements=4, num_rungs=4, num_believed=40)
    designer, history, found = (
        make_designer("protein", believed, start, settings=quick),
        list[Observation](),
        list[Suggestion](),
    )
    for number in range(num_trials):
        suggestion = designer.suggest(history, [], Budget(), number)
        assert suggestion is not None
        again = designer.suggest(history[::-1], [], Budget(), number)
        assert again == suggestion, "a function of the history, in whatever order"
        found.append(suggestion)
        history.append(observed(believed, suggestion.params))
    return found


def test_a_belief_is_where_the_sweep_begins_and_where_half_of_its_design_lies() -> None:
    believed = space((2e-3, 1.3), ("lion", 0.9))
    first, *design = play(believed, 9)
    assert (first.params["lr"], first.params["opt"]) == (2e-3, "lion")
    near = [abs(math.log(float(one.params["lr"]) / 2e-3)) < 3.0 * math.log(1.3) for one in design]
    assert 3 <= sum(near) <= 6
    given_start: Params = {"lr": 1e-2, "clip": 0.1, "opt": "adam"}
    assert play(believed, 1, given_start)[0].params == given_start, "an initial config is more than a belief"


def test_a_wrong_belief_is_followed_at_first_and_then_said_to_be_contradicted() -> None:
    found = play(space((5e-2, 1.3)), 20)
    assert found[0].params["lr"] == 5e-2
    contradicted = ["(results contradict the belief about lr)" in one.origin for one in found]
    assert not any(contradicted[:9]) and any(contradicted[9:]), "the design has no model yet"
    assert not any("near what is believed" in one.origin for one in found[12:])
    scores = [observed(space(None), one.params).score or 0.0 for one in found]
    assert max(scores) > 0.4, "of 0.5 at best, and -4 at the belief"


def test_a_right_belief_sways_the_choice_in_every_second_suggestion() -> None:
    found = play(space((2e-4, 1.3)), 17)
    swayed = ["near what is believed" in one.origin for one in found]
    assert any(swayed[10::2]) and not any(swayed[1::2])


def test_what_does_not_exist_is_not_drawn_weighed_or_tested() -> None:
    believed = Space(
        [
            Categorical("model", ("svc", "forest"), belief=("svc", 0.9)),
            Float("C", 1e-3, 1e3, "log", belief=(10.0, 3.0), when="model == 'svc'"),
        ]
    )
    found, rng = beliefs(believed), np.random.default_rng(0)
    points = believed.from_unit_many(found.drawn(rng.random((400, 2))))
    assert all(("C" in point) == (point["model"] == "svc") for point in points)
    assert 0.85 < sum(point["model"] == "svc" for point in points) / 400 < 0.95
    points = [{"model": "svc", "C": 10.0}, {"model": "svc", "C": 1e-3}, {"model": "forest"}]
    weight = found.log_weight(believed.to_unit_many(points))
    assert weight[0] == pytest.approx(0.0, abs=1e-6) and weight[1] == pytest.approx(0.5 * math.log(0.1), abs=1e-3)
    assert weight[2] == pytest.approx(0.5 * math.log(0.2)), "of the model alone: 0.9 * 0.1 / 0.9 + 0.1"
    x = believed.to_unit_many([{"model": "forest"}, {"model": "forest"}])
    assert log_odds(believed, x, np.array([0.0, 1.0]))[1] == 0.0
    designer, history = make_designer("protein", believed, None), list[Observation]()
    for number in range(12):
        suggestion = designer.suggest(history, [], Budget(), number)
        assert suggestion is not None
        history.append(
            Observation(params=suggestion.params, state=TrialState.COMPLETE, score=float(number), cost_seconds=1.0)
        )
    assert all(believed.is_valid(one.params) for one in history)


def test_a_space_of_few_points_may_have_beliefs() -> None:
    believed = Space([Integer("a", 1, 8, belief=(7, 1.0)), Categorical("b", (True, False), belief=(False, 0.8))])
    designer, history = make_designer("protein", believed, None), list[Observation]()
    for number in range(16):
        suggestion = designer.suggest(history, [], Budget(), number)
        assert suggestion is not None
        score = float(suggestion.params["a"]) if suggestion.params["b"] else -1.0
        history.append(Observation(params=suggestion.params, state=TrialState.COMPLETE, score=score, cost_seconds=1.0))
    assert history[0].params == {"a": 7, "b": False}
    assert len({believed.key(one.params) for one in history}) == 16
    assert designer.suggest(history, [], Budget(), 16) is None


def test_a_belief_about_the_cost_parameter_is_never_tested() -> None:
    steps = Integer("steps", 10, 1000, "log", belief=(10, 1.5))
    believed = Space([steps, Float("a", 0.0, 1.0)], cost_parameter="steps")
    x = believed.sample(20, np.random.default_rng(0))
    assert log_odds(believed, x, 5.0 * x[:, 0]) == [0.0]
    assert log_odds(Space(believed.parameters), x, 5.0 * x[:, 0])[0] < -1.0
