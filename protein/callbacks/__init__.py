"""Callbacks that report a trial's score from inside a library's own training loop. One module for each library.

    from protein.callbacks.keras import ProteinCallback

    model.fit(..., callbacks=[ProteinCallback("val_accuracy")])

A callback reports the metric that it is told, under the name that the library gives it, and all other numbers as
metrics of the trial. It keeps the training's state where an interrupted or continued trial finds it. Outside a sweep it
does nothing. `docs/callbacks.md` shows each of them.

Where `protein sweep --command` runs the program, the sweep itself ends a trial early, with all its processes. A
function of `protein.Sweep` hands over its `report`, which raises `protein.Stop` in the callback.
"""

import contextlib
import re
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from protein import reporting
from protein.errors import UsageError
from protein.spelling import nearest

if TYPE_CHECKING:
    from protein.run.function import Report

SAVING_SHARE = 0.05  # of the time, at most, for the states that are kept before the last one
_STATE = re.compile(r"state-(\d+)\b.*")  # a whole one; until it is whole, it is called otherwise


class TrialTraining:
    """The trial as which a library trains: where its score goes, and where the training's state is.

    Attributes:
        monitor: the name of the metric that is the score.
        is_function: whether the trial is a call of a function, and not a program.
        runs: whether there is a trial. If not, nothing is reported and nothing saved.
        folder: where the state of the training is kept; None: nowhere.
        behind: where an earlier part of the trial has kept its state; None: there is none.
        checkpoint: that state; None: there is none.
        steps_behind: the steps of that state.
    """

    def __init__(self, monitor: str, report: "Report | None", *, save: bool) -> None:
        """Finds the trial.

        Args:
            monitor: the name of the metric that is the trial's score.
            report: what a function of `protein.Sweep` is given; None: the program is a trial's command, if anything.
            save: whether the state of the training is kept.
        """
        trial = None if report is not None else reporting.trial()
        self.runs = report is not None or trial is not None
        self.folder: Path | None = None
        behind: Path | None = None
        if report is not None:
            self.folder, behind = report.directory if save else None, report.continues
        elif trial is not None:
            self.folder = trial.checkpoint_directory if save else None
            behind = trial.checkpoint_directory if trial.resumes else None
        self.behind = behind
        self.steps_behind = 0
        self.checkpoint: Path | None = None
        if behind is not None and (states := _states(behind)):
            self.steps_behind, self.checkpoint = max(states)
        self.monitor, self.is_function = monitor, report is not None
        self._report = report or reporting.report
        self._seen: set[str] = set()
        self._has_score = False
        self._next_save = 0.0

    def tell(self, steps: int, values: Mapping[str, Any], *, is_reporter: bool = True) -> None:
        """Reports the metrics, if the score is among them. What is no number is left out.

        Args:
            steps: of training so far.
            values: the metrics by name.
            is_reporter: whether this process is the one that reports, where several train together.
        """
        numbers = {name: number for name, value in values.items() if (number := _number(value)) is not None}
        self._seen.update(numbers)
        if self.monitor in numbers:
            self._has_score = True
            if is_reporter:
                self._report(int(steps), numbers.pop(self.monitor), metrics=numbers)

    def check(self) -> None:
        """Raises `UsageError` where a training that began anew is over, and the score never came."""
        if self.runs and not self._has_score and self.behind is None:
            found = nearest(self.monitor, self._seen) if self._seen else "; the training gave no metric at all"
            raise UsageError(f"no metric '{self.monitor}' came, and monitor= says that it is the score{found}")

    def is_due(self) -> bool:
        """Returns whether the state is to be kept now: keeping it takes but a small share of the time."""
        return self.folder is not None and time.monotonic() >= self._next_save

    def save(self, steps: int, ending: str, write: Callable[[str], object], *, is_writer: bool = True) -> None:
        """Keeps the training's state in place of the one before, which stays until the new one is whole.

        Args:
            steps: of training so far.
            ending: of the file's name.
            write: writes the state to a path, as a file or a folder.
            is_writer: whether this process is the one that writes, where several call `write` together.
        """
        if self.folder is None:
            return
        began = time.monotonic()
        part = self.folder / f"part-{steps}{ending}"
        write(str(part))
        if is_writer:
            before = _states(self.folder)
            whole = self.folder / f"state-{steps}{ending}"
            if whole.is_dir():
                shutil.rmtree(whole)
            part.replace(whole)
            for _, path in before:
                if path != whole:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        now = time.monotonic()
        self._next_save = now + (now - began) / SAVING_SHARE


class TrialCallback:
    """What the callbacks of all libraries share."""

    def __init__(self, monitor: str, *, report: "Report | None" = None, save: bool = True) -> None:
        """Finds the trial, if there is one.

        Args:
            monitor: the metric that is the score.
            report: what `protein.Sweep` gives to a function that it calls.
            save: whether the state of the training is kept in the trial's folder.
        """
        super().__init__()
        self._trial = TrialTraining(monitor, report, save=save)

    @property
    def checkpoint(self) -> Path | None:
        """The state of an earlier part of the trial, to go on from; None: it begins anew."""
        return self._trial.checkpoint

    def left(self, steps: int) -> int:
        """Returns how many of a trial's steps are still to do after those of `checkpoint`."""
        return max(steps - self._trial.steps_behind, 0)


class CountingCallback(TrialCallback):
    """The same, where a library counts both steps and epochs."""

    def __init__(
        self,
        monitor: str,
        *,
        count: Literal["steps", "epochs"] = "steps",
        report: "Report | None" = None,
        save: bool = True,
    ) -> None:
        """Finds the trial, if there is one.

        Args:
            monitor: the metric that is the score.
            count: what a trial's steps are: the unit of the cost parameter.
            report: what `protein.Sweep` gives to a function that it calls.
            save: whether the state of the training is kept in the trial's folder.

        Raises:
            UsageError: there is no such `count`.
        """
        super().__init__(monitor, report=report, save=save)
        if count not in ("steps", "epochs"):
            raise UsageError(f"count= must be 'steps' or 'epochs', got {count!r:.80}")
        self._counts_epochs = count == "epochs"


def _number(value: Any) -> float | None:
    with contextlib.suppress(TypeError, ValueError, RuntimeError):  # a text, an array, a tensor of several elements
        return None if isinstance(value, str | bytes) else float(value)
    return None


def _states(folder: Path) -> list[tuple[int, Path]]:
    """Returns the states in a folder, each with its steps."""
    return [(int(found[1]), path) for path in folder.iterdir() if (found := _STATE.fullmatch(path.name))]
