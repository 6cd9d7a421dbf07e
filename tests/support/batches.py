"""A batch of others' environments and its arrays, as the trainer holds them."""

from typing import Any

import numpy as np

from protein.trainer.environments import VectorEnv, make

UNWRITTEN = 77  # in arrays of bytes, which have no NaN


class Batch:
    """A batch and its arrays. What an environment does not write stays NaN, or 77 where observations are bytes."""

    def __init__(self, name: str, num_envs: int, **options: Any) -> None:
        self.envs: VectorEnv = make(name, num_envs, **options)
        rows, size = self.envs.num_agents, self.envs.spec.observation_size
        dtype = self.envs.spec.observation_dtype
        self.nothing: Any = UNWRITTEN if dtype == "uint8" else np.nan
        self.observations, self.finals = np.full((2, rows, size), self.nothing, dtype)
        self.rewards = np.full(rows, np.nan, np.float32)
        self.ends = np.ones((2, rows), np.bool_)
        self.terminals, self.truncations = self.ends

    def step(self, actions: Any) -> None:
        """Steps all. `actions` broadcast to the rows; where an action is one number, a list has one for each row."""
        spec = self.envs.spec
        dtype = np.float32 if spec.continuous_actions else np.int32
        rows = np.empty((self.envs.num_agents, spec.action_components), dtype)
        rows[:] = np.reshape(actions, (-1, 1)) if spec.action_components == 1 else actions
        self.finals[:] = self.nothing
        self.envs.step(rows, self.observations, self.rewards, self.terminals, self.truncations, self.finals)
