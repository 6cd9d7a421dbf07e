"""Whole runs with each option of the trainer: they repeat, resume bit for bit, and fail with the step."""

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from event_log import EventLog

from protein.trainer.config import RunConfig
from protein.trainer.errors import CheckpointError, ConfigError, DivergedError
from protein.trainer.events import RunResult
from protein.trainer.machine import checkpoint as checkpoints
from protein.trainer.run import run

Sections = dict[str, dict[str, Any]]
SMALL: Sections = {
    "env": {"name": "pong", "num_envs": 8, "frame_skip": 40},
    "policy": {"hidden_size": 8},
    "train": {"total_timesteps": 8 * 16 * 5, "threads": 1, "device": "cpu", "horizon": 16, "minibatch_size": 48},
    "eval": {"episodes": 8, "num_envs": 8},
}
PENDULUM = {"name": "pendulum", "frame_skip": 10}
CONDITIONED = {"normalize_observations": "on", "reward_scaling": "return"}
VARIANTS: dict[str, Sections] = {
    "mlp": {},
    "lstm": {"policy": {"recurrence": "lstm"}},
    "mingru": {"policy": {"recurrence": "mingru"}},
    "cnn": {"env": {"name": "maze", "frame_skip": 1}, "policy": {"encoder": "cnn"}},
    "several actions": {"env": {"name": "entities", "num_envs": 2}, "policy": {"recurrence": "mingru"}},
    "continuous": {"env": PENDULUM},
    "continuous lstm": {"env": PENDULUM, "policy": {"recurrence": "lstm"}},
    "value bins": {"policy": {"value_bins": 9, "value_limit": 21.0}},
    "muon": {"train": {"optimizer": "muon", "weight_decay": 0.1, "warmup_fraction": 0.3}},
    "fp16": {"train": {"precision": "fp16"}},
    "fp16 muon": {"train": {"precision": "fp16", "optimizer": "muon"}},
    "train_fp16": {"train": {"train_fp16": True}},
    "bf16": {"train": {"precision": "bf16"}, "policy": {"recurrence": "mingru"}},
    "tf32": {"train": {"precision": "tf32"}},
    "update in bf16": {"train": {"update_precision": "bf16"}},
    "double buffer": {"env": {"double_buffer": True}},
    "double buffer lstm": {"env": {"double_buffer": True}, "policy": {"recurrence": "lstm"}},
    "overlap": {"train": {"overlap": True}},
    "accumulation": {"train": {"accumulation_steps": 3}},
    "entropy schedule": {"train": {"ent_coef_final": 0.0}},
    "target entropy and KL": {"train": {"target_entropy": 0.8, "target_kl": 0.001, "update_epochs": 4}},
    "normalised": {"train": CONDITIONED},
    "normalised lstm": {"train": CONDITIONED, "policy": {"recurrence": "lstm"}, "env": {"double_buffer": True}},
    "normalised overlap": {"train": CONDITIONED | {"overlap": True, "cpu_inference": True}},
    "normalised continuous": {"env": PENDULUM, "train": CONDITIONED | {"reward_clip": 0.5}},
}


def small(*variants: Sections) -> RunConfig:
    nested = {name: dict(values) for name, values in SMALL.items()}
    for variant in variants:
        for name, values in variant.items():
            nested[name] |= values
    return RunConfig.from_dict(nested)


def go(config: RunConfig, directory: Path | None = None, **options: Any) -> RunResult:
    return run(config, directory=directory, report=lambda _: None, **options)


def tensors(directory: Path) -> dict[str, torch.Tensor]:
    return dict(checkpoints.read(directory / checkpoints.FILE_NAME).tensors)


class StopAfter(threading.Event):
    """Is set from the second look on: the run ends after its second iteration."""

    looks = 0

    def is_set(self) -> bool:
        self.looks += 1
        return self.looks > 2


@pytest.mark.parametrize("variant", VARIANTS)
def test_interrupted_and_resumed_equals_uninterrupted(variant: str, tmp_path: Path) -> None:
    """Bit for bit: weights, optimiser, scaler, random state, environments, recurrent state and the evaluation."""
    config = small(VARIANTS[variant])
    before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    straight = go(config, tmp_path / "straight")
    cut = go(config, tmp_path / "cut", stop=StopAfter())
    assert cut.interrupted and 0 < cut.steps < straight.steps
    resumed = go(config, tmp_path / "cut", resume=tmp_path / "cut" / checkpoints.FILE_NAME)
    assert (resumed.score, resumed.steps) == (straight.score, straight.steps)
    ours, theirs = tensors(tmp_path / "cut"), tensors(tmp_path / "straight")
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not ours[name].equal(theirs[name])] == []
    assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == before
    assert not torch.is_autocast_enabled("cpu")


MAZE: Sections = {"env": {"name": "maze", "frame_skip": 1, "num_envs": 64}, "train": {"total_timesteps": 64 * 16 * 8}}


@pytest.mark.parametrize("env", ["pong", "maze"])
def test_double_buffering_trains_the_same_network(env: str, tmp_path: Path) -> None:
    """Also where episodes are truncated, as most of the maze's are at first."""
    base: Sections = MAZE | {"train": MAZE["train"] | {"minibatch_size": 512}} if env == "maze" else {}
    plain = go(small(base), tmp_path / "plain")
    double = go(small(base, {"env": {"double_buffer": True}}), tmp_path / "double")
    assert plain.metrics["episodes"] == double.metrics["episodes"] > 0
    assert plain.score == double.score
    ours, theirs = tensors(tmp_path / "plain"), tensors(tmp_path / "double")
    for name in ours:
        if name.startswith(("policy/", "optimizer/", "rollout/observations")):
            assert ours[name].equal(theirs[name]), name


@pytest.mark.parametrize("variant", ["mlp", "lstm", "mingru", "continuous"])
def test_threads_change_nothing_in_small_networks(variant: str, tmp_path: Path) -> None:
    for threads in (1, 3):
        go(small(VARIANTS[variant], {"train": {"threads": threads}}), tmp_path / str(threads))
    ours, theirs = tensors(tmp_path / "1"), tensors(tmp_path / "3")
    assert all(ours[name].equal(theirs[name]) for name in ours)


@pytest.mark.parametrize(
    "variant", ["mlp", "lstm", "mingru", "continuous", "continuous lstm", "value bins", "fp16", "overlap"]
)
def test_an_exploding_loss_ends_as_failed_with_the_step(variant: str) -> None:
    explosive = {"learning_rate": 1e30, "lr_schedule": "constant", "max_grad_norm": 100.0, "total_timesteps": 10_000}
    events = EventLog()
    with pytest.raises(DivergedError, match=r"diverged at step \d+: .* not finite: lower train\.learning_rate"):
        run(small(VARIANTS[variant], {"train": explosive}), directory=None, report=events.record)
    failed = events[-1]
    assert (failed["event"], failed["reason"]) == ("failed", "diverged")
    assert 0 < failed["steps"] <= 10_112 and f"step {failed['steps']}:" in failed["message"]


@pytest.mark.parametrize("variant", ["mlp", "continuous", "continuous lstm"])
def test_weights_too_large_to_act_with_are_evaluated_or_refused_but_do_not_crash(variant: str) -> None:
    """One last step that leaves finite weights whose outputs overflow."""
    once = {"learning_rate": 1e25, "lr_schedule": "constant", "total_timesteps": 128, "minibatch_size": 128}
    try:
        result = go(small(VARIANTS[variant], {"train": once | {"update_epochs": 1}}))
    except DivergedError:
        return
    assert result.steps == 128


def test_an_overflow_halves_the_scale_and_training_goes_on(tmp_path: Path) -> None:
    """Rewards of about -16 a step in the pendulum make the value's first gradients large."""
    config = small({"env": PENDULUM, "train": {"precision": "fp16", "vf_coef": 4000.0, "reward_scaling": "off"}})
    result = go(config, tmp_path)
    assert result.score is not None
    scale = tensors(tmp_path)["optimizer/scaler.scale"].item()
    assert 1e-4 < scale < 2.0**16


@pytest.mark.parametrize(
    ("saved", "resumed", "message"),
    [
        ({"train": {"optimizer": "muon"}}, {}, "does not fit this run"),
        ({}, {"train": {"optimizer": "muon"}}, "does not fit this run"),
        ({}, {"policy": {"recurrence": "lstm"}}, "shape none there"),
        ({"env": PENDULUM}, {}, "trained on 'pendulum', not on 'pong'"),
        ({}, {"env": {"double_buffer": True}}, r"use the same \[env\] settings"),
    ],
)
def test_a_checkpoint_of_another_kind_of_run_is_not_resumed(
    saved: Sections, resumed: Sections, message: str, tmp_path: Path
) -> None:
    go(small(saved, {"train": {"total_timesteps": 128}}), tmp_path)
    with pytest.raises(CheckpointError, match=message) as caught:
        go(small(resumed), resume=tmp_path / checkpoints.FILE_NAME)
    assert "\n" not in str(caught.value)


def test_an_update_has_its_own_precision(tmp_path: Path) -> None:
    def weights(**train: Any) -> torch.Tensor:
        name = "-".join(train) or "plain"
        go(small({"train": {"total_timesteps": 128, **train}}), tmp_path / name)
        return torch.cat([t.flatten() for n, t in tensors(tmp_path / name).items() if n.startswith("policy/")])

    assert torch.equal(weights(train_fp16=True), weights(update_precision="fp16"))
    assert not torch.equal(weights(update_precision="bf16"), weights())


@pytest.mark.parametrize(("before", "after"), [("fp32", "fp16"), ("fp16", "bf16")])
def test_another_precision_may_resume(before: str, after: str, tmp_path: Path) -> None:
    go(small({"train": {"total_timesteps": 128, "precision": before}}), tmp_path)
    resumed = go(small({"train": {"precision": after}}), resume=tmp_path / checkpoints.FILE_NAME)
    assert resumed.steps == 640


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"policy": {"encoder": "cnn"}},
            r"'cnn' needs observations that are grids .* have the shape \(8,\): use 'mlp'",
        ),
        (
            {"policy": {"recurrence": "lstm"}, "train": {"minibatch_size": 15}},
            r"\(15\) is smaller than train.accumulation_steps \(1\) segments of",
        ),
        (
            {"policy": {"recurrence": "lstm"}, "train": {"accumulation_steps": 4}},
            r"\(48\) is smaller than train.accumulation_steps \(4\) segments of",
        ),
        ({"train": {"accumulation_steps": 49}}, r"\(48\) is smaller than train.accumulation_steps \(49\) samples"),
    ],
)
def test_what_does_not_fit_together_is_refused_in_one_line(sections: Sections, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        go(small(sections))
    assert "\n" not in str(caught.value)
