"""Runs trials of the user's own training function side by side, each in a process of its own.

The processes are forks of the program, so that the function may be a closure over anything that the program holds. They
are forked from a server (`serving.py`), which is itself forked in the thread that calls `serve`. What a function
changes in its process is not seen by other trials. Threads of OpenMP do not survive a fork, so torch computes with one
thread there.

Where a process cannot be forked safely (macOS), or CUDA is in use already, processes begin anew instead
(`start_method="spawn"`). Then the function must be found by its name in a module.

The sweep gets the events of a trial through a pipe. What the function prints goes where the program prints.
"""

import collections
import contextlib
import dataclasses
import os
import pickle
import queue
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable
from multiprocessing import spawn
from typing import Any, Literal

from protein.errors import UsageError
from protein.ports import Finished, Job, TrialProgress
from protein.run import child, folders, serving
from protein.run.function import Ended, Report, Train, run_trial
from protein.run.processes import ProcessBackend, TrialOfProcess
from protein.run.trial_server import TrialServer, launch_python
from protein.trainer.events import killed_by
from protein.types import Artifact, Direction, Measurement, Outcome, TrialEnd, TrialState

StartMethod = Literal["fork", "spawn"]
_HEAVY = ("numpy", "torch")  # imported once for all spawned trials, if the program has imported them


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
        self._tasks: collections.deque[Callable[[], None]] = collections.deque()
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()  # wakes `serve`: a task waits, or it is closed
        self._closed = False
        if self._method == "fork":
            _refuse_cuda()
            super().__init__(TrialServer(self._launch_fork), silence_seconds=None)
        else:
            _check_picklable(train)
            preload = tuple(name for name in _HEAVY if name in sys.modules)
            super().__init__(TrialServer(launch_python((__name__, *preload))), silence_seconds=None)

    def start(self, job: Job) -> None:
        folders.refuse_link(job.directory)
        work: child.Work = _Forked(id(self), job)
        if self._method == "spawn":
            preparation = spawn.get_preparation_data("trial")
            preparation.pop("authkey", None)  # it is secret, and must not be pickled
            work = _Spawned(preparation, pickle.dumps((self._train, self._direction)), job)
        self.start_process(job, FunctionRecord(self, job), work, log=None)

    def ended(self, ended: Ended) -> None:
        """Takes what a trial's end means for the sweep."""
        if ended.interrupted:
            self._stop.set()

    def serve(self, stop: threading.Event) -> None:
        """Forks the server of trials when that is needed, until `close`. A KeyboardInterrupt sets `stop`."""
        while True:
            try:
                while self._tasks or not self._closed:
                    if not self._tasks:
                        self._news.get()
                    while self._tasks:
                        self._tasks[0]()
                        self._tasks.popleft()
                return
            except KeyboardInterrupt:  # it may come just as `get` returns; the task that waits is not lost with it
                stop.set()

    def close(self) -> None:
        super().close()
        self._server.close()
        _current.pop(id(self), None)
        self._closed = True
        self._news.put(None)

    def _launch_fork(self, theirs: socket.socket, ours: socket.socket) -> int:
        """Has the server forked by the thread in `serve`, as only there is the program sure to do nothing else."""
        answer: queue.SimpleQueue[int | BaseException] = queue.SimpleQueue()

        _current[id(self)] = (self._train, self._direction)

        begun = False

        def task() -> None:
            nonlocal begun
            if begun:  # a KeyboardInterrupt came before it was forgotten
                return
            begun = True
            try:
                answer.put(_fork(theirs, ours))
            except BaseException as error:
                answer.put(error)

        self._tasks.append(task)
        self._news.put(None)
        pid = answer.get()
        if isinstance(pid, BaseException):
            raise pid
        return pid


# The function of each backend of this program that forks, for its forks: a closure cannot be sent to them.
_current: dict[int, tuple[Train, Direction]] = {}


def _fork(theirs: socket.socket, ours: socket.socket) -> int:
    """Forks the server of trials from this program. Returns its process id."""
    sweep = os.getpid()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # it is closed, or its reader is gone
            stream.flush()
    # An interrupt in the fork, before it ignores them, would run on in a copy of the user's program.
    signal.pthread_sigmask(signal.SIG_BLOCK, serving.IGNORED)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # that there are threads: those of the sweep wait
            pid = os.fork()
        if pid == 0:
            _serve_in_fork(theirs, ours, sweep)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, serving.IGNORED)


def _serve_in_fork(theirs: socket.socket, ours: socket.socket, sweep: int) -> None:
    try:
        serving.ignore_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, serving.IGNORED)
        ours.close()
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        serving.serve(theirs, sweep)
    finally:
        os._exit(1)


class _Forked:
    """The work of a trial whose process has the function in its memory."""

    def __init__(self, key: int, job: Job) -> None:
        self._key, self._job = key, job

    def __call__(self, output: int) -> int:
        if "torch" in sys.modules:  # a fork has no OpenMP threads: a computation with several threads hangs in it
            sys.modules["torch"].set_num_threads(1)
        return _run(*_current[self._key], self._job, output)


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
        return _run(train, direction, self._job, output)


def _run(train: Train, direction: Direction, job: Job, output: int) -> int:
    """Calls the function for one trial and sends the sweep what it reports, and how it ends."""
    add = _sender(output)
    report = Report(job, direction, add)
    add(None)  # it begins: what came before, such as imports, costs nothing
    signal.signal(signal.SIGTERM, lambda *_: report.end(TrialEnd.INTERRUPTED, TrialEnd.INTERRUPTED.text))
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


def _sender(output: int) -> Callable[[TrialProgress | Ended | None], None]:
    """Returns what sends the sweep an event, or that the function is called now (None)."""
    os.set_inheritable(output, False)
    turn = threading.RLock()  # a pipe mixes long messages of threads that report at once

    def add(event: TrialProgress | Ended | None) -> None:
        data = pickle.dumps((time.monotonic(), event))
        data = serving.NUMBER.pack(len(data)) + data
        with turn:
            while data:
                data = data[os.write(output, data) :]

    return add


def _unloadable(job: Job, error: Exception) -> Ended:
    """Returns the end of a trial whose function cannot be loaded in a process that begins anew."""
    reason = " ".join(f"the function cannot be loaded in a new process ({type(error).__name__}: {error})".split())
    advice = 'put it at the top level of a module, and the sweep below if __name__ == "__main__"'
    outcome = Outcome(end=TrialEnd.MISTAKE, reason=reason, cost_seconds=0.0)
    return Ended(finished=Finished(trial=job.trial, outcome=outcome, error=UsageError(f"{reason}: {advice}")))


class FunctionRecord:
    """What a trial's process has sent so far. See `protein.run.processes.Record`."""

    def __init__(self, backend: FunctionProcesses, job: Job) -> None:
        self._backend, self._job = backend, job
        self._began: float | None = None  # when the function was called
        self._buffer = b""
        self._fresh: list[Measurement] = []
        self._finished: Finished | None = None
        self._interrupted = self._reports_costs = False
        self.last: Measurement | None = None
        self.last_score: float | None = None
        self.told_seconds: float | None = None
        self._last_seconds = 0.0  # the last cost that is known
        self._told_at = 0.0  # since when
        self._ended_at = 0.0  # when the function had ended, by its own word

    def take(self, data: bytes) -> None:
        self._buffer += data
        head = serving.NUMBER.size
        while len(self._buffer) >= head:
            size = serving.NUMBER.unpack(self._buffer[:head])[0]
            if len(self._buffer) < head + size:
                break
            told_at, event = pickle.loads(self._buffer[head : head + size])
            self._buffer = self._buffer[head + size :]
            if event is None:
                self._began = told_at
            elif isinstance(event, Ended):
                self._finished, self._interrupted = event.finished, event.interrupted
                self._ended_at = told_at
                self._backend.ended(event)
            else:
                self._reports_costs |= event.cost_seconds is None
                self._backend.costs_are_reported |= self._reports_costs
                for point in event.measurements:
                    self.last, self._last_seconds, self._told_at = point, point.elapsed_seconds, told_at
                    self.last_score = self.last_score if point.score is None else point.score
                    self._fresh.append(point)
                if event.cost_seconds is not None and not event.measurements:  # of a point that its curve leaves out
                    self._last_seconds, self._told_at = event.cost_seconds, told_at
                    self.told_seconds = event.cost_seconds

    def take_measurements(self) -> tuple[Measurement, ...]:
        points, self._fresh = tuple(self._fresh), []
        return points

    def wall_cost(self, now: float) -> float | None:
        """Returns the seconds since the function was called; None where it, or an earlier one, reports its own."""
        return None if self._backend.costs_are_reported or self._began is None else now - self._began

    def outcome(self, trial: TrialOfProcess) -> Outcome:
        """Returns what the function has made of the trial, unless the sweep has ended it, or its process has died."""
        if self._finished is not None:
            own = self._finished.outcome
            if self._is_undone(trial):
                return self._ended(trial, own.cost_seconds, own.steps)
            if own.end is not TrialEnd.INTERRUPTED or self._interrupted or self._finished.error is not None:
                return own
            cost, steps = own.cost_seconds, own.steps
        else:
            cost = 0.0 if self._began is None else trial.ended_at - self._began
            if self.last is not None:
                if self._reports_costs:  # since then, the clock is what is left to go by
                    cost = self._last_seconds + max(trial.ended_at - self._told_at, 0.0)
                cost = max(cost, self._last_seconds)
            steps = 0 if self.last is None else self.last.steps
        return self._ended(trial, cost, steps)

    def _is_undone(self, trial: TrialOfProcess) -> bool:
        """Whether the sweep's own signal may be why the function failed.

        A program that the function runs was told to end, too. The function then raises, or has no score or a wrong one.
        """
        ends = (TrialEnd.USER_ERROR, TrialEnd.MISTAKE, TrialEnd.DIVERGED)
        return (
            self._finished is not None and self._finished.outcome.end in ends and self._ended_at >= trial.requested_at
        )

    def _ended(self, trial: TrialOfProcess, cost_seconds: float, steps: int) -> Outcome:
        """Returns the outcome of a trial that has not ended by itself."""
        end, reason = trial.requested_end or self._end_from_outside(trial)
        score = self.last_score if end.state is TrialState.PRUNED else None
        return Outcome(end=end, reason=reason, score=score, cost_seconds=cost_seconds, steps=steps)

    def _end_from_outside(self, trial: TrialOfProcess) -> tuple[TrialEnd, str]:
        """Returns how a process ended that the sweep has not ended, and that has sent no end of its own."""
        preempted = trial.preempted(interrupted=self._finished is not None)
        if preempted is not None:
            return TrialEnd.INTERRUPTED, preempted
        code = trial.process.exit_code
        assert code is not None
        return TrialEnd.CRASHED, killed_by(code) or f"its process exited with code {code} before the function ended"

    def error(self, trial: TrialOfProcess) -> BaseException | None:
        return None if self._finished is None or self._is_undone(trial) else self._finished.error

    def artifacts(self) -> tuple[Artifact, ...]:
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
