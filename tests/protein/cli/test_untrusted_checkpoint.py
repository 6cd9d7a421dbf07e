"""`protein eval` of a checkpoint that somebody hands on: it runs no code that the checkpoint alone names."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from protein.cli import main
from protein.trainer.config import RunConfig
from protein.trainer.machine import checkpoint as checkpoints

MODULE = "import pathlib\npathlib.Path('imported').touch()\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a module that leaves a file where it is imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "stranger.py").write_text(MODULE)
    monkeypatch.delitem(sys.modules, "stranger", raising=False)
    return tmp_path


def written(folder: Path, subject: str, **sections: dict[str, Any]) -> Path:
    """Writes a checkpoint that says so."""
    config = RunConfig().to_dict()
    for name, values in sections.items():
        config[name] |= values
    saved = checkpoints.Checkpoint(
        kind=checkpoints.PPO,
        subject=subject,
        config=config,
        steps=1,
        elapsed_seconds=1.0,
        score=None,
        tensors={"policy/x": torch.zeros(1)},
        details={"observation_shape": (4,), "action_sizes": (2,), "continuous_actions": 0},
    )
    checkpoints.write(folder / "checkpoint.safetensors", saved)
    return folder / "checkpoint.safetensors"


@pytest.mark.parametrize("more", [[], ["--gif", "x.gif"]])
@pytest.mark.parametrize(
    ("subject", "sections", "named"),
    [
        ("python:stranger:Walk", {"env": {"name": "python:stranger:Walk"}}, "python:stranger:Walk"),
        ("pettingzoo:stranger", {"env": {"name": "pettingzoo:stranger"}}, "pettingzoo:stranger"),
        ("gym:stranger:Walk-v0", {"env": {"name": "gym:stranger:Walk-v0"}}, "gym:stranger:Walk-v0"),
        ("gym-async:stranger:Walk-v0", {"env": {"name": "pong"}}, "gym-async:stranger:Walk-v0"),
        ("pong", {"env": {"name": "python:stranger:Walk"}}, "python:stranger:Walk"),
        ("pong", {"env": {"name": "pong"}, "policy": {"module": "stranger:Net"}}, "policy.module stranger:Net"),
        ("gym:CartPole-v1", {"env": {"name": "gym:CartPole-v1", "args": {"path": "x"}}}, "env.args path"),
    ],
)
def test_code_that_a_checkpoint_names_is_not_run(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    subject: str,
    sections: dict[str, Any],
    named: str,
    more: list[str],
) -> None:
    checkpoint = written(folder, subject, **sections)
    assert main(["eval", "--checkpoint", str(checkpoint), *more]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and named in error and "add --env" in error
    assert not (folder / "imported").exists() and "stranger" not in sys.modules


def test_code_is_run_that_the_command_line_names(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The module has no such class, which is found out by importing it."""
    name = "python:stranger:Walk"
    checkpoint = written(folder, name, env={"name": name})
    assert main(["eval", "--checkpoint", str(checkpoint), "--env", name]) != 0
    assert "Walk" in capsys.readouterr().err
    assert (folder / "imported").exists()


def test_our_own_environment_needs_no_such_word(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = written(folder, "pong", env={"name": "pong"})
    assert main(["eval", "--checkpoint", str(checkpoint)]) != 0  # its weights are none
    assert "names code" not in capsys.readouterr().err
