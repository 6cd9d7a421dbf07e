"""The default network: fully connected layers shared by the policy and the value function, and one joint output layer.

Notation: `batch` samples, `features` observations per sample, `actions` discrete actions.

The output is laid out feature-major, `(actions + 1) x batch`: one contiguous row per action's logit and one for the
value, so that everything after the network (sampling, log-probabilities, the loss) reads whole rows.

ReLU, not tanh: on a CPU a tanh costs as much as the matrix product that it follows.

Source: orthogonal initialisation with gain sqrt(2) in the trunk, 0.01 for logits and 1 for the value: Andrychowicz et
al. 2021, "What matters in on-policy reinforcement learning?", and Huang et al. 2022, "The 37 implementation details of
PPO", detail 2.
"""

import itertools
import math

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
        self.trunk = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.head = nn.Linear(hidden_size, num_actions + 1)
        with torch.no_grad():
            for layer in self.trunk:
                assert isinstance(layer, nn.Linear)
                nn.init.orthogonal_(layer.weight, math.sqrt(2), generator=generator)
                layer.bias.zero_()
            nn.init.orthogonal_(self.head.weight[:num_actions], 0.01, generator=generator)
            nn.init.orthogonal_(self.head.weight[num_actions:], 1.0, generator=generator)
            self.head.bias.zero_()

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Maps observations `batch x features` to `(actions + 1) x batch`: logits, and the value as the last row."""
        hidden = observations
        for layer in self.trunk:
            hidden = torch.relu_(layer(hidden))
        return torch.addmm(self.head.bias.unsqueeze(1), self.head.weight, hidden.t())
