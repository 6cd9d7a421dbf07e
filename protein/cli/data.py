"""`protein data`: from files of text to a folder of tokens, and what such a folder holds."""

import shutil
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from protein.cli import INTERRUPTED_CODE
from protein.cli.arguments import DataArguments
from protein.cli.output import Progress, answer
from protein.cli.parse import Command
from protein.cli.signals import caught
from protein.errors import UsageError
from protein.spelling import counted, nearest
from protein.trainer.language.data import preparing, tokenizers
from protein.trainer.language.data.corpus import Corpus, Part, open_corpus
from protein.trainer.language.data.shards import Description
from protein.trainer.language.data.tokenizers import BYTES, open_tokenizer
from protein.units import format_size
from protein.view import commands

LEARNED = "bpe"  # the tokenizer that is learned from the text
_VOCABULARY = 4096
_VALIDATION = 0.05
_MAX_VALIDATION = 0.5
_MAX_VOCABULARY = 1 << 20
_LOOK_SECONDS = 0.2  # between looks for a signal

T = TypeVar("T")


def run(command: Command) -> int:
    arguments: DataArguments = command.arguments
    known: Mapping[str, Callable[[DataArguments], int]] = {"tokenize": _tokenize, "show": _show}
    if arguments.action is None:
        raise UsageError(f"data needs what to do: {', '.join(known)}, as in protein data tokenize FILES --into FOLDER")
    if arguments.action not in known:
        raise UsageError(f"data has no action {arguments.action!r:.40}{nearest(arguments.action, known)}")
    return known[arguments.action](arguments)


def _tokenize(arguments: DataArguments) -> int:
    into = _target(arguments)
    share = _VALIDATION if arguments.validation is None else arguments.validation
    if not 0 < share <= _MAX_VALIDATION:
        raise UsageError(f"--validation {share:g} must be above 0 and at most {_MAX_VALIDATION:g}; give one like 0.05")
    chosen = arguments.tokenizer or BYTES
    if arguments.vocabulary is not None and chosen != LEARNED:
        raise UsageError(f"--vocabulary is for --tokenizer {LEARNED} alone; drop it for {chosen}")
    vocabulary = _VOCABULARY if arguments.vocabulary is None else arguments.vocabulary
    if not tokenizers.MIN_VOCABULARY <= vocabulary <= _MAX_VOCABULARY:
        raise UsageError(
            f"--vocabulary {vocabulary} must be from {tokenizers.MIN_VOCABULARY} (the bytes, and the token that begins"
            f" a document) to {_MAX_VOCABULARY:,}; give another number"
        )
    tokenizer = None if chosen == LEARNED else open_tokenizer(chosen)
    files = preparing.find_files(arguments.paths, arguments.match)
    total = sum(file.stat().st_size for file in files)
    if not total:
        raise UsageError(f"{counted(len(files), 'file holds', 'files hold')} no text; give files of text")
    if chosen == BYTES:
        _require_space(into, 2 * total)  # a token of uint16 for each byte
    split = preparing.Split.of(share, total)
    stop = threading.Event()
    try:
        with caught(stop):
            if tokenizer is None:
                report = _reporting(f"reading text for {LEARNED}", total, stop)
                texts = preparing.training_texts(preparing.read_documents(files), split, total, report)
                tokenizer = _interruptible(lambda: tokenizers.learn(texts, vocabulary), stop)
            report = _reporting("tokenizing", total, stop)
            documents = preparing.read_documents(files)
            description = preparing.write_folder(into, documents, tokenizer, split, report=report)
    except KeyboardInterrupt:
        print("interrupted: nothing was written", file=sys.stderr)
        return INTERRUPTED_CODE
    train = commands.command("train", "--data.path", str(into))
    more = (f"written: {into}; train on it with", f"  {train}")
    _print(arguments.json, into, description.vocab_size, _written(description), *more)
    return 0


def _target(arguments: DataArguments) -> Path:
    """Returns the folder to write. Raises `UsageError` where it is missing or taken, or nothing is to be read."""
    if not arguments.paths:
        raise UsageError("tokenize needs files of text, as in protein data tokenize book.txt --into data/book")
    if arguments.into is None:
        raise UsageError("tokenize needs a folder to write: --into FOLDER, as in --into data/book")
    into = arguments.into
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise UsageError(f"--into {into} is there already, and is not replaced; give another folder, or delete it")
    return into


def _require_space(into: Path, needed: int) -> None:
    place = into.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < needed:
        raise UsageError(
            f"--into {into} needs {format_size(needed)}, and its disk has {format_size(free)} free; free some space, or"
            " give another folder"
        )


def _interruptible(work: Callable[[], T], stop: threading.Event) -> T:
    """Returns what `work` returns. On a signal it is abandoned, and ends with the process.

    It runs in a thread of its own: Python sees a signal in the main thread alone, and only between its own operations,
    and a tokenizer is learned outside of Python.

    Raises:
        KeyboardInterrupt: a signal has come.
    """
    found: list[T] = []
    failed: list[BaseException] = []

    def call() -> None:
        try:
            found.append(work())
        except BaseException as error:  # whatever it is, the calling thread raises it
            failed.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    while thread.is_alive():
        if stop.is_set():
            raise KeyboardInterrupt
        thread.join(_LOOK_SECONDS)
    if failed:
        raise failed[0]
    return found[0]


def _reporting(what: str, total: int, stop: threading.Event) -> Callable[[int], None]:
    """Returns what is told the bytes of text that were read. It raises `KeyboardInterrupt` where a signal has come."""
    progress = Progress(shown=format_size)
    progress(what, 0, total)

    def report(done: int) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        progress(what, done, total)

    return report


def _show(arguments: DataArguments) -> int:
    for flag in ("into", "match", "tokenizer", "vocabulary", "validation"):
        if getattr(arguments, flag) is not None:
            raise UsageError(f"--{flag} is for protein data tokenize alone; drop it for show")
    if len(arguments.paths) != 1:
        raise UsageError(f"show needs one folder of tokens, got {len(arguments.paths)}; give one, as data/book")
    corpus = open_corpus(arguments.paths[0])
    found = {part.name: _contents(corpus, part) for part in (corpus.train, corpus.validation)}
    _print(arguments.json, arguments.paths[0], corpus.vocab_size, found)
    return 0


def _contents(corpus: Corpus, part: Part) -> dict[str, int]:
    """Returns what a part holds, counted. All of its tokens are read."""
    import numpy as np

    found = {"shards": len(part.shards), "tokens": part.num_tokens, "documents": 0, "bytes": 0}
    for index in range(len(part.shards)):
        loaded = part.load(index)
        found["documents"] += len(loaded.starts)
        counts = np.bincount(loaded.tokens, minlength=corpus.vocab_size)
        found["bytes"] += int(counts @ corpus.token_bytes)
    return found


def _written(description: Description) -> dict[str, dict[str, int]]:
    """Returns what has been written into each part."""
    return {
        part: {
            "shards": len(shards),
            **{key: sum(shard[key] for shard in shards) for key in ("tokens", "documents", "bytes")},
        }
        for part, shards in description.parts.items()
    }


def _print(as_json: bool, folder: Path, vocab_size: int, found: Mapping[str, Mapping[str, int]], *more: str) -> None:
    """Prints what a folder holds; `more` lines for people alone."""
    lines = [f"vocabulary: {counted(vocab_size, 'token')}"]
    for part, has in found.items():
        counts = f"{_counted(has['documents'], 'document')} in {_counted(has['shards'], 'shard')}"
        bytes_per_token = has["bytes"] / max(has["tokens"], 1)
        size = format_size(has["bytes"])
        lines.append(
            f"{part}: {has['tokens']:,} tokens of {counts}, {size} of text ({bytes_per_token:.2f} bytes a token)"
        )
    answer(as_json, {"folder": str(folder), "vocab_size": vocab_size, **found}, (*lines, *more))


def _counted(number: int, what: str) -> str:
    return counted(number, what)
