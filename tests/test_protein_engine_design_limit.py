"""What a trial of the initial design may cost, on hand-made histories and through the engine."""

import pytest

from protein.engine.design_limit import costs_too_much
from protein.engine.designer import ProteinDesigner
from protein.engine.settings import EngineSettings
from protein.space import Float, Integer, Space
from protein.types import Measurement, Observation, Params, TrialState

SPACE = Space([Float("x", 0.0, 1.0), Integer("steps", 100, 100_000, scale="log")], cost_parameter="steps")
START: Params = {"x": 0.5, "steps": 10_000}


def curve(steps: int, seconds: float, *, points: int = 10) -> tuple[Measurement, ...]:
    """The first points of a curve of ten: an even pace."""
    shares = [(i + 1) / 10 for i in range(points)]
    return tuple(Measurement(steps=round(steps * s), elapsed_seconds=seconds * s, score=s) for s in shares)


def complete(params: Params, seconds: float) -> Observation:
    points = curve(int(params["steps"]), seconds)
    return Observation(params=params, state=TrialState.COMPLETE, score=1.0, cost_seconds=seconds, curve=points)


def why(steps: int, seconds: float, *, points: int = 2, factor: float = 1.0) -> str | None:
    """Asks about a trial of `steps` that takes `seconds` in all; the initial config took 100."""
    history = [complete(START, 100.0)]
    return costs_too_much(
        SPACE, history, START, {"x": 0.9, "steps": steps}, curve(steps, seconds, points=points), factor=factor
    )


def test_a_trial_that_costs_more_than_the_initial_config_is_stopped_by_its_pace() -> None:
    assert why(1000, 110.0) is None  # a pace may be wrong by so much
    assert why(1000, 200.0) == "it would take 200 s or more, and one of the first trials may take 100 s"
    assert why(1000, 200.0, factor=2.0) is None


def test_a_longer_trial_may_cost_more() -> None:
    assert why(20_000, 210.0) is None
    assert why(20_000, 300.0) is not None


def test_where_the_pace_is_not_known_a_trial_may_reach_the_limit() -> None:
    assert why(1000, 900.0, points=1) is None
    assert why(1000, 1100.0, points=1) is not None


def test_without_a_complete_initial_config_there_is_no_limit() -> None:
    far = {"x": 0.9, "steps": 1000}
    assert costs_too_much(SPACE, [], START, far, curve(1000, 9e9), factor=1.0) is None
    other = complete({"x": 0.1, "steps": 1000}, 1.0)
    assert costs_too_much(SPACE, [other], START, far, curve(1000, 9e9), factor=1.0) is None


def test_without_a_cost_parameter_there_is_no_limit() -> None:
    space, start = Space([Float("x", 0.0, 1.0)]), {"x": 0.5}
    first = Observation(params=start, state=TrialState.COMPLETE, score=1.0, cost_seconds=1.0, curve=curve(100, 1.0))
    assert costs_too_much(space, [first], start, {"x": 0.9}, curve(100, 9e9), factor=1.0) is None


def test_the_initial_config_itself_is_never_stopped() -> None:
    assert costs_too_much(SPACE, [complete(START, 100.0)], START, START, curve(10_000, 900.0), factor=1.0) is None


@pytest.mark.parametrize(("num_trials", "stopped"), [(1, True), (8, True), (9, False)])
def test_the_engine_limits_the_trials_of_its_design_alone(num_trials: int, stopped: bool) -> None:
    engine = ProteinDesigner(SPACE, START, seed=0, settings=EngineSettings())
    history = [complete(START, 100.0)]
    history += [complete({"x": i / 10, "steps": 1000}, 10.0) for i in range(1, num_trials)]
    reason = engine.should_stop(history, {"x": 0.99, "steps": 2000}, curve(2000, 300.0, points=2), seed=0)
    assert (reason is not None) is stopped


def test_without_early_stopping_no_trial_is_stopped() -> None:
    engine = ProteinDesigner(SPACE, START, seed=0, settings=EngineSettings(early_stopping=False))
    assert engine.should_stop([complete(START, 100.0)], {"x": 0.9, "steps": 1000}, curve(1000, 900.0), seed=0) is None
