"""A multilayer perceptron with ReLUs and a linear output, fused over blocks of rows, and its gradients.

Notation: `B` samples of `D` features, float32 or bytes; the output is feature-major, `rows x B`. `parameters` are
weight `outputs x inputs` and bias `outputs` of each layer in turn, the linear output last.

The compiled network keeps what one layer hands to the next in a core's cache, and shares rows among threads. The
gradients of the weights are summed over parts of the batch in an order that the batch's size alone decides, so the
result does not depend on the number of threads.

`mlp_vjp` does not use `torch.autograd.Function`: autograd's overhead is too large for small networks. For 2 x 64 units
and 2,048 samples a forward and backward pass takes 350 us, and an autograd function adds 79 us with the parameters as
inputs, 68 us with one vector of them, and 38 us where it writes their gradients itself.
"""

from collections.abc import Callable

import torch

from . import _native
from .backward import backward_from
from .linear import linear
from .tensors import is_native, numbers

# Weights of the largest layer up to which the fused network is faster than its layers one by one.
FUSED_WEIGHTS = 2**18

Backward = Callable[[torch.Tensor], None]


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


def _is_fused(observations: torch.Tensor, parameters: tuple[torch.Tensor, ...]) -> bool:
    readable = observations.dtype == torch.uint8 and observations.is_cpu
    return (
        is_native(parameters[0] if readable else observations, parameters[0])
        and not torch.is_autocast_enabled("cpu")
        and max([weight.numel() for weight in parameters[::2]]) <= FUSED_WEIGHTS
    )
