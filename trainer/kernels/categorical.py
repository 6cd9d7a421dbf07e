"""One categorical component: drawing actions from its logits, and the gradient of PPO's loss by logits and value.

Notation: `A` choices, `B` samples; everything feature-major, `A x B` logits and `(A + 1) x B` outputs whose last row is
the value. The loss and its derivatives are in trainer/ppo.py; here they are computed in one pass over blocks of
samples. Relative error of the compiled exp below 2e-7, of log 3e-7: trainer/kernels/native/vector_math.hpp.
"""

import torch

from protein.trainer.kernels import _native
from protein.trainer.kernels.tensors import address, is_native, rows


def sample(logits: torch.Tensor, uniform: torch.Tensor, actions: torch.Tensor, logprobs: torch.Tensor) -> None:
    """Draws an action for each sample, by the inverse of the distribution function, and its log-probability.

    Args:
        logits: `A x B`, each row contiguous, such as the first rows of the network's output.
        uniform: `B`, draws from the uniform distribution on [0, 1); 0 counts as 2^-25.
        actions: `B`, int32, with any stride (a column of `B x components` will do); written.
        logprobs: `B`; written.

    Raises:
        ValueError: a tensor is not as said.
    """
    if not is_native(logits, uniform, logprobs):
        sample_by_torch(logits, uniform, actions, logprobs)
        return
    choices, batch = logits.shape
    if actions.shape != (batch,) or actions.dtype != torch.int32 or actions.device.type != "cpu":
        raise ValueError(f"actions must be int32 of shape ({batch},), got {actions.dtype} {tuple(actions.shape)}")
    start, stride = rows("logits", logits, choices, batch)
    _native.sample(
        start,
        stride,
        choices,
        batch,
        address("uniform", uniform, batch),
        actions.data_ptr(),
        actions.stride(0),
        address("logprobs", logprobs, batch),
    )


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
    values: torch.Tensor,
    advantages: torch.Tensor,
    returns: torch.Tensor,
    *,
    clip: float,
    clip_value: float,
    value_coef: float,
    entropy_coef: float,
    weights: torch.Tensor | None = None,
    count: int | None = None,
    gradient: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the derivative of the loss by the network's output, `(A + 1) x B`, and the new ratios, `B`.

    The loss is sum over samples of weight * (clipped surrogate + value_coef * value loss - entropy_coef * entropy),
    by `count`.

    Args:
        output: `(A + 1) x B`, each row contiguous: logits, then the value.
        actions: `B`, int32 or int64, each in [0, A).
        logprobs: `B`, of the actions under the policy that took them.
        values: `B`, of that policy; read only where `clip_value` is not 0.
        advantages: `B`, normalised where they are to be.
        returns: `B`, the value's targets.
        clip: the surrogate's range is [1 - clip, 1 + clip].
        clip_value: the range of the value's clip, or 0 for none.
        value_coef: the weight of the value loss.
        entropy_coef: the weight of the entropy.
        weights: `B`, of the samples in the loss; None: 1.
        count: the samples that the loss is the mean of; None: `B`.
        gradient: `(A + 1) x B`, where to write the derivative; None: a new tensor.

    Raises:
        ValueError: a tensor is not as said.
    """
    if gradient is None:
        gradient = torch.empty_like(output, memory_format=torch.contiguous_format)
    if not is_native(output, logprobs, values, advantages, returns, weights, gradient):
        ratios = ppo_gradient_by_torch(
            output,
            actions,
            logprobs,
            values,
            advantages,
            returns,
            clip=clip,
            clip_value=clip_value,
            value_coef=value_coef,
            entropy_coef=entropy_coef,
            weights=weights,
            count=count,
            gradient=gradient,
        )
        return gradient, ratios
    outputs, batch = output.shape
    ratios = output.new_empty(batch)
    wide = actions.dtype == torch.int64
    output_start, output_stride = rows("output", output, outputs, batch)
    gradient_start, gradient_stride = rows("gradient", gradient, outputs, batch)
    _native.ppo_gradient(
        output_start,
        output_stride,
        outputs - 1,
        batch,
        address("actions", actions, batch, dtype=torch.int64 if wide else torch.int32),
        wide,
        address("logprobs", logprobs, batch),
        address("values", values, batch),
        address("advantages", advantages, batch),
        address("returns", returns, batch),
        address("weights", weights, batch),
        gradient_start,
        gradient_stride,
        ratios.data_ptr(),
        count or batch,
        clip,
        clip_value,
        value_coef,
        entropy_coef,
    )
    return gradient, ratios


def ppo_gradient_by_torch(
    output: torch.Tensor,
    actions: torch.Tensor,
    logprobs: torch.Tensor,
    values: torch.Tensor,
    advantages: torch.Tensor,
    returns: torch.Tensor,
    *,
    clip: float,
    clip_value: float,
    value_coef: float,
    entropy_coef: float,
    weights: torch.Tensor | None,
    count: int | None,
    gradient: torch.Tensor,
) -> torch.Tensor:
    """Computes what `ppo_gradient` does into `gradient`, on any device and in any precision; returns the ratios."""
    value = output[-1]
    logp = torch.log_softmax(output[:-1], dim=0)
    p = logp.exp()
    entropy = -(p * logp).sum(dim=0)
    action = actions.long().unsqueeze(0)
    ratio = (logp.gather(0, action).squeeze(0) - logprobs).exp()
    surrogate = ratio * advantages
    # Where the clipped surrogate is the smaller one it is a constant. At equality nothing is cut: r is in range.
    cut = ratio.clamp(1 - clip, 1 + clip) * advantages < surrogate
    weight = torch.where(cut, torch.zeros_like(surrogate), -surrogate)
    by_logit, by_value = gradient[:-1], gradient[-1]
    torch.mul(logp + entropy, p, out=by_logit).mul_(entropy_coef).addcmul_(p, weight, value=-1)
    by_logit.scatter_add_(0, action, weight.unsqueeze(0))
    torch.sub(value, returns, out=by_value)
    if clip_value:
        moved = value - values
        near = moved.clamp(-clip_value, clip_value)
        # Where the clip changes the value, it counts only if the clipped error is the larger one: a constant.
        by_value.mul_((near == moved) | (by_value.square() >= (values + near - returns).square()))
    by_value.mul_(value_coef)
    gradient.div_(count or output.shape[1])
    if weights is not None:
        gradient.mul_(weights)
    return ratio
