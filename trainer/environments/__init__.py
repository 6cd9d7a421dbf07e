"""Environments by name: ours in C, Gymnasium's, and a user's own in Python, behind one vectorised interface.

    "pong"                          one of `envs_c.names()`
    "gym:CartPole-v1"               a Gymnasium id; "gym-async:..." in worker processes
    "pettingzoo:MODULE"             a parallel environment of PettingZoo, whose agents are rows
    "procgen:coinrun"               a game of Procgen
    "python:package.module:factory" a vectorised environment of the user's own; see docs/environments.md

`spec(name)` describes an environment, and `make(name, ...)` makes a batch of it. Rows of every array are agents.
"""

import contextlib
import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from protein import envs_c
from protein.envs_c import EnvSpec, Episodes
from protein.spelling import nearest

from ..errors import ConfigError
from ..users_code import RAISED, back_here, in_words
from . import arguments

ASYNC = "gym-async"
GYMNASIUM = ("gym", ASYNC)
PYTHON = "python"
PETTINGZOO = "pettingzoo"
PROCGEN = "procgen"
KINDS = (*GYMNASIUM, PETTINGZOO, PROCGEN, PYTHON)


class VectorEnv(Protocol):
    """`num_envs` instances of one environment that are stepped together; the interface of `envs_c.VecEnv`.

    With A = `num_agents` (= `num_envs * spec.agents_per_env`), D = `spec.observation_size` and C =
    `spec.action_components`, all C-contiguous and written in place: actions `A x C`, or `A` where C is 1, int32 or
    (continuous, in [-1, 1]) float32; observations and final_observations `A x D` of `spec.observation_dtype`; rewards
    `A` float32; terminals and truncations `A` bool.

    A step is one decision. It is held for `frame_skip` frames, or until the episode ends, and the rewards are summed.
    Where an episode has ended, the same step starts the next one, and `observations` has its first observation.
    `final_observations` receives the last observation of truncated episodes, in their rows only.
    """

    @property
    def spec(self) -> EnvSpec: ...
    @property
    def num_envs(self) -> int: ...
    @property
    def num_agents(self) -> int: ...
    @property
    def resumable(self) -> bool:
        """Whether `set_state` restores the episodes; where it does not, `resume` begins new ones."""

    def reset(self, seed: int, observations: npt.NDArray[Any]) -> None:
        """Seeds every instance anew from (seed, its index) and writes its first observation."""

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

    def drain_episodes(self) -> Episodes:
        """Returns the episodes that finished since the last call."""

    def get_state(self) -> bytes:
        """Returns what `resume` continues from."""

    def set_state(self, state: bytes) -> None:
        """Restores what `get_state` returned. Raises ValueError where it comes from other environments."""

    def close(self) -> None:
        """Closes what the environments hold: processes, windows, files. Calling it again does nothing."""


@back_here()
def spec(name: str, args: Mapping[str, Any] | None = None) -> EnvSpec:
    """Returns the description of an environment with these arguments (`env.args`), without keeping one.

    Raises:
        ConfigError: there is no environment of that name, or it cannot be used; the message gives the reason.
    """
    kind = kind_of(name)
    if kind in GYMNASIUM:
        from . import gym  # an optional package

        if gym.is_atari(name):
            from . import atari

            return atari.describe(name, args or {})
        return gym.describe(name, args or {}).spec
    if kind == PETTINGZOO:
        from . import pettingzoo

        return pettingzoo.describe(name, args or {})
    if kind == PROCGEN:
        from . import procgen

        return procgen.describe(name, args or {})
    if kind == PYTHON:
        from . import python

        return python.spec(name, args)
    arguments.refuse(args or {}, name)
    try:
        return envs_c.spec(name)
    except envs_c.UnknownEnvError as error:
        raise ConfigError(str(error)) from error


def make(
    name: str,
    num_envs: int,
    *,
    seed: int = 0,
    frame_skip: int = 1,
    threads: int = 1,
    first_index: int = 0,
    args: Mapping[str, Any] | None = None,
    workers: int = 0,
    cores: int = 0,
    training: bool = False,
) -> VectorEnv:
    """Makes `num_envs` instances; instance i draws its randomness from (seed, first_index + i) alone.

    Args:
        name: as at the head of this module.
        num_envs: at least 1.
        seed: of the first episodes, until `reset` gives another.
        frame_skip: frames for which a decision is held.
        threads: that step the instances of our own environments.
        first_index: of the first instance, so that two batches behave as one.
        args: for the environment's own constructor, `env.args`.
        workers: processes of `gym-async:`; 0: measured, at most one for each of `cores` (0: all that there are).
        cores: see `workers`.
        training: not an evaluation. In Atari's games the loss of a life is then terminal.

    Raises:
        ConfigError: there is no environment of that name, or it cannot be used; the message gives the reason.
    """
    kind = kind_of(name)
    common: dict[str, Any] = {"seed": seed, "frame_skip": frame_skip, "first_index": first_index}
    if kind not in KINDS:
        arguments.refuse(args or {}, name)
        try:
            return envs_c.VecEnv(name, num_envs, threads=threads, **common)
        except envs_c.UnknownEnvError as error:
            raise ConfigError(str(error)) from error
    common["args"] = args
    if kind in GYMNASIUM:
        from .gym import GymnasiumEnv, is_atari

        if is_atari(name):
            from .atari import AtariEnv

            return AtariEnv(name, num_envs, threads=cores or threads, training=training, **common)
        if kind == ASYNC:
            from .pool import PoolEnv

            return PoolEnv(name, num_envs, workers=workers, cores=cores, **common)
        return GymnasiumEnv(name, num_envs, **common)
    if kind == PETTINGZOO:
        from .pettingzoo import PettingZooEnv

        return PettingZooEnv(name, num_envs, **common)
    if kind == PROCGEN:
        from .procgen import ProcgenEnv

        return ProcgenEnv(name, num_envs, threads=cores or threads, **common)
    from .python import PythonEnv

    return PythonEnv(name, num_envs, **common)


def groups(envs: VectorEnv) -> Sequence[VectorEnv]:
    """Returns the parts of a batch that can be stepped while others are; a batch without such parts is one."""
    parts: Sequence[VectorEnv] = getattr(envs, "groups", (envs,))
    return parts


def playing(envs: VectorEnv) -> npt.NDArray[np.bool_] | None:
    """Returns which agents act in the next step, `A`, an array that every step writes anew; None: always all of them.

    The others' rows are no experience: their agents have ended, and wait for those of the same environment that go on.
    """
    rows: npt.NDArray[np.bool_] | None = getattr(envs, "playing", None)
    return rows


def resume(envs: VectorEnv, state: bytes, observations: npt.NDArray[Any]) -> bool:
    """Continues from `get_state`, taken when `observations` were the current ones; returns whether that was possible.

    Environments that cannot be saved begin new episodes, which depend only on the state. `observations` receives their
    first observations, and the agents' memory of the old episodes must be cleared.

    Raises:
        ValueError: the state comes from other environments.
    """
    envs.set_state(state)
    if not envs.resumable:
        # Below 2^32, as the seeds of a run that begins: some generators take no larger ones.
        envs.reset(int.from_bytes(hashlib.sha256(state).digest()[:4]), observations)
    return envs.resumable


@contextlib.contextmanager
def closing(*batches: VectorEnv) -> Iterator[None]:
    """Closes environments at the end. What a user's `close` raises is told on stderr, and costs no result."""
    try:
        yield
    finally:
        for envs in batches:
            try:
                envs.close()
            except RAISED as error:  # a user's environment may raise anything
                print(f"warning: '{envs.spec.name}' failed in close: {in_words(error)}", file=sys.stderr)


def names_module(name: str) -> bool:
    """Whether an environment's name names a module of Python that is imported for it, as in "gym:my_module:Walk-v0"."""
    kind, _, rest = name.partition(":")
    return kind in (PYTHON, PETTINGZOO) or (kind in GYMNASIUM and ":" in rest)


def kind_of(name: str) -> str:
    """Returns the part of the name before its first colon; "" for a name of ours.

    Raises:
        ConfigError: there is no such kind of environment.
    """
    kind, colon, _ = name.partition(":")
    if not colon:
        return ""
    if kind not in KINDS:
        known = (f"{one}:" for one in KINDS)
        raise ConfigError(f"unknown kind of environment '{kind}:' in '{name}'{nearest(f'{kind}:', known)}")
    return kind
