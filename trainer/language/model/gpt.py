"""The network of a language model: tokens in, for each the logits of the next one out.

Notation: `B` rows of `T` tokens, width `C`, vocabulary of `V` tokens, padded to `P` rows of the embedding and the head.
The padded rows have no logits: they can neither be chosen nor enter the loss.

A row may hold several documents. `documents` then numbers them, and no token sees another document.

Source: see `design.py`; floating-point operations: Chowdhery et al. 2022, "PaLM", appendix B.
"""

import torch
from torch import nn
from torch.nn import functional

from ...errors import ConfigError
from ..config import ModelConfig
from .block import GPT2_DEVIATION, Block, make_norm
from .cache import Cache
from .design import DESIGNS, Design, padded
from .loss import cross_entropies, logits_of, mean_cross_entropy
from .rms_norm import rms_norm
from .rotary import rotations

LARGEST_ATTENTION = 14.0  # size of the logits of attention, where queries and keys are normed


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
        # it learns too slowly (docs/log.md).
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
