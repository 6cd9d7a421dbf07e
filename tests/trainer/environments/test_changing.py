"""Environments that change what they are given: each instance and each frame has its own."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from protein.trainer.environments import make


class Pops(gymnasium.Env[Any, Any]):
    """Takes a key out of its table; its reward says which."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self._mode = (config or {}).pop("mode", "easy")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        action *= 2.0
        return (
            np.zeros(1, np.float32),
            (1.0 if self._mode == "hard" else 0.0) + 10.0 * float(action[0]),
            False,
            False,
            {},
        )


@pytest.fixture(scope="module", autouse=True)
def registered() -> Any:
    gymnasium.register("Pops-v0", entry_point=f"{__name__}:Pops", max_episode_steps=100)
    yield
    gymnasium.registry.pop("Pops-v0", None)


def rewards(frame_skip: int, action: float) -> list[float]:
    args = {"config": {"mode": "hard"}}
    envs = make("gym:Pops-v0", 3, seed=0, frame_skip=frame_skip, threads=1, args=args)
    observations = np.zeros((3, 1), np.float32)
    envs.reset(0, observations)
    found = stepped(envs, np.full((3, 1), action, np.float32))
    envs.close()
    assert args == {"config": {"mode": "hard"}}
    return found


def stepped(envs: Any, actions: Any) -> list[float]:
    out = [np.zeros((3, 1), np.float32), np.zeros(3, np.float32), np.zeros(3, bool), np.zeros(3, bool)]
    envs.step(actions, *out, np.zeros((3, 1), np.float32))
    return [float(reward) for reward in out[1]]


def test_each_instance_has_arguments_of_its_own() -> None:
    assert rewards(1, 0.0) == [1.0] * 3


def test_each_frame_has_an_action_of_its_own() -> None:
    """Of half of the upper bound, 1, which the environment doubles: not 2, 4, 8."""
    assert rewards(3, 0.5) == [pytest.approx(3 * (1.0 + 10.0 * 2.0))] * 3
