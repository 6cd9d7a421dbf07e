"""One running command: its pipes, what it has said so far, and how it has ended."""

import contextlib
import dataclasses
import json
import math
import os
import re
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import psutil

from protein.direction import stored_score
from protein.ports import Job
from protein.sweep import continuing
from protein.sweep.backends.told_cost import ToldCost
from protein.sweep.commands import reports
from protein.sweep.commands.readers import readers
from protein.sweep.commands.reports import Said
from protein.sweep.commands.settings import CHECKPOINTS, CommandSettings
from protein.types import (
    MAX_SCORE,
    PREEMPTED,
    Artifact,
    Direction,
    Measurement,
    Outcome,
    TrialEnd,
    TrialState,
    is_score,
)

READ_BYTES = 1 << 16
MAX_READS = 16  # of a pipe in one poll: a command that prints without end must not hold up the others
MAX_LOG_BYTES = 16 << 20
MAX_LINE_BYTES = 1 << 20  # a longer line is garbage, and is dropped
MAX_WORDS = 200  # characters of a command's last words in a reason
CONFIG_FILE, LOG_FILE = "config.json", "trial.log"
_OUTSIDE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # who sends these ends more than one trial
_BREAK = re.compile(rb"[\r\n]+")  # progress bars go back to the start of their line
_NO_MEMORY = re.compile(r"MemoryError|std::bad_alloc|out of memory", re.IGNORECASE)
_NO_SPACE = re.compile(r"No space left on device|Errno 28|Disk quota exceeded")


@dataclasses.dataclass(eq=False)
class Stream:
    """One pipe from the command, and the line that has only begun."""

    name: str
    descriptor: int
    buffer: bytes = b""
    closed: bool = False


class CommandProcess:
    """A command that runs, or has run, as one trial."""

    def __init__(
        self,
        *,
        job: Job,
        directory: Path,
        direction: Direction,
        words: list[str],
        control: int,
        status: int,
        report: int,
        stdout: int,
        stderr: int,
        spawned: float,
        behind_seconds: float,
        note: Callable[[str, str], None],
    ) -> None:
        """Takes over the sweep's ends of the pipes.

        Args:
            job: of the trial.
            directory: the trial's folder, absolute.
            direction: of the scores that it reports.
            words: the command line.
            control: written to, to end it.
            status: what the supervisor says of it.
            report: JSON lines and nothing else.
            stdout: what it prints.
            stderr: the same.
            spawned: when it was started, on the monotonic clock.
            behind_seconds: what an interrupted run of the trial has cost already. Costs here are of this run alone.
            note: called with a kind and a line for what a person should know.
        """
        self.job, self.directory, self.words, self.spawned = job, directory, words, spawned
        self.requested_end: tuple[TrialEnd, str] | None = None  # how and why the sweep ends it; None: it has not
        self.kill_at: float | None = None
        self.last_sign = spawned
        self.excused_seconds = 0.0  # of wall clock that count towards no limit
        self.next_memory_check = self.next_file_check = 0.0
        self.streams = [Stream("status", status), Stream("report", report)]
        self.streams += [Stream("stdout", stdout), Stream("stderr", stderr)]
        self._direction, self._control, self._note = direction, control, note
        self._settings = CommandSettings.from_config(job.config)
        self._pattern, self._file = readers(self._settings, directory)
        self._status: dict[str, Any] = {}  # what the supervisor has said
        # Reports without steps are counted on from here. Files still hold the rows of an interrupted run.
        self._counted_from = 0 if self._file is not None or self._settings.steps else job.steps_behind
        self._fresh: list[Measurement] = []
        self._last: Measurement | None = None
        self._last_score: float | None = None  # of its curve, to be maximised
        self._said: Said | None = None  # the last report with a score, usable or not
        self._result: Said | None = None
        self._result_before_end = False  # its result had come before it was told to end
        self.cost = ToldCost()
        self._cost_seconds: float | None = None  # the last that it has reported, of this run
        self._behind, self._counts_from = behind_seconds, 0.0
        self._cost_at = spawned
        self._last_words = ""
        self._log: BinaryIO | None = None
        self._log_bytes = 0
        for stream in self.streams:
            os.set_blocking(stream.descriptor, False)

    @property
    def has_reported(self) -> bool:
        """Whether it has said anything of its score."""
        return self._said is not None

    @property
    def ended(self) -> bool:
        """Whether nothing of the command runs any more."""
        return self.streams[0].closed

    def read(self, stream: Stream) -> bool:
        """Reads what a pipe holds, up to `MAX_READS` times. Returns False once it is closed."""
        for _ in range(MAX_READS):
            if stream.closed:
                break
            try:
                chunk = os.read(stream.descriptor, READ_BYTES)
            except BlockingIOError:
                break
            if not chunk:
                stream.closed = True
                break
            self.last_sign = time.monotonic()
            if stream.name in ("stdout", "stderr"):
                self._write_log(chunk)
            *lines, stream.buffer = _BREAK.split(stream.buffer + chunk)
            for line in lines:
                self._take(stream, line)
            if len(stream.buffer) > MAX_LINE_BYTES:
                stream.buffer = b""
        if stream.closed and stream.buffer:
            self._take(stream, stream.buffer)
            stream.buffer = b""
        return not stream.closed

    def read_rest(self) -> None:
        """Reads what a command that has ended has left in its pipes."""
        for stream in self.streams[1:]:
            while True:
                before = self.last_sign
                if not self.read(stream) or self.last_sign == before:
                    break
            if stream.buffer:
                self._take(stream, stream.buffer)
                stream.buffer = b""

    def read_files(self) -> None:
        """Reads what is new in the file that the score is read from, if it is a file."""
        if self._file is not None:
            for said in self._file.read():
                self.last_sign = time.monotonic()
                self._add(said)

    def take_measurements(self) -> tuple[Measurement, ...]:
        points, self._fresh = tuple(self._fresh), []
        return points

    def terminate(self, end: TrialEnd, reason: str, grace_seconds: float) -> None:
        """Asks the command to end; it is killed when the time of grace is over."""
        self.requested_end = (end, reason)
        self._result_before_end = self._result is not None
        self.kill_at = time.monotonic() + grace_seconds
        self._ask(b"T")

    def kill(self) -> None:
        self.kill_at = math.inf
        self._ask(b"K")

    def end_left_behind(self) -> None:
        """Kills the command's session where its supervisor was killed, and could not do it."""
        if "code" not in self._status and "pid" in self._status:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(int(self._status["pid"]), signal.SIGKILL)

    def wait(self) -> None:
        """Waits until nothing of it runs any more."""
        while not self.ended:
            select.select([self.streams[0].descriptor], [], [])
            self.read(self.streams[0])

    def _ask(self, what: bytes) -> None:
        with contextlib.suppress(OSError):  # it has ended
            os.write(self._control, what)

    def close(self) -> None:
        for descriptor in (self._control, *(stream.descriptor for stream in self.streams)):
            os.close(descriptor)
        if self._log is not None:
            self._log.close()

    def seconds_to_limit(self) -> float | None:
        """Returns how long the command may still run by its clock or its reports; None: without a limit."""
        limit = self.job.config["max_seconds"]
        if limit is None or self.requested_end is not None:
            return None
        if self._cost_seconds is not None:
            return 0.0 if self._cost_seconds >= limit else None
        return float(limit) - self._wall_seconds(time.monotonic())

    def wall_cost(self, now: float) -> float | None:
        """Returns what this run has cost by now where that is its wall clock; None: it reports its cost itself."""
        return None if self._cost_seconds is not None else self._wall_seconds(now)

    def excuse(self, seconds: float) -> None:
        """Counts the last `seconds`, or all since its start, towards no limit but that of its cost."""
        self.excused_seconds += min(seconds, time.monotonic() - self.spawned - self.excused_seconds)
        self.last_sign = time.monotonic()

    def family(self) -> list[psutil.Process]:
        """Returns the command and all its descendants."""
        with contextlib.suppress(psutil.Error, KeyError):  # it may not have said who it is yet
            return list(psutil.Process(self._status["supervisor"]).children(recursive=True))
        return []

    def _wall_seconds(self, now: float) -> float:
        return now - self.spawned

    def _take(self, stream: Stream, line: bytes) -> None:
        if stream.name == "status":
            with contextlib.suppress(ValueError):
                self._status |= json.loads(line)
            self.spawned = self._status.get("began", self.spawned)
            return
        said = None
        if stream.name == "report":
            said = reports.from_json(line, any_field=True)
        else:
            if text := line.strip():
                self._last_words = text[: 4 * MAX_WORDS].decode(errors="replace")
            if self._pattern is not None:
                said = self._pattern.read(line)
            elif stream.name == "stdout" and self._settings.score_from == "lines":
                said = reports.from_json(line)
        if said is not None:
            self._add(said)

    def _add(self, said: Said) -> None:
        """Takes a report into the curve, and keeps it if its score may be the final one."""
        now = time.monotonic()
        if said.cost_seconds is not None:
            if self._cost_seconds is None:  # a command that resumes may go on from the cost that it had
                self._counts_from = self._behind if said.cost_seconds >= self._behind else 0.0
            self._cost_seconds = max(said.cost_seconds - self._counts_from, self._cost_seconds or 0.0)
            self._cost_at = now
        if said.score is not None or said.is_result:
            self._said = said
        if said.is_result:
            self._result = said
            return
        score = said.score
        if score is not None and not is_score(score):
            self._remark("score", f"reported the score {said.shown or score}: it is left out of the curve")
            score = None
        before = 0 if self._last is None else self._last.steps
        counted = self._counted_from if self._last is None else before
        steps = counted + 1 if said.steps is None else said.steps
        if steps < before:
            if self.job.resumes is not None and steps <= self.job.steps_behind:
                return  # it goes on from a checkpoint, and repeats what it had told before
            self._remark("steps", f"reported {steps} steps after {before}: such points are left out of the curve")
            return
        point = Measurement(
            steps=steps,
            elapsed_seconds=self._wall_seconds(now) if self._cost_seconds is None else self._cost_seconds,
            score=stored_score(score, self._direction),
            metrics=said.metrics,
        )
        self._last = point
        self._last_score = self._last_score if point.score is None else point.score
        self._fresh.append(point)

    def _remark(self, kind: str, text: str) -> None:
        self._write_log(f"protein: {text}\n".encode())
        self._note(kind, f"trial {self.job.trial.number} {text} (said once; the trials' logs have the others)")

    def _write_log(self, data: bytes) -> None:
        """Appends to the trial's log, up to `MAX_LOG_BYTES`."""
        if self._log_bytes >= MAX_LOG_BYTES:
            return
        data = data[: MAX_LOG_BYTES - self._log_bytes]
        self._log_bytes += len(data)
        if self._log_bytes >= MAX_LOG_BYTES:
            data += b"\nprotein: the log is full, the rest is left out\n"
        with contextlib.suppress(OSError):
            self._log = self._log or (self.directory / LOG_FILE).open("ab", buffering=0)
            self._log.write(data)

    def outcome(self, *, others_reported: bool) -> Outcome:
        """Returns how the command has ended.

        Args:
            others_reported: whether any trial of the sweep has reported, so that reporting works as such.
        """
        end, reason, score = self._end(others_reported=others_reported)
        timings = {}
        if "cpu_seconds" in self._status:
            timings = {"cpu": float(self._status["cpu_seconds"])}
        cost = self._final_cost_seconds()
        metrics = dict(self._result.metrics) if self._result is not None else {}
        if end is TrialEnd.COMPLETE and self._left_state():
            metrics[continuing.SECONDS] = cost
        final_steps = None if self._result is None else self._result.steps
        steps = self.job.steps_behind if self._last is None else self._last.steps
        steps = steps if final_steps is None else final_steps
        return Outcome(
            end=end, score=score, cost_seconds=cost, steps=steps, reason=reason, timings=timings, metrics=metrics
        )

    def _final_cost_seconds(self) -> float:
        now = time.monotonic()
        wall = self._status.get("seconds")
        whole = self._wall_seconds(now) if wall is None else float(wall)
        if self._cost_seconds is None:
            return max(whole, self._last.elapsed_seconds if self._last else 0.0)
        killed = self._status.get("code") is None or self._status["code"] < 0
        ended_at = now if wall is None else self.spawned + float(wall)  # the sweep may look much later
        return self._cost_seconds + (max(ended_at - self._cost_at, 0.0) if killed else 0.0)

    def _end(self, *, others_reported: bool) -> tuple[TrialEnd, str, float | None]:
        """Returns how the command ended, why in words, and the score that counts."""
        code = self._status.get("code")
        if self.requested_end is not None and code is not None:
            by_itself = not self._status.get("signalled") or (code == 0 and self._result_before_end)
        else:
            by_itself = self.requested_end is None
        if by_itself:
            return self._own_end(code, others_reported=others_reported)
        assert self.requested_end is not None
        end, reason = self.requested_end
        return end, reason, self._last_score if end.state is TrialState.PRUNED else None

    def _own_end(self, code: int | None, *, others_reported: bool) -> tuple[TrialEnd, str, float | None]:
        """The same for a command that the sweep has not ended."""
        if "error" in self._status:
            return TrialEnd.MISTAKE, f"'{self.words[0]}' cannot be started: {self._status['error']}", None
        if code is None:
            return TrialEnd.INTERRUPTED, f"{PREEMPTED}its supervisor was killed", None
        words = f": {' '.join(self._last_words.split())[:MAX_WORDS]}" if self._last_words else ""
        if -code in _OUTSIDE:
            return TrialEnd.INTERRUPTED, f"{PREEMPTED}{signal.Signals(-code).name} from outside ended it", None
        if code < 0:
            hint = " (out of memory?)" if -code == signal.SIGKILL else ""
            return TrialEnd.CRASHED, f"killed by {signal.Signals(-code).name}{hint}{words}", None
        if code > 0:
            end = TrialEnd.USER_ERROR
            if _NO_MEMORY.search(words):
                end = TrialEnd.OUT_OF_MEMORY
            elif _NO_SPACE.search(words):
                end = TrialEnd.DISK
            return end, f"exited with code {code}{words}", None
        said = self._result or self._said
        if said is None:
            end = TrialEnd.CRASHED if others_reported else TrialEnd.MISTAKE
            return end, f"exited without a score: {self._what_was_missing()}", None
        score = said.score
        if score is None or not is_score(score):
            shown = said.shown or score
            return TrialEnd.DIVERGED, f"its last score is {shown}, which is no finite score within {MAX_SCORE:g}", None
        return TrialEnd.COMPLETE, TrialEnd.COMPLETE.text, stored_score(score, self._direction)

    def _what_was_missing(self) -> str:
        settings = self._settings
        if self._file is not None:
            return self._file.missing()
        if settings.score_from == "regex":
            last = f"; its last line: {self._last_words[:MAX_WORDS]}" if self._last_words else "; it printed nothing"
            return f"no line matched '{settings.score}'{last}"
        return (
            'it printed no line such as {"score": 0.5} and did not call protein.report; --score-regex, --score-csv and'
            f" --score-tensorboard read programs as they are{reports.unread(self._last_words[:MAX_WORDS])}"
        )

    def _left_state(self) -> bool:
        with contextlib.suppress(OSError):
            return any((self.directory / CHECKPOINTS).iterdir())
        return False

    def artifacts(self, outcome: Outcome) -> tuple[Artifact, ...]:
        """Returns the files of the trial: its config, its log, and what a longer run can go on from."""
        found = [
            Artifact(kind="config", path=str(self.directory / CONFIG_FILE)),
            Artifact(kind="log", path=str(self.directory / LOG_FILE)),
        ]
        if continuing.SECONDS in outcome.metrics:
            found.append(Artifact(kind=continuing.ARTIFACT, path=str(self.directory / CHECKPOINTS)))
        return tuple(found)
