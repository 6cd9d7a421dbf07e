"""A trained network with its tokenizer: from a checkpoint of ours, or from a folder of released weights.

A folder has no text. So its loss can only be measured on data that are named. Its tokenizer is the one that lies in it,
or that of these data. Nothing is fetched from the network, and the `transformers` library, which wrote the folder, is
not needed.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from ..errors import CheckpointError, DataError
from ..machine.checkpoint import require_finite
from ..machine.precision import Arithmetic, resolve_device, resolve_threads
from . import released
from .config import EvalConfig, ModelConfig
from .data import tokenizers
from .data.corpus import Corpus, open_corpus
from .data.tokenizers import Tokenizer, digest
from .model import GPT
from .released import WEIGHTS_FILE, read_settings
from .state import MODEL, load_model, read, require_corpus
from .update import prepare, resolve_precision

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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A network on the disk, of which everything but the weights was read.

    Attributes:
        path: of the file, or of the folder of released weights.
        config: of the network.
        precision: as `train.precision`.
        tokens: of the validation text that it is measured on, where nothing else is said.
        tokenizer: of its text.
        text: None: none was named, and released weights have none.
        network: returns the network on a device. Raises `CheckpointError` where its weights cannot be read.
    """

    path: Path
    config: ModelConfig
    precision: str
    tokens: int
    tokenizer: Tokenizer
    text: Corpus | None
    network: Callable[[torch.device], GPT]

    @property
    def corpus(self) -> Corpus:
        """The text that it is measured on. Raises `CheckpointError` where there is none."""
        if self.text is None:
            raise CheckpointError(
                f"{self.path} holds weights and no text to measure them on: name tokens of its tokenizer, which"
                " protein data tokenize FILES --tokenizer FOLDER makes"
            )
        return self.text

    @contextlib.contextmanager
    def loaded(self, device: str, threads: int, precision: str = "") -> Iterator[tuple[GPT, str]]:
        """Yields the network, ready to be used, and the precision of its products.

        Args:
            device: as `train.device`.
            threads: 0: one per core.
            precision: of the products; empty: that of its run.

        Raises:
            ConfigError: no such device.
            CheckpointError: its weights cannot be read.
        """
        where = resolve_device(device)
        precision = precision or resolve_precision(self.precision, where)
        with Arithmetic(where, resolve_threads(threads), precision) as arithmetic:
            prepare(arithmetic, self.config)
            yield self.network(where), precision


def open_trained(path: Path, data: str = "") -> Trained:
    """Returns what a file or a folder holds; `data`: `data.path` of the text, empty: that of the checkpoint's run.

    Raises:
        CheckpointError: it cannot be read, or is of another kind of training, network or tokenizer.
        DataError: the text or the tokenizer cannot be read.
    """
    return _of_folder(path, data) if path.is_dir() else _of_run(path, data)


def _of_run(path: Path, data: str) -> Trained:
    saved = read(path, prefix=MODEL)
    try:
        corpus = open_corpus(data or saved.config.data.path)
    except DataError as error:
        if data:
            raise
        raise DataError(f"{error}; it is the text of {path}, and --data names it in its new place") from error
    require_corpus(saved, path, corpus)
    return Trained(
        path=path,
        config=saved.config.model,
        precision=saved.config.train.precision,
        tokens=saved.config.eval.tokens,
        tokenizer=corpus.tokenizer,
        text=corpus,
        network=lambda device: load_model(saved, path, device),
    )


def _of_folder(folder: Path, data: str) -> Trained:
    found, corpus = read_settings(folder), open_corpus(data) if data else None
    tokenizer = require_tokenizer(found, None if corpus is None else corpus.tokenizer)
    return Trained(
        path=folder,
        config=found.model,
        precision="auto",
        tokens=EvalConfig().tokens,
        tokenizer=tokenizer,
        text=corpus,
        network=lambda device: read_released(folder, tokenizer.vocab_size).to(device),
    )


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


def read_released(folder: Path, vocab_size: int = 0) -> GPT:
    """Returns the network that a checkpoint folder holds, on the CPU in float32.

    `vocab_size`: the tokens that it shall have; 0: all that the folder has.

    Raises:
        CheckpointError: a file is missing or damaged, or it holds another network than GPT-2's.
    """
    released = read_settings(folder)
    # The weights drawn here are all overwritten.
    model = GPT(released.model, vocab_size or released.vocab_size, torch.Generator().manual_seed(0))
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
