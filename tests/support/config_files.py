"""A folder of configuration files for tests, and what the layers make of one more file."""

from pathlib import Path
from typing import Any

import pytest

from protein.config.layers import Layers
from protein.config.resolve import load
from protein.trainer.config import RunConfig

DEFAULT = """
[train]
learning_rate = { value = 0.003, min = 1e-4, max = 0.1, scale = "log" }
minibatch_size = { value = 8192, min = 512, max = 65536, scale = "pow2" }
gamma = { value = 0.99, min = 0.9, max = 0.999, scale = "logit" }
precision = { value = "fp32", choices = ["fp32", "bf16"] }

[sweep]
workers = 3
constraints = ["train.minibatch_size <= env.num_envs * train.horizon"]
max_trial_memory = "4GiB"
max_trial_cost = "1h30m"
"""


def agents_config(layers: Layers) -> RunConfig:
    """Returns the config of an agent's run."""
    config = layers.run_config()
    assert isinstance(config, RunConfig)
    return config


@pytest.fixture(name="folder")
def config_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of configuration files, which is also the working directory: messages name files relative to it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "default.toml").write_text(DEFAULT)
    return tmp_path


def load_with(folder: Path, text: str, **flags: Any) -> Layers:
    (folder / "own.toml").write_text(text)
    return load("pong", config_file=folder / "own.toml", flags=flags, directory=folder)
