"""A sweep in a folder whose files bear the names of modules: those of ours, of torch, of the standard library."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_SECONDS
from small_runs import small_config

RAISE = 'raise RuntimeError(f"{__file__} was imported")\n'
NAMES = (
    "trainer.py",
    "storage/__init__.py",
    "configs/__init__.py",
    "envs_c.py",
    "protein.py",
    "torch.py",
    "numpy.py",
    "psutil.py",
    "types.py",
    "signal.py",
    "socket.py",
    "selectors.py",
)
# What an installer writes.
COMMAND = """
import sys
from protein.cli import main
if __name__ == "__main__":
    sys.exit(main())
"""
SMALL = small_config()
# It says in its log what Python programs that it starts would see.
OWN_ENVIRONMENT = """
import os, sys
import numpy as np

class Flip:
    observation_shape, action_sizes = (1,), (2,)

    def __init__(self, num_envs, **_):
        self.num_envs = num_envs
        print("safe path:", os.environ.get("PYTHONSAFEPATH"), file=sys.stderr)

    def reset(self, seed, observations):
        observations[:] = 0.0

    def step(self, actions, observations, rewards, terminals, truncations, final_observations):
        rewards[:] = actions == 1
        terminals[:] = True
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory in which nothing may be imported by its name alone."""
    folder = tmp_path / "work"
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(RAISE)
    (folder / "small.toml").write_text(SMALL)
    (tmp_path / "protein-command").write_text(COMMAND)
    return folder


def sweep(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Runs `protein sweep` as the installed command does, which does not search the working directory for modules."""
    command = [sys.executable, str(folder.parent / "protein-command"), "sweep", *words, "--config", "small.toml"]
    environment = {name: value for name, value in os.environ.items() if name not in ("PROTEIN_STORE", "PYTHONPATH")}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


def test_files_with_the_names_of_modules_break_nothing_beside_a_users_environment(folder: Path) -> None:
    (folder / "flip.py").write_text(OWN_ENVIRONMENT)
    done = sweep(folder, "--env", "python:flip:Flip", "--max-trials", "1", "--name", "flip")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 complete" in done.stdout
    assert "was imported" not in done.stdout + done.stderr
    assert "safe path: None\n" in (folder / "runs" / "flip" / "0000" / "trial.log").read_text()
