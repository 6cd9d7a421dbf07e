"""One watched process for each trial of this machine: what it may do, and what ends it.

A trial cannot harm the sweep. It has its own process group and dies with the sweep. It is killed when it exceeds its
wall-clock limit or a memory limit, or after a long silence. A crash, a hang, garbage in the output and lack of memory
each end that trial alone: the reason is in its outcome.

What says nothing about a trial's params ends it as interrupted, with a reason that begins with "preempted: ": its
server has died, a signal from outside has ended it, or somebody has stopped it (SIGSTOP) for long. SIGKILL is such a
signal, too, unless the kernel says that it has killed a process for lack of memory meanwhile. Time in which a
trial was stopped counts towards no limit, and not towards a cost by the wall clock. Time in which the sweep itself did
not look counts towards its cost alone.

Our trainer (`protein.run.trainer`), a function (`protein.run.function`) and a command (`protein.run.command`) differ in
what is started, and in the `Record` that reads what it says. The processes are forked from a server
(`protein.run.fork_server`), which is started when it is needed, and again when it has died.
"""

import atexit
import contextlib
import dataclasses
import functools
import itertools
import math
import os
import pickle
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

import protein
from protein.ports import Finished, Job, TrialProgress
from protein.run import fork_server
from protein.run.machine import GpuMemory, environment_of, family, oom_kills, over_limit, used_gpu_bytes
from protein.run.speed import Event
from protein.run.usage import Curve, Meter
from protein.trainer.events import killed_by
from protein.types import PREEMPTED, Artifact, Measurement, Outcome, Trial, TrialEnd, max_trial_seconds

GRACE_SECONDS = 10.0  # between SIGTERM and SIGKILL: time to write a checkpoint
SILENCE_SECONDS = 600.0  # a process that prints nothing for so long hangs; compiling a large model may take minutes
CHECK_SECONDS = 1.0  # between two looks at a trial's memory and state
AWAY_SECONDS = 30.0  # between two polls: the sweep was stopped, or the machine slept
WAKE_SECONDS = 1.0  # for word of the server, until it is woken in case somebody has stopped it
END_SECONDS = 10.0  # for the server's own end, when this process ends
LEAST_SECONDS, LEAST_SHARE = 1.0, 0.01  # by which a cost has grown when it is told again
READ_BYTES = 1 << 16
MAX_READS = 16  # of a pipe in one poll: a trial that prints without end must not hold up the others
FREE = "; free some space"  # the remedy that a reason of `TrialEnd.DISK` ends with
_TRIES = 2  # of a server to start a trial
_OUTSIDE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # who sends these ends more than one trial
_OOM = "killed by SIGKILL: the machine or its container was out of memory"
_NO_MEMORY = re.compile(r"MemoryError|std::bad_alloc|out of memory", re.IGNORECASE)
_NO_SPACE = re.compile(r"No space left on device|Errno 28|Disk quota exceeded")

# Starts a server, which gets the first end of the socket and must not keep the second. Returns its process id.
Launch = Callable[[socket.socket, socket.socket], int]


class Record:
    """What a trial has reported so far, made from what its process writes. Each kind of trial has its own.

    Attributes:
        pipes: names of the pipes that the process writes to.
        trains_from_the_start: whether training begins with the process, and not with its first sign.
        trains_to_the_end: whether training lasts as long as the process, and not until the last point of its curve.
        signal_codes: exit codes that say, as those of shells do, which signal has ended what the process ran: 128 more.
        process: of the trial, once it was started.
        last: the last point of its curve.
        last_score: of its curve.
        told_seconds: the last cost that it reported beside its curve.
    """

    pipes: tuple[str, ...] = ("output",)
    trains_from_the_start = trains_to_the_end = False
    signal_codes: frozenset[int] = frozenset()

    def __init__(self, job: Job) -> None:
        self.job = job
        self.process: TrialProcess
        self.last: Measurement | None = None
        self.last_score: float | None = None
        self.told_seconds: float | None = None
        self._fresh: list[Measurement] = []

    def take(self, data: bytes, pipe: str) -> None:
        """Takes the next piece of what the process has written to a pipe."""
        raise NotImplementedError

    def look(self) -> bool:
        """Takes what the process reports in other ways. Returns whether there was anything."""
        return False

    def close(self) -> None:
        """Takes what is left, when the process has ended and its pipes are empty."""

    def add(self, point: Measurement) -> None:
        """Takes a point of the learning curve."""
        self.last = point
        self.last_score = self.last_score if point.score is None else point.score
        self._fresh.append(point)

    def take_measurements(self) -> tuple[Measurement, ...]:
        """Returns the curve points that came since the last call."""
        points, self._fresh = tuple(self._fresh), []
        return points

    def wall_cost(self, now: float) -> float | None:
        """Returns what the trial has cost by now where that is its wall clock; None: it reports its cost itself."""
        return None

    def seconds_to_cap(self, now: float) -> float | None:
        """Returns what the trial may still cost; None: it has no cap, or keeps to it by itself."""
        cost = self.wall_cost(now)
        cap = None if cost is None else max_trial_seconds(self.job.config)
        return None if cost is None or cap is None else cap - cost

    def in_reference(self, event: Event) -> Event:
        """Returns an event with its costs in reference seconds (`protein.run.speed`)."""
        return event

    def outcome(self) -> Outcome:
        """Returns how the trial has ended, when its process has."""
        raise NotImplementedError

    def artifacts(self, outcome: Outcome) -> tuple[Artifact, ...]:
        """Returns the files of the trial."""
        return ()

    def error(self) -> BaseException | None:
        """Returns what ends the whole sweep (`Finished.error`), if anything does."""
        return None


class TrialProcess:
    """One running trial: its process, its limits, and what it has reported.

    Attributes:
        pid: of the process, which is the leader of its own group.
        server_pid: the process id of its server.
        status: descriptor that becomes readable when the server tells of it.
        began: when it was started, on the monotonic clock, as all moments here.
        exit_code: negative: the signal that killed it; None: it is not known to have ended.
        ended_at: when it ended, however late the sweep looks; now where that is not known.
        is_lost: whether the server has died before it could tell how the trial ended. The trial is dead then, too.
        from_outside: whether the server was told to end, too, while the trial ran.
        requested_end: how and why the sweep ends it; None: the sweep has not ended it.
    """

    def __init__(self, record: Record, pipes: dict[int, str], status: int, server_pid: int) -> None:
        """Waits until the server has started the process. It takes the descriptors over.

        Args:
            record: takes what it reports.
            pipes: the sweep's ends of its pipes, and their names.
            status: see above.
            server_pid: the process id of the server.

        Raises:
            OSError: the system has no process left.
            EOFError: the server has died.
        """
        self.job, self.record, self.pipes, self.status = record.job, record, pipes, status
        self.server_pid = server_pid
        self.pid, self.began = self._answer()
        for descriptor in (*pipes, status):
            os.set_blocking(descriptor, False)
        self.exit_code: int | None = None
        self.is_lost = self.from_outside = False
        self.requested_end: tuple[TrialEnd, str] | None = None
        self.requested_at = math.inf
        self.kill_at: float | None = None
        self.told_cost = ToldCost()
        self._last_sign = self._checked = self.began
        self._ended_at: float | None = None
        self._cpu_seconds = 0.0  # of all its processes, when it has ended
        self._closed: dict[int, float] = {}  # when its pipes were closed
        self._pauses: list[tuple[float, float]] = []  # in which it was stopped; the last one may go on
        self._unwatched_seconds = 0.0  # in which the sweep did not look and it was not stopped
        # As of a second ago at least, and of the last look: at its end, the last one may be younger than its death.
        self._oom_kills = self._next_oom_kills = oom_kills()
        try:
            self.usage = Meter(self.pid, self.began if record.trains_from_the_start else None)
            self._curve = Curve(self.job, self.pid, self.began)
            record.process = self
            self.read_files()  # before it writes: a run that goes on finds what it had reported before
        except BaseException:  # it runs by now, and nobody would watch it
            self.send(signal.SIGKILL)
            raise

    def _answer(self) -> tuple[int, float]:
        with selectors.DefaultSelector() as selector:
            selector.register(self.status, selectors.EVENT_READ)
            while not selector.select(WAKE_SECONDS):
                self.wake_server()
        data = os.read(self.status, fork_server.ANSWER.size)
        if not data:
            raise EOFError
        pid, began = fork_server.ANSWER.unpack(data)
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        return pid, began

    @property
    def ended(self) -> bool:
        return self.is_lost or self.exit_code is not None

    @property
    def ended_at(self) -> float:
        return time.monotonic() if self._ended_at is None else self._ended_at

    def paused_seconds(self, since: float, until: float) -> float:
        """Returns for how long it was stopped between two moments."""
        return sum(max(0.0, min(end, until) - max(begin, since)) for begin, end in self._pauses)

    def run_seconds(self, now: float) -> float:
        """Returns the wall clock since the process was started, without the time in which it could do nothing."""
        return now - self.began - self.paused_seconds(self.began, now) - self._unwatched_seconds

    def look(self) -> None:
        """Reads what the server tells."""
        while not self.ended:
            try:
                data = os.read(self.status, fork_server.NEWS.size)
            except BlockingIOError:
                return
            if len(data) < fork_server.NEWS.size:
                self.is_lost = True
                self.send(signal.SIGKILL)  # the trial's children, which the kernel has not killed with it
                return
            what, code, moment, cpu_seconds, from_outside = fork_server.NEWS.unpack(data)
            if self._is_stopped and what != fork_server.STOPPED:
                self._pauses[-1] = self._pauses[-1][0], moment
            elif what == fork_server.STOPPED and not self._is_stopped:
                self._pauses.append((moment, math.inf))
            if what == fork_server.ENDED:
                self.exit_code, self._ended_at, self.from_outside = code, moment, from_outside
                self._cpu_seconds = cpu_seconds

    @property
    def _is_stopped(self) -> bool:
        return bool(self._pauses) and self._pauses[-1][1] == math.inf

    def read(self, pipe: int) -> bool:
        """Reads what a pipe holds, up to `MAX_READS` times. Returns False once it is closed."""
        for _ in range(MAX_READS):
            if pipe in self._closed:
                break
            try:
                chunk = os.read(pipe, READ_BYTES)
            except BlockingIOError:
                break
            if not chunk:
                self._closed[pipe] = time.monotonic()
                break
            self._last_sign = time.monotonic()
            known = self.record.last
            self.record.take(chunk, self.pipes[pipe])
            if self.record.last is not known or not self.usage.marked:
                self.usage.mark()
        return pipe not in self._closed

    def read_all(self) -> None:
        """Takes all that the trial has reported until now."""
        self.look()
        for pipe in self.pipes:
            self.read(pipe)
        self.read_files()
        if self.ended:
            self.record.close()

    def timings(self) -> dict[str, float]:
        """Returns what it has used of the machine while it trained, when it has ended."""
        if self._ended_at is not None and (self.record.trains_to_the_end or self.usage.missed):
            self.usage.end(self._ended_at, self._cpu_seconds)
        return self.usage.timings()

    def read_files(self) -> None:
        """Takes what the trial has reported in other ways than by its pipes."""
        if self.record.look():
            self._last_sign = time.monotonic()

    def excuse(self, since: float, until: float) -> None:
        """Counts a time in which the sweep did not look towards no limit."""
        since = max(since, self.began)
        self._unwatched_seconds += max(0.0, until - since - self.paused_seconds(since, until))
        self._last_sign = until

    def enforce(self, silence_seconds: float | None, silence_remedy: str, gpu_memory: GpuMemory) -> None:
        """Ends the process where it exceeds a limit, and kills it where it was told to end and does not."""
        now, job = time.monotonic(), self.job
        if any(now - closed_at > WAKE_SECONDS for closed_at in self._closed.values()):
            self.wake_server()
        if self.kill_at is not None:
            if now >= self.kill_at:
                self.send(signal.SIGKILL)
            return
        if now - self._checked >= CHECK_SECONDS:
            self._checked = now
            self._oom_kills, self._next_oom_kills = self._next_oom_kills, oom_kills()
            if self.record.trains_to_the_end:
                self.usage.mark()
            self._curve.look(gpu_memory)
            if (reason := over_limit(job, lambda: family(self.pid), gpu_memory)) is not None:
                self.terminate(TrialEnd.OUT_OF_MEMORY, reason)
                return
        stopped_seconds = now - self._pauses[-1][0] if self._is_stopped else 0.0
        silent_seconds = now - self._last_sign - self.paused_seconds(self._last_sign, now)
        left = self.record.seconds_to_cap(now)
        if stopped_seconds > (silence_seconds or SILENCE_SECONDS):
            why = f"{PREEMPTED}it was stopped (SIGSTOP) for {stopped_seconds:.0f} s"
            self.terminate(TrialEnd.INTERRUPTED, why)
        elif left is not None and left <= 0:
            self.terminate(job.at_limit, job.at_limit.text)
        elif job.max_seconds is not None and self.run_seconds(now) > job.max_seconds:
            reason = f"killed after {job.max_seconds:.0f} s, its limit with start-up and evaluation"
            self.terminate(TrialEnd.HUNG, reason)
        elif silence_seconds is not None and silent_seconds > silence_seconds:
            reason = f"killed after {silence_seconds:.0f} s without a sign of life{silence_remedy}"
            self.terminate(TrialEnd.HUNG, reason)

    def terminate(self, end: TrialEnd, reason: str) -> None:
        """Asks the process to end; it is killed when the time of grace is over. One that has ended keeps its end."""
        self.read_all()  # what it said before counts
        if self.ended or self._is_zombie():
            return
        self.requested_end, self.requested_at = (end, reason), time.monotonic()
        self.kill_at = self.requested_at + GRACE_SECONDS
        self.send(signal.SIGTERM)
        if self._is_stopped:
            self.send(signal.SIGCONT)  # so that it ends in order, too

    def _is_zombie(self) -> bool:
        """Whether it has ended, and the server has not told yet."""
        with contextlib.suppress(psutil.Error):
            return bool(psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE)
        return False

    def send(self, number: signal.Signals) -> None:
        """Signals the trial's process group, or the process alone while it has not made its own group yet."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            if not self.ended:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, number)

    def wait(self, seconds: float) -> None:
        """Waits until it has ended, or the time is over."""
        until = time.monotonic() + seconds
        while not self.ended and time.monotonic() < until:
            with selectors.DefaultSelector() as selector:
                selector.register(self.status, selectors.EVENT_READ)
                if not selector.select(WAKE_SECONDS):
                    self.wake_server()
            self.look()

    def wake_server(self) -> None:
        """Lets a server that somebody has stopped go on: it has to tell how the trial ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.server_pid, signal.SIGCONT)

    def preempted(self, *, interrupted: bool) -> str | None:
        """Returns why an end that the sweep did not ask for says nothing about the trial's params; None: it may.

        Args:
            interrupted: whether the trial has said that a signal has ended it.
        """
        if self.is_lost:
            return f"{PREEMPTED}the server of trials died"
        number = self.ended_by
        if number in _OUTSIDE or (number == signal.SIGKILL and self._lacked_memory is False):
            return f"{PREEMPTED}{signal.Signals(number).name} from outside ended it"
        return f"{PREEMPTED}a signal from outside ended it" if interrupted else None

    def killed(self) -> tuple[TrialEnd, str] | None:
        """Returns the end of a trial that a signal has ended, and the reason; None: it has ended by itself."""
        if not self.ended_by:
            return None
        if self.ended_by == signal.SIGKILL and self._lacked_memory:
            return TrialEnd.OUT_OF_MEMORY, _OOM
        return TrialEnd.CRASHED, killed_by(-self.ended_by)

    def after_result(self) -> str:
        """Returns in words how it ended after its result, which counts all the same; "": as it should."""
        if self.exit_code == 0:
            return ""
        why = "the server of trials died" if self.is_lost else f"exited with code {self.exit_code}"
        if self.requested_end is not None:
            why = self.requested_end[1]
        elif self.ended_by:
            why = killed_by(self.exit_code or 0)
        return f"after its result: {why}"

    @property
    def ended_by(self) -> int:
        """The signal that has ended it, or what it ran; 0: none has, or that is not known."""
        code = self.exit_code or 0
        return code - 128 if code in self.record.signal_codes else max(-code, 0)

    @property
    def _lacked_memory(self) -> bool | None:
        """Whether the kernel has killed a process for lack of memory since the sweep last looked; None: not known."""
        now = oom_kills()
        return None if now is None or self._oom_kills is None else now > self._oom_kills

    def close(self) -> None:
        for descriptor in (*self.pipes, self.status):
            os.close(descriptor)


class ProcessBackend:
    """The common part of the backends whose trials are processes. See `protein.ports.Backend`."""

    silence_remedy = ""  # what a trial's reason says of its silence

    def __init__(
        self,
        trial_server: "TrialServer",
        *,
        silence_seconds: float | None = SILENCE_SECONDS,
        gpu_memory: GpuMemory = used_gpu_bytes,
    ) -> None:
        """Starts nothing yet.

        Args:
            trial_server: starts the processes.
            silence_seconds: a trial that writes nothing for so long is killed; None: none is.
            gpu_memory: measures the GPU memory that processes use together.
        """
        self._server = trial_server
        self._silence_seconds = silence_seconds
        self._selector = selectors.DefaultSelector()
        self._running: dict[int, TrialProcess] = {}
        self._gpu_memory = gpu_memory
        self._looked = time.monotonic()  # when the last poll ended

    def start(self, job: Job) -> None:
        """Starts a trial. See `protein.ports.Backend`."""
        raise NotImplementedError

    def start_process(
        self,
        record: Record,
        work: fork_server.Work | list[str],
        *,
        environment: dict[str, str] | None = None,
        directory: str | None = None,
        log: Path | None = None,
    ) -> None:
        """Starts a trial.

        Args:
            record: takes what it reports.
            work: what it does, or the words of its command.
            environment: its variables; None: those of the sweep.
            directory: in which it works; None: that of the sweep.
            log: the file that its stderr goes to; None: it has that of the sweep, or it goes to a pipe.

        Raises:
            OSError: no process can be started.
        """
        job = record.job
        environment = dict(os.environ) if environment is None else environment
        start = fork_server.Start(
            work=work if isinstance(work, list) else pickle.dumps(work),
            environment={**environment, **environment_of(job.resources, environment)},
            directory=directory or str(Path.cwd()),
            # As plain texts, which alone `marshal` takes. Python itself passes over entries that are none.
            path=[str(entry) if entry else str(Path.cwd()) for entry in sys.path if isinstance(entry, str)],
            cores=list(job.resources.cores),
            log=None if log is None else str(log.absolute()),
        )
        trial = self._running[job.trial.id] = self._server.start(start, record)
        for pipe in trial.pipes:
            self._selector.register(pipe, selectors.EVENT_READ, trial)
        self._selector.register(trial.status, selectors.EVENT_READ, trial)

    def num_slots(self) -> int | None:
        return None

    def poll(self, timeout_seconds: float) -> list[TrialProgress | Finished]:
        ready = self._selector.select(self._until_next(timeout_seconds))
        now, since = time.monotonic(), self._looked + timeout_seconds
        if now - since > AWAY_SECONDS:  # this process was stopped, or the machine: it may have kept trials waiting
            for trial in self._running.values():
                trial.excuse(since, now)
        for key, _ in ready:
            trial = key.data
            if key.fd == trial.status:
                trial.look()
            elif not trial.read(key.fd):
                self._selector.unregister(key.fd)
        events: list[TrialProgress | Finished] = []
        for trial in list(self._running.values()):
            record = trial.record
            if trial.ended:
                trial.read_all()
            else:
                trial.read_files()
            points, cost = record.take_measurements(), record.wall_cost(time.monotonic())
            cost = trial.told_cost.news(record.told_seconds if cost is None else cost)
            if points or cost is not None:
                progress = TrialProgress(trial=trial.job.trial, measurements=points, cost_seconds=cost)
                events.append(record.in_reference(progress))
            if trial.ended:
                events.append(self._finish(trial))
            else:
                trial.enforce(self._silence_seconds, self.silence_remedy, self._gpu_memory)
        self._looked = time.monotonic()
        return events

    def stop(self, trial: Trial, end: TrialEnd, reason: str) -> None:
        running = self._running.get(trial.id)
        if running is not None and running.requested_end is None:
            running.terminate(end, reason)

    def close(self) -> None:
        for trial in list(self._running.values()):
            trial.send(signal.SIGKILL)
        until = time.monotonic() + GRACE_SECONDS
        for trial in list(self._running.values()):
            trial.wait(until - time.monotonic())
            trial.record.close()
            self._forget(trial)
        self._selector.close()

    def _until_next(self, timeout_seconds: float) -> float:
        """Returns how long to wait, so that a trial that costs its wall clock is ended at its cap."""
        now = time.monotonic()
        running = [trial.record for trial in self._running.values() if trial.requested_end is None]
        left = [seconds for record in running if (seconds := record.seconds_to_cap(now)) is not None]
        return max(0.0, min([timeout_seconds, *left]))

    def _finish(self, trial: TrialProcess) -> Finished:
        record = trial.record
        outcome = record.outcome()
        outcome = dataclasses.replace(outcome, timings={**trial.timings(), **outcome.timings})
        finished = Finished(
            trial=trial.job.trial, outcome=outcome, artifacts=record.artifacts(outcome), error=record.error()
        )
        self._forget(trial)
        return record.in_reference(finished)

    def _forget(self, trial: TrialProcess) -> None:
        for descriptor in (*trial.pipes, trial.status):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(descriptor)
        trial.close()
        del self._running[trial.job.trial.id]


class TrialServer:
    """The sweep's side of a server of trials, which runs from the first trial on. Any thread may use it."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._pid = 0
        self._owner = 0  # the process that has started it

    def start(self, start: fork_server.Start, record: Record) -> TrialProcess:
        """Starts a trial; waits until the server has imported what it preloads. `record` takes what it reports.

        Raises:
            OSError: the server dies whenever it is started, or the system has no process left.
        """
        with self._lock:
            for _ in range(_TRIES):
                control = self._running()
                ends = [os.pipe() for _ in range(1 + len(record.pipes))]
                (status, *pipes), theirs = ([end[side] for end in ends] for side in (0, 1))
                try:
                    try:
                        with contextlib.suppress(OSError):  # it has died: there is no answer
                            fork_server.send(control, start, theirs)
                    finally:
                        for end in theirs:
                            os.close(end)
                    return TrialProcess(record, dict(zip(pipes, record.pipes, strict=True)), status, self._pid)
                except BaseException as error:
                    for end in (status, *pipes):
                        os.close(end)
                    if not isinstance(error, EOFError):
                        raise
                self._end()
            raise OSError(f"the server of trials has died {_TRIES} times as a trial started; its last words are above")

    def close(self) -> None:
        """Ends the server and all its trials."""
        with self._lock:
            self._end()
        with contextlib.suppress(ValueError):
            _started.remove(self)

    def _running(self) -> socket.socket:
        """Returns the connection to a server that runs, as far as can be known."""
        if self._control is not None and self._owner != os.getpid():  # this is a fork of the process that started it
            self._control.close()
            self._control = None
        if self._control is not None and not self._is_alive():
            self._end()
        if self._control is None:
            ours, theirs = socket.socketpair()
            try:
                self._pid = self._launch(theirs, ours)
            except BaseException:
                ours.close()
                raise
            finally:
                theirs.close()
            self._control, self._owner = ours, os.getpid()
            _remember(self)
        return self._control

    def _is_alive(self) -> bool:
        try:
            return os.waitpid(self._pid, os.WNOHANG)[0] == 0
        except ChildProcessError:
            return False

    def _end(self) -> None:
        if self._control is None:
            return
        self._control.close()
        self._control = None
        if self._owner != os.getpid():
            return
        ended = threading.Event()

        def wait() -> None:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._pid, 0)
            ended.set()

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        if not ended.wait(END_SECONDS):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        waiting.join()

    def forget(self) -> None:
        """Closes a fork's copy of the connection: the server must not take a fork's life for the sweep's."""
        if self._control is not None and self._owner != os.getpid():
            self._control.close()
            self._control = None
            self._lock = threading.Lock()


def launch_python(preload: tuple[str, ...] = ()) -> Launch:
    """Returns what starts a server in a new Python process, which imports `preload` once for all trials.

    Without any, it begins without site-packages: it runs commands alone. With some, it does not search the working
    directory for modules, as `python -c` would: a `torch.py` there would be imported.
    """

    def launch(control: socket.socket, _: socket.socket) -> int:
        number, source = control.fileno(), str(Path(protein.__file__).parent.parent)
        code = (
            f"import sys; sys.path.append({source!r}); from protein.run import fork_server;"
            f" fork_server.main({number}, {preload!r}, {os.getpid()})"
        )
        words = ["-P", "-c", code] if preload else ["-I", "-S", fork_server.__file__, str(number), str(os.getpid())]
        process = subprocess.Popen(
            [sys.executable, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[number],
            start_new_session=True,  # signals to the sweep's group are not for it
        )
        process.returncode = 0  # it is waited for by its id; without this its object would warn that it still runs
        return process.pid

    return launch


_servers: dict[tuple[str, ...], TrialServer] = {}  # by what they preload
_started: list[TrialServer] = []  # by this process or one that it was forked from


def shared_server(preload: tuple[str, ...]) -> TrialServer:
    """Returns the server of this process that preloads these modules: torch is imported once for all sweeps."""
    if preload not in _servers:
        _servers[preload] = TrialServer(launch_python(preload))
    return _servers[preload]


def _remember(trial_server: TrialServer) -> None:
    """Sees to it that a server ends with this process, and that forks of this process do not keep it alive."""
    _register_once()
    if trial_server not in _started:
        _started.append(trial_server)


@functools.cache
def _register_once() -> None:
    atexit.register(_close_all)
    os.register_at_fork(after_in_child=_forget_all)


def _close_all() -> None:
    for trial_server in _started[:]:  # each takes itself off the list
        with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl-C: the server ends, too, and is not waited for
            trial_server.close()


def _forget_all() -> None:
    for trial_server in _started:
        trial_server.forget()


class ToldCost:
    """Decides when the wall-clock cost of one running trial is told again, which may be silent until its end.

    That is when it has grown by a second and by a hundredth.
    """

    def __init__(self) -> None:
        self._told = 0.0

    def news(self, seconds: float | None) -> float | None:
        """Returns the cost if it is to be told now.

        Args:
            seconds: what the trial has cost by now; None: it tells that itself.
        """
        if seconds is None or seconds < self._told + max(LEAST_SECONDS, LEAST_SHARE * self._told):
            return None
        self._told = seconds
        return seconds


def joined(events: Iterable[TrialProgress | Finished]) -> list[TrialProgress | Finished]:
    """Returns the events with neighbouring reports of one trial joined into one: each is a transaction of the store."""
    found: list[TrialProgress | Finished] = []
    for (_, is_report), group in itertools.groupby(events, lambda one: (one.trial.id, isinstance(one, TrialProgress))):
        if not is_report:
            found.extend(group)
            continue
        reports = [one for one in group if isinstance(one, TrialProgress)]
        costs = [one.cost_seconds for one in reports if one.cost_seconds is not None]
        points = tuple(itertools.chain.from_iterable(one.measurements for one in reports))
        cost = costs[-1] if costs else None
        found.append(dataclasses.replace(reports[-1], measurements=points, cost_seconds=cost))
    return found


def shortage(words: str) -> TrialEnd | None:
    """Returns `OUT_OF_MEMORY` or `DISK` where a trial's last words speak of a lack of these; None: they do not."""
    if _NO_MEMORY.search(words):
        return TrialEnd.OUT_OF_MEMORY
    return TrialEnd.DISK if _NO_SPACE.search(words) else None
