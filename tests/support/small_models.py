"""Networks of two layers and width 32, and rows of random tokens, for the tests of language models."""

from typing import Any

import torch

from protein.trainer.language.config import ModelConfig
from protein.trainer.language.model import GPT, Design

ARCHES = ("gpt2", "modern")
SMALL = {"num_layers": 2, "width_ratio": 16.0, "head_size": 16, "sequence_length": 16}


def make_model(
    arch: Any = "modern", *, vocab_size: int = 50, seed: int = 0, design: Design | None = None, **settings: Any
) -> GPT:
    config = ModelConfig(arch=arch, **(SMALL | settings))
    return GPT(config, vocab_size, torch.Generator().manual_seed(seed), design)


def tokens(rows: int, vocab_size: int, *, length: int = 16, seed: int = 0) -> torch.Tensor:
    return torch.randint(vocab_size, (rows, length), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def every_weight_drawn(model: GPT, scale: float = 1.0) -> GPT:
    """Draws all weights anew, biases and those that begin at zero included, so that everything has an effect."""
    generator = torch.Generator().manual_seed(11)
    for parameter in model.parameters():
        parameter.normal_(std=scale * (0.2 if parameter.ndim == 2 else 1.0), generator=generator)
    return model
