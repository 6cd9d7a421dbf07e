"""The files of tokens that llm.c and modded-nanogpt use, such as those of FineWeb: `fineweb_train_000001.bin`.

A file has a header of 256 int32 (20240520, the version 1, the number of tokens, zeros), and then GPT-2's tokens as
uint16. Each document begins with GPT-2's `<|endoftext|>`; a file may begin in the middle of one.

The folder must hold the tokenizer's files, too, because the score is in bits a byte: `vocab.json` and `merges.txt` as
OpenAI released them for GPT-2, or `tokenizer.json`.

Source: llm.c, `dev/data/data_common.py`.
"""

import struct
from pathlib import Path

import numpy as np

from ...errors import DataError
from . import bpe
from .shards import Shard

MAGIC = 20240520
VERSION = 1
HEADER_BYTES = 256 * 4
_PATTERNS = {"train": "*train*.bin", "validation": "*val*.bin"}


def are_in(folder: Path) -> bool:
    """Whether a folder holds such files."""
    return any(_begins_like_one(path) for path in folder.glob("*.bin"))


def shards(folder: Path, part: str) -> list[Shard]:
    """Returns the files of a part, each of the right size.

    Raises:
        DataError: there are none, one is damaged, or a name says both parts, as `pretrain_val_000000.bin` does.
    """
    pattern = _PATTERNS[part]
    paths = sorted(folder.glob(pattern))
    for path in paths:
        if all(path.match(other) for other in _PATTERNS.values()):
            raise DataError(
                f"the name of {path} fits {' and '.join(_PATTERNS.values())}, so its text would be for training and for"
                " validation: rename it, so that it fits one of the two"
            )
    found = [_shard(path) for path in paths]
    if not found:
        raise DataError(f"{folder} holds no {pattern}, the {part} text: give a folder with both parts")
    return found


def tokenizer(folder: Path) -> bpe.BytePairs:
    """Returns the tokenizer whose files lie beside the shards.

    Raises:
        DataError: there are none.
    """
    if not bpe.is_at_hand(folder):
        raise DataError(
            f"{folder} holds no tokenizer, so bits per byte cannot be measured: put GPT-2's vocab.json and merges.txt,"
            " or its tokenizer.json, beside the shards"
        )
    return bpe.read(folder)


def _shard(path: Path) -> Shard:
    header = _header(path)
    if len(header) < 12:
        raise DataError(
            f"{path} has {len(header)} bytes, and its header alone takes {HEADER_BYTES}: get the file again"
        )
    magic, version, num_tokens = struct.unpack("<3i", header)
    if (magic, version) != (MAGIC, VERSION):
        raise DataError(
            f"{path} begins with {magic}, {version}, and a file of GPT-2's tokens with {MAGIC}, {VERSION}: it holds"
            " something else, or tokens of another type: leave it out, or get the file again"
        )
    shard = Shard(path=path, num_tokens=num_tokens, dtype=np.dtype("<u2"), header_bytes=HEADER_BYTES)
    shard.check_size()
    return shard


def _begins_like_one(path: Path) -> bool:
    header = _header(path)
    return len(header) == 12 and struct.unpack("<i", header[:4])[0] == MAGIC


def _header(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(12)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}: check the path and its permissions") from error
