"""The container file of examples/: what it copies is there, what it installs is what we need, and the docs show it."""

import fnmatch
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples" / "container"
LINES = (FOLDER / "Dockerfile").read_text().replace("\\\n", " ").splitlines()


def of(instruction: str) -> list[str]:
    """Returns what stands behind an instruction, each time."""
    return [" ".join(line.split()[1:]) for line in LINES if line.startswith(f"{instruction} ")]


def test_the_page_shows_the_container_file() -> None:
    assert (FOLDER / "Dockerfile").read_text() in (ROOT / "docs" / "overnight.md").read_text()


def test_its_dependencies_are_those_of_the_package() -> None:
    """By the very line that the file runs."""
    [code] = [re.search(r'python -c "([^"]+)"', line)[1] for line in of("RUN") if "python -c" in line]  # type: ignore[index]
    printed = subprocess.run(
        [sys.executable, "-c", code.replace("\\\\n", "\\n")], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert printed.splitlines() == project["dependencies"]


def test_all_that_the_build_needs_is_copied() -> None:
    """Nothing that the wheel is made of is kept out of the build's context."""
    assert of("COPY") == ["pyproject.toml constraints.txt ./", ". ."]
    patterns = [line.removeprefix("**/") for line in (FOLDER / "Dockerfile.dockerignore").read_text().split()]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = ["CMakeLists.txt", "pyproject.toml", "constraints.txt", project["readme"], *project["license-files"]]
    needed += ["protein", "storage", "trainer", "envs_c", "configs"]
    for name in needed:
        assert (ROOT / name).exists()
        assert not any(fnmatch.fnmatch(name, pattern) for pattern in patterns), name
    mentioned = set(re.findall(r"[\w./]+\.(?:cpp|hpp|h)\b", (ROOT / "CMakeLists.txt").read_text()))
    assert mentioned, "the build compiles files"
    for name in mentioned:
        assert not any(name.startswith(f"{pattern}/") for pattern in patterns), name
