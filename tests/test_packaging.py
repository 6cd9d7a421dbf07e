"""What the built distributions contain: the folders behind the symbolic links as files, the license, no tests; and what
their metadata says.
"""

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
NEEDED = {
    "protein/__init__.py",
    "protein/py.typed",
    "protein/configs/pong.toml",
    "protein/envs_c/__init__.py",
    "protein/envs_c/pong.h",
    "protein/storage/migrations/env.py",
    "protein/storage/migrations/versions/0001_first_tables.py",
    "protein/trainer/__main__.py",
    "protein/web/static/index.html",
    "protein/web/static/vendor/echarts.esm.min.js",
    "protein/web/static/vendor/manifest.json",
    "protein/trainer/kernels/__init__.py",
}


def build(kind: str, source: Path, target: Path) -> Path:
    """Builds a distribution without compiling anything and returns its file."""
    code = f"import scikit_build_core.build as b; print(b.build_{kind}({str(target)!r}, {{'wheel.cmake': 'false'}}))"
    ran = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return target / ran.stdout.splitlines()[-1]


def members(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        assert not any((entry.external_attr >> 16) & 0o170000 == 0o120000 for entry in archive.infolist()), "a link"
        return set(archive.namelist())


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository's files, its links as links, without what builds and runs have left."""
    copy = tmp_path_factory.mktemp("source") / "repository"
    left = shutil.ignore_patterns(
        ".git", ".venv*", "build", "dist", "runs", "*.so", "__pycache__", ".*_cache", ".hypothesis"
    )
    shutil.copytree(ROOT, copy, symlinks=True, ignore=left)
    assert (copy / "protein" / "trainer").is_symlink()
    return copy


def test_wheel_holds_the_linked_folders_and_the_license(source: Path, tmp_path: Path) -> None:
    names = members(build("wheel", source, tmp_path))
    assert names >= NEEDED
    assert {name.split("/")[0] for name in names if not name.startswith("protein_sweep-")} == {"protein"}
    [information] = [name for name in names if name.endswith(".dist-info/METADATA")]
    assert information.replace("METADATA", "licenses/LICENSE") in names


def test_sdist_gives_the_same_wheel(source: Path, tmp_path: Path) -> None:
    sdist = build("sdist", source, tmp_path)
    with tarfile.open(sdist) as archive:
        assert not any(member.issym() for member in archive)
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    assert (unpacked / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    for folder in ("from_sdist", "from_source"):
        (tmp_path / folder).mkdir()
    assert members(build("wheel", unpacked, tmp_path / "from_sdist")) == members(
        build("wheel", source, tmp_path / "from_source")
    )


@pytest.mark.parametrize("name", ["trainer.run", "storage", "envs_c"])
def test_a_package_is_imported_under_its_full_name_alone(name: str) -> None:
    """From the repository's root, `import trainer` would load a second copy, whose classes are others."""
    done = subprocess.run(
        [sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    package = name.partition(".")[0]
    assert done.stderr.splitlines()[-1] == f"ImportError: import protein.{package} in place of {package}"


def test_the_citation_is_whole_and_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    assert citation["version"] == project["version"] == importlib.metadata.version(project["name"])
    assert citation["license"] == project["license"]
    assert [author["name"] for author in citation["authors"]] == [author["name"] for author in project["authors"]]
    assert set(citation["keywords"]) <= set(project["keywords"])
    texts = [citation[name] for name in ("message", "title", "abstract")]
    assert all(isinstance(text, str) and text for text in texts)
    allowed = {"authors", "cff-version", "message", "title", "abstract", "keywords", "license", "type", "version"}
    assert set(citation) == allowed  # the format has more, but no others by accident


def test_there_is_a_wheel_for_each_python_that_is_named() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    classifiers = pyproject["project"]["classifiers"]
    named = [word for line in classifiers for word in re.findall(r"^Programming Language :: Python :: (3\.\d+)$", line)]
    wheels = pyproject["tool"]["cibuildwheel"]
    assert wheels["build"] == [f"cp{version.replace('.', '')}-manylinux_*" for version in named]
    glibc = re.search(r"^glibc=([\d.]+)$", (ROOT / "scripts" / "wheel.sh").read_text(), re.MULTILINE)
    assert glibc is not None
    image = f"manylinux_{glibc[1].replace('.', '_')}"  # with a container and without: one glibc
    assert wheels["linux"]["manylinux-x86_64-image"] == wheels["linux"]["manylinux-aarch64-image"] == image
