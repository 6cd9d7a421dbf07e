"""How many sequences go through the network at once: on a GPU the most that fit, on the CPU as many as its cache holds.

Both depend on the sizes and on the memory, never on timings, so that a run can be repeated. A checkpoint holds the
number, because another one would round differently.

On the CPU, larger micro-batches are no faster. They are slower once one layer's activations leave the cache. Measured
on an AMD EPYC (Zen 5) with 1 MiB of second-level cache a core, sequences of 256 tokens, tokens a second relative to
the best: at a width of 128, 0.98, 1.00, 0.96 and 0.97 for 4, 8, 16 and 32 sequences; at a width of 32, 0.79, 0.88, 1.00
and 0.98.
"""

import contextlib
import math
from collections.abc import Callable
from pathlib import Path

import psutil
import torch

from ..errors import OutOfMemoryError
from ..machine.cores import ROOT, control_groups
from .config import ModelConfig
from .model import GPT

CACHE_FLOATS = 2**18  # of one layer's activations, `rows x tokens x width`: 1 MiB
STATE_BYTES = 16  # of a parameter: its weight, its gradient and two moments, each of 4 bytes
MEMORY_SHARE = 0.9  # of the free memory that may be planned with: allocators waste some
PROBE_TOKENS = 64  # of the row by which the activations are measured
GIB = 2.0**30


def cached_rows(width: int, length: int) -> int:
    """Returns how many rows of `length` tokens the CPU's cache holds, at least one."""
    return max(1, CACHE_FLOATS // (width * length))


def even_rows(rows: int, largest: int) -> int:
    """Returns the size of micro-batches that share `rows` as evenly as can be, none larger than `largest`."""
    largest = max(1, min(rows, largest))
    divisors = [size for size in range(largest, 0, -1) if rows % size == 0]
    # A divisor needs one shape alone, which matters where shapes are compiled. Half of the size costs little.
    return divisors[0] if divisors[0] * 2 > largest else -(-rows // -(-rows // largest))


def row_bytes(model: GPT, length: int) -> int:
    """Returns the bytes that a forward pass of one row of `length` tokens keeps for the backward pass.

    They are measured with a short row. Each stored tensor counts once. Parameters, and what a kernel allocates for
    itself, do not count.
    """
    tokens = min(length, PROBE_TOKENS)
    device = next(model.parameters()).device
    row = torch.zeros(1, tokens, dtype=torch.int64, device=device)
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    stored: dict[int, int] = {}
    kept: list[torch.Tensor] = []  # or a later tensor might get an earlier one's address

    def count(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            stored[storage.data_ptr()] = storage.nbytes()
            kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        model.loss(row, row)
    return -(-sum(stored.values()) * length // tokens)


def require_memory(parameters: int, per_row: int, config: ModelConfig, free: float) -> None:
    """Raises `OutOfMemoryError` where the network with its optimiser and one row do not fit into `free` bytes."""
    needed = parameters * STATE_BYTES + per_row
    if needed > free:
        raise OutOfMemoryError(
            f"one sequence of {config.sequence_length:,} tokens and a network of {parameters:,} parameters need about"
            f" {needed / GIB:.3g} GiB to train, and {free / GIB:.3g} GiB are free: lower model.sequence_length,"
            " model.num_layers or model.width_ratio"
        )


def estimated_parameters(config: ModelConfig, vocab_size: int) -> int:
    """Returns about how many parameters a network will have, before it takes any memory."""
    width = config.width
    return 12 * config.num_layers * width**2 + (2 if config.arch == "modern" else 1) * vocab_size * width


def free_bytes(device: torch.device) -> float:
    """Returns the memory of the device that was free at the peak of use: since `reset_peak`, or now on the CPU."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return float(free + torch.cuda.memory_reserved(device) - torch.cuda.max_memory_allocated(device))
    return min(float(psutil.virtual_memory().available), *_left_by_groups(ROOT), math.inf)


def _left_by_groups(root: Path) -> list[float]:
    """Returns what the control groups of this process leave it, in bytes; none where there is no limit."""
    left = []
    for folder in control_groups(root):
        with contextlib.suppress(OSError, ValueError):
            limit, used = (float((folder / name).read_text()) for name in ("memory.max", "memory.current"))
            left.append(limit - used + _reclaimable(folder))
    return [max(number, 0.0) for number in left if math.isfinite(number)]


def _reclaimable(group: Path) -> float:
    """Returns the bytes of files that a control group holds in memory, which the kernel gives back when needed."""
    with contextlib.suppress(OSError, ValueError):
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return float(stat.get("inactive_file", 0)) + float(stat.get("active_file", 0))
    return 0.0


def reset_peak(device: torch.device) -> None:
    """Gives back what a GPU's allocator holds unused, and begins to watch for the peak of use."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def largest_fitting(rows: int, attempt: Callable[[int], None], free: Callable[[], float], reserved: float) -> int:
    """Returns the largest micro-batch of up to `rows` rows that fits, found by trying.

    One row and two rows tell what a row takes. What should fit by that is tried, and then half of it, and so on.

    Args:
        rows: of a step on this process.
        attempt: takes a number of rows, and makes a forward and a backward pass of them. It raises
            `torch.OutOfMemoryError` where they do not fit.
        free: how much memory was free at the peak of the last attempt.
        reserved: bytes that will be needed beside it, for the optimiser.

    Raises:
        torch.OutOfMemoryError: not even one row fits.
    """
    attempt(1)
    if rows == 1:
        return 1
    after_one = free()
    try:
        attempt(2)
    except torch.OutOfMemoryError:
        return 1
    after_two = free()
    each = max(after_one - after_two, 1.0)
    size = min(rows, 2 + max(0, int((MEMORY_SHARE * after_two - reserved) / each)))
    size = even_rows(rows, size)
    while size > 2:
        try:
            attempt(size)
            return size
        except torch.OutOfMemoryError:
            size = even_rows(rows, size // 2)
    return size
