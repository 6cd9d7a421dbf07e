"""Environments of which only the first process's share goes on: the others run out of memory after some steps."""

from typing import Any

import numpy as np
import numpy.typing as npt

STEPS = 50


class Failing:
    """Observes nothing worth seeing and rewards nothing; `python:tests.support.failing_rank:Failing`."""

    observation_shape = (1,)
    action_sizes = (2,)

    def __init__(self, num_envs: int, *, first_index: int = 0, **_: object) -> None:
        self.num_envs = num_envs
        self._left = STEPS if first_index else None

    def reset(self, seed: int, observations: npt.NDArray[np.float32]) -> None:
        observations.fill(0)

    def step(self, actions: Any, observations: Any, rewards: Any, terminals: Any, *_: Any) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                raise MemoryError
        rewards.fill(0)
        terminals.fill(False)
