"""Which cores and GPUs of this machine each trial gets, where several run side by side.

Each of several workers has cores of its own, as many as the others, and its trials are pinned to them. So no trial
slows another one down by taking its core, and measured costs stay comparable. The threads of one core (hyperthreads)
are never shared out to two workers, as long as there are cores enough. Cores that cannot be shared out evenly are left
to the sweep itself and to other programs.

A GPU is given to a trial by `CUDA_VISIBLE_DEVICES`, which is set before anything in the trial's process uses CUDA.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from protein.errors import UsageError
from protein.run import gpus as gpu_ids
from protein.types import Resources

TOPOLOGY = Path("/sys/devices/system/cpu")
QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclasses.dataclass(eq=False)
class Slots:
    """The places where trials run on this machine, one for each worker. The loop takes one for each trial.

    Attributes:
        workers: how many trials run at once.
        cores: those of each worker; all empty where trials are not pinned.
        gpus: ids of the GPUs that trials may use, as for CUDA_VISIBLE_DEVICES; empty: the choice is the trial's.
        gpus_per_trial: how many of them one trial gets.
        trials_per_gpu: how many trials may share one.
        max_gpu_memory_bytes: of one trial, on all its GPUs together.

    Raises:
        UsageError: a number below 1; GPUs that cannot be divided evenly; more workers than the GPUs have room for.
    """

    workers: int = 1
    cores: Sequence[tuple[int, ...]] = ()
    gpus: Sequence[str] = ()
    gpus_per_trial: int = 1
    trials_per_gpu: int = 1
    max_gpu_memory_bytes: int | None = None

    def __post_init__(self) -> None:
        places = num_places(self.gpus, self.gpus_per_trial, self.trials_per_gpu)
        if self.workers < 1:
            raise UsageError(f"workers = {self.workers} is below the limit of 1; use 1 or more")
        if places is not None and self.workers > places:
            raise UsageError(
                f"--workers {self.workers} is more than the {places} that GPU {','.join(self.gpus)} has room for; use"
                f" --workers {places}, or share GPUs with --trials-per-gpu"
            )
        if self.cores and len(self.cores) != self.workers:
            raise ValueError(f"{len(self.cores)} shares of the cores for {self.workers} workers")
        self._free_cores = list(self.cores) or [()] * self.workers
        groups = [
            tuple(self.gpus[at : at + self.gpus_per_trial]) for at in range(0, len(self.gpus), self.gpus_per_trial)
        ]
        self._trials_on = dict.fromkeys(groups, 0)  # how many trials each group of GPUs has now

    @property
    def num_free(self) -> int:
        """How many trials can start now."""
        return len(self._free_cores)

    def take(self) -> Resources:
        """Returns what the next trial gets, its GPUs among those with the fewest trials. One slot must be free."""
        gpus: tuple[str, ...] = ()
        if self._trials_on:
            gpus = min(self._trials_on, key=lambda group: self._trials_on[group])
            self._trials_on[gpus] += 1
        return Resources(cores=self._free_cores.pop(0), gpus=gpus, max_gpu_memory_bytes=self.max_gpu_memory_bytes)

    def give_back(self, resources: Resources) -> None:
        """Frees the slot of a trial that has ended."""
        self._free_cores.append(resources.cores)
        self._free_cores.sort()
        if self._trials_on:
            self._trials_on[resources.gpus] -= 1

    def threads(self, resources: Resources) -> int:
        """Returns how many threads a trial should compute with: as many as it has processors."""
        return len(resources.cores) or max(1, len(usable_cores()) // self.workers)

    def text(self) -> str:
        """Returns the shares in words, as in "2 workers with 4 cores each, GPU 0,1"; "" for one that has no own."""
        words = []
        if self.cores and self.cores[0]:
            shares = sorted(format_cores(share) for share in self.cores)
            words.append(f"{self.workers} workers, each pinned to its own cores ({' | '.join(shares)})")
        if self.gpus:
            shared = "" if self.trials_per_gpu == 1 else f", up to {self.trials_per_gpu} trials a GPU"
            several = "" if self.gpus_per_trial == 1 else f", {self.gpus_per_trial} for a trial"
            words.append(f"GPU {','.join(self.gpus)}{several}{shared}")
        return "; ".join(words)


def slots_of_machine(
    workers: int | None,
    *,
    gpus: str | None = None,
    gpus_per_trial: int = 1,
    trials_per_gpu: int = 1,
    max_gpu_memory_bytes: int | None = None,
    pin_cores: bool = True,
) -> Slots:
    """Returns the slots of this machine, as the user wants them.

    Args:
        workers: how many trials run at once; None: as many as the GPUs have room for, or one where none is named.
        gpus: ids as in "0,1", or "all"; None: trials choose themselves.
        gpus_per_trial: how many one trial gets.
        trials_per_gpu: how many trials may share one.
        max_gpu_memory_bytes: of one trial, on all its GPUs.
        pin_cores: whether each of several workers has cores of its own.

    Raises:
        UsageError: a GPU that is not there, shares that cannot be, or a limit that cannot be measured here.
    """
    ids = () if gpus is None else gpu_ids.find(gpus, os.environ, gpu_ids.installed())
    if max_gpu_memory_bytes is not None:
        gpu_ids.require_memory_limit()
    workers = workers or num_places(ids, gpus_per_trial, trials_per_gpu) or 1
    return Slots(
        workers=workers,
        cores=worker_cores(workers) if pin_cores else [()] * workers,
        gpus=ids,
        gpus_per_trial=gpus_per_trial,
        trials_per_gpu=trials_per_gpu,
        max_gpu_memory_bytes=max_gpu_memory_bytes,
    )


def num_places(gpus: Sequence[str], gpus_per_trial: int, trials_per_gpu: int) -> int | None:
    """Returns how many trials can run at once on these GPUs; None: no GPU is named, so they set no limit.

    Raises:
        UsageError: a number below 1; GPUs that cannot be divided evenly among trials.
    """
    for flag, value in (("--gpus-per-trial", gpus_per_trial), ("--trials-per-gpu", trials_per_gpu)):
        if value < 1:
            raise UsageError(f"{flag} {value} is below the limit of 1; use 1 or more")
        if value > 1 and not gpus:
            raise UsageError(f"{flag} {value} needs the GPUs to share out; name them, as in --gpus 0,1")
    if not gpus:
        return None
    if len(gpus) % gpus_per_trial:
        more = (len(gpus) // gpus_per_trial + 1) * gpus_per_trial
        raise UsageError(
            f"{len(gpus)} GPUs cannot be shared out to trials of {gpus_per_trial}; name {more}"
            + (f" or {more - gpus_per_trial}" if more > gpus_per_trial else "")
        )
    return len(gpus) // gpus_per_trial * trials_per_gpu


def shares(workers: int, groups: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Divides cores among workers, the same number to each. Returns empty shares where there are too few.

    Args:
        workers: how many there are. One alone is not pinned: all cores are its own.
        groups: the processors of each core, those of one package next to each other.
    """
    if workers > 1 and len(groups) >= workers:
        each = len(groups) // workers
        dealt = [groups[at * each : (at + 1) * each] for at in range(workers)]
        return [tuple(sorted(cpu for group in share for cpu in group)) for share in dealt]
    processors = [cpu for group in groups for cpu in group]
    if workers > 1 and len(processors) >= workers:  # workers share cores, all in the same way
        each = len(processors) // workers
        return [tuple(sorted(processors[at * each : (at + 1) * each])) for at in range(workers)]
    return [()] * workers


def usable_cores() -> list[int]:
    """Returns the processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def core_groups(usable: Sequence[int], topology: Path = TOPOLOGY) -> list[tuple[int, ...]]:
    """Returns the usable processors by core: hyperthreads of one core together, cores of one package in a row.

    A processor of which the kernel tells nothing is a core of its own.
    """
    groups: dict[tuple[int, tuple[int, ...]], None] = {}
    for cpu in usable:
        directory = topology / f"cpu{cpu}" / "topology"
        try:
            siblings = parse_cores((directory / "thread_siblings_list").read_text())
            package = int((directory / "physical_package_id").read_text())
        except (OSError, ValueError):
            siblings, package = [cpu], 0
        groups[package, tuple(sorted({cpu, *siblings} & set(usable)))] = None
    return [group for _, group in sorted(groups)]


def can_pin(usable: Sequence[int], quota: Path = QUOTA) -> bool:
    """Whether pinning makes costs comparable here: on Linux, unless a container has only a share of its processors."""
    if not hasattr(os, "sched_setaffinity"):
        return False
    try:
        most, period = quota.read_text().split()
        return most == "max" or float(most) / float(period) >= len(usable)
    except (OSError, ValueError):
        return True


def worker_cores(workers: int) -> list[tuple[int, ...]]:
    """Returns the processors that each worker's trials are pinned to on this machine; empty ones: they are not."""
    usable = usable_cores()
    return shares(workers, core_groups(usable)) if can_pin(usable) else [()] * workers


def environment(resources: Resources, before: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variables that confine a trial's processes to their share.

    Args:
        resources: of the trial.
        before: the variables that it would have. A number of threads that the user has set stays.
    """
    changes = {}
    if resources.gpus:
        changes["CUDA_VISIBLE_DEVICES"] = ",".join(resources.gpus)
        if "CUDA_DEVICE_ORDER" not in before:  # CUDA's own order begins with the fastest GPU, nvidia-smi's does not
            changes["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if resources.cores and "OMP_NUM_THREADS" not in before:
        changes["OMP_NUM_THREADS"] = str(len(resources.cores))
    return changes


def pin(resources: Resources) -> None:
    """Pins this process, and all that it starts from now on, to the cores of its share.

    A core that has been taken offline meanwhile is no reason to fail: the process then runs where it may.
    """
    if resources.cores and hasattr(os, "sched_setaffinity"):
        allowed = set(resources.cores) & os.sched_getaffinity(0)
        if allowed:
            os.sched_setaffinity(0, allowed)


def parse_cores(text: str) -> list[int]:
    """Returns the numbers of a list as the kernel writes it, as in "0-2,8". Raises `ValueError` for other texts."""
    found: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return found


def format_cores(cores: Sequence[int]) -> str:
    """Returns numbers as the kernel writes them, as in "0-2,8"."""
    parts: list[list[int]] = []
    for cpu in sorted(cores):
        if parts and cpu == parts[-1][-1] + 1:
            parts[-1].append(cpu)
        else:
            parts.append([cpu])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)
