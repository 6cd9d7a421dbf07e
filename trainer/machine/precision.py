"""Where and how the arithmetic is done: device, threads, the matrix-product kernels and the precision.

On x86 CPUs PyTorch uses MKL for float32 matrix products. On AMD processors MKL reaches half of oneDNN's rate, and for
the thin products of a weight gradient (`hidden x batch @ batch x features`) as little as a twentieth. PyTorch uses the
faster oneDNN only when reduced precision is allowed. This permission lowers the precision only on processors that have
tile instructions for it. So it is given only where a probe shows that the results are still accurate to float32. It is
not given for small products, where oneDNN's fixed cost of about 15 us a call outweighs its rate.

Starting and joining PyTorch's threads takes as long as many products of a small network. So threads are used only above
a certain amount of work. Both choices depend on sizes only, never on timings, so that a run can be repeated.
"""

import contextlib
import ctypes
import dataclasses
import sys
import time
from collections.abc import Iterator

import torch

from ..config import TrainConfig
from ..errors import ConfigError
from ..kernels import get_threads, set_threads
from ..settings import Precision
from .cores import usable_cores

FULL = ("auto", "fp32", "tf32")  # precisions that need no autocast

# Multiply-adds of one hidden layer's product, counted twice; crossovers measured on AMD EPYC (Zen 5), torch 2.13.
ONEDNN_FLOPS = 4e6  # 512 samples through a 64 x 64 layer: above this, oneDNN's rate outweighs its fixed cost
THREADED_FLOPS = 4e8  # 3,072 samples through a 256 x 256 layer: above this, threads are worth waking
THREADED_ENVS = 16384

# Relative to the largest entry of a product of 256 terms: float32 rounding leaves below 1e-6, bfloat16 above 1e-3.
FP32_TOLERANCE = 1e-5

# How fast the device is, is measured with square matrices that keep all units busy. It takes below 0.2 s.
FIRST_SIZE, CPU_SIZE, CUDA_SIZE = 256, 1024, 8192  # rows and columns
ROUNDS = 4  # of each size; the fastest counts
LONG_SECONDS = 0.01  # a product that takes longer is large enough


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The device of a run.

    Attributes:
        device: that was chosen.
        notes: what there is to say about it, for people, a line each.
        seconds: that a measurement took; None: nothing was measured.
    """

    device: torch.device
    notes: tuple[str, ...] = ()
    seconds: float | None = None


def found_devices() -> list[torch.device]:
    """Returns the devices of this machine, the one that `auto` prefers first; the CPU is the last."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    return [torch.device(name) for name, found in there.items() if found]


def resolve_device(name: str) -> torch.device:
    """Returns the device for `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.

    Raises:
        ConfigError: the device is not there.
    """
    if name == "auto":
        return found_devices()[0]
    device = torch.device(name)
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not there[device.type]:
        cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
        others = ["'auto'", *(f"'cuda:{index}'" for index in range(cuda)), *(["'mps'"] if there["mps"] else [])]
        raise ConfigError(f"train.device '{name}' is not available on this machine: use {', '.join(others)} or 'cpu'")
    return device


def resolve_threads(threads: int) -> int:
    """Returns the number of threads to use: `threads`, or for 0 the cores that this process may run on."""
    return threads or usable_cores()


def env_threads(num_envs: int, threads: int) -> int:
    """Returns how many threads should step `num_envs` environments: one where waking others costs more."""
    return threads if num_envs >= THREADED_ENVS else 1


def keep_freed_memory() -> None:
    """Makes the C library keep freed memory for the next allocation instead of returning it to the system.

    An update frees and allocates the same few megabytes again and again. Getting them from the system page by page
    takes longer than the arithmetic. Only glibc has these settings; elsewhere this does nothing.
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


def prepare_backward_passes(device: torch.device) -> None:
    """Lets PyTorch's thread of backward passes begin with a sum: it warns where its first work is a matrix product."""
    if device.type == "cuda":
        torch.autograd.backward(torch.zeros(1, device=device, requires_grad=True).sum())


class Arithmetic:
    """Chooses threads and kernels by the size of the work. It is a context that restores the earlier settings.

    `allowed`: whether the faster kernels are accurate to float32 on this machine. On CUDA, the precisions `auto` and
    `tf32` let products and convolutions of float32 use tensor cores, which keep 10 bits of a mantissa; `fp32` does not.
    """

    def __init__(self, device: torch.device, threads: int, precision: str = "auto") -> None:
        self._on_host, self._on_cuda = device.type == "cpu", device.type == "cuda"
        self._tf32 = precision in ("auto", "tf32")
        self._threads = threads
        self.allowed = False

    def __enter__(self) -> "Arithmetic":
        self._found = torch.get_num_threads(), torch.get_float32_matmul_precision(), get_threads()
        self._found_convolutions = torch.backends.cudnn.allow_tf32
        set_threads(self._threads)
        if self._on_host:
            torch.set_num_threads(1)
            torch.set_float32_matmul_precision("medium")
            self.allowed = _probe_error() <= FP32_TOLERANCE
            torch.set_float32_matmul_precision("highest")
        elif self._on_cuda:
            torch.set_float32_matmul_precision("high" if self._tf32 else "highest")
            torch.backends.cudnn.allow_tf32 = self._tf32
        return self

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self._found[0])
        torch.set_float32_matmul_precision(self._found[1])
        set_threads(self._found[2])
        torch.backends.cudnn.allow_tf32 = self._found_convolutions

    def prepare_threads(self, samples: int, weights: int) -> None:
        """Sets the number of threads as `prepare` does. The setting is the calling thread's own."""
        flops = 2.0 * samples * weights
        torch.set_num_threads(self._threads if flops >= THREADED_FLOPS else 1)

    def choose(self, *, threaded: bool, fast: bool) -> None:
        """Sets all threads or one, and the faster kernels (where they are accurate) or the usual ones, on the CPU."""
        if self._on_host:
            torch.set_num_threads(self._threads if threaded else 1)
            torch.set_float32_matmul_precision("medium" if fast and self.allowed else "highest")

    def prepare(self, samples: int, weights: int) -> None:
        """Sets threads and kernels for a network whose largest layer has `weights` weights, on `samples` samples."""
        flops = 2.0 * samples * weights
        self.choose(threaded=flops >= THREADED_FLOPS, fast=flops >= ONEDNN_FLOPS)


def update_precision(config: TrainConfig) -> Precision:
    """Returns the precision of the update; that of the rollouts is `config.precision`."""
    if config.train_fp16:
        return "fp16"
    return config.precision if config.update_precision == "same" else config.update_precision


def autocast(device: torch.device, precision: str, *, caches: bool = True) -> contextlib.AbstractContextManager[object]:
    """Returns the context in which the network runs: autocast for `bf16` and `fp16`, none for full precision.

    On CUDA, where acting and the update differ in whether they use TF32, it is also the context that changes it.

    `caches`: a weight that is used several times is converted once. All threads share that memory, and one that leaves
    its context empties it.
    """
    if precision in FULL:
        if device.type == "cuda" and _uses_tf32() != (precision != "fp32"):
            return _tf32(precision != "fp32")
        return contextlib.nullcontext()
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    return torch.autocast(device.type, dtype=kind, cache_enabled=caches)


def _uses_tf32() -> bool:
    return torch.get_float32_matmul_precision() != "highest"


@contextlib.contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    """Lets products and convolutions of float32 use TF32 on CUDA, or not, for a while, in all threads."""
    found = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(found[0])
        torch.backends.cudnn.allow_tf32 = found[1]


def half_convolutions(device: torch.device, precision: str) -> bool:
    """Whether convolutions over large images are computed in bfloat16; the layers after them stay in float32.

    Under `auto` they are on a CPU that has such products. Where few agents act, the large layer behind them costs more
    to convert than it saves. Figures: docs/decisions/trainer.md.
    """
    return precision == "auto" and device.type == "cpu" and has_bf16_products(device)


def has_bf16_products(device: torch.device) -> bool:
    """Whether the device multiplies matrices of bfloat16 faster than those of float32."""
    if device.type != "cpu":
        return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    capabilities: dict[str, object] = getattr(
        torch.cpu, "get_capabilities", dict
    )()  # older versions of torch do not say
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def peak_flops(device: torch.device, precision: str) -> float:
    """Returns floating-point operations a second of a large matrix product, with the present threads and kernels.

    A training's speed is held against it.
    """
    largest = CPU_SIZE if device.type == "cpu" else CUDA_SIZE
    size, seconds = FIRST_SIZE, _product_seconds(FIRST_SIZE, device, precision)
    while size < largest and seconds < LONG_SECONDS:
        size *= 2
        seconds = _product_seconds(size, device, precision)
    return 2.0 * size**3 / seconds


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


@torch.no_grad()
def _product_seconds(size: int, device: torch.device, precision: str) -> float:
    matrix = torch.full((size, size), 1e-3, device=device)
    with autocast(device, precision):
        if precision not in FULL:
            matrix = matrix.to(torch.get_autocast_dtype(device.type))
        fastest = float("inf")
        for _ in range(ROUNDS):
            wait_for(device)
            began = time.perf_counter()
            matrix @ matrix
            wait_for(device)
            fastest = min(fastest, time.perf_counter() - began)
    return fastest


def wait_for(device: torch.device) -> None:
    """Waits until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
