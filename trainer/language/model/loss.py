"""Cross-entropy of the next token, from the last hidden layer.

The logits of all tokens would be the largest array of a training step by far. So they are made for some tokens at a
time, and their gradient is made along with them: for the loss alone they are needed no more. With a vocabulary of 256
this takes as long as the usual two passes over all logits, with 4,096 half as long, with 50,257 two thirds (on a CPU).

Notation: `N` tokens, width `C`, vocabulary of `V` tokens, which the head's matrix pads to `P >= V` rows.
"""

from typing import Any

import torch
from torch.nn import functional

IGNORED = -1  # a target that counts for nothing

# Logits that are held at once. On the CPU they shall stay in its cache, on other devices calls shall be few.
LOGITS_ON_HOST, LOGITS_ON_DEVICE = 2**20, 2**27
FEWEST_TOKENS = 256  # fewer make thin products


def logits_of(hidden: torch.Tensor, head: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Returns the logits of the vocabulary alone.

    Args:
        hidden: `... x C`, after the last norm.
        head: `P x C`.
        vocab_size: V.

    Returns:
        `... x V` in float32.
    """
    return functional.linear(hidden, head)[..., :vocab_size].float()


def mean_cross_entropy(
    hidden: torch.Tensor, head: torch.Tensor, targets: torch.Tensor, vocab_size: int
) -> torch.Tensor:
    """Returns the mean loss in nats over the targets that count, a scalar.

    Args:
        hidden: `N x C`, after the last norm.
        head: `P x C`.
        targets: `N`; those that are `IGNORED` do not count.
        vocab_size: V.
    """
    wanted = torch.is_grad_enabled()
    mean: torch.Tensor = _MeanCrossEntropy.apply(hidden, head, targets, vocab_size, wanted)  # type: ignore[no-untyped-call]
    return mean


def cross_entropies(hidden: torch.Tensor, head: torch.Tensor, targets: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Returns the loss of each target in nats, `N`, 0 where it is ignored; arguments as `mean_cross_entropy`."""
    size = _tokens_at_once(hidden, vocab_size)
    return torch.cat(
        [
            functional.cross_entropy(logits_of(some, head, vocab_size), target, ignore_index=IGNORED, reduction="none")
            for some, target in zip(hidden.split(size), targets.split(size), strict=True)
        ]
    )


def _tokens_at_once(hidden: torch.Tensor, vocab_size: int) -> int:
    held = LOGITS_ON_HOST if hidden.device.type == "cpu" else LOGITS_ON_DEVICE
    return max(FEWEST_TOKENS, held // vocab_size)


class _MeanCrossEntropy(torch.autograd.Function):
    """The mean loss, whose forward pass also leaves the gradients, as sums over the tokens that count."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        head: torch.Tensor,
        targets: torch.Tensor,
        vocab_size: int,
        gradients_wanted: bool,
    ) -> torch.Tensor:
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        weights = head[:vocab_size].to(dtype)
        size = _tokens_at_once(hidden, vocab_size)
        by_hidden = torch.empty_like(hidden) if gradients_wanted else None
        by_head = torch.zeros_like(head) if gradients_wanted else None
        total = torch.zeros((), device=hidden.device)
        for first in range(0, len(hidden), size):
            rows = slice(first, first + size)
            some = hidden[rows].to(dtype)
            ignored = targets[rows, None] == IGNORED
            target = targets[rows, None].clamp(min=0)
            logits = (some @ weights.t()).float()
            largest = logits.amax(1, keepdim=True)
            chosen = logits.gather(1, target)
            shares = logits.sub_(largest).exp_()
            sums = shares.sum(1, keepdim=True)
            total += (sums.log() + largest - chosen).masked_fill_(ignored, 0.0).sum()
            if by_hidden is None or by_head is None:
                continue
            # d loss / d logits: the softmax, less 1 at the target. It is scaled in float32, later: a mean's tiny factor
            # would underflow in float16.
            shares.div_(sums).scatter_add_(1, target, torch.full_like(chosen, -1.0)).masked_fill_(ignored, 0.0)
            by_logits = shares.to(dtype)
            by_hidden[rows] = by_logits @ weights
            by_head[:vocab_size] += by_logits.t() @ some
        count = (targets != IGNORED).sum()
        if by_hidden is not None and by_head is not None:
            ctx.save_for_backward(by_hidden, by_head, count)
        return total / count

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        by_hidden, by_head, count = ctx.saved_tensors
        scale = gradients[0] / count
        return by_hidden * scale, by_head * scale, None, None, None, None
