"""A fully connected layer on the kernels' threads, differentiable: y = x W^T + b, with or without a ReLU."""

from typing import Any

import torch

from . import _native
from .tensors import is_native

WIDE = 1024  # inputs: from here on torch needs half the time for both passes (Intel Xeon, 256 samples, torch 2.13)


def linear(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, relu: bool = False) -> torch.Tensor:
    """Returns `... x outputs`. Under autocast, and where inputs are wide, torch computes it.

    Args:
        inputs: `... x inputs`, contiguous.
        weight: `outputs x inputs`.
        bias: `outputs`.
        relu: whether negative numbers become 0.

    Raises:
        ValueError: a tensor does not fit this description.
    """
    wide = weight.shape[1] >= WIDE
    if wide or not is_native(inputs, weight, bias) or torch.is_autocast_enabled("cpu"):
        return linear_by_torch(inputs, weight, bias, relu=relu)
    inputs = inputs.contiguous()  # some columns of a batch are not contiguous
    if torch.is_grad_enabled() and (inputs.requires_grad or weight.requires_grad):
        result: torch.Tensor = _Linear.apply(inputs, weight, bias, relu)  # type: ignore[no-untyped-call]
        return result
    return _forward(inputs, weight, bias, relu)


def linear_by_torch(
    inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, relu: bool = False
) -> torch.Tensor:
    """Computes what `linear` does, on any device and in any precision."""
    result = torch.nn.functional.linear(inputs, weight, bias)
    return torch.relu_(result) if relu else result


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, relu: bool) -> torch.Tensor:
        output = _forward(inputs, weight, bias, relu)
        ctx.save_for_backward(inputs, weight, output if relu else None)
        return output

    @staticmethod
    def backward(ctx: Any, *by_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        inputs, weight, output = ctx.saved_tensors
        by_output = by_outputs[0].contiguous()
        by_inputs = torch.empty_like(inputs) if ctx.needs_input_grad[0] else None
        by_weight, by_bias = torch.empty_like(weight), weight.new_empty(len(weight))
        _native.linear_backward(inputs, weight, output, by_output, by_inputs, by_weight, by_bias)
        return by_inputs, by_weight, by_bias, None


def _forward(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, relu: bool) -> torch.Tensor:
    result = inputs.new_empty(*inputs.shape[:-1], len(weight))
    _native.linear_forward(inputs, weight, bias, result, relu)
    return result
