"""One running command: its pipes, what comes through them, how it is ended, and what its end means for its trial."""

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

from protein.ports import Job
from protein.run import command_outcome, reports
from protein.run.command_outcome import MAX_WORDS
from protein.run.command_reports import CommandReports
from protein.run.command_settings import CHECKPOINTS, CommandSettings
from protein.run.reports import FileReader, PatternReader
from protein.run.told_cost import ToldCost
from protein.types import (
    CONTINUABLE,
    CONTINUABLE_SECONDS,
    PREEMPTED,
    Artifact,
    Direction,
    Measurement,
    Outcome,
    TrialEnd,
    TrialState,
)

READ_BYTES = 1 << 16
MAX_READS = 16  # of a pipe in one poll: a command that prints without end must not hold up the others
MAX_LOG_BYTES = 16 << 20
MAX_LINE_BYTES = 1 << 20  # a longer line is garbage, and is dropped
CONFIG_FILE, LOG_FILE = "config.json", "trial.log"
_BREAK = re.compile(rb"[\r\n]+")  # progress bars go back to the start of their line


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
        scores: tuple[PatternReader | None, FileReader | None],
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
            scores: what reads its scores, made before it was started.
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
        self._pattern, self._file = scores
        self._status: dict[str, Any] = {}  # what the supervisor has said
        # Reports without steps are counted on from here. Files still hold the rows of an interrupted run.
        counted_from = 0 if self._file is not None or self._settings.steps else job.steps_behind
        self.heard = CommandReports(
            job,
            direction,
            counted_from=counted_from,
            spawned=spawned,
            behind_seconds=behind_seconds,
            remark=self._remark,
        )
        self._result_before_end = False  # its result had come before it was told to end
        self.cost = ToldCost()
        self._last_words = ""
        self._log: BinaryIO | None = None
        self._log_path = self.directory / LOG_FILE
        self._log_bytes = self._log_path.stat().st_size if self._log_path.is_file() else 0
        for stream in self.streams:
            os.set_blocking(stream.descriptor, False)

    @property
    def has_reported(self) -> bool:
        """Whether it has said anything of its score."""
        return self.heard.said is not None

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
            first, *others = _BREAK.split(chunk)  # not with what was there before: a line may be very long
            stream.buffer += first
            if others:
                for line in (stream.buffer, *others[:-1]):
                    self._take(stream, line)
                stream.buffer = others[-1]
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
        if "seconds" in self._status:  # the sweep may have been held up since, as by a store that was away
            self.heard.end_at(float(self._status["seconds"]))

    def read_files(self) -> None:
        """Reads what is new in the file that the score is read from, if it is a file."""
        if self._file is not None:
            for said in self._file.read(complete=self.ended and self._status.get("code") == 0):
                self.last_sign = time.monotonic()
                self.heard.add(said, spawned=self.spawned)

    def take_measurements(self) -> tuple[Measurement, ...]:
        return self.heard.take_measurements()

    def terminate(self, end: TrialEnd, reason: str, grace_seconds: float) -> None:
        """Asks the command to end; it is killed when the time of grace is over."""
        self.requested_end = (end, reason)
        self._result_before_end = self.heard.result is not None
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
        if self.heard.cost_seconds is not None:
            return 0.0 if self.heard.cost_seconds >= limit else None
        return float(limit) - self._wall_seconds(time.monotonic())

    def wall_cost(self, now: float) -> float | None:
        """Returns what this run has cost by now where that is its wall clock; None: it reports its cost itself."""
        return None if self.heard.cost_seconds is not None else self._wall_seconds(now)

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
        """Returns how long it has run by now, or until it ended."""
        ended_after = self._status.get("seconds")
        return now - self.spawned if ended_after is None else float(ended_after)

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
            self.heard.add(said, spawned=self.spawned)

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
            self._log = self._log or self._log_path.open("ab", buffering=0)
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
        metrics = dict(self.heard.result.metrics) if self.heard.result is not None else {}
        if end is TrialEnd.COMPLETE and self._left_state():
            metrics[CONTINUABLE_SECONDS] = cost
        final_steps = None if self.heard.result is None else self.heard.result.steps
        steps = self.job.steps_behind if self.heard.last is None else self.heard.last.steps
        steps = steps if final_steps is None else final_steps
        return Outcome(
            end=end, score=score, cost_seconds=cost, steps=steps, reason=reason, timings=timings, metrics=metrics
        )

    def _final_cost_seconds(self) -> float:
        now = time.monotonic()
        wall = self._status.get("seconds")
        whole = self._wall_seconds(now)
        if self.heard.cost_seconds is None:
            return max(whole, self.heard.last.elapsed_seconds if self.heard.last else 0.0)
        killed = self._status.get("code") is None or self._status["code"] < 0
        ended_at = now if wall is None else self.spawned + float(wall)  # the sweep may look much later
        return self.heard.cost_seconds + (max(ended_at - self.heard.cost_at, 0.0) if killed else 0.0)

    def _end(self, *, others_reported: bool) -> tuple[TrialEnd, str, float | None]:
        """Returns how the command ended, why in words, and the score that counts."""
        code = self._status.get("code")
        if self.requested_end is not None and code is not None:
            by_itself = not self._status.get("signalled") or (code == 0 and self._result_before_end)
        else:
            by_itself = self.requested_end is None
        if self.requested_end is None and self._status.get("outside") and not (code == 0 and self.heard.result):
            return TrialEnd.INTERRUPTED, f"{PREEMPTED}SIGTERM from outside ended it", None
        if by_itself:
            return command_outcome.own_end(
                self._status,
                self.heard,
                self._direction,
                program=self.words[0],
                last_words=self._last_words,
                what_was_missing=lambda: command_outcome.missing(self._settings, self._file, self._last_words),
                others_reported=others_reported,
            )
        assert self.requested_end is not None
        end, reason = self.requested_end
        return end, reason, self.heard.last_score if end.state is TrialState.PRUNED else None

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
        if CONTINUABLE_SECONDS in outcome.metrics:
            found.append(Artifact(kind=CONTINUABLE, path=str(self.directory / CHECKPOINTS)))
        return tuple(found)
