"""Where a rollout writes: the buffers of its steps, and the environments that step together.

Notation: that of `protein.trainer.ppo.rollout`.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ...envs_c import EnvSpec
from ..environments import VectorEnv, playing
from ..environments.base import Rows
from ..machine.transfer import host_zeros
from ..model.policy import Policy


class Row(NamedTuple):
    """What one call of the environment reads and writes."""

    actions: npt.NDArray[Any]
    observations: npt.NDArray[Any]
    rewards: npt.NDArray[np.float32]
    terminals: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]


class Buffers:
    """What one rollout writes: `horizon` steps of all agents."""

    def __init__(
        self,
        policy: Policy,
        spec: EnvSpec,
        horizon: int,
        columns: Sequence[slice],
        device: torch.device,
        pin: bool,
        idles: bool = False,
    ) -> None:
        """`idles`: some agents may have ended while others play on."""
        agents, distribution = columns[-1].stop, policy.distribution
        on_host = device.type == "cpu"

        def own(*shape: int) -> torch.Tensor:
            return host_zeros(*shape, pin=pin) if on_host else torch.zeros(*shape, device=device)

        # On the host, where the environment writes. Row T of the observations is what the next rollout starts from.
        self.observations = host_zeros(
            horizon + 1, agents, spec.observation_size, dtype=policy.observation_dtype, pin=pin
        )
        self.actions = host_zeros(horizon, agents, distribution.components, dtype=distribution.dtype, pin=pin)
        self.rewards = host_zeros(horizon, agents, pin=pin)
        self.terminals = torch.zeros(horizon, agents, dtype=torch.bool)
        self.truncations = torch.zeros(horizon, agents, dtype=torch.bool)
        # Whose agent acted.
        self.playing = host_zeros(horizon, agents, dtype=torch.bool, pin=pin) if idles else None
        # Row t: the episode ended at step t - 1, by termination or truncation.
        self.ended = host_zeros(horizon + 1, agents, dtype=torch.bool, pin=pin)
        # On the network's device. On a CPU the observations are the host's own buffer.
        self.device_observations = self.observations if on_host else self.observations.to(device)
        self.outputs = own(policy.rows, horizon + 1, agents)
        self.logprobs = own(horizon, agents)
        # Actions as the network writes them; on a CPU, in the environment's own buffer.
        self.device_actions = self.actions if on_host else self.actions.to(device)
        # Row t: the states that are zeroed before step t, because their episode ended at step t - 1.
        self.resets = self.ended if on_host else self.ended.to(device)
        self.resets.fill_(True)
        self._device = device
        # Views of each group's columns, made once, because slicing in the loop costs as much as a small kernel.
        self.rows = [
            [
                Row(
                    self.actions[t, of_group].numpy(),
                    self.observations[t + 1, of_group].numpy(),
                    self.rewards[t, of_group].numpy(),
                    self.terminals[t, of_group].numpy(),
                    self.truncations[t, of_group].numpy(),
                )
                for t in range(horizon)
            ]
            for of_group in columns
        ]

    def separate_(self) -> None:
        """Gives the network observations of its own, in float32, because it reads other numbers than the raw ones."""
        self.device_observations = torch.zeros(self.observations.shape, device=self._device)


class Group:
    """The environments that step together, all or one half: columns `first` to `last` of the buffers."""

    def __init__(self, envs: VectorEnv, columns: slice, threaded: bool) -> None:
        self.envs = envs
        self.columns = columns
        self.rows: list[Row] = []  # of the buffers that are being filled
        self.playing: npt.NDArray[np.bool_] | None = None  # likewise, `T` rows; None: all agents play
        shape = (envs.num_agents, envs.spec.observation_size)
        self.final_observations = np.zeros(shape, envs.spec.observation_dtype)
        self.finals: list[tuple[int, npt.NDArray[np.int64], npt.NDArray[Any]]] = []  # step, agents, rows
        self.pool = getattr(envs, "pool", None)  # processes that step several groups, this one among them
        self._thread = ThreadPoolExecutor(1) if threaded and self.pool is None else None
        self._pending: Future[None] | None = None
        self._begun: int | None = None  # the step that processes have begun

    def step(self, t: int) -> None:
        """Steps the environments, or begins to."""
        if self.pool is not None:
            self.envs.begin(self.rows[t].actions)  # type: ignore[attr-defined]
            self._begun = t
        elif self._thread is None:
            self._step(t)
        else:
            self._pending = self._thread.submit(self._step, t)

    @property
    def is_done(self) -> bool:
        """Whether no step has been begun, or processes have finished it."""
        return self._begun is None or bool(self.pool.is_done(self.envs.number))  # type: ignore

    def close(self) -> None:
        """Waits for the step that was begun, even if it fails."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)

    def wait(self) -> None:
        """Waits for the step that was begun, and raises the error that it raised."""
        if self._pending is not None:
            self._pending.result()
            self._pending = None
        if self._begun is not None:
            t, self._begun = self._begun, None
            self.envs.finish(Rows(*self.rows[t][1:], self.final_observations))  # type: ignore[attr-defined]
            self._keep_finals(t)

    def _step(self, t: int) -> None:
        if self.playing is not None:
            self.playing[t] = playing(self.envs)
        self.envs.step(*self.rows[t], self.final_observations)
        self._keep_finals(t)

    def _keep_finals(self, t: int) -> None:
        row = self.rows[t]
        if row.truncations.any():
            cut = np.flatnonzero(row.truncations & ~row.terminals)
            if len(cut):
                self.finals.append((t, cut, self.final_observations[cut]))
