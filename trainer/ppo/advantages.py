"""What an update learns from a batch: the advantages of the policy's gradient, and the value function's targets.

Notation: t, s steps of a segment; mu the policy that took the actions, pi the policy now; V the values then;
go[t] = 0 where an episode ended at t, else 1; and

    ratio[t] = pi(a_t) / mu(a_t)    rho[t] = min(RHO_CLIP, ratio[t])    c[t] = min(C_CLIP, ratio[t])
    d[t]     = r[t] + gamma go[t] V[t+1] - V[t]
    A[t]     = rho[t] d[t] + gamma lambda c[t] go[t] A[t+1]             (`protein.trainer.kernels.advantage`)

GAE has ratios of 1. Then A is the policy's advantage, and V + A is the target of the value.

V-trace. The target is V + A, too: its own action is one of those that were drawn from mu, so rho[t] and c[t] turn the
expectation over a_t ~ mu into one over a_t ~ pi. The policy's gradient must not use A. PPO's loss already weighs a step
with ratio[t]:

    E_mu[ ratio[t] grad log pi(a_t) g[t] ] = E_pi[ grad log pi(a_t) g[t] ]

which is the policy gradient where g[t], given a_t, estimates the worth of a_t under pi. A holds rho[t] or c[t] in each
of its terms, so with g = A every step would count with about the square of its ratio. The estimate without them is

    g[t] = d[t] + gamma lambda go[t] A[t+1]

Only the actions after a_t are corrected in it, by A[t+1]. With ratios of 1 it is GAE. With lambda = 1 and clips that
never bind, E[g[t] | s_t, a_t] = Q_pi(s_t, a_t) - V(s_t) exactly. This is IMPALA's r[t] + gamma v[t+1] - V[t], with
lambda in the way of GAE; IMPALA's factor rho[t] in front of it is PPO's ratio.

A sample whose agent had ended (`Batch.playing`) counts nowhere. Nothing of it reaches a sample that counts, because
go[t] is 0 where its agent ends, and again before it begins anew.

Source: Schulman et al. 2016, "High-dimensional continuous control using generalized advantage estimation", eq. 16;
Espeholt et al. 2018, "IMPALA", section 4.1 and 4.2 (the policy's gradient), remark 2 (lambda).
"""

import torch

from ..config import TrainConfig
from ..kernels import advantages as compute_advantages
from ..machine.distributed import ALONE, World
from .batch import Batch

RHO_CLIP = C_CLIP = 1.0  # IMPALA's


def advantages_and_returns(
    batch: Batch, ratios: torch.Tensor | None, config: TrainConfig, world: World = ALONE
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns g, normalised where that is asked for, and the value function's targets: both `T x N`.

    Args:
        batch: this process's.
        ratios: `T x N`, for V-trace; None: GAE.
        config: the settings.
        world: the processes whose advantages are normalised together.
    """
    advantages = compute_advantages(
        batch.rewards,
        batch.values,
        batch.ends,
        ratios,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        rho_clip=RHO_CLIP,
        c_clip=C_CLIP,
    )
    returns = advantages + batch.values[:-1]
    if ratios is not None:
        advantages = _without_own_ratio(batch, advantages, config)
    if config.normalize_advantages and len(batch) * world.size > 1:
        deviation, mean = spread_and_mean(advantages, batch, world)
        advantages = advantages.sub_(mean).div_(deviation + 1e-8)
    if batch.playing is not None:
        # Weight 0 leaves a sample out of the loss, unless it is infinite.
        advantages, returns = (torch.where(batch.playing, rows, 0.0) for rows in (advantages, returns))
    return advantages, returns


def spread_and_mean(rows: torch.Tensor, batch: Batch, world: World) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns deviation and mean of what belongs to the samples of a batch, `T x N`, over all processes."""
    return world.std_mean(rows) if batch.playing is None else world.std_mean_where(rows, batch.playing)


def _without_own_ratio(batch: Batch, corrected: torch.Tensor, config: TrainConfig) -> torch.Tensor:
    """Returns g, `T x N`, given A."""
    follows = batch.values[1:].clone()
    follows[:-1].add_(corrected[1:], alpha=config.gae_lambda)
    follows.masked_fill_(batch.ends, 0.0)
    return follows.mul_(config.gamma).add_(batch.rewards).sub_(batch.values[:-1])
