"""From files of text to a folder of shards: which text goes to which part, in pieces that fit the memory.

A document is a file, or the `text` of a line of a `.jsonl` file. It goes to the training or the validation part by the
hash of its text alone, so copies are in the same part, and more files do not move those that were there. A document
so large that it would weigh on the split is cut instead: its end is validation text.

The folder is written beside its place and renamed at the end, so it is there as a whole or not at all.
"""

import contextlib
import dataclasses
import hashlib
import json
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from protein import files

from ...errors import DataError, DiskError
from .shards import FILE_NAME, FORMAT, PARTS, SHARD_TOKENS, Description, ShardWriter, dtype_for
from .tokenizers import BYTES, Bytes, Tokenizer

PIECE_BYTES = 1 << 20  # about what is encoded as one text
_BATCH_BYTES = 16 << 20  # what is encoded together, on all cores
_CUT_SHARE = 0.1  # a document larger than this part of the validation text is cut
_JSON_LINES = (".jsonl", ".ndjson")

LEARN_BYTES = 256 << 20  # of text that a tokenizer is learned from, about

Report = Callable[[int], None]  # is told how many bytes of the files are done


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file, or a text out of one: `text` is None where the document is the whole file.

    `file_bytes` is how much of the file one byte of text takes, so that progress can be told.
    """

    path: Path
    text: bytes | None = None
    file_bytes: float = 1.0

    def size(self) -> int:
        """Returns its bytes."""
        return len(self.text) if self.text is not None else self.path.stat().st_size

    def pieces(self, first: int = 0, last: int | None = None) -> Iterator[bytes]:
        """Yields the text from byte `first` to byte `last`, in pieces that end with a line where lines are short.

        Raises:
            DataError: the file cannot be read.
        """
        left = self.size() - first if last is None else last - first
        with _reading(self.path), contextlib.ExitStack() as stack:
            source = None if self.text is not None else stack.enter_context(self.path.open("rb"))
            if source is not None:
                source.seek(first)
            kept, place = b"", first
            while left > 0:
                size = min(left, PIECE_BYTES)
                read = source.read(size) if source is not None else (self.text or b"")[place : place + size]
                if not read:
                    break  # the file has become shorter
                place, left = place + len(read), left - len(read)
                whole = kept + read
                end = len(whole) if left <= 0 else _break_before(whole)
                if end:
                    yield whole[:end]
                kept = whole[end:]
            if kept:
                yield kept

    def digest(self) -> float:
        """Returns a number in [0, 1) that depends on the text alone."""
        found = hashlib.blake2b(digest_size=8)
        for piece in self.pieces():
            found.update(piece)
        return int.from_bytes(found.digest()) / 2**64


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How text is split. A document with more bytes than `cut_above` is cut; None: none is."""

    validation_share: float
    cut_above: float | None = None

    @classmethod
    def of(cls, share: float, total_bytes: int) -> "Split":
        """Returns the split of texts that have `total_bytes` bytes together."""
        return cls(validation_share=share, cut_above=total_bytes * share * _CUT_SHARE)

    def parts(self, document: Document) -> list[tuple[str, int, int]]:
        """Returns which bytes of a document go to which part: (part, first, last)."""
        size = document.size()
        if self.cut_above is None or size <= self.cut_above:
            part = "validation" if document.digest() < self.validation_share else "train"
            return [(part, 0, size)]
        cut = _next_line(document, round(size * (1 - self.validation_share)))
        return [
            (part, first, last) for part, first, last in (("train", 0, cut), ("validation", cut, size)) if last > first
        ]


def find_files(paths: Sequence[Path], match: str | None = None) -> list[Path]:
    """Returns the files of `paths`, in order and each once.

    Args:
        paths: files, and folders, all of whose files are taken but hidden ones and those of a folder of tokens.
        match: files in folders must have such a name, as in `*.py`; None: any.

    Raises:
        DataError: a path is not there, a folder holds no such file, or `match` begins with a slash.
    """
    if match is not None and Path(match).is_absolute():
        raise DataError(f"the pattern '{match}' begins with a slash, and is for names within a folder: drop the slash")
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(
                file for file in path.rglob(match or "*") if file.is_file() and not _is_hidden(file.relative_to(path))
            )
            made = {folder for folder in {file.parent for file in inside} if _holds_tokens(folder)}
            taken = [file for file in inside if file.parent not in made]
            if not taken:
                kind = "files" if match is None else f"files like '{match}'"
                but = " but tokens" if made else ""
                raise DataError(f"{path} holds no {kind}{but}: give files of text, or a folder of them")
            found += taken
        elif path.is_file():
            found.append(path)
        else:
            raise DataError(f"there is no file {path}: give files of text, or a folder of them")
    return list(dict.fromkeys(found))


def read_documents(files: Iterable[Path]) -> Iterator[Document]:
    """Yields the documents of files; empty ones are left out.

    Raises:
        DataError: a file cannot be read, or a line of JSON holds no text.
    """
    for path in files:
        if path.suffix not in _JSON_LINES:
            with _reading(path):
                size = path.stat().st_size
            if size:
                yield Document(path=path)
            continue
        with _reading(path), path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip() and (text := _text_of_line(path, number, line)):
                    yield Document(path=path, text=text, file_bytes=len(line) / len(text))


def training_texts(
    documents: Iterable[Document], split: Split, total_bytes: int, report: Report = lambda done: None
) -> Iterator[bytes]:
    """Yields the training text to learn a tokenizer from: all of it, or evenly spread pieces, 256 MiB in all.

    Args:
        total_bytes: of all documents together.
        report: is told how many bytes of the files have been looked at.

    Raises:
        DataError: a file cannot be read, or is no UTF-8.
    """
    share, taken, done = min(1.0, LEARN_BYTES / max(total_bytes, 1)), 0.0, 0.0
    for document in documents:
        for part, first, last in _located(document, split):
            for piece in document.pieces(first, last):
                done += len(piece) * document.file_bytes
                report(round(done))
                taken += share if part == "train" else 0.0
                if part == "train" and taken >= 1:
                    taken -= 1
                    _require_utf8(document.path, piece)
                    yield piece


def write_folder(
    target: Path,
    documents: Iterable[Document],
    tokenizer: Tokenizer,
    split: Split,
    *,
    shared: bool = False,
    remedy: str = "give another folder that may be written",
    shard_tokens: int = SHARD_TOKENS,
    report: Report = lambda done: None,
) -> Description:
    """Writes documents as a folder of shards, and returns what it holds.

    Args:
        target: the folder; there must be none yet.
        shared: another process may make the same folder at the same time. What it made first is kept.
        remedy: what helps where the folder cannot be written.
        shard_tokens: about how long a shard is.
        report: is told how many bytes of the files are done.

    Raises:
        DataError: a file cannot be read or encoded; or a part has no text.
        DiskError: the folder cannot be written.
    """
    temporary = target.parent / f".{target.name}.{secrets.token_hex(6)}"
    try:
        with contextlib.ExitStack() as cleaning:
            cleaning.enter_context(files.no_new_folder(target.parent))
            cleaning.callback(shutil.rmtree, temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            description = _write(temporary, documents, tokenizer, split, shard_tokens, report)
            try:
                temporary.rename(target)
            except OSError:
                if not (shared and target.is_dir()):
                    raise
            return description
    except OSError as error:
        raise DiskError(f"cannot write {target}: {error.strerror}: free some space, or {remedy}") from error


def _write(
    folder: Path,
    documents: Iterable[Document],
    tokenizer: Tokenizer,
    split: Split,
    shard_tokens: int,
    report: Report,
) -> Description:
    dtype = dtype_for(tokenizer.vocab_size)
    document_token = tokenizer.document_token
    writers = {
        part: ShardWriter(folder, part, dtype=dtype, document_token=document_token, shard_tokens=shard_tokens)
        for part in PARTS
    }
    waiting: list[tuple[str, bool, bytes]] = []  # part, whether it begins a document, text
    paths: list[Path] = []
    size, done = 0, 0.0

    def flush() -> None:
        nonlocal size
        for (part, begins, text), tokens in zip(waiting, _encoded(tokenizer, waiting, paths), strict=True):
            if begins:
                writers[part].begin()
            writers[part].add(tokens, len(text))
        size = 0
        waiting.clear()
        paths.clear()
        report(round(done))

    with contextlib.ExitStack() as stack:
        for writer in writers.values():
            stack.callback(writer.close)
        for document in documents:
            for part, first, last in _located(document, split):
                for number, piece in enumerate(document.pieces(first, last)):
                    waiting.append((part, number == 0, piece))
                    paths.append(document.path)
                    size += len(piece)
                    done += len(piece) * document.file_bytes
                    if size >= _BATCH_BYTES:
                        flush()
        flush()
    parts = {part: writer.close() for part, writer in writers.items()}
    for part, shards in parts.items():
        if not shards:
            share = split.validation_share
            raise DataError(
                f"no text is left for the {part} part at a validation share of {share:g}: give more text"
                f"{'' if part == 'train' else ', or a larger share'}"
            )
    description = Description(
        tokenizer=tokenizer.save(folder),
        vocab_size=tokenizer.vocab_size,
        document_token=document_token,
        dtype=dtype,
        parts=parts,
    )
    description.write(folder)
    return description


def _encoded(tokenizer: Tokenizer, waiting: Sequence[tuple[str, bool, bytes]], paths: Sequence[Path]) -> Any:
    texts = [text for _, _, text in waiting]
    if not isinstance(tokenizer, Bytes):
        for path, text in zip(paths, texts, strict=True):
            _require_utf8(path, text)
    return tokenizer.encode_all(texts)


def _require_utf8(path: Path, text: bytes) -> None:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 (byte 0x{text[error.start]:02x}): leave it out, convert it, as with iconv, or use"
            f" --tokenizer {BYTES}, which takes any file"
        ) from error


def _located(document: Document, split: Split) -> list[tuple[str, int, int]]:
    with _reading(document.path):
        return split.parts(document)


def _next_line(document: Document, place: int) -> int:
    """Returns where the line that holds a byte ends, or a place at which no UTF-8 character is cut."""
    following = next(document.pieces(place, min(document.size(), place + PIECE_BYTES)), b"")
    line = following.find(b"\n")
    if 0 <= line < len(following) - 1:
        return place + line + 1
    return place + next((index for index, byte in enumerate(following[:4]) if byte & 0xC0 != 0x80), 0)


def _break_before(text: bytes) -> int:
    """Returns how much of a text to take, so that neither a line nor a character is cut where that can be had."""
    line = text.rfind(b"\n") + 1
    if line > len(text) // 2:
        return line
    end = len(text) - 1
    while end > len(text) - 4 and text[end] & 0xC0 == 0x80:  # within a character of several bytes
        end -= 1
    return end


def _text_of_line(path: Path, number: int, line: bytes) -> bytes:
    try:
        text = json.loads(line)["text"]
        if not isinstance(text, str):
            raise TypeError(f"text is {type(text).__name__}")
        return text.encode("utf-8", errors="surrogatepass")
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise DataError(
            f"{path}, line {number}: no JSON object with a 'text' ({type(error).__name__}: {error}):"
            " mend the line, or rename the file if it is plain text"
        ) from error


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turns an error while a file is read into one line."""
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}: check the path and its permissions") from error


def _holds_tokens(folder: Path) -> bool:
    """Whether a folder is one that `write_folder` has made: no text, though tokens by bytes would take it for one."""
    try:
        with (folder / FILE_NAME).open("rb") as file:
            return FORMAT.encode() in file.read(100)
    except OSError:
        return False


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
