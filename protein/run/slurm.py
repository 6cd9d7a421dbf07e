"""Slots in jobs of Slurm. Each job is a worker that serves many trials, so trials do not queue one by one.

A worker and the sweep talk through files in the folder of artifacts (`protein.run.mailbox`), which all machines of the
cluster share: no port has to be open, and a worker finds the sweep wherever it runs.

A job lasts as long as its time limit. No trial is given to a worker whose allocation would end before the trial's cap,
as long as a fresh job has more time: the worker is released, and another job is submitted. Before a job ends, Slurm
signals the worker; its trial writes a checkpoint and comes back as preempted.

A worker that has lost its sweep goes on for `DEAD_SECONDS`, and a job in the queue does not even know. Meanwhile the
resumed sweep would run the same trials in other jobs, in the same folders. So each sweep keeps the name of its process
and the numbers of its jobs in its folder of messages. The next one looks whether that process has ended, and ends its
jobs before it submits its own.
"""

import contextlib
import dataclasses
import itertools
import math
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from protein.errors import UsageError
from protein.run.fleet import Lost, News
from protein.run.folder import FileSlot, FileTransport, has_ended
from protein.run.mailbox import FROM_WORKER, TO_WORKER, Inbox, MessageError, Outbox
from protein.run.slot import Close, Left, Ready, SlotSettings, version

LOOK_SECONDS = 5.0  # how often Slurm is asked which jobs there are
WARNING_SECONDS = 60  # before the end of an allocation, Slurm tells the worker
MAX_LOST_JOBS = 3  # in a row that end before they are ready; then something is wrong with all
RESUBMIT_SECONDS = 60.0  # after which a job is submitted again that Slurm has refused, though it took others before
REFUSED_SECONDS = 3600.0  # how long that is tried where the sweep has no job at all
TELL_SECONDS = 60.0  # how often it is looked what jobs wait for, where none has started
COMMAND_SECONDS = 60.0  # within which Slurm's commands must answer
MAX_CHARACTERS = 300  # of what a command or a job said
OUTPUT = "job.out"
FOLDER = ".slurm-"  # what the names of sweeps' folders of messages begin with
JOBS = "jobs"  # a file there
# `squeue -t all` also lists jobs that have ended, for some minutes. A job in any other state lives, also one that is
# just signalled, resized, or waits for its node to be switched on.
ENDED = frozenset(
    (
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
        *("REVOKED", "TIMEOUT"),
    )
)
_NUMBER = re.compile(r"[0-9]+")  # of a job
_SPEAKER = re.compile(r"^(sbatch|squeue|scancel): ((error|fatal): )?")
_ADVICE = re.compile(r"^Try .* for more information")
_FORGOTTEN = "Invalid job id"  # what squeue says where it is asked for a single job, which has ended long ago
_UNUSABLE = {  # options for sbatch, short and long
    ("a", "array"): "each worker is a job of its own, and --workers says how many there are",
    ("W", "wait"): "the sweep does not wait for one job's end",
    ("M", "clusters"): "the sweep asks for its jobs on this machine's own cluster",
}


@dataclasses.dataclass(eq=False, kw_only=True)
class _Worker(FileSlot):
    number: str  # of its job


class SlurmTransport(FileTransport[_Worker]):
    """Implements `protein.run.fleet.Transport` with jobs of Slurm, of which there are always as many as workers."""

    def __init__(self, sweep: str, *, workers: int, cores: int, options: Sequence[str] = ()) -> None:
        """Remembers what to submit; jobs are called after the sweep. `options` are for sbatch (`parse_options`)."""
        super().__init__(f"{FOLDER}{secrets.token_hex(4)}")
        self._sweep, self._workers_wanted, self._cores, self._options = sweep, workers, cores, options
        self._numbers = itertools.count()
        self._lost_jobs = 0
        self._submit_after = -math.inf  # on the monotonic clock
        self._refused = ""  # why Slurm has refused the last job; "": it took it
        self._had_job_at: float | None = None  # on the monotonic clock; None: Slurm has not taken any
        self._told_at, self._told = time.monotonic(), set[str]()  # what jobs wait for that have not started
        self._looked_at = time.monotonic()

    def start(self, settings: SlotSettings, note: Callable[[str], None]) -> None:
        if left := end_left_behind(settings.artifacts):
            note(f"Slurm jobs that this sweep left when it was killed are cancelled: {', '.join(left)}")
        super().start(settings, note)

    def start_slots(self, num_jobs: int) -> None:
        """Submits jobs until there are as many as workers are wanted: one serves many trials.

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
                self._note(
                    f"a Slurm job was not submitted, which is tried again every {RESUBMIT_SECONDS:.0f} s: {error}"
                )

    def close(self) -> None:
        numbers = [worker.number for worker in self._workers]
        super().close()
        if numbers:
            attempt("scancel", *numbers)

    def _submit(self) -> None:
        folder = self._folder / f"{next(self._numbers):05d}"
        folder.mkdir()
        outbox = Outbox(folder / TO_WORKER)
        outbox.send(self.settings)
        command = [sys.executable, "-P", "-m", "protein.run.mailbox", str(folder)]
        try:
            number = submit(
                f"--job-name=protein-{self._sweep}",
                f"--output={str(folder / OUTPUT).replace('%', '%%')}",  # `%j` stands for the job's number
                f"--signal=B:USR1@{WARNING_SECONDS}",
                *resources(self._cores, self.settings.gpus_per_trial, self._options),
                "--no-requeue",  # last, so that it wins: a worker that starts again would run its trials again
                f"--wrap=exec {shlex.join(command)}",
            )
        except UsageError:
            with contextlib.suppress(OSError):  # it may have been submitted, and only the answer is missing
                outbox.send(Close())
            raise
        with (self._folder / JOBS).open("a") as jobs:
            print(number, file=jobs)
        inbox = Inbox(folder / FROM_WORKER)
        self._workers.append(
            _Worker(name=f"Slurm job {number}", folder=folder, number=number, inbox=inbox, outbox=outbox)
        )

    def _ready(self, worker: _Worker, ready: Ready) -> list[News]:
        """Takes a worker into use, unless its time is too short for any trial. Returns what the fleet is told."""
        if ready.facts.version != version():
            problem = f"node {ready.facts.host} has protein {ready.facts.version}, and this machine {version()}"
            if not any(one.host for one in self._workers):
                raise UsageError(f"{problem}: install the same version")
            return [self._dismiss(worker, f"is ended: {problem}")]
        worker.host, left = ready.facts.host, ready.seconds_left
        if left is not None and left <= WARNING_SECONDS:  # Slurm announces its end already
            worker.leaving = True
            short = (
                f"too little time for a trial ({left:.0f} s when the last one was ready, of which {WARNING_SECONDS} s"
            )
            short += " are for its end); give more, as in --slurm-options=--time=4:00:00"
            self._on_useless(f"{worker.name} has {short}", f"{MAX_LOST_JOBS} Slurm jobs in a row had {short}")
            return []
        self._lost_jobs = 0
        self._note(f"a worker has started on node {worker.host} ({worker.name})")
        return [(worker, dataclasses.replace(ready, seconds_left=None if left is None else left - WARNING_SECONDS))]

    def _look(self) -> list[News]:
        """Asks Slurm which jobs there are. Returns the last words of those that have ended, and that they are lost."""
        if not self._workers or time.monotonic() - self._looked_at < LOOK_SECONDS:
            return []
        self._looked_at = time.monotonic()
        news: list[News] = []
        found = states([worker.number for worker in self._workers])
        to_cancel = []
        for worker in list(self._workers):
            # Where Slurm's controller does not answer, the workers go on.
            state = "UNKNOWN" if found is None else found.get(worker.number, "GONE")
            silent = bool(worker.host) and worker.silence.is_death
            if state not in (*ENDED, "GONE") and not silent:
                continue
            if state not in ENDED:
                to_cancel.append(worker.number)
            with contextlib.suppress(MessageError):
                news += self._read(worker, worker.inbox.receive())
            if worker in self._workers:
                news.append(self._end(worker, "has been silent for too long" if silent else f"ended ({state.lower()})"))
        self._tell_why_none_starts()
        if to_cancel:
            attempt("scancel", *to_cancel)
        return news

    def _left(self, worker: _Worker, left: Left) -> list[News]:
        return super()._left(worker, left) if worker.host else []  # else Slurm says how its job has ended

    def _dismiss(self, worker: _Worker, how: str) -> News:
        attempt("scancel", worker.number)
        return self._end(worker, how)

    def _end(self, worker: _Worker, how: str) -> News:
        """Forgets a worker. Returns that it is lost."""
        self._workers.remove(worker)
        if not worker.host:
            why = _last_line(worker.folder)
            self._on_useless(
                f"{worker.name} {how} before it was ready{why}",
                f"{MAX_LOST_JOBS} Slurm jobs in a row {how} before they were ready{why}",
            )
        elif not worker.leaving:
            self._note(f"{worker.name} on node {worker.host} {how}")
        return worker, Lost(why=f"{worker.name} on node {worker.host} {how}")

    def _on_useless(self, one: str, several: str) -> None:
        """Counts a job that was of no use, and says so where others work. Too many in a row are a `UsageError`."""
        self._lost_jobs += 1
        if self.num_slots():  # their trials are not ended
            self._note(one)
            self._submit_after = time.monotonic() + RESUBMIT_SECONDS
        elif self._lost_jobs >= MAX_LOST_JOBS:
            raise UsageError(several)

    def _tell_why_none_starts(self) -> None:
        """Says now and then what the jobs wait for, as Slurm gives it, where none has started."""
        if any(worker.host for worker in self._workers) or time.monotonic() - self._told_at < TELL_SECONDS:
            return
        self._told_at = time.monotonic()
        new = set(reasons([worker.number for worker in self._workers])) - self._told
        if new:
            self._told |= new
            self._note(f"no Slurm job has started yet; the reason that squeue gives: {', '.join(sorted(new))}")


def _last_line(folder: Path) -> str:
    with contextlib.suppress(OSError):
        lines = [line for line in (folder / OUTPUT).read_text(errors="replace").splitlines() if line.strip()]
        return f": {lines[-1][:MAX_CHARACTERS]}" if lines else ""
    return ""


def end_left_behind(artifacts: Path) -> Sequence[str]:
    """Ends the jobs of sweeps that were killed, and removes their folders, which ends the workers, too.

    Returns:
        The numbers of the jobs.
    """
    ended: list[str] = []
    for folder in sorted(artifacts.glob(f"{FOLDER}*")):
        with contextlib.suppress(OSError):
            if has_ended(folder):
                jobs = folder / JOBS
                numbers = jobs.read_text().split() if jobs.exists() else []
                ended += [number for number in numbers if _NUMBER.fullmatch(number)]  # else it might be an option
                shutil.rmtree(folder, ignore_errors=True)
    if ended:
        attempt("scancel", *ended)
    return ended


def parse_options(options: str) -> list[str]:
    """Returns options for sbatch as words, from a text such as "--partition=gpu --time=4:00:00".

    Raises:
        UsageError: it cannot be split into words, or has an option with which the sweep would lose sight of its jobs.
    """
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise UsageError(f"--slurm-options {options} cannot be read: {error}") from error
    for word in words:
        for (short, long), why in _UNUSABLE.items():
            if word.partition("=")[0] == f"--{long}" or re.match(f"-{short}(?!-)", word):
                raise UsageError(f"--slurm-options: {word} cannot be used, as {why}; leave it out")
    return words


def resources(cores: int, gpus: int, options: Sequence[str]) -> list[str]:
    """Returns the words for sbatch that say what a job needs. The user's own come last, so they win."""
    return [f"--cpus-per-task={cores}", *([f"--gpus={gpus}"] if gpus else []), *options]


def check(asked: Sequence[str]) -> None:
    """Asks Slurm whether it takes a job of these `resources`. No job runs.

    Raises:
        UsageError: there is no Slurm here, or it refuses the job.
    """
    if shutil.which("sbatch") is None:
        raise UsageError("--backend slurm needs Slurm's sbatch on this machine, and there is none: use a login node")
    if attempt("sbatch", "--test-only", *asked, "--wrap=true") is None:
        # That also fails where no node is up just now. Then a job may wait, and only submitting one tells. A job that
        # is too large for every node passes here, and is refused when the first worker is submitted.
        attempt("scancel", submit("--hold", "--job-name=protein-check", "--output=/dev/null", *asked, "--wrap=true"))


def submit(*words: str) -> str:
    """Submits a job and returns its number. Raises `UsageError` where Slurm refuses it."""
    return call("sbatch", "--parsable", *words).strip().splitlines()[-1].partition(";")[0]


def states(numbers: Sequence[str]) -> Mapping[str, str] | None:
    """Returns the states of jobs by number, without those that Slurm has forgotten; None: it does not answer."""
    try:
        answer = call("squeue", "-h", "-t", "all", "-o", "%i %T", "-j", ",".join(numbers))
    except UsageError as error:
        return {} if _FORGOTTEN in str(error) else None
    return dict(line.split()[:2] for line in answer.splitlines() if len(line.split()) >= 2)


def reasons(numbers: Sequence[str]) -> list[str]:
    """Returns why jobs wait, in Slurm's words, such as Resources or PartitionTimeLimit; none where it is not known."""
    answer = attempt("squeue", "-h", "-t", "PENDING", "-o", "%r", "-j", ",".join(numbers)) if numbers else None
    return [line.strip() for line in (answer or "").splitlines() if line.strip() not in ("", "None")]


def call(*command: str) -> str:
    """Runs one of Slurm's commands and returns what it prints. Raises `UsageError` where that fails.

    Filters that the user has set for squeue and scancel would hide jobs: one that is not seen is taken for ended. So
    would the variables that stand for the options that `parse_options` refuses.
    """
    hiding = ("SQUEUE_", "SCANCEL_", "SBATCH_ARRAY_INX", "SBATCH_WAIT", "SBATCH_CLUSTERS")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hiding)}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{command[0]} does not work: {error}") from error
    if done.returncode:
        words = said(done.stderr) or f"exit code {done.returncode}"
        raise UsageError(f"{command[0]} refused: {words}; see --slurm-options")
    return done.stdout


def attempt(*command: str) -> str | None:
    """Runs one of Slurm's commands and returns what it prints; None: it fails."""
    with contextlib.suppress(UsageError):
        return call(*command)
    return None


def said(text: str) -> str:
    """Returns in one line what a command has printed on several, without who says it and where to read on."""
    lines = [_SPEAKER.sub("", " ".join(line.split())) for line in text.splitlines()]
    kept = [line for line in lines if line and not _ADVICE.match(line)]
    return "; ".join(dict.fromkeys(kept))[:MAX_CHARACTERS]
