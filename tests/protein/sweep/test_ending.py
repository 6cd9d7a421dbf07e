"""What ends running trials: their pace, and people who cancel them."""

import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sample_trials
import small_sweep
from sweep_control import AtPoint, found, opened

from protein import Float, Integer, Report, Space, Sweep, storage
from protein.engine.budget import limit_reached
from protein.ports import SweepStatus
from protein.sweep import ending
from protein.sweep.methods import make_designer
from protein.types import (
    Measurement,
    Observation,
    Request,
    SuggestionKind,
    TrialEnd,
    TrialRecord,
    TrialState,
)

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


# The initial config that a limit of cost has cut short

INITIAL = {"train.score": 0.5, "train.cost": 1.0}


def ran(number: int, end: TrialEnd | None, run_seconds: float, *, steps: int = 1, **more: Any) -> TrialRecord:
    """A trial of the initial config that made so many of its 4 steps, evenly."""
    state = TrialState.RUNNING if end is None else end.state
    made = sample_trials.trial(number, run_seconds, 0.5 if end is TrialEnd.COMPLETE else None)
    points = curve(*((i + 1, run_seconds * (i + 1) / steps) for i in range(steps)))
    first = dataclasses.replace(made, kind=SuggestionKind.INITIAL_CONFIG, params=INITIAL, state=state, end=end)
    return dataclasses.replace(first, curve=points, steps=steps, **more)


@pytest.mark.parametrize(
    ("trials", "limit", "goes_on"),
    [
        ([ran(0, TrialEnd.CAPPED, 1.0, steps=2)], 2.0, True),  # 4 steps cost 2 s
        ([ran(0, TrialEnd.CAPPED, 1.0, steps=2)], 1.9, False),
        ([ran(0, TrialEnd.CAPPED, 1.0, steps=2)], math.inf, True),
        ([ran(0, TrialEnd.OUT_OF_BUDGET, 1.0, steps=2)], 2.0, True),
        ([ran(0, TrialEnd.CAPPED, 0.1, steps=2)], 0.19, False),  # ended as too slow, long before the cap
        ([ran(0, TrialEnd.CAPPED, 1.0)], 1.2, True),  # nothing tells what it needs: clearly more than it has cost
        ([ran(0, TrialEnd.CAPPED, 1.0)], 1.05, False),
        ([ran(0, TrialEnd.STOPPED_EARLY, 1.0)], 9.0, False),
        ([ran(0, TrialEnd.DIVERGED, 1.0)], 9.0, False),
        ([ran(0, TrialEnd.CAPPED, 1.0), ran(1, TrialEnd.COMPLETE, 2.0)], 9.0, False),
        ([ran(0, TrialEnd.CAPPED, 1.0), ran(1, None, 0.0)], 9.0, False),  # it goes on already
        ([ran(0, TrialEnd.CAPPED, 1.0), ran(1, TrialEnd.CAPPED, 3.0)], 3.1, False),
        ([ran(0, TrialEnd.CAPPED, 1.0), ran(1, TrialEnd.CAPPED, 1.0, continued_seconds=2.0)], 3.1, False),
        ([ran(0, TrialEnd.CAPPED, 1.0), ran(1, TrialEnd.INTERRUPTED, 0.0)], 9.0, True),
        ([ran(0, TrialEnd.CAPPED, 1.0, excluded=True)], 9.0, False),
        ([ran(0, TrialEnd.CAPPED, 1.0, kind=SuggestionKind.SEARCH)], 9.0, False),
        ([], 9.0, False),
    ],
)
def test_the_initial_config_goes_on_where_it_was_cut_and_fits_now(
    trials: list[TrialRecord], limit: float, goes_on: bool
) -> None:
    spec = small_sweep.sweep_spec(total_timesteps=4)
    found = ending.cut_initial(spec, trials, list, limit)
    assert (found is not None) is goes_on
    assert found is None or found.run_seconds == max(one.run_seconds for one in trials)


@pytest.mark.parametrize("lost", [False, True])
def test_a_larger_cap_lets_the_initial_config_go_on_once_from_what_it_left(tmp_path: Path, lost: bool) -> None:
    spec = small_sweep.sweep_spec(behaviour="saves", keeps_cap=True, total_timesteps=4)
    designer = make_designer("random", small_sweep.space(), INITIAL)

    def run(cap: float, trials: int) -> list[TrialRecord]:
        how: dict[str, Any] = {"spec": spec, "designer": designer, "budget_seconds": None}
        return list(small_sweep.sweep(tmp_path, max_trial_seconds=cap, max_trials=trials, **how).trials)

    def kinds(trials: list[TrialRecord]) -> list[str]:
        return [str(one.kind) for one in trials]

    first = run(0.5, 2)
    assert (first[0].end, first[0].cost_seconds, first[0].steps) == (TrialEnd.CAPPED, 0.5, 2)
    assert kinds(run(0.5, 3)) == ["initial_config", "random", "random"], "no more is allowed"
    if lost:
        (tmp_path / "trials" / "0000" / "checkpoint.safetensors").unlink()
    again = run(2.0, 5)
    assert kinds(again) == ["initial_config", "random", "random", "initial_config", "random"]
    baseline = again[3]
    assert (baseline.params, baseline.end, baseline.score) == (INITIAL, TrialEnd.COMPLETE, 0.5)
    if lost:
        assert (baseline.continues, baseline.cost_seconds) == (None, 1.0)
    else:
        assert (baseline.continues, baseline.continued_seconds, baseline.cost_seconds) == (0, 0.5, 0.5)
        assert (baseline.seed, baseline.curve[0].steps) == (again[0].seed, 3)
    assert kinds(run(4.0, 6))[5] == "random"


def test_a_function_runs_its_initial_config_again_when_the_cap_allows_it(tmp_path: Path) -> None:
    def train(params: dict[str, Any], report: Report) -> float:
        for epoch in range(1, params["epochs"] + 1):
            report(epoch, 1.0 / epoch, cost_seconds=float(epoch))
        return 1.0 / float(params["epochs"])

    def run(cap: float, trials: int) -> Any:
        made = Sweep(
            SPACE,
            name="s",
            store=tmp_path / "x.db",
            max_trial_cost=cap,
            max_trials=trials,
            start={"lr": 0.1, "epochs": 10},
            direction="minimize",
            quiet=True,
        )
        return made.run(train).trials

    assert run(3.0, 2)[0].end is TrialEnd.CAPPED
    again = run(30.0, 3)
    assert (again[2].kind, again[2].params) == (SuggestionKind.INITIAL_CONFIG, {"lr": 0.1, "epochs": 10})
    assert (again[2].end, again[2].cost_seconds, again[2].score) == (TrialEnd.COMPLETE, 10.0, 0.1)
