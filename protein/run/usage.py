"""What a trial's processes use of the machine while they train, beside the wall clock.

All of it is in the machine's own seconds, under these names in `Result.timings`:

    wall     how long it was watched: from the start of training to its last sign
    cpu      CPU seconds of the trial's processes
    waited   seconds in which it was ready to run, but other programs had the cores. Only Linux tells
             (`protein.trainer.machine.contention`)
    others   CPU seconds of all other programs on the machine

`others / wall` is the mean number of cores that other programs kept busy. `waited` is what they cost the trial.

Processes that have ended cannot be looked at. So a backend marks the start of training and each point of the learning
curve, and the last mark counts. What children have used that ended in the meantime counts once they were waited for.
"""

import contextlib
import time

import psutil

from protein.trainer.machine.contention import Thread, thread_waits, throttled_seconds, waited_for_others
from protein.types import WAITED, WALL

CPU, OTHERS = "cpu", "others"
MIN_SECONDS_BETWEEN = 0.05  # a mark costs up to a millisecond; a trial that reports all the time needs fewer


# Seconds on the clock, of CPU, in which a quota stopped its control group, and of CPU of all programs.
_Mark = tuple[float, float, float, float | None]


class Meter:
    """Watches one trial's process and all its descendants.

    Args:
        pid: of the trial's process.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._first: _Mark | None = None
        self._last: _Mark | None = None
        self._waited_before: dict[Thread, float] = {}
        self._waited: dict[Thread, float] = {}

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
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self._pid)
            for member in (process, *process.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    cpu += sum(member.cpu_times()[:4])  # user, system, and those of children that were waited for
                    waited.update(thread_waits(member.pid))
                    seen = True
        if not seen:
            return  # it has ended
        mark = now, cpu, throttled_seconds(), busy_seconds()
        if self._first is None:
            self._first, self._waited_before = mark, waited
        self._last, self._waited = mark, {**self._waited, **waited}

    def timings(self) -> dict[str, float]:
        """Returns what was used from the first mark to the last one: see the head of this file. Empty without marks."""
        if self._first is None or self._last is None or self._last is self._first:
            return {}
        (began, cpu_before, throttled_before, busy_before), (ended, cpu, throttled, busy) = self._first, self._last
        used = max(cpu - cpu_before, 0.0)
        found = {WALL: ended - began, CPU: used}
        if self._waited:
            waited = waited_for_others(self._waited_before, self._waited, throttled - throttled_before)
            found[WAITED] = min(waited, ended - began)
        if busy is not None and busy_before is not None:
            found[OTHERS] = max(busy - busy_before - used, 0.0)
        return found


def busy_seconds() -> float | None:
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
