"""This machine: what each trial gets of it, the limits of its processes, and what slows the machine down.

Each of several workers has cores of its own, as many as the others, and its trials are pinned to them. So no trial
slows another one down by taking its core, and measured costs stay comparable. The threads of one core (hyperthreads)
are never shared out to two workers, as long as there are cores enough. Cores that cannot be shared out evenly are left
to the sweep itself and to other programs.

A GPU is given to a trial by `CUDA_VISIBLE_DEVICES`, which is set before anything in the trial's process uses CUDA.
Which NVIDIA GPUs there are, and how much memory processes use on them, is read through NVML. It comes with the driver;
the package `nvidia-ml-py`, which is optional, speaks to it. No CUDA is initialised here.

What slows the machine down (other programs, quotas, heat, lack of memory) is read from /proc and /sys in milliseconds.
Where a file is missing, nothing is said.
"""

import contextlib
import dataclasses
import functools
import importlib.metadata
import os
import platform
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from protein.errors import UsageError
from protein.ports import Job
from protein.spelling import counted
from protein.trainer.machine.cores import (
    ROOT,
    quota_cores,
    usable_cores,
)
from protein.types import Resources
from protein.units import format_size

TOPOLOGY = Path("/sys/devices/system/cpu")
QUOTA = Path("/sys/fs/cgroup/cpu.max")
DRIVER, OTHER_DRIVER = Path("/proc/driver/nvidia/version"), Path("/dev/kfd")  # of NVIDIA's GPUs, and of AMD's
LOOK_SECONDS = 0.2  # for how long the cores are watched
BUSY_SHARE = 0.15  # of the cores: others may use this much before it is worth a word
PRESSURE_PERCENT = 5.0  # of the last minute in which some program waited for memory
SLOW_CLOCK_SHARE = 0.75  # of the highest clock rate, on cores that work
MIN_SWAP_BYTES = 256 << 20
MAX_WORKERS_A_CORE = 4  # with more, three quarters of a trial's cost and more would be waiting for its core
_ID = re.compile(r"\d+|(MIG-)?(GPU|MIG)-[0-9a-fA-F-]+(/\d+/\d+)?")

GpuMemory = Callable[[Collection[int]], int]  # bytes that processes use together on all GPUs, by their ids


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
        return len(resources.cores) or max(1, len(usable_processors()) // self.workers)

    def text(self) -> str:
        """Returns the shares in words, as in "2 workers with 4 cores each, GPU 0,1"; "" for one that has no own."""
        words = []
        if self.cores and self.cores[0]:
            shares = sorted(format_cores(share) for share in self.cores)
            words.append(f"{counted(self.workers, 'worker')}, each pinned to its own cores ({' | '.join(shares)})")
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
        UsageError: a GPU that is not there, shares that cannot be, or a limit that cannot be measured here; or far more
            workers than cores.
    """
    cores = usable_cores()
    if workers is not None and gpus is None and workers > MAX_WORKERS_A_CORE * cores:
        raise UsageError(
            f"{workers} workers are too many for {_cores(cores)}: with more than {MAX_WORKERS_A_CORE} a core, most of"
            f" what a trial costs would be waiting for others; use {cores} workers, or {MAX_WORKERS_A_CORE * cores} at"
            " most, or other machines (docs/many-machines.md)"
        )
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


def crowded(workers: int) -> str | None:
    """Returns in words what more workers than cores do to the costs of their trials; None: there are enough cores."""
    cores = usable_cores()
    if workers <= cores:
        return None
    return (
        f"{workers} workers share {_cores(cores)}: a trial may take {workers / cores:.3g} times as long as alone, and"
        f" that is its cost; with {cores} at most, costs can be compared with those of fewer workers"
    )


def _cores(count: int) -> str:
    return "1 core" if count == 1 else f"{count} cores"


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


def usable_processors() -> list[int]:
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
    usable = usable_processors()
    return shares(workers, core_groups(usable)) if can_pin(usable) else [()] * workers


def environment_of(resources: Resources, before: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variables that confine a trial's processes to their share.

    `before` are the variables that it would have. A number of threads that the user has set stays.
    """
    changes = {}
    if resources.gpus:
        changes["CUDA_VISIBLE_DEVICES"] = ",".join(resources.gpus)
        if "CUDA_DEVICE_ORDER" not in before:  # CUDA's own order begins with the fastest GPU, nvidia-smi's does not
            changes["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if resources.cores and "OMP_NUM_THREADS" not in before:
        changes["OMP_NUM_THREADS"] = str(len(resources.cores))
    return changes


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


def trains_on_gpu(device: str, *, given: bool, remote: bool, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a sweep's trials run on a GPU, as far as that is known before one of them begins.

    Args:
        device: `train.device`; with `auto` a trial takes a GPU where there is one and it pays.
        given: whether trials are given GPUs.
        remote: whether trials run on other machines, of which only `given` tells.
        environment: its CUDA_VISIBLE_DEVICES may hide the GPUs of this machine.
    """
    if device != "auto":
        return device.startswith("cuda")
    if given or remote:
        return given
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and not _ID.match(visible.strip()):
        return False
    installed = installed_gpus()
    return (DRIVER.exists() if installed is None else bool(installed)) and not _is_cpu_build()


def _is_cpu_build() -> bool:
    """Whether the installed torch is one without CUDA, by its version: loading it takes seconds."""
    return importlib.metadata.version("torch").endswith("+cpu")


def used_gpu_bytes(pids: Collection[int], nvml: Any = None) -> int:
    """Returns the GPU memory that processes use together, on all GPUs; 0 where NVML is missing."""
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


def oom_kills() -> int | None:
    """Returns how many processes the kernel has killed here for lack of memory; None: it does not tell.

    They are counted in this process's control group, with all groups below it, where the limit of a container is, too.
    Without such a group they are those of the whole machine.
    """
    groups = [""]
    with contextlib.suppress(OSError, ValueError):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        groups = [f"/sys/fs/cgroup{line[3:]}/memory.events" for line in lines if line.startswith("0::")]
    for file in (*groups, "/proc/vmstat"):
        with contextlib.suppress(OSError, ValueError):
            for line in Path(file).read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return None


def over_limit(
    job: Job, family: Callable[[], Sequence[psutil.Process]], gpu_memory: GpuMemory = used_gpu_bytes
) -> str | None:
    """Returns in words which of its limits a trial exceeds; None: none.

    `family` returns the trial's processes. It is called only where there is a limit.
    """
    limit, gpu_limit = job.max_memory_bytes, job.resources.max_gpu_memory_bytes
    if limit is None and gpu_limit is None:
        return None
    processes = family()
    # The share of each process in what they share is known, too, but to find it takes much longer.
    if limit is not None and resident_bytes(processes) > limit and (used := _own_bytes(processes)) > limit:
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


def resident_bytes(processes: Sequence[psutil.Process]) -> int:
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
    """Returns what slows trials on this machine down, one short sentence each; none: nothing is known to."""
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
