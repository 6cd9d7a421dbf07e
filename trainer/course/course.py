"""The counters and the clock of one run, which all its processes share, and what follows from them.

A run's cost is the time between `begin_step` and `end_step`. What is done outside (reports, checkpoints, evaluations)
does not count. The clock may be that of another machine: see `speed` of `protein.trainer.run.run`.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from ..errors import CheckpointError
from ..events import Continuation, Ending, EventSink, Interrupted, Measurement, Result, RunResult, Stopped, run_result
from ..machine import checkpoint as checkpoints
from ..machine.distributed import World
from ..machine.stopwatch import Stopwatch
from .pace import Pace

# Writes a checkpoint to the path; reads one, and returns its steps, its seconds and its first step.
Write = Callable[[Path], None]
Restore = Callable[[Path], tuple[int, float, int]]


class CourseSettings(Protocol):
    """What it needs of a run's settings."""

    @property
    def max_seconds(self) -> float: ...
    @property
    def checkpoint_seconds(self) -> float: ...
    @property
    def seed(self) -> int: ...


class Course:
    """Where a run is.

    Attributes:
        steps: that were made.
        elapsed: seconds of training.
        first_step: of this run's clock: above 0 where it goes on with a shorter one.
        path: of the checkpoint; None: none is written.
        resumed: whether it began from a checkpoint.
        interrupted: whether a signal has come to any of the processes.
    """

    def __init__(
        self,
        settings: CourseSettings,
        *,
        total_steps: int,
        steps_name: str,
        directory: Path | None,
        report: EventSink,
        stop: threading.Event,
        world: World,
        speed: float,
    ) -> None:
        """`steps_name`: the setting that holds `total_steps`."""
        self._settings, self._total_steps, self._steps_name = settings, total_steps, steps_name
        self._report, self._stop, self._world, self._speed = report, stop, world, speed
        self._limit = settings.max_seconds or math.inf
        self._pace = Pace(total_steps, settings.checkpoint_seconds, world.size)
        self.path = directory / checkpoints.FILE_NAME if directory else None
        self._stable_path = directory / checkpoints.STABLE_FILE_NAME if directory else None
        self._stable_seconds: float | None = None  # when the step size of `wsd` began to fall, on this run's clock
        self.resumed = self.interrupted = False
        self._began: float | None = None  # when the step that is running began
        self._longest = 0.0  # seconds of the longest step
        self.steps, self.elapsed, self.first_step = 0, 0.0, 0

    def go_on(self, path: Path, restore: Restore) -> None:
        """Goes on with a shorter run from its checkpoint. Steps count from that run's first one, seconds from here.

        Raises:
            CheckpointError: it cannot be read, or has made all steps already.
        """
        self.resume(path, restore)
        if self.steps >= self._total_steps:
            raise CheckpointError(
                f"cannot continue {path}: it has made {self.steps} steps; {self._steps_name} must be larger, got"
                f" {self._total_steps}"
            )
        self.elapsed, self.first_step = 0.0, self.steps

    def resume(self, path: Path, restore: Restore) -> None:
        """Continues from a checkpoint.

        Where that run had gone on with a shorter one, it still does: the shorter one's checkpoint is not needed.
        """
        self.steps, self.elapsed, first_step = restore(path)
        self.first_step = max(self.first_step, first_step)
        self.resumed = True
        if self._stable_path is not None and self._stable_path.is_file() and self._stable_path != path:
            # It was written by the run that is resumed, if it lies behind this place: a longer run can go on from it.
            stable = checkpoints.read(self._stable_path, prefix="none/")
            if stable.steps <= self.steps and stable.config["train"]["seed"] == self._settings.seed:
                self._stable_seconds = stable.elapsed_seconds

    def begin(self) -> None:
        """Begins the training: all agree on the clock."""
        self._pace.begin(self.steps, self.elapsed)
        self._agree()

    @property
    def timed_out(self) -> bool:
        """Whether no further step may begin.

        One process stops in the middle of a step. Several must end together, so they begin none that may not fit, as
        long as the longest so far.
        """
        return self.elapsed + (self._longest if self._world.size > 1 else 0.0) >= self._limit

    def ended(self) -> Stopped | None:
        """Returns what ends the training now, before its steps are done."""
        if self.interrupted:
            return "signal"
        return "max_seconds" if self.timed_out else None

    def begin_step(self) -> float:
        """Starts the clock; returns the `time.perf_counter()` at which the step must end, made or not."""
        self._began = began = time.perf_counter()
        return began + (self._limit - self.elapsed) / self._speed if self._world.size == 1 else math.inf

    def end_step(self) -> None:
        """Stops the clock; all agree on it, and on whether a signal has come."""
        assert self._began is not None
        before = self.elapsed
        self.elapsed += self._speed * (time.perf_counter() - self._began)
        self._began = None
        self._agree()
        self._longest = max(self._longest, self.elapsed - before)  # of the clock that all have agreed on

    @property
    def spent_seconds(self) -> float:
        """Seconds of training so far, including those of a step that is running or has failed."""
        return self.elapsed + (0.0 if self._began is None else self._speed * (time.perf_counter() - self._began))

    @property
    def checkpoint_due(self) -> bool:
        return self._pace.checkpoint_due(self.elapsed)

    def save(self, write: Write) -> None:
        """Writes the checkpoint that is due."""
        self._pace.saved(self.elapsed)
        self.save_last(write)

    def save_last(self, write: Write) -> None:
        """Writes the checkpoint, due or not, where there is a folder for it."""
        self._write(self.path, write)

    def save_stable(self, write: Write) -> None:
        """Writes the checkpoint from which a longer run can go on: the step size falls from here on."""
        self._stable_seconds = self.elapsed
        self._write(self._stable_path, write)

    @property
    def report_due(self) -> bool:
        return self._pace.report_due(self.steps, self.elapsed)

    @property
    def unreported(self) -> bool:
        """Whether steps were made since the last report."""
        return self._pace.unreported(self.steps)

    def report(self, score: float | None, metrics: Mapping[str, float], stopwatch: Stopwatch) -> None:
        """Reports a point of the learning curve, with the steps per second and the stopwatch's sections."""
        self._pace.reported(self.steps, self.elapsed)
        self._report(
            Measurement(
                event="measurement",
                steps=self.steps,
                elapsed_seconds=self.elapsed,
                score=score,
                metrics={
                    **metrics,
                    "steps_per_second": self._speed * (self.steps - self.first_step) / max(self.elapsed, 1e-9),
                    **{f"{section}_seconds": seconds for section, seconds in stopwatch.seconds.items()},
                },
            )
        )

    def end(
        self,
        *,
        score: float | None,
        timings: Mapping[str, float],
        metrics: Mapping[str, float],
        stopped: Stopped,
        interrupted: bool,
        stays: bool,
        sample: str | None = None,
    ) -> RunResult:
        """Reports the run's end, which a signal may have brought, and returns its result.

        Args:
            score: of the evaluation.
            timings: seconds beside the training.
            metrics: of the whole run.
            stopped: what ended the training.
            interrupted: whether a signal ended the run, then or later.
            stays: whether a longer run can go on from the last checkpoint.
            sample: text that a language model wrote; None: none.
        """
        ending = Ending(
            score=score,
            steps=self.steps,
            elapsed_seconds=self.elapsed,
            timings=timings,
            metrics=metrics,
            checkpoint=str(self.path.absolute()) if self.path else None,
            **self._continuable(stopped, stays),
            stopped=stopped,
        )
        event: Result | Interrupted
        event = Result(event="result", **ending)  # type: ignore[typeddict-item]  # mypy asks for a sample
        if interrupted:
            event = Interrupted(event="interrupted", **ending)  # type: ignore[typeddict-item]
        if sample is not None:
            event["sample"] = sample
        self._report(event)
        return run_result(event)

    def _continuable(self, stopped: Stopped, stays: bool) -> Continuation:
        """Returns the checkpoint from which a longer run can go on, and when in this run it was written."""
        path, seconds = self._stable_path, self._stable_seconds
        if stays:
            path, seconds = self.path, self.elapsed
        if path is None or seconds is None or stopped != "steps":
            return Continuation(continuable=None, continuable_seconds=None)
        return Continuation(continuable=str(path.absolute()), continuable_seconds=seconds)

    def _agree(self) -> None:
        """Passes a signal on to all processes, and sets the clock of all to that of the first."""
        self.interrupted, self.elapsed = self._world.agree(self._stop.is_set(), self.elapsed)
        if self.interrupted:
            self._stop.set()

    def _write(self, path: Path | None, write: Write) -> None:
        if path is not None:
            began = time.perf_counter()
            write(path)
            self._pace.took(time.perf_counter() - began)
