"""Ask and tell: what is told of a trial, and what cannot be."""

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
from ask_session import make_space, play, train

from protein import Categorical, Float, Integer, Observation, Protein, Space
from protein.errors import SpaceError, UsageError
from protein.types import Params, TrialEnd


def test_the_observations_are_all_that_is_needed_to_go_on() -> None:
    whole = Protein(make_space(), seed=1, budget_seconds=1000.0)
    play(whole, 12)
    again = Protein(make_space(), seed=1, budget_seconds=1000.0, observations=whole.observations)
    assert whole.suggest() == again.suggest()


def test_observations_may_be_kept_as_json() -> None:
    whole = Protein(make_space(), seed=1, budget_seconds=1000.0)
    for suggestion in (whole.suggest() for _ in range(12)):
        assert suggestion is not None
        score, seconds = train(suggestion.params)
        steps = int(suggestion.params["steps"])
        curve = [(steps // 2, seconds / 2, score / 2), (steps, seconds, score)]
        whole.observe(suggestion.params, score=score, cost_seconds=seconds, curve=curve)
    kept = json.dumps([dataclasses.asdict(observation) for observation in whole.observations])
    read = [Observation(**fields) for fields in json.loads(kept)]
    again = Protein(make_space(), seed=1, budget_seconds=1000.0, observations=read)
    assert again.observations == whole.observations and again.best() == whole.best() is not None
    assert again.suggest() == whole.suggest()
    fields = {**json.loads(kept)[0], "state": "done"}
    with pytest.raises(ValueError, match="'done' is not a valid TrialState"):
        Observation(**fields)


def test_an_interrupted_trial_says_nothing_about_its_params() -> None:
    engine = Protein(make_space(), seed=0)
    first = engine.suggest()
    assert first is not None
    engine.observe(first.params, failed="interrupted", cost_seconds=3.0)
    again = engine.suggest()
    assert again is not None and again.params == first.params and engine.spent_seconds == 3.0


@pytest.mark.parametrize(
    ("told", "end"),
    [
        ({"failed": "diverged"}, TrialEnd.DIVERGED),
        ({"failed": "interrupted"}, TrialEnd.INTERRUPTED),
        ({"failed": "out_of_memory"}, TrialEnd.OUT_OF_MEMORY),
        ({"failed": "loss was nan"}, TrialEnd.FAILED),
        ({"failed": "complete"}, TrialEnd.FAILED),  # the name of an end that is no failure
        ({"stopped": "interrupted"}, TrialEnd.STOPPED_EARLY),
        ({"score": 1.0, "stopped": "last of 10"}, TrialEnd.STOPPED_EARLY),
        ({"score": 1.0}, TrialEnd.COMPLETE),
    ],
)
def test_how_a_trial_ended_is_kept_as_data(told: dict[str, Any], end: TrialEnd) -> None:
    engine = Protein(make_space(), seed=0)
    engine.observe(make_space().default(), cost_seconds=1.0, **told)
    (observation,) = engine.observations
    assert (observation.end, observation.state) == (end, end.state)
    kept = Observation(**json.loads(json.dumps(dataclasses.asdict(observation))))
    assert kept == observation and isinstance(kept.end, TrialEnd)


def test_training_code_may_change_the_params_that_it_was_given() -> None:
    own: Params = {"lr": 3e-4, "gamma": 0.99, "steps": 1_000_000, "opt": "adam"}
    engine = Protein(make_space(), seed=0, start=own)
    first = engine.suggest()
    assert first is not None
    assert isinstance(first.params, dict)
    first.params.pop("lr")
    assert engine.pending[0].params == own
    assert engine.suggest() is not None
    engine.observe(own, score=1.0, cost_seconds=1.0)
    assert len(engine.pending) == 1


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"cost_seconds": 1.0}, "either a score or a reason"),
        ({"cost_seconds": 1.0, "score": 1.0, "failed": "diverged"}, "either a score or a reason"),
        ({"cost_seconds": 1.0, "failed": "diverged", "stopped": "worse than others"}, "either failed or was stopped"),
        ({"cost_seconds": 1.0, "score": math.nan}, "score must be finite.*failed="),
        ({"cost_seconds": 1.0, "score": 1e301}, r"score must be finite and within 1e\+300, got 1e\+301; .*failed="),
        ({"cost_seconds": -1.0, "score": 1.0}, "cost must be finite seconds >= 0, got -1.0"),
        ({"cost_seconds": 1.0, "score": 1.0, "curve": [(-1, 0.5, 0.1)]}, "steps >= 0"),
        (
            {"cost_seconds": 1.0, "score": 1.0, "curve": [(1, 0.5)]},
            r"\(steps, cost_seconds, score\), got tuple \(1, 0.5\)",
        ),
        (
            {"cost_seconds": 1.0, "score": 1.0, "curve": [(1, 0.5, "x")]},
            "score of a curve must be a number, got str 'x'",
        ),
        ({"cost_seconds": 1.0, "score": "0.9"}, "score must be a number, got str '0.9'"),
        ({"cost_seconds": None, "score": 0.9}, "cost_seconds must be a number, got NoneType"),
        ({"cost_seconds": 1.0, "score": 1.0, "curve": None}, "a curve must be a list of points.*got NoneType None"),
        ({"cost_seconds": 1.0, "score": 1.0, "curve": [(math.nan, 0.5, 0.1)]}, "steps of a curve must be finite"),
        ({"cost_seconds": 1.0, "score": np.zeros((9, 9))}, "score must be a number, got ndarray"),
    ],
)
def test_what_cannot_be_told(told: dict[str, Any], message: str) -> None:
    engine = Protein(make_space())
    suggestion = engine.suggest()
    assert suggestion is not None
    with pytest.raises(UsageError, match=message) as error:
        engine.observe(suggestion.params, **told)
    assert "\n" not in str(error.value)
    assert engine.observations == () and len(engine.pending) == 1


def test_a_curve_that_cannot_be_told() -> None:
    engine = Protein(make_space())
    params: Params = {"lr": 1e-3, "gamma": 0.99, "steps": 1_000_000, "opt": "adam"}
    with pytest.raises(UsageError, match=r"score of a curve must be finite.*, got nan; give None"):
        engine.should_stop(params, [(10, 1.0, math.nan)])
    with pytest.raises(SpaceError):
        engine.should_stop({"lr": 1e-3}, [(10, 1.0, 1.0)])
    lower = Protein(make_space(), direction="minimize")
    with pytest.raises(UsageError, match=r"score of a curve must be finite.*, got inf; give None"):
        lower.should_stop(params, [(10, 1.0, math.inf)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budget_seconds": 0.0}, "budget_seconds must be above 0 seconds, or None for no limit, got 0"),
        ({"budget_seconds": math.nan}, "budget_seconds must be above 0 seconds, or None for no limit, got nan"),
        # a share of an infinite budget would price all trials alike
        ({"budget_seconds": math.inf}, "budget_seconds must be above 0 seconds, or None for no limit, got inf"),
        ({"budget_seconds": "10 minutes"}, "budget_seconds must be a number, got str '10 minutes'"),
        ({"direction": "up"}, "direction must be"),
        ({"method": "protien"}, "unknown method 'protien'"),
        ({"method": None}, "unknown method 'None'"),
        ({"max_trials": 0}, "max_trials must be a whole number, 1 or more, or None for no limit, got 0"),
        ({"budget_seconds": True}, "budget_seconds must be above 0 seconds, or None for no limit, got True"),
        ({"observations": None}, "observations must be a list of observations.*got NoneType None"),
        ({"seed": -1}, "seed must be a whole number, 0 or more, got -1"),
        ({"warm_start": "mine"}, "warm_start must be a list of observations"),
    ],
)
def test_bad_arguments_are_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Protein(make_space(), **arguments)


def test_params_that_are_no_params() -> None:
    engine = Protein(make_space())
    suggestion: Any = engine.suggest()
    with pytest.raises(SpaceError, match=r"as in suggestion.params, got Suggestion"):
        engine.observe(suggestion, score=1.0, cost_seconds=1.0)
    with pytest.raises(SpaceError, match="lr"):
        engine.observe({"lr": 1.0}, score=1.0, cost_seconds=1.0)
    space: Any = [Float("lr", 0.0, 1.0)]
    with pytest.raises(UsageError, match=r"write Space\(\[...\]\)"):
        Protein(space)


def test_numbers_of_numpy_are_numbers() -> None:
    engine = Protein(make_space())
    params = {"lr": 1e-3, "gamma": 0.99, "steps": 1_000_000, "opt": "adam"}
    engine.observe(params, score=np.float32(0.5), cost_seconds=np.array(2.0), curve=np.array([[10, 1.0, 0.25]]))  # type: ignore[arg-type]
    (told,) = engine.observations
    assert [type(told.score), type(told.cost_seconds), type(told.curve[0].steps)] == [float, float, int]

    told_params: Any = {
        "lr": np.float32(1e-3),
        "gamma": np.float64(0.99),
        "steps": np.int64(10**6),
        "opt": np.str_("adam"),
    }
    engine.observe(told_params, score=0.5, cost_seconds=2.0)
    kinds = {"lr": float, "gamma": float, "steps": int, "opt": str}
    assert {name: type(value) for name, value in engine.observations[1].params.items()} == kinds
    assert engine.should_stop(told_params, []) is None
    zero, one, two, four = (np.int64(n) for n in (0, 1, 2, 4))
    limits: dict[str, Any] = {"seed": zero, "max_trials": one, "start": told_params}
    limited = Protein(make_space(), **limits)
    first = limited.suggest()
    assert first is not None and {name: type(value) for name, value in first.params.items()} == kinds
    assert limited.suggest() is None and limited.ended == "the limit of 1 trial is reached"
    ends: tuple[Any, Any] = (np.float32(0), np.float32(1))
    whole: tuple[Any, Any, Any] = (one, four, two)
    space = Space([Float("x", *ends), Integer("n", *whole[:2], default=whole[2])])
    assert space == Space([Float("x", 0.0, 1.0), Integer("n", 1, 4, default=2)])
    assert [type(getattr(parameter, "low", None)) for parameter in space.parameters] == [float, int]
    choices: Any = np.arange(3)
    assert Categorical("c", choices) == Categorical("c", [0, 1, 2])


def test_limits_are_searched_with_what_is_told() -> None:
    space = Space([Float("x", 0.0, 1.0), Float("y", 0.0, 1.0)])
    engine = Protein(space, seed=2, require=["gb <= 1"], max_trials=16)
    while (suggestion := engine.suggest()) is not None:
        x, y = (float(suggestion.params[name]) for name in ("x", "y"))
        engine.observe(suggestion.params, score=x + y, cost_seconds=1.0, metrics={"gb": 2 * x + y, "bad": math.inf})
    best = engine.best()
    assert best is not None and best.keeps is not None and best.keeps >= 0.5
    assert "bad" not in engine.observations[0].metrics
    found = max(one.score for one in engine.observations if one.score is not None and one.metrics["gb"] <= 1.0)
    assert found > 0.9, "y = 1 and x = 0 is the best that keeps it"
    with pytest.raises(UsageError, match="metrics must map names to numbers"):
        engine.observe({"x": 0.5, "y": 0.5}, score=1.0, cost_seconds=1.0, metrics=[1.0])  # type: ignore[arg-type]
