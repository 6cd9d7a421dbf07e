"""A small but real sweep for tests: real store, real trial processes, a space that says what a trial scores and costs.

Run as a script it is a sweep process that tests can kill: `python small_sweep.py FOLDER [BEHAVIOUR [dies|engine]]`.
With `engine` it makes eight trials that the engine suggests.
"""

import dataclasses
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from protein import storage
from protein.engine.designer import RandomDesigner
from protein.ports import Backend, Designer, Finished, Store, SweepStatus, TrialProgress
from protein.run.trainer import TrainerBackend
from protein.space import Float, Space
from protein.sweep import provenance
from protein.sweep.loop import LoopSettings, run_sweep
from protein.sweep.methods import make_designer
from protein.sweep.stop_conditions import Met, StopWhen
from protein.types import (
    WAITED,
    Params,
    Suggestion,
    SuggestionKind,
    SweepRecord,
    SweepSpec,
    Trial,
    TrialEnd,
    TrialRecord,
)

sys.path.insert(0, str(Path(__file__).parents[1] / "assets"))  # the trial's module, for its processes too
TRIAL = "trial:main"
BUDGET_SECONDS = 3.0


def stored(folder: Path) -> list[TrialRecord]:
    """Returns the trials that the sweep of a folder has stored."""
    store = storage.open_store(f"sqlite:///{folder}/protein.db")
    try:
        record = store.find_sweep("s")
        return [] if record is None else store.trials(record.id)
    finally:
        store.close()


class Lines:
    """A listener that keeps what it was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.begun: list[TrialRecord] = []
        self.ended: list[TrialRecord] = []
        self.updates = 0

    def update(self, status: SweepStatus) -> None:
        self.updates += 1

    def started(self, trial: TrialRecord) -> None:
        self.begun.append(trial)

    def finished(self, trial: TrialRecord, status: SweepStatus) -> None:
        self.ended.append(trial)

    def log(self, line: str) -> None:
        self.lines.append(line)


def space() -> Space:
    return Space([Float("train.score", 0.0, 1.0), Float("train.cost", 0.1, 1.0)])


def sweep_spec(*, name: str = "s", seed: int = 0, **train: object) -> SweepSpec:
    config = {"train": {"threads": 0, "seed": 0, "max_seconds": 0.0, "total_timesteps": 3, **train}}
    return SweepSpec(
        name=name,
        env="test",
        method="random",
        seed=seed,
        space=space().to_dict(),
        config=config,
        provenance=provenance.collect(config),
    )


class StopAtTheFirstPoint(RandomDesigner):
    """Stops every trial that was asked for a score below 0.5 as soon as its curve begins."""

    def should_stop(self, history: object, params: Params, curve: object, seed: int) -> str | None:
        return "it was asked for little" if float(params["train.score"]) < 0.5 else None


class GoOn(RandomDesigner):
    """Continues the last trial that it may."""

    def suggest(self, history: Any, *args: Any, **keywords: Any) -> Suggestion | None:
        suggestion = super().suggest(history, *args, **keywords)
        able = [one for one in history if one.resumable_seconds is not None]
        if suggestion is None or not able:
            return suggestion
        return dataclasses.replace(
            suggestion,
            kind=SuggestionKind.CONTINUATION,
            continues=able[-1].number,
            continued_seconds=able[-1].resumable_seconds,
        )


class DieOnStoppingEarly(TrainerBackend):
    """Kills the sweep's own process as soon as a trial has been told to end."""

    def stop(self, trial: Trial, end: TrialEnd, reason: str) -> None:
        super().stop(trial, end, reason)
        os.kill(os.getpid(), signal.SIGKILL)


def find_or_create(store: Store, spec: SweepSpec, budget_seconds: float | None = BUDGET_SECONDS) -> SweepRecord:
    return store.find_sweep(spec.name) or store.create_sweep(spec, budget_seconds)


def sweep(
    folder: Path,
    *,
    spec: SweepSpec | None = None,
    listener: Lines | None = None,
    stop: threading.Event | None = None,
    budget_seconds: float | None = BUDGET_SECONDS,
    max_trial_seconds: float | None = None,
    workers: int = 1,
    stop_when: StopWhen | Met | None = None,
    designer: Designer | None = None,
    backend: Backend | None = None,
    max_trials: int | None = None,
    can_continue: bool = False,
    **settings: Any,
) -> SweepStatus:
    """Runs a sweep in `folder` to its end, or until `stop`."""
    store = storage.open_store(f"sqlite:///{folder}/protein.db")
    try:
        return run_sweep(
            find_or_create(store, spec or sweep_spec()),
            designer=designer or make_designer("random", space(), None),
            store=store,
            backend=backend or Undisturbed(entry=TRIAL, preload=()),
            settings=LoopSettings(
                directory=folder / "trials",
                workers=workers,
                max_cost_seconds=budget_seconds,
                max_trial_seconds=max_trial_seconds,
                max_trials=max_trials,
                can_continue=can_continue,
                stop_when=stop_when,
                **settings,
            ),
            listener=listener or Lines(),
            stop=stop or threading.Event(),
        )
    finally:
        store.close()


class Undisturbed(TrainerBackend):
    """Says nothing of other programs on this machine: its trials' costs are made up, and do not depend on them."""

    def poll(self, timeout_seconds: float) -> list[TrialProgress | Finished]:
        return [_without_waiting(event) for event in super().poll(timeout_seconds)]


def _without_waiting(event: TrialProgress | Finished) -> TrialProgress | Finished:
    if isinstance(event, TrialProgress):
        return event
    timings = {name: seconds for name, seconds in event.outcome.timings.items() if name != WAITED}
    return dataclasses.replace(event, outcome=dataclasses.replace(event.outcome, timings=timings))


def engine_sweep(folder: Path, *, listener: Lines | None = None, stop: threading.Event | None = None) -> SweepStatus:
    """Runs eight trials that the engine suggests, whose scores and costs follow from their params alone."""
    return sweep(
        folder,
        spec=sweep_spec(behaviour="saves"),
        designer=make_designer("protein", space(), None),
        backend=Undisturbed(entry=TRIAL, preload=()),
        listener=listener,
        stop=stop,
        budget_seconds=None,
        max_trials=8,
    )


if __name__ == "__main__" and "engine" in sys.argv:
    engine_sweep(Path(sys.argv[1]))
elif __name__ == "__main__":
    dies = "dies" in sys.argv
    sweep(
        Path(sys.argv[1]),
        spec=sweep_spec(behaviour=sys.argv[2] if len(sys.argv) > 2 else "good", sleep=0.2),
        designer=StopAtTheFirstPoint(space(), None) if dies else None,
        backend=DieOnStoppingEarly(entry=TRIAL, preload=()) if dies else None,
    )
