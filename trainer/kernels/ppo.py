"""What PPO computes outside of its network: drawing actions, advantages, and the gradient of its loss.

Notation: `A` choices of one categorical component, `B` samples; everything feature-major, `A x B` logits and `(A + 1) x
B` outputs whose last row is the value. Relative error of the compiled exp below 2e-7, of log 3e-7:
trainer/kernels/native/vector_math.hpp.

Advantages over a rollout of `T` steps of `N` agents, in one pass backwards in time, are those of GAE or V-trace:

    delta[t] = rho[t] (r[t] + gamma V[t+1] go[t] - V[t])          rho[t] = min(rho_clip, ratio[t])
    A[t]     = delta[t] + gamma lambda c[t] go[t] A[t+1]          c[t]   = min(c_clip, ratio[t])
with go[t] = 0 where an episode ended at t, else 1. Without ratios rho = c = 1, which is GAE. A + V are then the value
function's targets, of TD(lambda) or of V-trace. Sources: `protein.trainer.ppo.loss`.
"""

import torch

from . import _native
from .mlp import is_native
from .scan import scan


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
    return scan(decay.flip(0), result.flip(0)).flip(0)


def sample(logits: torch.Tensor, uniform: torch.Tensor, actions: torch.Tensor, logprobs: torch.Tensor) -> None:
    """Draws an action for each sample, by the inverse of the distribution function, and its log-probability.

    Args:
        logits: `A x B`, each row contiguous, such as the first rows of the network's output.
        uniform: `B`, draws from the uniform distribution on [0, 1); 0 counts as 2^-25.
        actions: `B`, int32, with any stride (a column of `B x components` will do); written.
        logprobs: `B`; written.

    Raises:
        ValueError: a tensor does not fit this description.
    """
    if not is_native(logits, uniform, logprobs):
        sample_by_torch(logits, uniform, actions, logprobs)
        return
    _native.sample(logits, uniform, actions, logprobs)


def sample_by_torch(logits: torch.Tensor, uniform: torch.Tensor, actions: torch.Tensor, logprobs: torch.Tensor) -> None:
    """Computes what `sample` does, on any device and in any precision."""
    logp = torch.log_softmax(logits, dim=0)
    weights = (logits - logits.amax(dim=0)).exp()
    cumulated = weights.cumsum(dim=0)
    choice = (cumulated[:-1] <= uniform.clamp_min(2.0**-25) * cumulated[-1]).sum(dim=0, keepdim=True)
    actions.copy_(choice[0])
    logprobs.copy_(logp.gather(0, choice)[0])


def ppo_gradient(
    output: torch.Tensor,
    actions: torch.Tensor,
    logprobs: torch.Tensor,
    advantages: torch.Tensor,
    returns: torch.Tensor,
    *,
    clip: float,
    value_coef: float,
    entropy_coef: float,
    weights: torch.Tensor | None = None,
    count: int | None = None,
) -> torch.Tensor:
    """Returns d loss / d output of PPO's loss, `(A + 1) x B`.

    The loss and the derivation of its gradient are in `protein.trainer.ppo.loss`. Here it is computed in one pass over
    blocks of samples. There is no other implementation: for tensors that `is_native` does not take, differentiate the
    loss itself.

    Args:
        output: `(A + 1) x B`, each row contiguous: logits, then the value.
        actions: `B`, int32, each in [0, A).
        logprobs: `B`, of the actions under the policy that took them.
        advantages: `B`, normalised where they are to be.
        returns: `B`, the value's targets.
        clip: the surrogate's range is [1 - clip, 1 + clip].
        value_coef: the weight of the value loss.
        entropy_coef: the weight of the entropy.
        weights: `B`, of the samples in the loss; None: 1.
        count: the samples that the loss is the mean of; None: `B`.

    Raises:
        ValueError: a tensor does not fit this description.
    """
    gradient = torch.empty_like(output, memory_format=torch.contiguous_format)
    _native.ppo_gradient(
        output,
        actions,
        logprobs,
        advantages,
        returns,
        weights,
        gradient,
        count or len(logprobs),
        clip,
        value_coef,
        entropy_coef,
    )
    return gradient
