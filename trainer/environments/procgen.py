"""Procgen's games, `procgen:coinrun`, stepped in C++ threads by Procgen's own vector environment.

An observation is the picture that the game shows, 3 x 64 x 64, as bytes; an action is one of 15 combinations of keys.
Levels are generated, each from a number. The score is the sum of the game's rewards. The games do not tell a time limit
from another end, so every end is terminal.

`[env.args]` are Procgen's: `distribution_mode` ("hard", "easy" and others), `num_levels` (0: without limit) and
`start_level` say which levels there are; the rest changes how they look.

Procgen seeds a whole batch. Here each instance is begun alone, and its state is put into the batch. So its levels
depend on (seed, index) alone. In the same way a resumed run goes on exactly.

Source: Cobbe et al. 2020, "Leveraging Procedural Generation to Benchmark Reinforcement Learning", ICML.
"""

import contextlib
import io
import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from protein.envs_c import EnvSpec
from protein.spelling import nearest

from ..errors import ConfigError
from . import arguments
from .base import CountedEnv, Rows, picture_game
from .instances import instance_seed

PREFIX = "procgen:"
ZOOM = 4  # pixels of a picture for each of an observation
_SHAPE = (3, 64, 64)
_ACTIONS = 15
_INT32_MAX = 2**31 - 1
_WHOLE = ("num_levels", "start_level")
# Which games have a mode. Procgen ends the process where a game has not the mode that is asked for.
_MODES: dict[str, Sequence[str] | None] = {
    "easy": None,
    "hard": None,
    "extreme": ("chaser", "dodgeball", "leaper", "starpilot"),
    "memory": ("caveflyer", "dodgeball", "heist", "jumper", "maze", "miner"),
    "exploration": ("caveflyer", "climber", "coinrun", "heist", "jumper", "leaper", "maze", "ninja"),
}


class ProcgenEnv(CountedEnv):
    """`num_envs` games; see `trainer.environments.VectorEnv`."""

    resumable = True
    render_fps = 15.0

    def __init__(
        self,
        name: str,
        num_envs: int,
        *,
        seed: int = 0,
        frame_skip: int = 1,
        first_index: int = 0,
        args: Mapping[str, Any] | None = None,
        threads: int = 1,
    ) -> None:
        """Makes the games; see `trainer.environments.make`.

        Args:
            frame_skip: must be 1. The games of a batch cannot be stepped apart, and one may end before the others.
            args: of `ProcgenGym3Env`, but for those that the trainer gives.
            threads: that step the games.

        Raises:
            ConfigError: there is no such game, or an argument is wrong.
        """
        if frame_skip != 1:
            raise ConfigError(f"'{name}' cannot repeat actions, got env.frame_skip = {frame_skip}: set it to 1")
        super().__init__(describe(name, args or {}), num_envs, seed)
        self._make = _library(name).ProcgenGym3Env
        self._options = {"env_name": name.removeprefix(PREFIX), **(args or {})}
        self._first_index = first_index
        # Without threads of its own it steps in ours.
        self._vector = self._make(
            num=num_envs, rand_seed=0, num_threads=min(threads, num_envs) if threads > 1 else 0, **self._options
        )

    def _reset(self, seed: int, observations: npt.NDArray[np.uint8]) -> None:
        self._vector.set_state([self._first(seed, self._first_index + index) for index in range(self.num_envs)])
        self._see(observations)

    def _first(self, seed: int, index: int) -> bytes:
        """Returns the state in which an instance begins."""
        alone = self._make(num=1, rand_seed=instance_seed(seed, index), num_threads=0, **self._options)
        state: bytes = alone.get_state()[0]
        alone.close()
        return state

    def _step(self, actions: npt.NDArray[Any], out: Rows) -> None:
        self._vector.act(actions.reshape(-1))
        rewards, ended = self._see(out.observations)
        out.rewards[:], out.terminals[:], out.truncations[:] = rewards, ended, False

    def _see(self, observations: npt.NDArray[np.uint8]) -> tuple[Any, Any]:
        """Writes what the games show; returns the last step's rewards, and which games have begun anew."""
        rewards, seen, ended = self._vector.observe()
        observations.reshape(self.num_envs, *_SHAPE)[:] = np.moveaxis(seen["rgb"], -1, 1)
        return rewards, ended

    def get_state(self) -> bytes:
        """Returns the games, and the sums of their running episodes: a line of JSON, then bytes."""
        states, counter = self._vector.get_state(), self._counter
        assert counter is not None
        head = {"env": self.spec.name, "num_envs": self.num_envs, "sizes": [len(state) for state in states]}
        return json.dumps(head).encode() + b"\n" + counter.state() + b"".join(states)

    def set_state(self, state: bytes) -> None:
        """Goes on from `get_state`. Raises ValueError where it comes from other environments."""
        line, _, rest = state.partition(b"\n")
        self._resumption.require(line)
        counter, sizes = self._counter, json.loads(line)["sizes"]
        assert counter is not None
        ends = np.cumsum([counter.state_bytes(), *sizes])
        if len(rest) != ends[-1]:
            raise ValueError(f"the state of '{self.spec.name}' has {len(rest)} bytes where {ends[-1]} are due")
        counter.set_state(rest)
        self._vector.set_state([rest[start:end] for start, end in itertools.pairwise(ends)])

    def render(self) -> Any:
        """Returns what the policy sees of the first game, larger."""
        _, seen, _ = self._vector.observe()
        return seen["rgb"][0].repeat(ZOOM, axis=0).repeat(ZOOM, axis=1)

    def close(self) -> None:
        """Ends the games. Calling it again does nothing."""
        self._vector.close()


def describe(name: str, args: Mapping[str, Any]) -> EnvSpec:
    """Returns the description of a game. Raises `ConfigError` where there is none, or an argument is wrong."""
    game, games = name.removeprefix(PREFIX), _library(name).env.ENV_NAMES
    if game not in games:
        raise ConfigError(f"Procgen has no game '{game}'{nearest(game, games)}")
    arguments.check(args, _takes, name)
    mode = args.get("distribution_mode", "hard")
    if not isinstance(mode, str) or mode not in _MODES or game not in (_MODES[mode] or games):
        modes = ", ".join(f'"{one}"' for one, having in _MODES.items() if game in (having or games))
        raise ConfigError(f"env.args.distribution_mode of '{name}' must be one of {modes}, got {mode!r}")
    for key, value in args.items():
        if key in _WHOLE and mode == "exploration":
            raise ConfigError(f"env.args.{key} of '{name}' is fixed in the mode \"exploration\": remove it")
        _check_value(name, key, value)
    return picture_game(name, f"{game} of Procgen", _SHAPE, _ACTIONS)


def _takes(
    *,
    distribution_mode: str = "hard",
    num_levels: int = 0,
    start_level: int = 0,
    use_sequential_levels: bool = False,
    center_agent: bool = True,
    use_backgrounds: bool = True,
    use_monochrome_assets: bool = False,
    restrict_themes: bool = False,
    use_generated_assets: bool = False,
    paint_vel_info: bool = False,
) -> None:
    """Has the arguments of Procgen's constructors that `[env.args]` may give. Theirs end in `**kwargs`."""


def _check_value(name: str, key: str, value: Any) -> None:
    """Raises `ConfigError` for an argument of the wrong type: Procgen would take it, or end the process."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if key in _WHOLE and not (whole and 0 <= value <= _INT32_MAX):
        raise ConfigError(f"env.args.{key} of '{name}' must be a whole number from 0 to {_INT32_MAX}, got {value!r}")
    if key not in _WHOLE and key != "distribution_mode" and not isinstance(value, bool):
        raise ConfigError(f"env.args.{key} of '{name}' must be true or false, got {value!r}")


def _library(name: str) -> Any:
    """Imports Procgen. Raises `ConfigError` where it is not installed."""
    try:
        # It loads the old Gym for its registry, which says on stderr that nobody keeps it any more.
        with contextlib.redirect_stderr(io.StringIO()):
            import procgen
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"cannot make '{name}': {error.name} is not installed: pip install 'protein-sweep[procgen]'"
        ) from error
    return procgen
