"""The cores that a process may use, and how long it was kept from running: by other programs, or by a quota.

A quota is that of its control group (cgroup).

The kernel counts, for each thread, how long it was ready to run without a core. A quota does that, too, but it is a
property of the machine as the process has it, and no accident. So what a quota has taken is told apart.

Only Linux tells. Elsewhere nothing is known, and nothing is found. Importing this costs nothing: no torch.

Source: Documentation/scheduler/sched-stats.rst (`/proc/PID/schedstat`), Documentation/admin-guide/cgroup-v2.rst.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

Thread = tuple[int, int]  # process, thread
Times = tuple[float, float]  # seconds on a core, and ready without one
ROOT = Path("/")


def usable_cores() -> int:
    """Returns how many cores this process may run on: a scheduler or a container may allow fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_times(process: int) -> dict[Thread, Times]:
    """Returns how many seconds each thread of a process has run, and has been ready to run without a core."""
    found = {}
    with contextlib.suppress(OSError, ValueError, IndexError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            # Nanoseconds on a core, nanoseconds of waiting, and how often it ran.
            ran, waited, _ = (thread / "schedstat").read_text().split()
            found[process, int(thread.name)] = 1e-9 * int(ran), 1e-9 * int(waited)
    return found


def waited_for_others(
    before: Mapping[Thread, Times], after: Mapping[Thread, Times], throttled: float, seconds: float
) -> float:
    """Returns the seconds for which other programs kept a program's threads from running.

    It is the wait of the thread that waited longest, because the other ones wait for that one. But a thread that has
    nothing to do, and gives its core away again and again, waits all the time. So it is no more than what the thread
    that ran longest leaves of the time.

    Args:
        before: `thread_times` of its processes at the beginning; a thread that is missing had not waited.
        after: the same at the end.
        throttled: for how long a quota has stopped the control group in between, in seconds.
        seconds: that passed in between.
    """
    earlier = [before.get(thread, (0.0, 0.0)) for thread in after]
    runs, waits = ([max(b[i] - a[i], 0.0) for a, b in zip(earlier, after.values(), strict=True)] for i in (0, 1))
    total = sum(waits)
    by_others = max(1.0 - throttled / total, 0.0) if total else 0.0
    return min(by_others * max(waits, default=0.0), max(seconds - max(runs, default=0.0), 0.0))


def throttled_seconds(root: Path = ROOT) -> float:
    """Returns for how long a quota has stopped the control groups of this process, all its cores added up."""
    seconds = 0.0
    for folder in control_groups(root):
        with contextlib.suppress(OSError, ValueError):
            for line in (folder / "cpu.stat").read_text().splitlines():
                name, _, value = line.partition(" ")
                if name == "throttled_usec":  # version 2
                    seconds += 1e-6 * int(value)
                elif name == "throttled_time":  # version 1
                    seconds += 1e-9 * int(value)
    return seconds


def quota_cores(root: Path = ROOT) -> float | None:
    """Returns how many cores the control groups of this process leave it; None: there is no quota."""
    quotas: list[float] = []
    for folder in control_groups(root):
        with contextlib.suppress(OSError, ValueError):
            quota, period = (folder / "cpu.max").read_text().split()
            if quota != "max":
                quotas.append(int(quota) / int(period))
        with contextlib.suppress(OSError, ValueError):
            quota_us = int((folder / "cpu.cfs_quota_us").read_text())
            if quota_us > 0:
                quotas.append(quota_us / int((folder / "cpu.cfs_period_us").read_text()))
    return min(quotas, default=None)


def control_groups(root: Path = ROOT) -> list[Path]:
    """Returns the folders of this process's control groups for CPU time, versions 1 and 2, and of all around them."""
    top = root / "sys/fs/cgroup"
    folders = [top, top / "cpu"]  # a container sees its own group there
    with contextlib.suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            group = Path(os.path.normpath(f"{top / 'cpu' if controllers else top}/{path}"))
            while group not in folders and top in group.parents:
                folders.append(group)
                group = group.parent
    return folders
