"""The words of a command line, with placeholders that are filled for each trial.

    python train.py --lr {lr} {amp?--amp|--no-amp} --out {directory}/model.pt

    {lr}                    the value, inside its word: it is never split, whatever it holds
    {amp?--amp}             a switch: words that are there where the value is not off (see `is_off`)
    {amp?--amp|--no-amp}    ... and those that are there where it is off
    {clip?--clip {clip}}    a switch of several words, which may hold values
    {*args}                 all parameters, in one of `FORMS`
    {env:HOME}              a variable of the environment in which the trial starts
    {{ }}                   braces; inside a switch also || for |

The text is split into words as a shell does it, and no shell runs. A word of placeholders alone that comes out empty is
left out, unless it is the value of the flag before it.

A parameter that is not active in a trial has no value. A word with its value is then left out, and so is the flag
before it whose value that word is. Of a switch, neither side is there.
"""

import dataclasses
import decimal
import itertools
import json
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from protein.errors import UsageError
from protein.spelling import nearest
from protein.types import Params, ParamValue

Called = Mapping[str, Sequence[str]]
"""What the program calls a parameter, where that is another name: its name in a table, after those of the tables."""
_OFF: Final = ("", "false", "no", "off", "none")
_ENVIRONMENT: Final = "env:"
_BREAK: Final = "\0"  # between two words; no word can hold it
# The end of a line that goes on in the next one; what is quoted stays as it is.
_CONTINUED = re.compile(r"""('[^']*'|"(?:\\.|[^"\\])*"|\\[^\r\n])|\\\r?\n""", re.DOTALL)
_OPENING = re.compile(r"\{([^{}?|\0]*)([?}])")
# Of what only a shell understands: see `refuse_shell`.
_QUOTED = re.compile(r"'[^']*'|\\.|\"((?:\\.|[^\"\\])*)\"", re.DOTALL)  # with what is in double quotes
_BRACES = re.compile(r"\{\{|\}\}|\{[^{}]*\}")
_SHELL = re.compile(r"(^|[\s/])(sh|bash|dash|zsh|ksh|fish)\s+(-\w+\s+)*-\w*c\b")
_OPERATOR = re.compile(r"\d?>&\d|&&|\|\||\d?>>?|<<?|[|;&`]")
_EXPANSION = re.compile(r"\$(\w+|\{[^}]*\}|\()")
_ASSIGNMENT = re.compile(r"\s*([A-Za-z_]\w*=\S*)(\s|$)")
_TOKEN = re.compile(r"\{\{|\}\}|\|\||[{}|\0]|[^{}|\0]+")


@dataclasses.dataclass(frozen=True, slots=True)
class _Value:
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Variable:
    name: str  # of the environment


@dataclasses.dataclass(frozen=True, slots=True)
class _All:
    form: str


@dataclasses.dataclass(frozen=True, slots=True)
class _Switch:
    name: str
    on: "tuple[_Word, ...]"
    off: "tuple[_Word, ...]"


_Part = str | _Value | _Variable | _All | _Switch
_Word = tuple[_Part, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Template:
    """A command line that was understood.

    Attributes:
        texts: its words as they were given.
        names: of the parameters in its placeholders, each once, in order.
        variables: of the environment, likewise.
        passes_all: whether a placeholder stands for all parameters.
        words: what each word is made of.
    """

    texts: tuple[str, ...]
    names: tuple[str, ...]
    variables: tuple[str, ...]
    passes_all: bool
    words: tuple[_Word, ...]

    def filled(
        self,
        values: Params,
        *,
        parameters: Params | None = None,
        called: Called | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Returns the words of a trial, whose values may lack what is not active.

        The parameters are those of `{*args}`, with what the program calls them.

        Without an environment, it is that of this process.

        Raises:
            UsageError: a variable of the environment is not set.
        """
        of_program = called or {}
        around = os.environ if environment is None else environment

        def text(part: _Part) -> str:
            match part:
                case _Value(name):
                    return text_of(values[name])
                case _Variable(name):
                    return _variable(name, around)
                case _All(form):
                    return shlex.join(FORMS[form](parameters or {}, of_program))
                case _Switch():
                    return " ".join(fill(side(part)))
                case _:
                    return part

        def side(switch: _Switch) -> tuple[_Word, ...]:
            return switch.off if is_off(values[switch.name]) else switch.on

        def fill(words: Sequence[_Word]) -> list[str]:
            found: list[str] = []
            before: _Word = ()
            for word in words:
                match word:
                    case _ if any(isinstance(part, _Value | _Switch) and part.name not in values for part in word):
                        if _is_flag(before) and not _brings_flags(word):
                            found.pop()
                    case (_Switch() as switch,):
                        found += fill(side(switch))
                    case (_All(form),):
                        found += FORMS[form](parameters or {}, of_program)
                    case _:
                        filled = "".join(map(text, word))
                        optional = bool(word) and not any(isinstance(part, str) for part in word)
                        if filled or not optional or _is_flag(before):
                            found.append(filled)
                before = word
            return found

        return fill(self.words)


def refuse_shell(text: str, what: str) -> None:
    """Raises `UsageError` for a command line that only a shell would understand: no shell runs.

    What is in single quotes, or behind a backslash, means itself. So do variables in double quotes where the command
    line runs a shell of its own.
    """
    outside = variables = _QUOTED.sub(" ", text)
    if _SHELL.search(text) is None:
        variables += " " + " ".join(match[1] or "" for match in _QUOTED.finditer(text))
    before = ""
    while outside != before:  # of a switch, "|" is a part
        before, outside = outside, _BRACES.sub(" ", outside)
    if (found := _OPERATOR.search(outside)) is not None:
        then = f"{found[0]!r} would be a word for the program"
    elif (found := _EXPANSION.search(variables)) is not None:
        then = f"{found[0]!r} would stay as it is; {{env:NAME}} is a variable of the environment, {{NAME}} a parameter"
    elif (found := _ASSIGNMENT.match(text)) is not None:
        raise UsageError(f"{what}: no shell runs, so {found[1]!r} would be the program; write 'env {found[1]} ...'")
    else:
        return
    raise UsageError(f"{what}: no shell runs, so {then}; write \"sh -c '...'\", or put it in single quotes")


def parse(text: str, what: str) -> Template:
    """Returns the template that a text describes. Messages call it `what`, as in `--command`.

    Raises:
        UsageError: it has no words, a quotation mark or brace that is not closed, or a placeholder that says nothing.
    """
    try:
        texts = shlex.split(_CONTINUED.sub(r"\1", text))
    except ValueError as error:
        raise UsageError(f"{what} {text!r:.200} cannot be split into words: {error}; close every quotation") from error
    if not texts:
        raise UsageError(f"{what} is empty; give a command, as in {what} 'python train.py --lr {{lr}}'")
    if _BREAK in text:
        raise UsageError(f"{what} {text!r:.200} holds the character NUL, which no program can be given; leave it out")
    reader = _Reader(_BREAK.join(texts), what)
    words = reader.words(inside=False)
    parts = list(_flat(words))
    names = [part.name for part in parts if isinstance(part, _Value | _Switch)]
    return Template(
        texts=tuple(texts),
        names=tuple(dict.fromkeys(names)),
        variables=tuple(dict.fromkeys(part.name for part in parts if isinstance(part, _Variable))),
        passes_all=any(isinstance(part, _All) for part in parts),
        words=words,
    )


class _Reader:
    """Reads words and their placeholders, from left to right."""

    def __init__(self, text: str, what: str) -> None:
        self._text, self._what, self._at = text, what, 0

    def words(self, *, inside: bool) -> tuple[_Word, ...]:
        """Returns the words up to the end; or, inside a switch, up to its `|` or `}`, without empty ones."""
        found: list[list[_Part]] = [[]]
        while (token := _TOKEN.match(self._text, self._at)) is not None:
            given = token.group()
            if inside and given in "|}":
                break
            if given == "}":
                raise self._error(f"a single }} in {self._word()}; write }}}} for a brace")
            if given == "{":
                found[-1].append(self._placeholder(inside=inside))
                continue
            self._at = token.end()
            if given == _BREAK:
                found.append([])
            else:
                found[-1].append(given[0] if given in ("{{", "}}") or (inside and given == "||") else given)
        return tuple(tuple(word) for word in found if word or not inside)

    def _placeholder(self, *, inside: bool) -> _Part:
        start, opening = self._at, _OPENING.match(self._text, self._at)
        if opening is None:
            raise self._error(f"a single {{ in {self._word()}; write {{{{ for a brace")
        name, self._at = opening.group(1), opening.end()
        if not name:
            raise self._error(f"an empty placeholder in {self._word(start)}; name a parameter, or write {{{{}}}}")
        is_switch, form = opening.group(2) == "?", name.removeprefix("*")
        if inside and (is_switch or form != name):
            raise self._error(
                f"{opening.group()!r} inside a switch, in {self._word(start)}; write it behind the switch"
            )
        if is_switch:
            return self._switch(name, start)
        if name.startswith(_ENVIRONMENT):
            return _Variable(name.removeprefix(_ENVIRONMENT))
        if form == name:
            return _Value(name)
        if form not in FORMS:
            raise self._error(f"{{{name}}} is no form of all parameters{nearest(form, FORMS)}")
        return _All(form)

    def _switch(self, name: str, start: int) -> _Switch:
        on, off = self.words(inside=True), tuple[_Word, ...]()
        if self._text[self._at : self._at + 1] == "|":
            self._at += 1
            off = self.words(inside=True)
        if self._text[self._at : self._at + 1] != "}":
            written = f"{{{name}?--flag}} or {{{name}?--flag|--no-flag}}"
            raise self._error(f"the switch in {self._word(start)} is not closed; write it as {written}")
        self._at += 1
        if not on and not off:
            raise self._error(f"the switch in {self._word(start)} has no words; write it as {{{name}?--flag}}")
        return _Switch(name, on, off)

    def _word(self, place: int | None = None) -> str:
        """Returns the word that stands at a place, for a message."""
        at = self._at if place is None else place
        first, last = self._text.rfind(_BREAK, 0, at) + 1, self._text.find(_BREAK, at)
        return f"{self._text[first : last if last >= 0 else None]!r:.100}"

    def _error(self, text: str) -> UsageError:
        return UsageError(f"{self._what}: {text}")


def _flat(words: Sequence[_Word]) -> Iterator[_Part]:
    """Returns every part of the words, those inside switches included."""
    for word in words:
        for part in word:
            yield part
            if isinstance(part, _Switch):
                yield from _flat((*part.on, *part.off))


def _is_flag(word: _Word) -> bool:
    """Whether a word is a flag whose value is the next word."""
    text = "".join(part for part in word if isinstance(part, str))
    return all(isinstance(part, str) for part in word) and text.startswith("-") and "=" not in text


def _brings_flags(word: _Word) -> bool:
    """Whether a word is a switch of flags, and no value."""
    match word:
        case (_Switch(on=on, off=off),):
            return any(_is_flag(side[0]) for side in (on, off) if side)
    return False


def check_names(template: Template, parameters: Sequence[str], what: str, *, also: Sequence[str] = ()) -> None:
    """Raises `UsageError` where a placeholder names neither a parameter nor one of `also`, or no set variable."""
    known = [*parameters, *also]
    for name in template.names:
        if name not in known:
            braces = "" if name.isidentifier() else "; write {{ and }} for braces of the program"
            if name in os.environ:
                braces = f"; write {{env:{name}}} for the environment variable"
            raise UsageError(
                f"{what} has the placeholder {{{name}}}, but no parameter is called so{nearest(name, known)}{braces}"
            )
    for name in template.variables:
        _variable(name, os.environ)


def missing(template: Template, parameters: Sequence[str]) -> list[str]:
    """Returns the parameters that no placeholder passes."""
    return [] if template.passes_all else [name for name in parameters if name not in template.names]


def unflagged(template: Template, names: Collection[str]) -> list[str]:
    """Returns those of some parameters whose value is a word by itself, so that the next words move up without it."""
    found: list[str] = []
    for before, word in itertools.pairwise([(), *template.words]):
        text = "".join(part for part in word if isinstance(part, str))
        if not _is_flag(before) and not text.startswith("-") and "=" not in text:
            found += [part.name for part in word if isinstance(part, _Value) and part.name in names]
    return found


def is_off(value: ParamValue) -> bool:
    """Whether a switch leaves out its words: for False, 0, an empty text, and the words false, no, off and none."""
    return value.lower() in _OFF if isinstance(value, str) else not value


def text_of(value: ParamValue) -> str:
    """Returns a value as a program reads it on its command line: True, 3, 0.001, adam, None; lists as JSON."""
    if isinstance(value, str):
        return str(value)  # that of NumPy is a class of its own
    text = json.dumps(value) if isinstance(value, list | dict) else repr(value)
    if isinstance(value, float) and text.startswith("-") and "e" in text:  # argparse takes -1e-05 for a flag
        return format(decimal.Decimal(text), "f")
    return text


def flag_of(name: str, called: Called) -> str:
    """Returns what the program calls a parameter, with dots after the names of tables."""
    return ".".join(called.get(name, (name,)))


def as_tables(parameters: Params, called: Called) -> dict[str, Any]:
    """Returns parameters as the program's own tables, for JSON."""
    found: dict[str, Any] = {}
    for name, value in parameters.items():
        *tables, key = called.get(name, (name,))
        table = found
        for one in tables:
            table = table.setdefault(one, {})
        table[key] = value
    return found


def _variable(name: str, environment: Mapping[str, str]) -> str:
    if name not in environment:
        raise UsageError(f"the command needs the environment variable {name}, which is not set; export {name}=VALUE")
    return environment[name]


def _args(parameters: Params, called: Called) -> list[str]:
    return [f"--{word}" for word in _args_no_hyphens(parameters, called)]


def _args_no_hyphens(parameters: Params, called: Called) -> list[str]:
    return [f"{flag_of(name, called)}={text_of(value)}" for name, value in parameters.items()]


def _args_no_equals(parameters: Params, called: Called) -> list[str]:
    pairs = [(f"--{flag_of(name, called)}", text_of(value)) for name, value in parameters.items()]
    return [word for pair in pairs for word in pair]


def _args_no_boolean_flags(parameters: Params, called: Called) -> list[str]:
    booleans = {name for name, value in parameters.items() if isinstance(value, bool)}
    given = {name: value for name, value in parameters.items() if value or name not in booleans}
    words = zip(given, _args(given, called), strict=True)
    return [f"--{flag_of(name, called)}" if name in booleans else word for name, word in words]


def _args_json(parameters: Params, called: Called) -> list[str]:
    return [json.dumps(as_tables(parameters, called))]


FORMS: Mapping[str, Callable[[Params, Called], list[str]]] = {
    "args": _args,  # --lr=0.1
    "args_no_equals": _args_no_equals,  # --lr 0.1
    "args_no_hyphens": _args_no_hyphens,  # lr=0.1
    "args_no_boolean_flags": _args_no_boolean_flags,  # --lr=0.1; --amp for True, and nothing for False
    "args_json": _args_json,  # {"lr": 0.1}
}
"""The forms of all parameters, by their names in W&B: each returns the words."""
