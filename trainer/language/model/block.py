"""One block of the network: causal self-attention, then a feed-forward network, each added to what comes in.

Notation: `B` rows of `T` tokens, width `C`, `H` heads of size `D = C / H`.

Source: Radford et al. 2019, "Language models are unsupervised multitask learners", section 2.3 (the norm before each
part); `design.py` names those of the differences.
"""

import math

import torch
from torch import nn
from torch.nn import functional

from ...kernels.attention import attention, normed_and_rotated
from ..released import LAYER_NORM_EPSILON
from .cache import Cache
from .design import Design
from .rms_norm import RMS_NORM_EPSILON, rms_norm

GPT2_DEVIATION = 0.02


def make_linear(inputs: int, outputs: int, design: Design) -> nn.Linear:
    """Returns a layer whose weights nobody has drawn yet."""
    layer = _Undrawn(inputs, outputs, bias=design.biases)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


class _Undrawn(nn.Linear):
    """A layer without torch's own initialisation, which uses the global generator.

    `torch.nn.utils.skip_init` does the same, but it loads sympy, which takes a second and 40 MB.
    """

    def reset_parameters(self) -> None:
        """Leaves the weights as they are."""


def make_norm(width: int, design: Design) -> nn.Module:
    """Returns the norm before a part of a block."""
    if design.norm == "layer":
        return nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)
    return RMSNorm()


class RMSNorm(nn.Module):
    """`rms_norm` as a part of a network."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalises the last dimension."""
        return rms_norm(x)


class Attention(nn.Module):
    """Causal self-attention of all heads."""

    def __init__(self, width: int, num_heads: int, design: Design) -> None:
        super().__init__()
        self._heads, self._head_size = num_heads, width // num_heads
        self._norm_epsilon = RMS_NORM_EPSILON if design.qk_norm else None
        self.input = make_linear(width, 3 * width, design)  # queries, keys and values
        self.output = make_linear(width, width, design)

    def forward(
        self,
        hidden: torch.Tensor,
        rotation: torch.Tensor | None,
        first: torch.Tensor | None,
        cache: Cache | None,
        layer: int,
    ) -> torch.Tensor:
        """Maps `B x T x C` to the same.

        Args:
            hidden: after the norm.
            rotation: of these positions, for `rotate`; None: positions are learned.
            first: `B x T`, where each token's document begins; None: each row is one document.
            cache: holds the keys and values of what came before; then there is no `first`.
            layer: the block's number, for the cache.
        """
        rows, tokens, width = hidden.shape
        heads = self.input(hidden).view(rows, tokens, 3, self._heads, self._head_size)
        if cache is None:
            mixed = attention(heads, rotation, first, norm_epsilon=self._norm_epsilon)
        else:
            mixed = self._continued(heads, rotation, cache, layer)
        output: torch.Tensor = self.output(mixed.reshape(rows, tokens, width))
        return output

    def _continued(self, heads: torch.Tensor, rotation: torch.Tensor | None, cache: Cache, layer: int) -> torch.Tensor:
        """Returns the mixed values of tokens that follow those of the cache, `B x T x H x D`."""
        tokens = heads.shape[1]
        queries_and_keys = normed_and_rotated(heads, rotation, norm_epsilon=self._norm_epsilon)
        queries, keys = queries_and_keys.transpose(1, 2).chunk(2, dim=1)
        keys, values = cache.extend(layer, keys, heads[:, :, 2].transpose(1, 2))
        mask = None
        if tokens > 1 and cache.length:
            position = torch.arange(keys.shape[2], device=heads.device)
            mask = position[cache.length :, None] >= position
        causal = mask is None and tokens > 1
        mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, is_causal=causal)
        return mixed.transpose(1, 2)


class FeedForward(nn.Module):
    """Two layers with an activation between them, on each token alone."""

    def __init__(self, width: int, design: Design) -> None:
        super().__init__()
        self._activation = design.activation
        inner = 4 * width
        if design.activation == "swiglu":  # a third matrix of the same size, so two thirds of the width: equal weights
            inner = -(-8 * width // 48) * 16
        gates = inner if design.activation == "swiglu" else 0
        self.input = make_linear(width, inner + gates, design)
        self.output = make_linear(inner, width, design)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Maps `B x T x C` to the same."""
        inner: torch.Tensor = self.input(hidden)
        if self._activation == "gelu":
            inner = functional.gelu(inner, approximate="tanh")
        else:
            gate, inner = inner.chunk(2, dim=-1)
            inner = functional.silu(gate) * inner
        output: torch.Tensor = self.output(inner)
        return output


class Block(nn.Module):
    """Attention and feed-forward network, each with a norm before it and added to its input."""

    def __init__(self, width: int, num_heads: int, design: Design) -> None:
        super().__init__()
        self.attention_norm = make_norm(width, design)
        self.attention = Attention(width, num_heads, design)
        self.feed_forward_norm = make_norm(width, design)
        self.feed_forward = FeedForward(width, design)

    def forward(
        self,
        hidden: torch.Tensor,
        rotation: torch.Tensor | None,
        first: torch.Tensor | None,
        cache: Cache | None,
        layer: int,
    ) -> torch.Tensor:
        """Maps `B x T x C` to the same; see `Attention`."""
        hidden = hidden + self.attention(self.attention_norm(hidden), rotation, first, cache, layer)
        summed: torch.Tensor = hidden + self.feed_forward(self.feed_forward_norm(hidden))
        return summed

    @torch.no_grad()
    def initialise_(self, design: Design, num_layers: int, generator: torch.Generator) -> None:
        """Draws the weights.

        GPT-2's have a deviation of 0.02, and what is added to the residual stream 1/sqrt(2 `num_layers`) of it. The
        modern one's keep the size of what they are given, and what is added begins at zero.
        """
        for part in (self.attention, self.feed_forward):
            inputs, outputs = part.input.weight, part.output.weight
            if not design.zero_projections:
                inputs.normal_(std=GPT2_DEVIATION, generator=generator)
                outputs.normal_(std=GPT2_DEVIATION / math.sqrt(2 * num_layers), generator=generator)
            else:
                inputs.normal_(std=inputs.shape[1] ** -0.5, generator=generator)
                outputs.zero_()
