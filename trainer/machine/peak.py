"""How fast this device multiplies large matrices: what a training's speed is held against.

It is measured with square matrices that keep all units busy, in the precision of the training. It takes below 0.2 s.
"""

import time

import torch

from .precision import FULL, autocast

FIRST_SIZE, CPU_SIZE, CUDA_SIZE = 256, 1024, 8192  # rows and columns
ROUNDS = 4  # of each size; the fastest counts
LONG_SECONDS = 0.01  # a product that takes longer is large enough


def peak_flops(device: torch.device, precision: str) -> float:
    """Returns floating-point operations a second of a large matrix product, with the present threads and kernels."""
    largest = CPU_SIZE if device.type == "cpu" else CUDA_SIZE
    size, seconds = FIRST_SIZE, _seconds(FIRST_SIZE, device, precision)
    while size < largest and seconds < LONG_SECONDS:
        size *= 2
        seconds = _seconds(size, device, precision)
    return 2.0 * size**3 / seconds


@torch.no_grad()
def _seconds(size: int, device: torch.device, precision: str) -> float:
    matrix = torch.full((size, size), 1e-3, device=device)
    with autocast(device, precision):
        if precision not in FULL:
            matrix = matrix.to(torch.get_autocast_dtype(device.type))
        fastest = float("inf")
        for _ in range(ROUNDS):
            _wait(device)
            began = time.perf_counter()
            matrix @ matrix
            _wait(device)
            fastest = min(fastest, time.perf_counter() - began)
    return fastest


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
