import dataclasses
import json
import math
import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from full_disk import largest_file
from safetensors.torch import save_file

from protein import envs_c
from protein.trainer.config import PolicyConfig, RunConfig
from protein.trainer.errors import CheckpointError, DiskError
from protein.trainer.machine import checkpoint as checkpoints
from protein.trainer.machine.checkpoint import Checkpoint
from protein.trainer.model.policy import Policy

PONG = envs_c.spec("pong")


def make_policy(hidden_size: int = 8, seed: int = 0) -> Policy:
    generator = torch.Generator().manual_seed(seed)
    return Policy(PONG, PolicyConfig(hidden_size=hidden_size), generator=generator)


def make_checkpoint(policy: Policy) -> Checkpoint:
    config = RunConfig.from_dict({"policy": {"hidden_size": 8}, "train": {"learning_rate": 0.1 + 0.2}})
    return Checkpoint(
        kind=checkpoints.PPO,
        subject="pong",
        config=config.to_dict(),
        details={"observation_shape": [8], "action_sizes": [3], "continuous_actions": 0},
        steps=12345,
        elapsed_seconds=1.25,
        score=-3.5,
        tensors={f"policy/{name}": tensor for name, tensor in policy.state_dict().items()}
        | {"run/episodes": torch.tensor(7)},
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "deep" / "checkpoint.safetensors"
    checkpoints.write(path, make_checkpoint(make_policy()))
    return path


def test_what_was_written_is_read(path: Path) -> None:
    written, read = make_checkpoint(make_policy()), checkpoints.read(path)
    assert dataclasses.replace(read, tensors={}) == dataclasses.replace(written, tensors={})
    assert read.tensors.keys() == written.tensors.keys()
    other = make_policy(seed=1)
    checkpoints.load_weights_(other, read.group("policy"), path)
    for ours, theirs in zip(other.parameters(), make_policy().parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert checkpoints.read(path, prefix="run/").tensors == {"run/episodes": torch.tensor(7)}


def test_the_file_is_safetensors_with_metadata_that_anyone_can_read(path: Path) -> None:
    """The format's own layout: eight bytes of length, a JSON header, raw numbers. Nothing in it is ever executed."""
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert header["__metadata__"]["env"] == "pong"
    assert json.loads(header["__metadata__"]["run"])["steps"] == 12345


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(path: Path) -> None:
    before = path.read_bytes()
    with largest_file(len(before) // 2), pytest.raises(DiskError, match=r"cannot write .*: free some space") as caught:
        checkpoints.write(path, make_checkpoint(make_policy(hidden_size=64)))
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_crash_before_the_rename_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    before = path.read_bytes()
    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.write(path, make_checkpoint(make_policy(seed=1)))
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_written_to_is_noticed_beforehand(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskError, match=r"cannot write .*: Not a directory"):
        checkpoints.require_writable(tmp_path / "file" / "run")
    checkpoints.require_writable(tmp_path / "new" / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        checkpoints.read(tmp_path / "none.safetensors")


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_a_damaged_file_is_refused(path: Path, keep: int) -> None:
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="damaged or no checkpoint") as caught:
        checkpoints.read(path)
    assert "\n" not in str(caught.value)


def test_no_flipped_bit_goes_unnoticed(path: Path) -> None:
    """Of each part: the length, the header with the metadata, the tensors."""
    whole, draw = path.read_bytes(), random.Random(0)
    header = 8 + int.from_bytes(whole[:8], "little")
    parts = [range(8), range(8, header), range(header, len(whole))]
    for number in range(90):
        damaged = bytearray(whole)
        damaged[draw.choice(parts[number % 3])] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=f"cannot (read|use) {path}") as caught:
            checkpoints.read(path)
        assert "\n" not in str(caught.value)


def test_only_the_tensors_that_are_read_are_checked(path: Path) -> None:
    damaged = bytearray(path.read_bytes())
    start = damaged.index(np.array([7], np.int64).tobytes(), 8 + int.from_bytes(damaged[:8], "little"))
    damaged[start] ^= 1
    path.write_bytes(damaged)
    assert checkpoints.read(path, prefix="policy/").group("policy")
    with pytest.raises(CheckpointError, match="its tensor 'run/episodes' differs from its checksum"):
        checkpoints.read(path)


def test_tensors_of_every_kind_have_a_checksum(tmp_path: Path) -> None:
    tensors = {
        "bf16": torch.ones(3, dtype=torch.bfloat16),
        "bool": torch.tensor([True, False]),
        "empty": torch.empty(0, 4),
        "half": torch.ones(2, 2, dtype=torch.float16).T,
    }
    path, plain = tmp_path / "kinds.safetensors", make_checkpoint(make_policy())
    checkpoints.write(path, dataclasses.replace(plain, tensors=tensors))
    read = checkpoints.read(path).tensors
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors.items())


def test_a_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    torch.save({"a": 1}, path)
    with pytest.raises(CheckpointError, match="damaged or no checkpoint"):
        checkpoints.read(path)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, "its format is 'none'"),
        ({"format": "protein-checkpoint-9"}, "its format is 'protein-checkpoint-9', this version reads"),
        ({"format": checkpoints.FORMAT}, "metadata are damaged"),
        ({"format": checkpoints.FORMAT, "run": "{"}, "metadata are damaged"),
        ({"format": checkpoints.FORMAT, "run": "{}"}, "metadata are damaged"),
        ({"format": checkpoints.FORMAT, "env": "pong", "run": '{"config": {}}'}, "another version"),
    ],
)
def test_other_safetensors_files_are_refused(tmp_path: Path, metadata: dict[str, str], message: str) -> None:
    path = tmp_path / "other.safetensors"
    save_file({"a": torch.zeros(1)}, str(path), metadata)
    with pytest.raises(CheckpointError, match=message):
        checkpoints.read(path)


def test_a_checkpoint_of_the_other_kind_is_refused_in_one_line(path: Path) -> None:
    with pytest.raises(
        CheckpointError,
        match=r"kind 'ppo' on 'pong', and 'language' is needed: .* \[data\] and \[model\].* \[env\] and \[policy\]",
    ) as caught:
        checkpoints.read(path, kind=checkpoints.LANGUAGE)
    assert "\n" not in str(caught.value)
    assert checkpoints.read(path, kind=checkpoints.PPO).kind == checkpoints.PPO


def test_a_file_of_an_earlier_version_is_one_of_ppo(tmp_path: Path) -> None:
    run = {"config": {"env": {"name": "pong"}}, "steps": 3, "elapsed_seconds": 0.5, "score": None, "action_sizes": [3]}
    path = tmp_path / "old.safetensors"
    save_file({"a": torch.zeros(1)}, str(path), {"format": checkpoints.FORMAT, "env": "pong", "run": json.dumps(run)})
    read = checkpoints.read(path, kind=checkpoints.PPO)
    assert (read.subject, read.steps, read.first_step, read.details) == ("pong", 3, 0, {"action_sizes": [3]})


def test_a_weight_that_has_two_names_is_written_under_both(tmp_path: Path) -> None:
    """As in a network of the user's own whose layers are tied."""
    weight = torch.arange(3.0)
    path = tmp_path / "tied.safetensors"
    checkpoints.write(path, dataclasses.replace(make_checkpoint(make_policy()), tensors={"a": weight, "b": weight}))
    assert [read.tolist() for read in checkpoints.read(path).tensors.values()] == [[0.0, 1.0, 2.0]] * 2


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_weights_that_are_not_finite_are_refused_and_the_network_left_alone(path: Path, bad: float) -> None:
    tensors = checkpoints.read(path).group("policy")
    tensors["head.bias"][1] = bad
    policy = make_policy(seed=1)
    before = [p.detach().clone() for p in policy.parameters()]
    with pytest.raises(CheckpointError, match=rf"1 of the \d+ numbers of .*'head.bias' are not finite, .* is {bad}:"):
        checkpoints.load_weights_(policy, tensors, path)
    assert all(torch.equal(a, b) for a, b in zip(policy.parameters(), before, strict=True))


def test_another_network_shape_is_refused_and_the_network_left_alone(path: Path) -> None:
    tensors = checkpoints.read(path).group("policy")
    wide = make_policy(hidden_size=16)
    before = [p.detach().clone() for p in wide.parameters()]
    with pytest.raises(CheckpointError, match=r"'encoder.layers.0.bias' has shape \(8,\) there and \(16,\) here"):
        checkpoints.load_weights_(wide, tensors, path)
    assert all(torch.equal(a, b) for a, b in zip(wide.parameters(), before, strict=True))
    del tensors["head.bias"]
    with pytest.raises(CheckpointError, match=r"'head.bias' has shape none there"):
        checkpoints.load_weights_(make_policy(), tensors, path)
