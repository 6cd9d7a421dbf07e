"""Trials that are programs, for the tests of commands: their jobs, run with a backend of this machine."""

import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_SECONDS

from protein.ports import Finished, Job, TrialProgress
from protein.run.command import CommandBackend, CommandSettings
from protein.types import Direction, Outcome, Trial

PYTHON = shlex.quote(sys.executable)


@pytest.fixture(name="notes")
def command_notes() -> list[str]:
    """What the backend has told the user."""
    return []


@pytest.fixture(name="backend")
def command_backend(notes: list[str]) -> Iterator[CommandBackend]:
    made = CommandBackend(Direction.MAXIMIZE, note=notes.append)
    yield made
    made.close()


def job(directory: Path, text: str, number: int = 0, params: dict[str, Any] | None = None, **settings: Any) -> Job:
    given = CommandSettings(text=text, **{"params": "placeholders", **settings})
    return Job(
        trial=Trial(id=number, sweep_id=1, number=number, params=params or {}, seed=7, owner="test"),
        config={"params": params or {}, "seed": 7, "max_seconds": None, "command": given.to_dict()},
        directory=directory / str(number),
        max_seconds=None,
        max_memory_bytes=None,
    )


def python(code: str) -> str:
    """Returns the command line of a small Python program."""
    return f"{PYTHON} -S -c {shlex.quote(code)}".replace("{", "{{").replace("}", "}}")


def run(backend: CommandBackend, one: Job) -> tuple[list[tuple[int, float | None]], Finished]:
    backend.start(one)
    return wait(backend)


def wait(backend: CommandBackend) -> tuple[list[tuple[int, float | None]], Finished]:
    points: list[tuple[int, float | None]] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for event in backend.poll(0.1):
            if isinstance(event, Finished):
                return points, event
            assert isinstance(event, TrialProgress)
            points += [(point.steps, point.score) for point in event.measurements]
    raise AssertionError("the trial never ended")


def outcome(backend: CommandBackend, one: Job) -> Outcome:
    return run(backend, one)[1].outcome
