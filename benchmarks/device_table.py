"""What benchmarks of one device share: their flags, the device, its best rates, and where the result goes.

Used by gpu.py and language/steps.py.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

import machine
import torch

from protein.trainer.errors import TrainerError
from protein.trainer.machine.precision import resolve_device

PRECISIONS = ("fp32", "tf32", "bf16")
ROUNDS = 10  # of a product; the fastest counts


def make_parser(description: str | None, devices: str) -> argparse.ArgumentParser:
    """Returns the parser of the common flags. `devices`: what --device may be, in words."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help=devices)
    parser.add_argument("--minutes", type=float, default=10.0, help="begin no further row after this time")
    parser.add_argument("--tiny", action="store_true", help="small sizes, a few steps: a test of this file")
    parser.add_argument("--no-result", action="store_true", help="only print the table")
    return parser


def find_device(parser: argparse.ArgumentParser, name: str) -> tuple[torch.device, str]:
    """Returns the device of --device and its model's name; ends the program where this machine does not have it."""
    try:
        device = resolve_device(name)
    except TrainerError as error:
        parser.exit(2, f"error: {error}; nothing was measured\n")
    return device, torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def peak_flops(device: torch.device, precision: str, size: int) -> float:
    """Returns the best rate of a product of two `size x size` matrices, in operations a second."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest" if precision == "fp32" else "high")
    a = torch.rand(size, size, device=device, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
    best = 0.0
    for _ in range(ROUNDS):
        began = time.perf_counter()
        (a @ a)[0, 0].item()  # waits for the device
        best = max(best, 2 * size**3 / (time.perf_counter() - began))
    torch.set_float32_matmul_precision(before)
    return best


def measure_peaks(device: torch.device, *, tiny: bool) -> dict[str, float]:
    """Returns `peak_flops` in each of `PRECISIONS`, and prints them."""
    peaks = {precision: peak_flops(device, precision, 256 if tiny else 8192) for precision in PRECISIONS}
    print("peak in TFLOP/s: " + ", ".join(f"{precision} {flops / 1e12:.3g}" for precision, flops in peaks.items()))
    return peaks


def write_result(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    arguments: argparse.Namespace,
    device_name: str,
    peaks: Mapping[str, float],
) -> None:
    """Writes the table, unless --no-result or --tiny was given, and says where. `peaks`: in operations a second."""
    if arguments.no_result or arguments.tiny:
        return
    peak_gflops = {precision: round(flops / 1e9) for precision, flops in peaks.items()}
    path = machine.write_result(name, rows, device=device_name, peak_gflops=peak_gflops)
    print(f"\nwritten to {path.relative_to(machine.ROOT)}")
