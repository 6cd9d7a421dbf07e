"""The environments as the peers get them: each peer's usual wrappers, around the same game that the trainer plays.

Scores are counted at the bottom, before rewards are clipped or scaled and before a lost life ends an episode, so they
are those of the unchanged game. Our own games are stepped as one batch in C for every method.

Atari: `ALE/Pong-v5` has sticky actions and skips four frames by itself. The peers' wrappers skip frames themselves, so
they get it without its own skip, and with its sticky actions.
"""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

import protein.envs_c.gymnasium  # noqa: F401  # registers protein/NAME-v0
from protein.config.resolve import load

Score = Callable[[float], None]
CLIP = 10.0  # of normalised observations and rewards, in CleanRL's script


class Scored(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Tells `score` the return of each episode of the game below it."""

    def __init__(self, env: gymnasium.Env[Any, Any], score: Score) -> None:
        super().__init__(env)
        self._score, self._sum = score, 0.0

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        self._sum = 0.0
        return self.env.reset(**arguments)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminal, truncation, info = self.env.step(action)
        self._sum += float(reward)
        if terminal or truncation:
            self._score(self._sum)
        return observation, reward, terminal, truncation, info


def is_own(name: str) -> bool:
    """Returns whether `name` is one of our games in C."""
    return ":" not in name


def make_own(name: str, num_envs: int) -> Any:
    """Makes one of our games as a vector environment, at the frame skip of its shipped configuration."""
    skip = load(name).values()["env.frame_skip"]
    return gymnasium.make_vec(f"protein/{name}-v0", num_envs=num_envs, frame_skip=skip)


def make_one(name: str, score: Score) -> Any:
    """Makes one instance of `gym:ID`, its game's score counted."""
    key = name.removeprefix("gym:")
    if not key.startswith("ALE/"):
        return Scored(gymnasium.make(key), score)
    import ale_py
    from stable_baselines3.common.atari_wrappers import AtariWrapper

    gymnasium.register_envs(ale_py)
    return AtariWrapper(Scored(gymnasium.make(key, frameskip=1), score))


def clean_instance(name: str, score: Score, *, normalize: bool, gamma: float) -> Any:
    """Makes one instance as CleanRL's scripts wrap it."""
    env = make_one(name, score)
    wrappers = gymnasium.wrappers
    if name.startswith("gym:ALE/"):
        env = wrappers.ReshapeObservation(env, (84, 84))
        return wrappers.FrameStackObservation(env, 4)
    if isinstance(env.action_space, gymnasium.spaces.Box):
        env = wrappers.ClipAction(env)
    if normalize:
        env = wrappers.NormalizeObservation(env)
        env = wrappers.TransformObservation(env, lambda x: np.clip(x, -CLIP, CLIP), env.observation_space)
        env = wrappers.NormalizeReward(env, gamma=gamma)
        env = wrappers.TransformReward(env, lambda x: min(max(float(x), -CLIP), CLIP))
    return env


def clean_envs(name: str, num_envs: int, score: Score, *, normalize: bool, gamma: float) -> Any:
    """Makes the vector environment of CleanRL's scripts; the next episode begins in the step that ends one."""
    if is_own(name):
        return make_own(name, num_envs)
    return gymnasium.vector.SyncVectorEnv(
        [lambda: clean_instance(name, score, normalize=normalize, gamma=gamma)] * num_envs,
        autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
    )


def own_scores(infos: dict[str, Any]) -> list[float]:
    """Returns the scores of the episodes of our own games that this step ended."""
    return infos["score"][infos["_score"]].tolist() if "_score" in infos else []
