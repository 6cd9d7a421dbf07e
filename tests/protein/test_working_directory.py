"""A user's own modules in the working directory, named like folders of this repository, break nothing."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_SECONDS

import protein

NAMES = ("configs", "envs_c", "storage", "trainer")
TRAP = "raise RuntimeError('imported from the working directory')\n"


@pytest.mark.parametrize("form", ["file", pytest.param("folder", marks=pytest.mark.slow)])
def test_own_modules_break_nothing(form: str, tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).mkdir()
        trap = tmp_path / f"{name}.py" if form == "file" else tmp_path / name / "__init__.py"
        trap.write_text(TRAP)

    def run(line: str) -> str:
        words = [sys.executable, "-m", "protein", *line.split()]
        ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert "pong" in run("envs")
    run("sweep --env pong --max-trials 1 --train.threads 1 --train.total-timesteps 5000")
    assert "of sweep 'pong'" in run("best pong")


def test_every_python_that_is_started_leaves_the_working_directory_out() -> None:
    """`python -m` and `-c` search it first: a `json.py` there would stand for the one of Python."""
    root = Path(protein.__file__).parent
    files = [Path(at, name) for at, _, names in os.walk(root, followlinks=True) for name in names]
    starts = [
        (f"{file.relative_to(root)}:{node.lineno}", [ast.unparse(item) for item in node.elts])
        for file in files
        if file.suffix == ".py" and "sys.executable" in (text := file.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.List | ast.Tuple) and node.elts and ast.unparse(node.elts[0]) == "sys.executable"
    ]
    ours = [(where, words) for where, words in starts if words[1].startswith("'")]  # else a user's own program
    assert len(ours) > 8
    shown = ("view/commands.py:",)  # to a person, who types it where it is theirs to choose
    assert [one for one in ours if one[1][1] != "'-P'" and not one[0].startswith(shown)] == []
