"""What all environments have in common that are stepped from Python: `gym`, `pool`, `atari`, `pettingzoo`, `procgen`
and `python`.

`CountedEnv` is a `trainer.environments.VectorEnv` but for two methods, `_reset` and `_step`, which each kind has of its
own. It checks the arrays that it is given, counts episodes, and keeps what a resumed run begins new episodes from.
"""

import abc
import contextlib
import json
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from protein.envs_c import EnvSpec, Episodes


class Rows(NamedTuple):
    """The arrays that a step writes, a row for each agent."""

    observations: npt.NDArray[Any]
    rewards: npt.NDArray[np.float32]
    terminals: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]
    finals: npt.NDArray[Any]  # rows of truncated episodes only

    def part(self, rows: slice) -> "Rows":
        """Returns views of some rows."""
        observations, rewards, terminals, truncations, finals = self
        return Rows(observations[rows], rewards[rows], terminals[rows], truncations[rows], finals[rows])


class CountedEnv(abc.ABC):
    """`num_envs` instances whose episodes are counted here. An episode's score is the sum of its rewards."""

    resumable: bool = False

    @property
    def playing(self) -> npt.NDArray[np.bool_] | None:
        """Which agents act in the next step, `A`; None: always all of them."""
        return None

    def __init__(self, spec: EnvSpec, num_envs: int, seed: int, *, counts: bool = True) -> None:
        """`counts` False: `drain_episodes` is the subclass's."""
        self.spec, self.num_envs = spec, num_envs
        self.num_agents = num_envs * spec.agents_per_env
        self._resumption = Resumption(spec.name, num_envs, seed)
        self._counter = EpisodeCounter(self.num_agents) if counts else None
        self._shape = (self.num_agents, spec.observation_size)
        self._dtype: type[np.generic] = np.dtype(spec.observation_dtype).type
        self._finals = np.zeros(self._shape, self._dtype)  # where the caller does not ask for them

    def reset(self, seed: int, observations: npt.NDArray[Any]) -> None:
        """Seeds every instance anew and writes its first observation."""
        require("observations", observations, self._shape, self._dtype)
        self._begin(seed)
        self._reset(seed, observations)

    def step(
        self,
        actions: npt.NDArray[Any],
        observations: npt.NDArray[Any],
        rewards: npt.NDArray[np.float32],
        terminals: npt.NDArray[np.bool_],
        truncations: npt.NDArray[np.bool_],
        final_observations: npt.NDArray[Any] | None = None,
    ) -> None:
        """Takes one decision for each agent."""
        require("observations", observations, self._shape, self._dtype)
        finals = self._finals if final_observations is None else final_observations
        out = Rows(observations, rewards, terminals, truncations, finals)
        played = None if self.playing is None else self.playing.copy()
        self._count(out, self._step(actions, out), played)

    @abc.abstractmethod
    def _reset(self, seed: int, observations: npt.NDArray[Any]) -> None:
        """Seeds every instance anew and writes its first observation."""

    @abc.abstractmethod
    def _step(self, actions: npt.NDArray[Any], out: Rows) -> npt.NDArray[np.bool_] | None:
        """Takes one decision; returns whose episodes it ended, where that is not terminals | truncations."""

    def _begin(self, seed: int) -> None:
        """Notes that all episodes begin anew."""
        self._resumption.begin(seed)
        if self._counter is not None:
            self._counter.reset()

    def _count(
        self, out: Rows, ended: npt.NDArray[np.bool_] | None = None, played: npt.NDArray[np.bool_] | None = None
    ) -> None:
        """Counts a step of those that `played`; None: of all."""
        self._resumption.steps += 1
        if self._counter is not None:
            ended = out.terminals | out.truncations if ended is None else ended
            self._counter.add(out.rewards, ended, played)

    def drain_episodes(self) -> Episodes:
        """Returns the episodes that finished since the last call."""
        assert self._counter is not None
        return self._counter.drain()

    def get_state(self) -> bytes:
        """Returns what the new episodes of a resumed run are drawn from."""
        return self._resumption.state()

    def set_state(self, state: bytes) -> None:
        """Checks that the state fits these environments. Raises ValueError where it does not."""
        self._resumption.require(state)

    @abc.abstractmethod
    def close(self) -> None:
        """Closes what the environments hold. Calling it again does nothing."""


class Resumption:
    """What is kept of environments that cannot be saved: `trainer.environments.resume` then begins new episodes."""

    def __init__(self, name: str, num_envs: int, seed: int) -> None:
        self._name, self._num_envs = name, num_envs
        self.seed, self.steps = seed, 0

    def begin(self, seed: int) -> None:
        """Notes that all episodes begin anew."""
        self.seed, self.steps = seed, 0

    def state(self) -> bytes:
        """Returns what the new episodes of a resumed run are drawn from."""
        state = {"env": self._name, "num_envs": self._num_envs, "seed": self.seed, "steps": self.steps}
        return json.dumps(state).encode()

    def require(self, state: bytes) -> None:
        """Raises ValueError unless a state is of such environments."""
        with contextlib.suppress(ValueError, KeyError, TypeError):
            saved = json.loads(state)
            if (saved["env"], saved["num_envs"]) == (self._name, self._num_envs):
                return
        raise ValueError(f"the state is not of {self._num_envs} environments '{self._name}'")


class EpisodeCounter:
    """Sums each agent's rewards and steps until its episode ends. An episode's score is its return.

    Sums are float64: at 16,000 frames a float32 sum would have lost the last digits of a score.
    """

    def __init__(self, num_agents: int) -> None:
        self._returns = np.zeros(num_agents)
        self._lengths = np.zeros(num_agents, np.int32)
        self._finished: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int32]]] = []

    def reset(self) -> None:
        """Forgets everything: running episodes, and finished ones that were not drained."""
        self._returns[:] = 0.0
        self._lengths[:] = 0
        self._finished.clear()

    def add(
        self,
        rewards: npt.NDArray[np.float32],
        ended: npt.NDArray[np.bool_],
        playing: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Counts one step of all agents, or of those that are `playing`; `ended` marks those whose episode it ended.

        What an idle agent earns belongs to no episode. Its end is no episode either, but nothing is carried over it.
        """
        if playing is None:
            self._returns += rewards
            self._lengths += 1
        else:
            np.add(self._returns, rewards, out=self._returns, where=playing)
            self._lengths += playing
        if ended.any():
            rows = np.flatnonzero(ended)
            counted = rows if playing is None else rows[playing[rows]]
            if len(counted):
                self._finished.append((counted, self._returns[counted], self._lengths[counted]))
            self._returns[rows] = 0.0
            self._lengths[rows] = 0

    def state(self) -> bytes:
        """Returns the sums of the episodes that are running. Those that have ended must have been drained."""
        return self._returns.tobytes() + self._lengths.tobytes()

    def set_state(self, state: bytes) -> None:
        """Goes on with the sums of a `state` of as many agents."""
        agents = len(self._returns)
        self._returns[:] = np.frombuffer(state, np.float64, agents)
        self._lengths[:] = np.frombuffer(state, np.int32, agents, self._returns.nbytes)

    def state_bytes(self) -> int:
        """Returns the length of a `state`."""
        return self._returns.nbytes + self._lengths.nbytes

    def drain(self) -> Episodes:
        """Returns the episodes that ended since the last call, in order of (step, agent)."""
        agents = np.concatenate([np.zeros(0, np.int64), *(rows for rows, _, _ in self._finished)]).astype(np.int32)
        returns = np.concatenate([np.zeros(0), *(sums for _, sums, _ in self._finished)]).astype(np.float32)
        lengths = np.concatenate([np.zeros(0, np.int32), *(steps for _, _, steps in self._finished)])
        self._finished.clear()
        return Episodes(agent=agents, score=returns, return_=returns, length=lengths)


def joined(parts: Iterable[tuple[Episodes, int]]) -> Episodes:
    """Returns the episodes of several parts of the rows, one part after the other; each with the row it begins at."""
    episodes, starts = zip(*parts, strict=True)
    return Episodes(
        agent=np.concatenate([of_part.agent + start for of_part, start in zip(episodes, starts, strict=True)]),
        score=np.concatenate([of_part.score for of_part in episodes]),
        return_=np.concatenate([of_part.return_ for of_part in episodes]),
        length=np.concatenate([of_part.length for of_part in episodes]),
    )


def picture_game(
    name: str, description: str, shape: tuple[int, int, int], choices: int, most_steps: int = 0
) -> EnvSpec:
    """Returns the description of a game of one agent that shows bytes, `shape`, and takes one of `choices` actions."""
    return EnvSpec(
        name=name,
        description=description,
        observation_size=math.prod(shape),
        observation_shape=shape,
        observation_dtype="uint8",
        action_sizes=(choices,),
        continuous_actions=0,
        agents_per_env=1,
        score_range=(-math.inf, math.inf),
        solved_score=math.inf,
        max_episode_steps=most_steps,
    )


def require(name: str, array: npt.NDArray[Any], shape: tuple[int, ...], dtype: type[np.generic]) -> None:
    """Raises ValueError unless an array has this shape and type and is C-contiguous."""
    if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
        raise ValueError(
            f"{name} must be a C-contiguous {np.dtype(dtype)} array of shape {shape}, got {array.dtype} {array.shape}"
        )
