"""What a trial's processes use of this machine, its memory against their limits, and what slows the machine down.

What they use while they train is kept in `Result.timings`, in the machine's own seconds, under these names:

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

What slows the machine down (other programs, quotas, heat, lack of memory) is read from /proc and /sys in milliseconds.
Where a file is missing, nothing is said.
"""

import contextlib
import os
import platform
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import psutil

from protein.ports import Job
from protein.run import devices
from protein.trainer.machine.cores import (
    ROOT,
    Thread,
    quota_cores,
    thread_waits,
    throttled_seconds,
    usable_cores,
    waited_for_others,
)
from protein.types import WAITED, WALL
from protein.units import format_size

CPU, OTHERS = "cpu", "others"
MIN_SECONDS_BETWEEN = 0.05  # a mark costs up to a millisecond; a trial that reports all the time needs fewer
LOOK_SECONDS = 0.2  # for how long the cores are watched
BUSY_SHARE = 0.15  # of the cores: others may use this much before it is worth a word
PRESSURE_PERCENT = 5.0  # of the last minute in which some program waited for memory
SLOW_CLOCK_SHARE = 0.75  # of the highest clock rate, on cores that work
MIN_SWAP_BYTES = 256 << 20

GpuMemory = Callable[[Collection[int]], int]  # bytes that processes use together on all GPUs, by their ids
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
        self._waited_before: dict[Thread, float] = {}
        self._waited: dict[Thread, float] = {}
        self.missed = False  # whether the process had ended before the last mark could be made
        self._tells_waits = began is not None and bool(thread_waits(os.getpid()))

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
                waited.update(thread_waits(member.pid))
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


def over_limit(
    job: Job, family: Callable[[], Sequence[psutil.Process]], gpu_memory: GpuMemory = devices.used_gpu_bytes
) -> str | None:
    """Returns in words which of its limits a trial exceeds; None: none.

    Args:
        job: of the trial.
        family: returns the trial's processes; it is called only where there is a limit.
        gpu_memory: measures it.
    """
    limit, gpu_limit = job.max_memory_bytes, job.resources.max_gpu_memory_bytes
    if limit is None and gpu_limit is None:
        return None
    processes = family()
    # The share of each process in what they share is known, too, but to find it takes much longer.
    if limit is not None and _resident_bytes(processes) > limit and (used := _own_bytes(processes)) > limit:
        return _words(used, limit, "memory")
    if gpu_limit is not None and (used := gpu_memory([each.pid for each in processes])) > gpu_limit:
        return _words(used, gpu_limit, "GPU memory")
    return None


def family(pid: int) -> list[psutil.Process]:
    """Returns a process and all its descendants; none once it is gone."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def _words(used: int, limit: int, what: str) -> str:
    return f"killed at {used / 2**30:.1f} GiB of {what}, over its limit of {limit / 2**30:.1f} GiB"


def _resident_bytes(processes: Sequence[psutil.Process]) -> int:
    total = 0
    for member in processes:
        with contextlib.suppress(psutil.Error):
            total += member.memory_info().rss
    return total


def _own_bytes(processes: Sequence[psutil.Process]) -> int:
    """Returns the memory of processes, where pages that several of them share count once."""
    total = 0
    for member in processes:
        with contextlib.suppress(psutil.Error):
            total += _proportional_bytes(member)
    return total


def _proportional_bytes(process: psutil.Process) -> int:
    try:
        found: int = process.memory_full_info().pss
    except (psutil.AccessDenied, AttributeError):  # not on this system
        found = process.memory_info().rss
    return found


def troubles(root: Path = ROOT) -> list[str]:
    """Returns what slows trials on this machine down, one short sentence each; none: nothing is known to.

    Args:
        root: where proc/ and sys/ are.
    """
    found = [_other_programs(), _quota(root), _clock(root), _throttled(root), _memory_pressure(root), _swap()]
    return [trouble for trouble in found if trouble is not None]


def _other_programs() -> str | None:
    """Watches the cores for a moment."""
    busy = busy_seconds()
    began, own = time.monotonic(), time.process_time()
    time.sleep(LOOK_SECONDS)
    after = busy_seconds()
    if busy is None or after is None:
        return None
    cores = (after - busy - (time.process_time() - own)) / (time.monotonic() - began)
    if cores < max(BUSY_SHARE * (os.cpu_count() or 1), 0.2):
        return None
    return f"other programs use {cores:.1f} of {os.cpu_count()} cores now, so trials cost more and their costs vary"


def _quota(root: Path) -> str | None:
    quota, cores = quota_cores(root), usable_cores()
    if quota is None or quota >= cores:
        return None
    return (
        f"a quota leaves this process {quota:.2g} of {cores} cores (cgroup): more threads wait for each other;"
        f" use --workers {max(1, int(quota))} and --train.threads 1"
    )


def _clock(root: Path) -> str | None:
    """Says where cores that work run far below their highest clock rate. Idle cores are slow on purpose."""
    policy = root / "sys/devices/system/cpu/cpu0/cpufreq"
    with contextlib.suppress(OSError, ValueError):
        governor = (policy / "scaling_governor").read_text().strip()
        if governor == "powersave" and (policy / "scaling_driver").read_text().strip() != "intel_pstate":
            return "the clock rate is held low (governor powersave); cpupower frequency-set -g performance changes it"
        limit = int((policy / "scaling_max_freq").read_text())
        highest = int((policy / "cpuinfo_max_freq").read_text())
        if limit < SLOW_CLOCK_SHARE * highest:
            return f"the clock rate is limited to {limit / 1e6:.1f} of {highest / 1e6:.1f} GHz (scaling_max_freq)"
    return None


def _throttled(root: Path) -> str | None:
    """Says where heat has slowed the processor down since the machine started."""
    count = 0
    for path in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/package_throttle_count"):
        with contextlib.suppress(OSError, ValueError):
            count = max(count, int(path.read_text()))
    hot = 0.0
    for zone in (root / "sys/class/thermal").glob("thermal_zone*/temp"):
        with contextlib.suppress(OSError, ValueError):
            hot = max(hot, int(zone.read_text()) / 1000)
    if count and hot > 90.0:
        return f"the processor is at {hot:.0f} degrees and was slowed down by heat {count} times since the start"
    return None


def _memory_pressure(root: Path) -> str | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = (root / "proc/pressure/memory").read_text().split()
        percent = float(next(field for field in fields if field.startswith("avg60=")).partition("=")[2])
        if percent >= PRESSURE_PERCENT:
            return f"programs waited for memory in {percent:.0f} % of the last minute; start fewer trials side by side"
    return None


def _swap() -> str | None:
    with contextlib.suppress(OSError, RuntimeError):
        swap, memory = psutil.swap_memory(), psutil.virtual_memory()
        if swap.used > MIN_SWAP_BYTES and memory.available < memory.total / 10:
            return (
                f"{format_size(swap.used)} are swapped out and {format_size(memory.available)} of memory are free:"
                " trials that are swapped stand still"
            )
    return None


def processor() -> str:
    """Returns the name of this machine's processor."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
