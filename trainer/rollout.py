"""Experience, written once: the environment and the network fill the very buffers that the update reads.

Notation: `T` steps of a rollout (the horizon, or fewer at the end of a run), `N` agents (`num_envs * agents_per_env`),
`D` features, `A` actions. Everything is `T x N` with a step's row contiguous, so one call of the environment writes
observations, rewards and ends of all agents straight into row `t`; nothing is allocated, gathered or looped over per
agent.

Sampling costs three small kernels a step: `argmax(logits + Gumbel noise)` is a draw from the softmax (Gumbel-max
trick), and the noise is drawn for the whole rollout at once. Logits stay in their buffer, so log-probabilities,
advantages and returns are computed for the whole rollout at once as well.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from envs_c import Episodes, VecEnv
from trainer.advantage import bootstrap_truncations_, gae
from trainer.policy import Inference, MLPPolicy
from trainer.precision import autocast


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one update reads, flattened over steps and agents: `T * N` samples, on the network's device."""

    observations: torch.Tensor  # `T * N x D`
    actions: torch.Tensor  # `T * N`, int64
    logprobs: torch.Tensor  # `T * N`, of the actions under the policy that took them
    values: torch.Tensor  # `T * N`
    advantages: torch.Tensor  # `T * N`
    returns: torch.Tensor  # `T * N`, advantages + values: the value function's targets

    def __len__(self) -> int:
        return len(self.actions)


@dataclasses.dataclass(slots=True)
class Seconds:
    """Where a rollout's time went, summed since the start."""

    environment: float = 0.0
    forward: float = 0.0
    advantage: float = 0.0


class _Row(NamedTuple):
    """What one call of the environment reads and writes."""

    actions: npt.NDArray[np.int32]
    observations: npt.NDArray[np.float32]
    rewards: npt.NDArray[np.float32]
    terminals: npt.NDArray[np.bool_]
    truncations: npt.NDArray[np.bool_]


class Rollout:
    """Steps the environments with the policy and turns what happened into a `Batch`."""

    def __init__(
        self,
        envs: VecEnv,
        policy: MLPPolicy,
        *,
        horizon: int,
        gamma: float,
        gae_lambda: float,
        device: torch.device,
        generator: torch.Generator,
        precision: str = "fp32",
    ) -> None:
        self._envs = envs
        self._policy = policy
        self._gamma = gamma
        self._gae_lambda = gae_lambda
        self._device = device
        self._generator = generator
        self._precision = precision
        self.seconds = Seconds()
        agents, features, actions = envs.num_agents, envs.spec.observation_size, envs.spec.num_actions
        pin = device.type == "cuda"
        # On the host, where the environment writes. Row T of the observations is what the next rollout starts from.
        self._observations = torch.zeros(horizon + 1, agents, features, pin_memory=pin)
        self._actions = torch.zeros(horizon, agents, dtype=torch.int32, pin_memory=pin)
        self._rewards = torch.zeros(horizon, agents, pin_memory=pin)
        self._terminals = torch.zeros(horizon, agents, dtype=torch.bool)
        self._truncations = torch.zeros(horizon, agents, dtype=torch.bool)
        self._final_observations = torch.zeros(agents, features)
        # On the network's device. On a CPU the observations are the host's own buffer.
        on_host = device.type == "cpu"
        self._device_observations = self._observations if on_host else self._observations.to(device)
        self._outputs = torch.zeros(horizon + 1, actions + 1, agents, device=device)
        self._noise = torch.zeros(horizon, actions, agents, device=device)
        self._scores = torch.zeros(agents, actions, device=device)
        self._choices = torch.zeros(agents, dtype=torch.int64, device=device)
        # Views made once: slicing in the loop would cost as much as the small kernels do.
        self._infer: Callable[[torch.Tensor, torch.Tensor], object]
        if on_host and precision == "fp32":
            self._infer = Inference(policy, agents)
        else:
            self._infer = lambda observations, out: out.copy_(policy(observations))
        self._rows = [
            _Row(
                self._actions[t].numpy(),
                self._observations[t + 1].numpy(),
                self._rewards[t].numpy(),
                self._terminals[t].numpy(),
                self._truncations[t].numpy(),
            )
            for t in range(horizon)
        ]
        self._start = horizon

    def reset(self, seed: int) -> None:
        """Starts every environment anew; the next `collect` goes on from there."""
        self._start = len(self._rows)
        self._envs.reset(seed, self._observations[self._start].numpy())

    def state(self) -> dict[str, torch.Tensor]:
        """Returns all that the next `collect` depends on, apart from the policy."""
        return {
            "environments": torch.frombuffer(bytearray(self._envs.get_state()), dtype=torch.uint8),
            "observations": self._observations[self._start].clone(),
            "actions_generator": self._generator.get_state(),
        }

    def set_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Goes on where `state` was taken; raises ValueError where it comes from other environments."""
        self._envs.set_state(state["environments"].numpy().tobytes())
        self._start = len(self._rows)
        self._observations[self._start].copy_(state["observations"])
        self._generator.set_state(state["actions_generator"])

    def collect(self, steps: int) -> Batch:
        """Takes `steps` steps, at most the horizon, in every environment."""
        with torch.inference_mode(), autocast(self._device, self._precision):
            return self._collect(steps)

    def _collect(self, steps: int) -> Batch:
        observations, outputs, infer = self._device_observations, self._outputs, self._infer
        actions = outputs.shape[1] - 1
        final_observations = self._final_observations.numpy()
        truncated: list[npt.NDArray[np.int64]] = []
        finals: list[npt.NDArray[np.float32]] = []
        began = time.perf_counter()
        stepping = 0.0
        self._observations[0].copy_(self._observations[self._start])
        self._start = 0
        _gumbel_(self._noise, self._generator)
        for t in range(steps):
            row, output = observations[t], outputs[t]
            if row.device != self._observations.device:
                row.copy_(self._observations[t], non_blocking=True)
            infer(row, output)
            torch.add(output[:actions].t(), self._noise[t].t(), out=self._scores)
            torch.argmax(self._scores, dim=1, out=self._choices)
            self._actions[t].copy_(self._choices)
            before = time.perf_counter()
            into = self._rows[t]
            self._envs.step(
                into.actions, into.observations, into.rewards, into.terminals, into.truncations, final_observations
            )
            if into.truncations.any():
                cut = np.flatnonzero(into.truncations & ~into.terminals)
                truncated.append(cut + t * self._envs.num_agents)
                finals.append(final_observations[cut])
            stepping += time.perf_counter() - before
        self._start = steps
        observations[steps].copy_(self._observations[steps])
        infer(observations[steps], outputs[steps])
        ended = time.perf_counter()
        batch = self._batch(steps, truncated, finals)
        self.seconds.environment += stepping
        self.seconds.forward += ended - began - stepping
        self.seconds.advantage += time.perf_counter() - ended
        return batch

    def _batch(
        self, steps: int, truncated: list[npt.NDArray[np.int64]], finals: list[npt.NDArray[np.float32]]
    ) -> Batch:
        device = self._device
        actions = self._outputs.shape[1] - 1
        taken = self._actions[:steps].to(device, torch.int64)
        logprobs = torch.log_softmax(self._outputs[:steps, :actions], dim=1)
        taken_logprobs = logprobs.gather(1, taken.unsqueeze(1)).squeeze(1)
        values = self._outputs[: steps + 1, actions].contiguous()
        rewards = self._rewards[:steps].to(device)
        ends = torch.logical_or(self._terminals[:steps], self._truncations[:steps]).to(device)
        if truncated:
            final_values = self._policy(torch.from_numpy(np.concatenate(finals)).to(device))[actions].float()
            bootstrap_truncations_(
                rewards, torch.from_numpy(np.concatenate(truncated)).to(device), final_values, self._gamma
            )
        advantages = gae(rewards, values, ends, gamma=self._gamma, gae_lambda=self._gae_lambda)
        values = values[:steps]
        return Batch(
            observations=self._device_observations[:steps].flatten(0, 1),
            actions=taken.flatten(),
            logprobs=taken_logprobs.flatten(),
            values=values.flatten(),
            advantages=advantages.flatten(),
            returns=(advantages + values).flatten(),
        )

    def drain_episodes(self) -> Episodes:
        """Returns the episodes that finished since the last call, in the order in which they did."""
        return self._envs.drain_episodes()


def _gumbel_(noise: torch.Tensor, generator: torch.Generator) -> None:
    """Fills with draws from the standard Gumbel distribution, -log(-log(u)) of a uniform u."""
    noise.uniform_(generator=generator).log_().neg_().log_().neg_()
