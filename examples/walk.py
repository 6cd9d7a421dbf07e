"""A walk on a line: +1 for reaching the right end, over at either end or after 100 steps."""

import numpy as np


class Walk:
    observation_shape = (1,)
    action_sizes = (2,)  # one discrete action of two choices; or continuous_actions = 1, each in [-1, 1]
    solved_score = 0.95
    max_episode_steps = 100

    def __init__(self, num_envs, *, seed, frame_skip, first_index):
        self.num_envs, self.frame_skip, self.first_index = num_envs, frame_skip, first_index
        self.place, self.age = np.zeros(num_envs), np.zeros(num_envs, int)

    def reset(self, seed, observations):
        self.draws = [np.random.default_rng([seed, self.first_index + i]) for i in range(self.num_envs)]
        self._begin(np.arange(self.num_envs))
        observations[:, 0] = self.place

    def _begin(self, rows):
        self.age[rows] = 0
        self.place[rows] = [self.draws[row].uniform(-0.5, 0.5) for row in rows]

    def step(self, actions, observations, rewards, terminals, truncations, final_observations):
        self.place += np.where(actions == 1, 0.05, -0.05) * self.frame_skip
        self.age += self.frame_skip
        terminals[:] = abs(self.place) >= 1
        rewards[:] = self.place >= 1
        truncations[:] = (self.age >= 100) & ~terminals
        final_observations[truncations, 0] = self.place[truncations]
        self._begin(np.flatnonzero(terminals | truncations))
        observations[:, 0] = self.place
