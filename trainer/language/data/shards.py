"""Files of tokens, read through the machine's memory map, and the `data.json` that says what a folder of them holds.

A folder holds the shards of two parts, `train` and `validation`. A shard is nothing but tokens, little-endian uint16
or uint32, one document after the other, each after the document token. `data.json` holds:

    format          "protein-tokens-1"
    tokenizer       "bytes", or the file of the tokenizer in the same folder
    vocab_size      tokens are below it
    document_token  the token that begins each document and stands for no text
    dtype           "uint16" or "uint32"
    train, validation    a list of shards, each with `file`, `tokens`, `bytes` (of text), `documents`, `largest` (token)
"""

import dataclasses
import json
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import DataError

FORMAT = "protein-tokens-1"
FILE_NAME = "data.json"
PARTS = ("train", "validation")
SHARD_TOKENS = 100_000_000  # about how long a shard is: documents are not cut
_SCAN_TOKENS = 1 << 20  # looked at together: they fit the processor's cache
_DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
_KEYS = {"file": str, "tokens": int, "bytes": int, "documents": int, "largest": int}

Tokens = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One file of tokens. `num_bytes` of text is None where nobody has counted them."""

    path: Path
    num_tokens: int
    dtype: np.dtype[Any]
    header_bytes: int = 0
    num_bytes: int | None = None

    def check_size(self) -> None:
        """Raises `DataError` unless the file is there and exactly as long as it must be."""
        try:
            found = self.path.stat().st_size
        except OSError as error:
            raise DataError(
                f"cannot read {self.path}: {error.strerror}: restore the file, or make the data again"
            ) from error
        expected = self._size(self.dtype.itemsize)
        if found == expected:
            return
        for name, dtype in _DTYPES.items():
            if found == self._size(dtype.itemsize):
                raise DataError(
                    f"{self.path} holds tokens of {name}, and is described as {self.dtype.name}: make the data again"
                )
        raise DataError(
            f"{self.path} has {found:,} bytes, and {self.num_tokens:,} tokens of {self.dtype.name} take"
            f" {expected:,}: it was {'cut short' if found < expected else 'changed'}; make the data again"
        )

    def _size(self, itemsize: int) -> int:
        return self.header_bytes + self.num_tokens * itemsize


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadedShard:
    """The tokens of a shard, and where its documents begin: ascending positions, the first of them 0."""

    tokens: Tokens
    starts: npt.NDArray[np.int64]


def load(shard: Shard, *, vocab_size: int, document_token: int) -> LoadedShard:
    """Returns a shard's tokens, which stay on the disk until they are read, and the beginnings of its documents.

    What comes before the first document token counts as a document: the end of one that another shard begins.

    Raises:
        DataError: the file is missing or has another size, or a token is not below `vocab_size`.
    """
    shard.check_size()
    try:
        with shard.path.open("rb") as file:
            # The map outlives the file's descriptor, and goes when the last array that looks into it goes.
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise DataError(f"cannot read {shard.path}: {error}: make the data again") from error
    tokens: Tokens = np.frombuffer(mapped, shard.dtype, shard.num_tokens, shard.header_bytes)
    starts: list[npt.NDArray[np.int64]] = []
    for first in range(0, len(tokens), _SCAN_TOKENS):
        part = tokens[first : first + _SCAN_TOKENS]
        if (largest := int(part.max())) >= vocab_size:
            raise DataError(
                f"{shard.path} holds token {largest}, and the vocabulary has {vocab_size:,}: "
                "it was made with another tokenizer; make the data again"
            )
        starts.append(np.flatnonzero(part == document_token) + first)
    found = np.concatenate(starts)
    begins_with_one = len(found) > 0 and found[0] == 0
    return LoadedShard(tokens=tokens, starts=found if begins_with_one else np.append(0, found))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What `data.json` says."""

    tokenizer: str
    vocab_size: int
    document_token: int
    dtype: str
    parts: dict[str, list[dict[str, Any]]]  # part -> its shards

    def write(self, folder: Path) -> None:
        """Writes `data.json`."""
        values = {
            "format": FORMAT,
            "tokenizer": self.tokenizer,
            "vocab_size": self.vocab_size,
            "document_token": self.document_token,
            "dtype": self.dtype,
            **self.parts,
        }
        (folder / FILE_NAME).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")

    def shards(self, folder: Path, part: str) -> list[Shard]:
        """Returns the shards of a part, each of the right size.

        Raises:
            DataError: a file is missing, cut short or of another type.
        """
        found = []
        for entry in self.parts[part]:
            shard = Shard(
                path=folder / entry["file"],
                num_tokens=entry["tokens"],
                dtype=_DTYPES[self.dtype],
                num_bytes=entry["bytes"],
            )
            shard.check_size()
            found.append(shard)
        return found


def read_description(folder: Path) -> Description:
    """Returns what the folder's `data.json` says, checked.

    Raises:
        DataError: it cannot be read, lacks something, or contradicts itself.
    """
    path = folder / FILE_NAME
    try:
        values: Any = json.loads(path.read_text(encoding="utf-8"))
        if values["format"] != FORMAT:
            raise DataError(
                f"cannot use {path}: its format is {values['format']!r:.40}, and this version reads '{FORMAT}':"
                " make the data again"
            )
        for shard in (shard for part in PARTS for shard in values[part]):
            for key, kind in _KEYS.items():
                if type(shard[key]) is not kind:
                    raise TypeError(f"{key} is {shard[key]!r:.40}")
        description = Description(
            tokenizer=str(values["tokenizer"]),
            vocab_size=int(values["vocab_size"]),
            document_token=int(values["document_token"]),
            dtype=values["dtype"],
            parts={part: values[part] for part in PARTS},
        )
        _DTYPES[description.dtype]
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}: check the path and its permissions") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"cannot use {path}: it is damaged ({type(error).__name__}: {error}): make the data again"
        ) from error
    for part in PARTS:
        for shard in description.parts[part]:
            if not 0 <= shard["largest"] < description.vocab_size:
                raise DataError(
                    f"cannot use {folder / shard['file']}: its largest token is {shard['largest']}, and the vocabulary"
                    f" has {description.vocab_size:,}: it was made with another tokenizer; make the data again"
                )
    return description


class ShardWriter:
    """Writes the documents of one part, as shards of about `SHARD_TOKENS` each.

    A document comes in pieces: `begin()`, then `add(...)` as often as it takes. Call `close()` at the end.
    """

    def __init__(
        self, folder: Path, part: str, *, dtype: str, document_token: int, shard_tokens: int = SHARD_TOKENS
    ) -> None:
        self._folder = folder
        self._part = part
        self._dtype = _DTYPES[dtype]
        self._document_token = document_token
        self._shard_tokens = shard_tokens
        self._file: Any = None
        self._shards: list[dict[str, Any]] = []

    def begin(self) -> None:
        """Begins a document, perhaps in a new shard."""
        if self._file is not None and self._shards[-1]["tokens"] >= self._shard_tokens:
            self.close()
        if self._file is None:
            name = f"{self._part}-{len(self._shards):05d}.bin"
            self._file = (self._folder / name).open("wb")
            self._shards.append({"file": name, "tokens": 0, "bytes": 0, "documents": 0, "largest": 0})
        self._shards[-1]["documents"] += 1
        self.add(np.array([self._document_token], np.int64), 0)

    def add(self, tokens: Sequence[int] | npt.NDArray[Any], num_bytes: int) -> None:
        """Writes a piece of the document: its tokens, which stand for `num_bytes` of text."""
        array = np.asarray(tokens)
        if not array.size:
            return
        entry = self._shards[-1]
        self._file.write(np.ascontiguousarray(array, self._dtype).data)
        entry["tokens"] += int(array.size)
        entry["bytes"] += num_bytes
        entry["largest"] = max(entry["largest"], int(array.max()))

    def close(self) -> list[dict[str, Any]]:
        """Waits until all is on the disk, and returns the shards, for `data.json`."""
        if self._file is not None:
            try:
                self._file.flush()
                os.fsync(self._file.fileno())  # a machine that loses power must leave no file of zeros
            finally:
                self._file.close()
                self._file = None
        return self._shards


def dtype_for(vocab_size: int) -> str:
    """Returns the smallest type that holds all tokens."""
    return "uint16" if vocab_size <= 1 << 16 else "uint32"
