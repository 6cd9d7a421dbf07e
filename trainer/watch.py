"""Plays one environment with a checkpoint's policy, for people to watch: a picture for every decision."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import torch

from .environments import playing
from .environments.pictures import Pixels, make_visible
from .evaluate import Actor
from .machine.checkpoint import load_weights_
from .machine.precision import Arithmetic, resolve_device
from .model import saved as policies
from .model.policy import Policy
from .normalise import saved_normalizer


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

    Once an episode has ended its score is in `scores`. `decisions_per_second` is the game's own speed.
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
