"""Optuna's samplers as designers: they must be Optuna's own, and see what really happened."""

import dataclasses
import importlib.util
import math

import numpy as np
import optuna
import pytest

from protein import Protein
from protein.errors import UsageError
from protein.space import Categorical, Float, Integer, Space
from protein.sweep.methods import make_designer
from protein.types import Budget, Observation, Params, Suggestion, SuggestionKind, TrialEnd, TrialState

MIXED = Space(
    [
        Float("lr", 1e-5, 1e-1, scale="log"),
        Float("gamma", 0.9, 0.9999, scale="logit"),
        Float("width", 0.25, 16.0, scale="pow2"),
        Float("whole", 0, 10),
        Integer("steps", 1000, 1_000_000, scale="log"),
        Integer("layers", 1, 4),
        Integer("batch", 64, 4096, scale="pow2"),
        Categorical("opt", ("adam", "muon", True, 1)),
    ],
    cost_parameter="steps",
    constraints=["batch * layers <= 8192"],
)
FLOATS = Space([Float(f"x{i}", -3.0, 5.0) for i in range(4)])
OPTIMUM = 3.0  # of every x, far from the middle of the range


def done(params: Params, score: float, seconds: float = 1.0) -> Observation:
    return Observation(params=params, state=TrialState.COMPLETE, score=score, cost_seconds=seconds)


def near_optimum(params: Params) -> float:
    return -sum((float(value) - OPTIMUM) ** 2 for value in params.values())


def suggest(
    method: str, space: Space, history: list[Observation], seed: int = 0, remaining: float | None = None
) -> Suggestion:
    designer = make_designer(method, space, None)
    suggestion = designer.suggest(history, [], Budget(remaining_seconds=remaining), seed)
    assert suggestion is not None
    return suggestion


def test_tpe_proposes_what_optuna_would() -> None:
    """The same trials in a study of Optuna's own, over the same unit coordinates, give the same next point."""
    points = FLOATS.canonical(np.random.default_rng(0).random((40, 4)))
    history = [done(params, near_optimum(params)) for params in FLOATS.from_unit_many(points)]
    history[7] = Observation(
        params=history[7].params, state=TrialState.FAILED, score=None, cost_seconds=1.0, reason="x"
    )
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=5))
    distributions: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.FloatDistribution(0.0, 1.0) for name in FLOATS.names
    }
    for x, observation in zip(points, history, strict=True):
        state = optuna.trial.TrialState.FAIL if observation.score is None else optuna.trial.TrialState.COMPLETE
        params = dict(zip(FLOATS.names, x.tolist(), strict=True))
        study.add_trial(
            optuna.create_trial(state=state, params=params, distributions=distributions, value=observation.score)
        )
    wanted = study.ask(distributions).params
    found = suggest("optuna:tpe", FLOATS, history, seed=5)
    assert found.predicted_cost_seconds is not None and math.isclose(found.predicted_cost_seconds.value, 1.0)
    assert dataclasses.replace(found, predicted_cost_seconds=None) == Suggestion(
        params=FLOATS.from_unit([wanted[name] for name in FLOATS.names]),
        kind=SuggestionKind.SEARCH,
        origin="optuna tpe",
    )


@pytest.mark.parametrize(("method", "num_trials"), [("optuna:cmaes", 50), ("optuna:nsga2", 80)])
def test_samplers_that_keep_a_state_get_it_back(method: str, num_trials: int) -> None:
    """Without it, CMA-ES would always search around the middle, and NSGA-II would draw at random."""
    history: list[Observation] = []
    for number in range(num_trials):
        params = suggest(method, FLOATS, history, seed=number).params
        history.append(done(params, near_optimum(params)))
    first, last = (np.mean([o.score for o in part]) for part in (history[:16], history[-16:]))
    assert last > 0.6 * first  # squared distances; random points stay within a fifth of the first


def test_a_continued_trial_costs_what_its_whole_run_did() -> None:
    from protein.optuna.designer import OptunaDesigner

    params: Params = {f"x{i}": 0.5 for i in range(4)}
    first = dataclasses.replace(done(params, 1.0, seconds=2.0), number=0)
    leg = dataclasses.replace(
        done({**params, "x0": 0.6}, 2.0, seconds=3.0), number=1, continues=0, continued_seconds=2.0
    )
    study = OptunaDesigner("nsga2", FLOATS, None)._study([first, leg], [], 0)
    assert [trial.values for trial in study.trials] == [[1.0, math.log(2.0)], [2.0, math.log(5.0)]]


def test_every_sampler_serves_a_mixed_space_and_says_which_it_is() -> None:
    for sampler in ("gp", "nsga2", "random"):
        history: list[Observation] = []
        for number in range(13):
            suggestion = suggest(f"optuna:{sampler}", MIXED, history, seed=number)
            MIXED.validate(suggestion.params)
            assert suggestion.origin.startswith(f"optuna {sampler}")
            history.append(done(suggestion.params, float(suggestion.params["lr"]), number + 1.0))


@pytest.mark.parametrize("method", ["tpe", "gp", "random", "nsga2", "cmaes"])
def test_every_sampler_serves_a_conditional_space(method: str) -> None:
    space = Space(
        [
            Categorical("model", ("a", "b")),
            Float("depth", 0.0, 1.0, when="model == 'a'"),
            Categorical("kernel", ("p", "q"), when="model == 'b'"),
            Float("y", 0.0, 1.0, when="kernel == 'q'"),
        ]
    )
    history: list[Observation] = []
    for number in range(20):
        suggestion = suggest(f"optuna:{method}", space, history, seed=number)
        space.validate(suggestion.params)
        score = 1.0 - abs(float(suggestion.params.get("y", 0.0)) - 0.6)
        history.append(dataclasses.replace(done(suggestion.params, score), number=number))
    assert len({space.key(one.params) for one in history}) == 20
    assert {len(one.params) for one in history} == {2, 3}


def test_params_come_back_from_optunas_values() -> None:
    from protein.optuna.designer import OptunaDesigner

    axes = OptunaDesigner("tpe", MIXED, None)._axes
    for x in MIXED.sample(200, np.random.default_rng(0)):
        back = [axis.unit(axis.value(x_i)) for axis, x_i in zip(axes, x.tolist(), strict=True)]
        assert MIXED.from_unit(back) == MIXED.from_unit(x)
        for axis, x_i in zip(axes, x.tolist(), strict=True):
            assert axis.distribution._contains(axis.distribution.to_internal_repr(axis.value(x_i)))


def test_a_proposal_that_the_budget_cannot_pay_gives_way_to_the_nearest_that_it_can() -> None:
    points = MIXED.from_unit_many(MIXED.sample(30, np.random.default_rng(1)))
    history = [done(params, float(params["steps"]), float(params["steps"]) / 1000) for params in points]
    suggestion = suggest("optuna:tpe", MIXED, history, remaining=2.0)  # long trials score best; 1 s is the cheapest
    assert suggestion.origin == "optuna tpe, nearest new point that fits"
    assert float(suggestion.params["steps"]) <= 2600


def test_ask_and_tell_takes_the_method() -> None:
    engine = Protein(FLOATS, method="optuna:tpe", direction="minimize")
    for _ in range(40):
        suggestion = engine.suggest()
        assert suggestion is not None
        engine.observe(suggestion.params, score=-near_optimum(suggestion.params), cost_seconds=1.0)
    scores = [observation.score or 0.0 for observation in engine.observations]
    assert np.mean(scores[-10:]) < 0.5 * np.mean(scores[:10])


def test_what_cannot_be_had_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="unknown method 'optuna:tpa'; did you mean 'optuna:tpe'"):
        make_designer("optuna:tpa", FLOATS, None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"needs optuna, which is not installed; run pip install 'protein-sweep\["):
        make_designer("optuna:tpe", FLOATS, None)


def test_an_interrupted_initial_config_comes_again_only_if_it_fits() -> None:
    start = MIXED.default()
    cut = Observation(params=start, state=TrialState.FAILED, score=None, cost_seconds=1.0, end=TrialEnd.INTERRUPTED)
    designer = make_designer("optuna:tpe", MIXED, start)
    history = [done({**start, "lr": 1e-2}, 1.0, 30.0), cut]
    for seconds, comes in ((60.0, True), (15.0, False)):
        found = designer.suggest(history, [], Budget(remaining_seconds=seconds), 0)
        assert found is not None and (found.params == start) is comes
