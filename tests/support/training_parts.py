"""Parts of a training run for the tests of `trainer`: environments whose every number is known, policies, rollouts."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from protein.envs_c import EnvSpec
from protein.trainer.config import PolicyConfig
from protein.trainer.machine.precision import FULL
from protein.trainer.machine.stopwatch import Stopwatch
from protein.trainer.model.policy import Policy
from protein.trainer.ppo.overlap import InterleavedRollout
from protein.trainer.ppo.rollout import Rollout

CPU = torch.device("cpu")
GRID = (2, 3, 4)  # channels, height, width
POLICIES: dict[str, dict[str, Any]] = {
    "mlp": {},
    "cnn": {"encoder": "cnn", "num_layers": 1},
    "lstm": {"recurrence": "lstm"},
    "mingru": {"recurrence": "mingru"},
    "bins": {"value_bins": 7, "value_limit": 20.0},
    "separate": {"separate_value": True},
    "tanh": {"activation": "tanh"},
}


def make_spec(
    shape: tuple[int, ...] = GRID, action_sizes: tuple[int, ...] = (4,), continuous_actions: int = 0
) -> EnvSpec:
    return EnvSpec(
        name="scripted",
        description="",
        observation_size=int(np.prod(shape)),
        observation_shape=shape,
        action_sizes=() if continuous_actions else action_sizes,
        continuous_actions=continuous_actions,
        agents_per_env=1,
        score_range=(-1.0, 1.0),
        solved_score=1.0,
        max_episode_steps=1000,
    )


class ScriptedEnvs:
    """Agents that count steps; the observation is a fixed function of agent and age. Ends follow a table, `T x N`."""

    def __init__(
        self, terminals: np.ndarray, truncations: np.ndarray, rewards: np.ndarray, spec: EnvSpec, first: int = 0
    ) -> None:
        self.table = terminals, truncations, rewards
        self.num_envs = self.num_agents = terminals.shape[1]
        self.spec = spec
        self.taken: list[np.ndarray] = []
        self.now = 0
        self.agents = first + np.arange(self.num_agents)
        self.age = np.zeros(self.num_agents)

    def observation(self, agents: np.ndarray, ages: np.ndarray) -> np.ndarray:
        k = np.arange(self.spec.observation_size)
        return np.sin(1.0 + k + 2.3 * agents[..., None] + 0.7 * ages[..., None] * (1 + k % 3)).astype(np.float32)

    def reset(self, seed: int, observations: np.ndarray) -> None:
        self.now, self.age = 0, np.zeros(self.num_agents)
        observations[:] = self.observation(self.agents, self.age)

    def step(
        self,
        actions: np.ndarray,
        observations: np.ndarray,
        rewards: np.ndarray,
        terminals: np.ndarray,
        truncations: np.ndarray,
        final_observations: np.ndarray | None = None,
    ) -> None:
        self.taken.append(actions.copy())
        terminals[:], truncations[:], rewards[:] = (column[self.now] for column in self.table)
        self.age += 1
        if final_observations is not None:
            final_observations[truncations] = self.observation(self.agents, self.age)[truncations]
        self.age[terminals | truncations] = 0
        observations[:] = self.observation(self.agents, self.age)
        self.now += 1


def scripted(
    steps: int, agents: int, spec: EnvSpec, *, halves: bool = False, seed: int = 3, ends: float = 0.2
) -> list[ScriptedEnvs]:
    """Returns the environments, whole or as two halves: agents end at random, as often by both kinds of end."""
    rng = np.random.default_rng(seed)
    terminals, truncations = rng.random((steps, agents)) < ends, rng.random((steps, agents)) < ends
    rewards = rng.normal(size=(steps, agents)).astype(np.float32)
    cuts = [0, agents // 2, agents] if halves else [0, agents]
    return [
        ScriptedEnvs(terminals[:, a:b], truncations[:, a:b], rewards[:, a:b], spec, first=a)
        for a, b in itertools.pairwise(cuts)
    ]


def make_policy(spec: EnvSpec, *, sharp: float = 20.0, **config: Any) -> Policy:
    """Returns a small policy whose choices differ, where the initial one's are nearly uniform."""
    policy = Policy(
        spec,
        PolicyConfig(**({"hidden_size": 8} | config)),
        generator=torch.Generator().manual_seed(1),
    )
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        policy.head.weight[: policy.distribution.rows].mul_(sharp)
        policy.head.bias.uniform_(-1, 1, generator=generator)
        if policy.log_std is not None:
            policy.log_std.uniform_(-1, 0.5, generator=generator)
    return policy


def make_rollout(
    envs: Sequence[Any], policy: Policy, horizon: int, *, seed: int = 0, gamma: float = 0.9, precision: str = FULL[0]
) -> Rollout:
    return (Rollout if len(envs) == 1 else InterleavedRollout)(
        envs,
        policy,
        horizon=horizon,
        gamma=gamma,
        device=CPU,
        generator=torch.Generator().manual_seed(seed),
        stopwatch=Stopwatch(CPU),
        precision=precision,
    )


def slow_advantages(
    rewards: np.ndarray,
    values: np.ndarray,
    terminals: np.ndarray,
    truncations: np.ndarray,
    final_values: np.ndarray,
    gamma: float,
    gae_lambda: float,
) -> np.ndarray:
    """A[t] = sum over l of (gamma lambda)^l delta[t + l], up to and including the step that ends t's episode.

    By the definition, a sum over each step's own future; all arrays are `T x N`, values `(T + 1) x N`.
    """
    horizon, agents = rewards.shape
    result = np.zeros((horizon, agents))
    for agent in range(agents):
        for t in range(horizon):
            for later in range(t, horizon):
                if terminals[later, agent]:
                    follows = 0.0
                elif truncations[later, agent]:
                    follows = final_values[later, agent]
                else:
                    follows = values[later + 1, agent]
                delta = rewards[later, agent] + gamma * follows - values[later, agent]
                result[t, agent] += (gamma * gae_lambda) ** (later - t) * delta
                if terminals[later, agent] or truncations[later, agent]:
                    break
    return result
