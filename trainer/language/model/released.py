"""GPT-2's weights from a folder that the `transformers` library has written: `model.safetensors`.

The released GPT-2 checkpoints have this form. Nothing is fetched from the network, and the library is not needed.

Their names: `wte` and `wpe` are the embeddings of tokens and positions, `h.N` a block, `ln_f` the last norm. Their
layers hold `inputs x outputs`, ours `outputs x inputs`.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from ...errors import CheckpointError
from ...machine.checkpoint import require_finite
from ..released import WEIGHTS_FILE, read_settings
from .gpt import GPT

# Ours and theirs, within a block; weights of the first kind are transposed.
_LAYERS = {
    "attention.input": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "feed_forward.input": "mlp.c_fc",
    "feed_forward.output": "mlp.c_proj",
}
_NORMS = {"attention_norm": "ln_1", "feed_forward_norm": "ln_2"}


def read_released(folder: Path) -> GPT:
    """Returns the network that a checkpoint folder holds, on the CPU in float32.

    Raises:
        CheckpointError: a file is missing or damaged, or it holds another network than GPT-2's.
    """
    released = read_settings(folder)
    # The weights drawn here are all overwritten.
    model = GPT(released.model, released.vocab_size, torch.Generator().manual_seed(0))
    load_released_(model, folder)
    return model


@torch.no_grad()
def load_released_(model: GPT, folder: Path) -> None:
    """Copies a folder's weights into a network of GPT-2's form, on any device.

    It may have fewer positions, and its vocabulary may be smaller by what pads theirs: the first ones are taken.

    Raises:
        CheckpointError: a file is missing or damaged, or the network has another size.
    """
    released, file = read_settings(folder), folder / WEIGHTS_FILE
    released.require(model.config)
    weights = _read(file)
    require_finite(weights, file)

    def copy_(target: torch.Tensor, name: str, *, transposed: bool = False, rows: int | None = None) -> None:
        """`rows`: that the file must have, of which the first ones are taken; None: as many as the target."""
        if name not in weights:
            raise CheckpointError(f"{file} has no '{name}': use the file that belongs to config.json")
        source = weights[name].t() if transposed else weights[name]
        shape = torch.Size([target.shape[0] if rows is None else rows, *target.shape[1:]])
        if source.shape != shape:
            found, wanted = list(weights[name].shape), list(shape[::-1] if transposed else shape)
            raise CheckpointError(
                f"{file} has '{name}' of shape {found}, config.json asks for {wanted}: "
                "use the two files that belong together"
            )
        target.copy_(source[: target.shape[0]])

    ours = dict(model.named_parameters())
    model.embedding.weight.zero_()
    copy_(model.embedding.weight[: model.vocab_size], "wte.weight", rows=released.vocab_size)
    copy_(ours["positions.weight"], "wpe.weight", rows=released.model.sequence_length)
    for kind in ("weight", "bias"):
        copy_(ours[f"norm.{kind}"], f"ln_f.{kind}")
        for number in range(model.config.num_layers):
            for mine, theirs in _NORMS.items():
                copy_(ours[f"blocks.{number}.{mine}.{kind}"], f"h.{number}.{theirs}.{kind}")
            for mine, theirs in _LAYERS.items():
                name = f"h.{number}.{theirs}.{kind}"
                copy_(ours[f"blocks.{number}.{mine}.{kind}"], name, transposed=kind == "weight")


def _read(file: Path) -> Mapping[str, torch.Tensor]:
    """Returns the weights of a file by their names, without the prefix of a network with a head."""
    try:
        found = load_file(file)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"cannot read {file}: {error}: write the checkpoint again with save_pretrained(folder)"
        ) from error
    return {name.removeprefix("transformer."): tensor for name, tensor in found.items()}
