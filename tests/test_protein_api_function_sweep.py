"""Sweeps over a function: kept, resumed, interrupted, and read by the command line."""

import asyncio
import itertools
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import protein
from protein import Float, Integer, Report, Space, Sweep, SweepResult
from protein.api import function_sweep_lines
from protein.cli import main
from protein.errors import StoreError, TrialFailed, UsageError
from protein.storage.store import SqlStore
from protein.sweep.backends.function import Train
from protein.types import TrialState
from protein.view import text

SPACE = Space([Float("lr", 1e-4, 1.0, scale="log"), Integer("epochs", 1, 20, scale="log")], cost_parameter="epochs")
START: dict[str, Any] = {"lr": 0.3, "epochs": 4}
QUIET_SECONDS = function_sweep_lines._QUIET_SECONDS


def loss(lr: float, epochs: int) -> float:
    return (math.log10(lr) + 2.0) ** 2 / 4.0 + math.exp(-epochs / 8.0)


def train(params: dict[str, Any], report: Report) -> float:
    """Costs a second an epoch, by its own word."""
    for epoch in range(1, params["epochs"] + 1):
        if params["lr"] > 0.5:
            raise ArithmeticError("loss is\nnan")
        report(epoch, loss(params["lr"], epoch), cost_seconds=float(epoch), rate=params["lr"])
    return loss(params["lr"], params["epochs"])


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No line tells of a finished trial, as in a sweep that is over in two seconds, however slow the machine is."""
    monkeypatch.setattr(function_sweep_lines, "_QUIET_SECONDS", math.inf)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "own.db")


def sweep(store: Any, budget: Any = 60.0, **changes: Any) -> Sweep:
    settings: dict[str, Any] = {"name": "mine", "direction": "minimize", "start": START, "quiet": True, **changes}
    return Sweep(SPACE, budget=budget, store=store, **settings)


def outline(result: SweepResult) -> list[Any]:
    return [(t.number, dict(t.params), t.state, t.score, t.cost_seconds, t.reason) for t in result.trials]


def test_a_function_is_swept_and_the_same_call_resumes_the_sweep(store: str, tmp_path: Path) -> None:
    whole = sweep(store, "1m").run(train)
    assert whole.best is not None and whole.best.score is not None
    assert whole.trials[0].params == START and whole.trials[0].score == loss(**START)
    assert whole.trials[0].curve[0].score == loss(0.3, 1) and whole.trials[0].curve[0].metrics == {"rate": 0.3}
    assert whole.trials[0].cost_seconds == 4.0 and whole.trials[0].steps == 4
    assert sum(t.cost_seconds for t in whole.trials) <= 75.0
    assert whole.best.score < loss(**START) and not whole.interrupted
    assert [t.score for t in whole.front] == sorted((t.score or 0.0 for t in whole.front), reverse=True)

    other = str(tmp_path / "other.db")
    calls = 0

    def cut_off(params: dict[str, Any], report: Report) -> float:
        nonlocal calls
        calls += 1
        if calls == 6:
            report(1, 0.5, cost_seconds=1.0)
            raise KeyboardInterrupt
        return train(params, report)

    first = sweep(other, "1m").run(cut_off)
    assert first.interrupted and first.ended == "interrupted" and len(first.trials) == 6
    assert (first.trials[5].state, first.trials[5].reason, first.trials[5].cost_seconds) == (
        TrialState.FAILED,
        "interrupted",
        1.0,
    )
    second = sweep(other, "1m").run(train)
    assert outline(second)[:6] == outline(first) and outline(second)[:5] == outline(whole)[:5]
    assert second.trials[6].params == second.trials[5].params  # said nothing about it: tried again
    assert outline(sweep(other, "1m").run(train)) == outline(second)  # nothing left to spend


def test_a_function_that_keeps_its_state_is_continued(store: str) -> None:
    def resumable(params: dict[str, Any], report: Report) -> float:
        done = 0 if report.continues is None else int((report.continues / "epochs").read_text())
        for epoch in range(done + 1, params["epochs"] + 1):
            report(epoch, loss(params["lr"], epoch), cost_seconds=float(epoch - done))
        (report.directory / "epochs").write_text(str(params["epochs"]))
        return loss(params["lr"], params["epochs"])

    result = sweep(store, 100.0, can_continue=True).run(resumable)
    legs = [trial for trial in result.trials if trial.continues is not None]
    assert legs, "some trial was continued"
    for leg in legs:
        assert leg.continues is not None
        parent = result.trials[leg.continues]
        assert (leg.params["lr"], leg.seed) == (parent.params["lr"], parent.seed)
        if leg.state is TrialState.COMPLETE:
            assert leg.run_seconds == leg.steps == leg.params["epochs"]
            assert leg.curve[0].steps == parent.steps + 1
    assert sweep(store, 100.0, name="without").run(resumable).trials[0].continues is None
    with pytest.raises(UsageError, match="can_continue needs a cost_parameter"):
        Sweep(Space([Float("lr", 1e-4, 1.0)]), can_continue=True)


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


@pytest.mark.parametrize(
    "wrong, said",
    [
        (
            lambda params, report: None,
            r"it returned None instead of a number($|\. Correct it and run the sweep again$)",
        ),
        (lambda params, report: "0.5", "it returned '0.5' instead of a number"),
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
    again = sweep(store, None, max_trials=2).run(train)
    assert [(t.params, t.state, t.reason) for t in again.trials] == [
        (START, TrialState.FAILED, "interrupted"),
        (START, TrialState.COMPLETE, ""),
    ]


def test_an_error_of_the_store_leaves_no_trial_running(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise StoreError("it is broken; fix it")

    monkeypatch.setattr(SqlStore, "add_measurements", refused)
    with pytest.raises(StoreError, match="it is broken"):
        sweep(store).run(train)
    monkeypatch.undo()
    again = sweep(store, None, max_trials=2).run(train)
    assert [(t.params, t.reason) for t in again.trials] == [(START, "interrupted"), (START, "")]


def test_a_pruned_trial_keeps_the_last_score_that_it_reported(store: str) -> None:
    def silent(params: dict[str, Any], report: Report) -> float:
        for epoch in range(1, 1000):
            report(epoch, 0.7 if epoch < 3 else None, cost_seconds=float(epoch))
        raise AssertionError("never stopped")

    (trial,) = sweep(store, 99.0, max_trial_cost=5.0, max_trials=1).run(silent).trials
    assert (trial.state, trial.score, trial.cost_seconds) == (TrialState.PRUNED, 0.7, 5.0)


def test_a_failure_of_any_words_is_one_line(store: str) -> None:
    def wordy(params: dict[str, Any], report: Report) -> float:
        raise ValueError("\udc80\n" + "x" * 10_000)

    (trial,) = sweep(store, None, max_trials=1).run(wordy).trials
    assert trial.reason.startswith("ValueError: \\udc80 xxx") and len(trial.reason) == 500
    log = trial.artifact("log")
    assert log is not None and "x" * 10_000 in Path(log).read_text()


def test_the_loop_can_stop_a_trial_where_it_reports(store: str) -> None:
    seen: list[str] = []

    def endless(params: dict[str, Any], report: Report) -> float:
        try:
            for epoch in range(1, 1000):
                report(epoch, 1.0, cost_seconds=float(epoch))
        except Exception:
            seen.append("swallowed")
        except protein.Stop as stop:
            seen.append(str(stop))
            raise
        raise AssertionError("never stopped")

    result = sweep(store, 20.0, max_trial_cost=5.0).run(endless)
    assert set(seen) == {"stopped at its cost cap"} and {t.cost_seconds for t in result.trials} == {5.0}
    assert result.best is None and {t.score for t in result.trials} == {1.0}


def test_a_trial_that_is_cut_off_says_by_which_limit(store: str) -> None:
    brief = False  # whether the next trial ends by itself at a cost of 2

    def greedy(params: dict[str, Any], report: Report) -> float:
        nonlocal brief
        last, brief = (8 if brief else 1000), False
        for epoch in range(1, last + 1):
            report(epoch, 1.0, cost_seconds=epoch / 4.0)  # costs the same whatever its params are
        return 1.0

    space = Space([Float("x", 0.0, 1.0)])
    names = {}
    for name, cap in {"cap": 4.0, "budget": 9.0, "both": None}.items():
        brief = name == "budget"
        limited = Sweep(space, budget=10.0, name=name, store=store, quiet=True, method="random", max_trial_cost=cap)
        names[name] = [(t.reason, t.cost_seconds) for t in limited.run(greedy).trials]
    assert names["cap"][0] == ("stopped at its cost cap", 4.0)
    assert names["budget"] == [("", 2.0), ("stopped at the end of the sweep's budget", 8.0)]
    assert names["both"][0] == ("stopped at its cost cap", 2.5)


def test_numbers_of_numpy_and_paths_are_taken(store: str) -> None:
    start = {"lr": np.float32(0.25), "epochs": np.int64(4)}
    limits = {"seed": np.int64(1), "max_trials": np.int64(1), "max_trial_cost": np.float32(9.0)}
    result = sweep(Path(store), np.float32(60.0), start=start, **limits).run(train)
    assert result.trials[0].params == {"lr": 0.25, "epochs": 4} and result.ended == "the limit of 1 trial is reached"


def test_a_number_of_trials_is_enough_of_a_limit(store: str) -> None:
    result = Sweep(SPACE, max_trials=2, store=store, direction="minimize", quiet=True).run(train)
    assert (len(result.trials), result.ended) == (2, "the limit of 2 trials is reached")


def test_a_better_trial_that_reached_the_cap_is_named_at_the_end(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def slow(params: dict[str, Any], report: Report) -> float:
        for second in range(1, 9 if params["x"] > 0.5 else 3):
            report(second, params["x"] * second, cost_seconds=float(second))
        return float(params["x"])

    space = Space([Float("x", 0.0, 1.0)])
    result = Sweep(space, budget=20.0, start={"x": 0.9}, store=store, method="random").run(slow)
    lines = capsys.readouterr().out.splitlines()
    best = max((t for t in result.trials if t.state is TrialState.PRUNED), key=lambda t: t.score or 0.0)
    note = f"trial {best.number} had score {best.score:.2f} when it was stopped at the cap on one trial's cost"
    assert result.summary.splitlines()[-1].startswith(note)
    assert result.summary.endswith("allow more with max_trial_cost")
    assert lines[-1 - len(result.summary.splitlines()) : -1] == result.summary.splitlines(), "a sentence a line"
    assert lines[-1].startswith("see: ") and "protein best sweep --store " in lines[-1]


_QUARTER = "a quarter of the budget; max_trial_cost changes it"


@pytest.mark.parametrize(
    "limits, said",
    [
        ({"budget": "40s"}, f"budget 40.0s, at most 10.0s for one trial ({_QUARTER})"),
        ({"budget": 40.0, "max_trial_cost": "6s"}, "budget 40.0s, at most 6.00s for one trial"),
        (
            {"budget": 40.0, "max_trials": 7},
            f"budget 40.0s, at most 10.0s for one trial ({_QUARTER}), at most 7 trials",
        ),
        ({"max_trials": 1}, "no budget, at most 1 trial"),
        ({"max_trials": 2, "max_trial_cost": 3.0}, "no budget, at most 3.00s for one trial, at most 2 trials"),
        ({}, "no limit: it runs until Ctrl-C; budget or max_trials end it"),
        (
            {"max_trial_cost": 3.0},
            "at most 3.00s for one trial, no other limit: it runs until Ctrl-C; budget or max_trials end it",
        ),
    ],
)
def test_the_limits_are_printed_before_the_first_trial_begins(
    limits: dict[str, Any],
    said: str,
    store: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: next(ticks) / 100)
    monkeypatch.setattr("protein.sweep.backends.function.time", clock)
    seen: list[str] = []

    def looks(params: dict[str, Any], report: Report) -> float:
        seen.append(capsys.readouterr().out)
        raise KeyboardInterrupt

    result = Sweep(SPACE, name="x", store=store, **limits).run(looks)
    assert result.interrupted and re.match(r"\d\d:\d\d:\d\d ", seen[0]) and seen[0][9:] == f"sweep 'x': {said}\n"
    ended, found, see = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"sweep 'x': interrupted, run it again to resume; 1 trial \(1 interrupted\); 0\.\d+s spent", ended
    )
    assert found == "no complete trial"
    assert "protein show x --store " in see, "`protein best` would fail"
    Sweep(SPACE, name="x", store=store, quiet=True, **limits).run(looks)
    assert capsys.readouterr().out == ""


def test_a_resumed_sweep_says_what_it_has_and_a_short_one_prints_its_end(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = sweep(store, 40.0, quiet=False, max_trials=3).run(train)
    spent = sum(t.cost_seconds for t in first.trials)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(f" sweep 'mine': budget 40.0s, at most 10.0s for one trial ({_QUARTER}), at most 3 trials")
    end = lines[1:]
    counted = rf"3 trials \(.*\); {text.seconds(spent)} spent"
    assert re.fullmatch(rf"sweep 'mine': the limit of 3 trials is reached; {counted}", end[0])
    assert end[1:-1] == first.summary.splitlines() and end[1].startswith(("best found", "trial ", "nothing beat"))
    assert end[-1].startswith("see: ") and "protein best mine --store " in end[-1] and max(map(len, end[:-1])) < 200
    sweep(store, 40.0, quiet=False, max_trials=3).run(train)
    again = capsys.readouterr().out.splitlines()
    resumed = f" sweep 'mine' is resumed: 3 trials so far, {text.seconds(spent)} of 40.0s spent, at most 10.0s for"
    assert resumed in again[0] and again[1:] == end
    sweep(store, None, quiet=False, max_trials=3).run(train)
    unlimited = f" is resumed: 3 trials so far, {text.seconds(spent)} spent, no budget, at most 3 trials"
    assert capsys.readouterr().out.splitlines()[0].endswith(unlimited)
    sweep(store, 40.0, name="warm", warm_start="mine", quiet=False, max_trials=1).run(train)
    assert capsys.readouterr().out.splitlines()[0].endswith("; warm start from 3 trials of sweep 'mine'")


def test_a_function_that_does_not_report_and_exceeds_its_cap_is_told_so_once(
    store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, now = 0, 0.0
    monkeypatch.setattr("protein.sweep.backends.function.time", SimpleNamespace(perf_counter=lambda: now))

    def silent(params: dict[str, Any], report: Report) -> float:
        nonlocal calls, now
        calls += 1
        now += 30.0 if calls in (4, 7) else 10.0
        return float(params["x"])

    space = Space([Float("x", 0.0, 1.0)])

    def run(name: str, cap: float) -> SweepResult:
        nonlocal calls
        calls = 0
        return Sweep(space, name=name, max_trials=8, max_trial_cost=cap, store=store, method="random").run(silent)

    result = run("above", 20.0)
    above = [t for t in result.trials if t.cost_seconds > 20.0]
    assert [(t.number, t.state) for t in above] == [(3, TrialState.COMPLETE), (6, TrialState.COMPLETE)]
    out = capsys.readouterr().out
    assert out.count("above the cap") == 1
    took = f"trial 3 took {text.seconds(above[0].cost_seconds)}, above the cap of 20.0s"
    assert f" {took}: a function can be stopped only when it calls report; max_trial_cost changes the cap\n" in out
    run("below", 30.0)
    assert "above the cap" not in capsys.readouterr().out


def test_a_finished_trial_is_printed_at_most_every_two_seconds(
    store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert QUIET_SECONDS == 2.0, "as the documentation says"
    sweep(store, None, quiet=False, max_trials=3).run(train)
    assert not re.search(r"^\d\d:\d\d:\d\d trial", capsys.readouterr().out, re.M)
    monkeypatch.setattr(function_sweep_lines, "_QUIET_SECONDS", 0.0)
    sweep(store, None, quiet=False, max_trials=5).run(train)
    assert re.findall(r"^\d\d:\d\d:\d\d trial (\d):", capsys.readouterr().out, re.M) == ["3", "4"]


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


def test_the_old_name_of_a_warm_start_works_and_says_its_new_name(store: str) -> None:
    sweep(store, 60.0).run(train)
    with pytest.warns(FutureWarning, match=r"^prior= is now called warm_start=$"):
        renamed = sweep(store, None, max_trials=1, name="warm", prior="mine")
    assert renamed.run(train).trials[0].params == START
    with pytest.raises(UsageError, match=r"exists with a warm start from 'mine' .now 'other'."):
        sweep(store, None, name="warm", warm_start="other").run(train)


def test_a_function_that_costs_nothing_ends_at_the_number_of_trials(store: str) -> None:
    def free(params: dict[str, Any], report: Report) -> float:
        return loss(**params)

    assert len(sweep(store, None, max_trials=3).run(free).trials) == 3
    assert len(sweep(store, None, max_trials=5).run(free).trials) == 5, "run again with more, it is resumed"
    with pytest.raises(UsageError, match="max_trials must be a whole number, 1 or more"):
        sweep(store, None, max_trials=0)


def test_the_command_line_shows_a_minimised_score_as_the_function_returned_it(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = sweep(store, 100.0, start={"lr": 0.2, "epochs": 1}).run(train)
    lowest = min(t.score for t in result.trials if t.score is not None and t.state is TrialState.COMPLETE)
    first = result.trials[0].curve[0].score
    assert result.best is not None and first is not None and 0.0 < lowest < first

    def read(*words: str) -> Any:
        assert main([*words, "mine", "--store", store, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    status, best, front, shown = read("status"), read("best"), read("pareto"), read("show")
    assert (status["direction"], status["best"]["score"]) == ("minimize", lowest)
    assert best["score"] == best["measured"][0] == result.best.score
    assert best["expected_score"]["low"] <= best["expected_score"]["value"] <= best["expected_score"]["high"]
    assert abs(best["expected_score"]["value"] - lowest) < 0.2
    assert [point["score"] for point in front["front"]] == [t.score for t in result.front]
    assert [t["score"] for t in shown["trials"]] == [t.score for t in result.trials]

    negative = re.compile(r"(?<![\w.-])-\d")
    for words in (["status"], ["status", "mine"], ["best", "mine"], ["show", "mine"]):
        assert main([*words, "--store", store]) == 0
        out = capsys.readouterr().out
        assert f"{lowest:.2f}" in out or f"{lowest:.3g}" in out
        assert not negative.search(out), out
        if words == ["status", "mine"]:
            assert re.search(r"^next .*: best score lower by [\d.e-]+ \(0 to ", out, re.MULTILINE)
    ahead = read("status")["outlook"]
    assert ahead[0]["seconds"] > 0 and ahead[0]["best"]["high"] > ahead[0]["best"]["low"] == 0.0
    picture = tmp_path / "front.png"
    assert main(["pareto", "mine", "--store", store, "--png", str(picture)]) == 0
    plot, _, table = capsys.readouterr().out.partition("● front")
    labels = [float(line.split("┤")[0]) for line in plot.splitlines() if "┤" in line and line.split("┤")[0].strip()]
    assert labels == sorted(labels) and labels[0] == pytest.approx(lowest, abs=0.05), "the best is at the top"
    gains = re.findall(r" [+-]\d\S* ", table)
    assert len(gains) == len(result.front) - 1 and all(gain.startswith(" +") for gain in gains)
    assert picture.stat().st_size > 1000


def test_its_end_says_why_it_ended(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    small = Space([Integer("epochs", 1, 3)])

    def costly(params: dict[str, Any], report: Report) -> float:
        report(1, 1.0, cost_seconds=10.0)
        return 1.0

    for name, limits, ended in (
        ("all", {"budget": None}, "every config of the space was tried"),
        ("few", {"budget": None, "max_trials": 2}, "the limit of 2 trials is reached"),
        ("expensive", {"budget": 10.0, "max_trial_cost": 10.0}, "the budget is spent"),
        (
            "left",
            {"budget": 15.0, "max_trial_cost": 15.0},
            "no new config is expected to fit what is left of the budget",
        ),
    ):
        for _ in range(2):  # run again, it says so again
            result = Sweep(small, name=name, store=store, **limits).run(costly)
            assert result.ended == ended and not result.interrupted
            count = "1 trial" if len(result.trials) == 1 else f"{len(result.trials)} trials"
            end = capsys.readouterr().out.splitlines()[-2 - len(result.summary.splitlines()) :]
            assert end[0].startswith(f"sweep '{name}': {ended}; {count} (")
    assert main(["status", "all", "--store", store]) == 0


def test_the_command_line_reads_it_and_another_sweep_begins_from_it(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep(store, 100.0).run(train)
    for words in (["status", "mine"], ["show", "mine"], ["best", "mine"], ["pareto", "mine"]):
        assert main([*words, "--store", store]) == 0
        out = capsys.readouterr().out
        assert "mine" in out or "trial" in out
        assert "protein train" not in out
    assert main(["best", "mine", "--store", store, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["command"] is None
    assert main(["train", "--from", "mine", "--store", store]) == 2
    assert "train(), a training function" in capsys.readouterr().err
    assert main(["sweep", "--env", "pong", "--name", "mine", "--store", store]) == 2
    assert "choose another name" in capsys.readouterr().err

    warm = sweep(store, 40.0, name="warm", warm_start="mine").run(train)
    assert any(t.origin.startswith("from the source sweep's front near") for t in warm.trials)
    again = sweep(store, 60.0, name="warm").run(train)  # the stored snapshot counts, named or not
    assert outline(again)[: len(warm.trials)] == outline(warm)
    with pytest.raises(UsageError, match=r"exists with a warm start from 'mine' .now 'warm'."):
        sweep(store, 60.0, name="warm", warm_start="warm").run(train)
