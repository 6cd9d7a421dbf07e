"""Gradients of a policy's parameters, in one vector.

All parameters are views of one vector and all gradients of another, so that clipping, the optimiser and a sum over
processes are one call each, not one for every layer.

For a plain MLP in float32 the chain rule is written out: that takes 10 to 20 % less time than recording the operations
and replaying them, more on small batches. Everything else goes through automatic differentiation.
"""

import contextlib
from collections.abc import Callable

import torch
from torch import nn

from trainer.policy import MLP, Policy
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

    def by_autograd(
        self,
        observations: torch.Tensor,
        state: torch.Tensor | None,
        resets: torch.Tensor | None,
        gradient_of: GradientOf,
        autocast: contextlib.AbstractContextManager[object],
    ) -> None:
        """Fills `gradients` as `by_chain_rule` does, for any policy and precision and for a compiled `forward`."""
        self._switch("update_forward")
        self.gradients.zero_()
        with autocast:
            output, _ = self.forward(observations, state, resets)
        gradient = gradient_of(output.detach().float())
        self._switch("update_backward")
        torch.autograd.backward(output, gradient.to(output.dtype))

    @torch.no_grad()
    def by_chain_rule(self, observations: torch.Tensor, gradient_of: GradientOf) -> None:
        """Fills `gradients` of a plain policy, in float32.

        Args:
            observations: `B x D`.
            gradient_of: maps the network's output to the loss's derivative by it, both `rows x B`.
        """
        self._switch("update_forward")
        encoder, head = self._policy.encoder, self._policy.head
        assert isinstance(encoder, MLP)
        layers = encoder.linears
        hidden = [observations]
        for layer in layers:
            hidden.append(torch.relu_(layer(hidden[-1])))
        output = torch.addmm(head.bias.unsqueeze(1), head.weight, hidden[-1].t())
        by_output = gradient_of(output)
        self._switch("update_backward")
        torch.mm(by_output, hidden[-1], out=head.weight.grad)
        torch.sum(by_output, dim=1, out=head.bias.grad)
        by_hidden = torch.mm(by_output.t(), head.weight)
        for index in range(len(layers) - 1, -1, -1):
            layer = layers[index]
            # Through the ReLU: what it cut off has no influence.
            torch.ops.aten.threshold_backward.grad_input(by_hidden, hidden[index + 1], 0, grad_input=by_hidden)
            torch.mm(by_hidden.t(), hidden[index], out=layer.weight.grad)
            torch.sum(by_hidden, dim=0, out=layer.bias.grad)
            if index:
                by_hidden = torch.mm(by_hidden, layer.weight)
