"""A user's own modules in the working directory, named like folders of this repository, break nothing."""

import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_SECONDS

NAMES = ("configs", "envs_c", "storage", "trainer")
TRAP = "raise RuntimeError('imported from the working directory')\n"


@pytest.mark.parametrize("form", ["file", pytest.param("folder", marks=pytest.mark.slow)])
def test_own_modules_break_nothing(form: str, tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).mkdir()
        trap = tmp_path / f"{name}.py" if form == "file" else tmp_path / name / "__init__.py"
        trap.write_text(TRAP)

    def protein(line: str) -> str:
        words = [sys.executable, "-m", "protein", *line.split()]
        ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert "pong" in protein("envs")
    protein("sweep --env pong --max-trials 1 --train.threads 1 --train.total-timesteps 5000")
    assert "of sweep 'pong'" in protein("best pong")
