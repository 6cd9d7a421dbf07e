"""What a rollout does to observations and rewards before the network and the update see them, and what it learns.

The buffers that the environment writes keep raw numbers. The network reads normalised observations from a buffer of its
own, and the update reads the same ones. Rewards are scaled once the whole batch is there, before the values of final
observations are added to them, because those are on the scaled rewards' scale already.

What a batch adds to the running means is merged by `settle`, between two batches and outside of the thread that
collects, because all processes have to take part.
"""

from collections.abc import Mapping

import numpy as np
import torch

from ..errors import TrainerError
from ..machine.distributed import World
from ..normalise import Moments, Normalizer, RewardScaler, saved_normalizer

RETURNS = "discounted_returns"  # of this process's running episodes, in its part of a checkpoint


class Conditioning:
    """The normalizer of observations and the scaler of rewards; None: they stay as they are."""

    def __init__(self, normalizer: Normalizer | None = None, rewards: RewardScaler | None = None) -> None:
        self.normalizer, self.rewards = normalizer, rewards
        self._observed: list[Moments] = []  # by the last batch, if it is not settled: of observations, then of returns

    @property
    def scales(self) -> bool:
        """Whether rewards are divided by the deviation of the return."""
        return self.rewards is not None and self.rewards.scales

    def observe(
        self,
        observations: torch.Tensor,
        rewards: torch.Tensor,
        resets: torch.Tensor,
        playing: torch.Tensor | None = None,
    ) -> None:
        """Computes what a batch adds to the running means.

        Args:
            observations: `T x N x D`, raw, on the host.
            rewards: `T x N`, raw, on the host.
            resets: `T x N`, bool: where an episode begins.
            playing: `T x N`, bool, on the host: the samples that count; None: all.
        """
        if self.normalizer is not None:
            self._observed.append(Moments.of(observations.flatten(0, 1) if playing is None else observations[playing]))
        if self.rewards is not None and self.scales:
            counts = None if playing is None else playing.numpy()
            self._observed.append(self.rewards.observe(rewards.numpy(), resets.cpu().numpy(), counts))

    def settle(self, world: World) -> None:
        """Merges what the last batch has observed, over all processes. All of them have to call this.

        Raises:
            TrainerError: an observation was not finite.
        """
        observed, self._observed = [moments.over(world) for moments in self._observed], []
        if self.normalizer is not None:
            wrong = np.flatnonzero(~np.isfinite(observed[0].mean))
            if len(wrong):
                raise TrainerError(
                    f"the environment gave an observation that is not finite: feature {wrong[0]}: mend the environment"
                )
            self.normalizer.absorb(observed.pop(0))
        if observed and self.rewards is not None:
            self.rewards.absorb(observed.pop())

    def state(self) -> dict[str, torch.Tensor]:
        """Returns what all processes have in common; empty where nothing changes with time."""
        state = {} if self.normalizer is None else self.normalizer.moments.state(Normalizer.NAME)
        if self.rewards is not None and self.scales:
            state |= self.rewards.moments.state(RewardScaler.NAME)
        return state

    def own_state(self) -> dict[str, torch.Tensor]:
        """Returns what is this process's own."""
        return {RETURNS: torch.from_numpy(self.rewards.returns)} if self.rewards is not None and self.scales else {}

    def set_own_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restores an `own_state`. Raises KeyError where something is missing."""
        if self.rewards is not None and self.scales:
            self.rewards.returns = state[RETURNS].numpy().copy()


def restored(
    state: Mapping[str, torch.Tensor], agents: int, *, gamma: float, clip: float, device: torch.device
) -> Conditioning:
    """Returns what a checkpoint's `state` describes.

    Args:
        state: as `Conditioning.state` has returned it.
        agents: of this process.
        gamma: the discount factor of the returns.
        clip: where rewards are cut off; 0: nowhere.
        device: that the rollout acts on.
    """
    scales = f"{RewardScaler.NAME}.count" in state
    rewards = RewardScaler(agents, gamma=gamma, scales=scales, clip=clip) if scales or clip else None
    if rewards is not None and scales:
        rewards.absorb(Moments.saved(state, RewardScaler.NAME))
    return Conditioning(saved_normalizer(state, device), rewards)
