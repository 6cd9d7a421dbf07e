"""What a run reads: the tokens of a corpus in two parts, its tokenizer, and how many bytes each token stands for.

The score of a run is minus the bits per byte: `nats / (ln 2 * bytes)`, both summed over the same targets. The document
token stands for 0 bytes and is left out of both sums, so that the number does not depend on how documents are cut.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...errors import ConfigError, DataError
from ..config import BUILT_IN
from . import llm_shards, python_text
from .shards import FILE_NAME, PARTS, LoadedShard, Shard, load, read_description
from .tokenizer import BYTES, Tokenizer, open_tokenizer


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The training text or the validation text. `num_bytes` of text is None where nobody has counted them."""

    name: str
    shards: Sequence[Shard]
    vocab_size: int
    document_token: int

    @property
    def num_tokens(self) -> int:
        return sum(shard.num_tokens for shard in self.shards)

    @property
    def num_bytes(self) -> int | None:
        counts = [shard.num_bytes for shard in self.shards]
        return None if None in counts else sum(count for count in counts if count is not None)

    def rows(self, sequence_length: int) -> npt.NDArray[np.int64]:
        """Returns how many rows of `sequence_length` tokens each shard has. A row reads one token more, its last
        target."""
        return np.array([max(shard.num_tokens - 1, 0) // sequence_length for shard in self.shards])

    def require_rows(self, sequence_length: int, batch_rows: int) -> None:
        """Raises `ConfigError` where there are fewer rows than a step of the optimiser takes."""
        rows = int(self.rows(sequence_length).sum())
        if not rows:
            longest = max(shard.num_tokens for shard in self.shards)
            part = f", at most {longest:,} in one of its {len(self.shards):,} files" if len(self.shards) > 1 else ""
            raise ConfigError(
                f"the {self.name} text has {self.num_tokens:,} tokens{part}, less than one row of {sequence_length:,}"
                " and the token after it: lower model.sequence_length, or give more text"
            )
        if rows < batch_rows:
            raise ConfigError(
                f"the {self.name} text has {self.num_tokens:,} tokens, {rows:,} rows of {sequence_length:,}, and one"
                f" step takes {batch_rows:,}: lower train.batch_tokens (now {batch_rows * sequence_length:,}) or"
                " model.sequence_length, or give more text"
            )

    def load(self, index: int) -> LoadedShard:
        """Returns the tokens of one shard. Raises `DataError` where they cannot be used."""
        return load(self.shards[index], vocab_size=self.vocab_size, document_token=self.document_token)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Text as tokens.

    Attributes:
        name: `python`, or the folder's name.
        vocab_size: tokens are below it. (A network may have more, so that its products have a round size.)
        document_token: the token that begins each document; a sample without a prompt begins with it.
        token_bytes: bytes of text that each token stands for, `vocab_size` numbers.
    """

    name: str
    tokenizer: Tokenizer
    vocab_size: int
    document_token: int
    token_bytes: npt.NDArray[np.int64]
    train: Part
    validation: Part


def open_corpus(path: str | Path) -> Corpus:
    """Returns the corpus `python`, which is made when it is first opened, or that of a folder. No tokens are read yet.

    A folder is one of `protein data tokenize`, or one of llm.c's files.

    Raises:
        DataError: the folder holds no tokens, or its files are damaged.
        DiskError: the built-in corpus cannot be written.
    """
    if str(path) == BUILT_IN:
        made = python_text.folder()
        try:
            return _of_ours(made, BUILT_IN)
        except DataError as error:
            raise DataError(f"{error}; it is the built-in text, which is made again where you delete {made}") from error
    folder = Path(path)
    if not folder.is_dir():
        raise DataError(f"data.path '{path}' is no folder: give '{BUILT_IN}', or a folder of protein data tokenize")
    name = folder.resolve().name
    if (folder / FILE_NAME).exists():
        return _of_ours(folder, name)
    if not llm_shards.are_in(folder):
        raise DataError(
            f"data.path '{path}' holds no {FILE_NAME}, and no files of llm.c: make it with protein data tokenize FILES"
            " --into FOLDER"
        )
    parts = {part: llm_shards.shards(folder, part) for part in PARTS}
    return _corpus(name, llm_shards.tokenizer(folder), parts)


def _of_ours(folder: Path, name: str) -> Corpus:
    description = read_description(folder)
    is_bytes = description.tokenizer == BYTES
    tokenizer = open_tokenizer(BYTES if is_bytes else folder / description.tokenizer)
    there = (description.vocab_size, description.document_token)
    if there != (tokenizer.vocab_size, tokenizer.document_token):
        raise DataError(
            f"cannot use {folder}: it has (vocabulary, document token) {there}, and its tokenizer has"
            f" {(tokenizer.vocab_size, tokenizer.document_token)}: make the data again"
        )
    return _corpus(name, tokenizer, {part: description.shards(folder, part) for part in PARTS})


def _corpus(name: str, tokenizer: Tokenizer, shards: Mapping[str, Sequence[Shard]]) -> Corpus:
    parts = {
        part: Part(
            name=part,
            shards=shards[part],
            vocab_size=tokenizer.vocab_size,
            document_token=tokenizer.document_token,
        )
        for part in PARTS
    }
    return Corpus(
        name=name,
        tokenizer=tokenizer,
        vocab_size=tokenizer.vocab_size,
        document_token=tokenizer.document_token,
        token_bytes=tokenizer.token_bytes(),
        train=parts["train"],
        validation=parts["validation"],
    )
