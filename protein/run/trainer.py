"""Runs each trial of our trainer as a process of its own on this machine.

Trials are forked from a server that has imported the trainer once, so no trial waits for torch. What they may do, and
what ends them, is in `protein.run.process`. What a trial writes to stderr is in its log.
"""

import contextlib
import json
import time
from pathlib import Path

from protein.files import prepare_folder, write_file
from protein.ports import Job
from protein.run import fork_server, reports
from protein.run.fork_server import MAX_LOG_BYTES
from protein.run.machine import GpuMemory, used_gpu_bytes
from protein.run.process import SILENCE_SECONDS, ProcessBackend, Record, shared_server
from protein.run.speed import limits_here
from protein.trainer.events import parse_line
from protein.trainer.language.config import SAMPLE_FILE
from protein.types import CONTINUABLE, CONTINUABLE_SECONDS, MAX_SCORE, Artifact, Outcome, TrialEnd, TrialState

MAX_LINE_BYTES = 1 << 20  # a longer line is garbage, and is dropped
# All that a trial of either kind imports, but torch's compiler, 816 modules and 68 MB, which few trials need.
PRELOAD = (
    "protein.trainer.__main__",
    "protein.trainer.run",
    "protein.trainer.ppo.training",
    "protein.trainer.ppo.device",
    "protein.trainer.language.training",
    "protein.trainer.machine.stopwatch",
)
CONFIG_FILE, LOG_FILE = "config.json", "trial.log"

# Maps the trainer's failure reasons (`reason` in `protein.trainer.errors`) to ends.
_ENDS = {
    "diverged": TrialEnd.DIVERGED,
    "disk": TrialEnd.DISK,
    "memory": TrialEnd.OUT_OF_MEMORY,
    "process": TrialEnd.CRASHED,
    "environment": TrialEnd.USER_ERROR,
}


class TrainerBackend(ProcessBackend):
    """Implements `protein.ports.Backend` with processes that run the trainer's command line."""

    def __init__(
        self,
        *,
        entry: str = "protein.trainer.__main__:main",
        preload: tuple[str, ...] = PRELOAD,
        silence_seconds: float = SILENCE_SECONDS,
        gpu_memory: GpuMemory = used_gpu_bytes,
    ) -> None:
        """Starts nothing yet.

        Args:
            entry: `module:function` that a trial runs, with the arguments `--config FILE --directory DIR`, with
                `--continue-from FILE` where it continues an earlier trial, and with `--resume FILE` where it goes on
                with its own interrupted run; `--gpu-given` where it was given GPUs.
            preload: modules that the server imports once for all trials. They may start no threads.
            silence_seconds: a trial that prints nothing for so long is killed.
            gpu_memory: see `ProcessBackend`.
        """
        modules = (fork_server.__name__, "multiprocessing.popen_fork", *preload)
        super().__init__(shared_server(modules), silence_seconds=silence_seconds, gpu_memory=gpu_memory)
        self._entry = entry

    def start(self, job: Job) -> None:
        job = limits_here(job, job.speed or 1.0)
        prepare_folder(job.directory)
        config_file, log_file = job.directory / CONFIG_FILE, job.directory / LOG_FILE
        write_file(config_file, json.dumps(job.config, indent=1))
        if job.resumes is None or not log_file.is_file() or log_file.is_symlink():
            write_file(log_file, "")
        arguments = ["--config", str(config_file), "--directory", str(job.directory)]
        if job.resumes is not None:
            arguments += ["--resume", str(job.resumes)]
        if job.continues is not None:
            arguments += ["--continue-from", str(job.continues)]
        if job.resources.gpus:
            arguments += ["--gpu-given"]  # whoever names GPUs wants them to be used
        if len(job.resources.gpus) > 1:
            arguments += ["--nproc", str(len(job.resources.gpus))]
        if job.speed not in (None, 1.0):
            arguments += ["--speed", repr(job.speed)]
        self.start_process(TrainerRecord(job), fork_server.EntryPoint(self._entry, arguments), log=log_file)


class TrainerRecord(Record):
    """What a trial of the trainer has printed so far. It reports its own seconds of training."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._started: float | None = None  # when its `start` message came, after imports and building: training begins
        self._final: reports.Message | None = None  # its `result`, `failed` or `interrupted` message
        self._buffer = b""
        self._garbage: list[bytes] = []  # lines that are no messages, for the log

    def take(self, data: bytes, pipe: str) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._take_line(line)
        if len(self._buffer) > MAX_LINE_BYTES:
            self._buffer = b""
        if self._garbage:
            self._log_garbage()

    def _take_line(self, line: bytes) -> None:
        message = parse_line(line)
        if message is None:
            self._garbage.append(line)
        elif message["event"] == "start":
            self._started = time.monotonic()
        elif message["event"] == "measurement":
            point = reports.measurement_in(message)
            if point is not None and (self.last is None or point.elapsed_seconds >= self.last.elapsed_seconds):
                self.add(point)
        elif message["event"] in ("result", "failed", "interrupted"):
            self._final = message

    def _log_garbage(self) -> None:
        lines, self._garbage = self._garbage, []
        with contextlib.suppress(OSError), (self.job.directory / LOG_FILE).open("ab") as log:
            if log.tell() < MAX_LOG_BYTES:
                log.write(b"\n".join([*lines, b""]))

    def outcome(self) -> Outcome:
        """Returns how the process ended. Only a result with a finite score makes it COMPLETE."""
        final = self._final or {}
        timings = reports.numbers_in(final.get("timings"))
        if self._started is not None:  # measured from outside, so with the start of the process and the imports
            timings["startup"] = self._started - self.process.began
        end, reason, score = self._end()
        return Outcome(
            end=end,
            score=score,
            cost_seconds=self._cost_seconds(self.process.ended_at),
            steps=reports.steps_in(final) or (self.last.steps if self.last else 0),
            reason=reason,
            timings=timings,
            metrics=reports.numbers_in(final.get("metrics")) | self._continuable_seconds(),
        )

    def _continuable_seconds(self) -> dict[str, float]:
        """Returns the metric that says how much lies behind the state that a longer run can go on from, if any."""
        return reports.numbers_in({CONTINUABLE_SECONDS: (self._final or {}).get("continuable_seconds")})

    def _cost_seconds(self, ended_at: float) -> float:
        """Returns the cost that the trainer gave, or else the wall clock of training, of the whole trial.

        It is in reference seconds (`protein.run.speed`), in which the trainer's clock runs, too.
        """
        own = reports.seconds_in(self._final or {})
        if own is not None:
            return own
        reported = self.last.elapsed_seconds if self.last else self.job.spent_seconds
        if self._started is None:
            return reported
        own_seconds = ended_at - self._started - self.process.paused_seconds(self._started, ended_at)
        return max(reported, self.job.spent_seconds + (self.job.speed or 1.0) * own_seconds)

    def _end(self) -> tuple[TrialEnd, str, float | None]:
        """Returns how the process ended, why in words, and the score that counts."""
        final = self._final or {}
        event, score = final.get("event"), reports.score_in(final)
        # The result counts, whatever ends the process after it: a crash as it tidies up, the sweep, its server's death.
        if event == "result" and score is not None:
            end = self.job.at_limit if final.get("stopped") == "max_seconds" else TrialEnd.COMPLETE
            return end, end.text or self.process.after_result(), score
        if self.process.requested_end is None:
            preempted = (
                self.process.preempted(interrupted=event == "interrupted")
                if event not in ("result", "failed")
                else None
            )
            if preempted is not None:
                return TrialEnd.INTERRUPTED, preempted, None
            return *self._failure(), None
        end, reason = self.process.requested_end
        if end.state is TrialState.PRUNED:
            return (*self._failure(), None) if event == "failed" else (end, reason, self.last_score)
        return end, reason, None

    def _failure(self) -> tuple[TrialEnd, str]:
        """Returns how a process that the sweep did not end has failed, and why in words."""
        final, code = self._final or {}, self.process.exit_code
        if final.get("event") == "failed":
            kind, message = str(final.get("reason") or "for no stated reason"), str(final.get("message") or "")
            end = _ENDS.get(kind, TrialEnd.USER_ERROR if self._runs_users_code() else TrialEnd.FAILED)
            return end, message if message.startswith(f"{kind} ") else f"{kind}: {message}".rstrip(": ")
        if final.get("event") == "result":
            return TrialEnd.DIVERGED, f"reported no finite score within {MAX_SCORE:g}"
        killed = self.process.killed()
        return killed or (TrialEnd.CRASHED, f"exited with code {code} and no result{self._end_of_log()}")

    def _runs_users_code(self) -> bool:
        """Whether the environment is not one of ours, as in "python:my_env:make"."""
        return ":" in self.job.config.get("env", {}).get("name", "")

    def _end_of_log(self) -> str:
        """Returns the last line of the trial's log, to end a message with."""
        try:
            text = (self.job.directory / LOG_FILE).read_text(errors="replace").strip()
        except OSError:
            return ""
        return f": {text.splitlines()[-1][:200]}" if text else ""

    def artifacts(self, outcome: Outcome) -> tuple[Artifact, ...]:
        """Returns the files of the trial that exist."""
        found = [
            Artifact(kind="config", path=str(self.job.directory / CONFIG_FILE)),
            Artifact(kind="log", path=str(self.job.directory / LOG_FILE)),
        ]
        for kind, key in (("checkpoint", "checkpoint"), (CONTINUABLE, "continuable")):
            path = (self._final or {}).get(key)
            if isinstance(path, str) and Path(path).is_file():
                found.append(Artifact(kind=kind, path=str(Path(path).resolve())))
        if (self.job.directory / SAMPLE_FILE).is_file():
            found.append(Artifact(kind="sample", path=str(self.job.directory / SAMPLE_FILE)))
        return tuple(found)
