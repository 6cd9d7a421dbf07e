"""Flags for every value of a run config, generated from its dataclasses: `--train.learning-rate 1e-3`.

None stands for a flag that was not given. So a flag that is given with the default value still counts as given.
"""

import dataclasses
import math
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from protein.cli.field_texts import field_texts, with_old_unions
from protein.config.layers import Setting, flag, value_types
from protein.errors import UsageError
from protein.spelling import nearest
from protein.trainer.kinds import Kind

_TRUTH = {"true": True, "false": False}


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
