"""MiniGrid's observations as planes of bytes: the agent's view one-hot, and the direction in which it looks.

MiniGrid gives a dictionary: `image`, three small numbers for each cell (object, colour, state), `direction`, and
`mission`, a sentence. Numbers of kinds are of no use to a network as they are, so each is one-hot, as in MiniGrid's own
`OneHotPartialObsWrapper`: 11 planes of objects, 6 of colours and 3 of states, then 4 planes of which that of the
direction is full. The sentence is left out: where it changes the task, a policy cannot know it.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX, STATE_TO_IDX

from .minigrid_view import quicken_

KINDS = (len(OBJECT_TO_IDX), len(COLOR_TO_IDX), len(STATE_TO_IDX))
DIRECTIONS = 4


def as_planes(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Wraps an environment of MiniGrid; one whose observations somebody has wrapped already stays as it is."""
    space = env.observation_space
    if isinstance(space, spaces.Dict) and {"image", "direction"} <= set(space.spaces) and not _is_pictured(env):
        quicken_(env.unwrapped)
        return _Planes(env)
    return env


def _is_pictured(env: Any) -> bool:
    """Whether a wrapper of MiniGrid has made pixels, or numbers of 0 and 1, of the codes of objects."""
    while isinstance(env, gymnasium.Wrapper):
        if type(env).__name__.startswith(("RGBImg", "OneHot")):
            return True
        env = env.env
    return False


class _Planes(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Observes `planes x width x height` of 0 and 1."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        image: Any = env.observation_space["image"]  # type: ignore[index]
        width, height = image.shape[:2]
        self._shape = (sum(KINDS) + DIRECTIONS, int(width), int(height))
        self.observation_space = spaces.Box(0, 1, self._shape, np.uint8)
        starts = np.array([0, *np.cumsum(KINDS)[:-1]])
        # Where plane 0 of each kind lies in a flat observation, cell by cell; a kind's number moves it on by a plane.
        self._cells = (
            starts[None, None, :] * (width * height) + np.arange(width * height).reshape(width, height, 1)
        ).astype(np.int64)
        self._plane = width * height

    def observation(self, observation: Any) -> Any:
        planes = np.zeros(self._shape, np.uint8)
        flat = planes.reshape(-1)
        flat[self._cells + observation["image"].astype(np.int64) * self._plane] = 1
        planes[sum(KINDS) + int(observation["direction"])] = 1
        return planes
