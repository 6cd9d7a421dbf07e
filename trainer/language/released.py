"""A folder of GPT-2's weights as the `transformers` library writes it: what it holds, and the sizes of its network.

Such a folder has `config.json`, `model.safetensors` and most often the tokenizer's files (`vocab.json` with
`merges.txt`, or `tokenizer.json`). GPT-2's released weights have this form. This module loads no torch: the weights
are read by `model.released`.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import CheckpointError
from .config import ModelConfig

SETTINGS_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
SIZES = ("arch", "num_layers", "width_ratio", "head_size")  # settings that the weights fix
LAYER_NORM_EPSILON = 1e-5

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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """What a folder's settings say. `model.sequence_length` is the number of its positions."""

    folder: Path
    model: ModelConfig
    vocab_size: int

    @property
    def sizes(self) -> dict[str, Any]:
        """The settings that the weights fix, by their dotted names."""
        return {f"model.{name}": getattr(self.model, name) for name in SIZES}

    def require(self, config: ModelConfig) -> None:
        """Raises `CheckpointError` unless a network of these settings can take the weights."""
        wrong = [name for name in SIZES if name != "width_ratio" and getattr(config, name) != getattr(self.model, name)]
        if config.width != self.model.width:
            wrong.append("width_ratio")
        if wrong:
            said = ", ".join(f"model.{name} is {getattr(config, name)!r}" for name in wrong)
            needed = " ".join(_flag(name, getattr(self.model, name)) for name in SIZES if name in wrong)
            raise CheckpointError(f"{said}, and the weights in {self.folder} have another size: give {needed}")
        if config.sequence_length > self.model.sequence_length:
            raise CheckpointError(
                f"model.sequence_length ({config.sequence_length:,}) is longer than the"
                f" {self.model.sequence_length:,} positions of {self.folder}: give at most that many"
            )


def is_released(path: Path) -> bool:
    """Whether this is a folder of released weights: its `config.json` is there, and is not that of a run of ours."""
    try:
        found = json.loads((path / SETTINGS_FILE).read_bytes())
    except (ValueError, RecursionError):  # damaged, which reading it as released weights says
        return True
    except OSError:
        return False
    return not (isinstance(found, dict) and _is_our_own(found))


def read_settings(folder: Path) -> Released:
    """Returns what a folder's `config.json` says.

    Raises:
        CheckpointError: it cannot be read, or describes another network than GPT-2's.
    """
    file = folder / SETTINGS_FILE
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(settings, dict):
            raise TypeError(f"it holds a {type(settings).__name__}, and no settings")
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(
            f"cannot read {file}: {error}: name a folder that holds {SETTINGS_FILE} and {WEIGHTS_FILE}"
        ) from error
    if _is_our_own(settings):
        raise CheckpointError(
            f"{folder} is a run of protein train, and only weights of GPT-2's form can be begun with: give a folder of"
            f" such weights; the run itself goes on with protein train --resume {folder}"
        )
    return _read(settings, folder)


def require_weights(found: Released) -> None:
    """Raises `CheckpointError` where the folder has no file of weights."""
    if not (found.folder / WEIGHTS_FILE).is_file():
        raise CheckpointError(
            f"{found.folder} has no {WEIGHTS_FILE}: write the checkpoint again with save_pretrained(folder)"
        )


def _is_our_own(settings: Mapping[str, Any]) -> bool:
    """Whether a `config.json` is that of a run of ours."""
    return "train" in settings


def _read(settings: Mapping[str, Any], folder: Path) -> Released:
    file = folder / SETTINGS_FILE
    for key, wanted in _REQUIRED.items():
        if settings.get(key, wanted) != wanted:
            raise CheckpointError(
                f"{file} has {key} {settings[key]!r}, only {wanted!r} can be loaded: use a checkpoint of GPT-2"
            )
    try:
        layers, size, heads = (int(settings[key]) for key in ("n_layer", "n_embd", "n_head"))
        positions, vocab_size = int(settings["n_positions"]), int(settings["vocab_size"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{file} does not say {error}: use the file that belongs to the weights") from error
    if min(layers, size, heads, positions, vocab_size) < 1 or size % heads:
        raise CheckpointError(f"{file} has width {size} and {heads} heads: the width must be a multiple of the heads")
    model = ModelConfig(
        arch="gpt2", num_layers=layers, width_ratio=size / layers, head_size=size // heads, sequence_length=positions
    )
    assert model.width == size
    return Released(folder=folder, model=model, vocab_size=vocab_size)


def _flag(name: str, value: object) -> str:
    shown = f"{value:.10g}" if isinstance(value, float) else value
    return f"--model.{name.replace('_', '-')} {shown}"
