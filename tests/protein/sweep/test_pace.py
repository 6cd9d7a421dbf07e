"""The pace of a running trial: what its whole run will cost."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protein import Float, Integer, Report, Space, Sweep, storage
from protein.sweep import ending
from protein.types import Measurement, Observation, TrialEnd, TrialState

SPACE = Space([Float("lr", 1e-4, 1.0, scale="log"), Integer("epochs", 1, 20, scale="log")], cost_parameter="epochs")


def curve(*points: tuple[int, float]) -> tuple[Measurement, ...]:
    return tuple(Measurement(steps=steps, elapsed_seconds=seconds, score=0.0) for steps, seconds in points)


def complete(epochs: int, steps: int) -> Observation:
    params = {"lr": 0.1, "epochs": epochs}
    points = curve((steps // 2, 1.0), (steps, 2.0))
    return Observation(params=params, state=TrialState.COMPLETE, score=1.0, cost_seconds=2.0, curve=points)


@pytest.mark.parametrize(
    ("points", "total", "seconds"),
    [
        ([(10, 5.0), (20, 6.0)], 100, 14.0),  # what came before the first point is counted once
        ([(10, 5.0), (20, 6.0), (50, 12.0)], 100, 20.75),
        ([(10, 5.0)], 100, 0.0),
        ([(10, 5.0), (10, 6.0)], 100, 0.0),
        ([(0, 5.0), (10, 6.0)], 100, 0.0),
        ([(10, 5.0), (200, 6.0)], 100, 0.0),  # it counts other steps
        ([], 100, 0.0),
    ],
)
def test_a_run_costs_what_its_pace_says(points: list[tuple[int, float]], total: int, seconds: float) -> None:
    assert ending.expected_seconds(curve(*points), total) == pytest.approx(seconds)


def test_complete_trials_tell_how_many_steps_another_one_makes() -> None:
    history = [complete(2, 200), complete(4, 400), complete(8, 800)]
    assert ending.steps_by_others(SPACE, history, {"lr": 0.5, "epochs": 10}) == pytest.approx(1000)
    assert ending.steps_by_others(SPACE, history[:2], {"lr": 0.5, "epochs": 10}) is None
    uneven = [*history, complete(2, 800), complete(2, 3000)]
    assert ending.steps_by_others(SPACE, uneven, {"lr": 0.5, "epochs": 10}) is None


def slow_above(limit: float) -> Callable[[dict[str, Any], Report], float]:
    """Returns a training function that costs a second an epoch, and 100 with a higher learning rate."""

    def train(params: dict[str, Any], report: Report) -> float:
        if params["lr"] <= limit:
            report(params["epochs"], 1.0, cost_seconds=float(params["epochs"]))
            return 1.0
        for epoch in range(1, params["epochs"] + 1):
            report(epoch, 1.0, cost_seconds=100.0 * epoch)  # of these, the cap allows a hundred
            time.sleep(0.5 if epoch > 1 else 0.0)  # it is ended at the first report after the loop has told it
        return 1.0

    return train


def test_a_function_that_cannot_end_within_its_cap_is_ended_before_it(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/p.db"
    settings: dict[str, Any] = {
        "method": "random",
        "max_trials": 8,
        "max_trial_cost": 10_000.0,
        "quiet": True,
        "seed": 1,
    }
    start = {"lr": 0.001, "epochs": 200}
    space = Space([Float("lr", 1e-4, 1.0, scale="log"), Integer("epochs", 160, 400)], cost_parameter="epochs")
    Sweep(space, budget=1_000_000.0, store=store, name="slow", start=start, **settings).run(slow_above(0.5))
    with contextlib.closing(storage.open_store(store)) as opened:
        record = opened.find_sweep("slow")
        assert record is not None
        trials = opened.trials(record.id)
    slow = [trial for trial in trials if float(trial.params["lr"]) > 0.5]
    assert slow and slow[0].number > 2, "three complete trials come first"
    for trial in slow:
        assert trial.end is TrialEnd.CAPPED and trial.cost_seconds < 10_000.0
        assert "at its pace it would take" in trial.reason
