"""Trials that report nothing until their end: what they cost counts while they run, and is stored in time."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import small_sweep

from protein import Float, Space, Sweep, storage
from protein.cli import main
from protein.ports import Finished, Store, TrialProgress
from protein.run import process
from protein.run.function import Report
from protein.run.process import ToldCost
from protein.sweep import resuming
from protein.sweep import trials as trials_module
from protein.sweep.trials import SweepTrials
from protein.types import Measurement, Outcome, Suggestion, SuggestionKind, TrialEnd, TrialRecord

BUDGET_SECONDS = 8.0
LONG = 7.5  # seconds that each of the later trials would take, which is less than it may take alone


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.5)
    monkeypatch.setattr(process, "LEAST_SECONDS", 0.1)


def stored(url: str, name: str) -> list[TrialRecord]:
    store = storage.open_store(url)
    try:
        sweep = store.find_sweep(name)
        assert sweep is not None
        return store.trials(sweep.id)
    finally:
        store.close()


def check_the_budget_was_kept(trials: list[TrialRecord]) -> None:
    """The first trials make the others look cheap. So four of those run at once."""
    cut = [trial for trial in trials if trial.end is TrialEnd.OUT_OF_BUDGET]
    assert len(trials) >= 5 and len(cut) == 4
    assert all(trial.cost_seconds < LONG for trial in cut)


def test_silent_functions_spend_the_budget_together(tmp_path: Path) -> None:
    def train(params: dict[str, float], report: Report) -> float:
        with (tmp_path / "count").open("a") as count:
            count.write(".")
        time.sleep(0.05 if (tmp_path / "count").stat().st_size <= 3 else LONG)
        return params["x"]

    url = str(tmp_path / "own.db")
    space = Space([Float("x", 0.0, 1.0)])
    sweep = Sweep(
        space, budget=BUDGET_SECONDS, max_trial_cost=BUDGET_SECONDS, name="f", method="random", store=url, quiet=True
    )
    sweep.run(train, workers=4)
    check_the_budget_was_kept(stored(url, "f"))


def test_silent_functions_end_at_their_cap(tmp_path: Path) -> None:
    """The cap is a quarter of the budget. Only a process can be ended where the function does not report."""

    def train(params: dict[str, float], report: Report) -> float:
        time.sleep(LONG)
        return params["x"]

    url, space = str(tmp_path / "own.db"), Space([Float("x", 0.0, 1.0)])
    Sweep(space, budget=BUDGET_SECONDS / 2, name="f", method="random", store=url, quiet=True).run(train, workers=2)
    trials = stored(url, "f")
    assert len(trials) >= 3 and {trial.end for trial in trials} <= {TrialEnd.CAPPED, TrialEnd.OUT_OF_BUDGET}
    assert all(trial.cost_seconds < LONG / 2 for trial in trials)


def test_a_program_that_a_function_waits_for_is_ended_with_it(tmp_path: Path) -> None:
    """The function fails then, as its program does. That says nothing about the params."""

    def train(params: dict[str, float], report: Report) -> float:
        subprocess.run([sys.executable, "-c", f"import time; time.sleep({LONG})"], check=True)
        return params["x"]

    url, space = str(tmp_path / "own.db"), Space([Float("x", 0.0, 1.0)])
    Sweep(space, budget=BUDGET_SECONDS / 2, name="f", method="random", store=url, quiet=True).run(train, workers=2)
    assert {trial.end for trial in stored(url, "f")} <= {TrialEnd.CAPPED, TrialEnd.OUT_OF_BUDGET}


def test_a_function_that_reports_its_costs_late_is_not_ended_by_the_clock(tmp_path: Path) -> None:
    """From its first report on: it is known then that the clock says nothing of its costs."""

    def train(params: dict[str, float], report: Report) -> float:
        number = int(report.directory.name)
        time.sleep(0.1 if number == 0 else 1.5)  # the cap is a second
        report(1, params["x"], cost_seconds=0.01)
        return params["x"]

    url, space = str(tmp_path / "own.db"), Space([Float("x", 0.0, 1.0)])
    sweep = Sweep(space, budget=4.0, max_trials=4, name="f", method="random", store=url, quiet=True)
    sweep.run(train, workers=2)
    assert [trial.end for trial in stored(url, "f")] == [TrialEnd.COMPLETE] * 4


def test_silent_commands_spend_the_budget_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "space.toml").write_text("[space]\nx = { min = 0.0, max = 1.0 }\n")
    (tmp_path / "train.py").write_text(
        "import pathlib, time\n"
        "count = pathlib.Path('count')\n"
        "with count.open('a') as file: file.write('.')\n"
        f"time.sleep(0.05 if count.stat().st_size <= 3 else {LONG})\n"
        "print('{\"score\": 1.0}')\n"
    )
    words = ["sweep", "--command", f"{sys.executable} -S train.py {{x}}", "--space", "space.toml", "--name", "c"]
    words += ["--max-cost", f"{BUDGET_SECONDS}s", "--max-trial-cost", f"{BUDGET_SECONDS}s", "--workers", "4"]
    assert main([*words, "--method", "random", "--store", "own.db", "--calibrate", "False"]) == 0
    check_the_budget_was_kept(stored("own.db", "c"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = storage.open_store(f"sqlite:///{tmp_path}/protein.db")
    yield opened
    opened.close()


@pytest.fixture
def trials(store: Store) -> SweepTrials:
    """The trials of a new sweep, of which number 0 runs."""
    sweep = small_sweep.find_or_create(store, small_sweep.sweep_spec())
    made = SweepTrials(sweep, store, small_sweep.Lines(), threading.Event())
    made.take_over(None)
    params = {"train.score": 0.5, "train.cost": 0.5}
    suggestion = Suggestion(params=params, kind=SuggestionKind.SEARCH, origin="a test")
    made.start(suggestion, seed=0, suggest_seconds=0.0, provenance=sweep.spec.provenance)
    return made


def test_what_a_silent_trial_has_cost_is_stored_when_its_lease_is_renewed(
    store: Store, trials: SweepTrials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials_module, "RENEW_SECONDS", 0.0)
    told = TrialProgress(trial=trials.running[0], measurements=(), cost_seconds=7.0)
    assert trials.add(told).cost_seconds == 7.0
    assert store.trial(trials.sweep.id, 0).cost_seconds == 0.0, "a write each second would be too many"
    trials.renew_leases()
    store.interrupt_orphans(trials.sweep.id, [trials.running[0].owner], [0])  # as after `kill -9`
    assert store.trial(trials.sweep.id, 0).cost_seconds == 7.0


def test_what_a_trial_does_again_after_an_interruption_costs_what_it_costs(tmp_path: Path, trials: SweepTrials) -> None:
    trials.release(Finished(trial=trials.running[0], outcome=Outcome(end=TrialEnd.INTERRUPTED)))
    trials.resume(0, resuming.Place(path=tmp_path, steps=5, seconds=None))
    again = Measurement(steps=3, elapsed_seconds=40.0, score=1.0)
    trial = trials.add(TrialProgress(trial=trials.running[0], measurements=(again,)))
    assert (trial.curve, trial.cost_seconds) == ((), 40.0)


def test_a_cost_is_told_when_it_has_grown_by_a_second_and_by_a_hundredth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LEAST_SECONDS", 1.0)
    cost = ToldCost()
    assert [cost.news(seconds) for seconds in (0.5, 1.2, 2.0, 2.3, None)] == [None, 1.2, None, 2.3, None]
    assert [cost.news(seconds) for seconds in (1000.0, 1009.0, 1010.5)] == [1000.0, None, 1010.5]
