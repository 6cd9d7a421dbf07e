"""Runs trials in jobs of Slurm. Each job is a worker that serves many trials, so trials do not queue one by one.

A worker (`slurm_worker`) and the sweep talk through files in the folder of artifacts (`mailbox`), which all machines of
the cluster share: no port has to be open, and a worker finds the sweep wherever it runs.

A job lasts as long as its time limit. No trial is given to a worker whose allocation would end before the trial's cap,
as long as a fresh job has more time: the worker is released, and another job is submitted. Before a job ends, Slurm
signals the worker; its trial writes a checkpoint and comes back as preempted.
"""

import contextlib
import dataclasses
import itertools
import math
import secrets
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from protein.errors import UsageError
from protein.ports import Finished, Job, TrialProgress
from protein.run import folders, slurm_commands, slurm_left_behind
from protein.run.job import max_seconds
from protein.run.mail import MessageError
from protein.run.mailbox import Inbox, Outbox
from protein.run.slot import SlotSettings, factor, facts
from protein.run.slurm_messages import (
    ALIVE,
    ALIVE_SECONDS,
    FROM_WORKER,
    TO_WORKER,
    Close,
    Leaving,
    Note,
    Ready,
    Setup,
    Silence,
    Stop,
)
from protein.types import PREEMPTED, Machine, Measurement, Outcome, Trial, TrialEnd

LOOK_SECONDS = 5.0  # how often Slurm is asked which jobs there are
POLL_SECONDS = 0.05  # between two looks at the workers' files
WARNING_SECONDS = 60  # before the end of an allocation, Slurm tells the worker
OVERHEAD_SECONDS = 90.0  # start-up and evaluation of a trial, on top of its cap
MAX_LOST_JOBS = 3  # in a row that end before they are ready; then something is wrong with all
RESUBMIT_SECONDS = 60.0  # after which a job is submitted again that Slurm has refused, though it took others before
REFUSED_SECONDS = 3600.0  # how long that is tried where the sweep has no job at all
TELL_SECONDS = 60.0  # how often it is looked what jobs wait for, where none has started
OUTPUT = "job.out"
MAX_NOTE = 1000  # characters of what a worker says


@dataclasses.dataclass(eq=False, kw_only=True)
class _Worker:
    folder: Path
    number: str  # of its job
    inbox: Inbox
    outbox: Outbox
    speed: float = 1.0  # reference seconds in one second of its node
    host: str = ""  # "": it has not started yet
    ends_at: float | None = None  # on the monotonic clock
    leaving: bool = False  # it gets no more trials
    served: int = 0  # trials
    trial: Trial | None = None
    last: Measurement | None = None
    silence: Silence = dataclasses.field(default_factory=Silence)

    @property
    def is_free(self) -> bool:
        return bool(self.host) and not self.leaving and self.trial is None

    def has_time_for(self, job: Job) -> bool:
        """Whether a trial that spends all that it may ends before the allocation does."""
        cap = max_seconds(job.config)
        if self.ends_at is None or cap is None:
            return True
        # A cap is in reference seconds, and a slower node takes more of its own.
        return self.ends_at - time.monotonic() > (cap - job.spent_seconds) / self.speed + OVERHEAD_SECONDS


class SlurmBackend:
    """Implements `protein.ports.Backend` with jobs of Slurm.

    Attributes:
        note: called with what a person should know, as one line.
    """

    def __init__(
        self,
        name: str,
        settings: SlotSettings,
        *,
        workers: int,
        cores: int,
        options: Sequence[str] = (),
        note: Callable[[str], None] = lambda line: None,
        on_machine: Callable[[Machine], None] = lambda machine: None,
    ) -> None:
        """Submits a job for each worker. They start when Slurm lets them.

        Args:
            name: of the sweep; the jobs are called after it.
            settings: what the workers must know. The folder of artifacts must be shared.
            workers: how many jobs there are at once.
            cores: of each.
            options: for sbatch (`slurm_commands.parse`).
            note: see above.
            on_machine: called with each machine that was calibrated.

        Raises:
            UsageError: there is no Slurm here, or it refuses the job.
        """
        self.note, self._on_machine = note, on_machine
        self._machines = [] if settings.calibrating is None else list(settings.calibrating.known)
        self._name, self._settings, self._workers_wanted, self._cores = name, settings, workers, cores
        self._asked = slurm_commands.resources(cores, settings.gpus_per_trial, options)
        if left := slurm_left_behind.end(settings.artifacts):
            self.note(f"Slurm jobs that this sweep left when it was killed are cancelled: {', '.join(left)}")
        self._folder = settings.artifacts / f"{slurm_left_behind.FOLDER}{secrets.token_hex(4)}"
        self._folder.mkdir(mode=0o700, parents=True)
        self._workers: list[_Worker] = []
        self._waiting: list[Job] = []
        self._events: list[TrialProgress | Finished] = []
        self._numbers = itertools.count()
        self._lost_jobs = 0
        self._submit_after = -math.inf  # on the monotonic clock
        self._told_at, self._told = time.monotonic(), set[str]()  # what jobs wait for that have not started
        self._refused = ""  # why Slurm has refused the last job; "": it took it
        self._had_job_at: float | None = None  # on the monotonic clock; None: Slurm has not taken any
        self._looked_at = time.monotonic()
        self._closed = threading.Event()
        self._version = facts(settings, calibrate=False).version
        self._show_life(0)
        slurm_left_behind.sign(self._folder)
        threading.Thread(target=self._show_life_until_closed, name="signs of life for workers", daemon=True).start()
        try:
            self._submit_missing()
        except BaseException:
            self.close()
            raise

    def num_slots(self) -> int:
        self._receive()
        return sum(bool(worker.host) and not worker.leaving for worker in self._workers)

    def start(self, job: Job) -> None:
        folders.prepare(job.directory)
        self._waiting.append(job)
        self._start_waiting()

    def poll(self, timeout_seconds: float) -> list[TrialProgress | Finished]:
        until = time.monotonic() + timeout_seconds
        while True:
            self._receive()
            if self._events or time.monotonic() >= until:
                break
            time.sleep(min(POLL_SECONDS, max(until - time.monotonic(), 0.0)))
        events, self._events = self._events, []
        return events

    def stop(self, trial: Trial, end: TrialEnd, reason: str) -> None:
        for job in [job for job in self._waiting if job.trial.id == trial.id]:
            self._waiting.remove(job)
            outcome = Outcome(end=end, reason=reason, cost_seconds=job.spent_seconds, steps=job.steps_behind)
            self._events.append(Finished(trial=trial, outcome=outcome))
        for worker in self._workers:
            if worker.trial is not None and worker.trial.id == trial.id:
                worker.outbox.send(Stop(trial=trial, end=end, reason=reason))

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        for worker in self._workers:
            with contextlib.suppress(OSError):
                worker.outbox.send(Close())
            worker.outbox.close()
        if self._workers:
            slurm_commands.attempt("scancel", *(worker.number for worker in self._workers))
        self._workers.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _show_life_until_closed(self) -> None:
        for count in itertools.count(1):
            if self._closed.wait(ALIVE_SECONDS):
                return
            with contextlib.suppress(OSError):
                self._show_life(count)

    def _show_life(self, count: int) -> None:
        (self._folder / ALIVE).write_text(str(count))

    def _submit_missing(self) -> None:
        """Submits jobs until there are as many as wanted.

        Slurm refuses what it has taken before while it is busy or restarts, and while a limit on jobs counts those that
        are about to end. So only its first answer is final.

        Raises:
            UsageError: Slurm refuses the first job of all; or there is no job, and it has refused all for long.
        """
        if self._workers:
            self._had_job_at = time.monotonic()
        if time.monotonic() < self._submit_after:
            return
        try:
            for _ in range(self._workers_wanted - sum(not worker.leaving for worker in self._workers)):
                self._submit()
                self._had_job_at, self._refused = time.monotonic(), ""
        except UsageError as error:
            if self._had_job_at is None or time.monotonic() - self._had_job_at > REFUSED_SECONDS:
                raise
            self._submit_after = time.monotonic() + RESUBMIT_SECONDS
            if str(error) != self._refused:
                self._refused = str(error)
                self.note(
                    f"a Slurm job was not submitted, which is tried again every {RESUBMIT_SECONDS:.0f} s: {error}"
                )

    def _submit(self) -> None:
        folder = self._folder / f"{next(self._numbers):05d}"
        folder.mkdir()
        outbox = Outbox(folder / TO_WORKER)
        outbox.send(Setup(slot=self._settings, cores=self._cores))
        command = [sys.executable, "-P", "-m", "protein.run.slurm_worker", str(folder)]
        try:
            number = slurm_commands.submit(
                f"--job-name=protein-{self._name}",
                f"--output={str(folder / OUTPUT).replace('%', '%%')}",  # `%j` stands for the job's number
                f"--signal=B:USR1@{WARNING_SECONDS}",
                *self._asked,
                "--no-requeue",  # last, so that it wins: a worker that starts again would run its trials again
                f"--wrap=exec {shlex.join(command)}",
            )
        except UsageError:
            with contextlib.suppress(OSError):  # it may have been submitted, and only the answer is missing
                outbox.send(Close())
            outbox.close()
            raise
        slurm_left_behind.note_job(self._folder, number)
        inbox = Inbox(folder / FROM_WORKER)
        self._workers.append(_Worker(folder=folder, number=number, inbox=inbox, outbox=outbox))

    def _receive(self) -> None:
        for worker in list(self._workers):
            try:
                messages = worker.inbox.receive()
            except MessageError as error:
                slurm_commands.attempt("scancel", worker.number)
                self._on_ended(worker, f"is ended: {error}")
                continue
            worker.silence.look(heard=bool(messages))
            for message in messages:
                self._take(worker, message)
        if time.monotonic() - self._looked_at >= LOOK_SECONDS:
            self._looked_at = time.monotonic()
            self._look()
        self._start_waiting()

    def _take(self, worker: _Worker, message: object) -> None:
        if isinstance(message, Ready):
            self._on_ready(worker, message)
        elif isinstance(message, Leaving):
            worker.leaving = True
        elif isinstance(message, Note):
            self.note(message.text[:MAX_NOTE])
        elif isinstance(message, TrialProgress | Finished):
            trial = worker.trial
            if trial is None or trial.id != message.trial.id:
                self.note(f"a late report of trial {message.trial.number} was ignored: it runs elsewhere or has ended")
                return
            if isinstance(message, Finished):
                worker.trial = None
            elif message.measurements:
                worker.last = message.measurements[-1]
            self._events.append(dataclasses.replace(message, trial=trial))  # as it was given, and not as it is told

    def _on_ready(self, worker: _Worker, ready: Ready) -> None:
        if worker.host:  # it has said so before
            return
        if ready.facts.version != self._version:
            problem = f"node {ready.facts.host} has protein {ready.facts.version}, and this machine {self._version}"
            if not any(one.host for one in self._workers):
                raise UsageError(f"{problem}: install the same version")
            slurm_commands.attempt("scancel", worker.number)
            self._on_ended(worker, f"is ended: {problem}")
            return
        worker.host = ready.facts.host
        machine = ready.facts.machine
        if machine is not None and machine not in self._machines:
            self._machines.append(machine)
            self._on_machine(machine)
            self._settings = self._settings.knowing(machine)
        worker.speed = factor(self._machines, machine)
        if ready.seconds_left is not None:
            worker.ends_at = time.monotonic() + ready.seconds_left - WARNING_SECONDS
            if ready.seconds_left <= WARNING_SECONDS:  # Slurm announces its end already
                worker.leaving = True
                short = f"too little time for a trial ({ready.seconds_left:.0f} s when the last one was ready, of which"
                short += f" {WARNING_SECONDS} s are for its end); give more, as in --slurm-options=--time=4:00:00"
                self._on_lost(
                    f"Slurm job {worker.number} has {short}", f"{MAX_LOST_JOBS} Slurm jobs in a row had {short}"
                )
                return
        self._lost_jobs = 0
        self.note(f"a worker has started on node {worker.host} (Slurm job {worker.number})")

    def _start_waiting(self) -> None:
        for job in list(self._waiting):
            free = [worker for worker in self._workers if worker.is_free]
            for worker in free:  # a fresh one cannot do better than it does
                if worker.has_time_for(job) or not worker.served:
                    self._waiting.remove(job)
                    worker.trial, worker.last = job.trial, None
                    worker.served += 1
                    worker.outbox.send(dataclasses.replace(job, speed=worker.speed))
                    break
            else:
                if free:
                    self._release(free[0])

    def _release(self, worker: _Worker) -> None:
        """Ends a worker whose allocation is too short for the trials to come; a fresh job takes its place."""
        worker.leaving = True
        worker.outbox.send(Close())
        self.note(f"Slurm job {worker.number} has too little time left for another trial: a new one is submitted")
        self._submit_missing()

    def _look(self) -> None:
        """Asks Slurm which jobs there are, and gives back the trials of those that have ended without a word."""
        if not self._workers:
            self._submit_missing()
            return
        states = slurm_commands.states([worker.number for worker in self._workers])
        to_cancel = []
        for worker in list(self._workers):
            # Where Slurm's controller does not answer, the workers go on.
            state = "UNKNOWN" if states is None else states.get(worker.number, "GONE")
            silent = bool(worker.host) and worker.silence.is_death
            if state not in (*slurm_commands.ENDED, "GONE") and not silent:
                continue
            if state not in slurm_commands.ENDED:
                to_cancel.append(worker.number)
            with contextlib.suppress(MessageError):
                for message in worker.inbox.receive():  # its last words
                    self._take(worker, message)
            self._on_ended(worker, "has been silent for too long" if silent else f"ended ({state.lower()})")
        self._tell_why_none_starts()
        if to_cancel:
            slurm_commands.attempt("scancel", *to_cancel)
        self._submit_missing()

    def _on_ended(self, worker: _Worker, how: str) -> None:
        self._workers.remove(worker)
        worker.outbox.close()
        if worker.trial is not None:
            last = worker.last
            outcome = Outcome(
                end=TrialEnd.INTERRUPTED,
                reason=f"{PREEMPTED}Slurm job {worker.number} on node {worker.host} {how}",
                cost_seconds=0.0 if last is None else last.elapsed_seconds,
                steps=0 if last is None else last.steps,
            )
            self._events.append(Finished(trial=worker.trial, outcome=outcome))
        if not worker.host:
            why = _last_line(worker.folder)
            self._on_lost(
                f"Slurm job {worker.number} {how} before it was ready{why}",
                f"{MAX_LOST_JOBS} Slurm jobs in a row {how} before they were ready{why}",
            )
        elif not worker.leaving:
            self.note(f"Slurm job {worker.number} on node {worker.host} {how}")

    def _on_lost(self, one: str, several: str) -> None:
        """Counts a job that was of no use, and says so where others work. Too many in a row are a `UsageError`."""
        self._lost_jobs += 1
        if any(worker.host and not worker.leaving for worker in self._workers):  # their trials are not ended
            self.note(one)
            self._submit_after = time.monotonic() + RESUBMIT_SECONDS
        elif self._lost_jobs >= MAX_LOST_JOBS:
            raise UsageError(several)

    def _tell_why_none_starts(self) -> None:
        """Says now and then what the jobs wait for, as Slurm gives it, where none has started."""
        if any(worker.host for worker in self._workers) or time.monotonic() - self._told_at < TELL_SECONDS:
            return
        self._told_at = time.monotonic()
        new = set(slurm_commands.reasons([worker.number for worker in self._workers])) - self._told
        if new:
            self._told |= new
            self.note(f"no Slurm job has started yet; the reason that squeue gives: {', '.join(sorted(new))}")


def _last_line(folder: Path) -> str:
    with contextlib.suppress(OSError):
        lines = [line for line in (folder / OUTPUT).read_text(errors="replace").splitlines() if line.strip()]
        return f": {lines[-1][:300]}" if lines else ""
    return ""
