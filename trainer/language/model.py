"""The network of a language model, a decoder-only transformer: tokens in, for each the logits of the next one out.

Notation: `B` rows of `T` tokens, width `C`, `H` heads of size `D = C / H`, vocabulary of `V` tokens, padded to `P` rows
of the embedding and the head. The padded rows have no logits: they can neither be chosen nor enter the loss. `N` tokens
are all those of the rows.

A row may hold several documents. `documents` then numbers them, and no token sees another document.

There are two networks, GPT-2's and a modern one. `Design` has a field for each difference. What was tried beside them
and did not pay (a soft cap of the logits, the squared ReLU) is in docs/decisions/language.md.

Source of GPT-2's: Radford et al. 2019, "Language models are unsupervised multitask learners", section 2.3. Of the
modern one's parts: rotary positions, Su et al. 2021, "RoFormer", section 3.2; RMSNorm, Zhang and Sennrich 2019; norm of
queries and keys, Dehghani et al. 2023, "Scaling vision transformers to 22 billion parameters"; SwiGLU, Shazeer 2020,
"GLU variants improve transformer"; a residual branch that begins at zero, Zhang et al. 2019, "Fixup initialization".
Floating-point operations: Chowdhery et al. 2022, "PaLM", appendix B.
"""

import dataclasses
import math
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional

from ..errors import ConfigError
from ..kernels.attention import attention, normed_and_rotated
from .config import ModelConfig
from .released import LAYER_NORM_EPSILON

VOCABULARY_MULTIPLE = 64  # rows of the embedding and the head are padded to it: whole tiles of a matrix product
GPT2_DEVIATION = 0.02
LARGEST_ATTENTION = 14.0  # size of the logits of attention, where queries and keys are normed
RMS_NORM_EPSILON = 1e-6
BASE = 10_000.0
IGNORED = -1  # a target that counts for nothing
# Logits that are held at once. On the CPU they shall stay in its cache, on other devices calls shall be few.
LOGITS_ON_HOST, LOGITS_ON_DEVICE = 2**20, 2**27
FEWEST_TOKENS = 256  # fewer make thin products


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """How a network is made. The settings choose one of `DESIGNS`; an ablation changes one field."""

    positions: Literal["learned", "rotary"]
    norm: Literal["layer", "rms"]
    """`layer`: with weight and bias; `rms`: without parameters."""
    qk_norm: bool
    """Brings queries and keys of each head to one length: no logit of attention is above `LARGEST_ATTENTION` then."""
    activation: Literal["gelu", "swiglu"]
    tied: bool
    """The head uses the embedding's matrix."""
    zero_projections: bool
    """What a block adds begins at zero, and so do the logits of an untied head."""
    biases: bool


DESIGNS = {
    "gpt2": Design(
        positions="learned",
        norm="layer",
        qk_norm=False,
        activation="gelu",
        tied=True,
        zero_projections=False,
        biases=True,
    ),
    "modern": Design(
        positions="rotary",
        norm="rms",
        qk_norm=True,
        activation="swiglu",
        tied=False,
        zero_projections=True,
        biases=False,
    ),
}


class Cache:
    """Keys and values of the tokens that were read, so that each new token costs one position and not the whole text.

    For one text or several of equal length. `GPT.forward` fills it; `length` counts the positions that it holds.
    """

    def __init__(self, num_layers: int, capacity: int) -> None:
        """`capacity`: the positions that it can hold, at most the network's."""
        self.capacity = capacity
        self.length = 0
        self._layers: list[tuple[torch.Tensor, torch.Tensor] | None] = [None] * num_layers

    def require_room(self, positions: int) -> None:
        """Raises `ConfigError` where `positions` more do not fit."""
        if self.length + positions > self.capacity:
            raise ConfigError(
                f"{self.length + positions} tokens do not fit into the {self.capacity} positions of this cache: "
                "begin again with the last ones"
            )

    def extend(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Appends one layer's new keys and values, `B x H x T x D`; returns all, `B x H x (length + T) x D`."""
        held = self._layers[layer]
        if held is None:
            rows, heads, _, size = keys.shape
            held = (
                keys.new_empty(rows, heads, self.capacity, size),
                values.new_empty(rows, heads, self.capacity, size),
            )
            self._layers[layer] = held
        end = self.length + keys.shape[2]
        for buffer, new in zip(held, (keys, values), strict=True):
            buffer[:, :, self.length : end] = new
        return held[0][:, :, :end], held[1][:, :, :end]

    def advance(self, positions: int) -> None:
        """Counts `positions` that every layer has appended."""
        self.length += positions


class GPT(nn.Module):
    """A decoder-only transformer."""

    def __init__(
        self, config: ModelConfig, vocab_size: int, generator: torch.Generator, design: Design | None = None
    ) -> None:
        """Draws the weights, on the CPU.

        Args:
            config: sizes and `arch`.
            vocab_size: V.
            generator: of the weights; on the CPU.
            design: in place of the one that `arch` names, for comparisons.

        Raises:
            ConfigError: rotary positions with an odd head size.
        """
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        self.design = design = design or DESIGNS[config.arch]
        self.width = config.width
        if design.positions == "rotary" and config.head_size % 2:
            raise ConfigError(f"model.head_size must be even with rotary positions, got {config.head_size}")
        rows = padded(vocab_size)
        self.embedding = nn.Embedding.from_pretrained(torch.empty(rows, self.width), freeze=False)
        self.positions: nn.Embedding | None = None
        if design.positions == "learned":
            self.positions = nn.Embedding.from_pretrained(torch.empty(config.sequence_length, self.width), freeze=False)
        self._blocks = [Block(self.width, config.num_heads, design) for _ in range(config.num_layers)]
        self.blocks = nn.ModuleList(self._blocks)
        self.norm = make_norm(self.width, design)
        self.head: nn.Parameter | None = None if design.tied else nn.Parameter(torch.empty(rows, self.width))
        self.rotation: torch.Tensor | None
        self.register_buffer("rotation", _rotations(config, design), persistent=False)
        self._initialise(generator)

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator) -> None:
        design = self.design
        # A norm follows the modern one's embedding: only its size against the step size matters. With a deviation of 1
        # it learns too slowly (docs/decisions/language.md).
        self.embedding.weight.normal_(std=GPT2_DEVIATION, generator=generator)
        if self.positions is not None:
            self.positions.weight.normal_(std=GPT2_DEVIATION, generator=generator)
        for block in self._blocks:
            block.initialise_(design, len(self._blocks), generator)
        if self.head is not None and design.zero_projections:
            self.head.zero_()
        elif self.head is not None:
            self.head.normal_(std=GPT2_DEVIATION, generator=generator)

    def forward(
        self, tokens: torch.Tensor, documents: torch.Tensor | None = None, cache: Cache | None = None
    ) -> torch.Tensor:
        """Returns the logits of the next token.

        Args:
            tokens: `B x T`, int64.
            documents: `B x T`, the number of each token's document in its row; None: each row is one document.
            cache: what the rows held before these tokens; the tokens are added to it. None: these are the first.

        Returns:
            `B x T x V` in float32.

        Raises:
            ConfigError: there are more tokens than positions.
        """
        hidden = self.hidden(tokens, documents, cache)
        return logits_of(hidden, self.head_weight, self.vocab_size)

    def loss(self, tokens: torch.Tensor, targets: torch.Tensor, documents: torch.Tensor | None = None) -> torch.Tensor:
        """Returns the mean loss in nats a token, a scalar. `targets`: `B x T`; -1 does not count."""
        hidden = self.hidden(tokens, documents).flatten(0, 1)
        return mean_cross_entropy(hidden, self.head_weight, targets.flatten(), self.vocab_size)

    def losses(
        self, tokens: torch.Tensor, targets: torch.Tensor, documents: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Returns the loss of each target in nats, `B x T`; 0 where the target is -1."""
        hidden = self.hidden(tokens, documents).flatten(0, 1)
        found = cross_entropies(hidden, self.head_weight, targets.flatten(), self.vocab_size)
        return found.view_as(targets)

    def hidden(
        self, tokens: torch.Tensor, documents: torch.Tensor | None = None, cache: Cache | None = None
    ) -> torch.Tensor:
        """Returns what the head reads, `B x T x C`; see `forward`."""
        begin, length = cache.length if cache is not None else 0, tokens.shape[1]
        if begin + length > self.config.sequence_length:
            raise ConfigError(
                f"{begin + length} tokens are more than the network's {self.config.sequence_length} positions: "
                "use a shorter sequence, or train with a larger model.sequence_length"
            )
        if cache is not None:
            cache.require_room(length)
        first = _first(documents, begin)
        hidden = self.embedding(tokens)
        if self.positions is not None:
            hidden = hidden + self.positions.weight[begin : begin + length]
        if self.design.norm == "rms":
            hidden = rms_norm(hidden)
        rotation = None if self.rotation is None else self.rotation[:, begin : begin + length]
        for layer, block in enumerate(self._blocks):
            hidden = block(hidden, rotation, first, cache, layer)
        if cache is not None:
            cache.advance(length)
        normed: torch.Tensor = self.norm(hidden)
        return normed

    def new_cache(self) -> Cache:
        """Returns an empty cache for as many positions as the network has."""
        return Cache(self.config.num_layers, self.config.sequence_length)

    @property
    def head_weight(self) -> torch.Tensor:
        """The head's matrix, `P x C`."""
        return self.embedding.weight if self.head is None else self.head

    @property
    def flops_per_token(self) -> float:
        """Floating-point operations of a forward and a backward pass, for each token of a full row.

        Two for each weight of a product and three products for each weight (output, gradient of the input, gradient of
        the weight). In attention the same for queries with keys and weights with values, over half of the row on
        average, because of the causal mask.
        """
        blocks = sum(p.numel() for block in self._blocks for p in block.parameters() if p.ndim == 2)
        head = self.vocab_size * self.width
        attention = self.config.num_layers * self.config.sequence_length * self.width
        return 6.0 * (blocks + head + attention)


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


class RMSNorm(nn.Module):
    """`rms_norm` as a part of a network."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalises the last dimension."""
        return rms_norm(x)


def make_norm(width: int, design: Design) -> nn.Module:
    """Returns the norm before a part of a block."""
    if design.norm == "layer":
        return nn.LayerNorm(width, eps=LAYER_NORM_EPSILON)
    return RMSNorm()


def make_linear(inputs: int, outputs: int, design: Design) -> nn.Linear:
    """Returns a layer whose weights nobody has drawn yet."""
    layer = _Undrawn(inputs, outputs, bias=design.biases)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def rms_norm(x: torch.Tensor) -> torch.Tensor:
    """Returns `x / sqrt(mean(x^2) + epsilon)` over the last dimension, with its gradient in closed form.

    Composed of torch's own operations it is a chain of passes over the whole array, and its gradient twice as many.
    Here they are as few as torch allows. Where the network is compiled they are fused anyway, and on CUDA torch has a
    fused kernel.
    """
    if x.is_cuda:
        return functional.rms_norm(x, x.shape[-1:], eps=RMS_NORM_EPSILON)
    normed: torch.Tensor = _RMSNorm.apply(x)  # type: ignore[no-untyped-call]
    return normed


def rotations(positions: int, head_size: int, *, turning: bool = True, factor: float = 1.0) -> torch.Tensor:
    """Returns the cosines and sines of all angles, `2 x positions x 1 x head_size`; `head_size` is even.

    Rotary positions: entries `i` and `i + D/2` of a head are turned together, by the angle t * BASE^(-2i/D) at position
    t. So the product of queries and keys depends on how far apart they are, and no position needs weights of its own.

    Each half of the last dimension holds all `head_size / 2` angles. The first half of the sines is negated, so that
    `kernels.attention.rotate` needs no signs.

    Args:
        positions: how many there are.
        head_size: D.
        turning: without it all angles are 0.
        factor: what is rotated is multiplied by it, too.
    """
    frequencies = BASE ** (-torch.arange(0, head_size, 2, dtype=torch.float64) / head_size)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * frequencies * turning
    cosines, sines = angles.cos(), angles.sin()
    both = torch.stack([torch.cat([cosines, cosines], 1), torch.cat([-sines, sines], 1)])
    return (factor * both.unsqueeze(2)).float()


def padded(vocab_size: int) -> int:
    """Returns the rows of the embedding and the head for a vocabulary."""
    return -(-vocab_size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE


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

    The logits of all tokens would be the largest array of a training step by far. So they are made for some tokens at a
    time, and their gradient is made along with them: for the loss alone they are needed no more. With a vocabulary of
    256 this takes as long as the usual two passes over all logits, with 4,096 half as long, with 50,257 two thirds (on
    a CPU).

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


def _rotations(config: ModelConfig, design: Design) -> torch.Tensor | None:
    """Returns the rotations of queries and keys, scaled to the length that they get; None: they stay as they are."""
    factor, turning = 1.0, design.positions == "rotary"
    if design.qk_norm:  # they have length sqrt(D), and attention divides their product by sqrt(D)
        factor = (LARGEST_ATTENTION / config.head_size**0.5) ** 0.5
    if not turning and factor == 1.0:
        return None
    return rotations(config.sequence_length, config.head_size, turning=turning, factor=factor)


def _first(documents: torch.Tensor | None, begin: int) -> torch.Tensor | None:
    """Returns where each token's document begins in its row, `B x T`; None: there are no documents."""
    if documents is None:
        return None
    if begin:
        raise ConfigError("documents cannot be told apart in a cache: pass each document's row alone")
    position = torch.arange(documents.shape[1], device=documents.device)
    begins = functional.pad(documents[:, 1:] != documents[:, :-1], (1, 0))
    return torch.where(begins, position, 0).cummax(1).values.int()


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


class _Undrawn(nn.Linear):
    """A layer without torch's own initialisation, which uses the global generator.

    `torch.nn.utils.skip_init` does the same, but it loads sympy, which takes a second and 40 MB.
    """

    def reset_parameters(self) -> None:
        """Leaves the weights as they are."""
