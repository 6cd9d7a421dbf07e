"""Runs each trial as a process of its own on this machine.

Trials are forked from a server process that has imported the trainer once (`child.py`), so no trial waits for torch.

A trial cannot harm the sweep. It has its own process group and dies with the sweep. It is killed when it exceeds its
wall-clock limit or its memory limit, or after a long silence. A crash, a hang, garbage in the output and lack of memory
each end that trial alone: the reason is in its outcome, and what it wrote to stderr is in its log.
"""

import contextlib
import dataclasses
import json
import multiprocessing
import os
import selectors
import signal
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import psutil

from protein.ports import Finished, Job, TrialProgress
from protein.sweep import continuing
from protein.sweep.backends import child, messages
from protein.types import MAX_SCORE, Artifact, Measurement, Outcome, Trial, TrialEnd, TrialState

GRACE_SECONDS = 10.0  # between SIGTERM and SIGKILL: time to write a checkpoint
SILENCE_SECONDS = 600.0  # a process that prints nothing for so long hangs; compiling a large model may take minutes
MEMORY_CHECK_SECONDS = 1.0
READ_BYTES = 1 << 16
MAX_READS = 16  # of the pipe in one poll: a trial that prints without end must not hold up the others
MAX_LOG_BYTES = 16 << 20  # what a trial prints beside its messages is kept up to this size
MAX_LINE_BYTES = 1 << 20  # a longer line is garbage, and is dropped
# The first optimiser that is made imports torch._dynamo, which takes as long as torch itself.
PRELOAD = ("protein.trainer.__main__", "protein.trainer.run", "torch._dynamo")
CONFIG_FILE, LOG_FILE = "config.json", "trial.log"

# Maps the trainer's failure reasons (`reason` in `protein.trainer.errors`) to ends.
_ENDS = {
    "diverged": TrialEnd.DIVERGED,
    "disk": TrialEnd.DISK,
    "memory": TrialEnd.OUT_OF_MEMORY,
    "process": TrialEnd.CRASHED,
}


class LocalBackend:
    """Implements `protein.ports.Backend` with processes that run the trainer's command line.

    A script that uses this must guard its entry point with `if __name__ == "__main__"`, as with all of multiprocessing.
    """

    def __init__(
        self,
        *,
        entry: str = "protein.trainer.__main__:main",
        preload: tuple[str, ...] = PRELOAD,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        """Starts nothing yet.

        Args:
            entry: `module:function` that a trial runs, with the arguments `--config FILE --directory DIR`, and
                `--continue-from FILE` where it continues an earlier trial.
            preload: modules that the server imports once for all trials. They may start no threads.
            silence_seconds: a trial that prints nothing for so long is killed.
        """
        self._entry = entry
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([child.__name__, *preload])
        self._silence_seconds = silence_seconds
        self._selector = selectors.DefaultSelector()
        self._running: dict[int, _Process] = {}

    def num_slots(self) -> int | None:
        return None

    def start(self, job: Job) -> None:
        job.directory.mkdir(parents=True, exist_ok=True)
        config_file = job.directory / CONFIG_FILE
        config_file.write_text(json.dumps(job.config, indent=1))
        log_file = job.directory / LOG_FILE
        log_file.write_bytes(b"")
        arguments = ["--config", str(config_file), "--directory", str(job.directory)]
        if job.continues is not None:
            arguments += ["--continue-from", str(job.continues)]
        output, childs_end = self._context.Pipe(duplex=False)
        safe_path = os.environ.get(child.SAFE_PATH)
        worker = self._context.Process(target=child.run, args=(self._entry, arguments, childs_end, log_file, safe_path))
        try:
            with _without_working_directory():
                worker.start()  # starts the server, too, where none runs
        except BaseException:
            output.close()
            raise
        finally:
            childs_end.close()
        os.set_blocking(output.fileno(), False)
        process = _Process(job=job, worker=worker, output=output)
        self._running[job.trial.id] = process
        self._selector.register(output, selectors.EVENT_READ, process)

    def poll(self, timeout_seconds: float) -> list[TrialProgress | Finished]:
        # The pipe closes when the process ends, so this returns at once then.
        for key, _ in self._selector.select(timeout_seconds):
            process: _Process = key.data
            if not process.read():
                self._selector.unregister(key.fileobj)
        events: list[TrialProgress | Finished] = []
        for process in list(self._running.values()):
            if process.closed:  # it is about to end
                process.worker.join(timeout=0.05)
            ended = process.worker.exitcode is not None
            if ended:
                process.read()
            if points := process.take_measurements():
                events.append(TrialProgress(trial=process.job.trial, measurements=points))
            if ended:
                events.append(self._finish(process))
            else:
                self._enforce(process)
        return events

    def stop(self, trial: Trial, end: TrialEnd, reason: str) -> None:
        process = self._running.get(trial.id)
        if process is not None and process.requested_end is None:
            process.terminate(end, reason)

    def close(self) -> None:
        for process in list(self._running.values()):
            process.kill()
            process.worker.join()
            self._forget(process)
        self._selector.close()

    def _enforce(self, process: "_Process") -> None:
        now, limits = time.monotonic(), process.job
        if process.kill_at is not None:
            if now >= process.kill_at:
                process.kill()
        elif limits.max_seconds is not None and now - process.spawned > limits.max_seconds:
            reason = f"killed after {limits.max_seconds:.0f} s, its limit with start-up and evaluation"
            process.terminate(TrialEnd.HUNG, reason)
        elif now - process.last_sign > self._silence_seconds:
            process.terminate(TrialEnd.HUNG, f"killed after {self._silence_seconds:.0f} s without a sign of life")
        elif limits.max_memory_bytes is not None and now >= process.next_memory_check:
            process.next_memory_check = now + MEMORY_CHECK_SECONDS
            used = _resident_bytes(process.pid)
            if used > limits.max_memory_bytes:
                limit = limits.max_memory_bytes
                reason = f"killed at {used / 2**30:.1f} GiB of memory, over its limit of {limit / 2**30:.1f} GiB"
                process.terminate(TrialEnd.OUT_OF_MEMORY, reason)

    def _finish(self, process: "_Process") -> Finished:
        process.kill()  # processes of its group that it left behind
        finished = Finished(trial=process.job.trial, outcome=process.outcome(), artifacts=process.artifacts())
        self._forget(process)
        return finished

    def _forget(self, process: "_Process") -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(process.output)
        process.output.close()
        process.worker.close()
        del self._running[process.job.trial.id]


@dataclasses.dataclass(eq=False)
class _Process:
    """One running trial and what it has printed so far."""

    job: Job
    worker: ForkServerProcess
    output: Connection
    spawned: float = dataclasses.field(default_factory=time.monotonic)
    last_sign: float = dataclasses.field(default_factory=time.monotonic)
    started: float | None = None  # when its `start` message came, after imports and building; training begins then
    requested_end: tuple[TrialEnd, str] | None = None  # how and why the sweep ends it; None: the sweep has not ended it
    kill_at: float | None = None
    next_memory_check: float = 0.0
    buffer: bytes = b""
    closed: bool = False
    garbage: list[bytes] = dataclasses.field(default_factory=list)  # lines that are no messages, for the log
    fresh: list[Measurement] = dataclasses.field(default_factory=list)
    last: Measurement | None = None
    last_score: float | None = None  # of its curve
    final: messages.Message | None = None  # its `result` or `failed` message

    @property
    def pid(self) -> int:
        assert self.worker.pid is not None
        return self.worker.pid

    @property
    def exitcode(self) -> int:
        """The exit code of a process that has ended; negative: the signal that killed it."""
        assert self.worker.exitcode is not None
        return self.worker.exitcode

    def read(self) -> bool:
        """Reads what the pipe holds, up to `MAX_READS` times. Returns False once the pipe is closed."""
        for _ in range(MAX_READS):
            if self.closed:
                break
            try:
                chunk = os.read(self.output.fileno(), READ_BYTES)
            except BlockingIOError:
                break
            if not chunk:
                self.closed = True
                break
            self.last_sign = time.monotonic()
            *lines, self.buffer = (self.buffer + chunk).split(b"\n")
            for line in lines:
                self._take(line)
            if len(self.buffer) > MAX_LINE_BYTES:
                self.buffer = b""
        if self.garbage:
            self._log_garbage()
        return not self.closed

    def _take(self, line: bytes) -> None:
        message = messages.parse_line(line)
        if message is None:
            self.garbage.append(line)
        elif message["event"] == "start":
            self.started = time.monotonic()
        elif message["event"] == "measurement":
            point = messages.measurement(message)
            if point is not None and (self.last is None or point.elapsed_seconds >= self.last.elapsed_seconds):
                self.last = point
                self.last_score = self.last_score if point.score is None else point.score
                self.fresh.append(point)
        elif message["event"] in ("result", "failed", "interrupted"):
            self.final = message

    def _log_garbage(self) -> None:
        lines, self.garbage = self.garbage, []
        with contextlib.suppress(OSError), (self.job.directory / LOG_FILE).open("ab") as log:
            if log.tell() < MAX_LOG_BYTES:
                log.write(b"\n".join([*lines, b""]))

    def take_measurements(self) -> tuple[Measurement, ...]:
        points, self.fresh = tuple(self.fresh), []
        return points

    def terminate(self, end: TrialEnd, reason: str) -> None:
        self.requested_end = (end, reason)
        self.kill_at = time.monotonic() + GRACE_SECONDS
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        """Signals the trial's process group, or the process alone while it has not made its own group yet."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            if self.worker.exitcode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, number)

    def outcome(self) -> Outcome:
        """Returns how the process ended. Only a finite score and exit code 0 make it COMPLETE."""
        final = self.final or {}
        timings = messages.numbers(final.get("timings"))
        if self.started is not None:  # measured from outside, so with the start of the process and the imports
            timings["startup"] = self.started - self.spawned
        end, reason, score = self._end()
        return Outcome(
            end=end,
            score=score,
            cost_seconds=self._cost_seconds(),
            steps=messages.steps(final) or (self.last.steps if self.last else 0),
            reason=reason,
            timings=timings,
            metrics=messages.numbers(final.get("metrics")) | self._continuable_seconds(),
        )

    def _continuable_seconds(self) -> dict[str, float]:
        """Returns the metric that says how much lies behind the state that a longer run can go on from, if any."""
        return messages.numbers({continuing.SECONDS: (self.final or {}).get("continuable_seconds")})

    def _cost_seconds(self) -> float:
        """Returns the cost that the trainer gave, or else the wall clock since training began."""
        own = messages.seconds(self.final or {})
        if own is not None:
            return own
        reported = self.last.elapsed_seconds if self.last else 0.0
        return max(reported, time.monotonic() - self.started) if self.started is not None else reported

    def _end(self) -> tuple[TrialEnd, str, float | None]:
        """Returns how the process ended, why in words, and the score that counts."""
        final = self.final or {}
        event, score = final.get("event"), messages.score(final)
        # A result that arrives while the trial is being stopped counts, so that no finished trial is lost.
        if event == "result" and self.exitcode == 0 and score is not None:
            end = self.job.at_limit if final.get("stopped") == "max_seconds" else TrialEnd.COMPLETE
            return end, end.text, score
        if self.requested_end is None:
            return *self._failure(), None
        end, reason = self.requested_end
        if end.state is TrialState.PRUNED:
            return (*self._failure(), None) if event == "failed" else (end, reason, self.last_score)
        return end, reason, None

    def _failure(self) -> tuple[TrialEnd, str]:
        """Returns how a process that the sweep did not end has failed, and why in words."""
        final, code = self.final or {}, self.exitcode
        if final.get("event") == "failed":
            kind, message = str(final.get("reason") or "for no stated reason"), str(final.get("message") or "")
            end = _ENDS.get(kind, TrialEnd.USER_ERROR if self._runs_users_code() else TrialEnd.FAILED)
            return end, message if message.startswith(f"{kind} ") else f"{kind}: {message}".rstrip(": ")
        if final.get("event") == "result":
            if code == 0:
                return TrialEnd.DIVERGED, f"reported no finite score within {MAX_SCORE:g}"
            return TrialEnd.CRASHED, f"exited with code {code} after its result"
        if code < 0:
            hint = " (out of memory?)" if -code == signal.SIGKILL else ""
            return TrialEnd.CRASHED, f"killed by {signal.Signals(-code).name}{hint}"
        return TrialEnd.CRASHED, f"exited with code {code} and no result{self._end_of_log()}"

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

    def artifacts(self) -> tuple[Artifact, ...]:
        """Returns the files of the trial that exist."""
        found = [
            Artifact(kind="config", path=str(self.job.directory / CONFIG_FILE)),
            Artifact(kind="log", path=str(self.job.directory / LOG_FILE)),
        ]
        for kind, key in (("checkpoint", "checkpoint"), (continuing.ARTIFACT, "continuable")):
            path = (self.final or {}).get(key)
            if isinstance(path, str) and Path(path).is_file():
                found.append(Artifact(kind=kind, path=str(Path(path).resolve())))
        return tuple(found)


@contextlib.contextmanager
def _without_working_directory() -> Iterator[None]:
    """Python processes that are started in here do not search the working directory for modules.

    The server of trials begins as `python -c ...`, which would search it first: a `torch.py` there would be imported.
    """
    before = os.environ.get(child.SAFE_PATH)
    os.environ[child.SAFE_PATH] = "1"
    try:
        yield
    finally:
        child.restore(child.SAFE_PATH, before)


def _resident_bytes(pid: int) -> int:
    """Returns the resident memory of a process and all its descendants; 0 once it is gone."""
    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for member in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                total += member.memory_info().rss
    return total
