"""Which cores and GPUs of this machine each trial gets, where several run side by side.

Each of several workers has cores of its own, as many as the others, and its trials are pinned to them. So no trial
slows another one down by taking its core, and measured costs stay comparable. The threads of one core (hyperthreads)
are never shared out to two workers, as long as there are cores enough. Cores that cannot be shared out evenly are left
to the sweep itself and to other programs.

A GPU is given to a trial by `CUDA_VISIBLE_DEVICES`, which is set before anything in the trial's process uses CUDA.
Which NVIDIA GPUs there are, and how much memory processes use on them, is read through NVML. It comes with the driver;
the package `nvidia-ml-py`, which is optional, speaks to it. No CUDA is initialised here.
"""

import contextlib
import dataclasses
import functools
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from protein.errors import UsageError
from protein.types import Resources

TOPOLOGY = Path("/sys/devices/system/cpu")
QUOTA = Path("/sys/fs/cgroup/cpu.max")
DRIVER, OTHER_DRIVER = Path("/proc/driver/nvidia/version"), Path("/dev/kfd")  # of NVIDIA's GPUs, and of AMD's
_ID = re.compile(r"\d+|(MIG-)?(GPU|MIG)-[0-9a-fA-F-]+(/\d+/\d+)?")


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
    ids = () if gpus is None else find_gpus(gpus, os.environ, installed_gpus())
    if max_gpu_memory_bytes is not None:
        require_memory_limit()
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, counted as `nvidia-smi` does."""

    index: int
    uuid: str  # as in "GPU-5a8e..."
    instances: tuple[str, ...] = ()  # ids of its MIG instances, as in "MIG-1f4c..."; empty: it is not divided


def find_gpus(text: str, environment: Mapping[str, str], listed: Sequence[Gpu] | None) -> tuple[str, ...]:
    """Returns the ids in a text such as "0,1" or "all", checked as far as that is possible here.

    Args:
        text: what the user has given.
        environment: its CUDA_VISIBLE_DEVICES says which GPUs this process may use.
        listed: the GPUs of this machine; None: that cannot be told, as NVML is missing.

    Raises:
        UsageError: an id that no GPU has, or that is given twice; no GPU at all.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    allowed = None if visible is None else [word.strip() for word in visible.split(",") if word.strip()]
    if text.strip() == "all":
        return _all_gpus(listed, allowed)
    ids = tuple(word.strip() for word in text.split(","))
    for one in ids:
        if not _ID.fullmatch(one):
            raise UsageError(
                f"--gpus {text}: '{one}' is no id of a GPU; use numbers or UUIDs as nvidia-smi shows, or all"
            )
        if ids.count(one) > 1:
            raise UsageError(f"--gpus {text}: {one} is there twice; for several trials on one GPU use --trials-per-gpu")
        if listed is not None and not _has_id(one, listed):
            there = f"has {', '.join(_gpu_ids(listed))}" if listed else "has no NVIDIA GPU: leave out --gpus"
            raise UsageError(f"--gpus {text}: no GPU has the id {one}; this machine {there}")
        if allowed is not None and one not in allowed:
            raise UsageError(
                f"--gpus {text}: GPU {one} is not among CUDA_VISIBLE_DEVICES={visible}; use those, or unset it"
            )
    return ids


def _all_gpus(listed: Sequence[Gpu] | None, allowed: Sequence[str] | None) -> tuple[str, ...]:
    if allowed:
        return tuple(allowed)
    if listed is None:
        raise UsageError("--gpus all needs NVML (pip install nvidia-ml-py); or name them, as in --gpus 0,1")
    if not listed or allowed == []:
        raise UsageError("--gpus all: this process sees no NVIDIA GPU; leave out --gpus to train on the CPU")
    return tuple(_gpu_ids(listed))


def _gpu_ids(listed: Sequence[Gpu]) -> list[str]:
    return [name for gpu in listed for name in (gpu.instances or (str(gpu.index),))]


def _has_id(one: str, listed: Sequence[Gpu]) -> bool:
    if one.isdigit():
        return any(gpu.index == int(one) for gpu in listed)
    if one.startswith("MIG-GPU-"):  # the form of older drivers: MIG-<UUID of the GPU>/<instance>/<instance>
        return any(one.removeprefix("MIG-").startswith(gpu.uuid) for gpu in listed)
    names = [name for gpu in listed for name in (gpu.uuid, *gpu.instances)]
    return any(name.startswith(one) for name in names)  # CUDA takes the beginning of a UUID


def installed_gpus(nvml: Any = None) -> list[Gpu] | None:
    """Returns the NVIDIA GPUs of this machine; None where that cannot be told: without NVML, or with other GPUs.

    Args:
        nvml: the module to ask; None: NVIDIA's.
    """
    nvml = _nvml() if nvml is None else nvml
    if nvml is None:
        return None if DRIVER.exists() or OTHER_DRIVER.exists() else []
    return [
        Gpu(
            index=index,
            uuid=_str(nvml.nvmlDeviceGetUUID(device)),
            instances=tuple(_str(nvml.nvmlDeviceGetUUID(one)) for one in _instances(nvml, device)),
        )
        for index, device in _gpus(nvml)
    ]


def used_gpu_bytes(pids: Collection[int], nvml: Any = None) -> int:
    """Returns the GPU memory that processes use together, on all GPUs; 0 where NVML is missing.

    Args:
        pids: the processes.
        nvml: the module to ask; None: NVIDIA's.
    """
    nvml = _nvml() if nvml is None else nvml
    if nvml is None:
        return 0
    total, wanted = 0, set(pids)
    for _, device in _gpus(nvml):
        for part in _instances(nvml, device) or [device]:
            try:
                processes = nvml.nvmlDeviceGetComputeRunningProcesses(part)
            except nvml.NVMLError:  # such as a GPU that has fallen off the bus: the trial will say so
                continue
            total += sum(one.usedGpuMemory or 0 for one in processes if one.pid in wanted)
    return total


def can_measure() -> bool:
    """Whether the GPU memory of processes can be measured here."""
    return _nvml() is not None


def require_memory_limit() -> None:
    """Raises `UsageError` where GPU memory cannot be measured, so that no limit can be kept to."""
    if not can_measure():
        raise UsageError(
            "--max-trial-gpu-memory needs NVML to measure it: an NVIDIA driver, and pip install nvidia-ml-py;"
            " leave it out to set no limit"
        )


def _gpus(nvml: Any) -> Iterator[tuple[int, Any]]:
    """Yields the GPUs with their numbers, without any that has fallen off the bus."""
    for index in range(nvml.nvmlDeviceGetCount()):
        with contextlib.suppress(nvml.NVMLError):
            yield index, nvml.nvmlDeviceGetHandleByIndex(index)


def _instances(nvml: Any, device: Any) -> list[Any]:
    """Returns the MIG instances of a GPU; none where it is not divided."""
    found = []
    try:
        if nvml.nvmlDeviceGetMigMode(device)[0]:
            for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(device)):
                try:
                    found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index))
                except nvml.NVMLError:  # there is none of this number
                    continue
    except nvml.NVMLError:  # this GPU cannot be divided
        return []
    return found


@functools.cache
def _nvml() -> Any:
    """Returns NVML's module, ready to be asked; None where the package or the driver is missing."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _str(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
