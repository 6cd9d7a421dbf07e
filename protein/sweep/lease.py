"""Which process owns a running trial, for how long, and whether that process still runs.

The owner of a trial holds a lease on it, and renews it while the trial runs (`protein.sweep.trials`). A trial whose
lease has ended, or whose owner has died, is interrupted when the sweep is resumed. An owner is a text: host, process id
and the process's start time. Process ids are reused; the start time tells an old process from a new one.
"""

import os
import platform
from collections.abc import Iterable

import psutil

LEASE_SECONDS = 120.0
RENEW_SECONDS = 20.0  # the lease of a silent trial is renewed this often
START_TIME_TOLERANCE_SECONDS = 5.0  # a process's start time moves when the clock is set or the machine sleeps


def current_owner() -> str:
    """Returns this process's name as an owner of trials: host, process id and start time."""
    return f"{platform.node()}:{os.getpid()}:{psutil.Process().create_time():.2f}"


def dead_owners(owners: Iterable[str]) -> list[str]:
    """Returns those owners of running trials that were processes of this machine and have ended."""
    return sorted(owner for owner in set(owners) if _is_local(owner) and not _is_alive(owner))


def living_owners(owners: Iterable[str]) -> list[str]:
    """Returns those owners of running trials that are other processes of this machine, and live."""
    return sorted(o for o in set(owners) if o != current_owner() and _is_local(o) and _is_alive(o))


def _is_local(owner: str) -> bool:
    return owner.rsplit(":", 2)[0] == platform.node()


def _is_alive(owner: str) -> bool:
    _, pid, started = owner.rsplit(":", 2)
    try:
        process = psutil.Process(int(pid))
        same = abs(process.create_time() - float(started)) < START_TIME_TOLERANCE_SECONDS
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
