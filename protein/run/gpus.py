"""The NVIDIA GPUs of this machine: which there are, and how much memory processes use on them. Read through NVML.

NVML comes with the driver; the package `nvidia-ml-py`, which is optional, speaks to it. No CUDA is initialised here.
"""

import contextlib
import dataclasses
import functools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from protein.errors import UsageError

DRIVER, OTHER_DRIVER = Path("/proc/driver/nvidia/version"), Path("/dev/kfd")  # of NVIDIA's GPUs, and of AMD's
_ID = re.compile(r"\d+|(MIG-)?(GPU|MIG)-[0-9a-fA-F-]+(/\d+/\d+)?")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, counted as `nvidia-smi` does."""

    index: int
    uuid: str  # as in "GPU-5a8e..."
    instances: tuple[str, ...] = ()  # ids of its MIG instances, as in "MIG-1f4c..."; empty: it is not divided


def find(text: str, environment: Mapping[str, str], listed: Sequence[Gpu] | None) -> tuple[str, ...]:
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
        return _all(listed, allowed)
    ids = tuple(word.strip() for word in text.split(","))
    for one in ids:
        if not _ID.fullmatch(one):
            raise UsageError(
                f"--gpus {text}: '{one}' is no id of a GPU; use numbers or UUIDs as nvidia-smi shows, or all"
            )
        if ids.count(one) > 1:
            raise UsageError(f"--gpus {text}: {one} is there twice; for several trials on one GPU use --trials-per-gpu")
        if listed is not None and not _exists(one, listed):
            there = f"has {', '.join(_names(listed))}" if listed else "has no NVIDIA GPU: leave out --gpus"
            raise UsageError(f"--gpus {text}: no GPU has the id {one}; this machine {there}")
        if allowed is not None and one not in allowed:
            raise UsageError(
                f"--gpus {text}: GPU {one} is not among CUDA_VISIBLE_DEVICES={visible}; use those, or unset it"
            )
    return ids


def _all(listed: Sequence[Gpu] | None, allowed: Sequence[str] | None) -> tuple[str, ...]:
    if allowed:
        return tuple(allowed)
    if listed is None:
        raise UsageError("--gpus all needs NVML (pip install nvidia-ml-py); or name them, as in --gpus 0,1")
    if not listed or allowed == []:
        raise UsageError("--gpus all: this process sees no NVIDIA GPU; leave out --gpus to train on the CPU")
    return tuple(_names(listed))


def _names(listed: Sequence[Gpu]) -> list[str]:
    return [name for gpu in listed for name in (gpu.instances or (str(gpu.index),))]


def _exists(one: str, listed: Sequence[Gpu]) -> bool:
    if one.isdigit():
        return any(gpu.index == int(one) for gpu in listed)
    if one.startswith("MIG-GPU-"):  # the form of older drivers: MIG-<UUID of the GPU>/<instance>/<instance>
        return any(one.removeprefix("MIG-").startswith(gpu.uuid) for gpu in listed)
    names = [name for gpu in listed for name in (gpu.uuid, *gpu.instances)]
    return any(name.startswith(one) for name in names)  # CUDA takes the beginning of a UUID


def installed(nvml: Any = None) -> list[Gpu] | None:
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
            uuid=_text(nvml.nvmlDeviceGetUUID(device)),
            instances=tuple(_text(nvml.nvmlDeviceGetUUID(one)) for one in _instances(nvml, device)),
        )
        for index, device in _devices(nvml)
    ]


def used_bytes(pids: Collection[int], nvml: Any = None) -> int:
    """Returns the GPU memory that processes use together, on all GPUs; 0 where NVML is missing.

    Args:
        pids: the processes.
        nvml: the module to ask; None: NVIDIA's.
    """
    nvml = _nvml() if nvml is None else nvml
    if nvml is None:
        return 0
    total, wanted = 0, set(pids)
    for _, device in _devices(nvml):
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


def _devices(nvml: Any) -> Iterator[tuple[int, Any]]:
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


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
