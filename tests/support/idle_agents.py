"""A game for two, whose second agent ends early and waits: for runs in which rows must not count."""

from typing import Any

import numpy as np

STEPS = 8  # of a game; the second agent of instance i plays 2 + i % 5 of them


class Pairs:
    """Earns 1 for naming (age + agent) modulo 3."""

    observation_shape = (3,)
    action_sizes = (3,)
    agents_per_env = 2
    max_episode_steps = STEPS

    def __init__(self, num_envs: int, *, seed: int, frame_skip: int, first_index: int) -> None:
        self.num_envs = num_envs
        ends = 2 + (first_index + np.arange(num_envs)) % 5
        self.ends = np.stack([np.full(num_envs, STEPS), ends], axis=1).reshape(-1)
        self.agents = 2 * first_index + np.arange(2 * num_envs)
        self.age = 0

    @property
    def playing(self) -> Any:
        return self.age < self.ends

    def reset(self, seed: int, observations: Any) -> None:
        self.age = 0
        self._write(observations)

    def step(
        self, actions: Any, observations: Any, rewards: Any, terminals: Any, truncations: Any, final_observations: Any
    ) -> None:
        played = self.playing
        rewards[:] = played & (actions == (self.age + self.agents) % 3)
        self.age += 1
        terminals[:] = (self.age == STEPS) | (played & ~self.playing)
        truncations[:] = False
        self.age %= STEPS
        self._write(observations)

    def _write(self, observations: Any) -> None:
        angles = (self.age + self.agents)[:, None] * [1.0, 2.1, 0.3]
        observations[:] = np.where(self.playing[:, None], 3 + np.sin(angles), 0)
