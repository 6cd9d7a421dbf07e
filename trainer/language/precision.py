"""The arithmetic of a language model's run: what `precision = "auto"` is, and threads and kernels for its sizes."""

import torch

from ..machine.precision import Arithmetic, has_bf16_products
from .config import ModelConfig

FAST_WIDTH = 32  # from here on oneDNN's products are faster; measured on AMD EPYC (Zen 5), torch 2.13


def resolve_precision(precision: str, device: torch.device) -> str:
    """Returns what `auto` means on this kind of device; any other precision is returned as it is.

    On a CPU with products of bfloat16 these are faster at every width: on one core of an AMD EPYC (Zen 5), 1.07
    times as many tokens a second as in float32 at a width of 32, 1.2 at 64, 1.4 at 128. The loss is the same: see
    docs/benchmarks-language.md.
    """
    if precision != "auto":
        return precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.get_device_capability(device) >= (8, 0) else "tf32"
    return "bf16" if device.type == "cpu" and has_bf16_products(device) else "fp32"


def prepare(arithmetic: Arithmetic, config: ModelConfig) -> None:
    """Sets threads and kernels on the CPU for the width of a network.

    Its products are those of thousands of tokens, so threads pay at any width that is used.
    """
    arithmetic.choose(threaded=True, fast=config.width >= FAST_WIDTH)
