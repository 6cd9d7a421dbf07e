"""Runs each trial as a command of the user's, any program in any language.

A trial is quarantined as in `protein.run.trainer`: a session of its own, limits on time, memory and silence,
SIGTERM and then SIGKILL. Between the sweep and the command stands `supervisor.py`, which leaves no process behind.

How a command ends:

- It exits with 0 and has a score: complete. The score is its `result`, or else the last one that it reported.
- It exits with 0 without a usable score, exits with another code, or dies of a signal: failed, with its last words.
- It costs more than it may: it is stopped, with its last score (`Job.at_limit`).

The cost is the wall clock of the process, its start included, because that is what is paid; or what it reports. A
command that was killed has also spent the time since its last report.
"""

import contextlib
import dataclasses
import json
import os
import selectors
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from protein.ports import Finished, Job, TrialProgress
from protein.run import command_settings as commands
from protein.run import devices, folders, supervisor, usage
from protein.run.command_process import CONFIG_FILE, LOG_FILE, CommandProcess
from protein.run.command_settings import CHECKPOINTS, PARAMS_FILE, CommandSettings
from protein.run.reports import readers
from protein.run.speed import in_reference, limits_here
from protein.types import Direction, Trial, TrialEnd

GRACE_SECONDS = 10.0  # between SIGTERM and SIGKILL: time to write a checkpoint
SILENCE_SECONDS = 3600.0  # unlike our trainer's, an unknown program may have nothing to say for long
MEMORY_CHECK_SECONDS = 1.0
AWAY_SECONDS = 30.0  # between two polls; such time counts towards no limit but that of the cost
FILE_SECONDS = 0.5  # how often a CSV or event file is looked at


class CommandBackend:
    """Implements `protein.ports.Backend` with the user's command, which the jobs' configs hold."""

    def __init__(
        self,
        direction: Direction,
        *,
        silence_seconds: float | None = SILENCE_SECONDS,
        note: Callable[[str], None] | None = None,
        gpu_memory: usage.GpuMemory = devices.used_gpu_bytes,
    ) -> None:
        """Starts nothing yet.

        Args:
            direction: of the scores that the command reports.
            silence_seconds: a command that writes nothing for so long is ended; None: never.
            note: called with what a person should know of a command that behaves oddly, once for each kind.
            gpu_memory: returns the GPU memory in bytes that processes use together, by their ids.
        """
        self._gpu_memory = gpu_memory
        self._polled = time.monotonic()
        self._direction = direction
        self._silence_seconds = silence_seconds
        self._note = note
        self._noted: set[str] = set()
        self._has_reported = False  # any trial of this backend
        self._selector = selectors.DefaultSelector()
        self._server: _Server | None = None
        self._running: dict[int, CommandProcess] = {}
        self._places: dict[int, tuple[float, float]] = {}  # by the trial's id: see `in_reference`

    def num_slots(self) -> int | None:
        return None

    def start(self, job: Job) -> None:
        settings = CommandSettings.from_config(job.config)
        self._places[job.trial.id] = factor, behind = job.speed or 1.0, job.spent_seconds
        here = _of_this_run(job, factor)
        # A symbolic link in the folder's place would be followed, and files elsewhere changed.
        directory = Path(os.path.abspath(job.directory))  # noqa: PTH100
        folders.prepare(directory)
        resumes = _prepare_checkpoints(job, directory / CHECKPOINTS)
        params, seed = job.trial.params, job.config["seed"]
        words = commands.words(settings, params, seed=seed, directory=str(directory), resumes=resumes)
        _write(directory / PARAMS_FILE, json.dumps({**settings.fixed, **params}, indent=1))
        _write(directory / CONFIG_FILE, json.dumps({**job.config, "words": words}, indent=1))
        log = directory / LOG_FILE
        if job.resumes is None or log.is_symlink() or not log.is_file():
            _write(log, "")
        environment = {
            **os.environ,
            **commands.variables(settings, params),
            "PROTEIN_TRIAL": str(job.trial.number),
            "PROTEIN_SEED": str(seed),
            "PROTEIN_DIRECTORY": str(directory),
            "PROTEIN_PARAMS_FILE": str(directory / PARAMS_FILE),
            "PROTEIN_CHECKPOINT_DIR": str(directory / CHECKPOINTS),
        }
        environment.setdefault("PYTHONUNBUFFERED", "1")  # what Python prints into a pipe would come late otherwise
        for name in ("PROTEIN_RESUME", "PROTEIN_MAX_SECONDS", "PROTEIN_REPORT_PIPE"):
            environment.pop(name, None)  # those of a trial in which this sweep runs itself
        if resumes is not None:
            environment["PROTEIN_RESUME"] = "1"
        if (limit := here.config["max_seconds"]) is not None:
            environment["PROTEIN_MAX_SECONDS"] = repr(limit)
        environment.update(devices.environment(job.resources, environment))
        cwd = commands.working_directory(settings, str(directory))
        process = self._spawn(here, words, environment, cwd, directory, behind / factor)
        self._running[job.trial.id] = process
        for stream in process.streams:
            self._selector.register(stream.descriptor, selectors.EVENT_READ, (process, stream))

    def _spawn(
        self,
        job: Job,
        words: list[str],
        environment: dict[str, str],
        cwd: str | None,
        directory: Path,
        behind_seconds: float,
    ) -> CommandProcess:
        # Before the command writes: what is there by now is none of its own, unless it goes on.
        scores = readers(CommandSettings.from_config(job.config), directory, begins=job.resumes is None)
        pipes = [os.pipe() for _ in range(5)]  # control, status, report, stdout, stderr
        (control, control_in), (status_out, status), (report_out, report), (out, out_in), (err, err_in) = pipes
        ours = (control_in, status_out, report_out, out, err)
        what = {"words": words, "environment": environment, "directory": cwd, "cores": job.resources.cores}
        began = time.monotonic()
        try:
            self._send([control, status, report, out_in, err_in])
            os.write(control_in, json.dumps(what).encode() + b"\n")
        except BaseException:
            for descriptor in ours:
                os.close(descriptor)
            raise
        finally:
            for descriptor in (control, status, report, out_in, err_in):
                os.close(descriptor)
        return CommandProcess(
            job=job,
            directory=directory,
            words=words,
            scores=scores,
            direction=self._direction,
            control=control_in,
            status=status_out,
            report=report_out,
            stdout=out,
            stderr=err,
            spawned=began,
            behind_seconds=behind_seconds,
            note=self._tell,
        )

    def _send(self, descriptors: list[int]) -> None:
        """Has the server fork a supervisor with these descriptors. A server that has ended is replaced."""
        for last in (False, True):
            if self._server is None:
                self._server = _Server()
            try:
                socket.send_fds(self._server.socket, [b"."], descriptors)
                return
            except OSError:
                self._server.close()
                self._server = None
                if last:
                    raise

    def _tell(self, kind: str, line: str) -> None:
        if self._note is not None and kind not in self._noted:
            self._noted.add(kind)
            self._note(line)

    def poll(self, timeout_seconds: float) -> list[TrialProgress | Finished]:
        # The status pipe closes when a command has ended, so this returns at once then.
        for key, _ in self._selector.select(self._until_next(timeout_seconds)):
            process, stream = key.data
            if not process.read(stream):
                self._selector.unregister(stream.descriptor)
        events: list[TrialProgress | Finished] = []
        now = time.monotonic()
        if (away := now - self._polled) > AWAY_SECONDS + timeout_seconds:  # this process was stopped, or the machine
            for process in self._running.values():
                process.excuse(away)
        self._polled = now
        for process in list(self._running.values()):
            ended = process.ended
            if ended or now >= process.next_file_check:
                process.next_file_check = now + FILE_SECONDS
                process.read_files()
            if ended:
                process.read_rest()
            self._has_reported = self._has_reported or process.has_reported
            points, cost = process.take_measurements(), process.cost.news(process.wall_cost(now))
            if points or cost is not None:
                progress = TrialProgress(trial=process.job.trial, measurements=points, cost_seconds=cost)
                events.append(in_reference(progress, *self._places[process.job.trial.id]))
            if ended:
                events.append(self._finish(process))
            else:
                self._enforce(process, now)
        return events

    def _until_next(self, timeout_seconds: float) -> float:
        """Returns how long to wait: until a trial reaches the limit of its cost, at most."""
        left = [process.seconds_to_limit() for process in self._running.values() if process.requested_end is None]
        return max(0.0, min([timeout_seconds, *(seconds for seconds in left if seconds is not None)]))

    def stop(self, trial: Trial, end: TrialEnd, reason: str) -> None:
        process = self._running.get(trial.id)
        if process is not None and process.requested_end is None:
            for stream in process.streams:  # what it said before it was told to stop counts
                process.read(stream)
            process.terminate(end, reason, GRACE_SECONDS)

    def close(self) -> None:
        for process in list(self._running.values()):
            process.kill()
            process.wait()
            self._forget(process)
        self._selector.close()
        if self._server is not None:
            self._server.close()
            self._server = None

    def _enforce(self, process: CommandProcess, now: float) -> None:
        job = process.job
        limit = job.max_seconds
        if process.kill_at is not None:
            if now >= process.kill_at:
                process.kill()
        elif (left := process.seconds_to_limit()) is not None and left <= 0:
            process.terminate(job.at_limit, job.at_limit.text, GRACE_SECONDS)
        elif limit is not None and now - process.spawned - process.excused_seconds > limit:
            reason = f"killed after {limit:.0f} s, its limit with start-up and evaluation"
            process.terminate(TrialEnd.HUNG, reason, GRACE_SECONDS)
        elif self._silence_seconds is not None and now - process.last_sign > self._silence_seconds:
            reason = f"killed after {self._silence_seconds:.0f} s without a sign of life; --max-silence changes that"
            process.terminate(TrialEnd.HUNG, reason, GRACE_SECONDS)
        elif now >= process.next_memory_check:
            process.next_memory_check = now + MEMORY_CHECK_SECONDS
            if (exceeded := usage.over_limit(job, process.family, self._gpu_memory)) is not None:
                process.terminate(TrialEnd.OUT_OF_MEMORY, exceeded, GRACE_SECONDS)

    def _finish(self, process: CommandProcess) -> Finished:
        process.end_left_behind()
        outcome = process.outcome(others_reported=self._has_reported or process.job.others_reported)
        finished = Finished(trial=process.job.trial, outcome=outcome, artifacts=process.artifacts(outcome))
        finished = in_reference(finished, *self._places[process.job.trial.id])
        self._forget(process)
        return finished

    def _forget(self, process: CommandProcess) -> None:
        for stream in process.streams:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(stream.descriptor)
        process.close()
        del self._running[process.job.trial.id], self._places[process.job.trial.id]


def _of_this_run(job: Job, factor: float) -> Job:
    """Returns the job with what this run of the trial may cost, in seconds of this machine."""
    limit = job.config["max_seconds"]
    rest = None if limit is None else max(limit - job.spent_seconds, 0.0)
    return limits_here(dataclasses.replace(job, config={**job.config, "max_seconds": rest}), factor)


class _Server:
    """The process that forks supervisors."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        with theirs:
            words = [sys.executable, "-I", "-S", supervisor.__file__, str(theirs.fileno())]
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def close(self) -> None:
        """Ends it. Supervisors that run stay."""
        self.socket.close()
        self._process.wait()


def _prepare_checkpoints(job: Job, checkpoints: Path) -> Path | None:
    """Makes the trial's folder of checkpoints, and returns it if it holds what the trial goes on from.

    What an earlier sweep has left there is removed. What a continued trial has left is copied, so that it stays as it
    is.
    """
    if job.resumes is not None:
        if job.resumes != checkpoints and job.resumes.resolve() != checkpoints.resolve():
            _copy(job.resumes, checkpoints)
        return checkpoints
    _remove(checkpoints)
    if job.continues is not None:
        # Not where it is looked for until it is whole: after a kill, half a copy would be taken for the trial's own.
        part = checkpoints.with_name(f"{checkpoints.name}.part")
        _remove(part)
        _copy(job.continues, part)
        part.rename(checkpoints)
        return checkpoints
    checkpoints.mkdir()
    return None


def _remove(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    else:
        target.mkdir(exist_ok=True)
        shutil.copy2(source, target / source.name)


def _write(path: Path, text: str) -> None:
    """Writes a file anew. A symbolic link in its place is replaced, not followed."""
    if path.is_symlink():
        path.unlink()
    path.write_text(text)
