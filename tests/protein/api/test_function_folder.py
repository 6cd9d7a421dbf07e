"""A sweep over a function whose trials run in workers that join through a folder."""

import functools
from pathlib import Path
from typing import Any

import folder_workers
import pytest

from protein import Float, Space, Sweep
from protein.errors import UsageError

MODULE = """
import os

def train(params, report):
    report(1, params["x"] / 2, metrics={"pid": os.getpid()})
    if params["x"] > 0.5:
        raise ValueError("too large")
    (report.directory / "kept").write_text("x")
    return params["x"]

def wrong(params, report):
    return "no number"
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "functions_of_a_user.py").write_text(MODULE)
    (tmp_path / "shared").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    import functions_of_a_user  # type: ignore[import-not-found]

    return functions_of_a_user


def a_sweep(name: str) -> Sweep:
    return Sweep(Space([Float("x", 0.0, 1.0)]), name=name, method="random", max_trials=4, quiet=True)


def test_a_function_by_import_path_runs_in_workers(functions: Any, tmp_path: Path) -> None:
    with folder_workers.worker(tmp_path / "shared"):
        result = a_sweep("good").run(functions.train, backend="folder:shared")
        assert len(result.trials) == 4
        for trial in result.trials:
            assert trial.metrics["pid"] > 0 and trial.curve[0].score == trial.params["x"] / 2
            if trial.params["x"] > 0.5:
                assert trial.score is None and trial.reason == "ValueError: too large"
            else:
                assert trial.score == trial.params["x"]
                assert (tmp_path / "shared" / "good" / f"{trial.number:04d}" / "kept").exists()
        with pytest.raises(UsageError, match=r"it returned 'no number' instead of a number. Correct it"):
            a_sweep("wrong").run(functions.wrong, backend="folder:shared")


def test_what_workers_cannot_import_is_refused_before_anything_is_made(functions: Any, tmp_path: Path) -> None:
    def closure(params: Any, report: Any) -> float:
        return 1.0

    for function in (closure, lambda params, report: 1.0, functools.partial(functions.train)):
        with pytest.raises(UsageError, match="define it at the top level of a module, and import it from there"):
            a_sweep("s").run(function, backend="folder:shared")
    functions.train.__module__ = "__main__"
    with pytest.raises(UsageError, match="and train of __main__ has none that they find"):
        a_sweep("s").run(functions.train, backend="folder:shared")
    with pytest.raises(UsageError, match="backend must be 'folder:DIR'"):
        a_sweep("s").run(functions.wrong, backend="ray")
    with pytest.raises(UsageError, match="gpus is for trials on this machine"):
        a_sweep("s").run(functions.wrong, backend="folder:shared", gpus="0")
    assert not (tmp_path / "runs").exists() and not list((tmp_path / "shared").iterdir())
