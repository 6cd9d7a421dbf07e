"""Interrupted trials: what they left, kills and stops, and that a resumed sweep makes what an undisturbed one makes."""

import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest
import small_sweep
from patience import PATIENCE_SECONDS, wait_until
from sample_trials import trial
from small_sweep import stored

from protein.engine.budget import limit_reached
from protein.engine.designer import RandomDesigner
from protein.ports import Finished, Job, SweepStatus, TrialProgress
from protein.run.trainer import TrainerBackend
from protein.space import Categorical, Float, Integer, Space
from protein.sweep import loop, resuming
from protein.sweep.launching import to_evaluate
from protein.sweep.trouble import Preemptions
from protein.types import (
    CONTINUABLE,
    CONTINUABLE_SECONDS,
    Artifact,
    Budget,
    Outcome,
    Provenance,
    Suggestion,
    SweepSpec,
    Trial,
    TrialEnd,
    TrialRecord,
    TrialState,
    max_trial_seconds,
)

pytestmark = pytest.mark.usefixtures("warm")


def write_checkpoint(file: Path, *, steps: int = 7, seconds: float = 1.5, seed: int = 0, cut: int = 0) -> None:
    """Writes a file in the trainer's format, without tensors; `cut` bytes are missing at its end."""
    run = {"config": {"train": {"seed": seed}}, "steps": steps, "elapsed_seconds": seconds}
    header = json.dumps({"__metadata__": {"run": json.dumps(run)}}).encode()
    content = len(header).to_bytes(8, "little") + header
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content[: len(content) - cut])


# What a trial left


def test_a_whole_checkpoint_is_found_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    assert resuming.state(tmp_path / "missing") is None
    file = tmp_path / resuming.TRAINERS_FILE
    write_checkpoint(file)
    assert resuming.state(tmp_path) == file
    for content in (b"", b"\0" * 8, b"\xff" * 64, b"\x02\0\0\0\0\0\0\0[]", b"\x02\0\0\0\0\0\0\0{}"):
        file.write_bytes(content)
        assert resuming.state(tmp_path) is None, content
    write_checkpoint(file, cut=1)
    assert resuming.state(tmp_path) is None


def test_the_folder_of_a_command_counts_when_something_is_in_it(tmp_path: Path) -> None:
    folder = tmp_path / resuming.COMMANDS_FOLDER
    folder.mkdir()
    assert resuming.state(tmp_path) is None
    (folder / "weights").touch()
    assert resuming.state(tmp_path) == folder
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / resuming.COMMANDS_FOLDER).symlink_to(folder)
    assert resuming.state(tmp_path / "link") is None


def test_what_an_earlier_sweep_left_is_cleared_and_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").touch()
    folder = tmp_path / "trial"
    write_checkpoint(folder / resuming.TRAINERS_FILE)
    (folder / resuming.COMMANDS_FOLDER).symlink_to(outside)
    (folder / "sample.txt").write_text("what another model has written")
    resuming.attempt(folder, 3)
    resuming.clear(folder)
    assert list(folder.iterdir()) == []
    assert (outside / "mine").exists()
    resuming.clear(tmp_path / "missing")


def test_attempts_are_counted_until_a_trial_gets_further(tmp_path: Path) -> None:
    assert [resuming.attempt(tmp_path, steps) for steps in (0, 0, 0, 5, 5, 4, 6)] == [1, 2, 3, 1, 2, 3, 1]
    (tmp_path / resuming.ATTEMPTS_FILE).write_text("{")
    assert resuming.attempt(tmp_path, 6) == 1


def test_a_command_that_writes_a_checkpoint_gets_further_without_any_step(tmp_path: Path) -> None:
    file = tmp_path / resuming.COMMANDS_FOLDER / "run" / "weights"
    file.parent.mkdir(parents=True)
    counts = []
    for written in (1, 1, 2, 2, 2, 3):
        file.touch()
        os.utime(file, (written, written))
        counts.append(resuming.attempt(tmp_path, 0))
    assert counts == [1, 2, 1, 2, 3, 1]


def test_a_command_that_only_writes_files_is_given_up_in_the_end(tmp_path: Path) -> None:
    file = tmp_path / resuming.COMMANDS_FOLDER / "lock"
    file.parent.mkdir(parents=True)
    counts = []
    for written in range(60):
        file.touch()
        os.utime(file, (written, written))
        counts.append(resuming.attempt(tmp_path, 0))
    assert counts[9:11] == [1, 2] and counts[49:51] == [resuming.MAX_ATTEMPTS, resuming.MAX_ATTEMPTS + 1]
    assert resuming.attempt(tmp_path, 1) == 1


# Kills


def facts(trial: TrialRecord) -> tuple[Any, ...]:
    """Returns what must not depend on whether a sweep was interrupted."""
    return (
        trial.number,
        trial.params,
        trial.seed,
        trial.origin,
        trial.end,
        trial.score,
        trial.cost_seconds,
        trial.curve,
    )


def kill_while_hanging(folder: Path, number: int, step: int, how: str) -> None:
    """Runs a sweep of the engine in a process, and kills it while trial `number` hangs at `step`."""
    trials = folder / "trials"
    trials.mkdir(parents=True, exist_ok=True)
    hangs = trials / f"hang-{number:04d}"
    hangs.write_text(f"{step} {how}")
    command = [sys.executable, small_sweep.__file__, str(folder), "saves", "engine"]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        wait_until(lambda: not hangs.exists() and len(stored(folder)[number].curve) == step)
        children = psutil.Process(process.pid).children(recursive=True)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    wait_until(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in children))
    assert stored(folder)[number].state is TrialState.RUNNING


def test_several_interrupted_trials_are_spoken_of_as_several() -> None:
    ended = "interrupted when the sweep last ended"
    assert resuming.interrupted([3], True) == f"trial 3 was {ended}: it goes on"
    assert resuming.interrupted([3, 4, 7], True) == f"trials 3, 4 and 7 were {ended}: they go on"
    assert resuming.interrupted([3], False) == f"trial 3 was {ended}: it begins again"
    assert resuming.interrupted([3, 4], False) == f"trials 3 and 4 were {ended}: they begin again"


def test_after_kills_a_sweep_makes_the_trials_that_an_undisturbed_one_makes(tmp_path: Path) -> None:
    undisturbed = small_sweep.engine_sweep(tmp_path / "undisturbed").trials
    folder = tmp_path / "killed"
    kills = [(1, 2, "saved"), (4, 1, "unsaved"), (6, 3, "saved")]
    for number, step, how in kills:
        kill_while_hanging(folder, number, step, how)
    listener = small_sweep.Lines()
    status = small_sweep.engine_sweep(folder, listener=listener)
    assert status.ended == limit_reached(8)
    killed = stored(folder)
    assert [facts(trial) for trial in killed] == [facts(trial) for trial in undisturbed]
    lost = {trial.number: trial.lost_seconds for trial in killed if trial.lost_seconds}
    assert lost == {4: pytest.approx(killed[4].cost_seconds / 4)}, "only what was not saved is lost"
    assert "trial 6 was interrupted when the sweep last ended: it goes on" in listener.lines
    assert "trial 6 goes on from step 3" in listener.lines


def test_a_stopped_trial_goes_on_from_its_checkpoint_before_anything_new(tmp_path: Path) -> None:
    stop = threading.Event()
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "hang-0001").write_text("2 saved")

    class StopAtTheSecondPoint(small_sweep.Lines):
        def update(self, status: SweepStatus) -> None:
            if len(status.trials) == 2 and len(status.trials[1].curve) == 2:
                stop.set()

    cut = small_sweep.engine_sweep(tmp_path, listener=StopAtTheSecondPoint(), stop=stop)
    assert [trial.state for trial in cut.trials] == [TrialState.COMPLETE, TrialState.WAITING]
    listener = small_sweep.Lines()
    small_sweep.engine_sweep(tmp_path, listener=listener)
    assert [trial.number for trial in listener.begun] == list(range(1, 8))
    trial = stored(tmp_path)[1]
    assert [point.steps for point in trial.curve] == [1, 2, 3, 4]
    assert trial.cost_seconds == trial.params["train.cost"]
    assert trial.end is TrialEnd.COMPLETE
    # What it cost between its checkpoint and its end is spent, and not in its cost.
    assert trial.lost_seconds == pytest.approx(cut.trials[1].cost_seconds - trial.cost_seconds / 2)


def test_lost_seconds_count_against_the_budget(tmp_path: Path) -> None:
    kill_while_hanging(tmp_path, 0, 4, "unsaved")
    lost = stored(tmp_path)[0].cost_seconds
    first = small_sweep.sweep(
        tmp_path, spec=small_sweep.sweep_spec(behaviour="saves"), budget_seconds=100.0, max_trials=1
    ).trials[0]
    assert (first.state, first.lost_seconds) == (TrialState.COMPLETE, 0.25 * lost)  # of four steps, one was not saved
    status = small_sweep.sweep(
        tmp_path, spec=small_sweep.sweep_spec(behaviour="saves"), budget_seconds=first.cost_seconds
    )
    assert len(status.trials) == 1, "nothing is left of the budget"
    assert status.spent_seconds == first.cost_seconds + first.lost_seconds


def test_what_a_trial_does_again_is_paid_from_what_it_may_cost(tmp_path: Path) -> None:
    kill_while_hanging(tmp_path, 0, 4, "unsaved")
    lost = 0.25 * stored(tmp_path)[0].cost_seconds  # of four steps, one was not saved
    backend = Preempts(0)
    spec = small_sweep.sweep_spec(behaviour="saves")
    small_sweep.sweep(tmp_path, spec=spec, backend=backend, budget_seconds=10.0, max_trial_seconds=100.0, max_trials=1)
    assert [job.config["train"]["max_seconds"] for job in backend.jobs] == [pytest.approx(10.0 - lost)]


@pytest.mark.parametrize("end", [TrialEnd.CAPPED, TrialEnd.OUT_OF_BUDGET])
def test_a_trial_that_was_interrupted_at_its_limit_is_evaluated(end: TrialEnd, tmp_path: Path) -> None:
    kill_while_hanging(tmp_path, 0, 4, "saved")
    cost = stored(tmp_path)[0].cost_seconds
    backend, spec = Preempts(0), small_sweep.sweep_spec(behaviour="saves")
    budget, cap = (10.0, cost) if end is TrialEnd.CAPPED else (cost, 10.0)
    limits: dict[str, Any] = {"budget_seconds": budget, "max_trial_seconds": cap, "max_trials": 1}
    [trial] = small_sweep.sweep(tmp_path, spec=spec, backend=backend, **limits).trials
    assert trial.state.finished and trial.score is not None
    assert trial.cost_seconds == cost
    assert [(job.config["train"]["max_seconds"], job.at_limit) for job in backend.jobs] == [(cost, end)]


@pytest.mark.parametrize(
    ("cap", "others_run", "limit"), [(100.0, True, None), (100.0, False, 50.0), (50.0, True, 50.0)]
)
def test_a_trial_below_its_cap_is_not_ended_while_others_run(cap: float, others_run: bool, limit: float | None) -> None:
    """They may leave it more than what is set aside for them."""
    place, left = resuming.Place(path=Path("checkpoint"), steps=4, seconds=50.0), 46.0
    budget = to_evaluate(Budget(remaining_seconds=left, max_trial_seconds=cap), place, others_run=others_run)
    assert (None if budget is None else budget.next_trial_seconds) == limit


# Preempted trials


class Preempts(TrainerBackend):
    """Reports trials as preempted once they have made some steps, as often as it is told."""

    def __init__(self, times: int, steps: int = 1) -> None:
        super().__init__(entry=small_sweep.TRIAL, preload=())
        self.left, self.steps = times, steps
        self.jobs: list[Job] = []

    def start(self, job: Job) -> None:
        self.jobs.append(job)
        super().start(job)

    def poll(self, timeout_seconds: float) -> list[TrialProgress | Finished]:
        events = super().poll(timeout_seconds)
        for event in events:
            if not isinstance(event, TrialProgress) or not event.measurements:
                continue
            if self.left and event.measurements[-1].steps >= self.steps:
                self.left -= 1
                self.stop(event.trial, TrialEnd.INTERRUPTED, "preempted: the node is gone")
        return events


def test_a_trial_that_was_given_up_counts_as_tried(tmp_path: Path) -> None:
    stop = threading.Event()
    seen: list[Any] = []

    class Looks(RandomDesigner):
        def suggest(self, history: Any, *args: Any, **keywords: Any) -> Suggestion | None:
            seen.append(history)
            if history:
                stop.set()
            return super().suggest(history, *args, **keywords)

    spec, designer = small_sweep.sweep_spec(behaviour="hang"), Looks(small_sweep.space(), None)
    small_sweep.sweep(tmp_path, spec=spec, designer=designer, backend=Preempts(100), budget_seconds=None, stop=stop)
    assert [(one.end, one.excluded) for one in seen[-1]] == [(TrialEnd.INTERRUPTED, True)]


def test_a_preempted_trial_is_taken_up_in_the_same_run(tmp_path: Path) -> None:
    backend, listener = Preempts(1, steps=2), small_sweep.Lines()
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "hang-0000").write_text("2 saved")
    spec = small_sweep.sweep_spec(behaviour="saves")
    status = small_sweep.sweep(
        tmp_path, spec=spec, backend=backend, listener=listener, budget_seconds=None, max_trials=2
    )
    assert [trial.end for trial in status.trials] == [TrialEnd.COMPLETE] * 2
    assert [job.trial.number for job in backend.jobs] == [0, 0, 1]
    assert [job.resumes for job in backend.jobs] == [None, tmp_path / "trials/0000" / resuming.TRAINERS_FILE, None]
    assert backend.jobs[1].spent_seconds == pytest.approx(status.trials[0].cost_seconds / 2)
    assert [point.steps for point in status.trials[0].curve] == [1, 2, 3, 4]
    assert "trial 0 waits to be taken up again: preempted: the node is gone" in listener.lines


def test_a_trial_that_never_gets_further_ends_after_five_attempts(tmp_path: Path) -> None:
    backend = Preempts(100)
    spec = small_sweep.sweep_spec(behaviour="hang")
    status = small_sweep.sweep(tmp_path, spec=spec, backend=backend, budget_seconds=None, max_trials=1)
    [trial] = status.trials
    assert (trial.state, trial.end) == (TrialState.FAILED, TrialEnd.INTERRUPTED)
    assert "5 attempts to get beyond step 0 were cut short, the last one with: preempted: the node" in trial.reason
    assert len(backend.jobs) == 6
    assert trial.lost_seconds >= 0.5, "what all of them have cost is spent"


class Broken(TrainerBackend):
    """Places that are lost before a trial says anything, but for the starts that `works` names."""

    def __init__(self, *works: int) -> None:
        super().__init__(entry=small_sweep.TRIAL, preload=())
        self.works, self.starts = works, 0
        self._lost: list[Finished] = []

    def start(self, job: Job) -> None:
        self.starts += 1
        if self.starts in self.works:
            super().start(job)
            return
        outcome = Outcome(
            end=TrialEnd.INTERRUPTED, reason="preempted: the worker process on node vm died: out of\nluck"
        )
        self._lost.append(Finished(trial=job.trial, outcome=outcome))

    def poll(self, timeout_seconds: float) -> list[TrialProgress | Finished]:
        events, self._lost = [*self._lost, *super().poll(0.0 if self._lost else timeout_seconds)], []
        return events


def test_a_sweep_whose_places_are_all_lost_ends_and_says_why(tmp_path: Path) -> None:
    backend, spec = Broken(), small_sweep.sweep_spec(behaviour="saves")
    status = small_sweep.sweep(tmp_path, spec=spec, backend=backend, budget_seconds=None, max_trials=20)
    assert status.trouble
    assert status.ended == (
        "trials were preempted 10 times in a row before any report, the last time: the worker process on node"
        " vm died: out of luck; the reason was always the same; look at the machines where trials run, or name others;"
        " run the sweep again to go on"
    )
    assert backend.starts == 10
    again = small_sweep.sweep(tmp_path, spec=spec, budget_seconds=None, max_trials=3)
    assert [trial.state for trial in again.trials if trial.end is not TrialEnd.INTERRUPTED] == [TrialState.COMPLETE] * 2
    assert not again.trouble


def test_a_report_ends_a_row_of_preemptions(tmp_path: Path) -> None:
    """Nine, a trial, nine, a trial: no row is ten long. Trials that were tried five times have ended meanwhile."""
    backend, spec = Broken(10, 20), small_sweep.sweep_spec(behaviour="saves")
    status = small_sweep.sweep(tmp_path, spec=spec, backend=backend, budget_seconds=None, max_trials=4)
    assert (status.trouble, backend.starts) == (False, 20)
    assert [trial.state for trial in status.trials].count(TrialState.COMPLETE) == 2


def test_a_cluster_that_dies_with_all_its_trials_is_no_row_of_preemptions() -> None:
    lost = Outcome(end=TrialEnd.INTERRUPTED, reason="preempted: node vm died")
    row = Preemptions()
    for running in range(64, 0, -1):
        row.add(lost, running)
    assert not row.too_many
    for running in range(64, 0, -1):
        row.add(lost, running)
    assert row.too_many, "all of them once more, and nothing in between"
    row.add(Outcome(end=TrialEnd.COMPLETE, score=1.0), 1)
    assert not row.too_many
    for _ in range(20):
        row.add(Outcome(end=TrialEnd.INTERRUPTED, reason="interrupted"), 1)
    assert not row.too_many, "a person has ended these"


class Doubled(TrainerBackend):
    """A double that has `slots` places, as a cluster may have."""

    slots = 0
    together = 0

    def num_slots(self) -> int | None:
        return self.slots

    def start(self, job: Job) -> None:
        super().start(job)
        self.together = max(self.together, len(self._running))

    def stop(self, trial: Trial, end: TrialEnd, reason: str) -> None:
        super().stop(trial, end, reason)


def test_a_sweep_starts_no_more_than_the_backend_has_room_for_and_waits_for_room(tmp_path: Path) -> None:
    backend = Doubled(entry=small_sweep.TRIAL, preload=())

    class Open(small_sweep.Lines):
        def update(self, status: SweepStatus) -> None:
            super().update(status)
            if self.updates == 3:
                assert not status.trials
                backend.slots = 2

    status = small_sweep.sweep(tmp_path, backend=backend, listener=Open(), workers=4, budget_seconds=None, max_trials=5)
    assert [trial.end for trial in status.trials] == [TrialEnd.COMPLETE] * 5
    assert backend.together == 2


@pytest.mark.parametrize("wait", [0.0, math.inf])
def test_reports_from_other_machines_do_not_wait_until_all_free_places_have_a_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait: float
) -> None:
    """A suggestion may take a second, and a hundred places may be free. A trial that reports may be one to stop.

    Where places get free as fast as trials start, the machine is watched and people see how far the sweep is all the
    same.
    """
    monkeypatch.setattr(loop, "NEWS_SECONDS", wait)
    calls: list[str] = []
    monkeypatch.setattr(loop._Loop, "_watch_machine", lambda _: calls.append("watch"))

    class Instant:
        """Trials of other machines that end as soon as they are asked for."""

        def __init__(self) -> None:
            self.jobs: list[Job] = []

        def num_slots(self) -> int | None:
            return 3

        def start(self, job: Job) -> None:
            calls.append("start")
            self.jobs.append(job)

        def poll(self, timeout_seconds: float) -> list[TrialProgress | Finished]:
            calls.append("poll")
            jobs, self.jobs = self.jobs, []
            outcome = Outcome(end=TrialEnd.COMPLETE, reason="", score=1.0, cost_seconds=1.0)
            return [Finished(trial=job.trial, outcome=outcome) for job in jobs]

        def stop(self, trial: Trial, end: TrialEnd, reason: str) -> None: ...

        def close(self) -> None: ...

    status = small_sweep.sweep(tmp_path, backend=Instant(), workers=3, budget_seconds=None, max_trials=3)
    assert [trial.end for trial in status.trials] == [TrialEnd.COMPLETE] * 3
    assert calls[:9] == (["watch", "start", "poll"] * 3 if wait == 0.0 else ["watch", *["start"] * 3, "poll", "watch"])


def test_a_place_that_opens_while_the_loop_looks_does_not_end_the_sweep(tmp_path: Path) -> None:
    class Opens(Doubled):
        looks = 0

        def num_slots(self) -> int | None:
            self.looks += 1
            return 0 if self.looks == 1 else 2

    backend = Opens(entry=small_sweep.TRIAL, preload=())
    status = small_sweep.sweep(tmp_path, backend=backend, workers=2, budget_seconds=None, max_trials=2)
    assert [trial.end for trial in status.trials] == [TrialEnd.COMPLETE] * 2


def test_a_trial_that_was_interrupted_counts_as_running_for_the_engine(tmp_path: Path) -> None:
    """Where it cannot be taken up, as its budget is spent, it stays and nothing else is started."""
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "hang-0000").write_text("2 saved")
    stop = threading.Event()

    class StopAtTheSecondPoint(small_sweep.Lines):
        def update(self, status: SweepStatus) -> None:
            if status.trials and len(status.trials[0].curve) == 2:
                stop.set()

    spec = small_sweep.sweep_spec(behaviour="saves")
    cut = small_sweep.sweep(tmp_path, spec=spec, listener=StopAtTheSecondPoint(), stop=stop, budget_seconds=None)
    half = cut.trials[0].params["train.cost"]
    assert isinstance(half, float)
    status = small_sweep.sweep(tmp_path, spec=spec, budget_seconds=half / 4)
    assert [trial.state for trial in status.trials] == [TrialState.WAITING]
    assert status.ended == "the budget is spent"
    status = small_sweep.sweep(tmp_path, spec=spec, budget_seconds=100.0, max_trials=1)
    assert [trial.state for trial in status.trials] == [TrialState.COMPLETE]


# Which sweeps can continue trials, which trials they can, and that they do.

STEPS = Integer("train.total_timesteps", 1000, 10**6, scale="log")
GAMMA = Float("train.gamma", 0.9, 0.999)


def spec(space: Space, *, method: str = "protein", **train: Any) -> SweepSpec:
    return SweepSpec(
        name="s",
        env="pong",
        method=method,
        seed=0,
        space=space.to_dict(),
        config={"train": train} if train else {"own": {}},
        provenance=Provenance(version="", git_commit="", machine="", config_hash=""),
    )


@pytest.mark.parametrize("schedule", ["constant", "wsd"])
def test_a_schedule_that_can_go_on_lets_a_sweep_continue_trials(schedule: str) -> None:
    space = Space([STEPS, GAMMA], cost_parameter=STEPS.name)
    assert resuming.why_never_continued(spec(space, lr_schedule=schedule)) is None
    assert resuming.why_never_continued(spec(Space([GAMMA]))) is None, "a function says so itself"


def test_one_such_choice_of_a_searched_schedule_is_enough() -> None:
    for choices, able in ((("cosine", "wsd"), True), (("cosine", "linear"), False)):
        space = Space([STEPS, Categorical("train.lr_schedule", choices)], cost_parameter=STEPS.name)
        assert (resuming.why_never_continued(spec(space, lr_schedule="cosine")) is None) is able


def test_a_sweep_that_cannot_says_why_and_what_would_help() -> None:
    space = Space([STEPS, GAMMA], cost_parameter=STEPS.name)
    assert resuming.why_never_continued(spec(space, lr_schedule="cosine")) == (
        "trials are never continued: with train.lr_schedule = cosine the step size has fallen when a run ends; constant"
        " or wsd allow it"
    )
    assert resuming.why_never_continued(spec(Space([GAMMA]), lr_schedule="wsd")) == (
        "trials are never continued: train.total_timesteps is not searched as the cost parameter"
    )
    assert resuming.why_never_continued(spec(space, method="random", lr_schedule="wsd")) == (
        "trials are never continued: method 'random' cannot"
    )
    sweep = spec(space, lr_schedule="wsd")
    entropy = dataclasses.replace(sweep, config={"train": {**sweep.config["train"], "ent_coef_final": 0.0}})
    assert resuming.why_never_continued(entropy) == (
        "trials are never continued: with train.ent_coef_final the entropy bonus depends on a run's length; -1 allows"
        " it"
    )


def test_seconds_count_from_the_first_step_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    kept = (Artifact(kind=CONTINUABLE, path=str(tmp_path / "state")),)
    bare = trial(3, 10.0, 1.0)
    whole = dataclasses.replace(bare, artifacts=kept, metrics={CONTINUABLE_SECONDS: 8.0}, continued_seconds=5.0)
    assert resuming.resumable_seconds(whole) == 13.0
    assert resuming.continuable_state(whole) == tmp_path / "state"
    assert resuming.resumable_seconds(bare) is None
    (tmp_path / "state").unlink()
    assert resuming.resumable_seconds(whole) is None, "its checkpoint was deleted"


def test_the_trainer_goes_on_from_the_checkpoint_of_an_earlier_trial(tmp_path: Path) -> None:
    """In processes of their own, as in a sweep."""

    def finished(number: int, steps: int, continues: Path | None) -> Finished:
        train = {"total_timesteps": steps, "horizon": 32, "minibatch_size": 128, "threads": 1, "lr_schedule": "wsd"}
        config = {
            "env": {"num_envs": 4},
            "policy": {"hidden_size": 8},
            "train": {**train, "device": "cpu", "max_seconds": PATIENCE_SECONDS},
            "eval": {"episodes": 4, "num_envs": 4},
        }
        job = Job(
            trial=Trial(id=number, sweep_id=1, number=number, params={}, seed=0, owner="test"),
            config=config,
            directory=tmp_path / str(number),
            max_seconds=PATIENCE_SECONDS,
            max_memory_bytes=None,
            continues=continues,
        )
        backend.start(job)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            for event in backend.poll(0.1):
                if isinstance(event, Finished):
                    return event
        raise AssertionError("the trial never ended")

    backend = TrainerBackend()
    try:
        first = finished(0, 1280, None)
        paths = {artifact.kind: Path(artifact.path) for artifact in first.artifacts}
        assert paths[CONTINUABLE].name == "stable.safetensors"
        second = finished(1, 2560, paths[CONTINUABLE])
        again = finished(2, 1280, paths["checkpoint"])
    finally:
        backend.close()
    assert (first.outcome.end, second.outcome.end, second.outcome.steps) == (TrialEnd.COMPLETE, TrialEnd.COMPLETE, 2560)
    assert 0.0 < first.outcome.metrics[CONTINUABLE_SECONDS] < first.outcome.cost_seconds
    assert (again.outcome.state, again.outcome.score) == (TrialState.FAILED, None)
    assert "train.total_timesteps must be larger" in again.outcome.reason


# A trial that continues another one, whose files somebody has deleted since


SAVES: dict[str, Any] = {"behaviour": "saves", "continuable": True}


def interrupted_leg(folder: Path, hangs: str) -> TrialRecord:
    """Trial 1 continues trial 0 and is interrupted at a step, which is "saved" or "unsaved"; trial 0 loses its files.

    Returns trial 1, which waits.
    """
    (folder / "trials").mkdir()
    (folder / "trials" / "hang-0001").write_text(hangs)
    stop, step = threading.Event(), int(hangs.split()[0])

    class StopAtTheStep(small_sweep.Lines):
        def update(self, status: SweepStatus) -> None:
            if len(status.trials) == 2 and len(status.trials[1].curve) == step:
                stop.set()

    legs = go_on(folder, StopAtTheStep(), stop)
    assert (legs[1].state, legs[1].continues) == (TrialState.WAITING, 0)
    Path(str(legs[0].artifact(CONTINUABLE))).unlink()
    return legs[1]


def go_on(folder: Path, listener: small_sweep.Lines, stop: threading.Event | None = None) -> list[TrialRecord]:
    spec = small_sweep.sweep_spec(**SAVES)
    designer = small_sweep.GoOn(small_sweep.space(), None)
    small_sweep.sweep(
        folder,
        spec=spec,
        designer=designer,
        listener=listener,
        stop=stop,
        budget_seconds=None,
        max_trials=2,
        can_continue=True,
    )
    return small_sweep.stored(folder)


def test_a_leg_goes_on_from_its_own_checkpoint_without_that_of_the_trial_that_it_continues(tmp_path: Path) -> None:
    interrupted_leg(tmp_path, "2 saved")
    lines = small_sweep.Lines()
    _, leg = go_on(tmp_path, lines)
    assert (leg.end, leg.score) == (TrialEnd.COMPLETE, leg.params["train.score"])
    assert [point.steps for point in leg.curve] == [1, 2, 3, 4]
    assert leg.cost_seconds == leg.params["train.cost"] and leg.continued_seconds > 0.0
    assert [line for line in lines.lines if "goes on" in line] == [
        "trial 1 goes on from step 2; trial 0, which it continues, has lost its files, which it does not need now"
    ]


def test_a_leg_that_has_nothing_to_go_on_from_ends_and_is_not_trained_anew(tmp_path: Path) -> None:
    waiting = interrupted_leg(tmp_path, "1 unsaved")
    lines = small_sweep.Lines()
    _, leg = go_on(tmp_path, lines)
    assert (leg.state, leg.end, leg.score) == (TrialState.FAILED, TrialEnd.INTERRUPTED, None)
    assert leg.reason == "interrupted: trial 0, which it continues, has lost its files"
    assert leg.cost_seconds + leg.lost_seconds == waiting.cost_seconds > 0.0, "what it has spent is spent once"
    assert [trial.number for trial in lines.ended] == [1], "a person is told"


def test_a_trial_that_loses_its_files_while_it_is_chosen_is_not_trained_anew(tmp_path: Path) -> None:
    class Delete(small_sweep.GoOn):
        def suggest(self, history: Any, *args: Any, **keywords: Any) -> Suggestion | None:
            suggestion = super().suggest(history, *args, **keywords)
            if suggestion is not None and suggestion.continues is not None:
                (tmp_path / "trials" / f"{suggestion.continues:04d}" / "checkpoint.safetensors").unlink()
            return suggestion

    lines = small_sweep.Lines()
    small_sweep.sweep(
        tmp_path,
        spec=small_sweep.sweep_spec(**SAVES),
        designer=Delete(small_sweep.space(), None),
        listener=lines,
        budget_seconds=None,
        max_trials=2,
        can_continue=True,
    )
    assert [(trial.continues, trial.continued_seconds) for trial in small_sweep.stored(tmp_path)] == [(None, 0.0)] * 2
    assert lines.lines == ["trial 0 has lost its files while it was chosen to go on: something else is tried"]


def test_a_sweep_continues_trials_from_what_they_left(tmp_path: Path) -> None:
    designer = small_sweep.GoOn(small_sweep.space(), None)
    status = small_sweep.sweep(
        tmp_path,
        spec=small_sweep.sweep_spec(behaviour="kept"),
        designer=designer,
        budget_seconds=2.0,
        can_continue=True,
    )
    trials = stored(tmp_path)
    assert len(trials) > 2 and status.spent_seconds == pytest.approx(sum(trial.cost_seconds for trial in trials))
    assert [trial.continues for trial in trials] == [None, *range(len(trials) - 1)]
    assert [trial.score for trial in trials] == [1.0 + number for number in range(len(trials))], "legs of one run"
    assert len({trial.seed for trial in trials}) == 1
    for number, leg in enumerate(trials):  # of each, two tenths of a second lie behind what it left
        assert leg.continued_seconds == pytest.approx(0.2 * number)
        assert leg.run_seconds == pytest.approx(0.2 * number + leg.cost_seconds)


def test_the_cap_on_one_trial_is_one_on_its_whole_run(tmp_path: Path) -> None:
    """Two tenths of a second lie behind each trial, and the third has a fifth of a second left."""

    class Jobs(TrainerBackend):
        limits: ClassVar[list[float | None]] = []

        def start(self, job: Job) -> None:
            self.limits.append(max_trial_seconds(job.config))
            super().start(job)

    small_sweep.sweep(
        tmp_path,
        spec=small_sweep.sweep_spec(behaviour="kept"),
        designer=small_sweep.GoOn(small_sweep.space(), None),
        backend=Jobs(entry=small_sweep.TRIAL, preload=()),
        budget_seconds=100.0,
        max_trial_seconds=0.6,
        max_trials=3,
        can_continue=True,
    )
    assert Jobs.limits == pytest.approx([0.6, 0.4, 0.2])


def test_the_steps_of_the_trial_that_it_continues_lie_behind_a_trial(tmp_path: Path) -> None:
    class Jobs(TrainerBackend):
        behind: ClassVar[list[int]] = []

        def start(self, job: Job) -> None:
            self.behind.append(job.steps_behind)
            super().start(job)

    small_sweep.sweep(
        tmp_path,
        spec=small_sweep.sweep_spec(behaviour="kept"),
        designer=small_sweep.GoOn(small_sweep.space(), None),
        backend=Jobs(entry=small_sweep.TRIAL, preload=()),
        budget_seconds=100.0,
        max_trials=3,
        can_continue=True,
    )
    steps = [trial.steps for trial in stored(tmp_path)]
    assert Jobs.behind == [0, *steps[:2]] and all(steps)


def test_only_a_sweep_that_may_continue_trials_does(tmp_path: Path) -> None:
    designer = small_sweep.GoOn(small_sweep.space(), None)
    small_sweep.sweep(tmp_path, spec=small_sweep.sweep_spec(behaviour="kept"), designer=designer, budget_seconds=1.0)
    assert {trial.continues for trial in stored(tmp_path)} == {None}


def test_a_trial_whose_files_are_gone_is_not_continued(tmp_path: Path) -> None:
    class Delete(small_sweep.Lines):
        def finished(self, trial: TrialRecord, status: SweepStatus) -> None:
            path = trial.artifact("continuable")
            if path is not None:
                Path(path).unlink()

    designer = small_sweep.GoOn(small_sweep.space(), None)
    spec = small_sweep.sweep_spec(behaviour="kept")
    small_sweep.sweep(tmp_path, spec=spec, designer=designer, budget_seconds=1.0, can_continue=True, listener=Delete())
    assert {trial.continues for trial in stored(tmp_path)} == {None}
