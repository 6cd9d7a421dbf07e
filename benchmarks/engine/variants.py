"""The engine with some settings changed, given as text: `price_floor=0.1;num_initial=5`."""

import ast
import dataclasses
import types
import typing
from typing import Any

from protein.engine.settings import EngineSettings
from protein.errors import UsageError


def variant(settings: str) -> EngineSettings:
    """Returns the default settings with the changes of `name=value;...`, values as Python writes them; "": none.

    Raises:
        UsageError: an unknown setting, or a value that does not have the setting's type.
    """
    fields = {field.name: field for field in dataclasses.fields(EngineSettings)}
    changes: dict[str, Any] = {}
    for part in settings.split(";"):
        name, _, written = (word.strip() for word in part.partition("="))
        if not part.strip():
            continue
        if name not in fields:
            raise UsageError(f"unknown setting {name!r} of the engine; known: {', '.join(fields)}")
        try:
            changes[name] = _as(fields[name].type, ast.literal_eval(written))
        except (ValueError, SyntaxError) as error:
            raise UsageError(
                f"setting {name} cannot be {written!r}; write it as in '{name}={fields[name].default}'"
            ) from error
    return dataclasses.replace(EngineSettings(), **changes)


def _as(kind: Any, value: Any) -> Any:
    """Returns a value converted to the setting's annotated type; raises `ValueError` where that is impossible."""
    if isinstance(kind, types.UnionType):  # a setting or None
        kinds = typing.get_args(kind)
        return None if value is None else _as(kinds[0], value)
    if items := typing.get_args(kind):
        if not isinstance(value, tuple) or (Ellipsis not in items and len(value) != len(items)):
            raise ValueError("no tuple of that length")
        return tuple(_as(items[0], item) for item in value)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise ValueError("of another kind")
    return value
