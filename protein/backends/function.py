"""Runs trials of a function of somebody's own, in the thread that serves them, one after the other.

The loop runs in another thread (see `protein.own`): it starts a trial by putting it into a queue and hears of it
through another. Cost is the wall clock of the function, or what it reports. A trial can be stopped only while it
reports.
"""

import contextlib
import math
import queue
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from protein.errors import ProteinError, UsageError
from protein.ports import Finished, Job, Progress
from protein.told import number
from protein.types import INTERRUPTED, MISTAKE, Artifact, Measurement, Outcome, Trial, TrialState

_LOG_FILE = "trial.log"
_WRONG_REPORT = "TypeError: Report.__call__()"  # as Python begins it where the arguments are too many or too few

Train = Callable[[dict[str, Any], "Report"], float]


class Stop(BaseException):
    """Raised by `report` where a trial is to end: let it pass. No `Exception`, so that `except Exception` does."""


class Report:
    """What a training function reports its learning curve with; called as `report(steps, score)`.

    Attributes:
        seed: the trial's own, for the randomness of the training.
    """

    def __init__(self, job: Job, sign: float, events: "queue.SimpleQueue[Progress | Finished]") -> None:
        self.seed: int = job.config["seed"]
        self._cap_seconds: float | None = job.config["max_seconds"]
        self._at_limit = job.at_limit
        self._trial, self._sign, self._events = job.trial, sign, events
        self._began = time.perf_counter()
        self._told_seconds: float | None = None
        self._stop_reason = ""
        self.last: Measurement | None = None
        self.pruned = ""  # why the trial ends early with what it has; "" while it does not

    def __call__(self, steps: int, score: float | None, *, cost_seconds: float | None = None, **metrics: float) -> None:
        """Adds a point to the trial's learning curve.

        Args:
            steps: of training so far, 0 or more: in the unit of the space's cost parameter where there is one, so that
                the engine sees how much of the trial is to come.
            score: now, of the same kind as the one that the function returns; None where there is none yet. One that is
                not finite ends the trial as failed.
            cost_seconds: what the trial has cost so far, where that is not the wall clock.
            metrics: further numbers to keep; those that are not finite are left out.

        Raises:
            Stop: the trial is to end here.
            UsageError: steps or a cost that cannot be, or something that is no number: it ends the sweep.
        """
        told_score = None if score is None else number(score, "report: the score")
        if told_score is not None and not math.isfinite(told_score):
            raise ValueError(f"the score became {told_score} at step {steps}")
        if cost_seconds is not None:
            self._told_seconds = number(cost_seconds, "report: cost_seconds")
        told = {name: number(value, f"report: the metric '{name}'") for name, value in metrics.items()}
        try:
            point = Measurement(
                steps=int(number(steps, "report: the steps")),
                elapsed_seconds=self.cost_seconds(),
                score=None if told_score is None else self._sign * told_score,
                metrics={name: value for name, value in told.items() if math.isfinite(value)},
            )
        except (ValueError, OverflowError) as error:
            raise UsageError(f"report: {error}") from error
        self.last = point
        self._events.put(Progress(trial=self._trial, measurements=(point,)))
        if self._stop_reason:
            raise Stop(self._stop_reason)
        if self._cap_seconds is not None and point.elapsed_seconds >= self._cap_seconds:
            self.pruned = self._at_limit
            raise Stop(self._at_limit)

    def cost_seconds(self) -> float:
        """Returns what the trial has cost so far: the last cost that was reported, else the wall clock."""
        return time.perf_counter() - self._began if self._told_seconds is None else self._told_seconds

    def stop(self, reason: str, *, pruned: bool) -> None:
        """Lets the next report raise `Stop`. Called from the loop's thread."""
        self.pruned = reason if pruned else ""
        self._stop_reason = reason


class FunctionBackend:
    """A backend (see `protein.ports.Backend`) whose trials run in the thread that calls `serve`, one at a time."""

    def __init__(self, train: Train, sign: float) -> None:
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self.errors: list[ProteinError] = []  # mistakes in how the function is written: no other params would mend them
        self._events: queue.SimpleQueue[Progress | Finished] = queue.SimpleQueue()
        self._train, self._sign = train, sign
        self._report: Report | None = None

    def start(self, job: Job) -> None:
        self.jobs.put(job)

    def poll(self, timeout_seconds: float) -> list[Progress | Finished]:
        events: list[Progress | Finished] = []
        with contextlib.suppress(queue.Empty):
            events.append(self._events.get(timeout=timeout_seconds))
            while True:
                events.append(self._events.get_nowait())
        return events

    def stop(self, trial: Trial, reason: str) -> None:
        self._end(reason, pruned=False)

    def prune(self, trial: Trial, reason: str) -> None:
        self._end(reason, pruned=True)

    def close(self) -> None:
        self._end(INTERRUPTED, pruned=False)

    def _end(self, reason: str, *, pruned: bool) -> None:
        if self._report is not None:
            self._report.stop(reason, pruned=pruned)

    def serve(self, stop: threading.Event) -> None:
        """Runs what is started, until the loop has ended. A KeyboardInterrupt ends the trial and sets `stop`."""
        while True:
            try:
                job = self.jobs.get()
            except KeyboardInterrupt:
                stop.set()
                continue
            if job is None:
                return
            self._run(job, stop)

    def _run(self, job: Job, stop: threading.Event) -> None:
        report = self._report = Report(job, self._sign, self._events)
        artifacts: tuple[Artifact, ...] = ()
        state, score, reason = TrialState.FAILED, None, ""
        try:
            value = self._train(dict(job.trial.params), report)
            state, score, reason = self._judge(value)
        except KeyboardInterrupt:
            reason = INTERRUPTED
            stop.set()
        except Stop as stopped:
            last = None if report.last is None else report.last.score
            state, score, reason = (
                (TrialState.PRUNED, last, report.pruned) if report.pruned else (state, None, str(stopped))
            )
        except (Exception, SystemExit) as error:  # whatever a user's function raises is that trial's result
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            artifacts = _write_log(job.directory)
            if isinstance(error, UsageError) or reason.startswith(_WRONG_REPORT):
                reason = f"{MISTAKE}: {' '.join(str(error).split())}".replace("Report.__call__()", "report()")
                self.errors.append(UsageError(f"{reason}; mend it and run the sweep again: it goes on"))
        if self.errors:
            stop.set()
        cost = report.cost_seconds()
        self._report = None
        outcome = Outcome(
            state=state,
            score=score,
            cost_seconds=cost if math.isfinite(cost) and cost >= 0 else 0.0,
            steps=0 if report.last is None else report.last.steps,
            reason=reason,
        )
        self._events.put(Finished(trial=job.trial, outcome=outcome, artifacts=artifacts))

    def _judge(self, value: Any) -> tuple[TrialState, float | None, str]:
        try:
            score = number(value, "the score")
        except UsageError as error:
            raise UsageError(f"it returned {value!r:.80}; it must return the score, a number") from error
        if not math.isfinite(score):
            return TrialState.FAILED, None, f"the score is {score}"
        return TrialState.COMPLETE, self._sign * score, ""


def _write_log(directory: Path) -> tuple[Artifact, ...]:
    """Keeps the current exception's traceback; where that cannot be written, the reason alone has to do."""
    with contextlib.suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / _LOG_FILE
        path.write_text(traceback.format_exc())
        return (Artifact(kind="log", path=str(path.absolute())),)
    return ()
