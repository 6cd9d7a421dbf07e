"""PPO's loss, its gradient with respect to the network's output, and the advantages that it reads.

Notation, for `B` samples, everything feature-major (`rows x B`):
    pi, pi_old  probability of the action taken, now and then        r = pi / pi_old
    g           advantage (normalised)                               H   entropy of the policy
    v           value now                                            R   the value's target
    w           weight of the sample: 0 leaves it out; else 1        c   range of the clip

The loss is the sum over the samples, divided by their number, of
    w ( max(-r g, -clip(r, 1 - c, 1 + c) g)  +  c_v V  -  c_H H )
with the value loss
    V = 1/2 (v - R)^2
or, of a distributional value head, the cross-entropy of its probabilities q to the target spread over its two
neighbouring bins ("two-hot", t):  V = -sum_k t_k log q_k.

`ppo_loss` is this loss, written with torch. Its derivatives are short, because where the clipped term is the larger
one, it is constant and its derivative is 0. They are:
    d/d(log pi)   -w r g, or 0 where the clipped term is the larger one
    d/dH          -w c_H
    d/dv          w c_v (v - R)
    d/d(bin k)    w c_v (q_k - t_k)
The action's distribution turns the first two into derivatives with respect to its rows
(`protein.trainer.model.heads`). `loss_gradient` passes these to the network's backward pass. That takes half as
many operations as differentiating `ppo_loss`, and on small networks the number of operations decides what an update
costs. For one categorical action and a scalar value in float32 on the CPU it is one compiled kernel
(trainer/kernels/native/categorical.hpp). The tests hold both to automatic differentiation of `ppo_loss`.

Advantages and the value function's targets. t, s: steps of a segment; mu the policy that took the actions, pi the
policy now; V the values then; go[t] = 0 where an episode ended at t, else 1; and

    ratio[t] = pi(a_t) / mu(a_t)    rho[t] = min(RHO_CLIP, ratio[t])    c[t] = min(C_CLIP, ratio[t])
    d[t]     = r[t] + gamma go[t] V[t+1] - V[t]
    A[t]     = rho[t] d[t] + gamma lambda c[t] go[t] A[t+1]             (`protein.trainer.kernels.ppo`)

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

Source: Schulman et al. 2017, "Proximal policy optimization algorithms", eq. 7 and 9; categorical values: Bellemare et
al. 2017, "A distributional perspective on reinforcement learning"; GAE: Schulman et al. 2016, "High-dimensional
continuous control using generalized advantage estimation", eq. 16; V-trace: Espeholt et al. 2018, "IMPALA", section 4.1
and 4.2 (the policy's gradient), remark 2 (lambda).
"""

import dataclasses

import torch

from .. import kernels
from ..config import TrainConfig
from ..kernels import advantages as compute_advantages
from ..machine.distributed import ALONE, World
from ..model.heads import CategoricalValue, Discrete
from ..model.policy import Policy
from .rollout import Batch

RHO_CLIP = C_CLIP = 1.0  # IMPALA's


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """The loss's weights and the range of its clip."""

    clip: float
    value: float
    entropy: float | torch.Tensor  # one number of float64, where a recording reads it


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Minibatch:
    """`B` samples. The loss is their sum over `size`: `B`, or more where they are a part of a larger minibatch.

    A part is one of several that are accumulated, or one process's. Where samples have `weights`, these say what each
    counts; those of a whole minibatch have the sum `size`. None: 1.
    """

    actions: torch.Tensor  # `K x B`
    logprobs: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor
    weights: torch.Tensor | None
    size: int


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


def ppo_loss(policy: Policy, output: torch.Tensor, batch: Minibatch, c: Coefficients) -> dict[str, torch.Tensor]:
    """Returns the loss and what is worth watching in it, as scalars on the device, differentiable.

    `loss`, `policy_loss`, `value_loss`, `entropy`, `approx_kl` (Schulman's low-variance estimate) and `clip_fraction`.
    All are sums over samples divided by the minibatch's `size`, so those of its parts add up to those of the whole.
    """
    rows = policy.action_rows
    terms = policy.distribution.terms(output[:rows], batch.actions)
    weights = torch.ones_like(batch.logprobs) if batch.weights is None else batch.weights

    def mean(each: torch.Tensor) -> torch.Tensor:
        return (weights * each).sum() / batch.size

    log_ratio = terms.logp - batch.logprobs
    ratio = log_ratio.exp()
    surrogate, clipped_surrogate = _surrogates(ratio, batch.advantages, c.clip)
    policy_loss = mean(-torch.min(surrogate, clipped_surrogate))

    if isinstance(policy.value_head, CategoricalValue):
        two_hot = policy.value_head.two_hot(batch.returns)
        value_loss = mean(-(two_hot * torch.log_softmax(output[rows:], dim=0)).sum(dim=0))
    else:
        value_loss = mean(0.5 * (output[rows] - batch.returns).square())

    entropy = mean(terms.entropy)
    entropy_weight = c.entropy.to(entropy.dtype) if isinstance(c.entropy, torch.Tensor) else c.entropy
    return {
        "loss": policy_loss + c.value * value_loss - entropy_weight * entropy,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": mean((ratio - 1) - log_ratio),
        "clip_fraction": mean((ratio - 1).abs() > c.clip),
    }


def loss_gradient(policy: Policy, output: torch.Tensor, batch: Minibatch, c: Coefficients) -> torch.Tensor:
    """Returns d loss / d output, `rows x B`."""
    one_choice = isinstance(policy.distribution, Discrete) and policy.distribution.components == 1
    if one_choice and policy.value_head.rows == 1 and kernels.is_native(output):
        return kernels.ppo_gradient(
            output,
            batch.actions[0],
            batch.logprobs,
            batch.advantages,
            batch.returns,
            clip=c.clip,
            value_coef=c.value,
            entropy_coef=float(c.entropy),
            weights=batch.weights,
            count=batch.size,
        )
    return loss_gradient_by_torch(policy, output, batch, c)


def loss_gradient_by_torch(policy: Policy, output: torch.Tensor, batch: Minibatch, c: Coefficients) -> torch.Tensor:
    """Computes what `loss_gradient` does, for any policy, on any device and in any precision."""
    distribution, head = policy.distribution, policy.value_head
    rows, share = policy.action_rows, 1 / batch.size
    weight: torch.Tensor | float = share if batch.weights is None else batch.weights * share
    gradient = torch.empty_like(output)

    terms = distribution.terms(output[:rows], batch.actions)
    ratio = (terms.logp - batch.logprobs).exp_()
    surrogate, clipped_surrogate = _surrogates(ratio, batch.advantages, c.clip)
    # Where the clipped surrogate is the smaller one, it is the term in the loss, and it is constant. Where both are
    # equal, r is in range. The 0 is selected, because an infinite ratio times 0 would be NaN.
    by_logp = torch.where(clipped_surrogate < surrogate, 0.0, surrogate).neg_().mul_(weight)
    distribution.gradient_(terms, by_logp, weight * -c.entropy, gradient[:rows])

    if isinstance(head, CategoricalValue):
        by_value = torch.softmax(output[rows:], dim=0).sub_(head.two_hot(batch.returns))
    else:
        by_value = output[rows] - batch.returns
    torch.mul(by_value, weight * c.value, out=gradient[rows:] if by_value.ndim == 2 else gradient[rows])
    return gradient


def _surrogates(ratio: torch.Tensor, advantages: torch.Tensor, clip: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns r g, and the same of the clipped ratio. The smaller one counts."""
    return ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages


def _without_own_ratio(batch: Batch, corrected: torch.Tensor, config: TrainConfig) -> torch.Tensor:
    """Returns g, `T x N`, given A."""
    follows = batch.values[1:].clone()
    follows[:-1].add_(corrected[1:], alpha=config.gae_lambda)
    follows.masked_fill_(batch.ends, 0.0)
    return follows.mul_(config.gamma).add_(batch.rewards).sub_(batch.values[:-1])
