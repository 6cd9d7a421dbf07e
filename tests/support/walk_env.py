"""The environment of docs/environments.md, in a working directory of its own, and short trainings."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from protein.trainer.config import RunConfig

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "environments.md"


@pytest.fixture(name="walk")
def walk_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the example in docs/environments.md, in a working directory of its own."""
    example = re.search(r"```python\n(.*?)```", DOCUMENTATION.read_text(), re.DOTALL)
    assert example is not None
    (tmp_path / "walk_example.py").write_text(example[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "walk_example", raising=False)
    return "python:walk_example:Walk"


def training(env: str, **train: Any) -> RunConfig:
    sections = {
        "env": {"name": env, "num_envs": 4},
        "policy": {"hidden_size": 8},
        "train": {"total_timesteps": 256, "horizon": 16, "minibatch_size": 32, "threads": 1, "device": "cpu", **train},
        "eval": {"episodes": 4, "num_envs": 4},
    }
    return RunConfig.from_dict(sections)
