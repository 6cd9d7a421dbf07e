"""What a Python program says to the sweep that runs it (`protein sweep --command`). Outside a sweep it does nothing.

    import protein

    for step in range(1, steps + 1):
        ...
        protein.report(step, accuracy)

It imports the standard library alone, and is ready at once.
"""

import contextlib
import dataclasses
import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ParamValue = Any  # a value of JSON


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunningTrial:
    """The trial as which this program runs.

    Attributes:
        number: of the trial in its sweep.
        params: its values by name.
        seed: for the randomness of the training.
        directory: the trial's own folder.
        checkpoint_directory: what is saved here outlives an interruption. The trial then goes on as a new process.
        resumes: whether it is such a process: `checkpoint_directory` holds what the last one has saved.
        max_seconds: what it may cost; it is stopped there. None: no limit.
    """

    number: int
    params: Mapping[str, ParamValue]
    seed: int
    directory: Path
    checkpoint_directory: Path
    resumes: bool
    max_seconds: float | None


def trial() -> RunningTrial | None:
    """Returns the trial as which this program runs, or None outside a sweep."""
    number, directory = os.environ.get("PROTEIN_TRIAL"), os.environ.get("PROTEIN_DIRECTORY")
    if number is None or directory is None:
        return None
    limit = os.environ.get("PROTEIN_MAX_SECONDS")
    return RunningTrial(
        number=int(number),
        params=json.loads(Path(os.environ["PROTEIN_PARAMS_FILE"]).read_text()),
        seed=int(os.environ["PROTEIN_SEED"]),
        directory=Path(directory),
        checkpoint_directory=Path(os.environ["PROTEIN_CHECKPOINT_DIR"]),
        resumes="PROTEIN_RESUME" in os.environ,
        max_seconds=None if limit is None else float(limit),
    )


def report(
    steps: int,
    score: float | None,
    *,
    cost_seconds: float | None = None,
    metrics: Mapping[str, float] | None = None,
    **more: float,
) -> None:
    """Adds a point to the trial's learning curve. The last score is the trial's, unless `report_result` gives another.

    Of several processes that train together, only the one with $RANK 0 reports.

    Args:
        steps: of training so far, in the unit of the space's cost parameter, if it has one.
        score: so far; None: there is none yet.
        cost_seconds: what the trial has cost so far, if that is not the wall clock of the program.
        metrics: further numbers to keep, by name. The last value of each one is the trial's.
        more: the same, where the name can be a keyword.
    """
    said = _without_none(steps=_plain(steps), score=_plain(score), cost_seconds=_plain(cost_seconds))
    _say(said | _metrics(metrics, more))


def report_result(
    score: float,
    *,
    cost_seconds: float | None = None,
    metrics: Mapping[str, float] | None = None,
    **more: float,
) -> None:
    """Says the trial's final score, as of an evaluation after the training.

    Args:
        score: it counts in place of the last one of the learning curve.
        cost_seconds: what the trial has cost, if that is not the wall clock of the program.
        metrics: further numbers to keep with the trial, by name, in place of the last ones of the learning curve.
        more: the same, where the name can be a keyword.
    """
    _say({"result": _plain(score)} | _without_none(cost_seconds=_plain(cost_seconds)) | _metrics(metrics, more))


def is_truth(value: object) -> bool:
    """Returns whether a value is a bool, of NumPy or torch, too. It is no score, though `float` would take it."""
    return isinstance(value, bool) or str(getattr(value, "dtype", "")).rpartition(".")[2] == "bool"


def _plain(value: object) -> object:
    """Returns a number as JSON can hold it: those of NumPy and torch, too.

    NaN stays, and so does a bool, so that the sweep says what it was.
    """
    if value is None or isinstance(value, str | int):
        return value
    if is_truth(value):
        return bool(value)
    return float(value)  # type: ignore[arg-type]  # it says itself what it cannot convert


def _without_none(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


def _metrics(given: Mapping[str, float] | None, more: Mapping[str, float]) -> dict[str, object]:
    found = {str(name): float(value) for name, value in {**(given or {}), **more}.items()}
    kept = {name: value for name, value in found.items() if math.isfinite(value)}
    return {"metrics": kept} if kept else {}


def _say(message: Mapping[str, object]) -> None:
    if os.environ.get("RANK", "0") != "0":
        return
    line = json.dumps(message).encode() + b"\n"
    pipe, descriptor = os.environ.get("PROTEIN_REPORT_PIPE"), os.environ.get("PROTEIN_REPORT_FD")
    if pipe is not None:  # it can be opened where the descriptor was closed on the way here
        with contextlib.suppress(OSError):  # another file system hides it
            opened = os.open(pipe, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(opened, line)
            finally:
                os.close(opened)
            return
    if descriptor is not None:
        with contextlib.suppress(OSError):  # it was closed, or the sweep has ended
            if stat.S_ISFIFO(os.fstat(int(descriptor)).st_mode):  # else the number belongs to something else now
                os.write(int(descriptor), line)
