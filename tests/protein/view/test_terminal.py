"""What is shown of a sweep: live on a terminal of any size, plain lines anywhere else; tables and the picture."""

import dataclasses
import io
import json
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from sample_trials import failed, many, running, status, sweep_record, trial

from protein.engine import pareto
from protein.ports import ConfirmationStatus
from protein.types import (
    CONTINUABLE,
    CONTINUABLE_SECONDS,
    Artifact,
    Estimate,
    SuggestionKind,
    TrialEnd,
    TrialState,
    spent_seconds,
)
from protein.view import data, tables, terminal, text
from protein.view.terminal import progress


def terminal_console(width: int = 80, height: int = 24) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None, legacy_windows=False
    )


def shown(content: object, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=500, color_system=None)
    console.print(content)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(20, 5), (40, 12), (40, 24), (80, 24), (80, 50), (120, 30), (200, 60)])
@pytest.mark.parametrize(("num_finished", "num_running"), [(0, 0), (0, 1), (1, 0), (3, 2), (60, 1), (500, 40)])
def test_the_live_view_fits_the_terminal(width: int, height: int, num_finished: int, num_running: int) -> None:
    trials = many(num_finished) + [running(num_finished + i) for i in range(num_running)]
    lines = shown(terminal.sweep_view(status(trials), width, height, spent_before=0.0), width)
    assert len(lines) < height or height < 10  # what does not fit a tiny one, the live display cuts off
    assert max(map(len, lines)) <= width


def test_the_live_view_shows_budget_running_trials_front_and_best() -> None:
    trials = [*many(20), running(20)]
    now = status(trials, max_cost_seconds=3600.0)
    lines = shown(terminal.sweep_view(now, 100, 50, spent_before=0.0), 100)
    text = "\n".join(lines)
    best = pareto.best_under(trials)
    assert best is not None
    assert re.search(r"^pong: protein sweep of pong; \d+ complete, \d+ capped, \d+ failed$", lines[0])
    assert re.search(r"of 1h00m spent, \d+m\d\ds left, done in about .* \(\d\d:\d\d\)$", lines[2])
    assert "▶ 20   3.00s of ~30.0s" in text
    assert "★" in text
    assert f"best measured: trial {best.number}, score" in text
    assert "train.learning_rate 0.00312345" in text
    stopping = shown(terminal.sweep_view(status(trials, stopping=True), 100, 50, spent_before=0.0), 100)
    ending = "ending the running trials, within 10 s on this machine; Ctrl-C again kills them at once"
    assert ending in stopping


@pytest.mark.parametrize("make", [terminal.PlainWatcher, terminal.LiveWatcher])
def test_the_eta_of_a_resumed_sweep_leaves_out_what_waiting_trials_have_cost(
    make: Callable[[Console], terminal.Watcher],
) -> None:
    """A trial waits that has cost an hour, and a half was lost. In the first minute after that a minute is spent."""
    waits = dataclasses.replace(trial(1, 3600.0, None, state=TrialState.WAITING), end=None, lost_seconds=1800.0)
    before = status([trial(0, 600.0, 1.0), waits], max_cost_seconds=9660.0, elapsed_seconds=0.0)
    runs = dataclasses.replace(waits, state=TrialState.RUNNING, cost_seconds=3660.0)
    after = status([trial(0, 600.0, 1.0), runs], max_cost_seconds=9660.0, elapsed_seconds=60.0)
    console = terminal_console(100, 40)
    with make(console) as watcher:
        watcher.update(before)
        watcher.finished(dataclasses.replace(trial(1, 3660.0, 2.0), lost_seconds=1800.0), after)
    assert isinstance(console.file, io.StringIO)
    assert "done in about 1h00m" in console.file.getvalue()


def test_the_eta_goes_by_what_this_process_has_spent() -> None:
    trials = [trial(0, 100.0, 1.0), trial(1, 50.0, 1.0)]
    now = progress(status(trials, max_cost_seconds=450.0, elapsed_seconds=60.0), spent_before=100.0)
    assert (now.spent_seconds, now.left_seconds) == (150.0, 300.0)
    assert now.eta_seconds == pytest.approx(300.0 * 60.0 / 50.0)
    assert now.line() == "2m30s of 7m30s spent, 5m00s left, done in about 6m00s"
    few = status(trials, max_cost_seconds=450.0, elapsed_seconds=60.0, max_trials=4)
    assert progress(few, spent_before=100.0).eta_seconds == pytest.approx(150.0 * 60.0 / 50.0), "two more of 75 s"
    no_budget = status(trials, max_cost_seconds=None, elapsed_seconds=60.0, max_trials=4)
    assert progress(no_budget, spent_before=100.0).line().startswith("2m30s spent, no budget set, done in about ")
    early = progress(status(trials, max_cost_seconds=450.0), spent_before=150.0)
    assert early.line() == "2m30s of 7m30s spent, 5m00s left"
    over = progress(status(trials, max_cost_seconds=120.0), spent_before=0.0)
    assert over.line() == "2m30s of 2m00s spent, 0.00s left"
    assert progress(status(trials, max_cost_seconds=None), 0.0).line() == "2m30s spent, no budget set"
    # A confirmation is paid beside the search. While contenders are run again, the progress is that of these runs.
    again = dataclasses.replace(trial(2, 70.0, 1.0), kind=SuggestionKind.REEVALUATION)
    beside = status([*trials, again], max_cost_seconds=450.0, elapsed_seconds=60.0)
    assert progress(beside, spent_before=100.0).line() == now.line()
    confirming = ConfirmationStatus(
        sure=0.6, settled=False, runs=1, spent_seconds=70.0, limit_seconds=120.0, expected_seconds=80.0
    )
    line = progress(dataclasses.replace(beside, confirmation=confirming), spent_before=100.0).line()
    assert line == "1m10s of 2m00s spent, 50.0s left, done in about 50.0s"


def test_on_a_terminal_finished_trials_scroll_by_above_the_live_view() -> None:
    console = terminal_console()
    watcher = terminal.make_watcher(console)
    assert isinstance(watcher, terminal.LiveWatcher)
    with watcher:
        for i in range(3):
            now = status([trial(j, 10.0, float(j)) for j in range(i)] + [running(i)])
            watcher.started(running(i))
            watcher.update(now)
            done = trial(i, 10.0, float(i))
            watcher.finished(done, status([trial(j, 10.0, float(j)) for j in range(i + 1)]))
        watcher.log("the store refused a write")
    assert isinstance(console.file, io.StringIO)
    written = console.file.getvalue()
    for i in range(3):
        assert f"trial {i}: score {i}.000 in 10.0s" in written
    assert "the store refused a write" in written
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 1  # the cursor comes back


@pytest.mark.parametrize("is_verbose", [True, False])
def test_without_a_terminal_each_event_is_one_plain_line(is_verbose: bool) -> None:
    file = io.StringIO()
    watcher = terminal.make_watcher(tables.make_console(file), is_verbose=is_verbose)
    assert isinstance(watcher, terminal.PlainWatcher)
    with watcher:
        watcher.update(status([trial(0, 30.0, 5.0)], elapsed_seconds=0.5))
        watcher.started(running(1))
        watcher.update(status([trial(0, 30.0, 5.0), running(1)]))
        done = trial(1, 40.0, 9.0, predicted=True)
        watcher.finished(done, status([trial(0, 30.0, 5.0), done], elapsed_seconds=80.0, max_cost_seconds=110.0))
        watcher.log("the store refused a write")
        for _ in range(2):
            watcher.update(status([done, running(2)], stopping=True))
    ended = (
        "trial 1: score 9.000, predicted 10.00 (8.000 to 11.50), off by -1.000 (0.6 sd), in 40.0s, predicted 30.0s, off"
        " by +33 % (1.3 sd); improving the front near 30 s; 1m10s of 1m50s spent, 40.0s left, done in about 1m20s"
        if is_verbose
        else "trial 1: score 9.000 in 40.0s (predicted 10.00 in 30.0s); 1m10s of 1m50s spent, done in about 1m20s"
    )
    assert [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in file.getvalue().splitlines()] == [
        "trial 1 started: improving the front near 30 s, about 30.0s",
        ended,
        "the store refused a write",
        "ending the running trials, within 10 s on this machine; Ctrl-C again kills them at once",
    ]


@given(
    number=st.integers(0, 10**6),
    seconds=st.floats(0.001, 1e6),
    score=st.floats(-1e12, 1e12),
    words=st.text(max_size=300),
    state=st.sampled_from([TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAILED]),
    budget=st.none() | st.floats(1.0, 1e7),
)
@settings(max_examples=60)
def test_plain_lines_about_a_trial_are_shorter_than_120_characters(
    number: int, seconds: float, score: float, words: str, state: TrialState, budget: float | None
) -> None:
    reason = "" if state is TrialState.COMPLETE else words
    end = {
        TrialState.COMPLETE: TrialEnd.COMPLETE,
        TrialState.PRUNED: TrialEnd.STOPPED_EARLY,
        TrialState.FAILED: TrialEnd.CRASHED,
    }[state]
    changes: dict[str, Any] = {"number": number, "origin": words, "reason": reason, "state": state, "end": end}
    if state is TrialState.FAILED:
        changes |= {"score": None, "predicted_score": None}
    done = dataclasses.replace(trial(1, seconds, score, predicted=True), **changes)
    file = io.StringIO()
    with terminal.make_watcher(tables.make_console(file)) as watcher:
        watcher.started(dataclasses.replace(running(1), number=number, origin=words))
        watcher.finished(done, status([done], elapsed_seconds=seconds, max_cost_seconds=budget))
    started, finished = file.getvalue().split("\n")[:2]
    assert max(map(len, (started, finished))) < 120 and file.getvalue().count("\n") == 2
    assert f"trial {number} started:" in started and f"trial {number}: " in finished and " spent" in finished


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
def test_tables_drop_columns_before_they_cut_a_number(width: int) -> None:
    trials = [*many(30), running(30), failed(31, 2.0, "interrupted")]
    front = pareto.front(trials)
    made: list[Callable[[int], object]] = [
        lambda width: tables.trials(trials, width),
        lambda width: tables.front(front, width),
        lambda width: tables.sweeps([(sweep_record(), trials), (sweep_record("b", None), [])], width),
    ]
    for make in made:
        lines = shown(make(width), width)
        assert max(map(len, lines)) <= width
        assert not any("…" in word for line in lines[1:] for word in re.findall(r"[\d.…]*\d[\d.…]*s?\b…?", line)[:2])
    scores = [text.score(record.score) for record in front]
    cells = [line.split() for line in shown(tables.front(front, width), width)[1:]]
    assert [cell[2] for cell in cells] == scores


@pytest.mark.parametrize("name", ["n" * 100, "数据" * 8, "🎉 имя"])
@pytest.mark.parametrize("width", [40, 60, 80])
def test_long_and_wide_names_neither_push_out_numbers_nor_cut_them(name: str, width: int) -> None:
    found = [(sweep_record(), many(20)), (sweep_record(name), many(20))]
    _, first, second = shown(tables.sweeps(found, width), width)
    assert cell_len(second) <= width
    best = pareto.best_under(many(20))
    assert best is not None
    numbers = first.split()[1:]
    assert text.score(best.score) in numbers and second.split()[-len(numbers) :] == numbers


def test_a_table_of_trials_without_curves_has_no_column_for_them() -> None:
    trials = [dataclasses.replace(one, curve=()) for one in many(20)]
    assert "curve" not in "".join(shown(tables.trials(trials, 200), 200))
    narrow = shown(tables.trials(trials, 40), 40)
    assert narrow[0].split() == ["trial", "state", "score", "cost"]


def test_gains_of_a_front_are_improvements_also_where_lower_is_better() -> None:
    for scores in ((5.0, 5.25), (5.25, 5.0)):
        rows = shown(tables.front([trial(i, 1.0 + i, score) for i, score in enumerate(scores)], 200), 200)
        assert re.search(r"^ +1 +2.00s +5.(000|250) +\+0.250 +best measured", rows[2])


def test_watchers_clip_predictions_to_the_possible_scores() -> None:
    high = dataclasses.replace(trial(1, 30.0, 18.69), predicted_score=Estimate(value=22.0, low=15.89, high=25.0))
    said = "score 18.69, predicted 21.00 (15.89 to 21.00), off by -2.31 "
    for console in (terminal_console(), tables.make_console(io.StringIO())):
        with terminal.make_watcher(console, (-21.0, 21.0), is_verbose=True) as watcher:
            watcher.finished(high, status([high]))
        assert isinstance(console.file, io.StringIO)
        assert said in " ".join(console.file.getvalue().split())


def test_what_was_watched_during_training_is_not_called_outside_of_the_cost() -> None:
    usage = {"wall": 31.0, "cpu": 60.0, "waited": 4.0, "others": 9.0}
    record = dataclasses.replace(trial(7, 31.5, 9.5), timings={"startup": 2.0, **usage})
    text = " ".join(" ".join(shown(tables.trial(record, 100), 100)).split())
    assert "startup (not in cost) 2.00s" in text and text.count("not in cost") == 1
    on_gpu = dataclasses.replace(record, metrics={"on_gpu": 1.0})
    assert "device GPU" in " ".join(" ".join(shown(tables.trial(on_gpu, 100), 100)).split())
    for fact in ("on the clock 31.0s", "CPU time 1m00s", "waited for a busy core 4.00s", "other programs 9.00s"):
        assert fact in text


def test_everything_about_a_trial_is_shown() -> None:
    text = " ".join(" ".join(shown(tables.trial(trial(7, 31.5, 9.5, predicted=True), 100), 100)).split())
    for fact in (
        "trial 7",
        "origin improving the front near 30 s",
        "score 9.500 predicted 10.00 (8.000 to 11.50)",
        "cost 31.5s of training predicted 30.0s (25.0s to 40.0s)",
        "steps 31,500",
        "startup (not in cost) 2.00s",
        "seed 107",
        "started 2026-03-04 18:07:00 UTC",
        "version 0.1.0, commit abc",
        "config hash " + "f" * 64,
        "checkpoint /runs/pong/0001/checkpoint.safetensors",
        "train.learning_rate 0.00312345",
        "█",
    ):
        assert fact in text
    bare = dataclasses.replace(failed(0, 0.0, "exited with code 1"), curve=())
    assert "no score was measured" in "\n".join(shown(tables.trial(bare, 40), 40))


def test_data_is_json_and_complete() -> None:
    trials = [*many(12), running(12), failed(13, 2.0, "interrupted")]
    sweep = json.loads(json.dumps(data.sweep(sweep_record(), trials), allow_nan=False))
    assert sweep["trials"] == {
        "running": 1,
        "waiting": 0,
        "complete": 10,
        "pruned": 1,
        "stopped_early": 0,
        "capped": 1,
        "out_of_budget": 0,
        "failed": 1,
        "interrupted": 1,
    }
    assert sweep["spent_seconds"] == pytest.approx(math.fsum(record.cost_seconds for record in trials))
    assert data.sweep(sweep_record(), [])["best"] is None
    one = json.loads(json.dumps(data.trial(trials[9], curve=True), allow_nan=False))
    assert one["predicted_score"] == {"value": 10.0, "low": 8.0, "high": 11.5}
    assert len(one["curve"]) == 20
    assert one["started_at"] == "2026-03-04T18:09:00+00:00"
    assert "curve" not in data.trial(trials[9], curve=False)


def test_counts_keep_interrupted_apart_from_failed() -> None:
    trials = [trial(0, 1.0, 1.0), failed(1, 1.0), failed(2, 1.0, "interrupted"), running(3)]
    trials.append(trial(4, 1.0, 1.0, state=TrialState.PRUNED))
    of = data.counts(trials)
    assert (of.complete, of.failed, of.interrupted, of.running, of.pruned, of.finished) == (1, 1, 1, 1, 1, 4)


def test_trials_stopped_early_are_told_apart_from_capped_ones() -> None:
    early = trial(0, 1.0, 1.0, state=TrialState.PRUNED, reason="stopped early: last of 20")
    capped = trial(1, 1.0, 1.0, state=TrialState.PRUNED, reason="stopped at its cost cap")
    poor = trial(2, 1.0, 1.0, state=TrialState.PRUNED, reason="stopped at the end of the sweep's budget")
    assert data.counts([early, capped, poor]).ends() == ["1 stopped early", "1 capped", "1 out of budget"]
    assert [tables.state(t) for t in (early, capped, poor)] == ["stopped early", "capped", "out of budget"]
    rows = shown(tables.trials([early, capped], 200), 200)
    assert rows[1].rstrip().endswith("stopped early: last of 20")
    assert rows[2].rstrip().endswith(capped.origin)


def test_a_continued_trial_shows_its_own_cost_and_on_the_front_that_of_its_run() -> None:
    first = trial(0, 30.0, 5.0)
    leg = dataclasses.replace(trial(1, 10.0, 9.0), continues=0, continued_seconds=30.0)
    rows = shown(tables.trials([first, leg], 200), 200)
    assert re.search(r"^0 -> 1 +complete +9\.000 +- +10\.0s", rows[2])
    rows = shown(tables.front(pareto.front([leg, first]), 200), 200)
    assert re.search(r"^ +0 +30\.0s +5\.000", rows[1]) and re.search(r"^ +1 +40\.0s +9\.000", rows[2])
    assert "continues trial 0, after 30.0s of training cost 10.0s" in " ".join(
        " ".join(shown(tables.trial(leg, 100), 100)).split()
    )
    one = data.trial(leg, curve=False)
    assert (one["continues"], one["cost_seconds"], one["run_seconds"]) == (0, 10.0, 40.0)
    assert spent_seconds([first, leg]) == 40.0
    parts = [dataclasses.replace(first, cost_seconds=cost, lost_seconds=0.0) for cost in (0.08, 0.04, 0.1)]
    assert spent_seconds(parts) == spent_seconds(parts[::-1]) == 0.22  # and not .22000000000000003


def test_what_a_longer_run_goes_on_from_is_said_in_words() -> None:
    state = Artifact(kind=CONTINUABLE, path="/runs/7/stable.safetensors")
    kept = dataclasses.replace(
        trial(7, 31.5, 9.5), artifacts=(state,), metrics={CONTINUABLE_SECONDS: 25.2, "loss": 0.5}
    )
    lines = [" ".join(line.split()) for line in shown(tables.trial(kept, 120), 120)]
    assert "can go on from /runs/7/stable.safetensors, the state after 25.2s of this trial's training" in lines
    assert "loss 0.500" in lines and not any("continuable" in line for line in lines)
