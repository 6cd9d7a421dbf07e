"""Runs trials of the user's own training function, in the thread that serves them, one after the other.

`function_processes.py` runs several at once, each in a process of its own, by the same code.

The loop runs in another thread (see `protein.api.function_sweep`). It puts the trials that it starts into one queue and
gets their events from another. The cost of a trial is the wall clock of the function, or what the function reports. A
trial can be ended only while it reports.
"""

import collections
import contextlib
import dataclasses
import math
import queue
import stat
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from protein.direction import stored_score
from protein.errors import UsageError
from protein.ports import Finished, Job, TrialProgress
from protein.run import folders
from protein.run.events import joined
from protein.run.reports import MAX_STEPS
from protein.run.shortage import FREE, shortage
from protein.run.told_cost import ToldCost
from protein.types import (
    CONTINUABLE,
    CONTINUABLE_SECONDS,
    MAX_COST_SECONDS,
    MAX_SCORE,
    Artifact,
    Direction,
    Measurement,
    Outcome,
    Trial,
    TrialEnd,
    TrialState,
    is_score,
)
from protein.validate import number

_LOG_FILE = "trial.log"
_MAX_REASON = 500  # characters; the log has the whole text
# How Python's own error begins when `report` is called with too many or too few arguments; nothing else tells it apart.
_WRONG_REPORT = "TypeError: Report.__call__()"

Train = Callable[[dict[str, Any], "Report"], float]


class Stop(BaseException):
    """Raised by `report` where a trial is to end. Do not catch it; `except Exception` does not catch it either."""


class Report:
    """Takes the learning curve of a training function, which calls it as `report(steps, score)`.

    Attributes:
        seed: of this trial, for the randomness of the training.
        continues: the `directory` of the trial that this one goes on with, to more steps; None: it begins anew. Only a
            sweep with `can_continue` continues trials. Steps then go on from those of the earlier trial, and the cost
            is that of this call alone.
    """

    def __init__(self, job: Job, direction: Direction, add: Callable[[TrialProgress], None]) -> None:
        self.seed: int = job.config["seed"]
        self.continues: Path | None = job.continues
        self._directory = job.directory
        self._max_seconds: float | None = job.config["max_seconds"]
        self._at_limit = job.at_limit
        self._trial, self._direction, self._add = job.trial, direction, add
        self._began: float | None = None  # on the performance counter; None: it is not its turn yet
        self._reported_seconds: float | None = None
        self._cost = ToldCost()
        self.not_finite: ValueError | None = None  # what was raised for a score that was not finite
        self.last: Measurement | None = None
        self.last_score: float | None = None  # of its curve, to be maximised
        self.requested_end: tuple[TrialEnd, str] | None = None  # how and why the trial is to end
        self.has_raised_stop = False  # because of that; what comes out of the function may be another exception

    def __call__(self, steps: int, score: float | None, *, cost_seconds: float | None = None, **metrics: float) -> None:
        """Adds a point to the trial's learning curve.

        Args:
            steps: of training so far, 0 or more. Use the unit of the space's cost parameter, if there is one: from it
                the engine sees how much of the trial is still to come. A point with fewer steps than the one before is
                left out of the curve.
            score: so far, of the same kind as the score that the function returns; None: there is none yet. A score
                that is not finite ends the trial as failed.
            cost_seconds: what the trial has cost so far, if that is not the wall clock.
            metrics: further numbers to keep; those that are not finite are left out.

        Raises:
            Stop: the trial is to end here.
            UsageError: steps or a cost below 0, or a value that is not a number. It ends the sweep.
        """
        if not 0 <= (count := number(steps, "report: the steps")) <= MAX_STEPS:
            raise UsageError(f"report: the steps must be from 0 to {MAX_STEPS}, got {steps}")
        given_score = None if score is None else number(score, "report: the score")
        if given_score is not None and not is_score(given_score):
            self.not_finite = ValueError(f"the score became {given_score} at step {steps}{_beyond(given_score)}")
            raise self.not_finite
        if cost_seconds is not None:
            self._reported_seconds = number(cost_seconds, "report: cost_seconds")
            if math.isfinite(self._reported_seconds) and self._reported_seconds > MAX_COST_SECONDS:
                self._reported_seconds = None  # the wall clock is what is left to go by
                limit = f"{MAX_COST_SECONDS:g} s (31 years)"
                raise UsageError(f"report: cost_seconds must be at most {limit}, got {cost_seconds:.3g}")
        given = {name: number(value, f"report: the metric '{name}'") for name, value in metrics.items()}
        try:
            point = Measurement(
                steps=int(count),
                elapsed_seconds=self.cost_seconds(),
                score=stored_score(given_score, self._direction),
                metrics={name: value for name, value in given.items() if math.isfinite(value)},
            )
        except ValueError as error:
            raise UsageError(f"report: {error}") from error
        goes_back = self.last is not None and point.steps < self.last.steps
        if not goes_back:  # as where each epoch counts anew: the curve would say nothing of how far the trial is
            self.last = point
            self.last_score = self.last_score if point.score is None else point.score
        points = () if goes_back else (point,)
        cost = None if points and self._reported_seconds is not None else point.elapsed_seconds
        self._add(TrialProgress(trial=self._trial, measurements=points, cost_seconds=cost))
        if self._max_seconds is not None and point.elapsed_seconds >= self._max_seconds:
            self.end(self._at_limit, self._at_limit.text)
        self._raise_if_ending()

    @property
    def directory(self) -> Path:
        """The trial's own folder, made when it is first asked for. What is saved here can be continued from."""
        folders.prepare(self._directory)
        return self._directory

    def cost_seconds(self) -> float:
        """Returns what the trial has cost so far: the last cost that was reported, or else the wall clock."""
        if self._reported_seconds is not None:
            return self._reported_seconds
        return 0.0 if self._began is None else time.perf_counter() - self._began

    def cost_so_far(self) -> TrialProgress | None:
        """Returns what the trial has cost by now, now and then; None: not now, or the function reports that itself."""
        cost = self._cost.news(None if self._reported_seconds is not None else self.cost_seconds())
        return None if cost is None else TrialProgress(trial=self._trial, measurements=(), cost_seconds=cost)

    def begin(self) -> None:
        """Starts the clock. Raises `Stop` if the trial was ended before its turn came."""
        self._began = time.perf_counter()
        self._raise_if_ending()

    def end(self, end: TrialEnd, reason: str) -> None:
        """Makes the next report raise `Stop`, unless the trial is being ended already. The loop's thread calls it."""
        if self.requested_end is None:
            self.requested_end = (end, reason)

    def _raise_if_ending(self) -> None:
        if self.requested_end is not None:
            self.has_raised_stop = True
            raise Stop(self.requested_end[1])


class FunctionBackend:
    """A backend (see `protein.ports.Backend`) whose trials run in the thread that calls `serve`, one at a time."""

    def __init__(self, train: Train, direction: Direction) -> None:
        self._waiting: collections.deque[tuple[Job, Report]] = collections.deque()  # the first may be running
        self._news: queue.SimpleQueue[None] = (
            queue.SimpleQueue()
        )  # wakes `serve`: a trial waits, or the backend is closed
        self._closed = False
        self._events: queue.SimpleQueue[TrialProgress | Finished] = queue.SimpleQueue()
        self._reports: dict[int, Report] = {}  # of the trials that have not ended, by id
        self._train, self._direction = train, direction

    def num_slots(self) -> int | None:
        return None

    def start(self, job: Job) -> None:
        folders.refuse_link(job.directory)
        report = self._reports[job.trial.id] = Report(job, self._direction, self._events.put)
        self._waiting.append((job, report))
        self._news.put(None)

    def poll(self, timeout_seconds: float) -> list[TrialProgress | Finished]:
        events: list[TrialProgress | Finished] = []
        with contextlib.suppress(queue.Empty):
            events.append(self._events.get(timeout=timeout_seconds))
            while True:
                events.append(self._events.get_nowait())
        events = joined(event for event in events if self._take(event))
        running = [report.cost_so_far() for report in list(self._reports.values())]
        return events + [progress for progress in running if progress is not None]

    def _take(self, event: TrialProgress | Finished) -> bool:
        """Takes an event. Returns False where its trial has ended already.

        The end of a trial comes twice where Ctrl-C came just then. A thread of the function's may report after it.
        """
        if isinstance(event, Finished):
            return self._reports.pop(event.trial.id, None) is not None
        return event.trial.id in self._reports

    def stop(self, trial: Trial, end: TrialEnd, reason: str) -> None:
        if (report := self._reports.get(trial.id)) is not None:
            report.end(end, reason)

    def close(self) -> None:
        """Makes `serve` return as soon as the trial that runs there has reported or ended."""
        for report in list(self._reports.values()):
            report.end(TrialEnd.INTERRUPTED, TrialEnd.INTERRUPTED.text)
        self._closed = True
        self._news.put(None)

    def serve(self, stop: threading.Event) -> None:
        """Runs the trials that are started, until `close`. A KeyboardInterrupt ends the trial and sets `stop`."""
        while True:
            try:
                while self._waiting or not self._closed:
                    if not self._waiting:
                        self._news.get()
                    while self._waiting:
                        self._run(*self._waiting[0], stop)
                return
            except KeyboardInterrupt:  # it may come just as `get` returns; the trial that waits is not lost with it
                stop.set()

    def _run(self, job: Job, report: Report, stop: threading.Event) -> None:
        if stop.is_set():  # since the engine began to work on this trial
            report.end(TrialEnd.INTERRUPTED, TrialEnd.INTERRUPTED.text)
        ended = run_trial(self._train, self._direction, job, report)
        if ended.interrupted:
            stop.set()
        self._events.put(ended.finished)  # before it is forgotten: a KeyboardInterrupt may come between any two lines
        self._waiting.popleft()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    """How a trial of a function has ended, and what that means for the sweep."""

    finished: Finished
    interrupted: bool = False  # by a KeyboardInterrupt, which is for the sweep


def run_trial(train: Train, direction: Direction, job: Job, report: Report) -> Ended:
    """Calls the function for one trial. Whatever it raises is in what is returned."""
    end, reason, score = TrialEnd.INTERRUPTED, TrialEnd.INTERRUPTED.text, None
    artifacts: tuple[Artifact, ...] = ()
    fatal: BaseException | None = None
    interrupted = False
    try:
        end, reason, score, artifacts = _try(train, direction, job, report)
        if end is TrialEnd.MISTAKE:
            fatal = UsageError(f"{reason}. Correct it and run the sweep again")
    except KeyboardInterrupt:
        interrupted = True
    except BaseException as error:  # such as a cancellation by a framework: it tells nothing about the params
        fatal = error
    cost = report.cost_seconds()
    outcome = Outcome(
        end=end,
        score=score,
        cost_seconds=cost if math.isfinite(cost) and cost >= 0 else 0.0,
        steps=0 if report.last is None else report.last.steps,
        reason=reason,
        metrics={CONTINUABLE_SECONDS: cost} if any(one.kind == CONTINUABLE for one in artifacts) else {},
    )
    finished = Finished(trial=job.trial, outcome=outcome, artifacts=artifacts, error=fatal)
    return Ended(finished=finished, interrupted=interrupted)


def _try(
    train: Train, direction: Direction, job: Job, report: Report
) -> tuple[TrialEnd, str, float | None, tuple[Artifact, ...]]:
    """Returns how a trial ended, why in words, its score and its files.

    An exception that is not a result of the trial, such as a KeyboardInterrupt, is raised.
    """
    try:
        report.begin()
        before = _files(job.directory)  # of an earlier sweep in this folder
        end, reason, score = _judge(train(dict(job.trial.params), report), direction)
        return end, reason, score, _saved(job.directory, before) if end is TrialEnd.COMPLETE else ()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # what the user's function raises is the result of that trial
        if isinstance(error, Stop) or report.has_raised_stop:  # frameworks wrap what their callbacks raise
            end, reason = report.requested_end or (TrialEnd.USER_ERROR, str(error) or "Stop")  # it may raise it itself
            return end, reason, report.last_score if end.state is TrialState.PRUNED else None, ()
        if not isinstance(error, Exception | SystemExit):
            raise
        reason = _one_line(f"{type(error).__name__}: {_text_of(error)}").removesuffix(":")
        end = TrialEnd.DIVERGED if error is report.not_finite else shortage(reason) or TrialEnd.USER_ERROR
        reason += FREE if end is TrialEnd.DISK else ""
        artifacts = _write_log(job.directory)
        if isinstance(error, UsageError) or reason.startswith(_WRONG_REPORT):
            end = TrialEnd.MISTAKE
            reason = f"{end.text}: {_one_line(str(error))}".replace("Report.__call__()", "report()")
        return end, reason, None, artifacts


def _judge(value: Any, direction: Direction) -> tuple[TrialEnd, str, float | None]:
    try:
        score = number(value, "the score")
    except UsageError as error:
        raise UsageError(f"it returned {value!r:.80} instead of a number") from error
    if not is_score(score):
        return TrialEnd.DIVERGED, f"the score is {score}{_beyond(score)}", None
    return TrialEnd.COMPLETE, "", stored_score(score, direction)


def _beyond(score: float) -> str:
    return f", beyond {MAX_SCORE:g}" if math.isfinite(score) else ""


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as problem:  # the class of the user's error has a mistake of its own
        return f"it has no text, as its __str__ raised {type(problem).__name__}"


def _one_line(text: str) -> str:
    """Returns a short text in one line that any terminal and file can hold."""
    return " ".join(text.encode("utf-8", "backslashreplace").decode().split())[:_MAX_REASON]


def _files(directory: Path) -> set[tuple[str, int, int, int]]:
    """Returns each file in a folder and below with what changes when it is written anew."""
    found = set()
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # the function may still be tidying up
            status = path.lstat()  # what a link leads to is not the trial's
            if not stat.S_ISDIR(status.st_mode):
                found.add((str(path), status.st_ino, status.st_mtime_ns, status.st_size))
    return found


def _saved(directory: Path, before: set[tuple[str, int, int, int]]) -> tuple[Artifact, ...]:
    """Returns the folder of a trial as what a longer run goes on from, if the function has saved anything there.

    Files that were there `before` the trial and were not written again are none of its own.
    """
    if not _files(directory) - before:
        return ()
    return (Artifact(kind=CONTINUABLE, path=str(directory.absolute())),)


def _write_log(directory: Path) -> tuple[Artifact, ...]:
    """Writes the current exception's traceback. If that fails, the reason alone is kept."""
    with contextlib.suppress(OSError):
        folders.prepare(directory)
        path = directory / _LOG_FILE
        folders.write_file(path, traceback.format_exc())
        return (Artifact(kind="log", path=str(path.absolute())),)
    return ()
