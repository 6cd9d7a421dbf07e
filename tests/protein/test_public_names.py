"""The package itself: what `import protein` offers, and that it loads nothing before that is used."""

import importlib.metadata
import subprocess
import sys

import pytest

import protein

HEAVY = {"alembic", "matplotlib", "numpy", "optuna", "rich", "scipy", "sqlalchemy", "torch"}


def loaded_by(code: str) -> set[str]:
    """Returns which heavy packages a fresh interpreter has loaded after some code."""
    code += "\nimport sys\nprint('loaded', *sorted({name.partition('.')[0] for name in sys.modules}))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return HEAVY & set(ran.stdout.splitlines()[-1].split())


def test_version_is_that_of_the_installed_package() -> None:
    assert protein.__version__ == importlib.metadata.version("protein-sweep")


@pytest.mark.parametrize("name", [*protein.__all__, "ProteinSampler"])
def test_every_name_is_there(name: str) -> None:
    assert getattr(protein, name).__name__ == name


def test_import_star_gives_the_names_that_need_no_optional_package() -> None:
    namespace: dict[str, object] = {}
    exec("from protein import *", namespace)
    assert set(protein.__all__) <= set(namespace)
    assert "ProteinSampler" not in namespace


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'protein' has no attribute 'Proteins'"):
        protein.Proteins  # noqa: B018


def test_importing_the_package_and_asking_its_version_loads_nothing() -> None:
    assert loaded_by("import protein\nprotein.__version__") == set()
