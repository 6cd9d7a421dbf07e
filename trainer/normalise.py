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

A rollout treats observations and rewards by a `Conditioning`, which a run's start decides on by some steps of random
play (`decided`).

Source: Chan, Golub and LeVeque 1979, "Updating formulae and a pairwise algorithm for computing sample variances";
Engstrom et al. 2020, "Implementation matters in deep policy gradients", section 2; the rewards' scale: Huang et al.
2022, "The 37 implementation details of PPO", details for continuous actions 5 to 8.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from .config import TrainConfig
from .environments import VectorEnv, playing
from .errors import TrainerError
from .machine.cuda import to_device
from .machine.distributed import World

CLIP = 10.0  # standard deviations beyond which an observation is cut off
LEAST_SPREAD = 1e-6  # of the mean's size: a smaller deviation is rounding, and is not blown up
CHUNK = 2**14  # numbers that are summed at once: in a core's cache, and by one thread, so that sums never depend on it
RETURNS = "discounted_returns"  # of this process's running episodes, in its part of a checkpoint
LARGE, SMALL = 10.0, 0.01
LARGE_RETURN = 20.0
SAMPLES = 4096  # of all agents of a process together, but ...
STEPS_MIN, STEPS_MAX = 64, 256
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
        # Where they stay, because what is recorded on a GPU reads them there.
        self._numbers = torch.zeros(2, len(moments.mean), device=device)
        self._mean, self._scale = self._numbers
        self.absorb(moments)

    def absorb(self, moments: Moments) -> None:
        """Merges newly observed samples. Nothing may be reading this at the same time."""
        self.moments = self.moments.merged(moments)
        mean, deviation = self.moments.mean, np.sqrt(self.moments.variance)
        # A feature that has never changed is only centred.
        changes = deviation > LEAST_SPREAD * np.abs(mean)
        scale = np.divide(1.0, deviation, out=np.ones_like(deviation), where=changes)
        self._numbers.copy_(to_device(torch.from_numpy(np.stack([mean, scale])).float(), self._device))

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


class Conditioning:
    """The normalizer of observations and the scaler of rewards; None: they stay as they are.

    The buffers that the environment writes keep raw numbers. The network reads normalised observations from a buffer of
    its own, and the update reads the same ones. Rewards are scaled once the whole batch is there, before the values of
    final observations are added to them, because those are on the scaled rewards' scale already.

    What a batch adds to the running means is merged by `settle`, between two batches and outside of the thread that
    collects, because all processes have to take part.
    """

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


def decided(
    envs: Sequence[VectorEnv], train: TrainConfig, *, seed: int, device: torch.device, world: World
) -> tuple[Conditioning, list[str], bool]:
    """Returns what is done to observations and rewards, what to say about it, and whether the environments were used.

    A network with weights of order 1 learns from numbers of order 1. So with `auto`
      - observations are normalised if a feature leaves +-`LARGE`, or one that changes stays within `SMALL`;
      - rewards are scaled if the deviation of the discounted return is above `LARGE_RETURN`, or none reaches `SMALL`.
    Images and bytes are left alone: their scale is known. Of an image of floats that is on a large one, such as 0 to
    255, the user is told. Rewards that are clipped are bounded already.

    Afterwards the environments begin anew from their seed. So where both are decided against, the run is the one that
    it would have been without this, bit for bit. Normalisation begins with what was observed here. Actions are drawn as
    one process with undivided environments would draw them.

    All processes have to call this. They decide alike; only the first has something to say.

    Args:
        envs: this process's; they must be begun anew where they were used.
        train: the settings.
        seed: of the random actions.
        device: that the rollout acts on.
        world: the processes that train together.

    Raises:
        TrainerError: an observation is not finite.
    """
    spec = envs[0].spec
    of_floats = getattr(spec, "observation_dtype", "float32") == "float32"
    is_plain = len(spec.observation_shape) < 3 and of_floats
    normalizes = train.normalize_observations == "on"
    asks_observations = train.normalize_observations == "auto" and is_plain
    scales, asks_rewards = train.reward_scaling == "return", train.reward_scaling == "auto" and not train.reward_clip
    notes: list[str] = []
    used = normalizes or asks_observations or asks_rewards
    seen = _play(envs, train.gamma, seed, world) if used else None
    if seen is not None and asks_observations:
        normalizes = _agreed(seen.about_observations(world), "observations are normalised", notes, world)
    if seen is not None and of_floats and not is_plain and train.normalize_observations == "auto":
        reason = seen.about_observations(world, small=False)
        if reason is not None:
            notes.append(
                f"observations are an image, and left as they are: {reason}; give bytes (uint8), or floats of about 1, "
                "or set train.normalize_observations to on"
            )
    if seen is not None and asks_rewards:
        scales = _agreed(seen.about_rewards(world), "rewards are scaled", notes, world)
    normalizer = Normalizer(seen.moments.over(world), device) if seen is not None and normalizes else None
    agents = sum(env.num_agents for env in envs)
    rewards = RewardScaler(agents, gamma=train.gamma, scales=scales, clip=train.reward_clip)
    return Conditioning(normalizer, rewards if scales or train.reward_clip else None), notes, used


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


def saved_normalizer(state: Mapping[str, torch.Tensor], device: torch.device) -> Normalizer | None:
    """Returns the normalizer in a checkpoint's group `scaling`; None: its policy reads observations as they are."""
    if f"{Normalizer.NAME}.count" not in state:
        return None
    return Normalizer(Moments.saved(state, Normalizer.NAME), device)


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


class _Seen:
    """What random play has shown: the observations' moments and ranges, the returns' moments, the largest reward."""

    def __init__(self, features: int) -> None:
        self.moments, self.returns, self.largest_reward = Moments.none(features), Moments.none(1), 0.0
        self.low, self.high = np.full(features, np.inf), np.full(features, -np.inf)

    def about_observations(self, world: World, *, small: bool = True) -> str | None:
        """Returns on the first process why they need to be normalised, or None. `small`: also ones that hardly vary."""
        gathered = world.gather((self.low, self.high))
        if not gathered:
            return None
        low = np.min([low for low, _ in gathered], axis=0)
        high = np.max([high for _, high in gathered], axis=0)
        peak, spread = np.maximum(np.abs(low), np.abs(high)), high - low
        if peak.max() > LARGE:
            return f"feature {int(peak.argmax())} reaches {peak.max():.3g} in random play (limit {LARGE:g})"
        spread[spread == 0] = np.inf
        if small and spread.min() < SMALL:
            return f"feature {int(spread.argmin())} varies by {spread.min():.3g} in random play (limit {SMALL:g})"
        return None

    def about_rewards(self, world: World) -> str | None:
        """Returns on the first process why they need to be scaled, or None."""
        deviation = float(np.sqrt(self.returns.over(world).variance[0]))
        gathered = world.gather(self.largest_reward)
        if deviation > LARGE_RETURN:
            return f"discounted returns deviate by {deviation:.3g} in random play (limit {LARGE_RETURN:g})"
        if gathered and 0 < max(gathered) < SMALL:
            return f"no reward reaches {SMALL:g} in random play, the largest is {max(gathered):.3g}"
        return None


def _agreed(reason: str | None, what: str, notes: list[str], world: World) -> bool:
    if reason is not None and world.is_first:
        notes.append(f"{what}: {reason}")
    return world.agree(reason is not None and world.is_first, 0.0)[0]


def _play(envs: Sequence[VectorEnv], gamma: float, seed: int, world: World) -> _Seen:
    """Plays at random from the environments' present state on."""
    spec, agents = envs[0].spec, sum(env.num_agents for env in envs)
    ends = np.cumsum([env.num_agents for env in envs]).tolist()
    columns = [slice(end - env.num_agents, end) for env, end in zip(envs, ends, strict=True)]
    draws = np.random.default_rng(seed)
    own = slice(agents * world.rank, agents * (world.rank + 1))
    dtype = getattr(spec, "observation_dtype", "float32")
    observations = np.zeros((agents, spec.observation_size), dtype)
    rewards = np.zeros(agents, np.float32)
    terminals, truncations = np.zeros(agents, np.bool_), np.zeros(agents, np.bool_)
    seen, returns, ended = _Seen(spec.observation_size), np.zeros(agents), np.zeros(agents, np.bool_)
    for _ in range(min(max(-(-SAMPLES // agents), STEPS_MIN), STEPS_MAX)):
        actions = _actions(envs[0], agents * world.size, draws)[own]
        played = _playing(envs)
        for env, part in zip(envs, columns, strict=True):
            env.step(actions[part], observations[part], rewards[part], terminals[part], truncations[part])
        # What idle agents observe and earn says nothing about the game. All may be idle at the same time.
        plays = _playing(envs)
        shown = observations if plays is None else observations[plays]
        seen.moments = seen.moments.merged(Moments.of(torch.from_numpy(shown)))
        if len(shown):
            np.minimum(seen.low, shown.min(axis=0), out=seen.low)
            np.maximum(seen.high, shown.max(axis=0), out=seen.high)
        returns = discounted_returns(rewards[None], ended[None], returns, gamma)[-1]
        earned = returns if played is None else returns[played]
        seen.returns = seen.returns.merged(Moments.of(torch.from_numpy(earned[:, None])))
        gained = rewards if played is None else rewards[played]
        seen.largest_reward = max(seen.largest_reward, float(np.abs(gained).max(initial=0.0)))
        ended = terminals | truncations
    return seen


def _playing(envs: Sequence[VectorEnv]) -> npt.NDArray[np.bool_] | None:
    """Returns whose agents play now, of all environments; None: all."""
    of_each = [playing(env) for env in envs]
    return np.concatenate([rows for rows in of_each if rows is not None]) if of_each[0] is not None else None


def _actions(
    env: VectorEnv, agents: int, draws: np.random.Generator
) -> npt.NDArray[np.float32] | npt.NDArray[np.int32]:
    """Returns random actions, `agents x C`."""
    if env.spec.continuous_actions:
        return draws.uniform(-1.0, 1.0, (agents, env.spec.continuous_actions)).astype(np.float32)
    return draws.integers(0, env.spec.action_sizes, (agents, len(env.spec.action_sizes)), np.int32)
