"""GPT-2's weights from a folder that the `transformers` library has written: `config.json` and `model.safetensors`.

The released GPT-2 checkpoints have this form. Nothing is fetched from the network, and the library is not needed.

Their names: `wte` and `wpe` are the embeddings of tokens and positions, `h.N` a block, `ln_f` the last norm. Their
layers hold `inputs x outputs`, ours `outputs x inputs`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from ...errors import CheckpointError
from ..config import ModelConfig
from .block import LAYER_NORM_EPSILON
from .gpt import GPT

# Ours and theirs, within a block; weights of the first kind are transposed.
_LAYERS = {
    "attention.input": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "feed_forward.input": "mlp.c_fc",
    "feed_forward.output": "mlp.c_proj",
}
_NORMS = {"attention_norm": "ln_1", "feed_forward_norm": "ln_2"}

# What our network does, as their settings call it; a setting that is absent has this value there, too.
_REQUIRED = {
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "layer_norm_epsilon": LAYER_NORM_EPSILON,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "tie_word_embeddings": True,
    "add_cross_attention": False,
}


def read_released(folder: Path) -> GPT:
    """Returns the network that a checkpoint folder holds, on the CPU in float32.

    Raises:
        CheckpointError: a file is missing or damaged, or it holds another network than GPT-2's.
    """
    settings = _settings(folder)
    config = _model_config(settings, folder)
    file = folder / "model.safetensors"
    try:
        found = load_file(file)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"cannot read {file}: {error}: write the checkpoint again with save_pretrained(folder)"
        ) from error
    weights = {name.removeprefix("transformer."): tensor for name, tensor in found.items()}
    # The weights drawn here are all overwritten.
    model = GPT(config, settings["vocab_size"], torch.Generator().manual_seed(0))
    _fill_(model, weights, file)
    return model


def _settings(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    try:
        settings: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"cannot read {file}: {error}: name a folder that holds config.json and model.safetensors"
        ) from error
    return settings


def _model_config(settings: Mapping[str, Any], folder: Path) -> ModelConfig:
    for key, wanted in _REQUIRED.items():
        if settings.get(key, wanted) != wanted:
            raise CheckpointError(
                f"{folder / 'config.json'} has {key} {settings[key]!r}, only {wanted!r} can be loaded: "
                "use a checkpoint of GPT-2"
            )
    try:
        layers, size, heads = (int(settings[key]) for key in ("n_layer", "n_embd", "n_head"))
        positions, vocab_size = int(settings["n_positions"]), int(settings["vocab_size"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{folder / 'config.json'} does not say {error}: use the file that belongs to the weights"
        ) from error
    if min(layers, size, heads, positions, vocab_size) < 1 or size % heads:
        raise CheckpointError(
            f"{folder / 'config.json'} has width {size} and {heads} heads: the width must be a multiple of the heads"
        )
    config = ModelConfig(
        arch="gpt2", num_layers=layers, width_ratio=size / layers, head_size=size // heads, sequence_length=positions
    )
    assert config.width == size
    return config


@torch.no_grad()
def _fill_(model: GPT, weights: Mapping[str, torch.Tensor], file: Path) -> None:
    """Copies all weights. Raises `CheckpointError` where one is missing or of another shape."""

    def copy_(target: torch.Tensor, name: str, *, transposed: bool = False) -> None:
        if name not in weights:
            raise CheckpointError(f"{file} has no '{name}': use the file that belongs to config.json")
        source = weights[name].t() if transposed else weights[name]
        if source.shape != target.shape:
            found, wanted = list(weights[name].shape), list(target.t().shape if transposed else target.shape)
            raise CheckpointError(
                f"{file} has '{name}' of shape {found}, config.json asks for {wanted}: "
                "use the two files that belong together"
            )
        target.copy_(source)

    model.embedding.weight.zero_()
    copy_(model.embedding.weight[: model.vocab_size], "wte.weight")
    ours = dict(model.named_parameters())
    copy_(ours["positions.weight"], "wpe.weight")
    for kind in ("weight", "bias"):
        copy_(ours[f"norm.{kind}"], f"ln_f.{kind}")
        for number in range(model.config.num_layers):
            for mine, theirs in _NORMS.items():
                copy_(ours[f"blocks.{number}.{mine}.{kind}"], f"h.{number}.{theirs}.{kind}")
            for mine, theirs in _LAYERS.items():
                name = f"h.{number}.{theirs}.{kind}"
                copy_(ours[f"blocks.{number}.{mine}.{kind}"], name, transposed=kind == "weight")
