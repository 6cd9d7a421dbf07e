"""How far a run of any kind is: its counters and its clock, what is due when, its step size, and how it ends.

All processes of a run share the counters and the clock.

A run's cost is the time between `begin_step` and `end_step`. What is done outside (reports, checkpoints, evaluations)
does not count. The clock may be that of another machine: see `speed` of `protein.trainer.run.run`.

Source: the schedule of warm-up, stable and decay (`wsd`): Hu et al. 2024, "MiniCPM", section 4.2.
"""

import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from .errors import CheckpointError
from .events import Ending, EventSink, Interrupted, Measurement, Result, RunResult, Start, Stopped, run_result
from .machine import checkpoint as checkpoints
from .machine import pauses
from .machine.checkpoint import Checkpoint
from .machine.distributed import World
from .machine.precision import Arithmetic
from .machine.precision_table import Precisions
from .machine.stopwatch import Stopwatch
from .settings import TrainSettings

REPORT_SECONDS = 0.5  # at most two measurements a second ...
REPORT_FRACTION = 0.02  # ... and at most one in each fiftieth of the run ...
REPORT_SECONDS_MAX = 10.0  # ... but at least one in this time
CHECKPOINT_SHARE = 0.01  # of the time may go to checkpoints before the end; where they take longer, there are fewer
Write = Callable[[Path], None]  # writes a checkpoint to the path
Restore = Callable[[Path], Checkpoint]  # reads one, and sets the run's parts to what it holds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What a run of either kind is given beside its config: the machine, the other processes, whom it reports to.

    Made by `protein.trainer.run.run`, which explains `directory`, `report`, `stop`, `stopwatch` and `speed`.

    Attributes:
        device: of the training.
        threads: for PyTorch and for environments, of this process.
        arithmetic: the settings of PyTorch that the run has changed for its time.
        directory: where checkpoints go; None: none is written.
        report: receives each event.
        stop: set by a signal.
        stopwatch: where the time of training is booked.
        world: the processes that train together.
        speed: seconds of the run's clock for one second of this machine.
        precisions: of acting and of the update, where the kind has both; `auto` is resolved where that was measured.
        notes: what there is to say of the choice of the device, for people.
        timings: seconds of what came before the training, by name.
        metrics: facts of the machine as numbers, which the run's result has, too.
    """

    device: torch.device
    threads: int
    arithmetic: Arithmetic
    directory: Path | None
    report: EventSink
    stop: threading.Event
    stopwatch: Stopwatch
    world: World
    speed: float
    precisions: Precisions | None = None
    notes: Sequence[str] = ()
    timings: Mapping[str, float] = dataclasses.field(default_factory=dict)
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)


class Progress:
    """Where a run is: its steps and its seconds of training.

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
        settings: TrainSettings,
        context: RunContext,
        *,
        total_steps: int,
        steps_name: str,
        by_time: bool = False,
        extends: bool = True,
    ) -> None:
        """Args:
        settings: of the run.
        context: what it is given beside them.
        total_steps: after which it ends.
        steps_name: the setting that holds `total_steps`.
        by_time: whether its schedules go by the nearer of its two limits, steps and seconds; else by the steps.
        extends: whether a longer run can go on from this one, as far as the step size allows it.
        """
        self._settings, self._total_steps, self._steps_name = settings, total_steps, steps_name
        self._context, self._world, self._speed = context, context.world, context.speed
        self._limit = settings.max_seconds or math.inf
        self._by_time = by_time and bool(settings.max_seconds)
        self._extends = extends
        directory = context.directory
        self.path = directory / checkpoints.FILE_NAME if directory else None
        self._stable_path = directory / checkpoints.STABLE_FILE_NAME if directory else None
        self._stable_seconds: float | None = None  # when the step size of `wsd` began to fall, on this run's clock
        self.resumed = self.interrupted = False
        self._began: float | None = None  # when the step that is running began
        self._pauses = 0  # of the process, when it began
        self._longest = 0.0  # seconds of the longest step
        self.steps, self.elapsed, self.first_step = 0, 0.0, 0
        self._warmed_up = False  # the warm-up of the step size was that of a shorter run
        self._last_fraction = 1.0  # of the schedules, in the middle of the last step
        self._advanced = False  # whether a step was made here
        self._reported_steps, self._reported_at = 0, 0.0  # steps and seconds of training at the last report
        self._saved_at = 0.0  # seconds of training at the last checkpoint that was due
        self._saving_seconds = 0.0  # that the last checkpoint took

    def require_writable(self) -> None:
        """Raises `DiskError` where there is to be a folder for checkpoints that cannot be created or written to."""
        if self._context.directory and self._world.is_first:
            checkpoints.require_writable(self._context.directory)

    def require_room(self, num_bytes: int) -> None:
        """Raises `DiskError` where checkpoints are to be written, each of `num_bytes`, that do not fit on the disk.

        While a file is replaced, the old one is still there. So those that a resumed run will replace need no more room
        than one.
        """
        if self._context.directory is None or not self._world.is_first:
            return
        falls = self._settings.lr_schedule == "wsd" and self._settings.decay_fraction > 0
        paths = [path for path in (self.path, self._stable_path if falls else None) if path is not None]
        new = sum(not path.exists() for path in paths)
        checkpoints.require_room(self._context.directory, max(new, 1) * num_bytes)

    def go_on(self, path: Path, restore: Restore) -> None:
        """Goes on with a shorter run from its checkpoint: the last one, with `wsd` that before the step size fell.

        Steps count from the first one of the shorter run, seconds from here. The result equals that of a longer run in
        one go, where the shorter run's steps were a whole number of iterations (of PPO) or of steps of the optimiser
        (of a language model), and as far as an environment's state can be restored. One thing differs: the warm-up was
        that of the shorter run and is not made again.

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
        self._warmed_up = True

    def resume(self, path: Path, restore: Restore) -> None:
        """Continues from a checkpoint.

        Where that run had gone on with a shorter one, it still does: the shorter one's checkpoint is not needed.
        """
        saved = restore(path)
        self.steps, self.elapsed = saved.steps, saved.elapsed_seconds
        self.first_step = max(self.first_step, saved.first_step)
        self.resumed = True
        self._warmed_up = self.first_step > 0
        if self._stable_path is not None and self._stable_path.is_file() and self._stable_path != path:
            # It was written by the run that is resumed, if it lies behind this place: a longer run can go on from it.
            # A damaged one is no loss for this run, but none can go on from it.
            with contextlib.suppress(CheckpointError):
                stable = checkpoints.read(self._stable_path, prefix="none/")
                if stable.steps <= self.steps and stable.config["train"]["seed"] == self._settings.seed:
                    self._stable_seconds = stable.elapsed_seconds

    def start(
        self, subject: str, *, parameters: int, startup_seconds: float, compiled: bool, notes: list[str]
    ) -> Start:
        """Returns the event of the run's start, to which each kind adds what is its own.

        Args:
            subject: what is learnt.
            parameters: of the network.
            startup_seconds: since the process's start.
            compiled: whether the network is.
            notes: what was decided by a measurement, for people.
        """
        return Start(
            event="start",
            env=subject,
            steps=self.steps,
            device=str(self._context.device),
            processes=self._world.size,
            threads=self._context.threads,
            parameters=parameters,
            startup_seconds=startup_seconds,
            compiled=compiled,
            notes=[*self._context.notes, *notes],
        )

    def begin(self) -> None:
        """Begins the training: all agree on the clock."""
        self._reported_steps, self._reported_at, self._saved_at = self.steps, self.elapsed, self.elapsed
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

    def between_steps(self, write: Write, size: int) -> Stopped | None:
        """Writes the checkpoints that are due, and returns what ends the training now, before its steps are done.

        Only where the state is complete: then a resumed run equals the uninterrupted one.

        Args:
            write: writes one.
            size: of a step.
        """
        if self.checkpoint_due:
            self._saved_at = self.elapsed
            self.save(write)
        if self.decay_is_next(size):
            self._stable_seconds = self.elapsed
            self._write(self._stable_path, write)
        return self.ended()

    def fraction(self, size: int) -> float:
        """Returns the fraction of the run in the middle of the next step, of `size`, by which its schedules go.

        Of the middle, so that neither a warm-up's first step nor a schedule's last one has size 0. What the last step
        has beyond the run's end does not count.
        """
        fraction = self._fraction_after(self.steps + 0.5 * min(size, self._total_steps - self.steps))
        return max(fraction, self._settings.warmup_fraction) if self._warmed_up else fraction

    @property
    def done(self) -> float:
        """The fraction of the run that is made, in [0, 1]."""
        return self._fraction_after(self.steps)

    def _fraction_after(self, steps: float) -> float:
        """Returns the fraction of the run after `steps` and the seconds so far."""
        by_time = self.elapsed / self._limit if self._by_time else 0.0
        return min(max(steps / self._total_steps, by_time), 1.0)

    def decay_is_next(self, size: int) -> bool:
        """Whether the step size of `wsd` begins to fall in the next step, so that a longer run can go on from here.

        Every step is of `size`; what the last one has beyond the run's end does not count. A step goes by its middle.
        By the steps this is known exactly. By the time, a resumed run may have passed the place already.
        """
        settings, total = self._settings, self._total_steps
        if settings.lr_schedule != "wsd" or not self._extends:
            return False
        if not self._by_time:
            begins = (1 - settings.decay_fraction) * total
            return self.steps - 0.5 * size <= begins < self.steps + 0.5 * min(size, total - self.steps)
        last = self._last_fraction if self._advanced else self._fraction_after(self.steps - 0.5 * size)
        return self._stays(last) and not self._stays(self.fraction(size))

    def advance(self, size: int) -> None:
        """Counts a step of `size`."""
        self._last_fraction, self._advanced = self.fraction(size), True
        self.steps += size

    @property
    def can_go_on(self) -> bool:
        """Whether a longer run can go on from here: nothing that depends on the run's length has changed yet."""
        return self._extends and self._stays(self._last_fraction)

    def _stays(self, fraction: float) -> bool:
        """Whether the step size has not fallen until `fraction`, in [0, 1]."""
        # With a `decay_fraction` of 0, or of less than half a batch, that of `wsd` never falls.
        schedule = self._settings.lr_schedule
        return schedule == "constant" or (schedule == "wsd" and fraction <= 1 - self._settings.decay_fraction)

    def begin_step(self) -> None:
        """Starts the clock."""
        self._pauses = pauses.count()
        self._began = time.perf_counter()

    def time_is_up(self) -> bool:
        """Whether the step that is running must end, made or not. Several processes make every step that they begin.

        Any thread may ask.
        """
        if self._limit == math.inf or self._world.size > 1:
            return False
        left, seconds = self._limit - self.elapsed, self._clock_seconds()
        return seconds >= left and self._without_stops(seconds) >= left

    def end_step(self) -> None:
        """Stops the clock; all agree on it, and on whether a signal has come."""
        assert self._began is not None
        before, seconds = self.elapsed, self._step_seconds()
        self._began = None  # first: else another thread could count the step twice
        self.elapsed += seconds
        self._agree()
        self._longest = max(self._longest, self.elapsed - before)  # of the clock that all have agreed on

    @property
    def spent_seconds(self) -> float:
        """Seconds of training so far, including those of a step that is running or has failed."""
        return self.elapsed + self._step_seconds()

    def _step_seconds(self) -> float:
        """Returns what the step that is running or has failed counts; 0: there is none."""
        return self._without_stops(self._clock_seconds())

    def _without_stops(self, seconds: float) -> float:
        """Returns what a step counts that has taken these seconds by the clock.

        The process may be stopped in a step (Ctrl-Z). Such a step counts at most as the longest so far. The first step
        counts whole.
        """
        stopped = pauses.count() != self._pauses
        return min(seconds, self._longest) if stopped and self._longest else seconds

    def _clock_seconds(self) -> float:
        """Returns what the clock says of that step, stops included."""
        began = self._began
        return 0.0 if began is None else self._speed * (time.perf_counter() - began)

    @property
    def checkpoint_due(self) -> bool:
        interval = self._settings.checkpoint_seconds
        if self._world.size == 1:  # several write together, and measure different times
            interval = max(interval, self._saving_seconds / CHECKPOINT_SHARE)
        return bool(self._settings.checkpoint_seconds) and self.elapsed - self._saved_at >= interval

    def save(self, write: Write) -> None:
        """Writes a checkpoint, due or not, where there is a folder for it."""
        if not self.resumed and self._stable_seconds is None and self._stable_path and self._world.is_first:
            # Of an earlier run in this folder, whose other checkpoint is replaced now. Resumed, this run would take it
            # for its own.
            with contextlib.suppress(OSError):  # then the new one cannot be written either, and that says why
                self._stable_path.unlink(missing_ok=True)
        self._write(self.path, write)

    @property
    def report_due(self) -> bool:
        since = self.elapsed - self._reported_at
        due = self.steps - self._reported_steps >= REPORT_FRACTION * self._total_steps or since >= REPORT_SECONDS_MAX
        return due and since >= REPORT_SECONDS

    @property
    def unreported(self) -> bool:
        """Whether steps were made since the last report."""
        return self.steps > self._reported_steps

    def report(self, score: float | None, metrics: Mapping[str, float]) -> None:
        """Reports a point of the learning curve, with the steps per second and the stopwatch's sections."""
        self._reported_steps, self._reported_at = self.steps, self.elapsed
        self._context.report(
            Measurement(
                event="measurement",
                steps=self.steps,
                elapsed_seconds=self.elapsed,
                score=score,
                metrics={
                    **metrics,
                    "steps_per_second": self._speed * (self.steps - self.first_step) / max(self.elapsed, 1e-9),
                    **{f"{section}_seconds": seconds for section, seconds in self._context.stopwatch.seconds.items()},
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
        sample: str | None = None,
    ) -> RunResult:
        """Reports the run's end, which a signal may have brought, and returns its result.

        Args:
            score: of the evaluation.
            timings: seconds beside the training.
            metrics: of the whole run.
            stopped: what ended the training.
            interrupted: whether a signal ended the run, then or later.
            sample: text that a language model wrote; None: none.
        """
        continuable, continuable_seconds = self._continuable(stopped)
        ending = Ending(
            score=score,
            steps=self.steps,
            elapsed_seconds=self.elapsed,
            timings={**self._context.timings, **timings},
            metrics={**metrics, **self._context.metrics},
            checkpoint=str(self.path.absolute()) if self.path else None,
            continuable=continuable,
            continuable_seconds=continuable_seconds,
            stopped=stopped,
        )
        if sample is not None:
            ending["sample"] = sample
        event: Result | Interrupted = Result(event="result", **ending)
        if interrupted:
            event = Interrupted(event="interrupted", **ending)
        self._context.report(event)
        return run_result(event)

    def _continuable(self, stopped: Stopped) -> tuple[str | None, float | None]:
        """Returns the checkpoint from which a longer run can go on, and when in this run it was written."""
        path, seconds = self._stable_path, self._stable_seconds
        if self.can_go_on:
            path, seconds = self.path, self.elapsed
        if path is None or seconds is None or stopped != "steps":
            return None, None
        return str(path.absolute()), seconds

    def _agree(self) -> None:
        """Passes a signal on to all processes, and sets the clock of all to that of the first."""
        self.interrupted, self.elapsed = self._world.agree(self._context.stop.is_set(), self.elapsed)
        if self.interrupted:
            self._context.stop.set()

    def _write(self, path: Path | None, write: Write) -> None:
        if path is not None:
            began = time.perf_counter()
            write(path)
            self._saving_seconds = time.perf_counter() - began


def rate_share(settings: TrainSettings, fraction: float, final_fraction: float = 0.0) -> float:
    """Returns the share of the largest step size after the fraction `fraction`, in [0, 1], of the run.

    It rises linearly over `warmup_fraction`, then follows the schedule over the rest. With `wsd` (warm-up, stable,
    decay) it is constant until the last `decay_fraction` of the run. `final_fraction`: the share at which it ends.
    """
    warmup = settings.warmup_fraction
    if fraction < warmup:
        return fraction / warmup
    if settings.lr_schedule == "constant" or warmup >= 1:
        return 1.0
    along = (fraction - warmup) / (1 - warmup)
    if settings.lr_schedule == "wsd":
        left = min((1 - fraction) / max(settings.decay_fraction, 1e-12), 1.0)
    elif settings.lr_schedule == "linear":
        left = 1 - along
    else:
        left = 0.5 * (1 + math.cos(math.pi * along))
    return final_fraction + (1 - final_fraction) * left
