"""The C environments, vectorised: `names`, `spec` and `VecEnv`.

Every array is the caller's own and is written in place: no copies, one call a step, without the GIL. Rows are agents.
Needs only numpy. Pass a torch tensor on the CPU as `.numpy()`, which shares its memory.
"""

if not __name__.startswith("protein."):  # from the repository's root it would be a second copy, with other classes
    raise ImportError(f"import protein.{__name__} in place of {__name__}")

import dataclasses
from pathlib import Path

import numpy as np
import numpy.typing as npt

from protein.native import not_loaded
from protein.spelling import nearest

try:
    from . import _native
except ImportError as error:
    raise not_loaded(error, __name__, Path(__file__).parent) from error

__all__ = ["EnvSpec", "Episodes", "UnknownEnvError", "VecEnv", "names", "spec"]


class UnknownEnvError(ValueError):
    """There is no environment of this name."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EnvSpec:
    """What an environment is, before one is made.

    An observation is `observation_size` numbers, to be seen as an array of `observation_shape`: `(size,)`, or
    `(channels, height, width)` for a grid. `observation_dtype` is "float32", or "uint8" for bytes from 0 to
    `observation_high`, which a network sees divided by it. An action is `action_components` numbers: discrete ones, the
    k-th from 0 to `action_sizes[k] - 1`, or `continuous_actions` real ones, each clipped to [-1, 1]; the other of the
    two is empty.
    `score_range` is the lowest and the highest possible score of an episode; at a mean of `solved_score` the
    environment counts as solved. `max_episode_steps` is in frames: an episode that has not ended by then is truncated.
    `sides` is above 1 where agents play against each other: agent k of an environment is of side `k * sides //
    agents_per_env`, and one policy can play every side. `scripts` are players that are part of the environment (see
    `VecEnv.act`), the weakest first; `script_ratings` are their strengths on Elo's scale, fixed, with random
    play at 0, where the result of a game is its score brought from `score_range` to 0 to 1.
    """

    name: str
    description: str
    observation_size: int
    observation_shape: tuple[int, ...]
    action_sizes: tuple[int, ...]
    continuous_actions: int
    agents_per_env: int
    score_range: tuple[float, float]
    solved_score: float
    max_episode_steps: int
    observation_dtype: str = "float32"
    observation_high: float = 255.0
    sides: int = 1
    scripts: tuple[str, ...] = ()
    script_ratings: tuple[float, ...] = ()

    @property
    def action_components(self) -> int:
        """How many numbers an action is."""
        return len(self.action_sizes) or self.continuous_actions


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Episodes:
    """Finished episodes, one array element each, in order of (step, agent). `length` is in decisions.

    `agent` is the agent's row: the k-th of environment i has `i * agents_per_env + k`. Every agent has its own record,
    also where all agents of an environment end together.
    """

    agent: npt.NDArray[np.int32]
    score: npt.NDArray[np.float32]
    return_: npt.NDArray[np.float32]
    length: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.agent)


def names() -> list[str]:
    """Returns the names of all environments, sorted."""
    return sorted(_native.names())


def spec(name: str) -> EnvSpec:
    """Returns the description of one environment.

    Raises:
        UnknownEnvError: if there is none of that name; the message gives the nearest name.
    """
    if name not in names():
        raise UnknownEnvError(f"unknown environment {name!r}{nearest(name, names())}")
    return EnvSpec(**_native.describe(name))


class VecEnv(_native.VecEnv):
    """`num_envs` instances of one environment, stepped together.

    A step is one decision: the action is held for `frame_skip` frames, or until the episode ends, and the rewards are
    summed. An agent whose episode ends starts the next one within the same step, together with all agents of its
    instance or alone, depending on the environment. Instance i depends only on (seed, `first_index` + i), not on
    `num_envs` or `threads`. So two batches of 512, the second with `first_index=512`, equal one of 1,024. Calls from
    several threads wait for each other.

    With A = `num_agents` (= `num_envs * spec.agents_per_env`), C = `spec.action_components` and D =
    `spec.observation_size`, all C-contiguous: actions `A x C` int32, or float32 where they are continuous, or `A` where
    C is 1; observations and final_observations `A x D` of `spec.observation_dtype`, rewards `A` float32, terminals and
    truncations `A` bool. A wrong array raises a ValueError that names it and what was expected. A discrete action that
    is out of range, or a continuous one that is not finite, raises a ValueError before any instance has moved. Finite
    continuous actions are clipped.

    Methods: `reset(seed, observations)`; `step(actions, observations, rewards, terminals, truncations,
    final_observations=None)`, where the observation of an agent that has ended is its next episode's first and
    final_observations receives, in the rows of truncated episodes alone, the observation that ended them (with
    `all_finals=True` in the rows of all that ended); `act(scripts, actions)`, which changes no instance and writes the
    next action of every agent whose element of `scripts`, `A` int32, is a place in `spec.scripts` and not -1;
    `get_state()` and `set_state(bytes)`, everything that the future depends on, for the same build.

    Raises:
        UnknownEnvError: if there is no environment of that name.
        ValueError: if a number is outside its range.
    """

    resumable = True  # `set_state` restores the same episodes

    def __init__(
        self,
        name: str,
        num_envs: int,
        *,
        seed: int = 0,
        frame_skip: int = 1,
        threads: int = 1,
        first_index: int = 0,
    ) -> None:
        self.spec = spec(name)
        _check("num_envs", num_envs, 1, 2**24)
        _check("seed", seed, 0, 2**64 - 1)
        _check("frame_skip", frame_skip, 1, 1024)
        _check("threads", threads, 1, 1024)
        _check("first_index", first_index, 0, 2**32)
        super().__init__(name, num_envs, seed, frame_skip, threads, first_index)

    def reset(self, seed: int, observations: npt.NDArray[np.float32] | npt.NDArray[np.uint8]) -> None:
        """Seeds every instance anew, writes its first observation and forgets the episodes that were not drained."""
        _check("seed", seed, 0, 2**64 - 1)
        super().reset(seed, observations)

    def close(self) -> None:
        """Does nothing: these environments hold only memory, unlike other kinds behind the same interface."""

    def drain_episodes(self) -> Episodes:
        """Returns the episodes that finished since the last call. They are stored until then: call it regularly."""
        agent, score, return_, length = self._drain_episodes()
        return Episodes(agent=agent, score=score, return_=return_, length=length)


def _check(name: str, value: int, low: int, high: int) -> None:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} must be an integer from {low} to {high}, got {value!r}")
