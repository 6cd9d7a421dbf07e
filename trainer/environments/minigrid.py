"""MiniGrid's observations as planes of bytes: the agent's view one-hot, and the direction in which it looks.

MiniGrid gives a dictionary: `image`, three small numbers for each cell (object, colour, state), `direction`, and
`mission`, a sentence. Numbers of kinds are of no use to a network as they are, so each is one-hot, as in MiniGrid's own
`OneHotPartialObsWrapper`: 11 planes of objects, 6 of colours and 3 of states, then 4 planes of which that of the
direction is full. The sentence is left out: where it changes the task, a policy cannot know it.

What the agent sees is also computed here, as MiniGrid itself does, but faster (`observe`). MiniGrid cuts the view out
of its grid, turns it up to four times and hides what lies behind walls, each into a new grid of objects. That is most
of a step. Here the cells of the view are read from the grid where they lie, and only those that are visible are
encoded. The result is the same, byte for byte.

Notation: a view of `s x s` cells, i from left to right and j from far to near. The agent is at (s // 2, s - 1), looking
towards smaller j. Cell (i, j) is entry k = i s + j of a flat list, which is the order of MiniGrid's image.

Source: `MiniGridEnv.gen_obs`, `Grid.process_vis` and `Grid.encode` of MiniGrid 3.
"""

import functools
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from minigrid.core.constants import COLOR_TO_IDX, DIR_TO_VEC, OBJECT_TO_IDX, STATE_TO_IDX
from minigrid.core.grid import Grid
from minigrid.core.world_object import Wall
from minigrid.minigrid_env import MiniGridEnv

KINDS = (len(OBJECT_TO_IDX), len(COLOR_TO_IDX), len(STATE_TO_IDX))
DIRECTIONS = 4
_EMPTY = OBJECT_TO_IDX["empty"]
_OUTSIDE = Wall()
_OURS_IF_UNCHANGED = ("gen_obs", "gen_obs_grid", "get_view_exts")  # methods that a subclass may have of its own


def as_planes(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Wraps an environment of MiniGrid; one whose observations somebody has wrapped already stays as it is."""
    space = env.observation_space
    if isinstance(space, spaces.Dict) and {"image", "direction"} <= set(space.spaces) and not _is_pictured(env):
        quicken_(env.unwrapped)
        return _Planes(env)
    return env


def quicken_(env: Any) -> None:
    """Lets an environment of MiniGrid compute what is seen in this way, unless it has a way of its own."""
    if all(getattr(type(env), name) is getattr(MiniGridEnv, name) for name in _OURS_IF_UNCHANGED):
        env.gen_obs = lambda: observe(env)


def observe(env: Any) -> dict[str, Any]:
    """Returns what `MiniGridEnv.gen_obs` returns: `image`, `s x s x 3` bytes, `direction` and `mission`."""
    size, grid = env.agent_view_size, env.grid
    cells = _view(grid, env.agent_pos, env.agent_dir, size)
    visible = b"\x01" * len(cells) if env.see_through_walls else _visible(cells, size)
    cells[size // 2 * size + size - 1] = env.carrying  # None: nothing
    image = bytearray(3 * len(cells))
    for k, cell in enumerate(cells):
        if not visible[k]:
            continue
        if cell is None:
            image[3 * k] = _EMPTY
        else:
            image[3 * k : 3 * k + 3] = bytes(cell.encode())
    seen = np.frombuffer(image, np.uint8).reshape(size, size, 3)
    return {"image": seen, "direction": env.agent_dir, "mission": env.mission}


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


def _is_pictured(env: Any) -> bool:
    """Whether a wrapper of MiniGrid has made pixels, or numbers of 0 and 1, of the codes of objects."""
    while isinstance(env, gymnasium.Wrapper):
        if type(env).__name__.startswith(("RGBImg", "OneHot")):
            return True
        env = env.env
    return False


def _view(grid: Grid, position: Any, direction: int, size: int) -> list[Any]:
    """Returns the objects in the view; outside of the grid there are walls."""
    (x, y), width, height, objects = map(int, position), grid.width, grid.height, grid.grid
    cells: list[Any] = []
    for right, down in _steps(direction, size):
        column, row = x + right, y + down
        inside = 0 <= column < width and 0 <= row < height
        cells.append(objects[row * width + column] if inside else _OUTSIDE)
    return cells


@functools.cache
def _steps(direction: int, size: int) -> list[tuple[int, int]]:
    """Returns how far right of and below the agent each cell of the view lies in the grid."""
    ahead_x, ahead_y = (int(part) for part in DIR_TO_VEC[direction])
    right_x, right_y = -ahead_y, ahead_x
    return [
        (ahead_x * ahead + right_x * aside, ahead_y * ahead + right_y * aside)
        for aside in range(-(size // 2), size - size // 2)
        for ahead in range(size - 1, -1, -1)
    ]


def _visible(cells: list[Any], size: int) -> bytearray:
    """Returns 1 for each cell that the agent can see: light goes from row to row, and sideways both ways."""
    visible = bytearray(len(cells))
    visible[size // 2 * size + size - 1] = 1
    rightwards = [(i * size, size) for i in range(size - 1)]
    leftwards = [(i * size, -size) for i in range(size - 1, 0, -1)]
    for j in range(size - 1, -1, -1):
        for first, aside in rightwards + leftwards:
            k = first + j
            if visible[k] and ((cell := cells[k]) is None or cell.see_behind()):
                visible[k + aside] = 1
                if j:
                    visible[k + aside - 1] = visible[k - 1] = 1
    return visible
