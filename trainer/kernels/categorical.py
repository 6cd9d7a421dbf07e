"""One categorical component: drawing actions from its logits, and the gradient of PPO's loss with respect to them and
the value.

Notation: `A` choices, `B` samples; everything feature-major, `A x B` logits and `(A + 1) x B` outputs whose last row is
the value. The loss and the derivation of its gradient are in trainer/ppo/loss.py; the kernel computes that
gradient in one pass over blocks of samples. Relative error of the compiled exp below 2e-7, of log 3e-7:
trainer/kernels/native/vector_math.hpp.
"""

import torch

from . import _native
from .tensors import is_native


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

    There is no other implementation here: for tensors that `is_native` does not take, differentiate the loss itself.

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
