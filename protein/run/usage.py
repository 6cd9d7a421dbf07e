"""What a trial's processes use of this machine: in sum while they train, and as a curve while they run.

What a trial's processes use while they train is in `Result.timings`, in the machine's own seconds, by these names:

    wall     how long it was watched: from the start of training to its last sign
    cpu      CPU seconds of the trial's processes
    waited   seconds in which it was ready to run, but other programs had the cores. Only Linux tells
             (`protein.trainer.machine.cores`)
    others   CPU seconds of all other programs on the machine

`others / wall` is the mean number of cores that other programs kept busy. `waited` is what they cost the trial.

Processes that have ended cannot be looked at. So a backend marks the start of training and each point of the learning
curve, and the last mark counts. A function and a command train until their process ends: it is looked at every second,
and the system tells its CPU time at the end. What children have used that ended in the meantime counts once they were
waited for.

The curve is a file in the trial's folder, which its watcher writes: a line every second at first, and later one each
time that the trial has become a five-hundredth older. So a line is never far from what it should show, an hour has a
thousand lines, and a night three times as many.
"""

import contextlib
import csv
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from protein.files import prepare_folder
from protein.ports import Job
from protein.run.machine import GpuMemory, busy_seconds, can_measure, family, resident_bytes
from protein.trainer.machine.cores import Thread, Times, thread_times, throttled_seconds, waited_for_others
from protein.types import USAGE_FILE, WAITED, WALL

CPU, OTHERS = "cpu", "others"
MIN_SECONDS_BETWEEN = 0.05  # a mark costs up to a millisecond; a trial that reports all the time needs fewer
CURVE = ("seconds", "cores", "memory_bytes", "gpu_memory_bytes")  # columns of the file
LEAST_SECONDS, LEAST_SHARE = 1.0, 1 / 500  # of its age, between two lines of the curve
_MAX_BYTES = 1 << 20  # that are read
# Seconds on the clock, of CPU, in which a quota stopped its control group, and of CPU of all programs.
_Mark = tuple[float, float, float, float | None]


class Meter:
    """Watches one trial's process and all its descendants."""

    def __init__(self, pid: int, began: float | None = None) -> None:
        """Makes no mark, or the first one at the start of the process.

        Args:
            pid: of the trial's process.
            began: when it was started, just now, if training begins with it; None: training begins later.
        """
        self._pid = pid
        self._first: _Mark | None = None if began is None else (began, 0.0, throttled_seconds(), busy_seconds())
        self._last = self._first
        self._waited_before: dict[Thread, Times] = {}
        self._waited: dict[Thread, Times] = {}
        self.missed = False  # whether the process had ended before the last mark could be made
        self._tells_waits = began is not None and bool(thread_times(os.getpid()))

    @property
    def marked(self) -> bool:
        """Whether the first mark was made."""
        return self._first is not None

    def mark(self) -> None:
        """Notes what was used until now. The first mark is where training begins."""
        now = time.monotonic()
        if self._last is not None and now - self._last[0] < MIN_SECONDS_BETWEEN:
            return
        cpu, waited, seen = 0.0, {}, False
        for member in family(self._pid):
            with contextlib.suppress(psutil.Error):
                cpu += sum(member.cpu_times()[:4])  # user, system, and those of children that were waited for
                waited.update(thread_times(member.pid))
                seen = True
        self.missed = not seen
        if self.missed:
            return
        mark = now, cpu, throttled_seconds(), busy_seconds()
        if self._first is None:
            self._first, self._waited_before = mark, waited
        self._last, self._waited = mark, {**self._waited, **waited}

    def end(self, ended_at: float, cpu_seconds: float) -> None:
        """Makes the last mark at the end of the process, which the system has told of.

        Args:
            ended_at: when that was.
            cpu_seconds: of the process, and of its children that were waited for.
        """
        if self._last is None or ended_at <= self._last[0]:
            return
        before, cpu, throttled, busy = self._last
        share = (ended_at - before) / max(time.monotonic() - before, ended_at - before)  # it may be long ago
        throttled += share * (throttled_seconds() - throttled)
        if busy is not None and (busy_now := busy_seconds()) is not None:
            busy += share * (busy_now - busy)
        self._last = ended_at, max(cpu, cpu_seconds), throttled, busy

    def timings(self) -> dict[str, float]:
        """Returns what was used from the first mark to the last one: see the head of this file. Empty without marks."""
        if self._first is None or self._last is None or self._last is self._first:
            return {}
        (began, cpu_before, throttled_before, busy_before), (ended, cpu, throttled, busy) = self._first, self._last
        used = max(cpu - cpu_before, 0.0)
        found = {WALL: ended - began, CPU: used}
        if self._waited or self._tells_waits:
            throttled -= throttled_before
            found[WAITED] = waited_for_others(self._waited_before, self._waited, throttled, ended - began)
        if busy is not None and busy_before is not None:
            found[OTHERS] = max(busy - busy_before - used, 0.0)
        return found


class Curve:
    """Writes what the processes of one trial use while they run: how many cores, and how much memory.

    What cannot be written is left out: a trial does not end because of it.
    """

    def __init__(self, job: Job, pid: int, began: float) -> None:
        """Writes nothing yet.

        Args:
            job: the trial. Where it goes on after an interruption, so does its file.
            pid: of its process.
            began: when that was started, on the monotonic clock.
        """
        self._file = job.directory / USAGE_FILE
        self._pid, self._behind = pid, job.spent_seconds
        self._began = self._last = began
        self._cpu_seconds = 0.0  # until the last line

    def look(self, gpu_memory: GpuMemory) -> None:
        """Writes a line where it is time for one. `gpu_memory` measures what processes use together on all GPUs."""
        now = time.monotonic()
        if now - self._last < max(LEAST_SECONDS, LEAST_SHARE * (now - self._began)):
            return
        members, cpu_seconds = family(self._pid), 0.0
        for member in members:
            with contextlib.suppress(psutil.Error):
                cpu_seconds += sum(member.cpu_times()[:4])
        memory = resident_bytes(members)
        if memory:
            # Children that ended without being waited for take their seconds along.
            cores = max(cpu_seconds - self._cpu_seconds, 0.0) / (now - self._last)
            gpu = str(gpu_memory([member.pid for member in members])) if can_measure() else ""
            self._write(f"{self._behind + now - self._began:.1f},{cores:.2f},{memory},{gpu}\n")
        self._last, self._cpu_seconds = now, cpu_seconds

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError):
            prepare_folder(self._file.parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(self._file, flags, 0o644), "a") as file:
                file.write(line if file.tell() else f"{','.join(CURVE)}\n{line}")


def read_curve(file: Path) -> Mapping[str, Sequence[float]]:
    """Returns the columns of such a file that have values, by name; none where there is no file that can be read."""
    found: dict[str, list[float]] = {name: [] for name in CURVE}
    try:
        with file.open() as content:
            rows = list(csv.DictReader(content.read(_MAX_BYTES).splitlines()))
    except (OSError, ValueError, csv.Error):
        return {}
    for row in rows:
        with contextlib.suppress(ValueError, TypeError):  # a line that is being written
            values = [float(row[name]) for name in CURVE if row.get(name)]
            if len(values) >= len(CURVE) - 1:
                for name, value in zip(CURVE, values, strict=False):
                    found[name].append(value)
    return {name: values for name, values in found.items() if values and len(values) == len(found["seconds"])}
