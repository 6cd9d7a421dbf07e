"""What sets the two networks apart, one field for each difference, and how a vocabulary is padded.

Source of GPT-2's: Radford et al. 2019, "Language models are unsupervised multitask learners", section 2.3. Of the
modern one's parts: rotary positions, Su et al. 2021, "RoFormer"; RMSNorm, Zhang and Sennrich 2019; norm of queries and
keys, Dehghani et al. 2023, "Scaling vision transformers to 22 billion parameters"; SwiGLU, Shazeer 2020, "GLU variants
improve transformer"; a residual branch that begins at zero, Zhang et al. 2019, "Fixup initialization". What was tried
beside them and did not pay (a soft cap of the logits, the squared ReLU) is in docs/log.md.
"""

import dataclasses
from typing import Literal

VOCABULARY_MULTIPLE = 64  # rows of the embedding and the head are padded to it: whole tiles of a matrix product


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


def padded(vocab_size: int) -> int:
    """Returns the rows of the embedding and the head for a vocabulary."""
    return -(-vocab_size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
