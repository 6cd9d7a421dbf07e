"""What `status`, `pause`, `resume`, `stop` and `cancel` say of a sweep that runs, is paused, ended or was killed."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import small_sweep
import store_samples
from commands import Run
from starlette.routing import Router

from protein import storage
from protein.errors import UsageError
from protein.ports import Store
from protein.run.lease import current_owner
from protein.sweep import ownership as alive_module
from protein.sweep.ownership import Alive, Life, alive, refuse_beside
from protein.types import Outcome, Request, Suggestion, SuggestionKind, SweepRecord, Trial, TrialEnd
from protein.web.pages import sweeps as home_page
from protein.web.report import ask, finished
from protein.web.viewer import Viewer

URL = "sqlite:///runs/protein.db"
HERE = current_owner()
DEAD = store_samples.ended_owner()
ELSEWHERE = "other-host:12:3.00"
PROCESS = f"process {os.getpid()}"
RESUME = "until protein resume s"
PAUSED_LATER = f"'s' is paused: when it is run again, no trial starts {RESUME}"
KILLED = f"was killed: {PROCESS} is gone"


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    (folder / "runs").mkdir()
    opened = storage.open_store(URL)
    opened.create_sweep(small_sweep.sweep_spec(), None)
    yield opened
    opened.close()


@pytest.fixture
def run(store: Store, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


def sweep(store: Store) -> SweepRecord:
    [found] = store.list_sweeps()
    return found


def start(store: Store, owner: str, *, lease_seconds: float = 60.0) -> Trial:
    return store.start_trial(
        1,
        Suggestion(params={"train.score": 0.5, "train.cost": 0.5}, kind=SuggestionKind.RANDOM, origin="test"),
        seed=0,
        owner=owner,
        lease_seconds=lease_seconds,
        suggest_seconds=0.0,
        provenance=sweep(store).spec.provenance,
    )


def finish(store: Store, trial: Trial) -> None:
    store.finish_trial(trial, Outcome(end=TrialEnd.COMPLETE, score=0.5, cost_seconds=1.0, steps=1))


def status(run: Run) -> list[str]:
    """Returns the lines below the table, and checks that the page Home says those of the sweep, too."""
    said = run("status").splitlines()[2:]
    opened = storage.open_store(URL)
    viewer = Viewer(opened, URL, threading.Event(), watched=False)
    page = finished(ask(Router(home_page.routes(viewer)), "/home"))
    opened.close()
    lines = [line.removeprefix("'s'").removeprefix(":").strip() for line in said if not line.startswith("trial ")]
    told = "; ".join(line.removeprefix("ended: ") for line in lines)
    [row] = page["rows"]
    assert (row[page["shown"].index("why")] or "") == told
    return said


def test_a_sweep_that_runs_is_paused_goes_on_and_stops(store: Store, run: Run) -> None:
    trial = start(store, HERE)
    assert status(run) == []
    then = f"running trials go on to their end, and no other starts {RESUME}"
    assert run("pause") == f"sweep 's' is paused: {then}\n"
    assert status(run) == [f"'s' is paused: {then} ({PROCESS})"]
    finish(store, trial)
    assert status(run) == [f"'s' is paused: no trial starts {RESUME} ({PROCESS})"], "its process lives, and waits"
    assert run("pause") == f"sweep 's' was paused already: no trial starts {RESUME}\n"
    assert run("resume") == "sweep 's' goes on: trials start again within seconds\n"
    assert run("resume") == "sweep 's' was not paused: it runs\n"
    assert status(run) == [f"'s' runs, but none of its trials does now ({PROCESS})"]
    assert run("stop") == "sweep 's' is asked to stop\n" and sweep(store).requested is Request.STOP
    assert status(run) == [f"'s' was asked to stop: {PROCESS} follows within seconds"]


def test_a_sweep_that_has_ended_says_why_and_cannot_be_stopped(store: Store, run: Run) -> None:
    finish(store, start(store, HERE))
    store.set_ended(1, "the budget is spent")
    why = "it ended: the budget is spent"
    assert status(run) == ["'s' ended: the budget is spent"]
    assert run("stop") == f"sweep 's' does not run, so there is nothing to stop: {why}\n"
    assert sweep(store).requested is Request.RUN
    later = f"no process runs it ({why})"
    assert run("pause") == f"sweep 's' is paused, but {later}: when it runs, no trial starts {RESUME}\n"
    assert status(run) == ["'s' ended: the budget is spent", PAUSED_LATER]
    again = "run its command again to go on, with a larger limit if it has reached one"
    assert run("resume") == f"sweep 's' is not paused any more, but {later}; {again}\n"
    assert run("resume") == f"sweep 's' was not paused, but {later}; {again}\n"


def test_a_sweep_that_was_killed_is_not_said_to_run(store: Store, run: Run) -> None:
    start(store, DEAD)
    again = "run its command again to go on"
    interrupted = "trial 0 of 's' was interrupted: its process is gone"
    assert status(run) == [interrupted, f"'s' {KILLED}; {again}"]
    assert run("stop") == f"sweep 's' does not run, so there is nothing to stop: it {KILLED}\n"
    run("pause")
    assert status(run) == [interrupted, f"'s' {KILLED}; {again}", PAUSED_LATER]
    [plain] = run.json("status --json")
    assert (plain["life"], plain["interrupted"]) == ("gone", [0])
    assert plain["notes"] == [f"'s' {KILLED}; {again}", PAUSED_LATER]
    assert run("resume") == f"sweep 's' is not paused any more, but no process runs it (it {KILLED}); {again}\n"
    assert run("cancel s --trial 0") == (
        "trial 0 of sweep 's' is cancelled: its process is gone, so it ends when the sweep is run again\n"
    )


def test_a_sweep_whose_last_process_is_gone_may_be_run_by_another(store: Store, run: Run) -> None:
    """It was killed while it was paused; one that waits to go on has started no trial, so nothing names it."""
    finish(store, start(store, DEAD))
    store.request(1, Request.PAUSE)
    gone = f"no trial runs, and {PROCESS}, which ran the last one, is gone"
    assert status(run) == [f"'s': {gone}; run its command again to go on", PAUSED_LATER]
    assert run("stop") == f"sweep 's' is asked to stop: {gone}\n" and sweep(store).requested is Request.STOP


def test_a_process_is_known_to_run_a_sweep_whose_last_trial_waits(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(store, start(store, HERE))
    store.release_trial(start(store, HERE), "preempted")
    assert alive(store, sweep(store)) == Alive(Life.RUNS, HERE)
    monkeypatch.setattr(alive_module, "current_owner", lambda: "another process")
    with pytest.raises(UsageError, match=f"{PROCESS}"):
        refuse_beside(store, sweep(store))


def test_a_process_whose_only_trial_waits_is_not_known(store: Store) -> None:
    store.release_trial(start(store, HERE), "preempted")
    assert alive(store, sweep(store)).life is Life.UNKNOWN


@pytest.mark.parametrize(
    ("lease_seconds", "life"), [(60.0, Life.RUNS), (0.001, Life.UNKNOWN)], ids=["holds its lease", "is silent"]
)
def test_a_process_of_another_machine_is_known_by_its_lease(store: Store, lease_seconds: float, life: Life) -> None:
    start(store, ELSEWHERE, lease_seconds=lease_seconds)
    while life is Life.UNKNOWN and store.live_trials(1):
        pass
    now = alive(store, sweep(store))
    assert now.life is life and now.process() == "process 12 on other-host"


def test_a_sweep_without_trials_is_not_said_to_have_ended(store: Store, run: Run) -> None:
    assert alive(store, sweep(store)).life is Life.NONE
    assert status(run) == []
    assert run("pause") == f"sweep 's' is paused, but it has no trial yet: when it runs, no trial starts {RESUME}\n"
