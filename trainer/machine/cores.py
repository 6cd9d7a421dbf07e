"""The cores of this machine that a process may use. Importing this costs nothing: no torch."""

import os


def usable_cores() -> int:
    """Returns how many cores this process may run on: a scheduler or a container may allow fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
