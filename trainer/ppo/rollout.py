"""Collecting experience: the environment and the network write into the buffers that the update reads.

Notation: `T` steps of a rollout (the horizon, or fewer at the end of a run), `N` agents (`num_envs * agents_per_env`),
`D` features, `K` components of an action, `S` floats of recurrent state, `rows` of the network's output. Everything is
`T x N` with a step's row contiguous, so one call of the environment writes observations, rewards and ends of all agents
directly into row `t`. Nothing is allocated, gathered or looped over per agent. The output is `rows x T x N`, and the
values of all steps are read from it at once.

The noise that turns outputs into actions is drawn for the whole rollout at once. With several processes, each process
draws the noise of all agents and uses the columns of its own agents. So an agent acts as it would in one process.

On a GPU the network acts in one launch a step (`protein.trainer.ppo.acting`), and the rows are there.

Environments that step beside the policy or beside the update are in `protein.trainer.ppo.overlap`, which a first reader
may skip.

Normalised observations and scaled rewards: see `protein.trainer.normalise.Conditioning`.
"""

import dataclasses
import itertools
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from protein.envs_c import EnvSpec, Episodes

from ..environments import VectorEnv, playing, resume
from ..environments.base import joined
from ..machine.cuda import host_zeros, to_device
from ..machine.distributed import ALONE, World
from ..machine.graphs import Recorder, is_apart
from ..machine.precision import autocast
from ..machine.stopwatch import Stopwatch
from ..model.policy import Policy
from ..normalise import Conditioning
from .acting import Records, Stage

LATER = 256  # steps whose final observations are valued at once, so that memory stays bounded
Finals = list[tuple[int, npt.NDArray[np.int64], torch.Tensor]]  # of truncated episodes: step, agents, outputs


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one update reads, on the network's device. A column is a segment: `T` steps of one agent."""

    observations: torch.Tensor  # `T x N x D`, float32 or bytes
    actions: torch.Tensor  # `K x T x N`
    logprobs: torch.Tensor  # `T x N`, of the actions under the policy that took them
    values: torch.Tensor  # `(T + 1) x N`: the last row is that of the observation after the last step
    rewards: torch.Tensor  # `T x N`; where an episode was truncated, with its discounted final value
    ends: torch.Tensor  # `T x N`, bool: the episode ended at this step
    resets: torch.Tensor  # `T x N`, bool: the recurrent state is zeroed before this step
    state: torch.Tensor | None  # `N x S`, before the first step
    playing: torch.Tensor | None = None  # `T x N`, bool: whose agent acted; None: all. No other sample counts anywhere
    follows: torch.Tensor | None = None  # `T x N`, the discounted final values, while rewards are still to be scaled

    @property
    def steps(self) -> int:
        return self.rewards.shape[0]

    @property
    def segments(self) -> int:
        return self.rewards.shape[1]

    def __len__(self) -> int:
        return self.rewards.numel()

    def tensors(self) -> dict[str, torch.Tensor]:
        """Returns those fields that are there."""
        found = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def samples(self) -> "Batch":
        """Returns the same samples, each as a segment of one step, for a policy without memory."""
        steps, segments = self.steps, self.segments

        def flat(rows: torch.Tensor | None) -> Any:
            return None if rows is None else rows.reshape(1, steps * segments, *rows.shape[2:])

        return dataclasses.replace(
            self,
            observations=flat(self.observations),
            actions=self.actions.reshape(-1, 1, steps * segments),
            logprobs=flat(self.logprobs),
            values=torch.stack([self.values[:-1].flatten(), self.values[1:].flatten()]),
            rewards=flat(self.rewards),
            ends=flat(self.ends),
            resets=flat(self.resets),
            state=None,
            playing=flat(self.playing),
            follows=flat(self.follows),
        )


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
        stages: Sequence[Stage] = (),
    ) -> None:
        """`idles`: some agents may have ended while others play on. `stages`: of the groups, on a GPU."""
        agents, distribution = columns[-1].stop, policy.distribution
        on_host = device.type == "cpu" or bool(stages)

        def own(*shape: int) -> torch.Tensor:
            return host_zeros(*shape, pin=pin) if on_host else torch.zeros(*shape, device=device)

        self._pin, self._device, kept = pin, device, 0 if stages else horizon
        # On the host, where the environment writes. Row T of the observations is what the next rollout starts from.
        # With stages, where the environment writes then, there are rows only to compute the running means of.
        self._shape, self._dtype = (horizon + 1, agents, spec.observation_size), policy.observation_dtype
        self.observations = host_zeros(kept and horizon + 1, *self._shape[1:], dtype=self._dtype, pin=pin)
        self.actions = host_zeros(kept, agents, distribution.components, dtype=distribution.dtype, pin=pin)
        self.rewards = host_zeros(horizon, agents, pin=pin)
        self.terminals = torch.zeros(horizon, agents, dtype=torch.bool)
        self.truncations = torch.zeros(horizon, agents, dtype=torch.bool)
        # Whose agent acted.
        self.playing = host_zeros(horizon, agents, dtype=torch.bool, pin=pin) if idles else None
        # Row t: the episode ended at step t - 1, by termination or truncation.
        self.ended = host_zeros(horizon + 1, agents, dtype=torch.bool, pin=pin)
        # On the network's device. On a CPU the observations are the host's own buffer.
        self.device_observations = self.observations if on_host else self.observations.to(device)
        self.outputs = own(policy.rows, kept and horizon + 1, agents)
        self.logprobs = own(kept, agents)
        self.records = Records(policy, spec, horizon, agents, device) if stages else None  # in place of all of these
        # Actions as the network writes them; on a CPU, in the environment's own buffer.
        self.device_actions = self.actions if on_host else self.actions.to(device)
        # Row t: the states that are zeroed before step t, because their episode ended at step t - 1.
        self.resets = self.ended if on_host else self.ended.to(device)
        self.resets.fill_(True)
        # Views of each group's columns, made once, because slicing in the loop costs as much as a small kernel.
        self.rows = [
            [
                Row(
                    stages[index].actions if stages else self.actions[t, of_group].numpy(),
                    stages[index].observations if stages else self.observations[t + 1, of_group].numpy(),
                    self.rewards[t, of_group].numpy(),
                    self.terminals[t, of_group].numpy(),
                    self.truncations[t, of_group].numpy(),
                )
                for t in range(horizon)
            ]
            for index, of_group in enumerate(columns)
        ]

    def separate_(self) -> None:
        """Gives the network observations of its own, in float32, because it reads other numbers than the raw ones."""
        if self.records is None:
            self.device_observations = torch.zeros(self._shape, device=self._device)
        else:
            self.observations = host_zeros(*self._shape, dtype=self._dtype, pin=self._pin)
            self.records.separate_()


class Group:
    """Environments that step together: some columns of the buffers, all where there is one group."""

    def __init__(self, envs: VectorEnv, columns: slice) -> None:
        self.envs = envs
        self.stage: Stage | None = None  # where it acts, on a GPU
        self.columns = columns
        self.rows: list[Row] = []  # of the buffers that are being filled
        self.playing: npt.NDArray[np.bool_] | None = None  # likewise, `T` rows; None: all agents play
        shape = (envs.num_agents, envs.spec.observation_size)
        self.final_observations = np.zeros(shape, envs.spec.observation_dtype)
        self.finals: list[tuple[int, npt.NDArray[np.int64], npt.NDArray[Any]]] = []  # step, agents of it, rows

    def step(self, t: int) -> None:
        """Steps the environments."""
        if self.playing is not None:
            self.playing[t] = playing(self.envs)
        self.envs.step(*self.rows[t], self.final_observations)
        self.keep_finals(t)

    def keep_finals(self, t: int) -> None:
        """Keeps the final observations of the episodes that were truncated at step `t`."""
        row = self.rows[t]
        if row.truncations.any():
            cut = np.flatnonzero(row.truncations & ~row.terminals)
            if len(cut):
                self.finals.append((t, cut, self.final_observations[cut]))


class Rollout:
    """Steps the environments with the policy and turns what happened into a `Batch`."""

    def __init__(
        self,
        envs: Sequence[VectorEnv],
        policy: Policy,
        *,
        horizon: int,
        gamma: float,
        device: torch.device,
        generator: torch.Generator,
        stopwatch: Stopwatch,
        precision: str = "fp32",
        world: World = ALONE,
        keep: int = 1,
        pin: bool = False,
    ) -> None:
        """`envs`: this process's share. Several parts of it need an `InterleavedRollout`.

        `keep`: how many batches are kept; `collect` overwrites the oldest. `pin`: batches are copied to a GPU, so host
        buffers are in pinned memory; where the network is on a GPU they are in any case.
        """
        self._policy = policy
        self._gamma = gamma
        self.device = device
        self._generator = generator
        self._stopwatch = stopwatch
        self._precision = precision
        ends = list(itertools.accumulate(env.num_agents for env in envs))
        columns = [slice(end - env.num_agents, end) for env, end in zip(envs, ends, strict=True)]
        agents, spec = ends[-1], envs[0].spec
        pin = pin or device.type == "cuda"
        idles = any(playing(env) is not None for env in envs)
        noise_rows = policy.distribution.noise_rows
        self._all_noise = torch.empty(horizon + 1, noise_rows, agents * world.size, device=device)
        self._noise = self._all_noise[..., agents * world.rank : agents * (world.rank + 1)]
        self._state = torch.zeros(agents, policy.state_size, device=device) if policy.state_size else None
        self._groups = [self._group(env, of_group) for env, of_group in zip(envs, columns, strict=True)]
        stages = []
        if is_apart(device):
            for group in self._groups:
                group.stage = Stage(
                    policy, spec, group.columns, self._noise, self._state, device=device, precision=precision
                )
                stages.append(group.stage)
        self._buffers = [Buffers(policy, spec, horizon, columns, device, pin, idles, stages) for _ in range(keep)]
        self._now = self._buffers[-1]  # those of the last rollout
        self._all_noise.zero_()  # last: what is too large fails above, before any memory is written
        self._later: list[tuple[int, npt.NDArray[np.int64], npt.NDArray[Any], torch.Tensor | None]] = []
        self._horizon = self._start = horizon
        self._idled = False  # whether an agent did not act in some step of the last batch
        self.conditioning = Conditioning()

    def _group(self, envs: VectorEnv, columns: slice) -> Group:
        return Group(envs, columns)

    @property
    def num_agents(self) -> int:
        """Of this process."""
        return sum(group.envs.num_agents for group in self._groups)

    def condition(self, conditioning: Conditioning) -> None:
        """Sets how observations and rewards are treated from here on."""
        self.conditioning = conditioning
        if conditioning.normalizer is not None:
            for buffers in self._buffers:
                buffers.separate_()
        for group in self._groups:
            if group.stage is not None:
                group.stage.normalizer = conditioning.normalizer

    def record(self, recorder: Recorder) -> None:
        """Records acting, where the recorder does, once the observations' treatment is settled."""
        wanted = (
            [] if recorder.reason else [(group.stage, own.records) for group in self._groups for own in self._buffers]
        )
        for stage, records in wanted:
            assert stage is not None and records is not None
            if not stage.record(recorder, records):
                for other, _ in wanted:
                    assert other is not None
                    other.forget()
                return

    def settle(self, batch: Batch, world: World) -> Batch:
        """Merges what the last batch has observed, over all processes; returns it with its rewards scaled.

        Where all agents played in all steps, it has no `playing`. All processes have to call this, before the next
        batch begins.
        """
        if batch.playing is not None and not world.agree(self._idled, 0.0)[0]:
            batch = dataclasses.replace(batch, playing=None)
        self.conditioning.settle(world)
        rewards = self.conditioning.rewards
        if rewards is None or batch.follows is None:
            return batch
        return dataclasses.replace(batch, rewards=rewards.apply_(batch.rewards).add_(batch.follows), follows=None)

    def close(self) -> None:
        """Waits until no environment is stepping; nothing can be collected afterwards."""

    def reset(self, seed: int) -> None:
        """Starts every environment anew. The next `collect` continues from there."""
        self._start = self._horizon
        for group in self._groups:
            group.envs.reset(seed, self._latest(group))
        self._now.resets[self._start] = True

    def _latest(self, group: Group) -> npt.NDArray[Any]:
        """Returns the observations of a group that the next rollout begins with, `M x D`."""
        if group.stage is not None:
            return group.stage.observations
        latest: npt.NDArray[Any] = self._now.observations[self._start, group.columns].numpy()
        return latest

    def state(self) -> dict[str, torch.Tensor]:
        """Returns everything that the next `collect` depends on, apart from the policy."""
        state = {
            f"environments.{index}": torch.from_numpy(np.frombuffer(group.envs.get_state(), np.uint8).copy())
            for index, group in enumerate(self._groups)
        }
        state["observations"] = torch.from_numpy(np.concatenate([self._latest(group) for group in self._groups]))
        state["resets"] = self._now.resets[self._start].clone()
        state["actions_generator"] = self._generator.get_state()
        if self._state is not None:
            state["recurrent"] = self._state.clone()
        return state | self.conditioning.own_state()

    def set_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restores a `state`, or begins new episodes where the environments cannot be saved.

        Raises:
            KeyError, ValueError: it comes from other environments.
        """
        self._start = self._horizon
        for group in self._groups:
            np.copyto(self._latest(group), state["observations"][group.columns].numpy())
        self._now.resets[self._start].copy_(state["resets"])
        for index, group in enumerate(self._groups):
            saved = state[f"environments.{index}"].numpy().tobytes()
            if not resume(group.envs, saved, self._latest(group)):
                self._now.resets[self._start, group.columns] = True
        drawn = state["actions_generator"]
        if drawn.numel() == self._generator.get_state().numel():
            self._generator.set_state(drawn)
        else:  # it is of another kind of device, whose generator has a state of another form
            self._generator.manual_seed(zlib.crc32(drawn.numpy().tobytes()))
        if self._state is not None:
            self._state.copy_(state["recurrent"])
        self.conditioning.set_own_state(state)

    def take(self, steps: int, time_is_up: Callable[[], bool] = lambda: False) -> tuple[Batch, Episodes]:
        """Returns a batch, as `collect` does, and the episodes that finished in it."""
        return self.collect(steps, time_is_up), self.drain_episodes()

    def collect(self, steps: int, time_is_up: Callable[[], bool] = lambda: False) -> Batch:
        """Takes `steps` steps, at most the horizon, in every environment. Leaves the stopwatch in `other`.

        Once `time_is_up()` it takes no further step, but at least one.
        """
        # Not in inference mode, because the update differentiates operations that read these tensors.
        with torch.no_grad(), autocast(self.device, self._precision), self._policy.held():
            return self._collect(steps, time_is_up)

    def _collect(self, steps: int, time_is_up: Callable[[], bool]) -> Batch:
        switch, groups = self._stopwatch.switch, self._groups
        switch("copy")
        before = self._now
        self._buffers.append(self._buffers.pop(0))
        self._now = now = self._buffers[-1]
        if now.records is None:
            now.observations[0].copy_(before.observations[self._start])
        now.resets[0].copy_(before.resets[self._start])
        for group, rows in zip(groups, now.rows, strict=True):
            group.rows = rows
            group.playing = None if now.playing is None else now.playing[:, group.columns].numpy()
        initial = None if self._state is None else self._state.clone()
        switch("rollout_forward")
        self._policy.distribution.fill_noise_(self._all_noise[:steps], self._generator)
        finals: Finals = []
        self._start = steps = self._take_steps(steps, time_is_up, finals)
        switch("rollout_forward")
        for group in groups:
            self._value_final_observations(group, finals)
            if group.stage is None:
                self._forward(group, steps, advance=False)
            else:
                self._fill(group, group.stage, steps)
                group.stage.value(self._records, steps)
        self._value_later(finals)
        batch = self._batch(steps, initial, finals)
        switch("other")
        return batch

    def _take_steps(self, steps: int, time_is_up: Callable[[], bool], finals: Finals) -> int:
        """Acts and steps the environments; returns how many steps they have taken."""
        (group,) = self._groups
        for t in range(steps):
            if t and time_is_up():
                return t
            self._stopwatch.switch("rollout_forward")
            self._value_final_observations(group, finals)
            self._act(group, t)
            self._stopwatch.switch("environment")
            group.step(t)
        return steps

    def _act(self, group: Group, t: int) -> None:
        """Chooses the actions of one group at step `t` and hands them to the environment's buffer."""
        if group.stage is not None:
            self._fill(group, group.stage, t)
            group.stage.act(self._records, t)
            return
        distribution, columns = self._policy.distribution, group.columns
        self._forward(group, t, advance=True)
        actions = self._now.device_actions[t, columns]
        distribution.sample(
            self._now.outputs[: distribution.rows, t, columns],
            self._noise[t, :, columns],
            actions,
            self._now.logprobs[t, columns],
        )
        if actions.dtype.is_floating_point:
            actions.nan_to_num_()  # an environment would refuse NaN; the update finds it too, and reports it
        if self._now.device_actions is not self._now.actions:
            self._now.actions[t, columns].copy_(actions)  # waits for the device, as nothing else in the loop does

    @property
    def _records(self) -> Records:
        assert self._now.records is not None
        return self._now.records

    def _fill(self, group: Group, stage: Stage, t: int) -> None:
        """Completes the block of a group for step `t`: its observations are there already."""
        ended = self._now.ended[t, group.columns].numpy()
        if t:
            row = group.rows[t - 1]
            np.logical_or(row.terminals, row.truncations, out=ended)
        np.copyto(stage.resets, ended)
        if self.conditioning.normalizer is not None:  # whose running means come from all rows
            np.copyto(self._now.observations[t, group.columns].numpy(), stage.observations)

    def _forward(self, group: Group, t: int, *, advance: bool) -> None:
        """Runs the network on the observations of step `t`; moves the recurrent state only where `advance`."""
        columns = group.columns
        observations = self._now.device_observations[t, columns]
        if self.conditioning.normalizer is not None:
            raw = self._now.observations[t, columns].to(self.device, non_blocking=True)
            self.conditioning.normalizer.apply(raw, out=observations)
        elif self._now.device_observations is not self._now.observations:
            observations.copy_(self._now.observations[t, columns], non_blocking=True)
        output = self._now.outputs[:, t, columns]
        if t:
            ended = self._now.ended[t, columns]
            torch.logical_or(self._now.terminals[t - 1, columns], self._now.truncations[t - 1, columns], out=ended)
            if self._now.resets is not self._now.ended:
                self._now.resets[t, columns].copy_(ended, non_blocking=True)
        if self._state is None:
            self._policy.step(observations, None, None, output)
            return
        state = self._state[columns]
        self._policy.step(observations, state, self._now.resets[t, columns], output, state if advance else None)

    def _value_final_observations(self, group: Group, finals: Finals) -> None:
        """Runs the network on the final observations of the episodes that were truncated in the group's last step."""
        for t, cut, rows in group.finals:
            of_all = cut + group.columns.start
            agents = None if self._state is None else to_device(torch.from_numpy(of_all), self.device)
            if group.stage is not None:
                self._later.append((t, of_all, rows, None if self._state is None else self._state[agents]))
                continue
            observations = to_device(torch.from_numpy(rows), self.device)
            if self.conditioning.normalizer is not None:
                observations = self.conditioning.normalizer.apply(observations)
            state = None if self._state is None else self._state[agents]
            output, _ = self._policy(observations.unsqueeze(0), state)
            finals.append((t, of_all, output))
        group.finals.clear()

    def _value_later(self, finals: Finals) -> None:
        """Runs the network on the final observations of a whole rollout at once: on a GPU few launches count."""
        for first in range(0, len(self._later), LATER):
            part = self._later[first : first + LATER]
            observations = to_device(torch.from_numpy(np.concatenate([rows for *_, rows, _ in part])), self.device)
            if self.conditioning.normalizer is not None:
                observations = self.conditioning.normalizer.apply(observations)
            states = [state for *_, state in part if state is not None]
            output, _ = self._policy(observations.unsqueeze(0), torch.cat(states) if states else None)
            for (t, agents, *_), of_step in zip(
                part, output.split([len(agents) for _, agents, *_ in part], dim=1), strict=True
            ):
                finals.append((t, agents, of_step))
        self._later.clear()

    def _batch(self, steps: int, initial: torch.Tensor | None, finals: Finals) -> Batch:
        records, switch = self._now.records, self._stopwatch.switch
        switch("copy")
        if records is None:
            outputs = self._now.outputs[:, : steps + 1]
            actions = self._now.device_actions[:steps].permute(2, 0, 1).contiguous()
            observations, logprobs = self._now.device_observations[:steps], self._now.logprobs[:steps]
            ends = self._now.resets[: steps + 1]
        else:
            outputs, actions, logprobs = records.outputs(steps), records.actions(steps), records.logprobs(steps)
            observations, ends = records.observations[:steps], records.resets(self._now.ended[: steps + 1])
        rewards = to_device(self._now.rewards[:steps], self.device)
        follows = None if self.conditioning.rewards is None else torch.zeros_like(rewards)
        resets = self._now.resets[:steps]
        played = None if self._now.playing is None else self._now.playing[:steps]
        self._idled = played is not None and not bool(played.all())
        self.conditioning.observe(
            self._now.observations[:steps], self._now.rewards[:steps], resets, played if self._idled else None
        )
        switch("rollout_forward")
        values = self._policy.values(outputs).contiguous()
        if finals:
            # After a truncation the episode would have continued, so the value of its final observation counts.
            final_values = self._policy.values(torch.cat([output for *_, output in finals], dim=1)).float()
            places = np.concatenate([t * rewards.shape[1] + agents for t, agents, _ in finals])
            into = (rewards if follows is None else follows).view(-1)
            into.index_add_(0, to_device(torch.from_numpy(places), self.device), final_values, alpha=self._gamma)
        return Batch(
            observations=observations,
            actions=actions,
            logprobs=logprobs,
            values=values,
            rewards=rewards,
            ends=ends[1:],
            resets=ends[:steps],
            state=initial,
            playing=None if played is None else to_device(played, self.device),
            follows=follows,
        )

    def drain_episodes(self) -> Episodes:
        """Returns the episodes that finished since the last call, group by group, each in the order of their ends."""
        return joined((group.envs.drain_episodes(), group.columns.start) for group in self._groups)
