"""Gradients of a policy's parameters, in one vector.

All parameters are views of one vector and all gradients of another, so that clipping, the optimiser and a sum over
processes are one call each, not one for every layer.

A plain MLP in float32 on the CPU has a kernel of its own; everything else goes through automatic differentiation.
"""

import contextlib
from collections.abc import Callable

import torch
from torch import nn

from protein.trainer.machine.stopwatch import Stopwatch
from protein.trainer.model.policy import Policy, fused

# Maps the network's output, `rows x B`, to the loss's derivative by it.
GradientOf = Callable[[torch.Tensor], torch.Tensor]


class FlatGradients:
    """`weights`, all parameters, and `gradients`, theirs, are vectors; the policy's own are views of them."""

    def __init__(self, policy: Policy, stopwatch: Stopwatch) -> None:
        """Moves the policy's parameters into one vector; the policy must be on its final device."""
        self._policy = policy
        self._switch = stopwatch.switch
        self.forward: Callable[..., tuple[torch.Tensor, torch.Tensor | None]] = policy  # or a compiled one
        self.weights = nn.Parameter(flatten_(policy))
        self.gradients = torch.zeros_like(self.weights)
        self.weights.grad = self.gradients
        for parameter, gradient in zip(policy.parameters(), _views(self.gradients, policy), strict=True):
            parameter.grad = gradient
        self._mlp = fused(policy)
        self._layer_gradients = [_gradients_of(layer) for layer in policy.linears] if self._mlp is not None else []

    @property
    def has_kernel(self) -> bool:
        """Whether `by_kernel` can be used."""
        return self._mlp is not None

    def output(
        self,
        observations: torch.Tensor,
        state: torch.Tensor | None,
        resets: torch.Tensor | None,
        autocast: contextlib.AbstractContextManager[object] | None,
    ) -> torch.Tensor:
        """Returns the network's output, `rows x B`, without gradients; `autocast` None: by the kernel."""
        if autocast is None:
            assert self._mlp is not None
            flat = observations.flatten(0, 1).contiguous()
            output = flat.new_empty(self._policy.rows, len(flat))
            self._mlp.forward(flat, output)
            return output
        with torch.no_grad(), autocast:  # never the compiled one, which would be compiled again for this
            output, _ = self._policy.forward(observations, state, resets)
        return output.float()

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


def flatten_(policy: Policy) -> torch.Tensor:
    """Moves a policy's parameters into one vector, and returns it; the policy must be on its final device."""
    weights = nn.utils.parameters_to_vector(policy.parameters()).detach()
    for parameter, view in zip(policy.parameters(), _views(weights, policy), strict=True):
        parameter.data = view
    return weights


def _views(vector: torch.Tensor, policy: Policy) -> list[torch.Tensor]:
    """Returns the parts of a vector that belong to each parameter, in their shapes."""
    parameters = list(policy.parameters())
    parts = torch.split(vector, [parameter.numel() for parameter in parameters])
    return [part.view_as(parameter) for part, parameter in zip(parts, parameters, strict=True)]


def _gradients_of(layer: nn.Linear) -> tuple[torch.Tensor, torch.Tensor]:
    assert layer.weight.grad is not None and layer.bias.grad is not None
    return layer.weight.grad, layer.bias.grad
