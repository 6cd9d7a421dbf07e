"""Flags for every value of a run config, generated from its dataclasses: `--train.learning-rate 1e-3`.

None stands for a flag that was not given. So a flag that is given with the default value still counts as given.

What tyro is given of a dataclass's fields is made here, too, so that a command line is read and explained quickly. Left
alone, tyro and docstring_parser parse a whole module once for every class in it, and tyro loads typeguard, which needs
0.07 s of CPU time, to compare a default with a type such as `str | None`.
"""

import ast
import dataclasses
import functools
import inspect
import math
import sys
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from protein.config.layers import Setting, flag, value_types
from protein.errors import UsageError
from protein.spelling import nearest
from protein.trainer.kinds import Kind

_TRUTH = {"true": True, "false": False}


def field_texts(kind: Any) -> dict[str, str]:
    """Returns the docstrings of a dataclass's fields, inherited ones included, each in one line, in the fields' order.

    A base that is no dataclass may hold texts, too, for fields that the dataclass declares without one.
    """
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        file = inspect.getsourcefile(sys.modules[base.__module__])
        if file is not None:
            found |= _texts_of_module(Path(file)).get(base.__qualname__, {})
    return {field.name: found[field.name] for field in dataclasses.fields(kind) if field.name in found}


@functools.cache
def _texts_of_module(file: Path) -> Mapping[str, Mapping[str, str]]:
    """Returns the docstrings of the fields of a module's classes: class -> field -> text."""
    classes = [node for node in ast.parse(file.read_bytes()).body if isinstance(node, ast.ClassDef)]
    return {node.name: _texts_of_class(node) for node in classes}


def _texts_of_class(node: ast.ClassDef) -> dict[str, str]:
    """Returns the texts that stand as strings behind fields."""
    found: dict[str, str] = {}
    for field, after in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
            value = after.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[field.target.id] = " ".join(value.value.split())
    return found


def with_old_unions(hint: Any) -> Any:
    """Returns a type with `typing.Union[X, None]` in place of `X | None`, which tyro understands without typeguard."""
    if isinstance(hint, types.UnionType):
        return Union[get_args(hint)]  # noqa: UP007
    if get_origin(hint) is Annotated:
        inner, *marks = get_args(hint)
        return Annotated[(with_old_unions(inner), *marks)]
    return hint


def with_none(hint: Any) -> Any:
    """Returns a type that may also be None, as the first thing that it is compared with."""
    if get_origin(hint) is Annotated:
        inner, *marks = get_args(hint)
        return Annotated[(with_none(inner), *marks)]
    return Union[None, hint]  # noqa: UP007


def value_spec(kind: Any, name: str = "") -> PrimitiveConstructorSpec[Any]:
    """Returns how tyro reads one value from one argument, with errors of our own.

    Args:
        kind: bool, int, float, str or a Literal of texts. A bool takes True or False in words.
        name: the flag, to begin an error with; where it is empty, the message begins with the value.
    """
    choices = [str(choice) for choice in typing.get_args(kind)]
    readers: Mapping[Any, tuple[str, Callable[[str], Any]]] = {
        bool: ("True or False", lambda text: _TRUTH[text.lower()]),
        int: ("a whole number", _read_int),
        float: ("a number", _read_float),
        str: ("a text", str),
    }
    wanted, read = readers.get(kind, ("", str))
    names = {bool: "True|False", int: "INT", float: "FLOAT", str: "TEXT"}

    def instance_from_str(arguments: list[str]) -> Any:
        (text,) = arguments
        if choices:
            if text not in choices:
                raise UsageError(f"{name} '{text}' is not one of its choices{nearest(text, choices)}".strip())
            return text
        try:
            return read(text)
        except (ValueError, KeyError, OverflowError):
            raise UsageError(f"{name} '{text}' is not {wanted}; give {wanted}".strip()) from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="|".join(choices) or names[kind],
        instance_from_str=instance_from_str,
        is_instance=lambda value: True,
        str_from_instance=lambda value: [str(value)],
    )


def optional_count(name: str) -> PrimitiveConstructorSpec[Any]:
    """Returns how tyro reads a flag that stands alone, as 0, or before a whole number from 2 on."""

    def instance_from_str(arguments: list[str]) -> int:
        if len(arguments) > 1 or not all(text.isdecimal() and int(text) >= 2 for text in arguments):
            given = " ".join(arguments)
            raise UsageError(f"{name} '{given}' is not a whole number from 2 on; write the sweep's name before {name}")
        return int(arguments[0]) if arguments else 0

    return PrimitiveConstructorSpec(
        nargs="*",
        metavar="[INT]",
        instance_from_str=instance_from_str,
        is_instance=lambda value: True,
        str_from_instance=lambda value: [str(value)],
    )


def with_values(
    command: type, kind: Kind, settings: Mapping[str, Setting], without: frozenset[str], *, ranges: bool
) -> type:
    """Returns a subclass of a command's dataclass with one more field, `values`: the dotted flags.

    Args:
        command: the dataclass.
        kind: of the runs whose settings get flags.
        settings: what the values are without a flag; shown in the help.
        without: dotted names that get no flag.
        ranges: whether the help shows what a sweep would try.
    """
    documentation = _documentation(kind)
    sections: dict[str, list[tuple[str, Any, Any]]] = {}
    for name, value_type in value_types(kind).items():
        section, key = name.split(".")
        if name in without:
            continue
        spec = value_spec(value_type, flag(name))
        text = tyro.conf.arg(help=documentation[name], help_behavior_hint=_hint(settings[name], ranges=ranges))
        sections.setdefault(section, []).append(
            (key, Annotated[with_old_unions(value_type | None), spec, text], dataclasses.field(default=None))
        )
    groups = []
    for section, fields in sections.items():
        group = dataclasses.make_dataclass(section.title(), fields, frozen=True, kw_only=True)
        hint: Any = Annotated[group, tyro.conf.arg(help="")]  # no text: tyro would look for one in the sources
        groups.append((section, hint, dataclasses.field(default_factory=group)))
    values = dataclasses.make_dataclass("Values", groups, frozen=True, kw_only=True)
    field = ("values", Annotated[values, tyro.conf.arg(name="", help="")], dataclasses.field(default_factory=values))
    made = dataclasses.make_dataclass(command.__name__, [field], bases=(command,), frozen=True, kw_only=True)
    made.__doc__ = command.__doc__
    return made


def given_values(arguments: Any) -> dict[str, Any]:
    """Returns the dotted flags that were given, by dotted name."""
    given: dict[str, Any] = {}
    for group in dataclasses.fields(arguments.values):
        section = getattr(arguments.values, group.name)
        for field in dataclasses.fields(section):
            if (value := getattr(section, field.name)) is not None:
                given[f"{group.name}.{field.name}"] = value
    return given


def _documentation(kind: Kind) -> dict[str, str]:
    """Returns the docstring of every value of a run config, by dotted name."""
    sections = typing.get_type_hints(kind.config).items()
    return {f"{section}.{key}": text for section, fields in sections for key, text in field_texts(fields).items()}


def _hint(setting: Setting, *, ranges: bool) -> str:
    text = f"default: {_shown(setting.value)}"
    if ranges and "choices" in setting.range:
        text += f", swept over {', '.join(_shown(choice) for choice in setting.range['choices'])}"
    elif ranges and setting.range:
        text += f", swept from {_shown(setting.range['min'])} to {_shown(setting.range['max'])}"
    return f"({text})"


def _shown(value: Any) -> str:
    return f"{value:_}" if type(value) is int else str(value)  # tyro breaks lines at commas


def _read_int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        number = float(text)  # 5e6 is a whole number, too
        if not number.is_integer():
            raise
        return int(number)


def _read_float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
