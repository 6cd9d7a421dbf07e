"""A vectorised environment with buffers of its own, for the tests of `envs_c`."""

import dataclasses

import numpy as np
import numpy.typing as npt

import envs_c

Actions = npt.NDArray[np.int32]
SENTINEL = np.float32(1e30)  # no environment writes it


def scripted_actions(step: int, num_agents: int, num_actions: int) -> Actions:
    """Actions that look arbitrary and depend on nothing but the arguments, today and in any later numpy."""
    x = (np.arange(num_agents, dtype=np.uint64) + np.uint64(977 * step + 1)) * np.uint64(0x9E3779B97F4A7C15)
    return ((x >> np.uint64(40)) % np.uint64(num_actions)).astype(np.int32)


@dataclasses.dataclass
class Buffers:
    """What `VecEnv.step` writes. `dirty()` fills them with values that it never writes, so that what stays is seen."""

    observations: npt.NDArray[np.float32]
    rewards: npt.NDArray[np.float32]
    terminals: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]
    final_observations: npt.NDArray[np.float32]

    @classmethod
    def of(cls, vec: envs_c.VecEnv) -> "Buffers":
        agents, size = vec.num_agents, vec.spec.observation_size
        return cls(
            np.zeros((agents, size), np.float32),
            np.zeros(agents, np.float32),
            np.zeros(agents, np.bool_),
            np.zeros(agents, np.bool_),
            np.full((agents, size), SENTINEL, np.float32),
        )

    def dirty(self) -> None:
        self.observations.fill(SENTINEL)
        self.rewards.fill(SENTINEL)
        self.terminals.view(np.uint8).fill(7)
        self.truncations.view(np.uint8).fill(7)
        self.final_observations.fill(SENTINEL)

    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.observations, self.rewards, self.terminals, self.truncations, self.final_observations

    def bytes(self) -> bytes:
        return b"".join(array.tobytes() for array in self.arrays())


class Stepper:
    """A VecEnv and its buffers. `step()` without actions takes scripted ones."""

    def __init__(self, name: str, num_envs: int, *, seed: int = 0, frame_skip: int = 1, threads: int = 1) -> None:
        self.vec = envs_c.VecEnv(name, num_envs, seed=seed, frame_skip=frame_skip, threads=threads)
        self.out = Buffers.of(self.vec)
        self.vec.reset(seed, self.out.observations)
        self.steps = 0

    def step(self, actions: Actions | None = None) -> Buffers:
        if actions is None:
            actions = scripted_actions(self.steps, self.vec.num_agents, self.vec.spec.num_actions)
        self.out.dirty()
        self.vec.step(actions, *self.out.arrays())
        self.steps += 1
        return self.out
