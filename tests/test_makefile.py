"""`make`: what is missing is reported before anything is downloaded, and a user gets no developers' tools."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_SECONDS

ROOT = Path(__file__).parents[1]


def make(*words: str, path: str | None = None, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    outer = ("CXX", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")  # these tests may run under `make test`
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    if path is not None:
        environment["PATH"] = path
    found = shutil.which("make")
    assert found is not None
    return subprocess.run(
        [found, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_without_a_compiler_one_line_names_the_package_to_install(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "printf", "test", "touch", "echo"):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    done = make("build", f"VENV={tmp_path / 'venv'}", f"PYTHON={sys.executable}", path=str(tools))
    assert done.returncode == 2
    error, *of_make = done.stderr.splitlines()
    assert error.startswith("error: no working C++ compiler was found")
    assert all(word in error for word in ("apt install g++", "dnf install gcc-c++", "xcode-select --install"))
    assert len(of_make) == 1 and of_make[0].startswith("make: ***")
    assert done.stdout == "" and not (tmp_path / "venv").exists()


def test_a_folder_where_a_link_should_be_is_told_of(tmp_path: Path) -> None:
    """As a zip file or a checkout on Windows leaves them: a file that holds the link's target, or a copy."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "constraints.txt").touch()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "CMakeLists.txt").touch()
    (tmp_path / "protein").mkdir()
    (tmp_path / "protein" / "trainer").write_text("../trainer")
    done = make("build", folder=tmp_path)
    assert done.returncode == 2
    error = done.stderr.splitlines()[0]
    assert error.startswith("error: protein/trainer is no link") and "ln -s ../trainer protein/trainer" in error
    assert done.stdout == "" and not (tmp_path / ".venv").exists()


@pytest.mark.parametrize(("target", "wanted"), [("build", False), ("sweep", False), ("test", True), ("check", True)])
def test_only_developers_get_their_tools(tmp_path: Path, target: str, wanted: bool) -> None:
    planned = make("-n", target, f"VENV={tmp_path / 'venv'}").stdout
    assert ("[dev]" in planned) == wanted
    assert "step 3 of 3: downloading" in planned
    assert planned.index("no working C++ compiler") < planned.index("pip")
