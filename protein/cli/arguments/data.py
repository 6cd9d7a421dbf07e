"""Arguments of the command about text to train on: data."""

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional

from protein.cli.arguments.shared import Switch, shown
from protein.cli.values import value_spec


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataArguments:
    """Make tokens of text, for a language model to learn. ACTION is tokenize or show.

    tokenize reads files of text, and folders of them, and writes a folder for data.path. A file is one document; of a
    .jsonl file each line is one, the "text" of its object. show looks at such a folder, reads all of it and says what
    it holds."""

    action: Positional[Annotated[str | None, shown("ACTION", "(required)")]] = None
    """tokenize or show."""
    paths: Positional[Annotated[tuple[Path, ...], shown("PATH [PATH ...]", "(required)")]] = ()
    """tokenize: files of text, or folders of them. show: one folder of tokens, or python."""
    into: Annotated[Path | None, shown("FOLDER", "(required)")] = None
    """tokenize: the folder to write. There must be none yet."""
    match: Annotated[str | None, shown("PATTERN", "(default: all files)")] = None
    """tokenize: of folders take only files with such names, as in '*.py'. Hidden files are always left out."""
    tokenizer: Annotated[str | None, shown("bytes|bpe|PATH", "(default: bytes)")] = None
    """tokenize: bytes, a byte-pair encoding that is learned from the text, or a folder with the files of one: GPT-2's
    vocab.json and merges.txt, or tokenizer.json."""
    vocabulary: Annotated[int | None, value_spec(int, "--vocabulary"), shown("INT", "(default: 4_096)")] = None
    """tokenize, with bpe: how many tokens it learns."""
    validation: Annotated[float | None, value_spec(float, "--validation"), shown("SHARE", "(default: 0.05)")] = None
    """tokenize: share of the text that training does not see. A document goes to one side by the hash of its text."""
    json: Switch = False
    """Print JSON."""
