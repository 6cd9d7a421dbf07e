"""Which sweeps can continue trials, which trials they can, and that they do."""

import dataclasses
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest
import small_sweep
from patience import PATIENCE_SECONDS
from sample_trials import trial
from small_sweep import stored

from protein.ports import Finished, Job, SweepStatus
from protein.run.job import max_trial_seconds
from protein.run.trainer import LocalBackend
from protein.space import Categorical, Float, Integer, Space
from protein.sweep import resuming
from protein.types import (
    CONTINUABLE,
    CONTINUABLE_SECONDS,
    Artifact,
    Provenance,
    Suggestion,
    SweepSpec,
    Trial,
    TrialEnd,
    TrialRecord,
    TrialState,
)

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

    backend = LocalBackend()
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

    class Jobs(LocalBackend):
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
    class Jobs(LocalBackend):
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
