"""How good a policy is, on episodes that training has not seen.

Every environment contributes equally many episodes, its first ones. Counting whichever episodes end first would favour
short ones, and in most games a short episode is a lost one or a quickly won one.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from envs_c import UnknownEnvError, VecEnv
from trainer import checkpoint as checkpoints
from trainer.errors import ConfigError
from trainer.policy import MLPPolicy
from trainer.precision import Arithmetic, env_threads, resolve_device, resolve_threads

DRAIN_STEPS = 32  # steps between looks at finished episodes: often enough to end soon, rarely enough to cost nothing


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvalResult:
    """Scores of the episodes played: their mean, their standard deviation, and all of them, ordered by environment."""

    score: float
    score_std: float
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
    greedy: bool = False,
    threads: int = 0,
    device: str = "cpu",
) -> EvalResult:
    """Plays `episodes` episodes with a checkpoint's policy, at the frame skip that it was trained with.

    Args:
        checkpoint_path: the file that a run has written.
        env: the environment's name; it must be the checkpoint's.
        episodes: in all; a multiple of `num_envs` (which is lowered to it where it is larger).
        num_envs: environments that play them.
        seed: of environments and actions.
        greedy: takes the most probable action instead of sampling.
        threads: 0: one per core.
        device: as `train.device`.

    Raises:
        CheckpointError: the file cannot be read, or belongs to another environment or network.
        ConfigError: no such environment, no such device, or episodes that do not divide evenly.
    """
    saved = checkpoints.read(checkpoint_path, prefix="policy/")
    num_envs = min(num_envs, episodes)
    if num_envs < 1 or episodes % num_envs:
        raise ConfigError(f"{episodes} episodes cannot be shared evenly by {num_envs} environments: give a multiple")
    count, where = resolve_threads(threads), resolve_device(device)
    workers = env_threads(num_envs, count)
    try:
        envs = VecEnv(env, num_envs, seed=seed, frame_skip=saved.config.env.frame_skip, threads=workers)
    except UnknownEnvError as error:
        raise ConfigError(str(error)) from error
    size, actions = envs.spec.observation_size, envs.spec.num_actions
    checkpoints.require_env(saved, checkpoint_path, env=env, observation_size=size, num_actions=actions)
    policy = MLPPolicy(
        size,
        actions,
        hidden_size=saved.config.policy.hidden_size,
        num_layers=saved.config.policy.num_layers,
        generator=torch.Generator(),
    )
    checkpoints.load_weights_(policy, saved.group("policy"), checkpoint_path)
    with Arithmetic(where, count) as arithmetic:
        arithmetic.prepare(envs.num_agents, size, saved.config.policy.hidden_size)
        return play(policy.to(where), envs, episodes=episodes, seed=seed, greedy=greedy)


@torch.inference_mode()
def play(
    policy: MLPPolicy,
    envs: VecEnv,
    *,
    episodes: int,
    seed: int,
    greedy: bool,
    stop: Callable[[], bool] = lambda: False,
) -> EvalResult:
    """Plays the first `episodes / num_envs` episodes of each environment; fewer only where `stop` cut it short."""
    began = time.perf_counter()
    device = next(policy.parameters()).device
    generator = torch.Generator(device).manual_seed(seed)
    agents, size, num_actions = envs.num_agents, envs.spec.observation_size, envs.spec.num_actions
    observations = torch.zeros(agents, size)
    actions = torch.zeros(agents, dtype=torch.int32)
    rewards, terminals, truncations = (
        np.zeros(agents, np.float32),
        np.zeros(agents, np.bool_),
        np.zeros(agents, np.bool_),
    )
    noise = torch.zeros(num_actions, agents, device=device)
    envs.reset(seed, observations.numpy())
    quota = episodes // envs.num_envs
    played: list[list[float]] = [[] for _ in range(envs.num_envs)]
    unfinished = envs.num_envs
    step = 0
    while unfinished and not stop():
        scores = policy(observations.to(device))[:num_actions]
        if not greedy:
            scores = scores - noise.exponential_(generator=generator).log_()  # - log of an exponential is Gumbel noise
        actions.copy_(scores.argmax(dim=0))
        envs.step(actions.numpy(), observations.numpy(), rewards, terminals, truncations)
        step += 1
        if step % DRAIN_STEPS == 0:
            finished = envs.drain_episodes()
            for env, score in zip(finished.env.tolist(), finished.score.tolist(), strict=True):
                if len(played[env]) < quota:
                    played[env].append(score)
                    unfinished -= len(played[env]) == quota
    scores_played = tuple(score for of_env in played for score in of_env)
    return EvalResult(
        score=statistics.fmean(scores_played) if scores_played else float("nan"),
        score_std=statistics.pstdev(scores_played) if scores_played else float("nan"),
        episodes=len(scores_played),
        seconds=time.perf_counter() - began,
        scores=scores_played,
    )
