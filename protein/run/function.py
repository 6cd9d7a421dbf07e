"""Runs trials of the user's own training function: one after the other in this program, or each in its own process.

The loop runs in another thread (see `protein.api.function_sweep`). The cost of a trial is the wall clock of the
function, or what the function reports. A trial can be ended in order only while it reports.

**One after the other** (`FunctionBackend`), trials run in the thread that calls `serve`. The loop puts the trials that
it starts into one queue and gets their events from another.

**Side by side** (`FunctionProcesses`), the processes are forks of the program, so that the function may be a closure
over anything that the program holds. They are forked from a server (`protein.run.fork_server`), which is itself forked
in the thread that calls `serve`. What a function changes in its process is not seen by other trials. Threads of OpenMP
do not survive a fork, so torch computes with one thread there. Where a process cannot be forked safely (macOS), or
CUDA is in use already, processes begin anew instead (`start_method="spawn"`). Then the function must be found by its
name in a module. The sweep gets the events of a trial through a pipe. What the function prints goes where the program
prints.
"""

import collections
import contextlib
import copy
import dataclasses
import functools
import importlib
import math
import multiprocessing.popen_fork  # noqa: F401 (a server that is forked here uses it, and must not import)
import os
import pickle
import platform
import queue
import signal
import socket
import stat
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from multiprocessing import spawn
from pathlib import Path
from typing import Any, Literal, cast

from protein.direction import stored_score
from protein.errors import UsageError
from protein.files import prepare_folder, refuse_link, write_file
from protein.ports import Finished, Job, TrialProgress
from protein.run import fork_server
from protein.run.process import FREE, ProcessBackend, Record, ToldCost, TrialServer, joined, launch_python, shortage
from protein.run.reports import MAX_STEPS
from protein.types import (
    CONTINUABLE,
    CONTINUABLE_SECONDS,
    MAX_COST_SECONDS,
    MAX_SCORE,
    USAGE_FILE,
    Artifact,
    Direction,
    Measurement,
    Outcome,
    Trial,
    TrialEnd,
    TrialState,
    is_score,
)
from protein.validate import number, score_of

_LOG_FILE = "trial.log"
_MAX_REASON = 500  # characters; the log has the whole text
# How Python's own error begins when `report` is called with too many or too few arguments; nothing else tells it apart.
_WRONG_REPORT = "TypeError: Report.__call__()"

_HEAVY = ("numpy", "torch")  # imported once for all spawned trials, if the program has imported them

Train = Callable[[dict[str, Any], "Report"], float]
StartMethod = Literal["fork", "spawn"]


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

    def __init__(self, job: Job, direction: Direction, add: Callable[[TrialProgress], object]) -> None:
        self.seed: int = job.config["seed"]
        self.continues: Path | None = job.continues
        self._directory = job.directory
        self._max_seconds: float | None = job.config["max_seconds"]
        self._was_stopped = False  # (SIGSTOP): the wall clock went on, and the sweep alone knows what counts
        self._at_limit = job.at_limit
        self._trial, self._direction, self._add = job.trial, direction, add
        self._began: float | None = None  # on the monotonic clock, as the sweep's own; None: it is not its turn yet
        self._reported_seconds: float | None = None
        self._cost = ToldCost()
        self.not_finite: ValueError | None = None  # what was raised for a score that was not finite
        self.last: Measurement | None = None
        self.last_score: float | None = None  # of its curve, to be maximised
        self.requested_end: tuple[TrialEnd, str] | None = None  # how and why the trial is to end
        self.has_raised_stop = False  # because of that; what comes out of the function may be another exception

    def __call__(
        self,
        steps: int,
        score: float | None,
        *,
        cost_seconds: float | None = None,
        metrics: Mapping[str, float] | None = None,
        **more: float,
    ) -> None:
        """Adds a point to the trial's learning curve.

        Args:
            steps: of training so far, 0 or more. Use the unit of the space's cost parameter, if there is one: from it
                the engine sees how much of the trial is still to come. A point with fewer steps than the one before is
                left out of the curve.
            score: so far, of the same kind as the score that the function returns; None: there is none yet. A score
                that is not finite ends the trial as failed.
            cost_seconds: what the trial has cost so far, if that is not the wall clock.
            metrics: further numbers to keep, by name; those that are not finite are left out. The last value of each
                one is the trial's.
            more: the same, where the name can be a keyword.

        Raises:
            Stop: the trial is to end here.
            UsageError: steps or a cost below 0, or a value that is not a number. It ends the sweep.
        """
        if not 0 <= (count := number(steps, "report: the steps")) <= MAX_STEPS:
            raise UsageError(f"report: the steps must be from 0 to {MAX_STEPS}, got {steps}")
        given_score = None if score is None else score_of(score, "report: the score")
        if given_score is not None and not is_score(given_score):
            self.not_finite = ValueError(f"the score became {given_score} at step {steps}{_beyond(given_score)}")
            raise self.not_finite
        if cost_seconds is not None:
            self._reported_seconds = number(cost_seconds, "report: cost_seconds")
            if math.isfinite(self._reported_seconds) and self._reported_seconds > MAX_COST_SECONDS:
                self._reported_seconds = None  # the wall clock is what is left to go by
                limit = f"{MAX_COST_SECONDS:g} s (31 years)"
                raise UsageError(f"report: cost_seconds must be at most {limit}, got {cost_seconds:.3g}")
        if not isinstance(metrics, Mapping | None):
            raise UsageError(f"report: metrics must map names to numbers, as in {{'loss': 0.2}}, got {metrics!r:.80}")
        named = {**(metrics or {}), **more}
        given = {str(name): number(value, f"report: the metric '{name}'") for name, value in named.items()}
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
        knows_cost = self._reported_seconds is not None or not self._was_stopped
        if self._max_seconds is not None and knows_cost and point.elapsed_seconds >= self._max_seconds:
            self.end(self._at_limit, self._at_limit.text)
        self._raise_if_ending()

    @property
    def directory(self) -> Path:
        """The trial's own folder, made when it is first asked for. What is saved here can be continued from."""
        prepare_folder(self._directory)
        return self._directory

    def cost_seconds(self) -> float:
        """Returns what the trial has cost so far: the last cost that was reported, or else the wall clock."""
        if self._reported_seconds is not None:
            return self._reported_seconds
        return 0.0 if self._began is None else time.monotonic() - self._began

    def cost_so_far(self) -> TrialProgress | None:
        """Returns what the trial has cost by now, now and then; None: not now, or the function reports that itself."""
        cost = self._cost.news(None if self._reported_seconds is not None else self.cost_seconds())
        return None if cost is None else TrialProgress(trial=self._trial, measurements=(), cost_seconds=cost)

    def begin(self) -> None:
        """Starts the clock. Raises `Stop` if the trial was ended before its turn came."""
        self.start_clock(time.monotonic())
        self._raise_if_ending()

    def start_clock(self, began: float) -> None:
        """Counts the trial's cost from a moment on the monotonic clock, unless it runs already."""
        self._began = began if self._began is None else self._began

    def end(self, end: TrialEnd, reason: str) -> None:
        """Makes the next report raise `Stop`, unless the trial is being ended already. The loop's thread calls it."""
        if self.requested_end is None:
            self.requested_end = (end, reason)

    def note_stop(self) -> None:
        """Leaves it to the sweep to end the trial at its cap, unless the function reports its cost."""
        self._was_stopped = True

    def _raise_if_ending(self) -> None:
        if self.requested_end is not None:
            self.has_raised_stop = True
            raise Stop(self.requested_end[1])


class _Tasks:
    """Tasks that other threads add for the one that calls `serve`."""

    def __init__(self) -> None:
        self._waiting: collections.deque[Callable[[threading.Event], None]] = collections.deque()  # the first may run
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()  # wakes `serve`: a task waits, or all is closed
        self._closed = False

    def add(self, task: Callable[[threading.Event], None]) -> None:
        self._waiting.append(task)
        self._news.put(None)

    def close(self) -> None:
        """Makes `serve` return when nothing waits any more."""
        self._closed = True
        self._news.put(None)

    def serve(self, stop: threading.Event) -> None:
        """Does the tasks, each of which is given `stop`, until `close`. A KeyboardInterrupt sets that."""
        while True:
            try:
                while self._waiting or not self._closed:
                    if not self._waiting:
                        self._news.get()
                    while self._waiting:
                        self._waiting[0](stop)
                        self._waiting.popleft()
                return
            except KeyboardInterrupt:  # it may come just as `get` returns; the task that waits is not lost with it
                stop.set()


class FunctionBackend:
    """A backend (see `protein.ports.Backend`) whose trials run in the thread that calls `serve`, one at a time."""

    def __init__(self, train: Train, direction: Direction) -> None:
        self._tasks = _Tasks()
        self._events: queue.SimpleQueue[TrialProgress | Finished] = queue.SimpleQueue()
        self._reports: dict[int, Report] = {}  # of the trials that have not ended, by id
        self._train, self._direction = train, direction

    def num_slots(self) -> int | None:
        return None

    def start(self, job: Job) -> None:
        refuse_link(job.directory)
        report = self._reports[job.trial.id] = Report(job, self._direction, self._events.put)
        self._tasks.add(functools.partial(self._run, job, report))

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
        self._tasks.close()

    def serve(self, stop: threading.Event) -> None:
        """Runs the trials that are started, until `close`. A KeyboardInterrupt ends the trial and sets `stop`."""
        self._tasks.serve(stop)

    def _run(self, job: Job, report: Report, stop: threading.Event) -> None:
        if stop.is_set():  # since the engine began to work on this trial
            report.end(TrialEnd.INTERRUPTED, TrialEnd.INTERRUPTED.text)
        ended = run_trial(self._train, self._direction, job, report)
        if ended.interrupted:
            stop.set()
        self._events.put(ended.finished)  # before it is forgotten: a KeyboardInterrupt may come between any two lines


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
        end, reason, score = _judge(train(copy.deepcopy(dict(job.trial.params)), report), direction)
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
        score = score_of(value, "the score")
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
            if not stat.S_ISDIR(status.st_mode) and path != directory / USAGE_FILE:  # which the sweep writes
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
        prepare_folder(directory)
        path = directory / _LOG_FILE
        write_file(path, traceback.format_exc())
        return (Artifact(kind="log", path=str(path.absolute())),)
    return ()


def default_start_method() -> StartMethod:
    """Returns "fork", except where system libraries do not survive it."""
    return "spawn" if sys.platform == "darwin" else "fork"


class FunctionProcesses(ProcessBackend):
    """A backend (see `protein.ports.Backend`) whose trials call the function in processes of their own."""

    def __init__(
        self,
        train: Train,
        direction: Direction,
        stop: threading.Event,
        *,
        start_method: StartMethod | None = None,
    ) -> None:
        """Starts nothing yet.

        Args:
            train: the function.
            direction: of its score.
            stop: set where the function was interrupted from the keyboard: the sweep is to end.
            start_method: as those of multiprocessing; None: the best one of this system.

        Raises:
            UsageError: the function cannot be sent to a process that begins anew; or a fork could not use CUDA.
        """
        self._train, self._direction, self._stop = train, direction, stop
        self.costs_are_reported = False  # by the function: the wall clock says nothing of its costs
        self._method = start_method or default_start_method()
        self._tasks = _Tasks()
        if self._method == "fork":
            _refuse_cuda()
            super().__init__(TrialServer(self._launch_fork), silence_seconds=None)
        else:
            _check_picklable(train)
            preload = tuple(name for name in _HEAVY if name in sys.modules)
            super().__init__(TrialServer(launch_python((__name__, *preload))), silence_seconds=None)

    def start(self, job: Job) -> None:
        refuse_link(job.directory)
        work: fork_server.Work = _Forked(id(self), job)
        if self._method == "spawn":
            preparation = spawn.get_preparation_data("trial")
            preparation.pop("authkey", None)  # it is secret, and must not be pickled
            work = _Spawned(preparation, pickle.dumps((self._train, self._direction)), job)
        self.start_process(FunctionRecord(self, job), work)

    def ended(self, ended: Ended) -> None:
        """Takes what a trial's end means for the sweep."""
        if ended.interrupted:
            self._stop.set()

    def serve(self, stop: threading.Event) -> None:
        """Forks the server of trials when that is needed, until `close`. A KeyboardInterrupt sets `stop`."""
        self._tasks.serve(stop)

    def close(self) -> None:
        super().close()
        self._server.close()
        _current.pop(id(self), None)
        self._tasks.close()

    def _launch_fork(self, theirs: socket.socket, ours: socket.socket) -> int:
        """Has the server forked by the thread in `serve`, as only there is the program sure to do nothing else."""
        answer: queue.SimpleQueue[int | BaseException] = queue.SimpleQueue()

        _current[id(self)] = (self._train, self._direction)

        begun = False

        def task(_: threading.Event) -> None:
            nonlocal begun
            if begun:  # a KeyboardInterrupt came before it was forgotten
                return
            begun = True
            try:
                answer.put(_fork_server(theirs, ours))
            except BaseException as error:
                answer.put(error)

        self._tasks.add(task)
        pid = answer.get()
        if isinstance(pid, BaseException):
            raise pid
        return pid


class ImportedFunction(FunctionProcesses):
    """The same, for a function that another machine imports by its name, as in "package.module:train"."""

    def __init__(self, name: str, direction: Direction) -> None:
        """Imports the function. Raises `UsageError` where it cannot be imported here."""
        try:
            train = _named(name)
        except Exception as error:  # whatever the user's module raises
            raise UsageError(
                f"{platform.node()} cannot import the function {name} ({type(error).__name__}: {error}): put its module"
                " where this machine's Python finds it, too"
            ) from error
        super().__init__(train, direction, threading.Event(), start_method="spawn")

    def poll(self, timeout_seconds: float) -> list[TrialProgress | Finished]:
        """Does as that of all backends. No exception goes to the sweep's machine: its text is in the outcome."""
        events = super().poll(timeout_seconds)
        return [dataclasses.replace(one, error=None) if isinstance(one, Finished) else one for one in events]


def name_of(train: Train) -> str:
    """Returns the name by which other machines import a function. Raises `UsageError` where it has none."""
    module, path = getattr(train, "__module__", None), getattr(train, "__qualname__", "")
    name = f"{module}:{path}"
    with contextlib.suppress(AttributeError, ImportError):
        if module not in (None, "__main__") and _named(name) is train:
            return name
    raise UsageError(
        f"workers on other machines import the function by its name, and {path or repr(train)[:80]} of {module} has"
        " none that they find: define it at the top level of a module, and import it from there"
    )


def _named(name: str) -> Train:
    module, _, path = name.partition(":")
    found: Any = functools.reduce(getattr, path.split("."), importlib.import_module(module))
    return cast(Train, found)


# The function of each backend of this program that forks, for its forks: a closure cannot be sent to them.
_current: dict[int, tuple[Train, Direction]] = {}


def _fork_server(theirs: socket.socket, ours: socket.socket) -> int:
    """Forks the server of trials from this program. Returns its process id."""
    sweep = os.getpid()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # it is closed, or its reader is gone
            stream.flush()
    # An interrupt in the fork, before it ignores them, would run on in a copy of the user's program.
    signal.pthread_sigmask(signal.SIG_BLOCK, fork_server.IGNORED)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # that there are threads: those of the sweep wait
            pid = os.fork()
        if pid == 0:
            _serve_in_fork(theirs, ours, sweep)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, fork_server.IGNORED)


def _serve_in_fork(theirs: socket.socket, ours: socket.socket, sweep: int) -> None:
    try:
        fork_server.ignore_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, fork_server.IGNORED)
        ours.close()
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        fork_server.serve(theirs, sweep)
    finally:
        os._exit(1)


class _Forked:
    """The work of a trial whose process has the function in its memory."""

    def __init__(self, key: int, job: Job) -> None:
        self._key, self._job = key, job

    def __call__(self, output: int) -> int:
        if "torch" in sys.modules:  # a fork has no OpenMP threads: a computation with several threads hangs in it
            sys.modules["torch"].set_num_threads(1)
        return _run_in_process(*_current[self._key], self._job, output)


class _Spawned:
    """The work of a trial whose process begins anew."""

    def __init__(self, preparation: dict[str, Any], function: bytes, job: Job) -> None:
        self._preparation, self._function, self._job = preparation, function, job

    def __call__(self, output: int) -> int:
        try:
            spawn.prepare(self._preparation)  # imports the program's main module under another name
            train, direction = pickle.loads(self._function)
        except Exception as error:  # no trial can run, and this one says nothing about its params
            _sender(output)(_unloadable(self._job, error))
            return 0
        if "torch" in sys.modules and self._job.resources.cores:
            sys.modules["torch"].set_num_threads(len(self._job.resources.cores))
        return _run_in_process(train, direction, self._job, output)


def _run_in_process(train: Train, direction: Direction, job: Job, output: int) -> int:
    """Calls the function for one trial and sends the sweep what it reports, and how it ends."""
    add = _sender(output)
    report = Report(job, direction, add)
    report.start_clock(add(None))  # it begins: what came before, such as imports, costs nothing
    signal.signal(signal.SIGTERM, lambda *_: report.end(TrialEnd.INTERRUPTED, TrialEnd.INTERRUPTED.text))
    # It goes on after a SIGSTOP. Python calls this before the function's next line.
    signal.signal(signal.SIGCONT, lambda *_: report.note_stop())
    # It is for this process alone: the function may end its own forks by that signal.
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    ended = run_trial(train, direction, job, report)
    error = ended.finished.error
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # an exception of the user's that cannot be sent: its text can
        sendable = RuntimeError(f"{type(error).__name__}: {error}")
        ended = dataclasses.replace(ended, finished=dataclasses.replace(ended.finished, error=sendable))
    add(ended)
    return 0


def _sender(output: int) -> Callable[[TrialProgress | Ended | None], float]:
    """Returns what sends the sweep an event, or that the function is called now (None), and returns when."""
    os.set_inheritable(output, False)
    turn = threading.RLock()  # a pipe mixes long messages of threads that report at once

    def add(event: TrialProgress | Ended | None) -> float:
        now = time.monotonic()
        data = pickle.dumps((now, event))
        data = fork_server.NUMBER.pack(len(data)) + data
        with turn:
            while data:
                data = data[os.write(output, data) :]
        return now

    return add


def _unloadable(job: Job, error: Exception) -> Ended:
    """Returns the end of a trial whose function cannot be loaded in a process that begins anew."""
    reason = " ".join(f"the function cannot be loaded in a new process ({type(error).__name__}: {error})".split())
    advice = 'put it at the top level of a module, and the sweep below if __name__ == "__main__"'
    outcome = Outcome(end=TrialEnd.MISTAKE, reason=reason, cost_seconds=0.0)
    return Ended(finished=Finished(trial=job.trial, outcome=outcome, error=UsageError(f"{reason}: {advice}")))


class FunctionRecord(Record):
    """What a trial's process has sent so far. Time in which it was stopped does not count towards a wall-clock cost."""

    trains_to_the_end = True

    def __init__(self, backend: FunctionProcesses, job: Job) -> None:
        super().__init__(job)
        self._backend = backend
        self._began: float | None = None  # when the function was called
        self._buffer = b""
        self._finished: Finished | None = None
        self._interrupted = self._reports_costs = False
        self._last_seconds = 0.0  # the last cost that is known
        self._told_at = 0.0  # since when
        self._ended_at = 0.0  # when the function had ended, by its own word

    def take(self, data: bytes, pipe: str) -> None:
        self._buffer += data
        head = fork_server.NUMBER.size
        while len(self._buffer) >= head:
            size = fork_server.NUMBER.unpack(self._buffer[:head])[0]
            if len(self._buffer) < head + size:
                break
            told_at, event = pickle.loads(self._buffer[head : head + size])
            self._buffer = self._buffer[head + size :]
            if event is None:
                self._began = told_at
            elif isinstance(event, Ended):
                self._ended_at, self._interrupted = told_at, event.interrupted
                self._finished = self._without_pauses(event.finished)
                self._backend.ended(event)
            else:
                self._take_progress(event, told_at)

    def _take_progress(self, event: TrialProgress, told_at: float) -> None:
        self._reports_costs |= event.cost_seconds is None
        self._backend.costs_are_reported |= self._reports_costs
        paused = self._paused_seconds(told_at)
        for point in event.measurements:
            seconds = max(point.elapsed_seconds - paused, 0.0)  # it may be stopped between its clock and its report
            self._last_seconds, self._told_at = seconds, told_at
            self.add(dataclasses.replace(point, elapsed_seconds=seconds) if paused else point)
        if event.cost_seconds is not None and not event.measurements:  # of a point that its curve leaves out
            self._last_seconds = self.told_seconds = max(event.cost_seconds - paused, 0.0)
            self._told_at = told_at

    def _paused_seconds(self, until: float) -> float:
        """Returns for how long it was stopped, if its cost is the wall clock."""
        if self._began is None or self._reports_costs:
            return 0.0
        return self.process.paused_seconds(self._began, until)

    def _without_pauses(self, finished: Finished) -> Finished:
        paused, outcome = self._paused_seconds(self._ended_at), finished.outcome
        if not paused:
            return finished
        cost = max(0.0, outcome.cost_seconds - paused)
        metrics = {**outcome.metrics, **({CONTINUABLE_SECONDS: cost} if CONTINUABLE_SECONDS in outcome.metrics else {})}
        return dataclasses.replace(finished, outcome=dataclasses.replace(outcome, cost_seconds=cost, metrics=metrics))

    def wall_cost(self, now: float) -> float | None:
        """Returns the seconds since the function was called; None where it, or an earlier one, reports its own."""
        if self._backend.costs_are_reported or self._began is None:
            return None
        now = min(now, self.process.ended_at)
        return now - self._began - self._paused_seconds(now)

    def outcome(self) -> Outcome:
        """Returns what the function has made of the trial, unless the sweep has ended it, or its process has died."""
        if self._finished is not None:
            own = self._finished.outcome
            if self._is_undone():
                return self._ended(own.cost_seconds, own.steps)
            if own.end is not TrialEnd.INTERRUPTED or self._interrupted or self._finished.error is not None:
                return own
            cost, steps = own.cost_seconds, own.steps
        else:
            ended_at = self.process.ended_at
            cost = 0.0 if self._began is None else ended_at - self._began - self._paused_seconds(ended_at)
            if self.last is not None:
                if self._reports_costs:  # since then, the clock is what is left to go by
                    paused = self.process.paused_seconds(self._told_at, ended_at)
                    cost = self._last_seconds + max(ended_at - self._told_at - paused, 0.0)
                cost = max(cost, self._last_seconds)
            steps = 0 if self.last is None else self.last.steps
        return self._ended(cost, steps)

    def _is_undone(self) -> bool:
        """Whether the sweep's own signal may be why the function failed.

        A program that the function runs was told to end, too. The function then raises, or has no score or a wrong one.
        """
        ends = (TrialEnd.USER_ERROR, TrialEnd.MISTAKE, TrialEnd.DIVERGED)
        if self._finished is None or self._finished.outcome.end not in ends:
            return False
        return self._ended_at >= self.process.requested_at

    def _ended(self, cost_seconds: float, steps: int) -> Outcome:
        """Returns the outcome of a trial that has not ended by itself."""
        end, reason = self.process.requested_end or self._end_from_outside()
        score = self.last_score if end.state is TrialState.PRUNED else None
        return Outcome(end=end, reason=reason, score=score, cost_seconds=cost_seconds, steps=steps)

    def _end_from_outside(self) -> tuple[TrialEnd, str]:
        """Returns how a process ended that the sweep has not ended, and that has sent no end of its own."""
        preempted = self.process.preempted(interrupted=self._finished is not None)
        if preempted is not None:
            return TrialEnd.INTERRUPTED, preempted
        code = self.process.exit_code
        return self.process.killed() or (
            TrialEnd.CRASHED,
            f"its process exited with code {code} before the function ended",
        )

    def error(self) -> BaseException | None:
        return None if self._finished is None or self._is_undone() else self._finished.error

    def artifacts(self, outcome: Outcome) -> tuple[Artifact, ...]:
        return () if self._finished is None else self._finished.artifacts


def _refuse_cuda() -> None:
    """Raises `UsageError` where a fork could not use CUDA, because this process has begun to."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise UsageError(
            "CUDA is in use in this program already, and forks of it cannot use it: touch CUDA only in the function,"
            ' or use start_method="spawn"'
        )


def _check_picklable(train: Train) -> None:
    """Raises `UsageError` for a function that another process cannot find by its name."""
    if getattr(train, "__module__", "") == "__main__" and not hasattr(sys.modules["__main__"], "__file__"):
        raise UsageError(
            "with several workers that begin anew, the function must be in a module of its own: they cannot read it"
            " from a notebook or an interactive session"
        )
    try:
        pickle.dumps(train)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(
            f"with several workers that begin anew, the function must be at the top level of a module: {error}"
        ) from error
