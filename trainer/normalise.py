"""Observations and rewards on a scale that a network can learn from, by running means and variances.

Notation: `D` features of an observation, `B` samples of it; n, m, M2: count, mean and sum of squared deviations from
the mean, each of `D` features, in float64 on the host. Samples are merged into them in parts, and those of several
processes with each other, without ever subtracting two large sums (Chan et al., eq. 2.1):
    m = (n_a m_a + n_b m_b) / n         M2 = M2_a + M2_b + (m_b - m_a)^2 n_a n_b / n         n = n_a + n_b

An observation x becomes (x - m) / std, clipped to +-`CLIP`. During a rollout m and std do not change, so all of its
steps are treated alike. What it has observed is merged between two batches, in an order that does not depend on
timing. An evaluation changes nothing.

A reward is divided by the standard deviation of the discounted return G_t = r_t + gamma G_(t-1), which begins anew with
each episode. It is not centred, because a constant in each step's reward would change what a long episode is worth.
Scores are computed by the environment, so they are those of the unchanged game.

Source: Chan, Golub and LeVeque 1979, "Updating formulae and a pairwise algorithm for computing sample variances";
Engstrom et al. 2020, "Implementation matters in deep policy gradients", section 2; the rewards' scale: Huang et al.
2022, "The 37 implementation details of PPO", details for continuous actions 5 to 8.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from .machine.distributed import World

CLIP = 10.0  # standard deviations beyond which an observation is cut off
LEAST_SPREAD = 1e-6  # of the mean's size: a smaller deviation is rounding, and is not blown up
CHUNK = 2**14  # numbers that are summed at once: in a core's cache, and by one thread, so that sums never depend on it
Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True)
class Moments:
    """Count, mean `D`, and sum of squared deviations `D`, of samples of `D` features."""

    count: float
    mean: Floats
    squares: Floats

    @staticmethod
    def none(features: int) -> "Moments":
        """Returns those of no samples."""
        return Moments(0.0, np.zeros(features), np.zeros(features))

    @staticmethod
    def of(samples: torch.Tensor) -> "Moments":
        """Returns those of samples `B x D`, of any type, on the host."""
        moments = Moments.none(samples.shape[1])
        for part in torch.split(samples, max(1, CHUNK // samples.shape[1])) if len(samples) else ():
            exact = part.to(torch.float64, copy=True)
            mean = exact.mean(dim=0)
            squares = exact.sub_(mean).square_().sum(dim=0)
            moments = moments.merged(Moments(float(len(part)), mean.numpy(), squares.numpy()))
        return moments

    @property
    def variance(self) -> Floats:
        """The population's; 0 of no samples."""
        return self.squares / max(self.count, 1.0)

    def merged(self, other: "Moments") -> "Moments":
        """Returns those of both samples together."""
        count = self.count + other.count
        if not other.count or not self.count:
            return self if self.count else other
        gap = other.mean - self.mean
        return Moments(
            count,
            self.mean + gap * (other.count / count),
            self.squares + other.squares + gap**2 * (self.count * other.count / count),
        )

    def over(self, world: World) -> "Moments":
        """Returns those of the samples of all processes, exactly the same in each. All of them must call this."""
        if world.size == 1:
            return self
        sums = torch.from_numpy(np.concatenate([[self.count], self.count * self.mean]))
        count, *rest = world.sum_(sums).tolist()
        mean = np.array(rest) / max(count, 1.0)
        # About the common mean: what Chan's formula gives for two, for any number.
        squares = torch.from_numpy(self.squares + self.count * (self.mean - mean) ** 2)
        return Moments(count, mean, world.sum_(squares).numpy())

    def state(self, name: str) -> dict[str, torch.Tensor]:
        """Returns the tensors that `Moments.saved` reads."""
        return {
            f"{name}.count": torch.tensor(self.count, dtype=torch.float64),
            f"{name}.mean": torch.from_numpy(self.mean),
            f"{name}.squares": torch.from_numpy(self.squares),
        }

    @staticmethod
    def saved(state: Mapping[str, torch.Tensor], name: str) -> "Moments":
        """Returns what `state` has saved. Raises KeyError where it is not there."""
        return Moments(float(state[f"{name}.count"]), state[f"{name}.mean"].numpy(), state[f"{name}.squares"].numpy())


class Normalizer:
    """Observations to mean 0 and variance 1 of all that were observed so far.

    `moments` are on the host, mean and scale in float32 on `device`.
    """

    NAME = "observations"  # in a checkpoint

    def __init__(self, moments: Moments, device: torch.device) -> None:
        self._device = device
        self.moments = Moments.none(len(moments.mean))
        self.absorb(moments)

    def absorb(self, moments: Moments) -> None:
        """Merges newly observed samples. Nothing may be reading this at the same time."""
        self.moments = self.moments.merged(moments)
        mean, deviation = self.moments.mean, np.sqrt(self.moments.variance)
        # A feature that has never changed is only centred.
        changes = deviation > LEAST_SPREAD * np.abs(mean)
        scale = np.divide(1.0, deviation, out=np.ones_like(deviation), where=changes)
        self._mean = torch.from_numpy(mean).float().to(self._device)
        self._scale = torch.from_numpy(scale).float().to(self._device)

    def apply(self, observations: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        """Returns observations `M x D`, of any type, normalised, in float32. `out` may be where they are."""
        return torch.sub(observations, self._mean, out=out).mul_(self._scale).clamp_(-CLIP, CLIP)

    def to(self, device: torch.device) -> "Normalizer":
        """Returns it on another device, with the same moments."""
        return Normalizer(self.moments, device)


class RewardScaler:
    """Rewards divided by the deviation of the discounted return, where `scales`, and clipped to +-`clip`, unless 0.

    Each process follows the returns of its own `agents`, the moments are common to all.
    """

    NAME = "returns"  # in a checkpoint

    def __init__(self, agents: int, *, gamma: float, scales: bool, clip: float) -> None:
        self._gamma, self._scales, self._clip = gamma, scales, clip
        self.returns = np.zeros(agents)  # discounted, of the episodes that are running
        self.moments = Moments.none(1)

    @property
    def scales(self) -> bool:
        """Whether rewards are divided by anything."""
        return self._scales

    def observe(
        self,
        rewards: npt.NDArray[np.float32],
        begins: npt.NDArray[np.bool_],
        playing: npt.NDArray[np.bool_] | None = None,
    ) -> Moments:
        """Follows the returns over some steps; returns the moments of all of them.

        Args:
            rewards: `T x N`.
            begins: `T x N`: where an episode begins with this step.
            playing: `T x N`: the returns that count; None: all.
        """
        followed = discounted_returns(rewards, begins, self.returns, self._gamma)
        self.returns = followed[-1].copy()
        return Moments.of(torch.from_numpy((followed if playing is None else followed[playing]).reshape(-1, 1)))

    def absorb(self, moments: Moments) -> None:
        """Merges newly observed returns, of all processes."""
        self.moments = self.moments.merged(moments)

    @property
    def factor(self) -> float:
        """By what rewards are multiplied now: 1 as long as all returns were the same."""
        deviation, mean = float(np.sqrt(self.moments.variance[0])), float(self.moments.mean[0])
        return 1.0 / deviation if self._scales and deviation > LEAST_SPREAD * abs(mean) else 1.0

    def apply_(self, rewards: torch.Tensor) -> torch.Tensor:
        """Scales and clips rewards in place."""
        rewards.mul_(self.factor)
        return rewards.clamp_(-self._clip, self._clip) if self._clip else rewards


def discounted_returns(
    rewards: npt.NDArray[np.float32], begins: npt.NDArray[np.bool_], before: Floats, gamma: float
) -> Floats:
    """Returns `T x N`: each agent's discounted return so far, after each step. `before`, `N`: before the first one."""
    followed = np.empty(rewards.shape)
    last = before
    for t, row in enumerate(followed):
        np.multiply(last, gamma, out=row)
        row[begins[t]] = 0.0
        row += rewards[t]
        last = row
    return followed


def saved_normalizer(state: Mapping[str, torch.Tensor], device: torch.device) -> Normalizer | None:
    """Returns the normalizer in a checkpoint's group `scaling`; None: its policy reads observations as they are."""
    if f"{Normalizer.NAME}.count" not in state:
        return None
    return Normalizer(Moments.saved(state, Normalizer.NAME), device)
