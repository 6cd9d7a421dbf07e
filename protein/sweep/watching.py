"""Watches the disk and the memory of this machine, so that neither ends the night.

While too little disk is free, no trial is started; the sweep goes on by itself when there is room again. While too
little memory is free, the youngest trial is ended, and waits: otherwise the system would choose a process to kill, and
it might choose the sweep. Memory is that of the machine. The limit of a container is not seen here.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import psutil

CHECK_SECONDS = 5.0
MIN_FREE_DISK_BYTES = 512 << 20
MIN_FREE_MEMORY_SHARE, MIN_FREE_MEMORY_BYTES = 0.03, 512 << 20  # the smaller of the two


class Watch:
    """The state of the machine, looked at every few seconds.

    Attributes:
        disk: what is wrong with the disk, in words; "" if nothing is.
        memory: the same of the memory.
    """

    def __init__(self, places: Sequence[Path]) -> None:
        """Looks at nothing yet.

        Args:
            places: files and folders on whose disks there must be room. They need not exist yet.
        """
        self._places = places
        self._looked_at: float | None = None
        self.disk = self.memory = ""

    def look(self) -> bool:
        """Looks at the machine if it is time. Returns whether it has looked."""
        now = time.monotonic()
        if self._looked_at is not None and now - self._looked_at < CHECK_SECONDS:
            return False
        self._looked_at = now
        self.disk, self.memory = _disk(self._places, low=bool(self.disk)), _memory(low=bool(self.memory))
        return True


def _disk(places: Sequence[Path], *, low: bool) -> str:
    floor = MIN_FREE_DISK_BYTES * (1.25 if low else 1.0)  # a little more, so that it does not go to and fro
    for place in places:
        there = next((path for path in (place.absolute(), *place.absolute().parents) if path.exists()), None)
        if there is None:
            continue
        try:
            free = psutil.disk_usage(str(there)).free
        except OSError:
            continue
        if free < floor:
            return f"{_mib(free)} are free on the disk of {place}, below the limit of {_mib(floor)}"
    return ""


def _memory(*, low: bool) -> str:
    memory = psutil.virtual_memory()
    floor = min(MIN_FREE_MEMORY_SHARE * memory.total, MIN_FREE_MEMORY_BYTES) * (2.0 if low else 1.0)
    if memory.available >= floor:
        return ""
    return f"{_mib(memory.available)} of this machine's memory are free, below the limit of {_mib(floor)}"


def _mib(size: float) -> str:
    return f"{size / (1 << 20):,.0f} MiB"
