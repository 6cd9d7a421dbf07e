"""Advantages over a rollout of `T` steps of `N` agents, in one pass backwards in time: GAE and V-trace.

    delta[t] = rho[t] (r[t] + gamma V[t+1] go[t] - V[t])          rho[t] = min(rho_clip, ratio[t])
    A[t]     = delta[t] + gamma lambda c[t] go[t] A[t+1]          c[t]   = min(c_clip, ratio[t])
with go[t] = 0 where an episode ended at t, else 1. Without ratios rho = c = 1, which is GAE. A + V are then the value
function's targets, of TD(lambda) or of V-trace.

Source: Schulman et al. 2016, "High-dimensional continuous control using generalized advantage estimation", eq. 16;
Espeholt et al. 2018, "IMPALA", section 4.1 and remark 2 (lambda).
"""

import torch

from . import _native
from .tensors import is_native


def advantages(
    rewards: torch.Tensor,
    values: torch.Tensor,
    ends: torch.Tensor,
    ratios: torch.Tensor | None = None,
    *,
    gamma: float,
    gae_lambda: float,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> torch.Tensor:
    """Returns the advantages, `T x N`.

    Args:
        rewards: `T x N`, at truncated steps, gamma times the value of the final observation is already included.
        values: `(T + 1) x N`, of each step's observation and of the one after the last step.
        ends: `T x N`, bool: the episode ended at this step, by termination or truncation.
        ratios: `T x N`, pi_now(action) / pi_old(action), where pi_old took the action; None: 1.
        gamma: the discount, in [0, 1].
        gae_lambda: the weight of longer returns, in [0, 1].
        rho_clip: the largest weight of a step's own error, > 0.
        c_clip: the largest weight of what follows a step, > 0.

    Raises:
        ValueError: float32 tensors on the CPU are not contiguous or their shapes do not agree.
    """
    if not is_native(rewards, values, ratios):
        return advantages_by_torch(
            rewards, values, ends, ratios, gamma=gamma, gae_lambda=gae_lambda, rho_clip=rho_clip, c_clip=c_clip
        )
    out = torch.empty_like(rewards)
    _native.advantages(rewards, values, ends, ratios, out, gamma, gae_lambda, rho_clip, c_clip)
    return out


def advantages_by_torch(
    rewards: torch.Tensor,
    values: torch.Tensor,
    ends: torch.Tensor,
    ratios: torch.Tensor | None = None,
    *,
    gamma: float,
    gae_lambda: float,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> torch.Tensor:
    """Computes what `advantages` does, on any device and in any precision."""
    zero = torch.zeros((), dtype=rewards.dtype, device=rewards.device)
    result = torch.where(ends, zero, values[1:] * gamma).add_(rewards).sub_(values[:-1])
    decay = ends.logical_not().to(rewards.dtype).mul_(gamma * gae_lambda)
    if ratios is not None:
        result.mul_(ratios.clamp_max(rho_clip))
        decay.mul_(ratios.clamp_max(c_clip))
    at, decays = result.unbind(0), decay.unbind(0)
    # Only the recursion cannot be done for the whole rollout at once.
    for t in range(len(at) - 2, -1, -1):
        at[t].addcmul_(decays[t], at[t + 1])
    return result
