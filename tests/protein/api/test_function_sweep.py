"""Sweeps over a function: kept, resumed, interrupted, and read by the command line."""

import errno
import io
import itertools
import json
import math
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
from function_sweeps import SPACE, START, loss, sweep, train

import protein
from protein import Categorical, Float, Integer, Report, Space, Sweep, SweepResult
from protein.api import function_sweep
from protein.api.recommended import Recommendation, recommendation
from protein.cli import main
from protein.errors import UsageError
from protein.storage import open_store
from protein.types import Direction, SweepRecord, TrialEnd, TrialRecord, TrialState
from protein.view import text

QUIET_SECONDS = function_sweep._QUIET_SECONDS


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No line tells of a finished trial, as in a sweep that is over in two seconds, however slow the machine is."""
    monkeypatch.setattr(function_sweep, "_QUIET_SECONDS", math.inf)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "own.db")


def outline(result: SweepResult) -> list[Any]:
    return [(t.number, dict(t.params), t.state, t.score, t.cost_seconds, t.reason) for t in result.trials]


def test_a_function_is_swept_and_the_same_call_resumes_the_sweep(store: str, tmp_path: Path) -> None:
    whole = sweep(store, "1m").run(train)
    assert whole.best is not None and whole.best.score is not None
    assert whole.trials[0].params == START and whole.trials[0].score == loss(**START)
    assert whole.trials[0].curve[0].score == loss(0.3, 1) and whole.trials[0].curve[0].metrics == {"rate": 0.3}
    assert whole.trials[0].metrics == {"rate": 0.3}, "the last value in the curve is the trial's"
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
        TrialState.WAITING,
        "interrupted",
        1.0,
    )
    second = sweep(other, "1m").run(train)
    assert outline(second)[:6] == outline(whole)[:6], "it begins again as the same trial, and nothing was learnt of it"
    assert [trial.lost_seconds for trial in second.trials[4:7]] == [0.0, 1.0, 0.0]
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


def test_a_pruned_trial_keeps_the_last_score_that_it_reported(store: str) -> None:
    def silent(params: dict[str, Any], report: Report) -> float:
        for epoch in range(1, 1000):
            report(epoch, 0.7 if epoch < 3 else None, cost_seconds=float(epoch))
        raise AssertionError("never stopped")

    (trial,) = sweep(store, 99.0, max_trial_cost=5.0, max_trials=1).run(silent).trials
    assert (trial.state, trial.score, trial.cost_seconds) == (TrialState.PRUNED, 0.7, 5.0)


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


def test_lists_tables_and_none_are_values_that_a_function_gets_as_they_are(store: str) -> None:
    """Through the store, also after resuming; what the function changes in them stays in its trial."""
    choices: list[Any] = [None, [32, 32], {"act": ["relu", 1, 1.0, True]}, 1, 1.0, True]
    space = Space([Categorical("net", choices), Float("x", 0.0, 1.0, step=0.5)], fixed={"clip": None, "dims": [3]})
    seen = []

    def measure(params: dict[str, Any], report: Report) -> float:
        seen.append(repr(params["net"]))
        if isinstance(params["net"], list | dict):
            params["net"].clear()
        return float(params["x"])

    for most in (9, 18):
        result = Sweep(space, max_trials=most, store=store, name="nets", quiet=True).run(measure)
    assert len(result.trials) == len(seen) == 18, "each of the 18 points once"
    assert sorted(seen) == sorted([repr(choice) for choice in choices] * 3)
    assert [repr(trial.params["net"]) for trial in result.trials] == seen


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
    note = f"trial {best.number} had score {best.score:.3f} when it was stopped at the cap on one trial's cost"
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
    clock = SimpleNamespace(monotonic=lambda: next(ticks) / 100)
    monkeypatch.setattr("protein.run.function.time", clock)
    seen: list[str] = []

    def looks(params: dict[str, Any], report: Report) -> float:
        seen.append(capsys.readouterr().out)
        raise KeyboardInterrupt

    result = Sweep(SPACE, name="x", store=store, **limits).run(looks)
    assert result.interrupted and re.match(r"\d\d:\d\d:\d\d ", seen[0]) and seen[0][9:] == f"sweep 'x': {said}\n"
    waits, ended, found, see = capsys.readouterr().out.splitlines()
    assert waits.endswith(" trial 0 waits to be taken up again: interrupted")
    assert re.fullmatch(r"sweep 'x': interrupted, run it again to resume; 1 trial \(1 waiting\); 0\.\d+s spent", ended)
    assert found == "no complete trial"
    assert "protein show x --store " in see, "`protein best` would fail"
    Sweep(SPACE, name="x", store=store, quiet=True, **limits).run(looks)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_predictions_stay_in_the_score_range_and_a_score_outside_is_told_once(
    direction: Literal["maximize", "minimize"], store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def accuracy(params: dict[str, Any], report: Report) -> float:
        report(1, 0.5, cost_seconds=1.0)
        return float(0.999 - 0.05 * abs(math.log10(params["rate"])))  # 0.799 to 0.999

    def run(trials: int, **given: Any) -> SweepResult:
        space = Space([Float("rate", 1e-3, 1e4, "log")])
        made = Sweep(space, max_trials=trials, store=store, start={"rate": 1e4}, direction=direction, **given)
        return made.run(accuracy)

    def stored() -> tuple[float, float] | None:
        opened = open_store(store)
        [record] = opened.list_sweeps()
        opened.close()
        return record.spec.score_range

    result = run(12, score_range=(0.9, 1))
    told = [line for line in capsys.readouterr().out.splitlines() if "outside the score range 0.9 to 1:" in line]
    assert len(told) == 1 and "trial 0 scored 0.799, outside" in told[0]
    predicted = [trial.predicted_score for trial in result.trials if trial.predicted_score is not None]
    assert predicted and all(0.9 <= one.low <= one.value <= one.high <= 1.0 for one in predicted)
    assert len(result.trials) == 12 and all(trial.state is TrialState.COMPLETE for trial in result.trials)
    assert len(run(13).trials) == 13 and stored() == (0.9, 1.0), "where none is given, a sweep keeps its own"
    assert len(run(14, score_range=(0.5, None)).trials) == 14 and stored() == (0.5, math.inf)
    with pytest.raises(UsageError, match="exists with seed"):
        run(15, score_range=(0, 1), seed=1)
    assert stored() == (0.5, math.inf), "a sweep that is refused changes nothing"


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
    monkeypatch.setattr("protein.run.function.time", SimpleNamespace(monotonic=lambda: now))

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
    monkeypatch.setattr(function_sweep, "_QUIET_SECONDS", 0.0)
    sweep(store, None, quiet=False, max_trials=5).run(train)
    assert re.findall(r"^\d\d:\d\d:\d\d trial (\d):", capsys.readouterr().out, re.M) == ["3", "4"]


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
            assert re.search(r"bring a best score that is lower by [\d.e-]+ \(0 to ", out)
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
    assert "ran train(), which protein train cannot run" in capsys.readouterr().err
    assert main(["sweep", "--env", "pong", "--name", "mine", "--store", store]) == 2
    assert "choose another name" in capsys.readouterr().err

    warm = sweep(store, 40.0, name="warm", warm_start="mine").run(train)
    assert any(t.origin.startswith("from the source sweep's front near") for t in warm.trials)
    again = sweep(store, 60.0, name="warm").run(train)  # the stored snapshot counts, named or not
    assert outline(again)[: len(warm.trials)] == outline(warm)
    with pytest.raises(UsageError, match=r"exists with a warm start from 'mine' .now 'warm'."):
        sweep(store, 60.0, name="warm", warm_start="warm").run(train)


def test_a_wrapped_stop_ends_a_trial_as_it_should(store: str) -> None:
    """As a task group wraps it, or a framework that raises its callbacks' errors as its own."""

    def grouped(params: dict[str, Any], report: Report) -> float:
        try:
            for step in range(1, 1000):
                report(step, float(step))
                time.sleep(0.01)
        except BaseException as error:  # as asyncio.TaskGroup does
            raise BaseExceptionGroup("unhandled errors in a TaskGroup", [error]) from None
        return 0.0

    def wrapped(params: dict[str, Any], report: Report) -> float:
        try:
            for step in range(1, 1000):
                report(step, float(step))
                time.sleep(0.01)
        except BaseException as error:
            raise RuntimeError("the callback failed") from error
        return 0.0

    for name, function in (("grouped", grouped), ("wrapped", wrapped)):
        space = Space([Float("x", 0.0, 1.0)])
        made = Sweep(space, max_trials=3, max_trial_cost=0.05, method="random", name=name, store=store, quiet=True)
        result = made.run(function)
        assert [trial.end for trial in result.trials] == [TrialEnd.CAPPED] * 3
        assert all(trial.score is not None and trial.score > 1.0 for trial in result.trials)


def test_steps_that_begin_anew_are_left_out_of_the_curve(store: str) -> None:
    """As where each epoch counts its batches. The pace of such a curve would say nothing."""

    def epochs(params: dict[str, Any], report: Report) -> float:
        for epoch in range(3):
            for batch in range(1, 101):
                report(batch, epoch + batch / 100)
                time.sleep(0.0005)
        return 3.0

    space = Space([Float("x", 0.0, 1.0)])
    made = Sweep(space, budget=60, max_trials=6, max_trial_cost=6, method="random", name="s", store=store, quiet=True)
    result = made.run(epochs)
    assert [trial.end for trial in result.trials] == [TrialEnd.COMPLETE] * 6
    steps = [point.steps for point in result.trials[5].curve]
    assert steps == sorted(steps)


def test_lines_that_cannot_be_printed_do_not_end_a_sweep(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    def fails(params: dict[str, Any], report: Report) -> float:
        raise ValueError("größe falsch")

    class GoneAscii(Gone):
        def write(self, text: str) -> int:
            text.encode("ascii")
            return super().write(text)

    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    for name, stream in (("gone", Gone()), ("ascii", ascii_only)):
        monkeypatch.setattr(sys, "stdout", stream)
        result = Sweep(SPACE, max_trials=3, method="random", name=name, store=store).run(fails)
        monkeypatch.undo()
        assert len(result.trials) == 3
    monkeypatch.setattr(sys, "stdout", ascii_only)
    function_sweep._Lines(Direction.MAXIMIZE, quiet=False).log("größe falsch")
    monkeypatch.setattr(sys, "stdout", GoneAscii())
    function_sweep._Lines(Direction.MAXIMIZE, quiet=False).log("größe falsch")
    monkeypatch.undo()
    ascii_only.seek(0)
    assert "gr\\xf6\\xdfe falsch" in ascii_only.read()


def test_a_function_may_go_to_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def goes(params: dict[str, Any], report: Report) -> float:
        (tmp_path / "sub").mkdir(exist_ok=True)
        os.chdir(tmp_path / "sub")
        return float(params["lr"])

    here = tmp_path / "p%2Fq ä?"  # as of a build server
    here.mkdir()
    monkeypatch.chdir(here)
    asked: list[str | None] = []  # where the store is read for the results of a very large sweep

    def noted(sweep: SweepRecord, trials: Sequence[TrialRecord], store: str | None) -> Recommendation:
        asked.append(store)
        return recommendation(sweep, trials)

    monkeypatch.setattr(function_sweep, "at_the_end", noted)
    result = Sweep(SPACE, max_trials=3, method="random", name="s", store="x.db", quiet=True).run(goes)
    assert asked == [result.store]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["p%2Fq ä?", "sub"]
    assert not list((tmp_path / "sub").iterdir())
    for store in (here / "x.db", result.store):
        assert len(protein.load("s", store=store).trials) == 3


def width(params: dict[str, Any], report: Report) -> float:
    """A wider network scores more and takes more memory: that of its weights."""
    memory = params["width"] * 4096 * 8 / 1e6
    score = math.log(params["width"]) - (math.log10(params["lr"]) + 2.0) ** 2
    report(1, score, cost_seconds=1.0, metrics={"memory_mb": memory})
    return score


WIDTHS = Space([Integer("width", 8, 4096, scale="log"), Float("lr", 1e-4, 1.0, scale="log")])


def test_a_limit_is_kept_by_what_is_recommended_and_may_change_when_the_sweep_is_resumed(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(require: Any, trials: int) -> tuple[SweepResult, str]:
        result = Sweep(WIDTHS, name="w", store=store, max_trials=trials, require=require).run(width)
        return result, capsys.readouterr().out

    result, out = run({"memory_mb": "<= 16"}, 14)
    assert result.best is not None and result.best.metrics["memory_mb"] <= 16.0
    assert "limits kept with" in result.summary and "breaks memory_mb <= 16" in result.summary
    kept = [trial.number for trial in result.trials if trial.metrics["memory_mb"] <= 16.0]
    assert result.front and all(trial.number in kept for trial in result.front)
    assert main(["best", "w", "--store", store, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["limits"] == ["memory_mb <= 16"] and answer["keeps_limits"] >= 0.5
    for words in (["status", "w"], ["pareto", "w"]):
        assert main([*words, "--store", store, "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        fronts = shown.get("front", [shown.get("best")])
        assert fronts and all(number in kept for number in (one["number"] for one in fronts)), words

    same, out = run(None, 15)
    assert "limits kept with" in same.summary and "from now on" not in out, "those that are stored hold"
    _, out = run("mem_mb <= 8", 15)
    assert "sweep 'w' requires mem_mb <= 8 from now on, and required memory_mb <= 16 before" in out
    assert "no trial reported mem_mb, so nothing is known of 'mem_mb <= 8'; did you mean 'memory_mb'?" in out
    result, out = run("memory_mb <= 0.001", 15)
    assert "no config is likely to keep memory_mb <= 0.001; trial" in out and "is the nearest" in out
    result, out = run([], 15)
    assert "requires nothing from now on" in out and "kept" not in result.summary
    assert run(None, 15)[0].best == result.best


def test_a_limit_on_what_no_trial_reports_is_told_at_once(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    settings: dict[str, Any] = {"store": store, "name": "w", "max_trials": 2, "require": ["memory_gb <= 8"]}
    Sweep(WIDTHS, method="random", **settings).run(width)
    lines = capsys.readouterr().out.splitlines()
    assert any("method 'random' searches without limits; what is recommended keeps them" in line for line in lines)
    [told, at_the_end] = [place for place, line in enumerate(lines) if "no trial reported memory_gb" in line]
    assert told < next(place for place, line in enumerate(lines) if "the limit of 2 trials is reached" in line)
    assert at_the_end > told and "did you mean 'memory_mb'?" in lines[at_the_end]


def test_a_function_is_told_of_each_trial_that_has_ended(tmp_path: Path) -> None:
    told: list[TrialRecord] = []

    def on_trial(trial: TrialRecord) -> None:
        told.append(trial)
        raise ValueError("of no account")

    result = sweep(str(tmp_path / "own.db"), None, max_trials=3, on_trial=on_trial, start=START).run(train)
    assert [(one.number, one.score, one.state) for one in told] == [
        (one.number, one.score, one.state) for one in result.trials
    ]
    with pytest.raises(UsageError, match="on_trial must be a function of a trial, got int 3"):
        sweep(str(tmp_path / "own.db"), on_trial=3)
