import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from protein import envs_c
from protein.trainer.config import RunConfig
from protein.trainer.errors import CheckpointError
from protein.trainer.machine import checkpoint as checkpoints
from protein.trainer.model import saved as policies

PONG = envs_c.spec("pong")
CONFIG = RunConfig.from_dict({"policy": {"hidden_size": 8}, "train": {"learning_rate": 0.1 + 0.2}})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint.safetensors"
    tensors = {"policy/a": torch.ones(2), "run/episodes": torch.tensor(7)}
    policies.write(path, CONFIG, PONG, steps=5, elapsed_seconds=1.5, score=-3.5, tensors=tensors, first_step=2)
    return path


def test_what_was_written_is_read(path: Path) -> None:
    read = policies.read(path)
    assert (read.config, read.observation_shape, read.action_sizes, read.continuous_actions) == (CONFIG, (8,), (3,), 0)
    saved = read.checkpoint
    assert (saved.kind, saved.subject, saved.steps, saved.elapsed_seconds, saved.score, saved.first_step) == (
        checkpoints.PPO,
        "pong",
        5,
        1.5,
        -3.5,
        2,
    )
    assert read.group("policy")["a"].tolist() == [1, 1]
    assert policies.read(path, prefix=policies.ACTING).checkpoint.tensors.keys() == {"policy/a"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"config": {"train": {"new_key": 1}}}, "another version"),
        ({"details": {}}, "another version"),
        ({"kind": checkpoints.LANGUAGE, "subject": "text/python"}, "kind 'language' on 'text/python'"),
    ],
)
def test_metadata_that_are_no_policys_are_refused(path: Path, changed: dict[str, Any], message: str) -> None:
    checkpoints.write(path, dataclasses.replace(checkpoints.read(path), **changed))
    with pytest.raises(CheckpointError, match=message) as caught:
        policies.read(path)
    assert "\n" not in str(caught.value)


def test_another_environment_is_refused(path: Path) -> None:
    read = policies.read(path)
    policies.require_env(read, path, PONG)
    with pytest.raises(CheckpointError, match="it was trained on 'pong', not on 'breakout': give --env pong"):
        policies.require_env(read, path, envs_c.spec("breakout"))


@pytest.mark.parametrize(
    ("changed", "now"),
    [
        ({"observation_shape": (2, 2, 2)}, r"\(\(2, 2, 2\), \(3,\), 0\)"),
        ({"action_sizes": (3, 2)}, r"\(\(8,\), \(3, 2\), 0\)"),
        ({"action_sizes": (), "continuous_actions": 1}, r"\(\(8,\), \(\), 1\)"),
    ],
)
def test_an_environment_that_has_changed_is_refused(path: Path, changed: dict[str, Any], now: str) -> None:
    spec = dataclasses.replace(PONG, **changed)
    with pytest.raises(
        CheckpointError, match=rf"expects .* \(\(8,\), \(3,\), 0\), 'pong' now has {now}: train it again"
    ):
        policies.require_env(policies.read(path), path, spec)
