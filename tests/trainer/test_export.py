"""A policy as a file for pages: what is refused. What the page makes of it: tests/protein/web/test_play_policy.py."""

from pathlib import Path

import pytest
import torch

from protein import envs_c
from protein.trainer.config import EnvConfig, PolicyConfig, RunConfig
from protein.trainer.errors import CheckpointError, ConfigError
from protein.trainer.export import export_policy
from protein.trainer.model import saved as policies
from protein.trainer.model.policy import Policy


def write(path: Path, config: RunConfig, *, broken: bool = False) -> Path:
    spec = envs_c.spec("pong")
    policy = Policy(spec, RunConfig().policy, generator=torch.Generator())
    tensors = {f"policy/{name}": weight for name, weight in policy.state_dict().items()}
    if broken:
        tensors["policy/head.bias"] = torch.full_like(tensors["policy/head.bias"], torch.nan)
    policies.write(path, config, spec, steps=1, elapsed_seconds=0.0, score=None, tensors=tensors)
    return path


def test_what_no_page_can_play_is_refused_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "one.safetensors"
    for name in ("gym:CartPole-v1", "python:mine:Walk"):
        write(path, RunConfig(env=EnvConfig(name=name)))
        with pytest.raises(ConfigError, match=f"{path}: '{name}' cannot be played in a page: it has no WebAssembly"):
            export_policy(path)
    write(path, RunConfig(policy=PolicyConfig(module="mine:Net")))
    with pytest.raises(ConfigError, match="has a network of your own, mine:Net, whose code a page cannot run"):
        export_policy(path)
    write(path, RunConfig(env=EnvConfig(name="breakout")))
    with pytest.raises(CheckpointError, match="'breakout' now has"):
        export_policy(path)
    write(path, RunConfig(), broken=True)
    with pytest.raises(CheckpointError, match="its weights are not finite"):
        export_policy(path)
    whole = write(path, RunConfig()).read_bytes()
    assert export_policy(path)
    flipped = bytearray(whole)
    flipped[-9] ^= 1
    for content in (whole[:-100], bytes(flipped), b"", b"other"):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="it is damaged or no checkpoint"):
            export_policy(path)
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        export_policy(tmp_path / "none")
