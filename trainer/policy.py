"""The default network: fully connected layers shared by the policy and the value function, and one joint output layer.

Notation: `batch` samples, `features` observations per sample, `actions` discrete actions.

The output is laid out feature-major, `(actions + 1) x batch`: one contiguous row per action's logit and one for the
value, so that everything after the network (sampling, log-probabilities, the loss) reads whole rows.

ReLU, not tanh: on a CPU a tanh costs as much as the matrix product that it follows.

`Inference` and `FlatGradients` compute the network's output and its gradients for the hot path. The chain rule is
written out: that takes 10 to 20 % less time than recording the operations and replaying them, more on small batches.
All parameters are views of one vector and all gradients of another, so that clipping and the optimiser are one call
each, not one for every layer.

Source: orthogonal initialisation with gain sqrt(2) in the trunk, 0.01 for logits and 1 for the value: Andrychowicz et
al. 2021, "What matters in on-policy reinforcement learning?", and Huang et al. 2022, "The 37 implementation details of
PPO", detail 2.
"""

import contextlib
import itertools
import math
from collections.abc import Callable

import torch
from torch import nn


class MLPPolicy(nn.Module):
    """An actor-critic over `features` real inputs and `num_actions` discrete actions."""

    def __init__(
        self, features: int, num_actions: int, *, hidden_size: int, num_layers: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.num_actions = num_actions
        sizes = [features] + [hidden_size] * num_layers
        self.layers = [nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
        self.trunk = nn.ModuleList(self.layers)
        self.head = nn.Linear(hidden_size, num_actions + 1)
        with torch.no_grad():
            for layer in self.layers:
                nn.init.orthogonal_(layer.weight, math.sqrt(2), generator=generator)
                layer.bias.zero_()
            nn.init.orthogonal_(self.head.weight[:num_actions], 0.01, generator=generator)
            nn.init.orthogonal_(self.head.weight[num_actions:], 1.0, generator=generator)
            self.head.bias.zero_()

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Maps observations `batch x features` to `(actions + 1) x batch`: logits, and the value as the last row."""
        hidden = observations
        for layer in self.layers:
            hidden = torch.relu_(layer(hidden))
        return torch.addmm(self.head.bias.unsqueeze(1), self.head.weight, hidden.t())


class Inference:
    """The policy's forward pass in float32 over a fixed number of rows, into buffers of its own: nothing is allocated.

    It reads the parameters where they lie, so it sees every update; they must have their final place.
    """

    def __init__(self, policy: MLPPolicy, rows: int) -> None:
        device = policy.head.weight.device
        self._head_bias = policy.head.bias.detach().unsqueeze(1)
        self._head_weight = policy.head.weight.detach()
        self._layers = [
            (layer.bias.detach(), layer.weight.detach().t(), torch.empty(rows, layer.out_features, device=device))
            for layer in policy.layers
        ]

    def __call__(self, observations: torch.Tensor, out: torch.Tensor) -> None:
        """Maps observations `rows x features` to `out`, `(actions + 1) x rows`, as the policy does."""
        hidden = observations
        for bias, weight, buffer in self._layers:
            torch.addmm(bias, hidden, weight, out=buffer)
            hidden = torch.relu_(buffer)
        torch.addmm(self._head_bias, self._head_weight, hidden.t(), out=out)


class FlatGradients:
    """Computes the gradients of a policy's parameters, into one vector.

    `weights` and `gradients` are vectors of all parameters and of their gradients; the policy's own are views of them.
    """

    def __init__(self, policy: MLPPolicy) -> None:
        """Moves the policy's parameters into one vector; the policy must be on its final device."""
        self._policy = policy
        self.forward: Callable[[torch.Tensor], torch.Tensor] = policy  # may be replaced by a compiled one
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
        gradient_of: Callable[[torch.Tensor], torch.Tensor],
        autocast: contextlib.AbstractContextManager[object],
    ) -> None:
        """Fills `gradients` as `by_chain_rule` does, for any precision and for a compiled `forward`."""
        self.gradients.zero_()
        with autocast:
            output = self.forward(observations)
        gradient = gradient_of(output.detach().float())
        torch.autograd.backward(output, gradient.to(output.dtype))

    @torch.no_grad()
    def by_chain_rule(self, observations: torch.Tensor, gradient_of: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Fills `gradients`, in float32.

        Args:
            observations: `batch x features`.
            gradient_of: maps the network's output to the loss's derivative by it, both `(actions + 1) x batch`.
        """
        layers, head = self._policy.layers, self._policy.head
        hidden = [observations]
        for layer in layers:
            hidden.append(torch.relu_(layer(hidden[-1])))
        output = torch.addmm(head.bias.unsqueeze(1), head.weight, hidden[-1].t())
        by_output = gradient_of(output)
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
