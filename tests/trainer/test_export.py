"""A policy as a file for pages: what is refused. What the page makes of it: tests/protein/web/test_play_policy.py."""

import dataclasses
import math
from pathlib import Path

import pytest
from policy_files import make_checkpoint

from protein.trainer.errors import CheckpointError, ConfigError
from protein.trainer.export import export_policy
from protein.trainer.machine import checkpoint as checkpoints


def test_what_no_page_can_play_is_refused_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "one.safetensors"
    for name in ("gym:CartPole-v1", "python:mine:Walk"):
        make_checkpoint(path, "pong", env=name)
        with pytest.raises(ConfigError, match=f"{path}: '{name}' cannot be played in a page: it has no WebAssembly"):
            export_policy(path)
    make_checkpoint(path, "pong", module="mine:Net")
    with pytest.raises(ConfigError, match="has a network of your own, mine:Net, whose code a page cannot run"):
        export_policy(path)
    make_checkpoint(path, "pong", env="breakout")
    with pytest.raises(CheckpointError, match="'breakout' now has"):
        export_policy(path)
    make_checkpoint(path, "pong", scale=math.inf)
    with pytest.raises(CheckpointError, match="its weights are not finite"):
        export_policy(path)
    saved = checkpoints.read(make_checkpoint(path, "pong", normalised=True))
    mean = "scaling/observations.mean"
    damaged = {**saved.tensors, mean: saved.tensors[mean] * math.nan}
    checkpoints.write(path, dataclasses.replace(saved, tensors=damaged))
    with pytest.raises(CheckpointError, match="its weights are not finite"):
        export_policy(path)
    for facts in ({"steps": "12"}, {"score": math.nan}, {"elapsed_seconds": [1]}, {"steps": None}):
        checkpoints.write(path, dataclasses.replace(saved, **facts))
        with pytest.raises(CheckpointError, match="its metadata are damaged or of another version"):
            export_policy(path)
    whole = make_checkpoint(path, "pong").read_bytes()
    assert export_policy(path)
    flipped = bytearray(whole)
    flipped[-9] ^= 1
    for content in (whole[:-100], bytes(flipped), b"", b"other"):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="it is damaged or no checkpoint"):
            export_policy(path)
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        export_policy(tmp_path / "none")
