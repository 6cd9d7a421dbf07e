"""Two networks of one's own: separate ones for policy and value, and one with a memory."""

import math

import torch
from torch import nn


class TwoTowers(nn.Module):
    """Policy and value function share nothing."""

    def __init__(self, observation_shape, action_outputs, value_outputs, hidden_size):
        super().__init__()
        self.actor = self.tower(math.prod(observation_shape), hidden_size, action_outputs)
        self.critic = self.tower(math.prod(observation_shape), hidden_size, value_outputs)
        with torch.no_grad():
            self.actor[-1].weight.mul_(0.01)  # at first all actions are about equally likely

    def tower(self, inputs, hidden, outputs):
        layers = nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, outputs)
        return nn.Sequential(nn.Flatten(), *layers)

    def forward(self, observations):
        return self.actor(observations), self.critic(observations)


class Remembers(nn.Module):
    """A GRU between two layers: `state_size` above 0 makes it recurrent."""

    def __init__(self, observation_shape, action_outputs, value_outputs, hidden_size):
        super().__init__()
        self.state_size = hidden_size
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(observation_shape), hidden_size), nn.ReLU())
        self.memory = nn.GRUCell(hidden_size, hidden_size)
        self.action = nn.Linear(hidden_size, action_outputs)
        self.value = nn.Linear(hidden_size, value_outputs)

    def forward(self, observations, state):
        state = self.memory(self.encoder(observations), state)
        return self.action(state), self.value(state), state
