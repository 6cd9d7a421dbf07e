"""What every backend must do, whatever the trial does. See `protein.ports.Backend`.

A function of the user's cannot be killed: what only a process promises is asked of processes alone, below.
"""

import contextlib
import dataclasses
import os
import platform
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from backend_trials import TRIAL, behave, job, run, wait
from patience import PATIENCE_SECONDS, left_behind, wait_until

from protein.ports import Backend, Finished, Job, TrialProgress
from protein.run.fleet import Fleet
from protein.run.function import FunctionBackend, FunctionProcesses, Report, run_trial
from protein.run.process import ProcessBackend
from protein.run.trainer import TrainerBackend
from protein.types import CONTINUABLE, CONTINUABLE_SECONDS, Direction, TrialEnd, TrialState


def test_a_good_trial_reports_its_curve_and_result(backend: Backend, tmp_path: Path) -> None:
    progress, finished = run(backend, job(tmp_path))
    points = [point for event in progress for point in event.measurements]
    assert [(point.steps, point.score) for point in points] == [(1, 1.0), (2, None), (3, 1.0)]
    assert points[0].metrics == {"loss": 0.5}
    outcome = finished[0].outcome
    assert (outcome.state, outcome.score, outcome.cost_seconds, outcome.steps) == (TrialState.COMPLETE, 2.0, 0.3, 3)


def test_a_trial_goes_on_from_what_another_one_has_left(backend: Backend, tmp_path: Path) -> None:
    """Its score counts the trials of its run."""
    _, finished = run(backend, job(tmp_path, behaviour="kept"))
    for number in (1, 2):
        left = [one for one in finished[number - 1].artifacts if one.kind == CONTINUABLE]
        assert 0.0 < finished[number - 1].outcome.metrics[CONTINUABLE_SECONDS] <= 0.3
        _, more = run(
            backend, dataclasses.replace(job(tmp_path, number, behaviour="kept"), continues=Path(left[0].path))
        )
        assert more[number].outcome.score == 1.0 + number
        finished |= more


def test_a_trial_that_leaves_nothing_to_go_on_from_says_nothing(backend: Backend, tmp_path: Path) -> None:
    _, finished = run(backend, job(tmp_path))
    assert CONTINUABLE not in {artifact.kind for artifact in finished[0].artifacts}
    assert CONTINUABLE_SECONDS not in finished[0].outcome.metrics


def test_files_of_an_earlier_sweep_in_the_same_folder_are_nothing_to_go_on_from(
    backend: Backend, tmp_path: Path
) -> None:
    for number, behaviour in enumerate(("good", "kept")):
        one = job(tmp_path, number, behaviour=behaviour)
        (one.directory / "nested").mkdir(parents=True)
        for name in ("state", "nested/state"):
            (one.directory / name).write_text("x")
        _, finished = run(backend, one)
        kinds = {artifact.kind for artifact in finished[number].artifacts}
        assert (CONTINUABLE in kinds) is (behaviour == "kept"), "what was written again is its own"


def test_a_trials_folder_that_is_a_symbolic_link_is_refused(backend: Backend, tmp_path: Path) -> None:
    """It may lead anywhere. Nothing is written through it, and other trials go on."""
    outside, runs = tmp_path / "outside", tmp_path / "runs"
    for folder in (outside, runs):
        folder.mkdir()
    (runs / "0").symlink_to(outside)
    with pytest.raises(OSError) as caught:
        backend.start(job(runs, 0, behaviour="kept"))
    assert caught.value.strerror == f"it is a symbolic link to {outside}, which nothing is written through"
    assert not list(outside.iterdir())
    _, finished = run(backend, job(runs, 1))
    assert finished[1].outcome.state is TrialState.COMPLETE


def test_what_a_link_in_a_functions_folder_leads_to_is_nothing_to_go_on_from(tmp_path: Path) -> None:
    one, outside = job(tmp_path), tmp_path / "outside"
    outside.write_text("x")
    one.directory.mkdir()
    (one.directory / "link").symlink_to(outside)

    def writes(params: dict[str, Any], report: Report) -> float:
        outside.write_text("more")
        if params["train"] == "kept":
            (report.directory / "state").write_text("x")
        return 1.0

    for behaviour in ("good", "kept"):
        trial = dataclasses.replace(one.trial, params={"train": behaviour})
        this = dataclasses.replace(one, trial=trial)
        ended = run_trial(writes, Direction.MAXIMIZE, this, Report(this, Direction.MAXIMIZE, lambda _: None))
        kinds = {artifact.kind for artifact in ended.finished.artifacts}
        assert (CONTINUABLE in kinds) is (behaviour == "kept")


def test_a_process_tells_what_was_no_training_and_leaves_its_files(trainers: Backend, tmp_path: Path) -> None:
    _, finished = run(trainers, job(tmp_path))
    outcome = finished[0].outcome
    assert outcome.timings["evaluation"] == 0.1
    assert outcome.timings["startup"] > 0
    assert {artifact.kind for artifact in finished[0].artifacts} == {"config", "log", "checkpoint"}
    assert all(Path(artifact.path).is_file() for artifact in finished[0].artifacts)


@pytest.mark.parametrize(
    ("behaviour", "reason", "cost"),
    [
        ("diverge", "the loss is NaN at step 2", 0.7),
        ("nan", "score", 0.2),
    ],
)
def test_a_failure_ends_that_trial_alone_with_its_reason_and_real_cost(
    backend: Backend, tmp_path: Path, behaviour: str, reason: str, cost: float
) -> None:
    _, finished = run(backend, job(tmp_path, 0, behaviour=behaviour), job(tmp_path, 1))
    outcome = finished[0].outcome
    assert (outcome.state, outcome.score, outcome.cost_seconds) == (TrialState.FAILED, None, cost)
    assert reason in outcome.reason
    assert finished[1].outcome.state is TrialState.COMPLETE


@pytest.mark.parametrize(
    ("behaviour", "end", "reason"),
    [
        ("crash", TrialEnd.CRASHED, "killed by SIGSEGV"),
        ("exit", TrialEnd.CRASHED, "exited with code 3 and no result: the last words"),
        ("diverge", TrialEnd.DIVERGED, "diverged as the loss is NaN at step 2"),
        ("nan", TrialEnd.DIVERGED, "reported no finite score within 1e+300"),
        ("huge", TrialEnd.DIVERGED, "reported no finite score within 1e+300"),
        ("full disk", TrialEnd.DISK, "disk: no space is left; free some"),
        ("no memory", TrialEnd.OUT_OF_MEMORY, "memory: out of memory: lower env.num_envs"),
        ("lost process", TrialEnd.CRASHED, "process 1 of 2 died: start the run again"),
        ("user's error", TrialEnd.FAILED, "error: ValueError: no such level"),
        ("bad config", TrialEnd.FAILED, "config: too many environments"),
    ],
)
def test_a_process_that_fails_says_how(
    request: pytest.FixtureRequest, trainers: Backend, tmp_path: Path, behaviour: str, end: TrialEnd, reason: str
) -> None:
    place = request.node.callspec.params["trainers"]
    if end is TrialEnd.DISK and place == "by_url":
        pytest.skip("its own disk is full, so it takes no more trials: tests/protein/run/test_slot_copies.py")
    if end is TrialEnd.DISK and place != "local":
        reason += f" on {platform.node()}"
    _, finished = run(trainers, job(tmp_path, 0, behaviour=behaviour), job(tmp_path, 1))
    outcome = finished[0].outcome
    assert (outcome.end, outcome.score, outcome.reason) == (end, None, reason)
    assert outcome.cost_seconds >= 0.1
    assert finished[1].outcome.state is TrialState.COMPLETE


def test_a_result_counts_whatever_ends_the_process_after_it(trainers: Backend, tmp_path: Path) -> None:
    outcome = run(trainers, job(tmp_path, behaviour="late exit"))[1][0].outcome
    assert (outcome.end, outcome.reason) == (TrialEnd.COMPLETE, "after its result: exited with code 4")
    assert outcome.score is not None


def test_what_the_users_environment_raises_is_an_error_of_the_user(trainers: Backend, tmp_path: Path) -> None:
    one = job(tmp_path, behaviour="user's error")
    one = dataclasses.replace(one, config={**one.config, "env": {"name": "python:levels:make"}})
    _, finished = run(trainers, one)
    assert finished[0].outcome.end is TrialEnd.USER_ERROR


def test_garbage_is_logged_and_the_result_still_counts(trainers: Backend, tmp_path: Path) -> None:
    progress, finished = run(trainers, job(tmp_path, behaviour="garbage"))
    assert finished[0].outcome.state is TrialState.COMPLETE
    assert sum(len(event.measurements) for event in progress) == 3
    assert b"{not json" in (tmp_path / "0" / "trial.log").read_bytes()


def test_a_trial_stopped_at_its_cost_limit_is_pruned_with_its_score(backend: Backend, tmp_path: Path) -> None:
    poor = dataclasses.replace(job(tmp_path, 1, behaviour="capped"), at_limit=TrialEnd.OUT_OF_BUDGET)
    _, finished = run(backend, job(tmp_path, 0, behaviour="capped"), poor)
    for number, end, reason in (
        (0, TrialEnd.CAPPED, "stopped at its cost cap"),
        (1, TrialEnd.OUT_OF_BUDGET, "stopped at the end of the sweep's budget"),
    ):
        outcome = finished[number].outcome
        assert (outcome.end, outcome.score, outcome.reason) == (end, 2.0, reason)


def test_a_hanging_trial_is_killed_at_its_limit(process: Backend, tmp_path: Path) -> None:
    _, finished = run(process, job(tmp_path, behaviour="hang", max_seconds=3.0))
    outcome = finished[0].outcome
    assert outcome.end is TrialEnd.HUNG
    assert outcome.reason == "killed after 3 s, its limit with start-up and evaluation"
    assert outcome.cost_seconds >= 0.5, "the time that it hung was spent"


def test_a_trial_that_prints_without_end_is_killed_at_its_limit_and_holds_up_nobody(
    process: Backend, tmp_path: Path
) -> None:
    _, finished = run(process, job(tmp_path, 0, behaviour="firehose", max_seconds=1.0), job(tmp_path, 1))
    assert finished[0].outcome.reason == "killed after 1 s, its limit with start-up and evaluation"
    assert finished[1].outcome.state is TrialState.COMPLETE
    assert (tmp_path / "0" / "trial.log").stat().st_size < 20 * 2**20


def test_silence_is_a_hang(tmp_path: Path) -> None:
    backend = TrainerBackend(entry=TRIAL, preload=(), silence_seconds=0.5)
    _, finished = run(backend, job(tmp_path, behaviour="hang"))
    backend.close()
    assert finished[0].outcome.end is TrialEnd.HUNG
    assert "without a sign of life" in finished[0].outcome.reason


def start_and_pause(backend: ProcessBackend, one: Job) -> int:
    """Starts a trial, and stops its process (SIGSTOP) once it has reported. Returns the process id."""
    backend.start(one)
    wait_until(lambda: any(event.measurements for event in backend.poll(0.1)), "a report")  # type: ignore[union-attr]
    [trial] = backend._running.values()
    os.kill(trial.pid, signal.SIGSTOP)
    wait_until(lambda: not backend.poll(0.0) and trial._is_stopped, "word of the stop")
    return trial.pid


def test_time_in_which_a_trial_is_stopped_is_neither_silence_nor_cost(
    watched: ProcessBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched._silence_seconds = 600.0
    start_and_pause(watched, job(tmp_path, behaviour="silent", max_seconds=400.0))
    [trial] = watched._running.values()
    now, passed = time.monotonic, 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now() + passed)
    while passed < 590.0:  # it is looked at every ten seconds
        passed += 10.0
        assert not watched.poll(0.0), "no cost is told"
        assert trial.requested_end is None
    while trial.requested_end is None:
        passed += 10.0
        watched.poll(0.0)
    outcome = wait(watched, 1)[1][0].outcome
    assert outcome.end is TrialEnd.INTERRUPTED, "not hung: that would teach the engine"
    assert re.fullmatch(r"preempted: it was stopped \(SIGSTOP\) for 6\d\d s", outcome.reason)
    assert outcome.cost_seconds < 590.0


def test_a_trial_that_was_stopped_for_a_while_costs_less_than_the_clock_says(
    watched: ProcessBackend, tmp_path: Path
) -> None:
    began = time.monotonic()
    pid = start_and_pause(watched, job(tmp_path, behaviour="silent"))
    stopped = time.monotonic()
    time.sleep(1.5)
    paused = time.monotonic() - stopped
    os.kill(pid, signal.SIGCONT)
    os.kill(pid, signal.SIGKILL)
    outcome = wait(watched, 1)[1][0].outcome
    assert (outcome.end, outcome.reason) == (TrialEnd.INTERRUPTED, "preempted: SIGKILL from outside ended it")
    told = 0.1  # by the trainer's trial, whatever the clock says
    assert 0.0 < outcome.cost_seconds <= max(told, time.monotonic() - began - paused)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="only Linux counts all of it")
def test_what_a_trial_uses_of_the_machine_is_measured(watched: ProcessBackend, tmp_path: Path) -> None:
    _, finished = run(watched, job(tmp_path, behaviour="works"))
    timings = finished[0].outcome.timings
    assert {"wall", "cpu", "waited", "others"} <= set(timings)
    assert 0.2 < timings["cpu"] <= 1.2 * timings["wall"]
    assert 0.0 <= timings["waited"] <= timings["wall"] and timings["others"] >= 0.0


def test_memory_over_the_limit_ends_the_trial(process: Backend, tmp_path: Path) -> None:
    _, finished = run(process, job(tmp_path, behaviour="memory", max_memory_bytes=200 * 2**20))
    assert finished[0].outcome.end is TrialEnd.OUT_OF_MEMORY
    assert "of memory, over its limit of 0.2 GiB" in finished[0].outcome.reason


def test_interrupting_ends_the_trial_and_only_once(backend: Backend, tmp_path: Path) -> None:
    one = job(tmp_path, behaviour="hang")
    backend.start(one)
    while not backend.poll(0.1):
        pass
    backend.stop(one.trial, TrialEnd.INTERRUPTED, "interrupted")
    backend.stop(one.trial, TrialEnd.STOPPED_EARLY, "too late")
    _, finished = wait(backend, 1)
    assert (finished[0].outcome.end, finished[0].outcome.reason) == (TrialEnd.INTERRUPTED, "interrupted")
    backend.stop(one.trial, TrialEnd.INTERRUPTED, "interrupted")
    assert backend.poll(0.0) == []


def test_a_trial_that_is_stopped_before_its_first_word_ends_so(backend: Backend, tmp_path: Path) -> None:
    one, two = job(tmp_path, 0, behaviour="hang"), job(tmp_path, 1, behaviour="hang")
    began = time.monotonic()
    for each in (one, two):  # where trials run one at a time, the second waits for the first
        backend.start(each)
    backend.stop(two.trial, TrialEnd.INTERRUPTED, "interrupted")
    backend.stop(one.trial, TrialEnd.INTERRUPTED, "interrupted")
    _, finished = wait(backend, 2)
    assert [finished[n].outcome.end for n in (0, 1)] == [TrialEnd.INTERRUPTED] * 2
    assert [finished[n].outcome.reason for n in (0, 1)] == ["interrupted"] * 2
    # Where one has begun meanwhile, its words are that it has taken 0.1 s, and then up to 0.25 s.
    assert finished[1].outcome.cost_seconds <= max(time.monotonic() - began, 0.25)


def test_a_process_that_dies_costs_the_time_since_its_report_however_late_the_sweep_looks(tmp_path: Path) -> None:
    def dies(params: dict[str, Any], report: Report) -> float:
        report(1, 1.0, cost_seconds=100.0)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGUSR1)
        return 1.0

    stop = threading.Event()
    with contextlib.closing(FunctionProcesses(dies, Direction.MAXIMIZE, stop, start_method="fork")) as backend:
        threading.Thread(target=backend.serve, args=(stop,), daemon=True).start()
        backend.start(job(tmp_path))
        time.sleep(2.0)
        _, finished = wait(backend, 1)
    assert finished[0].outcome.end is TrialEnd.CRASHED
    assert 100.5 <= finished[0].outcome.cost_seconds < 102.0


def patch_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protein.run.process.GRACE_SECONDS", 0.5)


def start_and_stop_early(backend: Backend, one: Job) -> Finished:
    backend.start(one)
    points = 0
    while points < (2 if one.config["train"]["behaviour"] == "polite" else 1):
        for event in backend.poll(0.1):
            assert isinstance(event, TrialProgress)
            points += len(event.measurements)
    backend.stop(one.trial, TrialEnd.STOPPED_EARLY, "stopped early: its curve is low")
    backend.stop(one.trial, TrialEnd.INTERRUPTED, "interrupted")  # too late: it is being ended already
    _, finished = wait(backend, 1)
    return finished[one.trial.number]


def test_a_trial_stopped_early_ends_in_order_with_its_last_score_and_what_it_spent(
    backend: Backend, tmp_path: Path
) -> None:
    outcome = start_and_stop_early(backend, job(tmp_path, behaviour="polite")).outcome
    assert (outcome.end, outcome.reason) == (TrialEnd.STOPPED_EARLY, "stopped early: its curve is low")
    assert (outcome.score, outcome.cost_seconds, outcome.steps) == (1.0, 0.25, 2)


def test_a_trial_that_ignores_its_early_stop_is_stopped_all_the_same(
    process_here: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch_grace(monkeypatch)
    outcome = start_and_stop_early(process_here, job(tmp_path, behaviour="stubborn")).outcome
    assert (outcome.end, outcome.score, outcome.steps) == (TrialEnd.STOPPED_EARLY, 1.0, 1)
    assert outcome.cost_seconds >= 0.5, "the time until it was killed was spent, too"


def test_an_interrupt_that_comes_with_a_trial_loses_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ctrl-C while the engine is at work may be raised only when the wait for its trial ends."""
    backend, stop = FunctionBackend(behave, Direction.MAXIMIZE), threading.Event()

    class Interrupted:
        def get(self) -> None:
            monkeypatch.undo()
            backend.start(job(tmp_path))
            news.get()
            raise KeyboardInterrupt

    news = backend._tasks._news
    monkeypatch.setattr(backend._tasks, "_news", Interrupted())
    server = threading.Thread(target=backend.serve, args=(stop,))
    server.start()
    _, finished = wait(backend, 1)
    backend.close()
    server.join(PATIENCE_SECONDS)
    assert stop.is_set() and not server.is_alive()
    assert (finished[0].outcome.end, finished[0].outcome.reason) == (TrialEnd.INTERRUPTED, "interrupted")


@pytest.mark.parametrize(("behaviour", "state"), [("good", TrialState.COMPLETE), ("diverge", TrialState.FAILED)])
def test_a_trial_that_ended_before_it_was_stopped_early_keeps_its_end(
    backend: Backend, tmp_path: Path, behaviour: str, state: TrialState
) -> None:
    one = job(tmp_path, behaviour=behaviour)
    backend.start(one)
    if isinstance(backend, ProcessBackend):
        next(iter(backend._running.values())).wait(PATIENCE_SECONDS)
    elif isinstance(backend, Fleet):

        def finished_there() -> bool:
            backend.num_slots()  # receives what has come; a first worker may not be there yet
            return any(isinstance(event, Finished) for event in backend._events)

        wait_until(finished_there, "the end of the trial")
    else:
        assert isinstance(backend, FunctionBackend)
        while backend._tasks._waiting:
            time.sleep(0.01)
    backend.stop(one.trial, TrialEnd.STOPPED_EARLY, "stopped early: its curve is low")
    _, finished = wait(backend, 1)
    assert finished[0].outcome.state is state
    assert "curve" not in finished[0].outcome.reason


def test_a_process_that_ignores_sigterm_is_killed(
    process_here: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch_grace(monkeypatch)
    one = job(tmp_path, behaviour="stubborn")
    process_here.start(one)
    while not process_here.poll(0.1):
        pass
    process_here.stop(one.trial, TrialEnd.INTERRUPTED, "interrupted")
    _, finished = wait(process_here, 1)
    assert finished[0].outcome.state is TrialState.FAILED


def test_children_that_a_trial_leaves_behind_are_killed(process: Backend, tmp_path: Path) -> None:
    _, finished = run(process, job(tmp_path, behaviour="child"))
    assert finished[0].outcome.state is TrialState.COMPLETE
    wait_until(lambda: not left_behind(tmp_path), "the end of the trial's child")


def test_close_kills_what_runs_and_may_be_called_twice(tmp_path: Path) -> None:
    backend = TrainerBackend(entry=TRIAL, preload=())
    backend.start(job(tmp_path, behaviour="hang"))
    events: list[TrialProgress | Finished] = []
    while not events:
        events = backend.poll(0.1)
    backend.close()
    backend.close()
    children = psutil.Process(os.getpid()).children(recursive=True)
    assert not [child for child in children if "trial.py" in " ".join(child.cmdline())]
