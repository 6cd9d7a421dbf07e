"""PPO as it is usually written in PyTorch: the baseline of `trainer.py`. Prints one JSON line.

The same environment, network sizes and hyperparameters as the trainer's, read from the same file; straightforward
code: a list of tensors a rollout, `Categorical`, automatic differentiation of the whole loss, PyTorch's own settings.
"""

import argparse
import itertools
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

from protein.envs_c import VecEnv
from protein.trainer.config import load


class Agent(nn.Module):
    def __init__(self, features: int, actions: int, hidden: int, layers: int) -> None:
        super().__init__()
        sizes = [features] + [hidden] * layers
        trunk = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in itertools.pairwise(sizes)]
        self.trunk = nn.Sequential(*trunk)
        self.actor, self.critic = nn.Linear(hidden, actions), nn.Linear(hidden, 1)

    def forward(self, observations: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        hidden = self.trunk(observations)
        return Categorical(logits=self.actor(hidden)), self.critic(hidden).squeeze(1)


def train(config_path: Path, total: int, threads: int) -> tuple[int, float]:
    """Returns the steps taken, whole rollouts of about `total`, and the seconds that they took."""
    config = load(config_path)
    c, n, horizon = config.train, config.env.num_envs, config.train.horizon
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    envs = VecEnv(config.env.name, n, frame_skip=config.env.frame_skip, threads=threads)
    size = envs.spec.observation_size
    (actions,) = envs.spec.action_sizes
    agent = Agent(size, actions, config.policy.hidden_size, config.policy.num_layers)
    optimizer = torch.optim.Adam(agent.parameters(), lr=c.learning_rate, eps=c.adam_eps)
    observation = np.zeros((n, size), envs.spec.observation_dtype)
    envs.reset(0, observation)
    began = time.perf_counter()
    rollouts = max(1, total // (n * horizon))
    for _ in range(rollouts):
        observations, taken, logprobs, values, rewards, ends = [], [], [], [], [], []
        for _ in range(horizon):
            now = torch.tensor(observation).float()
            with torch.no_grad():
                policy, value = agent(now)
                action = policy.sample()
            reward, terminal, truncation = np.zeros(n, np.float32), np.zeros(n, np.bool_), np.zeros(n, np.bool_)
            envs.step(action.numpy().astype(np.int32), observation, reward, terminal, truncation)
            observations.append(now)
            taken.append(action)
            logprobs.append(policy.log_prob(action))
            values.append(value)
            rewards.append(torch.tensor(reward))
            ends.append(torch.tensor(terminal | truncation).float())
        with torch.no_grad():
            next_value = agent(torch.tensor(observation))[1]
        advantages, running = [torch.zeros(n)] * horizon, torch.zeros(n)
        for t in reversed(range(horizon)):
            delta = rewards[t] + c.gamma * next_value * (1 - ends[t]) - values[t]
            advantages[t] = running = delta + c.gamma * c.gae_lambda * (1 - ends[t]) * running
            next_value = values[t]
        b_observations, b_actions, b_logprobs = torch.cat(observations), torch.cat(taken), torch.cat(logprobs)
        b_advantages, b_returns = torch.cat(advantages), torch.cat(advantages) + torch.cat(values)
        for _ in range(c.update_epochs):
            order = torch.randperm(len(b_actions))
            for start in range(0, len(order), c.minibatch_size):
                index = order[start : start + c.minibatch_size]
                policy, value = agent(b_observations[index])
                ratio = (policy.log_prob(b_actions[index]) - b_logprobs[index]).exp()
                gain = b_advantages[index]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                policy_loss = torch.max(-gain * ratio, -gain * ratio.clamp(1 - c.clip_coef, 1 + c.clip_coef)).mean()
                value_loss = 0.5 * (value - b_returns[index]).square().mean()
                loss = policy_loss + c.vf_coef * value_loss - c.ent_coef * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), c.max_grad_norm)
                optimizer.step()
        envs.drain_episodes()
    return rollouts * n * horizon, time.perf_counter() - began


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    steps, seconds = train(arguments.config, arguments.steps, arguments.threads)
    print(json.dumps({"steps": steps, "elapsed_seconds": seconds}))
