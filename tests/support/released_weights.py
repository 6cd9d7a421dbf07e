"""Released weights of GPT-2's form: a network of the `transformers` library with random weights, in a folder."""

import os
from pathlib import Path
from typing import Any

import torch


def make_reference(vocab_size: int, positions: int, *, width: int = 48, layers: int = 3, heads: int = 4) -> Any:
    """Returns a network of theirs, with weights of a size that gives every part an effect."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers

    transformers.utils.logging.disable_progress_bar()
    config = transformers.GPT2Config(
        vocab_size=vocab_size,
        n_positions=positions,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        bos_token_id=0,
        eos_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):  # they draw from the global generator
        torch.manual_seed(0)
        model = transformers.GPT2LMHeadModel(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.2)
    return model


def write_released(folder: Path, vocab_size: int, positions: int, **sizes: int) -> Any:
    """Writes such a network as `transformers` does, and returns it."""
    model = make_reference(vocab_size, positions, **sizes)
    model.save_pretrained(folder)
    return model
