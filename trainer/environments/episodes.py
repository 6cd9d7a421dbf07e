"""Counts the episodes of environments that do not count their own, and checks the arrays that they are given."""

from typing import Any

import numpy as np
import numpy.typing as npt

from protein.envs_c import Episodes


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


def require(name: str, array: npt.NDArray[Any], shape: tuple[int, ...], dtype: type[np.generic]) -> None:
    """Raises ValueError unless an array has this shape and type and is C-contiguous."""
    if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
        raise ValueError(
            f"{name} must be a C-contiguous {np.dtype(dtype)} array of shape {shape}, got {array.dtype} {array.shape}"
        )
