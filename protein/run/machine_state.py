"""What slows this machine down right now: other programs, quotas, heat, lack of memory. Each look takes milliseconds.

Linux tells all of it, in /proc and /sys. Where a file is missing, nothing is said.
"""

import contextlib
import os
import platform
import time
from pathlib import Path

import psutil

from protein.run.usage import busy_seconds
from protein.trainer.machine.contention import ROOT, quota_cores
from protein.trainer.machine.cores import usable_cores
from protein.units import format_size

LOOK_SECONDS = 0.2  # for how long the cores are watched
BUSY_SHARE = 0.15  # of the cores: others may use this much before it is worth a word
PRESSURE_PERCENT = 5.0  # of the last minute in which some program waited for memory
SLOW_CLOCK_SHARE = 0.75  # of the highest clock rate, on cores that work
MIN_SWAP_BYTES = 256 << 20


def troubles(root: Path = ROOT) -> list[str]:
    """Returns what slows trials on this machine down, one short sentence each; none: nothing is known to.

    Args:
        root: where proc/ and sys/ are.
    """
    found = [_others(), _quota(root), _clock(root), _throttled(root), _memory_pressure(root), _swap()]
    return [trouble for trouble in found if trouble is not None]


def _others() -> str | None:
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
