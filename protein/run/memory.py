"""How much memory the processes of a trial use, of the machine and of its GPUs, against the trial's limits."""

import contextlib
from collections.abc import Callable, Collection, Sequence

import psutil

from protein.ports import Job
from protein.run import gpus

GpuMemory = Callable[[Collection[int]], int]  # bytes that processes use together on all GPUs, by their ids


def over_limit(
    job: Job, family: Callable[[], Sequence[psutil.Process]], gpu_memory: GpuMemory = gpus.used_bytes
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
