"""An environment without a game that waits, for `ablate_speed.py`: its steps take time elsewhere, as in a simulator."""

import time
from typing import ClassVar

import numpy as np
import numpy.typing as npt


class Waiting:
    """Waits `seconds` for each instance in each step, without using the processor."""

    seconds: ClassVar[float] = 0.0
    observation_shape = (8,)
    action_sizes = (3,)

    def __init__(self, num_envs: int, *, seed: int, frame_skip: int, first_index: int) -> None:
        self.num_envs = num_envs

    def reset(self, seed: int, observations: npt.NDArray[np.float32]) -> None:
        observations[:] = 0.0

    def step(
        self,
        actions: npt.NDArray[np.int32],
        observations: npt.NDArray[np.float32],
        rewards: npt.NDArray[np.float32],
        terminals: npt.NDArray[np.bool_],
        truncations: npt.NDArray[np.bool_],
        final_observations: npt.NDArray[np.float32],
    ) -> None:
        time.sleep(self.seconds * self.num_envs)
        observations[:], rewards[:], terminals[:], truncations[:] = 0.0, 0.0, True, False
