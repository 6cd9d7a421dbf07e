"""Backends whose trials are processes of this machine: what watches them, and what ends them.

A trial cannot harm the sweep. It has its own process group and dies with the sweep. It is killed when it exceeds its
wall-clock limit or a memory limit, or after a long silence. A crash, a hang, garbage in the output and lack of memory
each end that trial alone: the reason is in its outcome.

What says nothing about a trial's params ends it as interrupted, with a reason that begins with "preempted: ": its
server has died, a signal from outside has ended it, or somebody has stopped it (SIGSTOP) for long. Time in which a
trial was stopped, or in which the sweep itself did not look, counts towards no limit but that of its cost.
"""

import contextlib
import dataclasses
import math
import os
import selectors
import signal
import sys
import time
from pathlib import Path
from typing import Protocol

import psutil

from protein.ports import Finished, Job, TrialProgress
from protein.run import child, devices, usage
from protein.run.job import max_trial_seconds
from protein.run.told_cost import ToldCost
from protein.run.trial_server import TrialProcess, TrialServer
from protein.run.usage import Meter
from protein.types import Artifact, Measurement, Outcome, Trial, TrialEnd

GRACE_SECONDS = 10.0  # between SIGTERM and SIGKILL: time to write a checkpoint
SILENCE_SECONDS = 600.0  # a process that prints nothing for so long hangs; compiling a large model may take minutes
CHECK_SECONDS = 1.0  # between two looks at a trial's memory and state
AWAY_SECONDS = 30.0  # between two polls: the sweep was stopped, or the machine slept
WAKE_SECONDS = 1.0  # from the end of a trial's output until its server is woken, in case somebody has stopped it
READ_BYTES = 1 << 16
MAX_READS = 16  # of the pipe in one poll: a trial that prints without end must not hold up the others
PREEMPTED = "preempted: "
_OUTSIDE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # who sends these ends more than one trial


class Record(Protocol):
    """What a trial has reported so far, made from what its process writes."""

    last: Measurement | None
    last_score: float | None  # of its curve
    told_seconds: float | None  # the last cost that it reported beside its curve

    def take(self, data: bytes) -> None:
        """Takes the next piece of what the process has written."""
        ...

    def take_measurements(self) -> tuple[Measurement, ...]:
        """Returns the curve points that came since the last call."""
        ...

    def wall_cost(self, now: float) -> float | None:
        """Returns what the trial has cost by now where that is its wall clock; None: it reports its cost itself."""
        ...

    def outcome(self, process: "TrialOfProcess") -> Outcome:
        """Returns how the trial has ended, when its process has."""
        ...

    def artifacts(self) -> tuple[Artifact, ...]: ...

    def error(self, process: "TrialOfProcess") -> BaseException | None:
        """Returns what ends the whole sweep (`Finished.error`), if anything does."""
        ...


class TrialOfProcess:
    """One running trial: its process, its limits, and what it has reported.

    Attributes:
        spawned: when its process was started, on the monotonic clock.
        requested_end: how and why the sweep ends it; None: the sweep has not ended it.
    """

    def __init__(self, job: Job, process: TrialProcess, output: int, record: Record) -> None:
        self.job, self.process, self.output, self.record = job, process, output, record
        self.spawned = self.last_sign = self.checked = time.monotonic()
        self.usage = Meter(process.pid)  # from its first sign, when training begins, to the last point of its curve
        self.cost = ToldCost()
        self.requested_end: tuple[TrialEnd, str] | None = None
        self.requested_at = math.inf  # when, on the monotonic clock
        self.kill_at: float | None = None
        self.closed_at: float | None = None  # when its output ended
        self._excused_seconds = 0.0  # of wall clock that count towards no limit
        self._stopped_seconds = 0.0  # for how long it has been stopped now

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def ended_at(self) -> float:
        """When the process ended, on the monotonic clock; now where that is not known."""
        return time.monotonic() if self.process.ended_at is None else self.process.ended_at

    def run_seconds(self, now: float) -> float:
        """Returns the wall clock since the process was started, without the time in which it could do nothing."""
        return now - self.spawned - self._excused_seconds

    def read(self) -> bool:
        """Reads what the pipe holds, up to `MAX_READS` times. Returns False once the pipe is closed."""
        for _ in range(MAX_READS):
            if self.closed_at is not None:
                break
            try:
                chunk = os.read(self.output, READ_BYTES)
            except BlockingIOError:
                break
            if not chunk:
                self.closed_at = time.monotonic()
                break
            self.last_sign = time.monotonic()
            known = self.record.last
            self.record.take(chunk)
            if self.record.last is not known or not self.usage.marked:
                self.usage.mark()
        return self.closed_at is None

    def excuse_stop(self, seconds: float) -> float:
        """Counts none of the last `seconds` if the trial is stopped. Returns for how long it has been stopped now."""
        stopped = self._is_stopped()
        if stopped:
            self.excuse(seconds)
        self._stopped_seconds = self._stopped_seconds + seconds if stopped else 0.0
        return self._stopped_seconds

    def _is_stopped(self) -> bool:
        with contextlib.suppress(psutil.Error):
            return bool(psutil.Process(self.pid).status() == psutil.STATUS_STOPPED)
        return False

    def excuse(self, seconds: float) -> None:
        """Counts the last `seconds`, or all since its start, towards no limit."""
        seconds = min(seconds, time.monotonic() - self.spawned - self._excused_seconds)
        self._excused_seconds += seconds
        self.last_sign += seconds

    def terminate(self, end: TrialEnd, reason: str) -> None:
        self.requested_end, self.requested_at = (end, reason), time.monotonic()
        self.kill_at = self.requested_at + GRACE_SECONDS
        self.process.send(signal.SIGTERM)
        if self._is_stopped():
            self.process.send(signal.SIGCONT)  # so that it ends in order, too

    def kill(self) -> None:
        self.process.send(signal.SIGKILL)

    def close(self) -> None:
        os.close(self.output)
        self.process.close()

    def preempted(self, *, interrupted: bool) -> str | None:
        """Returns why an end that the sweep did not ask for says nothing about the trial's params; None: it may.

        Args:
            interrupted: whether the trial has said that a signal has ended it.
        """
        if self.process.is_lost:
            return f"{PREEMPTED}the server of trials died"
        code = self.process.exit_code
        if code is not None and -code in _OUTSIDE:
            return f"{PREEMPTED}{signal.Signals(-code).name} from outside ended it"
        return f"{PREEMPTED}a signal from outside ended it" if interrupted else None


class ProcessBackend:
    """The common part of the backends that start trials by a `TrialServer`. See `protein.ports.Backend`."""

    def __init__(
        self,
        server: TrialServer,
        *,
        silence_seconds: float | None = SILENCE_SECONDS,
        gpu_memory: usage.GpuMemory = devices.used_gpu_bytes,
    ) -> None:
        """Starts nothing yet.

        Args:
            server: starts the processes.
            silence_seconds: a trial that writes nothing for so long is killed; None: none is.
            gpu_memory: measures the GPU memory that processes use together.
        """
        self._server = server
        self._silence_seconds = silence_seconds
        self._selector = selectors.DefaultSelector()
        self._running: dict[int, TrialOfProcess] = {}
        self._gpu_memory = gpu_memory
        self._looked = time.monotonic()  # when the last poll ended

    def start_process(self, job: Job, record: Record, work: child.Work, *, log: Path | None) -> None:
        """Starts a trial.

        Args:
            job: of the trial.
            record: takes what it reports.
            work: what it does.
            log: the file that its stderr goes to; None: it has that of the sweep.

        Raises:
            OSError: no process can be started.
        """
        reading, writing = os.pipe()
        try:
            process = self._server.start(
                child.Start(
                    work=work,
                    environment=dict(os.environ),
                    working_directory=str(Path.cwd()),
                    path=_search_path(),
                    resources=job.resources,
                    log=None if log is None else str(log.absolute()),
                ),
                writing,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        os.set_blocking(reading, False)
        trial = self._running[job.trial.id] = TrialOfProcess(job, process, reading, record)
        self._selector.register(reading, selectors.EVENT_READ, trial)
        self._selector.register(process.status, selectors.EVENT_READ, trial)

    def num_slots(self) -> int | None:
        return None

    def poll(self, timeout_seconds: float) -> list[TrialProgress | Finished]:
        ready = self._selector.select(timeout_seconds)
        self._excuse_absence(timeout_seconds)
        for key, _ in ready:
            trial: TrialOfProcess = key.data
            if key.fd == trial.process.status:
                trial.process.look()
            elif not trial.read():
                self._selector.unregister(key.fd)
        events: list[TrialProgress | Finished] = []
        for trial in list(self._running.values()):
            if trial.process.ended:
                trial.read()
            points, cost = trial.record.take_measurements(), trial.record.wall_cost(time.monotonic())
            cost = trial.cost.news(trial.record.told_seconds if cost is None else cost)
            if points or cost is not None:
                events.append(TrialProgress(trial=trial.job.trial, measurements=points, cost_seconds=cost))
            if trial.process.ended:
                events.append(self._finish(trial))
            else:
                self._enforce(trial)
        self._looked = time.monotonic()
        return events

    def stop(self, trial: Trial, end: TrialEnd, reason: str) -> None:
        running = self._running.get(trial.id)
        if running is not None and running.requested_end is None:
            running.terminate(end, reason)

    def close(self) -> None:
        for trial in list(self._running.values()):
            trial.kill()
        deadline = time.monotonic() + GRACE_SECONDS
        for trial in list(self._running.values()):
            while not trial.process.ended and time.monotonic() < deadline:
                with selectors.DefaultSelector() as selector:
                    selector.register(trial.process.status, selectors.EVENT_READ)
                    if not selector.select(WAKE_SECONDS):
                        trial.process.wake_server()
                trial.process.look()
            self._forget(trial)
        self._selector.close()

    def _excuse_absence(self, timeout_seconds: float) -> None:
        """Counts no time in which the sweep did not look: it may have kept trials waiting itself."""
        away = time.monotonic() - self._looked - timeout_seconds
        if away > AWAY_SECONDS:
            for trial in self._running.values():
                trial.excuse(away)

    def _enforce(self, trial: TrialOfProcess) -> None:
        now, limits = time.monotonic(), trial.job
        if trial.closed_at is not None and now - trial.closed_at > WAKE_SECONDS:
            trial.process.wake_server()
        if trial.kill_at is not None:
            if now >= trial.kill_at:
                trial.kill()
            return
        if now - trial.checked >= CHECK_SECONDS:
            seconds, trial.checked = now - trial.checked, now
            self._check(trial, seconds)
        if trial.requested_end is not None:
            return
        cost = trial.record.wall_cost(now)
        cap = None if cost is None else max_trial_seconds(limits.config)
        if cost is not None and cap is not None and cost >= cap:  # a report would have ended it
            trial.terminate(limits.at_limit, limits.at_limit.text)
        elif limits.max_seconds is not None and trial.run_seconds(now) > limits.max_seconds:
            reason = f"killed after {limits.max_seconds:.0f} s, its limit with start-up and evaluation"
            trial.terminate(TrialEnd.HUNG, reason)
        elif self._silence_seconds is not None and now - trial.last_sign > self._silence_seconds:
            trial.terminate(TrialEnd.HUNG, f"killed after {self._silence_seconds:.0f} s without a sign of life")

    def _check(self, trial: TrialOfProcess, seconds: float) -> None:
        """Ends a trial that uses too much memory, or that was stopped for long. `seconds`: since the last check."""
        stopped_seconds = trial.excuse_stop(seconds)
        if stopped_seconds > (self._silence_seconds or SILENCE_SECONDS):
            why = f"{PREEMPTED}it was stopped (SIGSTOP) for {stopped_seconds:.0f} s"
            trial.terminate(TrialEnd.INTERRUPTED, why)
            return
        reason = usage.over_limit(trial.job, lambda: usage.family(trial.pid), self._gpu_memory)
        if reason is not None:
            trial.terminate(TrialEnd.OUT_OF_MEMORY, reason)

    def _finish(self, trial: TrialOfProcess) -> Finished:
        outcome = trial.record.outcome(trial)
        outcome = dataclasses.replace(outcome, timings={**trial.usage.timings(), **outcome.timings})
        record = trial.record
        finished = Finished(
            trial=trial.job.trial, outcome=outcome, artifacts=record.artifacts(), error=record.error(trial)
        )
        self._forget(trial)
        return finished

    def _forget(self, trial: TrialOfProcess) -> None:
        for descriptor in (trial.output, trial.process.status):
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(descriptor)
        trial.close()
        del self._running[trial.job.trial.id]


def _search_path() -> list[str]:
    """Returns where modules are looked for, with the working directory by its name."""
    return [str(Path.cwd()) if entry == "" else entry for entry in sys.path]
