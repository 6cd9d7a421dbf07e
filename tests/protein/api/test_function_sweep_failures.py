"""A sweep over a function that fails, and mistakes in how it is called."""

import asyncio
import collections
import itertools
import math
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from function_sweeps import SPACE, START, loss, sweep, train, why_ended
from patience import PATIENCE_SECONDS

from protein import Float, Integer, Report, Space, Sweep
from protein.api import function_sweep
from protein.api.function_sweep import result_of
from protein.errors import StoreError, TrialFailed, UsageError
from protein.run.function import FunctionBackend, Train
from protein.storage.store import SqlStore
from protein.sweep.resuming import MAX_ATTEMPTS
from protein.types import Direction, TrialEnd, TrialState


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "own.db")


def test_failures_are_results(store: str) -> None:
    calls = 0

    def odd(params: dict[str, Any], report: Report) -> float:
        nonlocal calls
        calls += 1
        report(1, loss(params["lr"], 1), cost_seconds=1.0)
        if calls == 2:
            return math.nan
        if calls == 3:
            raise SystemExit(3)
        if calls == 4:
            report(1, math.inf)
        if calls == 6:
            raise ArithmeticError("loss is\nnan")
        return train(params, report)

    result = sweep(store, 60.0, max_trial_cost=12.0).run(odd)
    reasons = {t.number: t.reason for t in result.trials if t.number in (1, 2, 3, 5)}
    assert reasons == {
        1: "the score is nan",
        2: "SystemExit: 3",
        3: "ValueError: the score became inf at step 1",
        5: "ArithmeticError: loss is nan",
    }
    assert all(result.trials[n].state is TrialState.FAILED and result.trials[n].cost_seconds == 1.0 for n in reasons)
    log = result.trials[5].artifact("log")
    assert log is not None and "Traceback" in Path(log).read_text()
    cut = [t for t in result.trials if t.state is TrialState.PRUNED]
    assert all(t.cost_seconds <= 12.0 and t.score is not None for t in cut)
    assert all(t.cost_seconds <= 12.0 for t in result.trials)


def test_a_full_disk_in_the_function_is_not_held_against_the_params(store: str) -> None:
    def full(params: dict[str, Any], report: Report) -> float:
        raise OSError(28, "No space left on device", str(report.directory / "model"))

    said = (
        r"^trial 0 failed, OSError: \[Errno 28\] No space left on device: '.*model'; free some space; then run the same"
    )
    with pytest.raises(UsageError, match=said):
        sweep(store, 60.0).run(full)
    (trial, *others) = sweep(store, 60.0, max_trials=3).run(train).trials
    assert trial.end is TrialEnd.DISK and len(others) == 2


def test_memory_that_runs_out_in_the_function_is_told_apart(store: str) -> None:
    def large(params: dict[str, Any], report: Report) -> float:
        raise MemoryError

    (trial,) = sweep(store, 60.0, max_trials=1).run(large).trials
    assert (trial.end, trial.reason) == (TrialEnd.OUT_OF_MEMORY, "MemoryError")


@pytest.mark.parametrize(
    "wrong, said",
    [
        (
            lambda params, report: None,
            r"it returned None instead of a number($|\. Correct it and run the sweep again$)",
        ),
        (lambda params, report: "0.5", "it returned '0.5' instead of a number"),
        (lambda params, report: params["lr"] > 0, "it returned True instead of a number"),
        (lambda params, report: (0.5, {"loss": 1.0}), r"it returned \(0.5, {'loss': 1.0}\) instead of a number"),
        (lambda params, report: report(-1, 0.0), "report: the steps must be from 0 to 9007199254740992, got -1"),
        (lambda params, report: report(10**19, 0.0), "report: the steps must be from 0 to 9007199254740992, got 1000"),
        (lambda params, report: report(None, 0.0), "report: the steps must be a number, got NoneType None"),
        (lambda params, report: report(1, "0.5"), "report: the score must be a number, got str '0.5'"),
        (lambda params, report: report(1, 0.5, rate="x"), "report: the metric 'rate' must be a number"),
        (lambda params, report: report(0.5), r"report\(\) missing 1 required positional argument: 'score'"),
    ],
)
def test_a_mistake_in_the_function_ends_the_sweep_at_its_first_trial(wrong: Train, said: str, store: str) -> None:
    with pytest.raises(UsageError, match=said) as error:
        sweep(store).run(wrong)
    assert "\n" not in str(error.value)
    assert why_ended(store) == f"error: {error.value}"
    mended = sweep(store, None, max_trials=3).run(train)
    first = mended.trials[0]
    assert first.state is TrialState.FAILED and re.match(f"mistake in the training function: {said}", first.reason)
    assert mended.trials[1].params == START and mended.trials[1].state is TrialState.COMPLETE, "the config lost nothing"


def test_a_score_beyond_all_arithmetic_is_a_failure_with_a_reason(store: str) -> None:
    done = sweep(store, None, max_trials=1).run(lambda params, report: -1e301)
    assert (done.trials[0].state, done.trials[0].reason) == (TrialState.FAILED, "the score is -1e+301, beyond 1e+300")

    def reports(params: dict[str, Any], report: Report) -> float:
        report(1, 1e301)
        return 0.5

    told = sweep(store, None, max_trials=2).run(reports).trials[1]
    assert "the score became 1e+301 at step 1, beyond 1e+300" in told.reason


def test_a_metric_that_is_not_finite_is_left_out(store: str) -> None:
    def odd(params: dict[str, Any], report: Report) -> float:
        report(1, 0.5, good=1.0, bad=math.nan)
        return 0.5

    assert sweep(store, None, max_trials=1).run(odd).trials[0].curve[0].metrics == {"good": 1.0}


def test_mistakes_end_the_sweep_with_one_line(store: str) -> None:
    wrongs: list[Any] = [lambda: 1.0, lambda params: 1.0, lambda params, report, more: 1.0]
    for wrong in wrongs:
        with pytest.raises(UsageError, match=r"train must take two arguments, as in train\(params, report\): "):
            sweep(store).run(wrong)
    assert not Path(store).exists()
    sweep(store, name="seed", budget=5.0).run(train)
    with pytest.raises(UsageError, match=r"exists with seed = 0 .now 1.;"):
        sweep(store, name="seed", budget=5.0, seed=1).run(train)
    with pytest.raises(UsageError, match=r"exists with direction = minimize .now maximize.;"):
        sweep(store, name="seed", budget=5.0, direction="maximize").run(train)
    for space, said in (
        (
            Space([SPACE.parameters[0], Integer("epochs", 1, 30, scale="log")], cost_parameter="epochs"),
            r"epochs = swept from 1 to 20 .log. .now swept from 1 to 30 .log.",
        ),
        (Space(SPACE.parameters), "cost_parameter = epochs .now none."),
        (
            Space([*SPACE.parameters, Float("momentum", 0.0, 1.0)], cost_parameter="epochs"),
            "momentum = none .now swept from 0.0 to 1.0 .linear.",
        ),
        (Space(SPACE.parameters[::-1], cost_parameter="epochs"), r"order of parameters = lr, epochs .now epochs, lr."),
    ):
        with pytest.raises(UsageError, match=f"sweep 'seed' exists with .*{said}"):
            start = START if set(space.names) == set(START) else None
            Sweep(space, name="seed", store=store, direction="minimize", start=start, quiet=True).run(train)
    with pytest.raises(TrialFailed, match="10 trials in a row failed"):
        sweep(store, name="broken").run(lambda params, report: 1 / 0)
    for budget in ("soon", 0.0, -1.0, math.nan):
        with pytest.raises(UsageError, match="budget"):
            sweep(store, budget)
    with pytest.raises(UsageError, match="direction must be"):
        sweep(store, direction="down")
    with pytest.raises(UsageError, match="seed must be a whole number, 0 or more, got -1"):
        sweep(store, seed=-1)
    for name in ("", 5, "a b"):
        with pytest.raises(UsageError, match=f"name {name!r} must be 1 to 64 letters"):
            sweep(store, name=name)
    with pytest.raises(UsageError, match="store must be a path or a URL, or None for the usual one, got int 5"):
        sweep(5)
    with pytest.raises(UsageError, match="train must be a function"):
        sweep(store, name="none").run(None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="space must be a Space"):
        Sweep([], budget=1.0)  # type: ignore[arg-type]


def test_a_cancellation_passes_through_and_the_sweep_is_resumed_in_the_same_process(store: str) -> None:
    """Some frameworks cancel by what is no `Exception`; a notebook's process lives on and runs its cell again."""

    def cancelled(params: dict[str, Any], report: Report) -> float:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        sweep(store).run(cancelled)
    assert why_ended(store) == "error: CancelledError"
    [again] = sweep(store, None, max_trials=1).run(train).trials
    assert (again.params, again.state, again.reason) == (START, TrialState.COMPLETE, "")


def test_one_more_ctrl_c_at_the_end_costs_no_results(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()
    theirs = result_of

    def interrupted(*_: object) -> None:
        told.set()
        raise KeyboardInterrupt

    def slow(*args: Any, **kwargs: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        assert told.wait(PATIENCE_SECONDS)
        return theirs(*args, **kwargs)

    monkeypatch.setattr(function_sweep, "result_of", slow)
    before = signal.signal(signal.SIGINT, interrupted)
    try:
        result = sweep(store, 60.0, max_trials=2).run(train)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(result.trials) == 2 and result.best is not None


def test_ctrl_c_just_as_a_trial_ends_loses_nothing_and_hangs_nothing(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(collections.deque[Any]):
        interrupts = True

        def popleft(self) -> Any:
            if Interrupted.interrupts:
                Interrupted.interrupts = False
                raise KeyboardInterrupt
            return super().popleft()

    class Backend(FunctionBackend):
        def __init__(self, train: Train, direction: Direction) -> None:
            super().__init__(train, direction)
            self._tasks._waiting = Interrupted()

    monkeypatch.setattr(function_sweep, "FunctionBackend", Backend)
    result = Sweep(SPACE, max_trials=3, store=store, quiet=True).run(lambda params, report: params["lr"])
    assert result.interrupted and [trial.end for trial in result.trials] == [TrialEnd.COMPLETE]


def test_a_report_of_a_trial_that_has_ended_is_left_out(store: str) -> None:
    reports: list[Report] = []

    def late(params: dict[str, Any], report: Report) -> float:
        reports.append(report)
        reports[0](9, 1.0)  # as a thread of the first trial's could
        report(10, 2.0)
        return 3.0

    result = sweep(store, None, max_trials=2).run(late)
    assert [trial.end for trial in result.trials] == [TrialEnd.COMPLETE] * 2
    assert [[point.steps for point in trial.curve] for trial in result.trials] == [[9, 10], [10]]


def test_an_error_of_the_store_leaves_no_trial_running(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise StoreError("it is broken; fix it")

    monkeypatch.setattr(SqlStore, "add_measurements", refused)
    with pytest.raises(StoreError, match="it is broken"):
        sweep(store).run(train)
    monkeypatch.undo()
    [again] = sweep(store, None, max_trials=1).run(train).trials
    assert (again.params, again.state) == (START, TrialState.COMPLETE)


def test_a_failure_of_any_words_is_one_line(store: str) -> None:
    def wordy(params: dict[str, Any], report: Report) -> float:
        raise ValueError("\udc80\n" + "x" * 10_000)

    (trial,) = sweep(store, None, max_trials=1).run(wordy).trials
    assert trial.reason.startswith("ValueError: \\udc80 xxx") and len(trial.reason) == 500
    log = trial.artifact("log")
    assert log is not None and "x" * 10_000 in Path(log).read_text()


def test_an_error_that_cannot_be_shown_ends_its_trial_alone(store: str) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise AttributeError("response")

    def train(params: dict[str, Any], report: Report) -> float:
        raise Odd

    result = Sweep(SPACE, max_trials=2, store=store, quiet=True).run(train)
    assert [trial.reason for trial in result.trials] == 2 * [
        "Odd: it has no text, as its __str__ raised AttributeError"
    ]


def test_a_cap_above_the_budget_is_refused() -> None:
    for budget, cap in (("3s", "9s"), (3.0, 9.0)):
        with pytest.raises(UsageError) as error:
            Sweep(SPACE, budget=budget, max_trial_cost=cap)
        assert str(error.value) == (
            f"budget {budget} is smaller than one trial may cost, max_trial_cost {cap};"
            " raise the budget or lower the cap"
        )
    Sweep(SPACE, budget="9s", max_trial_cost="9s")


def test_a_second_sweep_without_a_name_says_how_to_name_it(store: str) -> None:
    hint = "; no name was given: choose one with name="
    assert Sweep(SPACE, max_trials=1, store=store, quiet=True).run(train).name == "sweep"
    other = Space([Float("x", 0.0, 1.0)])
    with pytest.raises(UsageError, match=r"^sweep 'sweep' exists with .*lr = .*") as error:
        Sweep(other, max_trials=1, store=store, quiet=True).run(train)
    assert str(error.value).endswith(hint)
    with pytest.raises(UsageError, match=r"^sweep 'sweep' exists with ") as error:
        Sweep(other, max_trials=1, store=store, quiet=True, name="sweep").run(train)
    assert hint not in str(error.value)


def test_a_trial_that_is_interrupted_again_and_again_is_given_up(tmp_path: Path) -> None:
    """Perhaps it is what ends the machine."""
    seen: list[int] = []

    def cut_off(params: dict[str, Any], report: Report) -> float:
        seen.append(int(report.directory.name))
        raise KeyboardInterrupt

    for _ in range(7):
        result = sweep(str(tmp_path / "own.db"), max_trials=2).run(cut_off)
        assert result.interrupted
    assert seen == [0] * (1 + MAX_ATTEMPTS) + [1]
    assert result.trials[0].end is TrialEnd.INTERRUPTED and "5 attempts" in result.trials[0].reason
    assert result.trials[1].params != result.trials[0].params


def test_interruptions_take_no_trial_from_a_sweep_and_change_none(tmp_path: Path) -> None:
    interrupted, calls = {0, 2, 3, 6}, itertools.count()

    def cut_off(params: dict[str, Any], report: Report) -> float:
        report(1, 0.5, cost_seconds=0.5)
        if next(calls) in interrupted:
            raise KeyboardInterrupt
        return train(params, report)

    while (result := sweep(str(tmp_path / "cut.db"), None, max_trials=4).run(cut_off)).interrupted:
        pass
    whole = sweep(str(tmp_path / "whole.db"), None, max_trials=4).run(train)
    outlines = [[(t.params, t.score, t.cost_seconds) for t in one.trials] for one in (result, whole)]
    assert outlines[0] == outlines[1]
    assert [trial.lost_seconds for trial in result.trials] == [0.5, 1.0, 0.0, 0.5]
