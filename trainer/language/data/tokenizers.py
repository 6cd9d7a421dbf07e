"""From text to tokens and back: what every tokenizer does, the tokenizer by bytes, and byte-pair encodings.

Every tokenizer here loses nothing: `decode(encode(text)) == text`. The document token stands for no text.

Byte-pair encodings are over bytes: GPT-2's own, any other in the same files, and one learned from text. The files are
those of GPT-2 (`vocab.json` with `merges.txt`) or of the package `tokenizers` (`tokenizer.json`). Decoding and the
bytes of each token need the file alone; encoding and learning need the package.

Whatever a file says about normalising text, adding tokens to it or recognising special tokens in it is not used. So
every text comes back as it was, and a text that spells `<|endoftext|>` is text, and no document token.

Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2, for the encoding; the
pre-tokenisation (the pattern that cuts text into words) of what is learned here is GPT-2's.
"""

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ...errors import DataError

BYTES = "bytes"  # the name of the tokenizer that needs no file
DOCUMENT = "<|endoftext|>"  # GPT-2's name of the token between documents
FILE_NAME = "tokenizer.json"
MIN_VOCABULARY = 257  # all bytes, and the document token
_MOST_TOKENS = 1 << 24
_LONG_WORD = re.compile(r"\S{1000}|\s{1000}")
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}


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


class BytePairs:
    """A byte-pair encoding. A file without a document token gets one, after its last token."""

    def __init__(self, content: dict[str, Any], source: str) -> None:
        """`content` as in a `tokenizer.json`; `source` names it in errors. Raises `DataError`: it cannot be used."""
        try:
            if content["model"]["type"] != "BPE" or "ByteLevel" not in _types(content["pre_tokenizer"]):
                raise DataError(
                    f"cannot use {source}: it is no byte-pair encoding over bytes, as GPT-2's is: give one, or bytes"
                )
            vocabulary: dict[str, int] = dict(content["model"]["vocab"])
            added = {entry["content"]: int(entry["id"]) for entry in content.get("added_tokens") or ()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"cannot use {source}: it is no tokenizer.json ({type(error).__name__}: {error}): get the file again"
            ) from error
        numbers = [*vocabulary.values(), *added.values()]
        if not all(type(number) is int and 0 <= number < _MOST_TOKENS for number in numbers):
            raise DataError(
                f"cannot use {source}: a token's number is no integer from 0 to {_MOST_TOKENS - 1:,}: get the file"
                " again"
            )
        missing = [byte for byte, letter in enumerate(_letters()) if letter not in vocabulary]
        if missing:
            raise DataError(
                f"cannot use {source}: it has no token for {len(missing)} of the 256 bytes: give another one, or bytes"
            )
        for name in ("continuing_subword_prefix", "end_of_word_suffix"):
            if mark := content["model"].get(name):
                raise DataError(
                    f"cannot use {source}: its tokens have a mark '{mark}' ({name}) that is no text: give an encoding"
                    " as GPT-2's is, or bytes"
                )
        largest = max(numbers)
        self.document_token = added.get(DOCUMENT, vocabulary.get(DOCUMENT, largest + 1))
        self.vocab_size = max(largest, self.document_token) + 1
        vocabulary[DOCUMENT] = self.document_token
        self._content = {
            **content,
            "truncation": None,
            "padding": None,
            "normalizer": None,
            "post_processor": None,
            "added_tokens": [],
            "pre_tokenizer": _without_prefix_space(content["pre_tokenizer"]),
            "model": {**content["model"], "vocab": vocabulary, "dropout": None},
        }
        self._added = list(content.get("added_tokens") or ())
        self._source = source
        self._texts = _texts(vocabulary, self.vocab_size, {self.document_token, *added.values()})
        self._sizes = np.array([len(text) for text in self._texts], np.int64)

    def encode_all(self, texts: Sequence[bytes]) -> Sequence[npt.NDArray[np.int64]]:
        """Returns the tokens of texts. Raises `DataError` where they would not give a text back, too."""
        if not any(texts):  # which needs no package
            return [np.zeros(0, np.int64) for _ in texts]
        try:
            found = self._library.encode_batch_fast([text.decode() for text in texts], add_special_tokens=False)
        except UnicodeDecodeError as error:
            raise DataError(
                f"a byte-pair encoding takes UTF-8, and the text has byte 0x{error.object[error.start]:02x} that is"
                " none: use the tokenizer bytes, or convert the text"
            ) from error
        tokens = [np.array(one.ids, np.int64) for one in found]
        for text, of_text in zip(texts, tokens, strict=True):
            if (kept := int(self._sizes[of_text].sum())) != len(text):
                raise DataError(
                    f"cannot use {self._source}: it makes {kept:,} bytes of {len(text):,} bytes of text, as one that"
                    " leaves out spaces does: give an encoding as GPT-2's is, or bytes"
                )
        return tokens

    def encode(self, text: bytes) -> npt.NDArray[np.int64]:
        return self.encode_all([text])[0]

    def decode(self, tokens: Iterable[int]) -> bytes:
        return b"".join(self._texts[token] for token in tokens if token < self.vocab_size)

    def token_bytes(self) -> npt.NDArray[np.int64]:
        return self._sizes.copy()

    def save(self, folder: Path) -> str:
        content = {**self._content, "added_tokens": self._added}  # without them it would have fewer tokens
        (folder / FILE_NAME).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        return FILE_NAME

    @functools.cached_property
    def _library(self) -> Any:
        tokenizers = _import_tokenizers(self._source)
        try:
            return tokenizers.Tokenizer.from_str(json.dumps(self._content))
        except Exception as error:  # the package raises nothing more special
            raise DataError(f"cannot use {self._source}: {error}: get the file again, or give bytes") from error


def open_tokenizer(path: str | Path) -> Tokenizer:
    """Returns the tokenizer `bytes`, or the byte-pair encoding of a file or a folder.

    Raises:
        DataError: there is none, or it cannot be used.
    """
    if str(path) == BYTES:
        return Bytes()
    return read(Path(path))


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


_GPT2_FILES = ("vocab.json", "merges.txt")


def read(path: Path) -> BytePairs:
    """Returns the encoding of a file `tokenizer.json`, or of a folder with that file or with GPT-2's two.

    Raises:
        DataError: there is none, or it is damaged.
    """
    file = path / FILE_NAME if path.is_dir() else path
    vocabulary, merges = (path / name for name in _GPT2_FILES)
    if path.is_dir() and not file.exists() and vocabulary.exists() and merges.exists():
        lines = _read(merges).split("\n")
        pairs = [line.rstrip("\r").split(" ") for line in lines if line.strip() and not line.startswith("#version")]
        return BytePairs(_content(_parsed(vocabulary), pairs), str(path))
    if not file.exists():
        needed = f"{FILE_NAME}, or {' and '.join(_GPT2_FILES)}"
        raise DataError(f"there is no tokenizer {path}: give bytes, bpe, or a folder with {needed}")
    return BytePairs(_parsed(file), str(file))


def is_at_hand(folder: Path) -> bool:
    """Whether a folder holds the files of an encoding."""
    return (folder / FILE_NAME).exists() or all((folder / name).exists() for name in _GPT2_FILES)


def learn(texts: Iterable[bytes], vocab_size: int) -> BytePairs:
    """Returns an encoding that is learned from texts. It may have fewer tokens where there is little text.

    Args:
        texts: UTF-8. They are read once; the number of times that each word occurs is kept in memory.
        vocab_size: tokens, with the 256 bytes and the document token.

    Raises:
        DataError: `vocab_size` is too small, or the package is missing.
    """
    if vocab_size < MIN_VOCABULARY:
        raise DataError(
            f"a vocabulary of {vocab_size} is too small for the bytes and the document token: give at least"
            f" {MIN_VOCABULARY}"
        )
    tokenizers = _import_tokenizers("bpe")
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab_size - 1,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator((part for text in texts for part in cut_words(text.decode())), trainer)
    learned = json.loads(model.to_str())["model"]
    return BytePairs(_content(learned["vocab"], learned["merges"]), "bpe")


def cut_words(text: str) -> Iterator[str]:
    """Yields a text in parts, in which no word is longer than 1,000 characters.

    The time in which the package learns from a word grows with the square of its length. Without this, a genome in one
    line takes hours.
    """
    begin = 0
    for found in _LONG_WORD.finditer(text):
        yield text[begin : found.end()]
        begin = found.end()
    yield text[begin:]


def _content(vocabulary: dict[str, int], merges: Sequence[Any]) -> dict[str, Any]:
    return {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": _BYTE_LEVEL,
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": list(merges),
        },
    }


def _types(pre_tokenizer: Any) -> list[str]:
    """Returns the kinds of a pre-tokeniser and of those that it is made of."""
    return [pre_tokenizer["type"], *(one["type"] for one in pre_tokenizer.get("pretokenizers", ()))]


def _without_prefix_space(pre_tokenizer: dict[str, Any]) -> dict[str, Any]:
    """Returns the pre-tokeniser without the space that some put before a text."""
    parts = pre_tokenizer.get("pretokenizers")
    changed = {**pre_tokenizer, "add_prefix_space": False} if "add_prefix_space" in pre_tokenizer else pre_tokenizer
    return changed if parts is None else {**changed, "pretokenizers": [_without_prefix_space(part) for part in parts]}


def _texts(vocabulary: dict[str, int], vocab_size: int, special: set[int]) -> list[bytes]:
    """Returns the bytes that each token stands for; none for special ones and for numbers that no token has."""
    byte_of = {letter: byte for byte, letter in enumerate(_letters())}
    texts = [b""] * vocab_size
    for letters, token in vocabulary.items():
        if token not in special:
            texts[token] = bytes(byte_of[letter] for letter in letters if letter in byte_of)
    return texts


@functools.cache
def _letters() -> tuple[str, ...]:
    """Returns the printable character by which the files write each byte.

    A byte that prints as itself in Latin-1 is itself; the others take the characters from 256 on, in order.
    """
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return tuple(chr(byte) if byte in printable else chr(next(others)) for byte in range(256))


def _import_tokenizers(what: str) -> Any:
    try:
        import tokenizers  # late, and optional
    except ImportError as error:
        raise DataError(
            f"the tokenizer {what} needs the package tokenizers: pip install 'protein-sweep[language]', or use bytes"
        ) from error
    return tokenizers


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise DataError(f"cannot read {path}: {reason}: check the path and its permissions") from error


def _parsed(path: Path) -> Any:
    try:
        return json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"cannot use {path}: it is no JSON ({error}): get the file again") from error
