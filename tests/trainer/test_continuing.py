"""Runs of PPO that are interrupted and resumed, and longer runs that go on with shorter ones."""

import threading
from pathlib import Path
from typing import Any

import pytest
from ppo_runs import BATCH, small
from whole_runs import StopAfter, go, same, tensors

from protein.trainer.config import RunConfig
from protein.trainer.errors import CheckpointError
from protein.trainer.evaluate import evaluate
from protein.trainer.machine import checkpoint as checkpoints


def test_interrupted_and_resumed_equals_uninterrupted(tmp_path: Path) -> None:
    """Bit for bit: weights, optimiser, random state, environments, window of scores, and the final evaluation."""
    config = small(train={"total_timesteps": 16 * 32 * 12})
    straight, _ = go(config, tmp_path / "straight")

    first, events = go(config, tmp_path / "cut", stop=StopAfter(5))
    assert first.interrupted and first.score is None and first.steps == 16 * 32 * 5
    assert events[-1]["event"] == "interrupted" and events[-1]["steps"] == first.steps
    checkpoint = tmp_path / "cut" / checkpoints.FILE_NAME
    resumed, _ = go(config, tmp_path / "cut", resume=checkpoint)
    assert (resumed.score, resumed.steps) == (straight.score, straight.steps)
    assert resumed.metrics == straight.metrics
    assert same(tensors(tmp_path / "cut"), tensors(tmp_path / "straight"))


KINDS: dict[str, dict[str, dict[str, Any]]] = {
    "mlp": {},
    "lstm": {"policy": {"recurrence": "lstm"}},
    "overlap": {"train": {"overlap": True}},
    "muon": {"train": {"optimizer": "muon"}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_constant_run_that_is_continued_equals_the_longer_run_in_one_go(kind: str, tmp_path: Path) -> None:
    """Bit for bit: weights, optimiser, random state, environments, window of scores, and the final evaluation."""

    def config(iterations: int) -> RunConfig:
        sections = KINDS[kind]
        train = {"total_timesteps": BATCH * iterations, "lr_schedule": "constant", **sections.get("train", {})}
        return small(**{**sections, "train": train})

    straight, _ = go(config(12), tmp_path / "straight")
    first, events = go(config(5), tmp_path / "first")
    checkpoint = tmp_path / "first" / checkpoints.FILE_NAME
    assert (events[-1]["continuable"], events[-1]["continuable_seconds"]) == (str(checkpoint), first.elapsed_seconds)
    continued, events = go(config(12), tmp_path / "second", continue_from=checkpoint)
    assert (continued.score, continued.steps) == (straight.score, straight.steps)
    assert continued.metrics == straight.metrics
    assert same(tensors(tmp_path / "second"), tensors(tmp_path / "straight"))
    assert events[0]["steps"] == BATCH * 5, "the curve's steps go on"
    assert events[-2]["metrics"]["steps_per_second"] == pytest.approx(BATCH * 7 / continued.elapsed_seconds)
    assert checkpoints.read(checkpoint).steps == BATCH * 5, "the shorter run's checkpoint is as it was"


@pytest.mark.parametrize("overlap", [False, True])
def test_a_wsd_run_is_continued_from_before_its_decay(overlap: bool, tmp_path: Path) -> None:
    def config(iterations: int) -> RunConfig:
        train = {"total_timesteps": BATCH * iterations, "lr_schedule": "wsd", "decay_fraction": 0.4, "overlap": overlap}
        return small(train=train)

    straight, _ = go(config(20), tmp_path / "straight")
    first, events = go(config(10), tmp_path / "first")
    stable = tmp_path / "first" / checkpoints.STABLE_FILE_NAME
    assert events[-1]["continuable"] == str(stable)
    assert 0 < events[-1]["continuable_seconds"] < first.elapsed_seconds
    assert checkpoints.read(stable).steps == BATCH * 6
    continued, events = go(config(20), tmp_path / "second", continue_from=stable)
    assert (continued.score, continued.metrics) == (straight.score, straight.metrics)
    for name in (checkpoints.FILE_NAME, checkpoints.STABLE_FILE_NAME):
        assert same(tensors(tmp_path / "second", name), tensors(tmp_path / "straight", name))
    assert events[0]["steps"] == BATCH * 6
    assert checkpoints.read(tmp_path / "second" / checkpoints.STABLE_FILE_NAME).steps == BATCH * 12


@pytest.mark.parametrize(
    "schedule", [{"lr_schedule": "constant", "warmup_fraction": 0.9}, {"lr_schedule": "wsd", "decay_fraction": 0.4}]
)
@pytest.mark.parametrize("before_stop", [2, 8])  # with wsd, before and after the leg's own step size begins to fall
@pytest.mark.parametrize("parent_is_gone", [False, True], ids=["parent", "parent gone"])
def test_an_interrupted_leg_that_is_resumed_equals_an_undisturbed_one(
    schedule: dict[str, Any], before_stop: int, parent_is_gone: bool, tmp_path: Path
) -> None:
    """A leg is a run that continues a shorter one, of which it needs nothing any more once it has begun."""

    def config(iterations: int) -> RunConfig:
        return small(train={"total_timesteps": BATCH * iterations, **schedule})

    _, events = go(config(5), tmp_path / "shorter")
    parent = Path(events[-1]["continuable"])
    undisturbed, _ = go(config(14), tmp_path / "undisturbed", continue_from=parent)

    leg = tmp_path / "leg"
    cut, events = go(config(14), leg, stop=StopAfter(before_stop), continue_from=parent)
    assert cut.interrupted and cut.steps == events[0]["steps"] + BATCH * before_stop < undisturbed.steps
    parents_steps = checkpoints.read(parent).steps
    if parent_is_gone:
        parent.unlink()
    continue_from = None if parent_is_gone else parent
    whole, events = go(config(14), leg, continue_from=continue_from, resume=leg / checkpoints.FILE_NAME)
    assert events[0]["steps"] == cut.steps, "it goes on from its own checkpoint, not from that of the shorter run"
    assert (whole.score, whole.steps) == (undisturbed.score, undisturbed.steps)
    assert whole.metrics == undisturbed.metrics
    for name in (checkpoints.FILE_NAME, checkpoints.STABLE_FILE_NAME):
        if (tmp_path / "undisturbed" / name).exists():
            assert same(tensors(leg, name), tensors(tmp_path / "undisturbed", name))
    assert whole.elapsed_seconds > cut.elapsed_seconds, "its clock counts both parts, and not the shorter run"
    measured = [event for event in events if event["event"] == "measurement"]
    rate = (whole.steps - parents_steps) / whole.elapsed_seconds
    assert measured[-1]["metrics"]["steps_per_second"] == pytest.approx(rate)


def test_a_damaged_file_for_longer_runs_does_not_hinder_the_run_itself(tmp_path: Path) -> None:
    config = small(train={"total_timesteps": BATCH * 10, "lr_schedule": "wsd", "decay_fraction": 0.4})
    straight, _ = go(config, tmp_path / "straight")
    go(config, tmp_path / "cut", stop=StopAfter(8))
    stable = tmp_path / "cut" / checkpoints.STABLE_FILE_NAME
    stable.write_bytes(stable.read_bytes()[:-1])
    resumed, events = go(config, tmp_path / "cut", resume=tmp_path / "cut" / checkpoints.FILE_NAME)
    assert (resumed.score, resumed.metrics) == (straight.score, straight.metrics)
    assert (events[-1]["continuable"], events[-1]["continuable_seconds"]) == (None, None)


@pytest.mark.parametrize("decay_fraction", [0.0, 0.01])
def test_a_wsd_run_without_decay_is_continued_from_its_end(decay_fraction: float, tmp_path: Path) -> None:
    def config(iterations: int) -> RunConfig:
        train = {"lr_schedule": "wsd", "decay_fraction": decay_fraction}
        return small(train={"total_timesteps": BATCH * iterations, **train})

    straight, _ = go(config(10), tmp_path / "straight")
    first, events = go(config(5), tmp_path / "first")
    checkpoint = tmp_path / "first" / checkpoints.FILE_NAME
    assert (events[-1]["continuable"], events[-1]["continuable_seconds"]) == (str(checkpoint), first.elapsed_seconds)
    continued, _ = go(config(10), tmp_path / "second", continue_from=checkpoint)
    assert (continued.score, continued.metrics) == (straight.score, straight.metrics)


@pytest.mark.parametrize("train", [{"lr_schedule": "cosine"}, {"lr_schedule": "linear"}, {"max_seconds": 1e-6}])
def test_other_runs_cannot_be_continued(train: dict[str, Any], tmp_path: Path) -> None:
    _, events = go(small(train={"lr_schedule": "wsd", **train}), tmp_path)
    assert (events[-1]["continuable"], events[-1]["continuable_seconds"]) == (None, None)
    assert not (tmp_path / checkpoints.STABLE_FILE_NAME).exists()


def test_a_continued_run_makes_no_warmup_again(tmp_path: Path) -> None:
    def config(iterations: int) -> RunConfig:
        train = {"total_timesteps": BATCH * iterations, "lr_schedule": "constant", "warmup_fraction": 0.9}
        return small(train=train)

    go(config(2), tmp_path / "first")
    _, events = go(config(10), continue_from=tmp_path / "first" / checkpoints.FILE_NAME)
    rates = [event["metrics"]["learning_rate"] for event in events if event["event"] == "measurement"]
    assert set(rates) == {config(10).train.learning_rate}


def test_only_a_longer_run_continues_a_run(tmp_path: Path) -> None:
    config = small(train={"lr_schedule": "constant"})
    go(config, tmp_path)
    with pytest.raises(CheckpointError, match=r"has made 4000 steps; train\.total_timesteps must be larger, got 4000"):
        go(config, continue_from=tmp_path / checkpoints.FILE_NAME)


def test_only_a_checkpoint_of_the_same_shape_is_resumed(tmp_path: Path) -> None:
    go(small(train={"total_timesteps": 512}), tmp_path)
    checkpoint = tmp_path / checkpoints.FILE_NAME
    with pytest.raises(CheckpointError, match=r"use the same \[env\] settings"):
        go(small(env={"num_envs": 8}), resume=checkpoint)
    with pytest.raises(CheckpointError, match="shape"):
        go(small(policy={"hidden_size": 16}), resume=checkpoint)
    with pytest.raises(CheckpointError, match=r"trained with policy\.activation relu, not tanh: use the same"):
        go(small(policy={"activation": "tanh"}, train={"total_timesteps": 1024}), resume=checkpoint)


def test_a_stop_before_the_first_step_still_leaves_a_checkpoint(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    result, events = go(small(), tmp_path, stop=stop)
    assert result.interrupted and result.steps == 0
    assert [event["event"] for event in events] == ["start", "interrupted"]
    assert evaluate(tmp_path / checkpoints.FILE_NAME, env="pong", episodes=2, threads=1).episodes == 2
