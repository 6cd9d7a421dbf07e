"""Runs that begin with what another one has learnt (`policy.init_from`)."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from ppo_runs import small
from whole_runs import StopAfter, go, same, tensors

from protein.trainer.config import RunConfig
from protein.trainer.errors import CheckpointError
from protein.trainer.machine import checkpoint as checkpoints

STILL = {"learning_rate": 1e-30}  # steps that change no weight
SCALED = {"normalize_observations": "on", "reward_scaling": "return"}
SELF_PLAY: dict[str, Any] = {
    "env": {"name": "pong2", "num_envs": 32},
    "train": {"total_timesteps": 64 * 32},
    "selfplay": {"on": True, "pool_size": 2},
}


def begun(path: Path, **sections: dict[str, Any]) -> RunConfig:
    return small(**sections | {"policy": {**sections.get("policy", {}), "init_from": str(path)}})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"train": {"total_timesteps": 512}}),
        ({"train": SCALED}, {"env": {"name": "pong2", "frame_skip": 1, "num_envs": 8}}),
        ({"train": {"overlap": True}}, {"train": {"overlap": True}}),
        ({"policy": {"recurrence": "lstm"}}, {"policy": {"recurrence": "lstm"}, "env": {"double_buffer": True}}),
        ({"policy": {"log_std_init": -1.0}, "env": {"name": "pendulum", "frame_skip": 1}},) * 2,
        ({}, SELF_PLAY),
    ],
    ids=["plain", "another environment, scaled", "overlap", "memory", "continuous actions", "self-play"],
)
def test_it_begins_with_the_weights_and_the_scales(
    first: dict[str, Any], second: dict[str, Any], tmp_path: Path
) -> None:
    go(small(**first), tmp_path / "first")
    before = tensors(tmp_path / "first")
    still = {**second, "train": {**second.get("train", {}), **STILL}}
    _, events = go(begun(tmp_path / "first", **still), tmp_path / "second")  # the folder of a run
    after = tensors(tmp_path / "second")
    weights = [name for name in before if name.startswith("policy/")]
    assert all(after[name].equal(before[name]) for name in weights)
    if "snapshot/weights" in after:  # of the network that acts
        learnt = torch.cat([before[name].flatten() for name in weights])
        assert after["snapshot/weights"].sort().values.equal(learnt.sort().values)
    scales = [name for name in before if name.startswith("scaling/")]
    assert [name for name in after if name.startswith("scaling/")] == scales
    assert all(after[name] > before[name] > 0 for name in scales if name.endswith(".count")), "they go on"
    assert events[0]["steps"] == 0, "all counters begin anew"
    (note,) = events[0]["notes"]
    assert re.fullmatch(rf"begins with the weights in {tmp_path}/first: \w+, 4,[0-9]+ steps(, score \S+)?", note)


def test_a_run_that_goes_on_does_not_need_what_it_began_with(tmp_path: Path) -> None:
    first = tmp_path / "first.safetensors"
    go(small(train=SCALED), tmp_path)
    (tmp_path / checkpoints.FILE_NAME).rename(first)
    config = begun(first, train={**SCALED, "lr_schedule": "constant"})
    straight, _ = go(config, tmp_path / "straight")
    go(config, tmp_path / "cut", stop=StopAfter(3))
    first.unlink()
    resumed, events = go(config, tmp_path / "cut", resume=tmp_path / "cut" / checkpoints.FILE_NAME)
    assert events[0]["steps"] > 0
    assert (resumed.score, resumed.metrics) == (straight.score, straight.metrics)
    assert same(tensors(tmp_path / "cut"), tensors(tmp_path / "straight"))
    longer = begun(first, train={**SCALED, "lr_schedule": "constant", "total_timesteps": 6000})
    go(longer, tmp_path / "longer", continue_from=tmp_path / "straight" / checkpoints.FILE_NAME)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        (
            {"env": {"name": "cartpole", "frame_skip": 1}},
            r"expects \(observation shape, choices, continuous actions\) \(\(8,\), \(3,\), 0\), 'cartpole' has"
            r" \(\(4,\), \(2,\), 0\): begin with a checkpoint of that form",
        ),
        ({"policy": {"hidden_size": 16}}, "it was trained with policy.hidden_size 8, not 16: use the same"),
        ({"policy": {"activation": "tanh"}}, "it was trained with policy.activation relu, not tanh: use the same"),
        (
            {"train": {"normalize_observations": "on"}},
            "with train.normalize_observations off, not on: use 'off' or 'auto'",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(sections: dict[str, Any], said: str, tmp_path: Path) -> None:
    go(small(train={"normalize_observations": "off", "total_timesteps": 512}), tmp_path)
    with pytest.raises(CheckpointError, match=rf"^cannot (use|begin with) {tmp_path}/\S+: .*{said}"):
        go(begun(tmp_path, **sections))
    with pytest.raises(CheckpointError, match=r"^there is no checkpoint /none$"):
        go(begun(Path("/none")))
