"""Which process owns a running trial, for how long, and whether that process still runs.

The owner of a trial holds a lease on it, and renews it while the trial runs (`protein.sweep.trials`). A trial whose
lease has ended, or whose owner has died, is interrupted when the sweep is resumed. An owner is a text: host, process id
and the process's start time. Process ids are reused; the start time tells an old process from a new one. On Linux it is
counted from the boot of the machine, since the wall clock may be set while the process runs.

Machines and containers may share a host name, and a process of another container cannot be seen. So on Linux an owner
ends with its place: machine, boot and namespace of process ids, as in `lab:4711:8123.45@5f0c21ab-1a363c15-4026531836`.
Of a process of another place only the lease tells whether it runs. The owners of older stores have no place: their
leases decide, too. In a copy of a sweep, a trial that was running has the owner "": nobody runs the copy.
"""

import hashlib
import os
import platform
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil

LEASE_SECONDS = 120.0
RENEW_SECONDS = 20.0  # the lease of a silent trial is renewed this often
# Of start times on the wall clock, which move when the clock is set or the machine sleeps. Older stores hold such.
START_TIME_TOLERANCE_SECONDS = 5.0
_TICK_SECONDS = 0.01  # to which a start time since the boot is exact
_FIRST_WALL_CLOCK_SECONDS = 1e9  # no machine has been up for so long
_START_TIME_FIELD = 21  # of /proc/PID/stat, counted from 0
_OUTERMOST = "4026531836"  # the namespace of process ids outside of all containers: a constant of Linux


def current_owner() -> str:
    """Returns this process's name as an owner of trials: host, process id, start time and, on Linux, its place."""
    return owner_of(os.getpid())


def owner_of(pid: int) -> str:
    """Returns the name of a process that can be seen here. Raises `psutil.NoSuchProcess` where it has ended."""
    return "@".join(filter(None, (f"{platform.node()}:{pid}:{_started(pid):.2f}", _place())))


def dead_owners(owners: Iterable[str]) -> list[str]:
    """Returns those owners of running trials that were processes of this machine and have ended, and "", nobody."""
    return sorted(owner for owner in set(owners) if not owner or (is_local(owner) and not _is_alive(owner)))


def living_owners(owners: Iterable[str]) -> list[str]:
    """Returns those owners of running trials that are other processes of this machine, and live."""
    return sorted(o for o in set(owners) if o != current_owner() and is_local(o) and _is_alive(o))


def is_local(owner: str) -> bool:
    """Returns whether an owner is, or was, a process of this machine that can be seen from here."""
    place, there = _place(), _place_of(owner)
    return owner.rsplit(":", 2)[0] == platform.node() and (there == place or _is_before_reboot(there, place))


def _place_of(owner: str) -> str:
    return owner.rsplit(":", 1)[-1].partition("@")[2]


def _place() -> str:
    """Returns where this process's number holds: machine, boot and namespace of process ids; "" but on Linux."""
    if sys.platform != "linux":
        return ""
    parts = []
    for path in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        try:
            text = Path(path).read_text(errors="replace").strip()
        except OSError:
            text = ""
        # A hash: the id of a machine is confidential (man machine-id), and stores are handed on.
        parts.append(hashlib.sha256(text.encode()).hexdigest()[:8] if text else "")
    try:
        namespace = str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        namespace = ""
    return "-".join((*parts, namespace))


def _is_before_reboot(there: str, here: str) -> bool:
    """Returns whether a place is this machine before it was started anew: everything that ran there has ended.

    Outside of containers only. Containers on two machines may have the same machine id, that of their image.
    """
    before, now = there.split("-"), here.split("-")
    return all(before) and before[::2] == now[::2] == [now[0], _OUTERMOST]


def _is_alive(owner: str) -> bool:
    if _place_of(owner) != _place():  # it ran before a reboot
        return False
    _, pid, rest = owner.rsplit(":", 2)
    text = rest.partition("@")[0]
    try:
        process, started = psutil.Process(int(pid)), float(text)
        if started > _FIRST_WALL_CLOCK_SECONDS:
            same = abs(process.create_time() - started) < START_TIME_TOLERANCE_SECONDS
        else:
            same = abs(_started(process.pid) - started) < 2 * _TICK_SECONDS
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _started(pid: int) -> float:
    """Returns when a process started, in seconds since the boot; elsewhere than on Linux, on the wall clock.

    Raises:
        psutil.NoSuchProcess: it has ended.
    """
    if sys.platform != "linux":
        return float(psutil.Process(pid).create_time())
    try:
        line = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError) as error:
        raise psutil.NoSuchProcess(pid) from error
    # The second field is the program's name in parentheses, which may hold anything.
    fields = [str(pid), "", *line[line.rindex(")") + 2 :].split()]
    return int(fields[_START_TIME_FIELD]) / float(os.sysconf("SC_CLK_TCK"))
