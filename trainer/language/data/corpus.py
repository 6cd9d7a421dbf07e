"""What a run reads: the tokens of a corpus in two parts, its tokenizer, and how many bytes each token stands for.

The score of a run is minus the bits per byte: `nats / (ln 2 * bytes)`, both summed over the same targets. The document
token stands for 0 bytes and is left out of both sums, so that the number does not depend on how documents are cut.

A corpus is a folder of ours, a folder of the files that llm.c and modded-nanogpt use, or the built-in one, `python`.

Of llm.c's files, such as those of FineWeb (`fineweb_train_000001.bin`), each has a header of 256 int32 (20240520, the
version 1, the number of tokens, zeros), and then GPT-2's tokens as uint16. Each document begins with GPT-2's
`<|endoftext|>`; a file may begin in the middle of one. The folder must hold the tokenizer's files, too, because the
score is in bits a byte: `vocab.json` and `merges.txt` as OpenAI released them for GPT-2, or `tokenizer.json`.

The built-in corpus is the source text of the standard library of the Python that runs, by bytes. It needs no network. A
file goes to the training or to the validation part by its content alone, so a copy of a file is in the same part. Tests
are left out, as many installations have none. So are installed packages, tables that were generated (of character sets,
of help topics), and the files that were written when this Python was built, which name its machine. The tokens are kept
in the user's cache, in a folder named after the version and the files' sizes. They are written beside it and then
renamed, so several runs may start at once. All make the same tokens, and the first to finish wins.

Source: llm.c, `dev/data/data_common.py`.
"""

import dataclasses
import hashlib
import os
import platform
import struct
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...errors import ConfigError, DataError
from ..config import BUILT_IN
from . import tokenizers
from .preparing import Document, Split, write_folder
from .shards import FILE_NAME, PARTS, LoadedShard, Shard, load, read_description
from .tokenizers import BYTES, Bytes, Tokenizer, open_tokenizer

MAGIC = 20240520
VERSION = 1
HEADER_BYTES = 256 * 4
_PATTERNS = {"train": "*train*.bin", "validation": "*val*.bin"}
VALIDATION_SHARE = 0.1  # of the files
_VERSION = 1  # of the rules by which files are taken and split
_LEFT_OUT = frozenset(
    {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "encodings", "pydoc_data"}
)
_BUILT = ("_sysconfigdata", "_sysconfig_vars")


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
        made = built_in_folder()
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
    if not has_llm_shards(folder):
        raise DataError(
            f"data.path '{path}' holds no {FILE_NAME}, and no files of llm.c: make it with protein data tokenize FILES"
            " --into FOLDER"
        )
    parts = {part: llm_shards(folder, part) for part in PARTS}
    return _corpus(name, llm_tokenizer(folder), parts)


def has_llm_shards(folder: Path) -> bool:
    """Whether a folder holds llm.c's files."""
    return any(_begins_like_one(path) for path in folder.glob("*.bin"))


def llm_shards(folder: Path, part: str) -> list[Shard]:
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


def llm_tokenizer(folder: Path) -> tokenizers.BytePairs:
    """Returns the tokenizer whose files lie beside the shards.

    Raises:
        DataError: there are none.
    """
    if not tokenizers.is_at_hand(folder):
        raise DataError(
            f"{folder} holds no tokenizer, so bits per byte cannot be measured: put GPT-2's vocab.json and merges.txt,"
            " or its tokenizer.json, beside the shards"
        )
    return tokenizers.read(folder)


def built_in_folder() -> Path:
    """Returns the folder of the corpus, and makes it where it is not there yet, within a second.

    Raises:
        DataError: this Python has no source text.
        DiskError: the folder cannot be written.
    """
    root = sysconfig.get_paths()["stdlib"]
    files = sorted(_files(root))
    listing = hashlib.blake2b(digest_size=6)
    for path in files:
        listing.update(f"{path.removeprefix(root)} {os.stat(path).st_size}\n".encode())  # noqa: PTH116
    name = f"python-{platform.python_version()}-{_VERSION}-{listing.hexdigest()}"
    target = cache_folder() / name
    if not (target / FILE_NAME).exists():
        documents = [Document(path=Path(path)) for path in files]
        split = Split(validation_share=VALIDATION_SHARE)
        write_folder(target, documents, Bytes(), split, shared=True, remedy="set XDG_CACHE_HOME to another folder")
    return target


def cache_folder() -> Path:
    """Returns where made corpora are kept; it may not exist."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "protein" / "text"


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


def _files(root: str) -> Iterator[str]:
    """Yields the paths, as texts: every run lists them, and `Path` would take most of the time."""
    for parent, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        yield from (f"{parent}/{name}" for name in names if name.endswith(".py") and not name.startswith(_BUILT))
