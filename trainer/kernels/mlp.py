"""Fully connected layers and their gradients: one alone, or a multilayer perceptron, fused over blocks of rows.

Notation: `B` samples of `D` features, float32 or bytes; the output is feature-major, `rows x B`. `parameters` are
weight `outputs x inputs` and bias `outputs` of each layer in turn, the linear output last. Hidden layers have ReLUs.
The kernels themselves check shapes and layout: native/tensors.hpp.

The compiled network keeps what one layer hands to the next in a core's cache, and shares rows among threads. The
gradients of the weights are summed over parts of the batch in an order that the batch's size alone decides, so the
result does not depend on the number of threads.

`mlp_vjp` does not use `torch.autograd.Function`: autograd's overhead is too large for small networks. For 2 x 64 units
and 2,048 samples a forward and backward pass takes 350 us, and an autograd function adds 79 us with the parameters as
inputs, 68 us with one vector of them, and 38 us where it writes their gradients itself.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import _native

WIDE = 1024  # inputs: from here on torch needs half the time for both passes (Intel Xeon, 256 samples, torch 2.13)
# Weights of the largest layer up to which the fused network is faster than its layers one by one.
FUSED_WEIGHTS = 2**18
Backward = Callable[[torch.Tensor], None]


_by_torch = 0  # how many `by_torch` are active


@contextlib.contextmanager
def by_torch() -> Iterator[None]:
    """Inside, all threads compute by torch's kernels, the form that a GPU uses."""
    global _by_torch
    _by_torch += 1
    try:
        yield
    finally:
        _by_torch -= 1


def compiled_runs() -> bool:
    """Whether compiled kernels may run: not inside `by_torch`, nor while torch.compile traces without addresses."""
    return not _by_torch and not torch.compiler.is_compiling()


def is_native(*tensors: torch.Tensor | None) -> bool:
    """Returns whether the compiled kernels take these: all in float32 on the CPU, apart from absent ones."""
    return compiled_runs() and all(t is None or (t.dtype == torch.float32 and t.is_cpu) for t in tensors)


def numbers(observations: torch.Tensor, byte_scale: float) -> torch.Tensor:
    """Returns observations as float32: bytes times `byte_scale`, others as they are."""
    if observations.dtype != torch.uint8:
        return observations
    floats = observations.to(torch.float32)
    return floats if byte_scale == 1.0 else floats.mul_(byte_scale)


def channels_last(images: torch.Tensor, byte_scale: float) -> torch.Tensor:
    """Returns images, `B x C x H x W`, as `numbers` does, in memory with the channels last.

    The compiled kernel takes a seventh to a tenth of the time of torch's copy and product (4 channels of 84 x 84).
    """
    bytes_ = images.dtype == torch.uint8 and images.is_cpu and images.is_contiguous()
    if not bytes_ or not compiled_runs():
        return numbers(images.to(memory_format=torch.channels_last), byte_scale)
    floats = torch.empty(images.shape, dtype=torch.float32, memory_format=torch.channels_last)
    _native.channels_last(images, floats.permute(0, 2, 3, 1), byte_scale)
    return floats


def mlp(
    observations: torch.Tensor,
    parameters: tuple[torch.Tensor, ...],
    out: torch.Tensor | None = None,
    byte_scale: float = 1.0,
) -> torch.Tensor:
    """Returns the network's output, `rows x B`; differentiable, where gradients are on and `out` is None.

    Args:
        observations: `B x D`, contiguous.
        parameters: of the layers.
        out: `rows x B`, each row contiguous: where to write the output; None: a new tensor.
        byte_scale: what the network reads is bytes times this; numbers are read as they are.

    Raises:
        ValueError: a tensor does not fit this description.
    """
    if not _is_fused(observations, parameters) or (out is None and torch.is_grad_enabled()):
        by_layers = mlp_by_layers(numbers(observations, byte_scale), parameters)
        return by_layers if out is None else out.copy_(by_layers)
    if out is None:
        out = parameters[0].new_empty(len(parameters[-1]), len(observations))
    _native.mlp_forward(observations, parameters, out, False, byte_scale)
    return out


def mlp_vjp(
    observations: torch.Tensor, parameters: tuple[torch.Tensor, ...], byte_scale: float = 1.0
) -> tuple[torch.Tensor, Backward]:
    """Returns the network's output, `rows x B`, and its vector-Jacobian product. The arguments are those of `mlp`.

    The latter is a function of d loss / d output, `rows x B`, each row contiguous. It adds to each parameter's `grad`,
    which must exist, and may be called once. The observations get no gradient.

    Raises:
        ValueError: a tensor does not fit this description.
    """
    if not _is_fused(observations, parameters):
        by_layers = mlp_by_layers(numbers(observations, byte_scale), parameters)
        return by_layers, lambda by_output: backward_from(by_layers, by_output)
    output = parameters[0].new_empty(len(parameters[-1]), len(observations))
    network = _native.mlp_forward(observations, parameters, output, True, byte_scale)
    assert network is not None

    def backward(by_output: torch.Tensor) -> None:
        network.backward(observations, by_output, tuple([p.grad for p in parameters]), byte_scale)

    return output, backward


def mlp_by_layers(observations: torch.Tensor, parameters: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Computes what `mlp` does, on any device and in any precision, with gradients to everything."""
    hidden = observations
    for weight, bias in zip(parameters[:-2:2], parameters[1:-2:2], strict=True):
        hidden = linear(hidden, weight, bias, relu=True)
    return torch.addmm(parameters[-1].unsqueeze(1), parameters[-2], hidden.t())


def linear(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, relu: bool = False) -> torch.Tensor:
    """Returns inputs W^T + b, `... x outputs`. Under autocast, and where inputs are wide, torch computes it.

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


def backward_from(output: torch.Tensor, by_output: torch.Tensor) -> None:
    """Adds to the gradients of all leaves what d loss / d output, `by_output`, makes of them.

    `torch.autograd.backward` does the same. But where it is given a gradient, it loads sympy to compare two shapes,
    which takes a second and 40 MB. Where it is given a scalar alone, it loads nothing.
    """
    scalar: torch.Tensor = _Loss.apply(output, by_output)  # type: ignore[no-untyped-call]
    torch.autograd.backward(scalar)


def _is_fused(observations: torch.Tensor, parameters: tuple[torch.Tensor, ...]) -> bool:
    readable = observations.dtype == torch.uint8 and observations.is_cpu
    return (
        is_native(parameters[0] if readable else observations, parameters[0])
        and not torch.is_autocast_enabled("cpu")
        and max([weight.numel() for weight in parameters[::2]]) <= FUSED_WEIGHTS
    )


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


class _Loss(torch.autograd.Function):
    """A scalar whose gradient with respect to `output` is `by_output`."""

    @staticmethod
    def forward(ctx: Any, output: torch.Tensor, by_output: torch.Tensor) -> torch.Tensor:
        ctx.by_output = by_output
        return output.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.by_output, None
