"""This process as the process of a trial: its environment, and what `protein.report` says to the sweep."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_VARIABLES = ("TRIAL", "SEED", "DIRECTORY", "PARAMS_FILE", "CHECKPOINT_DIR", "REPORT_PIPE", "REPORT_FD", "RESUME")


class TrialHere:
    """A trial as which this process runs, as `protein.run.command` would start it.

    Attributes:
        checkpoints: the folder whose files outlive an interruption.
    """

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.checkpoints = directory / "checkpoint"
        self.checkpoints.mkdir()
        self._pipe, self._patch = directory / "report", patch
        os.mkfifo(self._pipe)
        (directory / "params.json").write_text("{}")
        for name in ("RANK", *(f"PROTEIN_{name}" for name in _VARIABLES)):
            patch.delenv(name, raising=False)
        self._values = {
            "TRIAL": "0",
            "SEED": "0",
            "DIRECTORY": str(directory),
            "PARAMS_FILE": str(directory / "params.json"),
            "CHECKPOINT_DIR": str(self.checkpoints),
            "REPORT_PIPE": str(self._pipe),
        }

    @contextlib.contextmanager
    def process(self, *, resumes: bool = False) -> Iterator[list[dict[str, Any]]]:
        """Is one process of the trial. The list has its reports, in their order, when it has ended."""
        reports: list[dict[str, Any]] = []
        reader = os.open(self._pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            with self._patch.context() as patch:
                for name, value in (self._values | ({"RESUME": "1"} if resumes else {})).items():
                    patch.setenv(f"PROTEIN_{name}", value)
                yield reports
        finally:
            with os.fdopen(reader, "rb") as pipe:
                reports += map(json.loads, pipe.read().splitlines())


@pytest.fixture(name="trial")
def trial_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrialHere:
    return TrialHere(tmp_path, monkeypatch)
