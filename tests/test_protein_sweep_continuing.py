"""Which sweeps can continue trials, and which trials they can."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_SECONDS
from viewing import trial

from protein.ports import Finished, Job
from protein.space import Categorical, Float, Integer, Space
from protein.sweep import continuing
from protein.sweep.backends.local import LocalBackend
from protein.types import Artifact, Provenance, SweepSpec, Trial, TrialEnd, TrialState

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
    assert continuing.why_never(spec(space, lr_schedule=schedule)) is None
    assert continuing.why_never(spec(Space([GAMMA]))) is None, "a function says so itself"


def test_one_such_choice_of_a_searched_schedule_is_enough() -> None:
    for choices, able in ((("cosine", "wsd"), True), (("cosine", "linear"), False)):
        space = Space([STEPS, Categorical("train.lr_schedule", choices)], cost_parameter=STEPS.name)
        assert (continuing.why_never(spec(space, lr_schedule="cosine")) is None) is able


def test_a_sweep_that_cannot_says_why_and_what_would_help() -> None:
    space = Space([STEPS, GAMMA], cost_parameter=STEPS.name)
    assert continuing.why_never(spec(space, lr_schedule="cosine")) == (
        "trials are never continued: with train.lr_schedule = cosine the step size has fallen when a run ends; constant"
        " or wsd allow it"
    )
    assert continuing.why_never(spec(Space([GAMMA]), lr_schedule="wsd")) == (
        "trials are never continued: train.total_timesteps is not searched as the cost parameter"
    )
    assert continuing.why_never(spec(space, method="random", lr_schedule="wsd")) == (
        "trials are never continued: method 'random' cannot"
    )
    sweep = spec(space, lr_schedule="wsd")
    entropy = dataclasses.replace(sweep, config={"train": {**sweep.config["train"], "ent_coef_final": 0.0}})
    assert continuing.why_never(entropy) == (
        "trials are never continued: with train.ent_coef_final the entropy bonus depends on a run's length; -1 allows"
        " it"
    )


def test_seconds_count_from_the_first_step_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    kept = (Artifact(kind=continuing.ARTIFACT, path=str(tmp_path / "state")),)
    bare = trial(3, 10.0, 1.0)
    whole = dataclasses.replace(bare, artifacts=kept, metrics={continuing.SECONDS: 8.0}, continued_seconds=5.0)
    assert continuing.resumable_seconds(whole) == 13.0
    assert continuing.state(whole) == tmp_path / "state"
    assert continuing.resumable_seconds(bare) is None
    (tmp_path / "state").unlink()
    assert continuing.resumable_seconds(whole) is None, "its checkpoint was deleted"


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
        assert paths[continuing.ARTIFACT].name == "stable.safetensors"
        second = finished(1, 2560, paths[continuing.ARTIFACT])
        again = finished(2, 1280, paths["checkpoint"])
    finally:
        backend.close()
    assert (first.outcome.end, second.outcome.end, second.outcome.steps) == (TrialEnd.COMPLETE, TrialEnd.COMPLETE, 2560)
    assert 0.0 < first.outcome.metrics[continuing.SECONDS] < first.outcome.cost_seconds
    assert (again.outcome.state, again.outcome.score) == (TrialState.FAILED, None)
    assert "train.total_timesteps must be larger" in again.outcome.reason
