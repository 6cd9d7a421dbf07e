"""From text to tokens and back: what every tokenizer does, and the tokenizer by bytes (`bpe` has the others).

Every tokenizer here loses nothing: `decode(encode(text)) == text`. The document token stands for no text.
"""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from . import bpe

BYTES = "bytes"  # the name of the tokenizer that needs no file


class Tokenizer(Protocol):
    """What turns text into tokens.

    Attributes:
        vocab_size: tokens are below it.
        document_token: the token that begins each document.
    """

    @property
    def vocab_size(self) -> int: ...

    @property
    def document_token(self) -> int: ...

    def encode_all(self, texts: Sequence[bytes]) -> Sequence[npt.NDArray[np.int64]]:
        """Returns the tokens of several texts, without document tokens. It uses all cores.

        Raises:
            DataError: the tokenizer reads UTF-8, and a text is none; or a package is missing.
        """
        ...

    def encode(self, text: bytes) -> npt.NDArray[np.int64]:
        """Returns the tokens of one text, in the same way."""
        ...

    def decode(self, tokens: Iterable[int]) -> bytes:
        """Returns the text of tokens; a document token, or one that stands for nothing, gives none."""
        ...

    def token_bytes(self) -> npt.NDArray[np.int64]:
        """Returns how many bytes of text each token stands for, `vocab_size` numbers; 0 for the document token."""
        ...

    def save(self, folder: Path) -> str:
        """Writes the tokenizer's file, if it needs one, and returns the name by which `data.json` knows it."""
        ...


class Bytes:
    """Each byte is a token; token 256 begins a document."""

    vocab_size = 257
    document_token = 256

    def encode_all(self, texts: Sequence[bytes]) -> Sequence[npt.NDArray[np.int64]]:
        return [self.encode(text) for text in texts]

    def encode(self, text: bytes) -> npt.NDArray[np.int64]:
        return np.frombuffer(text, np.uint8).astype(np.int64)

    def decode(self, tokens: Iterable[int]) -> bytes:
        return bytes(token for token in tokens if token < 256)

    def token_bytes(self) -> npt.NDArray[np.int64]:
        counts = np.ones(self.vocab_size, np.int64)
        counts[self.document_token] = 0
        return counts

    def save(self, folder: Path) -> str:
        return BYTES


def open_tokenizer(path: str | Path) -> Tokenizer:
    """Returns the tokenizer `bytes`, or the byte-pair encoding of a file or a folder.

    Raises:
        DataError: there is none, or it cannot be used.
    """
    if str(path) == BYTES:
        return Bytes()
    return bpe.read(Path(path))


def digest(tokenizer: Tokenizer) -> str:
    """Returns a short text that is the same for two tokenizers only where each token means the same in both."""
    found = hashlib.blake2b(f"{tokenizer.vocab_size} {tokenizer.document_token}".encode(), digest_size=8)
    for token in range(tokenizer.vocab_size):
        text = tokenizer.decode([token])
        found.update(len(text).to_bytes(4))
        found.update(text)
    return found.hexdigest()


def text_of(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """Returns tokens as text to show; bytes that are no UTF-8 become a replacement character."""
    return tokenizer.decode(tokens).decode("utf-8", errors="replace")
