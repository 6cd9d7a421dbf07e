"""PPO as CleanRL's scripts publish it, in one file: the peer `clean`. Prints one JSON line.

    python benchmarks/peers/clean.py --env gym:CartPole-v1 --seed 0 --goal 475 --max-seconds 60 --threads 1

Written anew from the published description and settings, without the logging, so it is not slower than the scripts:
    separate networks for policy and value function with tanh (for Atari one shared convolutional network with ReLU),
    orthogonal weights, Adam with epsilon 1e-5 and a step size that falls to 0, advantages normalised in each minibatch,
    a clipped policy loss and a clipped value loss, gradients clipped by their global norm.
As there, a truncated episode counts as ended, and its last value is not used.

Source: Huang et al. 2022, "The 37 Implementation Details of Proximal Policy Optimization", ICLR blog track; Huang et
al. 2022, "CleanRL", JMLR 23(274).
"""

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical, Independent, Normal

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from peers.recording import Recording, run_peer
from peers.settings import CLEAN, Clean
from peers.worlds import clean_envs, own_scores


def layer(module: Any, gain: float = math.sqrt(2)) -> Any:
    """Draws orthogonal weights and zeroes the bias."""
    nn.init.orthogonal_(module.weight, gain)
    nn.init.zeros_(module.bias)
    return module


def mlp(inputs: int, outputs: int, gain: float) -> nn.Sequential:
    """Returns two layers of 64 units with tanh, and the output."""
    hidden = [layer(nn.Linear(inputs, 64)), nn.Tanh(), layer(nn.Linear(64, 64)), nn.Tanh()]
    return nn.Sequential(*hidden, layer(nn.Linear(64, outputs), gain))


class Agent(nn.Module):
    """Policy and value function of one of the three scripts."""

    def __init__(self, kind: str, observation_shape: tuple[int, ...], actions: int) -> None:
        super().__init__()
        self.trunk: nn.Module = nn.Identity()
        self.log_std = nn.Parameter(torch.zeros(actions)) if kind == "gaussian" else None
        if kind == "atari":
            convolutions = [(observation_shape[0], 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1)]
            parts: list[nn.Module] = []
            for inputs, outputs, kernel, stride in convolutions:
                parts += [layer(nn.Conv2d(inputs, outputs, kernel, stride)), nn.ReLU()]
            self.trunk = nn.Sequential(*parts, nn.Flatten(), layer(nn.Linear(64 * 7 * 7, 512)), nn.ReLU())
            self.actor: nn.Module = layer(nn.Linear(512, actions), 0.01)
            self.critic: nn.Module = layer(nn.Linear(512, 1), 1.0)
        else:
            features = math.prod(observation_shape)
            self.actor, self.critic = mlp(features, actions, 0.01), mlp(features, 1, 1.0)
        self._scale = 1 / 255 if kind == "atari" else 1.0

    def forward(self, observations: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """Returns the distribution over actions, and the values."""
        hidden = self.trunk(observations * self._scale)
        output, value = self.actor(hidden), self.critic(hidden).squeeze(1)
        if self.log_std is None:
            return Categorical(logits=output), value
        return Independent(Normal(output, self.log_std.exp().expand_as(output)), 1), value


def update(agent: Agent, optimizer: torch.optim.Optimizer, c: Clean, batch: tuple[torch.Tensor, ...]) -> None:
    """Makes the epochs of one batch: observations, actions, log-probabilities, advantages, returns, values."""
    size = len(batch[0])
    for _ in range(c.update_epochs):
        order = torch.randperm(size)
        for index in order.split(size // c.num_minibatches):
            observations, actions, logprobs, advantages, returns, values = (tensor[index] for tensor in batch)
            policy, value = agent(observations)
            ratio = (policy.log_prob(actions) - logprobs).exp()
            gain = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
            policy_loss = torch.max(-gain * ratio, -gain * ratio.clamp(1 - c.clip_coef, 1 + c.clip_coef)).mean()
            clipped = values + (value - values).clamp(-c.clip_coef, c.clip_coef)
            value_loss = 0.5 * torch.max((value - returns).square(), (clipped - returns).square()).mean()
            loss = policy_loss + c.vf_coef * value_loss - c.ent_coef * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), c.max_grad_norm)
            optimizer.step()


def advantages_of(
    rewards: torch.Tensor, values: torch.Tensor, ends: torch.Tensor, last_value: torch.Tensor, c: Clean
) -> torch.Tensor:
    """Returns generalised advantage estimates, all `num_steps x num_envs`; `ends` marks steps that ended an episode."""
    advantages, running, after = torch.zeros_like(rewards), torch.zeros_like(last_value), last_value
    for t in reversed(range(len(rewards))):
        going_on = 1.0 - ends[t]
        running = rewards[t] + c.gamma * after * going_on - values[t] + c.gamma * c.gae_lambda * going_on * running
        advantages[t], after = running, values[t]
    return advantages


def train(name: str, seed: int, recording: Recording) -> None:
    c = CLEAN[name]
    np.random.seed(seed)  # noqa: NPY002  # as the scripts do
    torch.manual_seed(seed)
    envs = clean_envs(name, c.num_envs, recording.episode, normalize=c.normalize, gamma=c.gamma)
    shape, space = envs.single_observation_space.shape, envs.single_action_space
    continuous = c.network == "gaussian"
    agent = Agent(c.network, shape, int(space.shape[0]) if continuous else int(space.n))
    optimizer = torch.optim.Adam(agent.parameters(), lr=c.learning_rate, eps=1e-5)
    rows = (c.num_steps, c.num_envs)
    observations = torch.zeros(*rows, *shape)
    actions = torch.zeros(*rows, *space.shape) if continuous else torch.zeros(rows, dtype=torch.long)
    logprobs, rewards, values, ends = (torch.zeros(rows) for _ in range(4))
    now = torch.as_tensor(envs.reset(seed=seed)[0], dtype=torch.float32)
    recording.begin()
    iterations = c.total_timesteps // (c.num_envs * c.num_steps)
    for iteration in range(iterations):
        optimizer.param_groups[0]["lr"] = c.learning_rate * (1 - iteration / iterations)
        for t in range(c.num_steps):
            observations[t] = now
            with torch.no_grad():
                policy, values[t] = agent(now)
                actions[t] = policy.sample()
                logprobs[t] = policy.log_prob(actions[t])
            after, reward, terminal, truncation, infos = envs.step(actions[t].numpy())
            rewards[t] = torch.as_tensor(reward)
            ends[t] = torch.as_tensor(terminal | truncation)
            now = torch.as_tensor(after, dtype=torch.float32)
            for score in own_scores(infos):
                recording.episode(score)
            if recording.step(c.num_envs):
                return
        with torch.no_grad():
            advantages = advantages_of(rewards, values, ends, agent(now)[1], c)
        parts = (observations, actions, logprobs, advantages, advantages + values, values)
        update(agent, optimizer, c, tuple(part.flatten(0, 1) for part in parts))


if __name__ == "__main__":
    run_peer(__doc__, CLEAN, train)
