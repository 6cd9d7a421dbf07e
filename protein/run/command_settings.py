"""How the command of a sweep is run and read, as it is stored with the sweep's definition.

A command line has placeholders:

    python train.py --lr {lr} --steps {steps} --out {directory}/model.pt

The text is split into words as a shell does it, and no shell runs. Then each placeholder is filled inside its word, so
a value is never split, whatever it holds. `{{` and `}}` stand for braces.
"""

import dataclasses
import decimal
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from protein.errors import UsageError
from protein.spelling import nearest
from protein.types import Params, ParamValue

Style = Literal["placeholders", "flags", "dashes", "json", "env"]
ScoreFrom = Literal["lines", "regex", "csv", "tensorboard"]

STYLES: tuple[Style, ...] = ("placeholders", "flags", "dashes", "json", "env")
SECTION = "command"  # of a sweep's config
PARAMS_FILE, CHECKPOINTS = "params.json", "checkpoint"  # in the trial's folder
# Beside the parameters. A parameter of the same name comes first.
OF_TRIAL = ("seed", "directory", "params_file")
_OURS = re.compile(r"PROTEIN_|CUDA_VISIBLE_DEVICES$")  # environment variables that we set
_OF_START = re.compile(r"(PATH|HOME)$|LD_|PYTHON")  # the program may not even start with another value
_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings:
    """A command and its reports.

    Attributes:
        text: the command line, with placeholders.
        params: how it gets the parameters that no placeholder names: as flags `--some_name value`, as flags
            with dashes `--some-name value`, in the JSON file $PROTEIN_PARAMS_FILE, or as environment variables;
            "placeholders": there are no others.
        score_from: where the score is read: JSON lines (on stdout), the log (by regular expressions), a CSV file or the
            event files of TensorBoard. JSON lines on $PROTEIN_REPORT_FD are read in any case.
        score: the regular expression, the column or the tag.
        steps: the regular expression or the column of the steps; "": none.
        file: the CSV file, or the folder of event files; relative to the trial's folder.
        resume: what is appended to the command line of a trial that goes on from `{checkpoint}`.
        chdir: the folder in which the command runs, which may hold `{directory}`; "": that of the sweep.
        fixed: values that the command gets beside the searched ones.
    """

    text: str
    params: Style = "flags"
    score_from: ScoreFrom = "lines"
    score: str = ""
    steps: str = ""
    file: str = ""
    resume: str = ""
    chdir: str = ""
    fixed: Mapping[str, ParamValue] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings as JSON-able data."""
        return {**dataclasses.asdict(self), "fixed": dict(self.fixed)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "CommandSettings":
        """Returns the settings that a sweep's config, or a trial's, holds. Raises `UsageError` where it has none."""
        known = {field.name for field in dataclasses.fields(cls)}
        try:
            return cls(**{key: value for key, value in config[SECTION].items() if key in known})
        except (KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"the stored command cannot be read ({error!r})") from error

    def check(self, names: tuple[str, ...]) -> None:
        """Raises `UsageError` where the command, its placeholders or its reading cannot work.

        Args:
            names: those of all parameters, the fixed ones included.
        """
        parsed = parse(self.text, "--command")
        check_names(parsed, names, "--command", also=OF_TRIAL)
        unnamed = missing(parsed, names)
        if self.params == "placeholders" and unnamed:
            near = nearest(unnamed[0], [name for name in parsed.names if name not in names] or parsed.names)
            raise UsageError(
                f"--command has no placeholder for the parameter '{unnamed[0]}'{near}; write {{{unnamed[0]}}} where its"
                " value goes, or say with --params flags, json or env how the others are passed"
            )
        if self.params == "env":
            _check_variables(unnamed)
        if self.resume:
            flag = parse(self.resume, "--resume-flag")
            check_names(flag, names, "--resume-flag", also=(*OF_TRIAL, "checkpoint"))
        if self.chdir:
            folder = parse(self.chdir, "--chdir")
            check_names(folder, (), "--chdir", also=("directory",))
        for pattern, what in ((self.score, "--score-regex"), (self.steps, "--steps-regex")):
            if self.score_from == "regex" and pattern:
                _check_pattern(pattern, what)


def style_of(text: str, names: tuple[str, ...], given: str | None) -> Style:
    """Returns how a command gets its parameters: as asked for, else by placeholders where it has any, else as flags."""
    if given is not None:
        for style in STYLES[1:]:
            if style == given:
                return style
        raise UsageError(f"--params '{given}' is unknown{nearest(given, STYLES[1:])}")
    used = parse(text, "--command").names
    own = [name for name in used if name not in OF_TRIAL or name in names]
    return "placeholders" if own else "flags"


def words(
    settings: CommandSettings, params: Params, *, seed: int, directory: str, resumes: Path | None = None
) -> list[str]:
    """Returns the command line of one trial.

    Args:
        settings: of the sweep.
        params: the searched values.
        seed: of the trial.
        directory: the trial's folder.
        resumes: what it goes on from; None: it begins anew.
    """
    values = {**settings.fixed, **params}
    texts = _texts(settings, params, seed=seed, directory=directory)
    parsed = parse(settings.text, "--command")
    found = parsed.filled(texts)
    if settings.params in ("flags", "dashes"):
        for name in missing(parsed, list(values)):
            flag = name.replace("_", "-") if settings.params == "dashes" else name
            found += [f"--{flag}", texts[name]]
    if resumes is not None and settings.resume:
        found += parse(settings.resume, "--resume-flag").filled({"checkpoint": str(resumes), **texts})
    return found


def variables(settings: CommandSettings, params: Params) -> dict[str, str]:
    """Returns the parameters that a trial gets as environment variables. A dot in a name becomes two underscores."""
    if settings.params != "env":
        return {}
    values = {**settings.fixed, **params}
    unnamed = missing(parse(settings.text, "--command"), list(values))
    return {_variable(name): text_of(values[name]) for name in unnamed}


def working_directory(settings: CommandSettings, directory: str) -> str | None:
    """Returns the folder in which a trial's command runs; None: that of the sweep."""
    if not settings.chdir:
        return None
    return os.path.expanduser(parse(settings.chdir, "--chdir").filled({"directory": directory})[0])  # noqa: PTH111


def _variable(name: str) -> str:
    return name.replace(".", "__")


def _check_variables(names: list[str]) -> None:
    """Raises `UsageError` for a parameter whose environment variable has another meaning for the program."""
    takers: dict[str, str] = {}
    for name in names:
        other = takers.setdefault(_variable(name), name)
        why = "" if other == name else f"'{other}' is {_variable(name)}, too"
        if _OURS.match(_variable(name)):
            why = "Protein sets it itself"
        elif _OF_START.match(_variable(name)):
            why = "the program's start depends on it"
        if why:
            raise UsageError(
                f"parameter '{name}' cannot be an environment variable of the program: {why}; rename it, or use"
                " --params json"
            )


def _texts(settings: CommandSettings, params: Params, *, seed: int, directory: str) -> dict[str, str]:
    of_trial = {"seed": str(seed), "directory": directory, "params_file": str(Path(directory) / PARAMS_FILE)}
    values = {**settings.fixed, **params}
    return of_trial | {name: text_of(value) for name, value in values.items()}


def _check_pattern(pattern: str, what: str) -> None:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise UsageError(f"{what} '{pattern}' is no regular expression: {error}") from error
    if groups == 0:
        raise UsageError(f"{what} '{pattern}' has no group; put the number in parentheses, as in 'reward: (\\S+)'")


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
        return str(value)  # that of NumPy is a class of its own
    text = repr(value)
    if isinstance(value, float) and text.startswith("-") and "e" in text:  # argparse takes -1e-05 for a flag
        return format(decimal.Decimal(text), "f")
    return text
