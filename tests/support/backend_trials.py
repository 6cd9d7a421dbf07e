"""Trials that behave in a known way, for every backend: as a function, a process of the trainer or a command."""

import math
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from patience import PATIENCE_SECONDS

from protein.ports import Backend, Finished, Job, TrialProgress
from protein.run.command import CommandSettings
from protein.run.function import Report
from protein.types import Trial

ASSETS = Path(__file__).parents[1] / "assets"
sys.path.insert(0, str(ASSETS))  # the trial's module, for its processes too
TRIAL = "trial:main"


def behave(params: dict[str, Any], report: Report) -> float:
    """What the trial's process of tests/assets/trial.py does, as a function."""
    behaviour = params.get("behaviour", "good")
    if behaviour == "silent":  # its cost is the wall clock
        report(1, 1.0)
        time.sleep(600)
    report(1, 1.0, cost_seconds=0.1, loss=0.5)
    began = time.process_time()
    while behaviour == "works" and time.process_time() - began < 0.5:
        pass
    while behaviour in ("hang", "polite"):
        report(2, None, cost_seconds=0.25)
        time.sleep(0.01)
    report(2, None, cost_seconds=0.2)
    if behaviour == "diverge":
        report(2, None, cost_seconds=0.7)
        raise ArithmeticError("the loss is NaN at step 2")
    if behaviour == "nan":
        return math.nan
    if behaviour == "kept":
        state = "x" + ("" if report.continues is None else (report.continues / "state").read_text())
        (report.directory / "state").write_text(state)
        return len(state)
    if behaviour == "capped":
        report(3, 2.0, cost_seconds=30.0)
    report(3, 1.0, cost_seconds=0.3)
    return 2.0


def job(
    directory: Path,
    number: int = 0,
    *,
    max_seconds: float | None = None,
    max_memory_bytes: int | None = None,
    **train: object,
) -> Job:
    params: Any = train
    trial = Trial(id=100 + number, sweep_id=1, number=number, params=params, seed=0, owner="test")
    # Of cost; the trainer's process says itself when it is reached.
    limit = 30.0 if train.get("behaviour") == "capped" else None
    words = [sys.executable, "-S", str(ASSETS / "command_trial.py"), "{behaviour}"]
    settings = CommandSettings(
        text=shlex.join(words), params="placeholders", fixed={} if "behaviour" in train else {"behaviour": "good"}
    )
    return Job(
        trial=trial,
        config={
            "train": {"max_seconds": limit, **train},
            "seed": 0,
            "max_seconds": limit,
            "command": settings.to_dict(),
        },
        directory=directory / str(number),
        max_seconds=max_seconds,
        max_memory_bytes=max_memory_bytes,
    )


def run(backend: Backend, *jobs: Job) -> tuple[list[TrialProgress], dict[int, Finished]]:
    for each in jobs:
        backend.start(each)
    return wait(backend, len(jobs))


def wait(backend: Backend, count: int) -> tuple[list[TrialProgress], dict[int, Finished]]:
    progress: list[TrialProgress] = []
    finished: dict[int, Finished] = {}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(finished) < count:
        assert time.monotonic() < deadline, "the backend never reported the end"
        for event in backend.poll(0.1):
            assert event.trial.number not in finished, "an event after the trial's last"
            if isinstance(event, Finished):
                finished[event.trial.number] = event
            else:
                progress.append(event)
    return progress, finished
