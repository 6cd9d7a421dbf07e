"""Twins of our own games whose numbers are badly scaled: the same game, told in other units.

Each feature of an observation is multiplied by a factor of its own, from .001 to 1,000, evenly in the logarithm, and
rewards by 1,000. Which feature gets which factor is drawn once. The score stays that of the game itself, so a
twin's learning curve can be laid over the game's. `python:scaled_twins:pong` and so on, for the trainer.
"""

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from protein.envs_c import EnvSpec, Episodes, VecEnv

SMALLEST, LARGEST = 1e-3, 1e3  # of the features' factors
REWARDS = 1000.0


class Twin:
    """A batch of one of our games, in other units; the interface of docs/environments.md."""

    def __init__(
        self,
        game: str,
        num_envs: int,
        *,
        seed: int,
        frame_skip: int,
        first_index: int,
        observations: bool = True,
        rewards: float = REWARDS,
    ) -> None:
        self._envs = VecEnv(game, num_envs, seed=seed, frame_skip=frame_skip, first_index=first_index)
        spec: EnvSpec = self._envs.spec
        self.num_envs = num_envs
        self.observation_shape = spec.observation_shape
        self.action_sizes, self.continuous_actions = spec.action_sizes, spec.continuous_actions
        self.agents_per_env, self.score_range = spec.agents_per_env, spec.score_range
        self.solved_score, self.max_episode_steps = spec.solved_score, spec.max_episode_steps
        factors = np.geomspace(SMALLEST, LARGEST, spec.observation_size)
        self._factors = np.random.default_rng(0).permutation(factors).astype(np.float32)
        self._rewards = rewards
        if not observations:
            self._factors[:] = 1.0

    def reset(self, seed: int, observations: npt.NDArray[np.float32]) -> None:
        self._envs.reset(seed, observations)
        observations *= self._factors

    def step(self, actions: Any, observations: Any, rewards: Any, terminals: Any, truncations: Any, final: Any) -> None:
        actions = np.ascontiguousarray(actions)
        self._envs.step(actions, observations, rewards, terminals, truncations, final)
        observations *= self._factors
        final[truncations] *= self._factors
        rewards *= self._rewards

    def drain_episodes(self) -> Episodes:
        return self._envs.drain_episodes()

    def get_state(self) -> bytes:
        return self._envs.get_state()

    def set_state(self, state: bytes) -> None:
        self._envs.set_state(state)


pong, cartpole, pendulum = (partial(Twin, game) for game in ("pong", "cartpole", "pendulum"))
# Only the rewards, and only the observations: which of the two hurts.
pong_observations, cartpole_observations, pendulum_observations = (
    partial(Twin, game, rewards=1.0) for game in ("pong", "cartpole", "pendulum")
)
pong_rewards, cartpole_rewards, pendulum_rewards = (
    partial(Twin, game, observations=False) for game in ("pong", "cartpole", "pendulum")
)
