"""What trials leave to go on from: interrupted ones, and finished ones that are trained for longer.

A trial of our trainer leaves a checkpoint in its folder: at its end, when it is told to end, and from time to time
before that. A program that a sweep runs as a command may leave files in the folder `checkpoint/`. Everything here is
read from the disk, without any process.

A trial that left nothing begins again, as the same trial with the same seed; what it had spent is lost. So does each
trial of a training function of the user's (see `protein.api.function_sweep`): what it keeps in its folder is for longer
runs. So no interruption takes a trial from the sweep, and a sweep that was killed makes the suggestions that an
undisturbed one would have made.

**Finished trials.** One that can go on to more steps leaves behind what a longer run needs, an artifact of kind
"continuable": the trainer's checkpoint, or the folder of a training function. It also tells how many of its seconds lie
behind that state: all of them, or with the schedule `wsd` those before the step size fell. The store keeps both. A
trial whose files were deleted since cannot be continued any more.
"""

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from protein import files
from protein.space import Space
from protein.space.parameters import Categorical
from protein.trainer.kinds import kind_of
from protein.trainer.language.config import SAMPLE_FILE
from protein.types import (
    CONTINUABLE,
    CONTINUABLE_SECONDS,
    PREEMPTED,
    USAGE_FILE,
    SweepSpec,
    TrialEnd,
    TrialRecord,
    runs_command,
    runs_trainer,
)

TRAINERS_FILE = "checkpoint.safetensors"  # as in `protein.trainer.machine.checkpoint`, which loads torch
STABLE_FILE = "stable.safetensors"
COMMANDS_FOLDER = "checkpoint"
ATTEMPTS_FILE = "attempts.json"
MAX_ATTEMPTS = 5  # to get beyond one place; then something ends the trial that would end it again
SCHEDULES = ("constant", "wsd")  # of the step size; with others a run ends at its steps
_SCHEDULE = "train.lr_schedule"
_ENTROPY = "ent_coef_final"
_MAX_HEADER_BYTES = 16 << 20


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a trial goes on.

    Attributes:
        path: what it goes on from; None: it begins again.
        steps: that lie behind it.
        seconds: the trial's own cost there; None: that of the last point of its curve up to these steps.
    """

    path: Path | None
    steps: int
    seconds: float | None


def interrupted(numbers: Sequence[int], goes_on: bool) -> str:
    """Returns what is said of trials that were running when the sweep last ended, one or several."""
    one = len(numbers) == 1
    then = ("it goes on" if one else "they go on") if goes_on else ("it begins again" if one else "they begin again")
    trials = f"trial {numbers[0]} was" if one else f"trials {', '.join(map(str, numbers[:-1]))} and {numbers[-1]} were"
    return f"{trials} interrupted when the sweep last ended: {then}"


def goes_on(config: Mapping[str, Any]) -> bool:
    """Whether interrupted trials of a sweep with this config go on from what they left; else they begin again."""
    return runs_trainer(config) or runs_command(config)


def given_up(trial: TrialRecord, config: Mapping[str, Any]) -> bool:
    """Whether an interrupted trial that has ended is not to be tried again: it was cancelled, or cut short too often.

    In stores of earlier versions, interrupted trials of functions ended, too, and their params are tried again.
    """
    ended_before = trial.reason == TrialEnd.INTERRUPTED.text or trial.reason.startswith(PREEMPTED)
    return trial.end is TrialEnd.INTERRUPTED and (goes_on(config) or not ended_before)


def state(directory: Path) -> Path | None:
    """Returns what an interrupted trial left in its folder to go on from; None: nothing that can be read."""
    file, folder = directory / TRAINERS_FILE, directory / COMMANDS_FOLDER
    if directory.is_symlink():
        return None
    if checkpoint_header(file) is not None:
        return file
    if not folder.is_symlink() and folder.is_dir() and any(folder.iterdir()):
        return folder
    return None


def place(directory: Path, trial: TrialRecord, config: Mapping[str, Any]) -> Place:
    """Returns where a trial of a sweep with this config goes on.

    How far a command's files reach is not known. It goes on by itself from where they were written, and reports again
    what it does again: the steps and the cost so far stay.
    """
    path = state(directory) if goes_on(config) else None
    if path is None:
        return Place(path=None, steps=0, seconds=0.0)
    if path.name != TRAINERS_FILE:
        return Place(path=path, steps=trial.steps, seconds=trial.cost_seconds)
    run = checkpoint_header(path)
    try:
        assert run is not None
        if run["config"]["train"]["seed"] == trial.seed:  # else it is of another sweep that had this folder
            return Place(path=path, steps=int(run["steps"]), seconds=float(run["elapsed_seconds"]))
    except (AssertionError, KeyError, TypeError, ValueError):
        pass
    return Place(path=None, steps=0, seconds=0.0)


def checkpoint_header(file: Path) -> dict[str, Any] | None:
    """Returns what a trainer's checkpoint says about its run; None where there is none that is whole.

    The format is that of safetensors: the length of a header in JSON, the header, and the tensors. Torch takes seconds
    to load, so the header is read here.
    """
    try:
        with file.open("rb") as content:
            length = int.from_bytes(content.read(8), "little")
            if not 0 < length <= _MAX_HEADER_BYTES:
                return None
            header = json.loads(content.read(length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        if file.stat().st_size != 8 + length + max(ends, default=0):
            return None
        run: dict[str, Any] = json.loads(header["__metadata__"]["run"])
        return run if isinstance(run, dict) else None
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return None


def clear(directory: Path) -> None:
    """Removes what an earlier sweep left in the folder of a trial that begins: it would be taken for the trial's own.

    Raises:
        OSError: it cannot be removed.
    """
    for name in (TRAINERS_FILE, STABLE_FILE, ATTEMPTS_FILE, SAMPLE_FILE, USAGE_FILE):
        (directory / name).unlink(missing_ok=True)
    folder = directory / COMMANDS_FOLDER
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)
    else:
        folder.unlink(missing_ok=True)


def attempt(directory: Path, steps: int) -> int:
    """Counts another attempt to get beyond a place, and returns how many there were since the trial got further.

    A command need not report steps. A file in its folder of checkpoints that is new since the last attempt is a sign
    that it got further. It may deceive: such a file may be a log. So every tenth attempt without a step counts all the
    same. The count lies beside the checkpoint, so that it outlives this process. Where it cannot be kept, it begins
    again.
    """
    file = directory / ATTEMPTS_FILE
    if directory.is_symlink():  # no trial is started there
        return 1
    count, without_step, written = 1, 1, _last_written(directory / COMMANDS_FOLDER)
    try:
        before = json.loads(file.read_text())
        if int(before["steps"]) >= steps:
            steps, without_step = int(before["steps"]), int(before.get("without_step", before["count"])) + 1
            count = int(before["count"]) + 1 if int(before["written"]) == written else 1
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    kept = {"steps": steps, "count": count, "without_step": without_step, "written": written}
    with contextlib.suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)  # a function makes it only if it keeps something there
        files.replace_file(file, json.dumps(kept).encode(), follow_link=False)
    return max(count, -(-without_step // 10))


def continuable_state(trial: TrialRecord) -> Path | None:
    """Returns the file or folder that a longer run of a finished trial goes on from; None where there is none."""
    path = trial.artifact(CONTINUABLE)
    try:
        return None if path is None or not Path(path).exists() else Path(path)
    except OSError:  # a name that no file can have
        return None


def resumable_seconds(trial: TrialRecord) -> float | None:
    """Returns `protein.types.Observation.resumable_seconds` of a finished trial."""
    own = trial.metrics.get(CONTINUABLE_SECONDS)
    return None if own is None or continuable_state(trial) is None else trial.continued_seconds + own


def located(trial: TrialRecord, directory: Path) -> TrialRecord:
    """Returns a stored trial with its files' paths as they are now, if they lie in `directory`, its sweep's folder.

    The store has the paths as they were, and the folder may have been moved or copied since. What a path has below the
    trial's own folder is looked for in this folder first: of a copy, the older files may still be there, too.
    """
    paths = [located_path(one.path, directory, trial.number) for one in trial.artifacts]
    if paths == [one.path for one in trial.artifacts]:
        return trial
    moved = zip(trial.artifacts, paths, strict=True)
    return dataclasses.replace(trial, artifacts=tuple(dataclasses.replace(one, path=path) for one, path in moved))


def located_path(path: str, directory: Path, number: int) -> str:
    """Returns where a file of a trial is now (see `located`); the path itself where this folder has no such file."""
    if path.startswith(f"{directory}{os.sep}"):
        return path
    parts, name = Path(os.path.normpath(path)).parts, f"{number:04d}"
    for place in (i for i, part in enumerate(parts) if part == name):
        here = directory.joinpath(*parts[place:])
        with contextlib.suppress(OSError, ValueError):  # a name that no file can have
            if here.exists():
                return str(here)
    return path


def only_within(trial: TrialRecord, directory: Path) -> TrialRecord:
    """Returns a stored trial without what lies outside of the sweep's folder to go on from.

    A path in a store from elsewhere may name any file or folder, and what a trial goes on from is read and copied.
    """
    trial = located(trial, directory)
    kept = tuple(one for one in trial.artifacts if one.kind != CONTINUABLE or _is_within(one.path, directory))
    return trial if len(kept) == len(trial.artifacts) else dataclasses.replace(trial, artifacts=kept)


def why_never_continued(spec: SweepSpec) -> str | None:
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
        own = [] if parameter.when is None else schedules  # where it is not active, a trial has that of the config
        schedules = [*parameter.choices, *own] if isinstance(parameter, Categorical) else schedules
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


def _is_within(path: str, directory: Path) -> bool:
    try:
        return Path(path).resolve().is_relative_to(directory.resolve())
    except (OSError, ValueError, RuntimeError):  # a name that no file can have; links that lead in circles
        return False


def _last_written(folder: Path) -> int:
    """Returns when a file in a folder was last written, in nanoseconds; 0: there is none."""
    times = [0]
    with contextlib.suppress(OSError):
        times += [path.lstat().st_mtime_ns for path in folder.rglob("*") if not path.is_dir()]
    return max(times)
