"""RMSNorm, with its gradient in closed form.

Composed of torch's own operations it is a chain of passes over the whole array, and its gradient twice as many. Here
they are as few as torch allows. Where the network is compiled they are fused anyway, and on CUDA torch has a fused
kernel.

Notation: an array `... x C`, normalised over its last dimension.
"""

from typing import Any

import torch
from torch.nn import functional

RMS_NORM_EPSILON = 1e-6


def rms_norm(x: torch.Tensor) -> torch.Tensor:
    """Returns `x / sqrt(mean(x^2) + epsilon)` over the last dimension."""
    if x.is_cuda:
        return functional.rms_norm(x, x.shape[-1:], eps=RMS_NORM_EPSILON)
    normed: torch.Tensor = _RMSNorm.apply(x)  # type: ignore[no-untyped-call]
    return normed


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.promote_types(x.dtype, torch.float32))
        # In the type of x: all of a vector's entries are then scaled by the same rounded factor.
        scale = norm.square_().div_(x.shape[-1]).add_(RMS_NORM_EPSILON).rsqrt_().to(x.dtype)
        normed: torch.Tensor = x * scale
        ctx.save_for_backward(normed, scale)
        return normed

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        (gradient,) = gradients
        normed, scale = ctx.saved_tensors
        # d/dx of x s(x): s g less the part of it along y, s y mean(g y).
        along = (gradient * normed).mean(-1, keepdim=True)
        by_x: torch.Tensor = torch.addcmul(gradient, normed, along, value=-1).mul_(scale)
        return by_x
