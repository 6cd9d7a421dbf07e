"""All weights of a network in one vector, and their gradients in another; a policy's gradients.

All parameters are views of one vector, and all gradients are views of another. So clipping, the optimiser and a sum
over processes take one call each instead of one per layer.
"""

import contextlib
from collections.abc import Callable

import torch
from torch import nn

from ..kernels import Backward, backward_from
from ..machine.stopwatch import Stopwatch
from ..model.policy import Policy

# Maps the network's output, `rows x B`, to d loss / d output.
GradientOf = Callable[[torch.Tensor], torch.Tensor]
Vjp = Callable[[torch.Tensor, torch.Tensor | None, torch.Tensor | None], tuple[torch.Tensor, Backward]]


class FlatWeights:
    """Two vectors: the `weights` of all parameters and their `gradients`. The network's tensors are views of them.

    Backward passes add to the gradients; `clear` sets them to zero.
    """

    def __init__(self, network: nn.Module) -> None:
        """Moves the network's parameters into one vector; the network must be on its final device."""
        self.weights = nn.Parameter(flatten_(network))
        self.gradients = torch.zeros_like(self.weights)
        self.weights.grad = self.gradients
        for parameter, gradient in zip(network.parameters(), _views(self.gradients, network), strict=True):
            parameter.grad = gradient

    def clear(self) -> None:
        """Sets all gradients to zero."""
        self.gradients.zero_()


class FlatGradients(FlatWeights):
    """The gradients of a policy: one backward pass at a time fills them."""

    def __init__(self, policy: Policy, stopwatch: Stopwatch) -> None:
        """As `FlatWeights`; the passes' time is booked on the stopwatch."""
        super().__init__(policy)
        self._policy = policy
        self._switch = stopwatch.switch
        self._vjp: Vjp = policy.vjp

    def compile(self) -> None:
        """Compiles the network's passes; each new shape of the observations is compiled when it first comes."""
        forward: Callable[..., tuple[torch.Tensor, torch.Tensor | None]] = torch.compile(self._policy, dynamic=True)

        def vjp(
            observations: torch.Tensor, state: torch.Tensor | None, resets: torch.Tensor | None
        ) -> tuple[torch.Tensor, Backward]:
            output, _ = forward(observations, state, resets)
            return output, lambda by_output: backward_from(output, by_output)

        self._vjp = vjp

    def stay_eager(self) -> None:
        """Undoes `compile`."""
        self._vjp = self._policy.vjp

    @torch.no_grad()
    def output(
        self,
        observations: torch.Tensor,
        state: torch.Tensor | None,
        resets: torch.Tensor | None,
        autocast: contextlib.AbstractContextManager[object],
    ) -> torch.Tensor:
        """Returns the network's output, `rows x B`, without gradients."""
        with autocast:  # not the compiled one, which would be compiled again for a pass without gradients
            output, _ = self._policy.forward(observations, state, resets)
        return output.float()

    def compute(
        self,
        observations: torch.Tensor,
        state: torch.Tensor | None,
        resets: torch.Tensor | None,
        gradient_of: GradientOf,
        autocast: contextlib.AbstractContextManager[object],
    ) -> None:
        """Fills `gradients`.

        Args:
            observations: `T x M x D`; like state and resets, what the policy's `forward` takes.
            state: `M x S`, or None.
            resets: `T x M`, or None.
            gradient_of: maps the network's output to d loss / d output, both `rows x B` in float32.
            autocast: the context in which the network runs.
        """
        self._switch("update_forward")
        self.clear()
        with autocast:
            output, backward = self._vjp(observations, state, resets)
        gradient = gradient_of(output.detach().float())
        self._switch("update_backward")
        backward(gradient.to(output.dtype))


def flatten_(network: nn.Module) -> torch.Tensor:
    """Moves a network's parameters into one vector, and returns it; the network must be on its final device."""
    weights = nn.utils.parameters_to_vector(network.parameters()).detach()
    for parameter, view in zip(network.parameters(), _views(weights, network), strict=True):
        parameter.data = view
    return weights


def _views(vector: torch.Tensor, network: nn.Module) -> list[torch.Tensor]:
    """Returns the parts of a vector that belong to each parameter, in their shapes."""
    parameters = list(network.parameters())
    parts = torch.split(vector, [parameter.numel() for parameter in parameters])
    return [part.view_as(parameter) for part, parameter in zip(parts, parameters, strict=True)]
