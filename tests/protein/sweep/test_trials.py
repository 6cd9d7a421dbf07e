"""Writes whose answer is lost are not made twice; and trials that report nothing cost what they cost in time."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import small_sweep
import store_samples

from protein import Float, Space, Sweep, storage
from protein.cli import main
from protein.errors import StoreUnavailable, TrialLost
from protein.ports import Finished, Store, TrialProgress
from protein.run import process
from protein.run.function import Report
from protein.run.process import ToldCost
from protein.sweep import resuming
from protein.sweep import trials as trials_module
from protein.sweep.trials import SweepTrials
from protein.types import (
    Artifact,
    Measurement,
    Outcome,
    Suggestion,
    SuggestionKind,
    TrialEnd,
    TrialRecord,
    TrialState,
)

SUGGESTION = Suggestion(
    params={"train.learning_rate": 0.1}, kind=SuggestionKind.INITIAL_CONFIG, origin="initial config"
)
DEAD_OWNER = store_samples.ended_owner()
WRITES = ("start_trial", "add_measurements", "finish_trial", "release_trial", "take_up_trial", "interrupt_orphans")


class LosesAnswers:
    """A real store. The first answer of each method in `WRITES` is lost after its commit."""

    def __init__(self, store: Store, *, before_the_commit: bool = False) -> None:
        self._store, self._before = store, before_the_commit
        self.lost: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in WRITES or name in self.lost:
            return method

        def loses_answer(*args: object, **kwargs: object) -> object:
            self.lost.append(name)
            if not self._before:
                method(*args, **kwargs)
            raise StoreUnavailable("the server cannot be used")

        return loses_answer


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protein.sweep.trials.STORE_RETRY_SECONDS", 0.0)


@pytest.fixture(params=["after the commit", "before the commit"])
def losing(request: pytest.FixtureRequest, store: Store) -> LosesAnswers:
    return LosesAnswers(store, before_the_commit=request.param == "before the commit")


@pytest.fixture
def trials(losing: LosesAnswers) -> SweepTrials:
    """The trials of a new sweep; they can wait."""
    sweep = store_samples.new_sweep(cast(Store, losing))
    trials = SweepTrials(sweep, cast(Store, losing), small_sweep.Lines(), threading.Event())
    trials.take_over(sweep.max_cost_seconds)
    return trials


def start(trials: SweepTrials) -> TrialRecord:
    trial = trials.start(SUGGESTION, seed=3, suggest_seconds=0.1, provenance=store_samples.PROVENANCE)
    assert trial is not None
    return trial


def stored(store: Store, trials: SweepTrials) -> list[TrialRecord]:
    return store.trials(trials.sweep.id)


def test_a_trial_whose_start_was_not_answered_is_started_once(
    store: Store, losing: LosesAnswers, trials: SweepTrials
) -> None:
    record = start(trials)
    assert losing.lost == ["interrupt_orphans", "start_trial"]
    [only] = stored(store, trials)
    assert (only.id, only.number, only.params, only.seed) == (record.id, 0, SUGGESTION.params, 3)
    assert trials.running[0].id == only.id
    assert start(trials).number == 1


def test_trials_of_a_dead_process_wait_where_the_answer_was_lost(
    store: Store, losing: LosesAnswers, trials: SweepTrials
) -> None:
    store_samples.start(store, trials.sweep, owner=DEAD_OWNER)
    losing.lost.clear()
    trials.take_over(None)
    assert losing.lost == ["interrupt_orphans"]
    assert trials.waiting == [0]


def test_points_whose_writing_was_not_answered_are_written_once(
    store: Store, losing: LosesAnswers, trials: SweepTrials
) -> None:
    start(trials)
    for points in (store_samples.points(0, 1), store_samples.points(1, 3)):
        losing.lost.clear()
        trials.add(TrialProgress(trial=trials.running[0], measurements=tuple(points)))
        assert losing.lost == ["add_measurements"]
    assert stored(store, trials)[0].curve == tuple(store_samples.points(0, 3))
    assert trials.records[0].curve == tuple(store_samples.points(0, 3))


@pytest.mark.parametrize("artifacts", [(), (Artifact(kind="log", path="/trial.log"),)])
def test_a_trial_whose_end_was_not_answered_has_ended(
    store: Store, losing: LosesAnswers, trials: SweepTrials, artifacts: tuple[Artifact, ...]
) -> None:
    start(trials)
    event = Finished(trial=trials.running[0], outcome=store_samples.complete(2.5), artifacts=artifacts)
    assert trials.finish(event).state is TrialState.COMPLETE
    assert losing.lost == ["interrupt_orphans", "start_trial", "finish_trial"]
    [only] = stored(store, trials)
    assert (only.state, only.score, only.cost_seconds) == (TrialState.COMPLETE, 0.5, 2.5)
    assert only.artifacts == artifacts
    assert not trials.running


def test_a_trial_whose_release_and_taking_up_were_not_answered_goes_on(
    store: Store, losing: LosesAnswers, trials: SweepTrials
) -> None:
    start(trials)
    trials.add(
        TrialProgress(trial=trials.running[0], measurements=(Measurement(steps=4, elapsed_seconds=2.0, score=0.5),))
    )
    outcome = Outcome(end=TrialEnd.INTERRUPTED, reason="preempted: a node died", cost_seconds=5.0)
    assert trials.release(Finished(trial=trials.running[0], outcome=outcome)).state is TrialState.WAITING
    assert trials.waiting == [0]
    assert stored(store, trials)[0].cost_seconds == 5.0

    place = resuming.Place(path=None, steps=4, seconds=2.0)
    record = trials.resume(0, place)
    assert record is not None
    assert trials.running[0].id == record.id
    assert losing.lost == ["interrupt_orphans", *WRITES[:2], "release_trial", "take_up_trial"]
    [only] = stored(store, trials)
    assert only.state is TrialState.RUNNING
    assert (only.steps, only.cost_seconds, only.lost_seconds) == (4, 2.0, 3.0)  # lost once


@pytest.mark.parametrize("change", ["another outcome", "another owner"])
def test_a_trial_that_another_process_has_taken_is_lost(
    store: Store, losing: LosesAnswers, trials: SweepTrials, change: str
) -> None:
    """Repeating a write does not make another process's trial this one's."""
    start(trials)
    losing._before = True  # the first try is not stored, and then another process comes
    trial = trials.running[0]

    store.release_trial(trial, "a node died")
    if change == "another owner":
        store.take_up_trial(trials.sweep.id, 0, "other:1:1.00", 600.0, 0)
    else:
        mine = store.take_up_trial(trials.sweep.id, 0, trial.owner, 600.0, 0)
        store.finish_trial(mine, store_samples.complete(9.0))
    with pytest.raises(TrialLost):
        trials.finish(Finished(trial=trial, outcome=store_samples.complete(2.5)))


# Trials that report nothing until their end: what they cost counts while they run, and is stored in time.

BUDGET_SECONDS = 8.0
LONG = 7.5  # seconds that each of the later silent would take, which is less than it may take alone


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.5)
    monkeypatch.setattr(process, "LEAST_SECONDS", 0.1)


def stored_in(url: str, name: str) -> list[TrialRecord]:
    store = storage.open_store(url)
    try:
        sweep = store.find_sweep(name)
        assert sweep is not None
        return store.trials(sweep.id)
    finally:
        store.close()


def check_the_budget_was_kept(silent: list[TrialRecord]) -> None:
    """The first silent make the others look cheap. So four of those run at once."""
    cut = [trial for trial in silent if trial.end is TrialEnd.OUT_OF_BUDGET]
    assert len(silent) >= 5 and len(cut) == 4
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
    check_the_budget_was_kept(stored_in(url, "f"))


def test_silent_functions_end_at_their_cap(tmp_path: Path) -> None:
    """The cap is a quarter of the budget. Only a process can be ended where the function does not report."""

    def train(params: dict[str, float], report: Report) -> float:
        time.sleep(LONG)
        return params["x"]

    url, space = str(tmp_path / "own.db"), Space([Float("x", 0.0, 1.0)])
    Sweep(space, budget=BUDGET_SECONDS / 2, name="f", method="random", store=url, quiet=True).run(train, workers=2)
    silent = stored_in(url, "f")
    assert len(silent) >= 3 and {trial.end for trial in silent} <= {
        TrialEnd.CAPPED,
        TrialEnd.OUT_OF_BUDGET,
    }
    assert all(trial.cost_seconds < LONG / 2 for trial in silent)


def test_a_program_that_a_function_waits_for_is_ended_with_it(tmp_path: Path) -> None:
    """The function fails then, as its program does. That says nothing about the params."""

    def train(params: dict[str, float], report: Report) -> float:
        subprocess.run([sys.executable, "-c", f"import time; time.sleep({LONG})"], check=True)
        return params["x"]

    url, space = str(tmp_path / "own.db"), Space([Float("x", 0.0, 1.0)])
    Sweep(space, budget=BUDGET_SECONDS / 2, name="f", method="random", store=url, quiet=True).run(train, workers=2)
    assert {trial.end for trial in stored_in(url, "f")} <= {TrialEnd.CAPPED, TrialEnd.OUT_OF_BUDGET}


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
    assert [trial.end for trial in stored_in(url, "f")] == [TrialEnd.COMPLETE] * 4


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
    check_the_budget_was_kept(stored_in("own.db", "c"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = storage.open_store(f"sqlite:///{tmp_path}/protein.db")
    yield opened
    opened.close()


@pytest.fixture
def silent(store: Store) -> SweepTrials:
    """The silent of a new sweep, of which number 0 runs."""
    sweep = small_sweep.find_or_create(store, small_sweep.sweep_spec())
    made = SweepTrials(sweep, store, small_sweep.Lines(), threading.Event())
    made.take_over(None)
    params = {"train.score": 0.5, "train.cost": 0.5}
    suggestion = Suggestion(params=params, kind=SuggestionKind.SEARCH, origin="a test")
    made.start(suggestion, seed=0, suggest_seconds=0.0, provenance=sweep.spec.provenance)
    return made


def test_what_a_silent_trial_has_cost_is_stored_when_its_lease_is_renewed(
    store: Store, silent: SweepTrials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials_module, "RENEW_SECONDS", 0.0)
    told = TrialProgress(trial=silent.running[0], measurements=(), cost_seconds=7.0)
    assert silent.add(told).cost_seconds == 7.0
    assert store.trial(silent.sweep.id, 0).cost_seconds == 0.0, "a write each second would be too many"
    silent.renew_leases()
    store.interrupt_orphans(silent.sweep.id, [silent.running[0].owner], [0])  # as after `kill -9`
    assert store.trial(silent.sweep.id, 0).cost_seconds == 7.0


def test_what_a_trial_does_again_after_an_interruption_costs_what_it_costs(tmp_path: Path, silent: SweepTrials) -> None:
    silent.release(Finished(trial=silent.running[0], outcome=Outcome(end=TrialEnd.INTERRUPTED)))
    silent.resume(0, resuming.Place(path=tmp_path, steps=5, seconds=None))
    again = Measurement(steps=3, elapsed_seconds=40.0, score=1.0)
    trial = silent.add(TrialProgress(trial=silent.running[0], measurements=(again,)))
    assert (trial.curve, trial.cost_seconds) == ((), 40.0)


def test_a_cost_is_told_when_it_has_grown_by_a_second_and_by_a_hundredth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LEAST_SECONDS", 1.0)
    cost = ToldCost()
    assert [cost.news(seconds) for seconds in (0.5, 1.2, 2.0, 2.3, None)] == [None, 1.2, None, 2.3, None]
    assert [cost.news(seconds) for seconds in (1000.0, 1009.0, 1010.5)] == [1000.0, None, 1010.5]
