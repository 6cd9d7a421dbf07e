"""Which trials of a sweep can go on to more steps, and from where.

A trial that can be continued leaves behind what a longer run needs, an artifact of kind "continuable": the trainer's
checkpoint, or the folder of a training function. It also tells how many of its seconds lie behind that state: all of
them, or with the schedule `wsd` those before the step size fell. The store keeps both. Here alone they are acted on. A
trial whose files were deleted since cannot be continued any more.
"""

import dataclasses
from pathlib import Path

from protein.run.job import runs_trainer
from protein.space import Space
from protein.space.parameters import Categorical
from protein.trainer.kinds import kind_of
from protein.types import CONTINUABLE, CONTINUABLE_SECONDS, SweepSpec, TrialRecord

ARTIFACT, SECONDS = CONTINUABLE, CONTINUABLE_SECONDS
SCHEDULES = ("constant", "wsd")  # of the step size; with others a run ends at its steps
_SCHEDULE = "train.lr_schedule"
_ENTROPY = "ent_coef_final"


def resumable_seconds(trial: TrialRecord) -> float | None:
    """Returns `protein.types.Observation.resumable_seconds` of a finished trial."""
    own, path = trial.metrics.get(SECONDS), trial.artifact(ARTIFACT)
    if own is None or path is None:
        return None
    try:
        if not Path(path).exists():
            return None
    except OSError:  # a name that no file can have
        return None
    return trial.continued_seconds + own


def state(trial: TrialRecord) -> Path | None:
    """Returns the file or folder that a longer run of a trial goes on from; None: it has none. It may be gone."""
    path = trial.artifact(ARTIFACT)
    return None if path is None else Path(path)


def only_within(trial: TrialRecord, directory: Path) -> TrialRecord:
    """Returns a stored trial without what lies outside of the sweep's folder to go on from.

    A path in a store from elsewhere may name any file or folder, and what a trial goes on from is read and copied.
    """
    kept = tuple(one for one in trial.artifacts if one.kind != ARTIFACT or _is_within(one.path, directory))
    return trial if len(kept) == len(trial.artifacts) else dataclasses.replace(trial, artifacts=kept)


def _is_within(path: str, directory: Path) -> bool:
    try:
        return Path(path).resolve().is_relative_to(directory.resolve())
    except (OSError, ValueError, RuntimeError):  # a name that no file can have; links that lead in circles
        return False


def why_never(spec: SweepSpec) -> str | None:
    """Returns why no trial of a sweep can ever be continued; None: trials can be."""
    if spec.method != "protein":
        return f"trials are never continued: method '{spec.method}' cannot"
    if not runs_trainer(spec.config):
        return None
    space = Space.from_dict(spec.space)
    steps = kind_of(spec.config).total_steps
    if space.cost_parameter != steps:
        return f"trials are never continued: {steps} is not searched as the cost parameter"
    schedules = [spec.config["train"].get("lr_schedule")]
    if _SCHEDULE in space.names:
        parameter = space.parameter(_SCHEDULE)
        schedules = list(parameter.choices) if isinstance(parameter, Categorical) else schedules
    if not set(SCHEDULES).intersection(map(str, schedules)):
        return (
            f"trials are never continued: with {_SCHEDULE} = {schedules[0]} the step size has fallen when a run ends;"
            f" {' or '.join(SCHEDULES)} allow it"
        )
    final = spec.config["train"].get(_ENTROPY, -1.0)
    if f"train.{_ENTROPY}" in space.names or (isinstance(final, float | int) and final >= 0):
        return (
            f"trials are never continued: with train.{_ENTROPY} the entropy bonus depends on a run's length; -1 allows"
            " it"
        )
    return None
