"""Gradients of a policy's parameters, in one vector.

All parameters are views of one vector and all gradients of another, so that clipping, the optimiser and a sum over
processes are one call each, not one for every layer.

A plain MLP in float32 on the CPU has a kernel of its own; everything else goes through automatic differentiation.
"""

import contextlib
from collections.abc import Callable

import torch
from torch import nn

from trainer.policy import Policy, fused
from trainer.stopwatch import Stopwatch

# Maps the network's output, `rows x B`, to the loss's derivative by it.
GradientOf = Callable[[torch.Tensor], torch.Tensor]


class FlatGradients:
    """`weights`, all parameters, and `gradients`, theirs, are vectors; the policy's own are views of them."""

    def __init__(self, policy: Policy, stopwatch: Stopwatch) -> None:
        """Moves the policy's parameters into one vector; the policy must be on its final device."""
        self._policy = policy
        self._switch = stopwatch.switch
        self.forward: Callable[..., tuple[torch.Tensor, torch.Tensor | None]] = policy  # or a compiled one
        parameters = list(policy.parameters())
        self.weights = nn.Parameter(nn.utils.parameters_to_vector(parameters).detach())
        self.gradients = torch.zeros_like(self.weights)
        self.weights.grad = self.gradients
        start = 0
        for parameter in parameters:
            end = start + parameter.numel()
            parameter.data = self.weights.data[start:end].view_as(parameter)
            parameter.grad = self.gradients[start:end].view_as(parameter)
            start = end
        self._mlp = fused(policy)
        self._layer_gradients = [_gradients_of(layer) for layer in policy.linears] if self._mlp is not None else []

    @property
    def has_kernel(self) -> bool:
        """Whether `by_kernel` can be used."""
        return self._mlp is not None

    def by_autograd(
        self,
        observations: torch.Tensor,
        state: torch.Tensor | None,
        resets: torch.Tensor | None,
        gradient_of: GradientOf,
        autocast: contextlib.AbstractContextManager[object],
    ) -> None:
        """Fills `gradients` as `by_kernel` does, for any policy and precision and for a compiled `forward`."""
        self._switch("update_forward")
        self.gradients.zero_()
        with autocast:
            output, _ = self.forward(observations, state, resets)
        gradient = gradient_of(output.detach().float())
        self._switch("update_backward")
        torch.autograd.backward(output, gradient.to(output.dtype))

    @torch.no_grad()
    def by_kernel(self, observations: torch.Tensor, gradient_of: GradientOf) -> None:
        """Fills `gradients` of a policy that `fused` takes.

        Args:
            observations: `B x D`.
            gradient_of: maps the network's output to the loss's derivative by it, both `rows x B`.
        """
        assert self._mlp is not None
        self._switch("update_forward")
        observations = observations.contiguous()
        output = observations.new_empty(self._policy.rows, len(observations))
        self._mlp.forward(observations, output, keep=True)
        by_output = gradient_of(output)
        self._switch("update_backward")
        self._mlp.backward(observations, by_output, self._layer_gradients)


def _gradients_of(layer: nn.Linear) -> tuple[torch.Tensor, torch.Tensor]:
    assert layer.weight.grad is not None and layer.bias.grad is not None
    return layer.weight.grad, layer.bias.grad
