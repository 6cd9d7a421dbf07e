"""A trained network with its tokenizer: from a checkpoint of ours, or from a folder of released weights.

A folder has no text. So its loss can only be measured on data that are named. Its tokenizer is the one that lies in it,
or that of these data. Nothing is fetched from the network, and the `transformers` library, which wrote the folder, is
not needed.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from ..errors import CheckpointError, DataError
from ..machine.checkpoint import require_finite
from . import released
from .config import EvalConfig, ModelConfig
from .data import tokenizers
from .data.corpus import Corpus, open_corpus
from .data.tokenizers import Tokenizer, digest
from .model import GPT
from .released import WEIGHTS_FILE, read_settings
from .state import MODEL, load_model, read, require_corpus

Progress = Callable[[str, int, int], None]  # is told what is counted, how much of it is done, and how much there is
MOST_PADDING = 127  # rows by which a vocabulary is filled up to a round number
# Ours and theirs, within a block. Their layers hold `inputs x outputs`, ours `outputs x inputs`. Beside the blocks,
# `h.N`, they have `wte` and `wpe`, the embeddings of tokens and positions, and `ln_f`, the last norm.
_LAYERS = {
    "attention.input": "attn.c_attn",
    "attention.output": "attn.c_proj",
    "feed_forward.input": "mlp.c_fc",
    "feed_forward.output": "mlp.c_proj",
}
_NORMS = {"attention_norm": "ln_1", "feed_forward_norm": "ln_2"}


def ignore(counted: str, done: int, of: int) -> None:
    """Progress that nobody is told."""


class Trained(Protocol):
    """A network on the disk, of which everything but the weights was read."""

    tokenizer: Tokenizer

    @property
    def config(self) -> ModelConfig: ...

    @property
    def precision(self) -> str:
        """As `train.precision`."""
        ...

    @property
    def tokens(self) -> int:
        """Tokens of the validation text that it is measured on, where nothing else is said."""
        ...

    @property
    def corpus(self) -> Corpus:
        """The text that it is measured on. Raises `CheckpointError` where there is none."""
        ...

    def network(self, device: torch.device) -> GPT:
        """Returns the network on a device. Raises `CheckpointError` where its weights cannot be read."""
        ...


def open_trained(path: Path, data: str = "") -> Trained:
    """Returns what a file or a folder holds; `data`: `data.path` of the text, empty: that of the checkpoint's run.

    Raises:
        CheckpointError: it cannot be read, or is of another kind of training, network or tokenizer.
        DataError: the text or the tokenizer cannot be read.
    """
    return _Folder(path, data) if path.is_dir() else _Checkpoint(path, data)


class _Checkpoint:
    """What a run of ours has written."""

    def __init__(self, path: Path, data: str) -> None:
        self._path, self._saved = path, read(path, prefix=MODEL)
        try:
            self.corpus = open_corpus(data or self._saved.config.data.path)
        except DataError as error:
            if data:
                raise
            raise DataError(f"{error}; it is the text of {path}, and --data names it in its new place") from error
        require_corpus(self._saved, path, self.corpus)
        self.tokenizer = self.corpus.tokenizer

    @property
    def config(self) -> ModelConfig:
        return self._saved.config.model

    @property
    def precision(self) -> str:
        return self._saved.config.train.precision

    @property
    def tokens(self) -> int:
        return self._saved.config.eval.tokens

    def network(self, device: torch.device) -> GPT:
        return load_model(self._saved, self._path, device)


class _Folder:
    """Released weights."""

    precision = "auto"
    tokens = EvalConfig().tokens

    def __init__(self, folder: Path, data: str) -> None:
        self._released = released.read_settings(folder)
        self._corpus = open_corpus(data) if data else None
        self.tokenizer = require_tokenizer(self._released, None if self._corpus is None else self._corpus.tokenizer)

    @property
    def config(self) -> ModelConfig:
        return self._released.model

    @property
    def corpus(self) -> Corpus:
        if self._corpus is None:
            raise CheckpointError(
                f"{self._released.folder} holds weights and no text to measure them on: name tokens of its tokenizer,"
                " which protein data tokenize FILES --tokenizer FOLDER makes"
            )
        return self._corpus

    def network(self, device: torch.device) -> GPT:
        # The weights drawn here are all overwritten.
        model = GPT(self.config, self.tokenizer.vocab_size, torch.Generator().manual_seed(0))
        load_released_(model, self._released.folder)
        return model.to(device)


def require_tokenizer(found: released.Released, of_data: Tokenizer | None) -> Tokenizer:
    """Returns the tokenizer of released weights: that of the data, if any, else the one in the folder.

    Raises:
        CheckpointError: there is none, or it is not the one that the weights were trained with, as far as can be told.
        DataError: the one in the folder cannot be read.
    """
    folder = found.folder
    own: Tokenizer | None = tokenizers.read(folder) if tokenizers.is_at_hand(folder) else None
    tokenizer = of_data or own
    if tokenizer is None:
        raise CheckpointError(
            f"{folder} holds no tokenizer: put its vocab.json and merges.txt, or its tokenizer.json, into it"
        )
    remedy = f"make the tokens with that of the weights, protein data tokenize FILES --tokenizer {folder}"
    if not 0 <= found.vocab_size - tokenizer.vocab_size <= MOST_PADDING:
        raise CheckpointError(
            f"the weights in {folder} are for {found.vocab_size:,} tokens, and the text's tokenizer has"
            f" {tokenizer.vocab_size:,}: {remedy}"
        )
    if own is not None and of_data is not None and digest(own) != digest(of_data):
        raise CheckpointError(f"the text's tokens are not those of the tokenizer in {folder}: {remedy}")
    return tokenizer


def require_released(model: ModelConfig, tokenizer: Tokenizer) -> None:
    """Checks that a run of these settings and of this text can begin with the weights that it names.

    Raises:
        CheckpointError: the weights cannot be read, or are of another size or for other tokens.
        DataError: the tokenizer beside them cannot be read.
    """
    found = released.read_settings(Path(model.init_from))
    found.require(model)
    require_tokenizer(found, tokenizer)
    released.require_weights(found)


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
