"""Calls programs of Hydra: the sweeper in this process, as Hydra's `--multirun` does; trials are processes."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hydra._internal.callbacks import Callbacks
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.global_hydra import GlobalHydra
from hydra.experimental.callback import Callback
from hydra.types import TaskFunction

from protein import storage
from protein.hydra import trial
from protein.types import TrialRecord

PROGRAMS = Path(__file__).resolve().parents[1] / "assets" / "hydra_programs"
SWEEPER = "hydra/sweeper=protein"


def program(name: str, folder: Path) -> Path:
    """Copies a program into a folder, and returns the copy's."""
    shutil.copytree(PROGRAMS / name, folder, dirs_exist_ok=True)
    return folder


class Told(Callback):
    """One of Hydra's callbacks, with the names of what was called."""

    calls: ClassVar[list[str]] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_"):
            self.calls.append(name)
        return super().__getattribute__(name)


def run_trial(folder: Path, patch: pytest.MonkeyPatch, function: TaskFunction, *words: str) -> int:
    """Runs a trial of the program of a folder in this process, with another function, and returns the exit code."""
    for name in ("on_multirun_start", "on_multirun_end"):
        patch.setattr(Callbacks, name, getattr(Callbacks, name))
    patch.setattr(sys, "excepthook", sys.excepthook)
    patch.setenv("HYDRA_FULL_ERROR", "0")
    trial.begin()
    GlobalHydra.instance().clear()
    in_trial = ["hydra/sweeper=protein_trial", "hydra.mode=MULTIRUN", f"hydra.sweep.dir={folder}/multirun"]
    in_trial += ["hydra.job.chdir=false", "hydra/job_logging=none", "hydra/hydra_logging=none"]  # it is this process
    try:
        hydra = Hydra.create_main_hydra2("train", create_config_search_path(str(folder / "conf")))
        hydra.multirun("config", function, [*words, *in_trial], with_log_configuration=False)
    except SystemExit as ended:
        return int(ended.code or 0)
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    finally:
        GlobalHydra.instance().clear()
    return 0


def sweep(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Runs a sweep over the program `train.py` of a folder, as by --multirun, and returns the exit code."""
    monkeypatch.chdir(folder)
    arguments = ["train.py", "--multirun", SWEEPER, *words]
    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, *arguments])
    GlobalHydra.instance().clear()
    try:
        hydra = Hydra.create_main_hydra2("train", create_config_search_path(str(folder / "conf")))
        hydra.multirun("config", lambda config: None, [SWEEPER, *words], with_log_configuration=False)
    except SystemExit as ended:
        return int(ended.code or 0)
    finally:
        GlobalHydra.instance().clear()
    return 0


def started(folder: Path, words: Sequence[str]) -> subprocess.Popen[str]:
    """Starts `python WORDS --multirun` with the sweeper, and its output in `log`."""
    with (folder / "log").open("a") as log:
        return subprocess.Popen(
            [sys.executable, *words[:1], "--multirun", SWEEPER, *words[1:]],
            cwd=folder,
            env={name: value for name, value in os.environ.items() if name != "PROTEIN_STORE"},
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
        )


def trials(folder: Path, name: str) -> list[TrialRecord]:
    """Returns the trials of a sweep of the folder's store."""
    store = storage.open_store(f"sqlite:///{folder}/runs/protein.db")
    try:
        found = store.find_sweep(name)
        return [] if found is None else list(store.trials(found.id))
    finally:
        store.close()
