"""Plays one environment with a checkpoint's policy, for people to watch: a picture for every decision."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch

from protein.envs_c import VecEnv

from .environments import GYMNASIUM, PETTINGZOO, PROCGEN, PYTHON, VectorEnv, kind_of, make, playing
from .errors import ConfigError
from .evaluate import Actor
from .machine.checkpoint import load_weights_
from .machine.precision import Arithmetic, resolve_device
from .model import saved as policies
from .model.policy import Policy
from .normalise import saved_normalizer

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
        from .environments.gym import GymnasiumEnv, is_atari

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
        from .environments.pettingzoo import PettingZooEnv

        several = PettingZooEnv(name, 1, seed=seed, frame_skip=frame_skip, args=args, render_mode="rgb_array")
        frames_per_second = several.render_fps or frames_per_second

        def draw(_: npt.NDArray[Any]) -> Pixels:
            return _checked(name, several.render())

        envs = several
    elif kind == PROCGEN:
        from .environments.procgen import ProcgenEnv

        games = ProcgenEnv(name, 1, seed=seed, frame_skip=frame_skip, args=args)
        frames_per_second = games.render_fps

        def draw(_: npt.NDArray[Any]) -> Pixels:
            return _checked(name, games.render())

        envs = games
    elif kind == PYTHON:
        from .environments.python import PythonEnv

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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The picture and the numbers before a decision; with several agents, the numbers of one.

    An episode's `last` scene comes after its last decision: its picture is again the one before it, because the
    environment has begun the next episode, and its numbers are those of the whole episode.
    """

    pixels: Pixels  # `H x W x 3`
    episode: int  # from 1
    step: int  # decisions since the episode began
    return_so_far: float
    last: bool = False


class Player:
    """Plays `episodes` episodes, of several agents' those of the first that plays, while `scenes` is iterated over.

    Once an episode has ended its score is in `scores`; of a run with `[selfplay]` the policy plays all sides, so that
    its scores are no ratings, and `against_itself` is true. `decisions_per_second` is the game's own speed, and
    `max_decisions` the most in an episode; 0: there is no limit.
    """

    def __init__(
        self, checkpoint_path: Path, *, env: str, episodes: int, seed: int = 0, greedy: bool | None = None
    ) -> None:
        """Loads the policy and makes the environment.

        Raises:
            CheckpointError: the file cannot be read, or belongs to another environment or network.
            ConfigError: no such environment, or nothing draws it.
        """
        saved = policies.read(checkpoint_path, prefix=policies.ACTING)
        self._config = saved.config
        self._envs, self._draw, self.decisions_per_second = make_visible(
            env, seed=seed, frame_skip=saved.config.env.frame_skip, args=saved.args_of(env)
        )
        try:
            spec = self._envs.spec
            self.max_decisions = -(-spec.max_episode_steps // saved.config.env.frame_skip)
            policies.require_env(saved, checkpoint_path, spec)
            self._policy = Policy(spec, saved.config.policy, generator=torch.Generator())
            load_weights_(self._policy, saved.group("policy"), checkpoint_path)
            self._normalizer = saved_normalizer(saved.group("scaling"), torch.device("cpu"))
        except BaseException:
            self._envs.close()
            raise
        self._episodes, self._seed = episodes, seed
        self._greedy = saved.config.eval.greedy if greedy is None else greedy
        self.scores: list[float] = []
        self.against_itself = saved.config.selfplay.on and spec.sides > 1

    def scenes(self) -> Iterator[Scene]:
        """Yields a scene before each decision and one after each episode; closes the environment at the end."""
        try:
            # Inference mode is entered anew for each decision, because across a yield it would hold for the caller too.
            with Arithmetic(resolve_device("cpu"), 1, self._config.train.precision):
                with torch.inference_mode():
                    actor = Actor(
                        self._policy,
                        self._envs,
                        normalizer=self._normalizer,
                        seed=self._seed,
                        greedy=self._greedy,
                    )
                acting = playing(self._envs)
                followed = 0 if acting is None else int(acting.argmax())
                step, return_so_far = 0, 0.0
                while len(self.scores) < self._episodes:
                    scene = Scene(
                        pixels=self._draw(actor.observations),
                        episode=len(self.scores) + 1,
                        step=step,
                        return_so_far=return_so_far,
                    )
                    yield scene
                    with torch.inference_mode():
                        actor.step()
                    step, return_so_far = step + 1, return_so_far + float(actor.rewards[followed])
                    finished = self._envs.drain_episodes()
                    scores = finished.score[finished.agent == followed].tolist()
                    self.scores += scores
                    if scores:
                        yield dataclasses.replace(scene, step=step, return_so_far=return_so_far, last=True)
                    if actor.terminals[followed] or actor.truncations[followed]:
                        step, return_so_far = 0, 0.0
        finally:
            self._envs.close()
