"""For tests of the commands: a working directory, one with a filled store, and what runs a command in this process."""

import json
import math
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from sample_trials import fill_store

from protein.cli import main
from protein.cli.output import Progress
from protein.storage import open_store
from protein.types import SweepRecord, TrialRecord


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, with the default store in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROTEIN_STORE", raising=False)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")  # as if activated
    return tmp_path


@pytest.fixture
def filled(folder: Path) -> Path:
    """A working directory whose default store holds the sweep of `sample_trials.STORED`."""
    (folder / "runs").mkdir()
    fill_store("sqlite:///runs/protein.db")
    return folder


class Run:
    """Runs a command in this process; keeps what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, line: str, code: int = 0) -> str:
        assert main(shlex.split(line)) == code
        printed = self._capsys.readouterr()
        assert (printed.err == "") == (code == 0), printed.err
        return printed.out

    def error(self, line: str, code: int = 2) -> str:
        """Returns the one line that a command ends with."""
        assert main(shlex.split(line)) == code
        printed = self._capsys.readouterr()
        assert re.fullmatch(r"error: [^\n]+\n", printed.err), printed.err
        return printed.err.removeprefix("error: ").rstrip("\n")

    def json(self, line: str) -> Any:
        return json.loads(self(line))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(Progress, "SECONDS", math.inf)  # how far a command is, it tells on a slow machine alone
    return Run(capsys)


def sweep_command(filled: Path, more: str = "") -> str:
    """The words that define the stored sweep."""
    return f"sweep --env pong --env.num-envs 64 --train.minibatch-size 1024 {more}"


def stored(sweep: str) -> tuple[SweepRecord, list[TrialRecord]]:
    """Returns a sweep and its trials, of the working directory's default store."""
    store = open_store("runs/protein.db")
    record = store.find_sweep(sweep)
    assert record is not None
    trials = store.trials(record.id)
    store.close()
    return record, trials
