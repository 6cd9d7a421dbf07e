"""An environment that can be watched: one instance, and its picture."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from protein.envs_c import VecEnv

from ..errors import ConfigError
from . import GYMNASIUM, PETTINGZOO, PROCGEN, PYTHON, VectorEnv, kind_of, make

Pixels = npt.NDArray[np.uint8]  # `H x W x 3`

DEFAULT_FRAMES_PER_SECOND = 30.0


class Visible(NamedTuple):
    """One instance of an environment; `draw(observations)` returns its picture now."""

    envs: VectorEnv
    draw: Callable[[npt.NDArray[Any]], Pixels]
    decisions_per_second: float


def make_visible(name: str, *, seed: int, frame_skip: int, args: Mapping[str, Any] | None = None) -> Visible:
    """Makes one instance of any environment that can be drawn.

    Ours are drawn by `envs_c.drawing`, Gymnasium's in their render mode `rgb_array`, Procgen's as the policy sees them,
    and a user's own by its `render()`.

    Raises:
        ConfigError: there is no environment of that name, or nothing draws it.
    """
    kind = kind_of(name)
    frames_per_second = DEFAULT_FRAMES_PER_SECOND
    envs: VectorEnv
    draw: Callable[[npt.NDArray[Any]], Pixels]
    if kind in GYMNASIUM:
        from .gym import GymnasiumEnv, is_atari

        atari = is_atari(name)
        gym_envs: Any = (
            make(name, 1, seed=seed, frame_skip=frame_skip, args=args)
            if atari
            else GymnasiumEnv(name, 1, seed=seed, frame_skip=frame_skip, args=args, render_mode="rgb_array")
        )
        frames_per_second = gym_envs.render_fps or frames_per_second

        def draw(_: npt.NDArray[Any]) -> Pixels:
            return _checked(name, gym_envs.render())

        envs = gym_envs
    elif kind == PETTINGZOO:
        from .pettingzoo import PettingZooEnv

        several = PettingZooEnv(name, 1, seed=seed, frame_skip=frame_skip, args=args, render_mode="rgb_array")
        frames_per_second = several.render_fps or frames_per_second

        def draw(_: npt.NDArray[Any]) -> Pixels:
            return _checked(name, several.render())

        envs = several
    elif kind == PROCGEN:
        from .procgen import ProcgenEnv

        games = ProcgenEnv(name, 1, seed=seed, frame_skip=frame_skip, args=args)
        frames_per_second = games.render_fps

        def draw(_: npt.NDArray[Any]) -> Pixels:
            return _checked(name, games.render())

        envs = games
    elif kind == PYTHON:
        from .python import PythonEnv

        own_envs = PythonEnv(name, 1, seed=seed, frame_skip=frame_skip, args=args)
        frames_per_second = own_envs.render_fps or frames_per_second

        def draw(_: npt.NDArray[Any]) -> Pixels:
            return _checked(name, own_envs.render())

        envs = own_envs
    else:
        from protein.envs_c import drawing

        envs = make(name, 1, seed=seed, frame_skip=frame_skip, args=args)
        native = cast(VecEnv, envs)
        frames_per_second = drawing.FRAMES_PER_SECOND.get(name, frames_per_second)

        def draw(observations: npt.NDArray[Any]) -> Pixels:
            return drawing.frame(native, observations)

    return Visible(envs, draw, frames_per_second / frame_skip)


def _checked(name: str, picture: Any) -> Pixels:
    pixels = np.asarray(picture)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
        raise ConfigError(f"'{name}' drew {pixels.dtype} {pixels.shape}; a picture is height x width x 3 of uint8")
    return pixels
