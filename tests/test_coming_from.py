"""docs/coming-from.md: the same job in other tools and here. Ours always runs, theirs where the tool is installed."""

import json
import math
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest
from commands import Run, stored

from protein import Float, Integer, Space
from protein.api import importing
from protein.config import space_file
from protein.imports.runs import Source
from protein.types import Direction

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "coming-from.md").read_text()
EXAMPLES = ROOT / "examples" / "coming_from"
RANGES = {"lr": (1e-4, 0.1, "log"), "layers": (1, 4, "linear")}


def ranges(space: Space) -> dict[str, Any]:
    assert all(isinstance(one, Float | Integer) for one in space.parameters)
    return {one.name: (one.low, one.high, one.scale) for one in space.parameters if isinstance(one, Float | Integer)}


def loss(lr: float, layers: int, epochs: int = 4) -> float:
    return (math.log10(lr) + 2) ** 2 + layers / 10 + 1 / epochs


@pytest.fixture
def job(folder: Path) -> Path:
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    return folder


def test_the_page_shows_the_files_as_they_are() -> None:
    shown = [
        text.strip() for text in re.findall(r"^```(?:python|yaml|json|cfg)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    ]
    files = {path.name: path.read_text().strip() for path in EXAMPLES.iterdir() if path.is_file()}
    assert sorted(shown) == sorted(text for name, text in files.items() if name not in ("train.py", "job.yaml"))


def test_ours(job: Path) -> None:
    (job / "ours.py").write_text((job / "ours.py").read_text().replace("max_trials=20", "max_trials=6"))
    found = runpy.run_path("ours.py")["result"]
    assert len(found.trials) == 6
    assert ranges(Space.from_dict(stored("job")[0].spec.space)) == RANGES
    assert all(trial.score == loss(**trial.params) for trial in found.trials if trial.end == "complete")


def test_optuna_and_its_trials_and_ranges(job: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = runpy.run_path("with_optuna.py")["study"]
    capsys.readouterr()
    found = run.json("import job.db --json")
    assert (found["added"], found["direction"]) == (20, "minimize")
    assert ranges(Space.from_dict(found["space"])) == RANGES
    written = {
        name: optuna.distributions.distribution_to_json(one) for name, one in study.trials[0].distributions.items()
    }
    Path("optuna.json").write_text(json.dumps(written))
    assert ranges(space_file.read(Path("optuna.json")).space) == RANGES


def test_a_sweep_of_wandb_and_a_space_of_ray(job: Path, run: Run) -> None:
    [line] = re.findall(r"^protein (sweep --space sweep\.yaml .*)$", PAGE, re.MULTILINE)
    run(f"{line} --max-trials 3")
    sweep, trials = stored("job")
    assert sweep.spec.direction is Direction.MINIMIZE
    assert ranges(Space.from_dict(sweep.spec.space)) == RANGES
    assert len(trials) == 3
    assert all(
        -(trial.score or 0.0) == pytest.approx(loss(**trial.params)) for trial in trials if trial.end == "complete"
    )
    assert ranges(space_file.read(Path("space.json")).space) == RANGES


def test_ranges_of_pufferlib(job: Path) -> None:
    found = space_file.read(Path("job.ini"))
    assert ranges(found.space) == {"train.learning_rate": (1e-4, 0.1, "log")}
    assert found.direction is Direction.MAXIMIZE


def hydras_words() -> list[str]:
    [line] = re.findall(r"^python (with_hydra\.py .*hydra/sweeper=protein (?:.|\\\n)*?)$\n```", PAGE, re.MULTILINE)
    return shlex.split(line.replace("\\\n", " "))


def test_ranges_of_hydra() -> None:
    pytest.importorskip("hydra")
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.utils import create_config_search_path

    from protein.hydra.ranges import read

    words = [word for word in hydras_words() if word.startswith(("lr=", "layers="))]
    found = read({}, words, ConfigLoaderImpl(create_config_search_path(str(EXAMPLES))))
    assert found.tables == {"lr": {"min": 1e-4, "max": 0.1, "scale": "log"}, "layers": {"min": 1, "max": 4}}


@pytest.mark.slow
def test_hydra(job: Path) -> None:
    pytest.importorskip("hydra")
    words = [word.replace("max_trials=20", "max_trials=3") for word in hydras_words()]
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    sweep, trials = stored("with_hydra")
    assert sweep.spec.direction is Direction.MINIMIZE
    assert ranges(Space.from_dict(sweep.spec.space)) == RANGES
    assert len(trials) == 3
    assert all(-(trial.score or 0.0) == pytest.approx(loss(**trial.params)) for trial in trials)


@pytest.mark.slow
def test_ray_and_its_results(job: Path) -> None:
    pytest.importorskip("ray.tune")
    (job / "with_ray.py").write_text((job / "with_ray.py").read_text().replace("num_samples=20", "num_samples=3"))
    environment = {**os.environ, "HOME": str(job), "RAY_USAGE_STATS_ENABLED": "0"}
    subprocess.run([sys.executable, "with_ray.py"], env=environment, check=True, capture_output=True)
    source = Source(place=str(job / "ray_results" / "job"), direction=Direction.MINIMIZE)
    found = importing.read(importing.tool_of(source.place), source, rename={})
    assert (found.tool, found.score, len(found.runs)) == ("ray", "loss", 3)
    assert all(run.score == loss(epochs=run.steps, **run.params) for run in found.runs)


@pytest.mark.slow
def test_neps_and_its_results(job: Path) -> None:
    pytest.importorskip("neps")
    runpy.run_path("with_neps.py")
    found = importing.read(importing.tool_of("job"), Source(place="job"), rename={})
    assert (found.tool, found.cost_parameter, len(found.runs)) == ("neps", "epochs", 20)
    assert all(run.score == loss(**run.params) for run in found.runs)
