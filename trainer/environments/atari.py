"""Atari's games, `gym:ALE/Pong-v5`, stepped in C++ threads by ale-py's own vector environment.

An observation is the last 4 frames, grey, 84 x 84, as bytes. An action is held for 4 frames, and the last two of them
are merged by their maximum, because games draw some things in every other frame only. Actions stick with the
probability that the id has in Gymnasium's registry, 0.25 for those of version 5. There are no no-ops at the start and
no automatic `fire`.

In training the loss of a life is terminal, and the game goes on; in evaluation it is not. Scores are always those of
whole games, with unchanged rewards. Clipping rewards is a setting of the training, `train.reward_clip`.

Source: Machado et al. 2018, "Revisiting the Arcade Learning Environment", section 5; Mnih et al. 2015, "Human-level
control through deep reinforcement learning", methods.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from ale_py import ALEInterface, LoggerMode
from ale_py.vector_env import AtariVectorEnv

from protein.envs_c import EnvSpec

from ..errors import ConfigError
from . import arguments
from .base import CountedEnv, Rows, picture_game
from .instances import instance_seed

FRAMES, SIDE, SKIP = 4, 84, 4
ZOOM = 4  # pixels of a picture for each of an observation
_SHAPE = (FRAMES, SIDE, SIDE)
# Arguments that the trainer gives: what they are is said at the head of this file.
_OURS = (
    *("game", "num_envs", "batch_size", "num_threads", "thread_affinity_offset", "autoreset_mode", "grayscale"),
    *("img_height", "img_width", "stack_num", "reward_clipping", "episodic_life", "life_loss_info", "continuous"),
    "continuous_action_threshold",
)
# What ale-py would take in silence, or refuse without a name: the limits of numbers, and what is true or false.
_WHOLE = {"frameskip": (1, 1000), "noop_max": (0, 10_000), "max_num_frames_per_episode": (1, 2**31 - 1)}
_SWITCHES = ("full_action_space", "maxpool", "use_fire_reset")


class AtariEnv(CountedEnv):
    """`num_envs` games; see `trainer.environments.VectorEnv`."""

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
        training: bool = False,
    ) -> None:
        """Makes the games; see `trainer.environments.make`.

        Args:
            frame_skip: how often an action of `SKIP` frames is repeated.
            args: of `AtariVectorEnv`, but for those that the trainer gives.
            threads: that step the games.

        Raises:
            ConfigError: there is no such game, or an argument is unknown.
        """
        super().__init__(describe(name, args or {}), num_envs, seed)
        self._first_index = first_index
        options = _options(name, args or {})
        options["frameskip"] *= frame_skip
        self._vector = AtariVectorEnv(
            num_envs=num_envs,
            num_threads=min(threads, num_envs),
            autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
            reward_clipping=False,
            life_loss_info=training,
            **options,
        )
        self._seen = np.zeros(self._shape, np.uint8)  # for pictures
        self._first_frames = np.zeros(num_envs, np.int64)  # of each one's game, counted over all its games
        self._closed = False

    def _reset(self, seed: int, observations: npt.NDArray[np.uint8]) -> None:
        indices = range(self._first_index, self._first_index + self.num_envs)
        seeds = np.array([instance_seed(seed, index) for index in indices])
        first, infos = self._vector.reset(seed=seeds)
        self._first_frames = _first_frames(infos)
        observations[:] = first.reshape(observations.shape)
        self._seen = observations

    def _step(self, actions: npt.NDArray[Any], out: Rows) -> npt.NDArray[np.bool_]:
        observations, rewards, terminals, truncations, finals = out
        after, reward, terminal, truncation, infos = self._vector.step(np.ascontiguousarray(actions.reshape(-1)))
        observations[:] = after.reshape(observations.shape)
        self._seen = observations
        rewards[:] = reward
        terminals[:] = terminal
        np.logical_and(truncation, np.logical_not(terminal), out=truncations)
        ended = terminals | truncations
        first_frames = _first_frames(infos)
        if ended.any():
            # A life may be lost in the middle of a game. A game that is over has begun anew.
            ended &= first_frames != self._first_frames
            if truncations.any():
                finals[truncations] = np.asarray(infos["final_obs"]).reshape(self.num_envs, -1)[truncations]
        self._first_frames = first_frames
        return ended

    render_fps = 60.0

    def render(self) -> Any:
        """Returns what the policy sees of the first game: the last frame, grey, larger."""
        frame = self._seen[0].reshape(_SHAPE)[-1]
        return np.repeat(frame.repeat(ZOOM, axis=0).repeat(ZOOM, axis=1)[:, :, None], 3, axis=2)

    def close(self) -> None:
        """Ends the games. Calling it again does nothing."""
        if not self._closed:
            self._closed = True
            self._vector.close()


def _first_frames(infos: Mapping[str, Any]) -> npt.NDArray[np.int64]:
    """Returns at which frame each game began. No-ops and `fire` at the start are frames of the game, too."""
    return np.asarray(infos["frame_number"] - infos["episode_frame_number"], np.int64)


def describe(name: str, args: Mapping[str, Any]) -> EnvSpec:
    """Returns the description of a game. Raises `ConfigError` where there is none, or an argument is unknown."""
    options = _options(name, args)
    ALEInterface.setLoggerMode(LoggerMode.Error)  # else it prints its version
    vector = AtariVectorEnv(num_envs=1, num_threads=1, **options)
    space: Any = vector.single_action_space
    choices = int(space.n)
    vector.close()
    title = f"{name.partition(':')[2]} of the Arcade Learning Environment"
    return picture_game(name, title, _SHAPE, choices, int(options["max_num_frames_per_episode"]))


def _options(name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what `AtariVectorEnv` is called with: the registry's values, then the user's."""
    game = name.partition(":")[2]
    registered = gymnasium.registry.get(game)
    if registered is None:
        try:
            gymnasium.spec(game)  # raises an error that names what is near
        except gymnasium.error.Error as error:
            raise ConfigError(f"cannot make '{name}': {' '.join(str(error).split())}") from error
    assert registered is not None
    arguments.check(args, AtariVectorEnv, name, ours=_OURS)
    for key, value in args.items():
        _check_value(name, key, value)
    kept = ("game", "repeat_action_probability", "full_action_space", "max_num_frames_per_episode")
    options = {key: registered.kwargs[key] for key in kept if key in registered.kwargs}
    options |= {"frameskip": SKIP, "stack_num": FRAMES, "img_height": SIDE, "img_width": SIDE, "maxpool": True}
    return {**options, "noop_max": 0, "use_fire_reset": False, **args}


def _check_value(name: str, key: str, value: Any) -> None:
    """Raises `ConfigError` for an argument of the wrong type, or outside its limits."""
    if key in _SWITCHES:
        allowed, is_right = "true or false", isinstance(value, bool)
    elif key in _WHOLE:
        low, high = _WHOLE[key]
        allowed = f"a whole number between {low} and {high}"
        is_right = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    elif key != "repeat_action_probability":  # an argument that a later ale-py may have
        return
    else:
        allowed = "a number between 0 and 1"
        is_right = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    if not is_right:
        raise ConfigError(f"env.args.{key} of '{name}' must be {allowed}, got {value!r}")
