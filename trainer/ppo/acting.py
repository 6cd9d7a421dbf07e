"""Acting on a GPU: one launch a step for each group of environments. On a CPU nothing of this runs.

The host writes what the environments show into one block of pinned memory: the step's number, observations and ends of
episodes. One computation copies the block to the device, chooses the actions, copies them back, and writes what the
update will read. All it reads and writes lies in fixed places, and the step's number is one of its inputs. So it is
recorded once (`protein.trainer.machine.graphs`) and serves all steps. Not recorded it is the same computation.

The steps of a group follow each other: actions need observations, and these need actions. So the computations run in
the order of the thread's stream, and a stream of their own would win nothing. While one group acts, another one's
environments step.

Notation: as in `protein.trainer.ppo.rollout`, for the `M` agents of a group.
"""

import functools

import numpy as np
import numpy.typing as npt
import torch

from protein.envs_c import EnvSpec

from ..machine.cuda import host_zeros
from ..machine.graphs import Graph, Recorder
from ..machine.precision import autocast
from ..model.policy import Policy
from ..normalise import Normalizer

HEAD = 256  # bytes before the observations, so that they begin where a GPU reads fast


class Records:
    """What one rollout leaves on the device: `T + 1` rows of all agents; the last one is of the values alone."""

    def __init__(self, policy: Policy, spec: EnvSpec, horizon: int, agents: int, device: torch.device) -> None:
        self.policy_rows, self._action_dtype = policy.rows, policy.distribution.dtype
        self._shape = horizon + 1, agents, spec.observation_size
        self._device = device
        self.observations = torch.zeros(self._shape, dtype=policy.observation_dtype, device=device)
        # Outputs, log-probability and actions of a step, side by side, by their bits: one kernel writes them all.
        numbers = policy.rows + 1 + policy.distribution.components
        self.packed = torch.zeros(horizon + 1, numbers, agents, dtype=torch.int32, device=device)
        self._resets = torch.zeros(horizon + 1, agents, dtype=torch.bool, device=device)

    def separate_(self) -> None:
        """Keeps observations in float32, because the network reads other numbers than the raw ones."""
        self.observations = torch.zeros(self._shape, device=self._device)

    def outputs(self, steps: int) -> torch.Tensor:
        """Returns `rows x (T + 1) x N`."""
        return self.packed.view(torch.float32)[: steps + 1, : self.policy_rows].transpose(0, 1)

    def logprobs(self, steps: int) -> torch.Tensor:
        """Returns `T x N`."""
        return self.packed.view(torch.float32)[:steps, self.policy_rows].contiguous()

    def actions(self, steps: int) -> torch.Tensor:
        """Returns `K x T x N`."""
        return self.packed.view(self._action_dtype)[:steps, self.policy_rows + 1 :].transpose(0, 1).contiguous()

    def resets(self, host: torch.Tensor) -> torch.Tensor:
        """Copies the first rows, `T + 1 x N`, from the host; returns them on the device."""
        return self._resets[: len(host)].copy_(host, non_blocking=True)


class Stage:
    """One group's block on the host and its twin on the device.

    Attributes:
        observations: `M x D`, which the environment writes.
        resets: `M`, whose state is zeroed before the next step.
        actions: `M x K`, which the environment reads.
        normalizer: of the observations; None: they are read as they are.
    """

    def __init__(
        self,
        policy: Policy,
        spec: EnvSpec,
        columns: slice,
        noise: torch.Tensor,
        state: torch.Tensor | None,
        *,
        device: torch.device,
        precision: str,
    ) -> None:
        """Args:
        policy: acts; on `device`.
        spec: of the environments.
        columns: of the agents among all.
        noise: `(T + 1) x noise_rows x N`, for all agents; it stays where it is.
        state: `N x S`, likewise; None: the policy has no memory.
        device: of the policy, with memory of its own.
        precision: of the network.
        """
        self._policy, self._columns, self._device, self._precision = policy, columns, device, precision
        self._noise, self._state = noise[..., columns], None if state is None else state[columns]
        agents, distribution, pin = columns.stop - columns.start, policy.distribution, device.type == "cuda"
        shape, dtype = (agents, spec.observation_size), policy.observation_dtype
        ends = HEAD + agents * spec.observation_size * dtype.itemsize
        self._host = host_zeros(ends + agents, dtype=torch.uint8, pin=pin)
        self._block = torch.zeros_like(self._host, device=device, pin_memory=False)

        def views(block: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            return block[:8].view(torch.int64), block[HEAD:ends].view(dtype).view(shape), block[ends:].view(torch.bool)

        self._t, self._raw, self._resets = views(self._block)
        self._number, observations, resets = (view.numpy() for view in views(self._host))
        self.observations: npt.NDArray[np.generic] = observations
        self.resets: npt.NDArray[np.bool_] = resets
        self._normalised = torch.zeros(shape, device=device)
        self.normalizer: Normalizer | None = None
        rows, components = policy.rows, distribution.components
        self._packed = torch.zeros(rows + 1 + components, agents, dtype=torch.int32, device=device)
        floats = self._packed.view(torch.float32)
        self._output, self._logprobs = floats[:rows], floats[rows]
        self._chosen = self._packed.view(distribution.dtype)[rows + 1 :]
        self._sent = host_zeros(components, agents, dtype=distribution.dtype, pin=pin)
        self.actions = np.zeros((agents, components), self._sent.numpy().dtype)
        self._graphs: dict[Records, Graph] = {}

    def record(self, recorder: Recorder, records: Records) -> bool:
        """Records acting into `records`; returns whether it worked."""
        keeps = [] if self._state is None else [self._state]
        with torch.no_grad():
            graph = recorder.record("acting", functools.partial(self._compute, records), keeps=keeps)
        if graph is not None:
            self._graphs[records] = graph
        return graph is not None

    def forget(self) -> None:
        """Goes on without what was recorded."""
        self._graphs.clear()

    def act(self, records: Records, t: int) -> None:
        """Chooses the actions of step `t` by what lies in the block, and waits for them; fills row `t` of `records`."""
        self._launch(records, t)
        np.copyto(self.actions, self._sent.numpy().T)

    def value(self, records: Records, t: int) -> None:
        """Computes the output alone for what lies in the block: the state stays as it is, and no action is taken.

        It waits, too: with overlap the next rollout fills the block at once.
        """
        before = None if self._state is None else self._state.clone()
        self._launch(records, t)
        if self._state is not None and before is not None:
            self._state.copy_(before)

    def _launch(self, records: Records, t: int) -> None:
        self._number[0] = t
        graph = self._graphs.get(records)
        if graph is None:
            self._compute(records)
        else:
            graph.replay()
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()

    def _compute(self, records: Records) -> None:
        """Does all of one step on the device."""
        policy, distribution, columns = self._policy, self._policy.distribution, self._columns
        self._block.copy_(self._host, non_blocking=True)
        observations = self._raw
        if self.normalizer is not None:
            observations = self.normalizer.apply(observations, out=self._normalised)
        # Weights are converted again in each step: those of an earlier one are not in a graph's memory.
        with autocast(self._device, self._precision, caches=False):
            policy.step(observations, self._state, self._resets, self._output, self._state)
            noise = self._noise.index_select(0, self._t)[0]
            distribution.sample(self._output[: distribution.rows], noise, self._chosen.t(), self._logprobs)
        if self._chosen.dtype.is_floating_point:
            self._chosen.nan_to_num_()  # an environment would refuse NaN; the update finds it too, and reports it
        self._sent.copy_(self._chosen, non_blocking=True)
        records.observations[:, columns].index_copy_(0, self._t, observations.unsqueeze(0))
        records.packed[..., columns].index_copy_(0, self._t, self._packed.unsqueeze(0))
