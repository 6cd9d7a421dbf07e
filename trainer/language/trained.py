"""A trained network with its tokenizer: from a checkpoint of ours, or from a folder of released weights.

A folder has no text. So its loss can only be measured on data that are named. Its tokenizer is the one that lies in it,
or that of these data.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch

from ..errors import CheckpointError, DataError
from . import released
from .config import EvalConfig, ModelConfig
from .data import bpe
from .data.corpus import Corpus, open_corpus
from .data.tokenizer import Tokenizer, digest
from .model import GPT
from .model.released import load_released_
from .state import MODEL, load_model, read, require_corpus

Progress = Callable[[str, int, int], None]  # is told what is counted, how much of it is done, and how much there is
MOST_PADDING = 127  # rows by which a vocabulary is filled up to a round number


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
    own: Tokenizer | None = bpe.read(folder) if bpe.is_at_hand(folder) else None
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
