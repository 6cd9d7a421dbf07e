"""How good a policy is, on episodes that training has not seen.

Every agent contributes the same number of episodes, its first ones. If the episodes that end first counted, short ones
would count too often, and in most games a short episode is an early loss or a quick win.
"""

import dataclasses
import itertools
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from protein.spelling import counted

from .environments import VectorEnv, closing, make, playing, spec
from .environments.sides import Anchored, of_one_side, rating
from .errors import ConfigError, TrainerError
from .machine import checkpoint as checkpoints
from .machine.precision import Arithmetic, env_threads, half_convolutions, resolve_device, resolve_threads
from .model import saved as policies
from .model.policy import Policy
from .normalise import Normalizer, saved_normalizer

Progress = Callable[[int, int], None]  # is told how much is done, and how much there is
ENDLESS_STEPS = 100_000  # decisions, beyond the environment's own limit, after which an episode counts as endless
SMALL = 1e-3  # a difference of results, over which a rating is linear
DRAIN_STEPS = 32  # steps between checks for finished episodes: few enough to end soon, many enough to cost nothing


def ignore(done: int, of: int) -> None:
    """Progress that nobody is told."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvalResult:
    """Scores of the episodes played: their mean, their standard deviation, and all of them, ordered by agent.

    Of a run with `[selfplay]` the scores are results against the scripts. `score` is then their rating, and the two
    others are in its points, where it is about linear; see `protein.trainer.environments.sides`.

    `score_error` is the standard error of the mean. Agents of one environment share a game, so their scores are not
    independent: it is that of the games' means, and NaN for fewer than two games.
    """

    score: float
    score_std: float
    score_error: float
    episodes: int
    seconds: float
    scores: tuple[float, ...]


def evaluate(
    checkpoint_path: Path,
    *,
    env: str,
    episodes: int = 256,
    num_envs: int = 256,
    seed: int = 0,
    greedy: bool | None = None,
    threads: int = 0,
    device: str = "cpu",
    progress: Progress = ignore,
) -> EvalResult:
    """Plays `episodes` episodes with a checkpoint's policy, at the frame skip that it was trained with.

    Args:
        checkpoint_path: the file that a run has written.
        env: the environment's name; it must be the checkpoint's.
        episodes: in all; a multiple of `num_envs` (which is lowered to it where it is larger).
        num_envs: environments that play them.
        seed: of environments and actions.
        greedy: takes the most probable action instead of sampling; None: as the run's own `eval.greedy` says.
        threads: 0: one per core.
        device: as `train.device`.
        progress: is told how many episodes have ended, and how many there are.

    Raises:
        CheckpointError: the file cannot be read, or belongs to another environment or network.
        ConfigError: no such environment, no such device, or episodes that do not divide evenly.
    """
    saved = policies.read(checkpoint_path, prefix=policies.ACTING)
    num_envs = min(num_envs, episodes)
    if num_envs < 1 or episodes % num_envs:
        raise ConfigError(
            f"{counted(episodes, 'episode')} cannot be shared evenly by {counted(num_envs, 'environment')}: give a"
            " multiple"
        )
    count, where = resolve_threads(threads), resolve_device(device)
    config = saved.config
    described = spec(env, saved.args_of(env))
    rated = config.selfplay.on and described.sides > 1  # a checkpoint of another environment is refused below
    agents = (of_one_side(described) if rated else described).agents_per_env
    num_envs = envs_for(episodes, num_envs, agents)
    envs = make(
        env,
        num_envs,
        seed=seed,
        frame_skip=config.env.frame_skip,
        threads=env_threads(num_envs, count),
        args=saved.args_of(env),
    )
    if rated:
        envs = Anchored(envs)
    with closing(envs), Arithmetic(where, count, config.train.precision) as arithmetic:
        policies.require_env(saved, checkpoint_path, envs.spec)
        half = half_convolutions(where, config.train.precision)
        policy = Policy(envs.spec, config.policy, generator=torch.Generator(), half_convolutions=half)
        checkpoints.load_weights_(policy, saved.group("policy"), checkpoint_path)
        arithmetic.prepare(envs.num_agents, policy.largest_layer)
        normalizer = saved_normalizer(saved.group("scaling"), where)
        return play(
            policy.to(where),
            envs,
            episodes=episodes,
            normalizer=normalizer,
            seed=seed,
            greedy=config.eval.greedy if greedy is None else greedy,
            progress=progress,
        )


def envs_for(episodes: int, num_envs: int, agents_per_env: int) -> int:
    """Returns the most environments, at most `num_envs` and at least one, whose agents share the episodes evenly."""
    fitting = (
        n for n in range(min(num_envs, episodes // agents_per_env), 0, -1) if episodes % (n * agents_per_env) == 0
    )
    return next(fitting, 1)


@torch.inference_mode()
def play(
    policy: Policy,
    envs: VectorEnv,
    *,
    episodes: int,
    seed: int,
    greedy: bool,
    normalizer: Normalizer | None = None,
    stop: Callable[[], bool] = lambda: False,
    progress: Progress = ignore,
) -> EvalResult:
    """Plays each agent's first `episodes / num_agents` episodes, at least one; fewer only where `stop` interrupted it.

    An agent that takes no part, however often the others play, has none: PettingZoo's `possible_agents` need not all
    appear. It is waited for as long again as the others have played.

    `normalizer`: of the observations, where the policy was trained with one; it does not change. `progress` is told the
    episodes that have ended and how many there are.

    Raises:
        TrainerError: an episode has not ended after `ENDLESS_STEPS` steps more than the environment says it may take.
    """
    began = time.perf_counter()
    actor = Actor(policy, envs, normalizer=normalizer, seed=seed, greedy=greedy)
    quota = -(-episodes // envs.num_agents)
    played: list[list[float]] = [[] for _ in range(envs.num_agents)]
    unfinished = envs.num_agents
    step = 0
    progress(0, quota * envs.num_agents)
    longest = ENDLESS_STEPS + max(envs.spec.max_episode_steps, 0)
    began_at = np.zeros(envs.num_agents)  # the step of each agent's last end, or a little later; inf: it is done
    acted, others_done = np.full(envs.num_agents, playing(envs) is None), 0
    while unfinished and not stop():
        if step - began_at.min() >= longest:
            endless = np.count_nonzero(step - began_at >= longest)
            raise TrainerError(
                f"in the evaluation, the episodes of {endless} of {envs.num_agents} agents have not ended after "
                f"{longest:,} steps: give '{envs.spec.name}' a time limit"
            )
        if (acting := playing(envs)) is not None:
            acted |= acting
        actor.step()
        step += 1
        if step % DRAIN_STEPS == 0:
            finished = envs.drain_episodes()
            began_at[finished.agent] = np.maximum(began_at[finished.agent], step)  # who is done stays so
            for agent, score in zip(finished.agent.tolist(), finished.score.tolist(), strict=True):
                if len(played[agent]) < quota:
                    played[agent].append(score)
                    if len(played[agent]) == quota:
                        unfinished -= 1
                        began_at[agent] = math.inf
            progress(sum(map(len, played)), quota * envs.num_agents)
            absent = ~acted & np.isfinite(began_at)
            if acted.any() and absent.any():
                began_at[absent] = step
                others_done = 0 if unfinished > np.count_nonzero(absent) else others_done or step
                if others_done and step >= 2 * others_done:
                    break
    scores_played = tuple(score for of_agent in played for score in of_agent)
    games = _games(played, envs.num_agents // envs.num_envs)
    score = statistics.fmean(scores_played) if scores_played else float("nan")
    error = statistics.stdev(games) / math.sqrt(len(games)) if len(games) > 1 else math.nan
    deviation = statistics.pstdev(scores_played) if scores_played else float("nan")
    if isinstance(envs, Anchored) and scores_played:
        slope = (rating(envs.whole, score + SMALL) - rating(envs.whole, score - SMALL)) / (2 * SMALL)
        score, error, deviation = rating(envs.whole, score), slope * error, slope * deviation
    return EvalResult(
        score=score,
        score_std=deviation,
        score_error=error,
        episodes=len(scores_played),
        seconds=time.perf_counter() - began,
        scores=scores_played,
    )


def _games(played: Sequence[Sequence[float]], agents: int) -> list[float]:
    """Returns the mean scores of the first, second, ... episodes of each environment's `agents`."""
    environments = (played[first : first + agents] for first in range(0, len(played), agents))
    rounds = (itertools.zip_longest(*of_environment) for of_environment in environments)
    return [statistics.fmean(score for score in one if score is not None) for of in rounds for one in of]


class Actor:
    """Acts in an environment, one step at a time. `observations`, `rewards` and so on are those of the last step."""

    def __init__(
        self, policy: Policy, envs: VectorEnv, *, seed: int, greedy: bool, normalizer: Normalizer | None = None
    ) -> None:
        """Starts every environment anew. `normalizer`: of the observations that the policy reads."""
        self._policy, self._envs = policy, envs
        self._device = next(policy.parameters()).device
        self._normalizer = None if normalizer is None else normalizer.to(self._device)
        self._generator = torch.Generator(self._device).manual_seed(seed)
        agents, distribution = envs.num_agents, policy.distribution
        self.observations = np.zeros((agents, envs.spec.observation_size), envs.spec.observation_dtype)
        self.rewards = np.zeros(agents, np.float32)
        self.terminals = np.zeros(agents, np.bool_)
        self.truncations = np.zeros(agents, np.bool_)
        self.actions = torch.zeros(agents, distribution.components, dtype=distribution.dtype)
        self._chosen = self.actions.to(self._device)
        self._logprobs = torch.zeros(agents, device=self._device)
        self._noise = None if greedy else torch.zeros(distribution.noise_rows, agents, device=self._device)
        self._state: torch.Tensor | None = None
        envs.reset(seed, self.observations)

    def step(self) -> None:
        """Takes one step in every environment."""
        observations = torch.from_numpy(self.observations).to(self._device)
        if self._normalizer is not None:
            observations = self._normalizer.apply(observations)
        resets = torch.from_numpy(self.terminals | self.truncations).to(self._device).unsqueeze(0)
        output, self._state = self._policy(observations.unsqueeze(0), self._state, resets)
        distribution, output = self._policy.distribution, output[: self._policy.action_rows].float()
        if self._noise is None:
            self.actions.copy_(distribution.mode(output))
        else:
            distribution.fill_noise_(self._noise, self._generator)
            distribution.sample(output, self._noise, self._chosen, self._logprobs)
            self.actions.copy_(self._chosen)
        if self.actions.dtype.is_floating_point:
            self.actions.nan_to_num_()  # an environment would refuse NaN, which weights that have diverged may give
        self._envs.step(self.actions.numpy(), self.observations, self.rewards, self.terminals, self.truncations)
