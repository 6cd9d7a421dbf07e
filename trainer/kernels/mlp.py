"""A multilayer perceptron with ReLUs and a linear output, differentiable, fused over blocks of rows.

Notation: `B` samples of `D` features; the output is feature-major, `rows x B`.

The compiled network keeps what one layer hands to the next in a core's cache, and shares rows among threads. The
gradients of the weights are summed over parts of the batch in an order that the batch's size alone decides, so the
result does not depend on the number of threads.
"""

from typing import Any

import torch

from protein.trainer.kernels import _native
from protein.trainer.kernels.linear import linear
from protein.trainer.kernels.tensors import is_native

FUSED_WEIGHTS = 2**18  # weights of the largest layer up to which the fused network is faster than its layers one by one


def mlp(
    observations: torch.Tensor, parameters: tuple[torch.Tensor, ...], out: torch.Tensor | None = None
) -> torch.Tensor:
    """Returns the network's output, `rows x B`. Gradients go to the parameters, not to the observations.

    In float32 on the CPU, without autocast and with layers that are not too large, it is one compiled network;
    otherwise its layers run one by one.

    Args:
        observations: `B x D`, contiguous.
        parameters: weight `outputs x inputs` and bias `outputs` of each layer in turn, the linear output last.
        out: `rows x B`, each row contiguous: where to write the output, without gradients; None: a new tensor.

    Raises:
        ValueError: a tensor is not as said.
    """
    if (
        not is_native(observations, parameters[0])
        or torch.is_autocast_enabled("cpu")
        or max([weight.numel() for weight in parameters[::2]]) > FUSED_WEIGHTS
    ):
        by_layers = mlp_by_layers(observations, parameters)
        return by_layers if out is None else out.copy_(by_layers)
    if out is None and torch.is_grad_enabled():
        result: torch.Tensor = _MLP.apply(observations, *parameters)  # type: ignore[no-untyped-call]
        return result
    if out is None:
        out = observations.new_empty(parameters[-1].shape[0], observations.shape[0])
    _native.mlp_forward(observations, parameters, out, False)
    return out


def mlp_by_layers(observations: torch.Tensor, parameters: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Computes what `mlp` does, on any device and in any precision."""
    hidden = observations
    for weight, bias in zip(parameters[:-2:2], parameters[1:-2:2], strict=True):
        hidden = linear(hidden, weight, bias, relu=True)
    return torch.addmm(parameters[-1].unsqueeze(1), parameters[-2], hidden.t())


class _MLP(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, observations: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        output = observations.new_empty(parameters[-1].shape[0], observations.shape[0])
        ctx.network = _native.mlp_forward(observations, parameters, output, True)
        ctx.save_for_backward(observations)
        ctx.shapes = [parameter.shape for parameter in parameters]
        return output

    @staticmethod
    def backward(ctx: Any, *by_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (observations,) = ctx.saved_tensors
        gradients = tuple([observations.new_empty(shape) for shape in ctx.shapes])
        ctx.network.backward(observations, by_outputs[0], gradients)
        return None, *gradients
