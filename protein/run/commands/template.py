"""A command line with placeholders, and how a trial's values get into it.

    python train.py --lr {lr} --steps {steps} --out {directory}/model.pt

The text is split into words as a shell does it, and no shell runs. Then each placeholder is filled inside its word, so
a value is never split, whatever it holds. `{{` and `}}` stand for braces.
"""

import dataclasses
import decimal
import re
import shlex
from collections.abc import Mapping, Sequence

from protein.errors import UsageError
from protein.spelling import nearest
from protein.types import ParamValue

# Beside the parameters. A parameter of the same name comes first.
OF_TRIAL = ("seed", "directory", "params_file")
_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclasses.dataclass(frozen=True, slots=True)
class Template:
    """The words of a command line, and the names in its placeholders, each once, in order."""

    words: tuple[str, ...]
    names: tuple[str, ...]

    def filled(self, values: Mapping[str, str]) -> list[str]:
        """Returns the words with the values of all placeholders put in."""

        def part(match: re.Match[str]) -> str:
            name = match.group(1)
            return match.group(0)[0] if name is None else values[name]

        return [_PART.sub(part, word) for word in self.words]


def parse(text: str, what: str) -> Template:
    """Returns the template that a text describes.

    Args:
        text: the command line.
        what: what messages call it, as in `--command`.

    Raises:
        UsageError: it has no words, a quotation mark or brace that is not closed, or an empty placeholder.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{what} {text!r:.200} cannot be split into words: {error}; close every quotation") from error
    if not words:
        raise UsageError(f"{what} is empty; give a command, as in {what} 'python train.py --lr {{lr}}'")
    names: list[str] = []
    for word in words:
        for match in _PART.finditer(word):
            name, found = match.group(1), match.group(0)
            if found in "{}":
                raise UsageError(f"{what}: a single {found} in {word!r:.100}; write {2 * found} for a brace")
            if name is not None and not name:
                raise UsageError(f"{what}: an empty placeholder in {word!r:.100}; name a parameter, or write {{{{}}}}")
            if name is not None:
                names.append(name)
    return Template(tuple(words), tuple(dict.fromkeys(names)))


def check_names(template: Template, parameters: Sequence[str], what: str, *, also: Sequence[str] = ()) -> None:
    """Raises `UsageError` where a placeholder names neither a parameter nor one of `also`."""
    known = [*parameters, *also]
    for name in template.names:
        if name not in known:
            braces = "" if name.isidentifier() else "; write {{ and }} for braces of the program"
            raise UsageError(
                f"{what} has the placeholder {{{name}}}, but no parameter is called so{nearest(name, known)}{braces}"
            )


def missing(template: Template, parameters: Sequence[str]) -> list[str]:
    """Returns the parameters that no placeholder names."""
    return [name for name in parameters if name not in template.names]


def text_of(value: ParamValue) -> str:
    """Returns a value as a program reads it on its command line: True, 3, 0.001, adam."""
    if isinstance(value, str):
        return value
    text = repr(value)
    if isinstance(value, float) and text.startswith("-") and "e" in text:  # argparse takes -1e-05 for a flag
        return format(decimal.Decimal(text), "f")
    return text
