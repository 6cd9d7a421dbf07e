"""What a rollout hands to the update. Notation: that of `protein.trainer.ppo.rollout`."""

import dataclasses
from typing import Any

import torch

from ..machine.transfer import to_device


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

    def to(self, device: torch.device) -> "Batch":
        """Returns the batch on another device, as `to_device` copies; itself where it is there."""
        if self.rewards.device == device:
            return self
        moved: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            tensor = getattr(self, field.name)
            moved[field.name] = None if tensor is None else to_device(tensor, device)
        return Batch(**moved)

    def tensors(self) -> list[torch.Tensor]:
        """Returns all tensors of the batch."""
        found = [getattr(self, field.name) for field in dataclasses.fields(self)]
        return [tensor for tensor in found if tensor is not None]
