"""What ends running trials: their pace, and people who cancel them."""

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import small_sweep
from sweep_control import AtPoint, found, opened

from protein import Float, Integer, Report, Space, Sweep, storage
from protein.engine.budget import limit_reached
from protein.ports import SweepStatus
from protein.sweep import ending
from protein.types import Measurement, Observation, Request, TrialEnd, TrialState

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


# A sweep that people cancel or pause from outside.


def test_a_running_trial_is_cancelled_from_outside_and_the_sweep_goes_on(tmp_path: Path) -> None:
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "hang-0000").write_text("2 saved")
    listener = AtPoint(tmp_path, lambda store, status: store.cancel(status.sweep.id, [0]))
    spec = small_sweep.sweep_spec(behaviour="saves")
    small_sweep.sweep(tmp_path, spec=spec, listener=listener, budget_seconds=None, max_trials=2)
    sweep, [first, second] = found(tmp_path)
    assert (first.state, first.end, first.reason) == (TrialState.FAILED, TrialEnd.INTERRUPTED, "cancelled by hand")
    assert first.cost_seconds > 0 and second.end is TrialEnd.COMPLETE
    assert "trial 0 is cancelled" in listener.lines
    assert sweep.ended == limit_reached(2)


def test_a_waiting_trial_that_is_cancelled_is_not_taken_up(tmp_path: Path) -> None:
    stop = threading.Event()
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "hang-0000").write_text("2 saved")
    spec = small_sweep.sweep_spec(behaviour="saves")
    small_sweep.sweep(tmp_path, spec=spec, listener=AtPoint(tmp_path, lambda *_: stop.set()), stop=stop)
    assert found(tmp_path)[1][0].state is TrialState.WAITING
    store = opened(tmp_path)
    store.cancel(1, [0])
    store.close()
    listener = small_sweep.Lines()
    small_sweep.sweep(tmp_path, listener=listener, budget_seconds=None, max_trials=2)
    assert [trial.number for trial in listener.begun] == [1]
    assert found(tmp_path)[1][0].reason == "cancelled by hand"


def test_a_paused_sweep_says_so_and_starts_nothing_even_of_what_waits(tmp_path: Path) -> None:
    stop = threading.Event()
    spec = small_sweep.sweep_spec(behaviour="hang")
    small_sweep.sweep(tmp_path, spec=spec, listener=AtPoint(tmp_path, lambda *_: stop.set()), stop=stop)
    store = opened(tmp_path)
    store.request(1, Request.PAUSE)
    store.close()
    stop.clear()

    class StopSoon(small_sweep.Lines):
        def update(self, status: SweepStatus) -> None:
            super().update(status)
            if self.updates == 3:
                stop.set()

    listener = StopSoon()
    small_sweep.sweep(tmp_path, spec=spec, listener=listener, stop=stop)
    assert listener.begun == []
