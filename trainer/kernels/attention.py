"""Causal self-attention of a language model: norm and rotation of queries and keys, their products, the mixed values.

One pass over memory takes the place of a dozen: no weights of attention and no rotated queries and keys are written.
Notation: `B` rows of `T` tokens, `H` heads of size `D`.
"""

from typing import Any

import torch
from torch.nn import functional

from . import _native
from .mlp import compiled_runs

DTYPES = (torch.float32, torch.bfloat16)  # of the numbers in memory; the arithmetic is float32


def attention(
    projected: torch.Tensor,
    rotation: torch.Tensor | None = None,
    first: torch.Tensor | None = None,
    *,
    norm_epsilon: float | None = None,
) -> torch.Tensor:
    """Returns the mixed values, `B x T x H x D`, in the type of `projected`.

    Args:
        projected: `B x T x 3 x H x D`, queries, keys and values.
        rotation: `2 x T x 1 x D`, cosines and sines, as `rotate` takes them; None: nothing is rotated.
        first: `B x T`, int32, the position where each token's document begins; None: each row is one document.
        norm_epsilon: of the RMS norm of each query and key before the rotation; None: they are not normed.

    Raises:
        ValueError: a tensor does not fit this description.
    """
    if not takes(projected):
        return attention_by_torch(projected, rotation, first, norm_epsilon=norm_epsilon)
    projected = projected.contiguous()
    rotation = None if rotation is None else rotation.contiguous()
    if torch.is_grad_enabled() and projected.requires_grad:
        mixed: torch.Tensor = _Attention.apply(projected, rotation, first, norm_epsilon)  # type: ignore[no-untyped-call]
        return mixed
    return _forward(projected, rotation, first, norm_epsilon)[0]


def takes(projected: torch.Tensor) -> bool:
    """Returns whether the compiled kernel takes this tensor."""
    return compiled_runs() and projected.is_cpu and projected.dtype in DTYPES


def attention_by_torch(
    projected: torch.Tensor,
    rotation: torch.Tensor | None = None,
    first: torch.Tensor | None = None,
    *,
    norm_epsilon: float | None = None,
) -> torch.Tensor:
    """Computes what `attention` does, on any device and in any precision."""
    queries, keys = normed_and_rotated(projected, rotation, norm_epsilon=norm_epsilon).transpose(1, 2).chunk(2, dim=1)
    mask = None
    if first is not None:
        position = torch.arange(projected.shape[1], device=projected.device)
        mask = ((position >= first[:, :, None]) & (position <= position[:, None])).unsqueeze(1)
    mixed = functional.scaled_dot_product_attention(
        queries, keys, projected[:, :, 2].transpose(1, 2), attn_mask=mask, is_causal=mask is None
    )
    return mixed.transpose(1, 2)


def normed_and_rotated(
    projected: torch.Tensor, rotation: torch.Tensor | None, *, norm_epsilon: float | None = None
) -> torch.Tensor:
    """Returns queries and keys, normed and rotated, `B x T x 2H x D`; see `attention`."""
    queries_and_keys = projected[:, :, :2].flatten(2, 3)
    if norm_epsilon is not None:
        queries_and_keys = functional.rms_norm(queries_and_keys, projected.shape[-1:], eps=norm_epsilon)
    return queries_and_keys if rotation is None else rotate(queries_and_keys, rotation)


def rotate(heads: torch.Tensor, rotation: torch.Tensor) -> torch.Tensor:
    """Rotates queries or keys: entries `i` and `i + D/2` of a head together.

    Args:
        heads: `... x T x H x D`.
        rotation: `2 x T x 1 x D`, cosines and sines; the first half of the sines is negated.

    Returns:
        `... x T x H x D`, in the type of `heads`.
    """
    first, second = heads.chunk(2, dim=-1)
    cosines, sines = rotation.to(heads.dtype)
    return torch.addcmul(heads * cosines, torch.cat([second, first], -1), sines)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        projected: torch.Tensor,
        rotation: torch.Tensor | None,
        first: torch.Tensor | None,
        norm_epsilon: float | None,
    ) -> torch.Tensor:
        mixed, log_sums = _forward(projected, rotation, first, norm_epsilon)
        ctx.save_for_backward(projected, rotation, first, mixed, log_sums)
        ctx.norm_epsilon = norm_epsilon
        return mixed

    @staticmethod
    def backward(ctx: Any, *by_outputs: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        projected, rotation, first, mixed, log_sums = ctx.saved_tensors
        epsilon, by_projected = ctx.norm_epsilon, torch.empty_like(projected)
        by_mixed = by_outputs[0].contiguous()
        norm = epsilon is not None
        _native.attention_backward(
            projected, rotation, first, mixed, log_sums, by_mixed, by_projected, norm, epsilon or 0.0
        )
        return by_projected, None, None, None


def _forward(
    projected: torch.Tensor, rotation: torch.Tensor | None, first: torch.Tensor | None, norm_epsilon: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the mixed values, and `B x H x T` logarithms of the sums of each query's weights."""
    rows, tokens, _, heads, size = projected.shape
    mixed = projected.new_empty(rows, tokens, heads, size)
    log_sums = projected.new_empty(rows, heads, tokens, dtype=torch.float32)
    norm = norm_epsilon is not None
    _native.attention_forward(projected, rotation, first, mixed, log_sums, norm, norm_epsilon or 0.0)
    return mixed, log_sums
