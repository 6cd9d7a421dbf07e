"""Runs the programs in examples/ as a user does: as files, in an empty folder.

What they find with the budgets that they have is tested by those marked `slow`. The others run them with small ones.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_SECONDS

pytestmark = pytest.mark.usefixtures("warm")

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
END = "-- the program's end --"


def run(folder: Path, *words: str) -> str:
    """Runs Python with the words in a folder and returns what it printed."""
    environment = {key: value for key, value in os.environ.items() if key != "PROTEIN_STORE"}
    ran = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def example(folder: Path, name: str) -> str:
    return run(folder, str(EXAMPLES / name))


def examples(folder: Path, *names: str, into: Path = EXAMPLES) -> list[str]:
    """Runs programs in one process, as they load the same large packages. Returns what each printed."""
    one_by_one = f"import runpy, sys; [(runpy.run_path(p, run_name='__main__'), print({END!r})) for p in sys.argv[1:]]"
    return run(folder, "-c", one_by_one, *(str(into / name) for name in names)).split(f"{END}\n")[:-1]


def in_small(folder: Path, *names: str) -> list[str]:
    """Runs programs as `examples` does, each with ten trials at most, or with four where it has no such limit."""
    small = folder / "small"
    small.mkdir()
    for name in names:
        program = (EXAMPLES / name).read_text()
        program = re.sub(r'budget="\d+s"(?!, max_trials)', 'budget="1m", max_trials=4', program)
        program = re.sub(r'budget="\d+s"', 'budget="1m"', program)
        program = re.sub(r"budget_seconds=6\.0", "budget_seconds=1.0", program)
        program = re.sub(r"\b(max_trials|n_trials)=\d+", r"\1=10", program)
        program = program.replace("study.optimize(objective)", "study.optimize(objective, n_trials=10)")
        (small / name).write_text(program)
    return examples(folder, *names, into=small)


def last_score(printed: str, parameters: set[str]) -> float:
    """Reads the last line of a program that prints the best score and its params."""
    score, params = printed.splitlines()[-1].split(" ", 1)
    assert set(ast.literal_eval(params)) == parameters
    return float(score)


def test_what_function_sweep_has_stored_can_be_read(tmp_path: Path) -> None:
    printed, told, read, _ = in_small(
        tmp_path, "function_sweep.py", "data_frames.py", "reading_results.py", "pictures.py"
    )
    last_score(printed, {"lr", "steps"})
    assert "points of learning curves" in told
    lines = read[read.index("recommended: {'lr': ") :].splitlines()
    front = [float(found[1]) for line in lines if (found := re.search(r" s buys a score of (\S+) with", line))]
    assert front and front == sorted(front)
    assert (tmp_path / "parallel.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "front.svg").read_text()


def test_every_other_program_runs_in_small(tmp_path: Path) -> None:
    names = "learning_curves memory_limit ask_and_tell conditional conditional_optuna optuna_study"
    curves, limited, asked, models, same, study = in_small(tmp_path, *(f"{name}.py" for name in names.split()))
    last_score(curves, {"lr", "width", "epochs"})
    last_score(limited, {"features", "rate", "ridge"})
    assert "limits kept with" in limited
    assert asked.splitlines()[-1].startswith("Suggestion(params={'lr': ")
    assert "{'model': " in models.splitlines()[-1] and "{'model': " in same.splitlines()[-1]
    assert re.fullmatch(r"\{'trees': \d+, 'features': \S+, 'leaf': \d+\} 0\.\d+ .+", study.splitlines()[-1])
    lines = [len((EXAMPLES / name).read_text().splitlines()) for name in ("conditional.py", "conditional_optuna.py")]
    assert lines[0] <= lines[1]


@pytest.mark.slow
def test_function_sweep_finds_a_good_config_resumes_and_can_be_read(tmp_path: Path) -> None:
    printed = example(tmp_path, "function_sweep.py")
    assert last_score(printed, {"lr", "steps"}) > 2.0  # the first, cheap configs are below 1
    assert example(tmp_path, "function_sweep.py").splitlines()[-1] == printed.splitlines()[-1]  # nothing left to do

    told = "".join(examples(tmp_path, "data_frames.py", "reading_results.py", "pictures.py"))
    assert "recommended: trial " in told and "points of learning curves" in told

    lines = told[told.index("recommended: {'lr': ") :].splitlines()
    front = [float(found[1]) for line in lines if (found := re.search(r" s buys a score of (\S+) with", line))]
    assert len(front) > 3
    assert front == sorted(front)
    predicted = [line for line in lines if re.match(r"trial \d+: \S+ is (inside|outside) its 80 % interval; ", line)]
    assert len(predicted) > 10

    assert "<svg" in (tmp_path / "front.svg").read_text()
    assert (tmp_path / "parallel.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_learning_curves(tmp_path: Path) -> None:
    assert last_score(example(tmp_path, "learning_curves.py"), {"lr", "width", "epochs"}) > 0.9
    assert "digits" in run(tmp_path, "-m", "protein", "best", "digits")


@pytest.mark.slow
def test_a_limit_is_kept(tmp_path: Path) -> None:
    printed = example(tmp_path, "memory_limit.py")
    assert last_score(printed, {"features", "rate", "ridge"}) > 0.8
    assert float(printed.splitlines()[-2].removesuffix(" MB")) <= 0.02
    assert "limits kept with" in printed


@pytest.mark.usefixtures("cold")  # as a user starts it
def test_several_workers(tmp_path: Path) -> None:
    assert last_score(example(tmp_path, "several_workers.py"), {"lr", "epochs"}) < 10.0  # it begins at about 50


@pytest.mark.slow
def test_ask_and_tell(tmp_path: Path) -> None:
    ended, best, goes_on = example(tmp_path, "ask_and_tell.py").splitlines()
    assert ended in ("the limit of 40 trials is reached", "no new config is expected to fit what is left of the budget")
    assert best.startswith("Contender(params={'lr': ")
    assert goes_on.startswith("Suggestion(params={'lr': ")


@pytest.mark.slow
def test_optuna_study(tmp_path: Path) -> None:
    last = example(tmp_path, "optuna_study.py").splitlines()[-1]
    assert re.fullmatch(r"\{'trees': \d+, 'features': \S+, 'leaf': \d+\} 0\.[89]\d+ .+", last)
    assert (tmp_path / "forest.db").exists()


@pytest.mark.slow
def test_a_conditional_space_and_the_same_search_in_optuna(tmp_path: Path) -> None:
    score, params = example(tmp_path, "conditional.py").splitlines()[-1].split(" ", 1)
    assert float(score) > 0.9
    of_model = {"svm": {"C", "kernel"}, "forest": {"max_depth", "max_features"}}
    found = ast.literal_eval(params)
    assert set(found) - {"model", "gamma"} == of_model[found["model"]]
    assert ("gamma" in found) == (found.get("kernel") == "rbf")
    assert float(example(tmp_path, "conditional_optuna.py").splitlines()[-1].split(" ", 1)[0]) > 0.9


def test_own_policy(tmp_path: Path) -> None:
    (tmp_path / "own_policy.py").write_text((EXAMPLES / "own_policy.py").read_text())
    for number, (env, network) in enumerate({"cartpole": "TwoTowers", "memory": "Remembers"}.items(), start=1):
        words = f"-m protein train --env {env} --policy.module own_policy:{network}"
        run(tmp_path, *words.split(), *["--train.total-timesteps", "4000", "--train.threads", "1"])
        assert len(list((tmp_path / "runs").rglob("checkpoint.safetensors"))) == number


def test_own_environment(tmp_path: Path) -> None:
    (tmp_path / "walk.py").write_text((EXAMPLES / "walk.py").read_text())
    words = "-m protein train --env python:walk:Walk --train.total-timesteps 5000 --train.threads 1"
    printed = run(tmp_path, *words.split())
    assert "checkpoint" in printed
    assert list((tmp_path / "runs").rglob("checkpoint.safetensors"))


def test_a_hydra_program(tmp_path: Path) -> None:
    pytest.importorskip("hydra")
    shutil.copytree(EXAMPLES / "hydra_program", tmp_path, dirs_exist_ok=True)
    printed = run(tmp_path, "train.py", "--multirun", "hydra.sweeper.max_trials=2")
    assert "sweep 'train': 2 complete" in printed
    assert len(list(tmp_path.glob("multirun/*/*/[01]/.hydra/overrides.yaml"))) == 2
