"""Decides at a run's start whether observations are normalised and rewards scaled, by some steps of random play.

A network with weights of order 1 learns from numbers of order 1. So with `auto`
  - observations are normalised if a feature leaves +-`LARGE`, or one that changes stays within `SMALL`;
  - rewards are scaled if the deviation of the discounted return is above `LARGE_RETURN`, or no reward reaches `SMALL`.
Images and bytes are left alone: their scale is known. Of an image of floats that is on a large one, such as 0 to 255,
the user is told. Rewards that are clipped are bounded already.

Afterwards the environments begin anew from their seed. So where both are decided against, the run is the one that it
would have been without this, bit for bit. Normalisation begins with what was observed here.

Actions are drawn as one process with undivided environments would draw them.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from ..config import TrainConfig
from ..environments import VectorEnv, playing
from ..machine.distributed import World
from ..normalise import Moments, Normalizer, RewardScaler, discounted_returns
from .conditioning import Conditioning

LARGE, SMALL = 10.0, 0.01
LARGE_RETURN = 20.0
SAMPLES = 4096  # of all agents of a process together, but ...
STEPS_MIN, STEPS_MAX = 64, 256


def decided(
    envs: Sequence[VectorEnv], train: TrainConfig, *, seed: int, device: torch.device, world: World
) -> tuple[Conditioning, list[str], bool]:
    """Returns what is done to observations and rewards, what to say about it, and whether the environments were used.

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
