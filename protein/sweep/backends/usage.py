"""What a trial's processes use of the machine while they train, beside the wall clock.

All of it is in the machine's own seconds, under these names in `Result.timings`:

    wall     how long it was watched: from the start of training to its last sign
    cpu      CPU seconds of the trial's processes
    waited   seconds in which a thread of it was ready to run, but other programs had the cores: of the thread that
             waited longest, because the others wait for that one. Only Linux tells
    others   CPU seconds of all other programs on the machine

`others / wall` is the mean number of cores that other programs kept busy. `waited` is what they cost the trial.

Processes that have ended cannot be looked at. So a backend marks the start of training and each sign of life, and what
counts is the last mark. What children used that have ended in the meantime counts as soon as they were waited for.
"""

import contextlib
import os
import time
from pathlib import Path

import psutil

WALL, CPU, WAITED, OTHERS = "wall", "cpu", "waited", "others"
MIN_SECONDS_BETWEEN = 0.2  # marks cost a fraction of a millisecond; a trial that reports all the time needs fewer

_Thread = tuple[int, int]  # process, thread


class Meter:
    """Watches one trial's process and all its descendants.

    Args:
        pid: of the trial's process.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._first: tuple[float, float, float | None] | None = None  # seconds on the clock, of CPU, of all programs
        self._last: tuple[float, float, float | None] | None = None
        self._waited_before: dict[_Thread, float] = {}
        self._waited: dict[_Thread, float] = {}

    def mark(self, *, begins: bool = False) -> None:
        """Notes what was used until now; the first mark is where training begins.

        Args:
            begins: training begins only now, whatever was marked before.
        """
        now = time.monotonic()
        if begins:
            self._first = None
        elif self._last is not None and now - self._last[0] < MIN_SECONDS_BETWEEN:
            return
        cpu, waited = 0.0, {}
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self._pid)
            for member in (process, *process.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    cpu += sum(member.cpu_times()[:4])  # user, system, and those of children that were waited for
                    waited.update(_waited(member.pid))
        if not cpu:
            return  # it has ended
        mark = now, cpu, _busy_seconds()
        if self._first is None:
            self._first, self._waited_before = mark, waited
        self._last, self._waited = mark, {**self._waited, **waited}

    def timings(self) -> dict[str, float]:
        """Returns what was used from the first mark to the last one: see the head of this file. Empty without marks."""
        if self._first is None or self._last is None or self._last is self._first:
            return {}
        (began, cpu_before, busy_before), (ended, cpu, busy) = self._first, self._last
        used = max(cpu - cpu_before, 0.0)
        found = {WALL: ended - began, CPU: used}
        if self._waited:
            waited = max(seconds - self._waited_before.get(thread, 0.0) for thread, seconds in self._waited.items())
            found[WAITED] = min(max(waited, 0.0), ended - began)
        if busy is not None and busy_before is not None:
            found[OTHERS] = max(busy - busy_before - used, 0.0)
        return found


def _waited(pid: int) -> dict[_Thread, float]:
    """Returns how many seconds each thread of a process has waited for a core while it was ready to run."""
    found = {}
    with contextlib.suppress(OSError, ValueError, IndexError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            # Nanoseconds on a core, nanoseconds of waiting, and how often: Documentation/scheduler/sched-stats.
            found[pid, int(thread)] = 1e-9 * int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[1])
    return found


def _busy_seconds() -> float | None:
    """Returns the CPU seconds that all programs of this machine have used since its start; None where not known.

    What the hypervisor has taken for other guests counts, too.
    """
    try:
        times = psutil.cpu_times()
    except (OSError, RuntimeError):
        return None
    idle = times.idle + getattr(times, "iowait", 0.0)
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # they are in user and nice, too
    return float(sum(times) - idle - guests)
