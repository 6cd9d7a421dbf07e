"""A vectorised environment with buffers of its own, for the tests of `envs_c`."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from protein import envs_c

Actions = npt.NDArray[np.int32] | npt.NDArray[np.float32]
Arrays = tuple[
    npt.NDArray[Any],
    npt.NDArray[np.float32],
    npt.NDArray[np.bool_],
    npt.NDArray[np.bool_],
    npt.NDArray[Any],
]
# One for each header. A variant of a header is the same code with other sizes.
GAMES = [name for name in envs_c.names() if (Path(__file__).parents[2] / "envs_c" / f"{name}.h").is_file()]
SENTINEL, BYTE_SENTINEL = np.float32(1e30), np.uint8(201)  # no environment writes them


def scripted_actions(step: int, num_agents: int, spec: envs_c.EnvSpec) -> Actions:
    """Actions that look arbitrary and depend on nothing but the arguments, today and in any later numpy.

    Continuous ones are from [-1.25, 1.25), so that some are clipped.
    """
    shape = (num_agents, spec.action_components)
    x = np.arange(num_agents * spec.action_components, dtype=np.uint64).reshape(shape)
    bits = ((x + np.uint64(977 * step + 1)) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
    if spec.continuous_actions:
        return (bits.astype(np.float32) - np.float32(2**23)) * np.float32(1.25 / 2**23)
    return (bits % np.array(spec.action_sizes, np.uint64)).astype(np.int32)


def sentinel(dtype: np.dtype[Any]) -> np.float32 | np.uint8:
    """What no environment writes into its observations."""
    return BYTE_SENTINEL if dtype == np.uint8 else SENTINEL


def as_floats(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Bytes as float32, sentinels as those of floats; other arrays as they are."""
    if array.dtype != np.uint8:
        return array
    floats = array.astype(np.float32)
    floats[array == BYTE_SENTINEL] = SENTINEL
    return floats


def num_envs_of(name: str, num_agents: int) -> int:
    """How many environments hold so many agents; two at least."""
    return max(2, num_agents // envs_c.spec(name).agents_per_env)


@dataclasses.dataclass
class Buffers:
    """What `VecEnv.step` writes. `dirty()` fills them with values that it never writes, so that what stays is seen."""

    observations: npt.NDArray[Any]
    rewards: npt.NDArray[np.float32]
    terminals: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]
    final_observations: npt.NDArray[Any]

    @classmethod
    def of(cls, vec: envs_c.VecEnv) -> "Buffers":
        agents, size, dtype = vec.num_agents, vec.spec.observation_size, vec.spec.observation_dtype
        return cls(
            np.zeros((agents, size), dtype),
            np.zeros(agents, np.float32),
            np.zeros(agents, np.bool_),
            np.zeros(agents, np.bool_),
            np.full((agents, size), sentinel(np.dtype(dtype)), dtype),
        )

    def dirty(self) -> None:
        self.observations.fill(sentinel(self.observations.dtype))
        self.rewards.fill(SENTINEL)
        self.terminals.view(np.uint8).fill(7)
        self.truncations.view(np.uint8).fill(7)
        self.final_observations.fill(sentinel(self.observations.dtype))

    def arrays(self) -> Arrays:
        return self.observations, self.rewards, self.terminals, self.truncations, self.final_observations

    def bytes(self) -> bytes:
        """All of them; bytes as the floats that they stand for."""
        return b"".join(as_floats(array).tobytes() for array in self.arrays())


class Stepper:
    """A VecEnv and its buffers. `step()` without actions takes scripted ones. `played`: who acted in the last step."""

    def __init__(self, name: str, num_envs: int, *, seed: int = 0, **options: int) -> None:
        self.vec = envs_c.VecEnv(name, num_envs, seed=seed, **options)
        self.out = Buffers.of(self.vec)
        self.vec.reset(seed, self.out.observations)
        self.steps = 0
        self.played = np.ones(self.vec.num_agents, np.bool_)

    def step(self, actions: Actions | None = None) -> Buffers:
        if actions is None:
            actions = scripted_actions(self.steps, self.vec.num_agents, self.vec.spec)
        self.out.dirty()
        if self.vec.playing is not None:
            self.played = self.vec.playing.copy()
        self.vec.step(actions, *self.out.arrays())
        self.steps += 1
        return self.out
