"""Where and how the arithmetic is done: device, threads, the matrix-product kernels and the precision.

On x86 CPUs PyTorch sends float32 matrix products to MKL, whose kernels for thin matrices (a weight gradient of
`hidden x batch @ batch x features`) and for AMD processors are 2 to 25 times slower than oneDNN's. PyTorch takes oneDNN
only when reduced precision is allowed, and oneDNN reduces the precision only where the processor has tile instructions
for it. So the permission is given where a probe shows that the results stay those of float32, and nowhere else.
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator

import torch

from trainer.errors import ConfigError

# Relative to the largest entry of a product of 256 terms: float32 rounding leaves below 1e-6, bfloat16 above 1e-3.
FP32_TOLERANCE = 1e-5


def resolve_device(name: str) -> torch.device:
    """Returns the device for `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.

    Raises:
        ConfigError: the device is not there.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    device = torch.device(name)
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not there[device.type]:
        raise ConfigError(f"train.device '{name}' is not available on this machine: use 'auto' or 'cpu'")
    return device


def resolve_threads(threads: int) -> int:
    """Returns the number of threads to use: `threads`, or for 0 the cores that this process may run on."""
    if threads:
        return threads
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def keep_freed_memory() -> None:
    """Makes the C library keep freed memory for the next allocation instead of returning it to the system.

    An update frees and allocates the same few megabytes again and again; getting them back from the system page by
    page takes longer than the arithmetic. Only glibc knows these settings; elsewhere this does nothing.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in _MALLOC_SETTINGS:
            mallopt(parameter, value)


# M_TRIM_THRESHOLD: never give back the top of the heap. M_MMAP_THRESHOLD: its maximum; only larger blocks are mapped
# on their own. M_TOP_PAD: grow in large steps. Numbers and limits from glibc's malloc.h and mallopt(3).
_MALLOC_SETTINGS = ((-1, 2**31 - 1), (-3, 32 * 2**20), (-2, 64 * 2**20))


@contextlib.contextmanager
def arithmetic(device: torch.device, threads: int) -> Iterator[None]:
    """Sets PyTorch's threads and, on a CPU, the faster float32 kernels where they are exact; restores both after."""
    before_threads, before_precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(threads)
    try:
        if device.type == "cpu":
            torch.set_float32_matmul_precision("medium")
            if _probe_error() > FP32_TOLERANCE:
                torch.set_float32_matmul_precision(before_precision)
        yield
    finally:
        torch.set_num_threads(before_threads)
        torch.set_float32_matmul_precision(before_precision)


def autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager[object]:
    """Returns the context in which the network runs: autocast for `bf16`, none for `fp32`."""
    if precision == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def _probe_error() -> float:
    """Returns the largest relative error of the three products of a layer's forward and backward pass."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(256, 64, generator=generator)
    w = torch.rand(64, 64, generator=generator)
    products = ((x, w), (x.t(), x), (w, x.t()))
    errors = []
    for a, b in products:
        exact = a.double() @ b.double()
        errors.append((((a @ b).double() - exact).abs().max() / exact.abs().max()).item())
    return max(errors)
