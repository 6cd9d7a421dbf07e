"""Calls programs of Hydra: the sweeper in this process, as Hydra's `--multirun` does; trials are processes."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.global_hydra import GlobalHydra

from protein import storage
from protein.types import TrialRecord

PROGRAMS = Path(__file__).resolve().parents[1] / "assets" / "hydra_programs"
SWEEPER = "hydra/sweeper=protein"


def program(name: str, folder: Path) -> Path:
    """Copies a program into a folder, and returns the copy's."""
    shutil.copytree(PROGRAMS / name, folder, dirs_exist_ok=True)
    return folder


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
