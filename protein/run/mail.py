"""Messages of the mailbox as JSON, which holds data alone: to read one runs no code, whoever has written it.

A message is `{"type": NAME, "value": ...}`. The types are a closed list, and each value must fit the annotation of its
field: what does not is no message. A field that is missing has its default, and one that is not known is left out, so
that another version can still be told from damage. A value of `Any` is plain JSON, and so is a message of type null.
"""

import dataclasses
import enum
import functools
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from protein.errors import ProteinError
from protein.ports import Finished, Job, TrialProgress
from protein.run.command import CommandBackend
from protein.run.slot import Alive, Close, Leaving, Note, Ready, SlotSettings, Stop
from protein.run.trainer import LocalBackend
from protein.types import Direction

_TYPES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (SlotSettings, Job, Stop, Close, Ready, Alive, Leaving, Note, TrialProgress, Finished)
}
_BACKENDS = {kind.__name__: kind for kind in (LocalBackend, CommandBackend)}  # that a worker is told to make
_LARGEST = 2**63  # a whole number beyond it fits no store


class MessageError(ProteinError):
    """What was read is no message; says why."""


def encode(message: object) -> bytes:
    """Returns a message as JSON. Raises `TypeError` for what no message can hold."""
    name = type(message).__name__
    kind = name if _TYPES.get(name) is type(message) else None
    return json.dumps({"type": kind, "value": _plain(message)}).encode()


def decode(content: bytes) -> Any:
    """Returns a message from its JSON.

    Raises:
        MessageError: it is none.
    """
    try:
        found = json.loads(content)
        name = found["type"]
        return found["value"] if name is None else _read(_TYPES[name], found["value"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise MessageError(f"a message cannot be read ({reason[:200]})") from error


def _plain(value: Any) -> Any:
    """Returns a value as JSON can hold it."""
    if value is None or isinstance(value, bool | int | float | str):  # an enum of texts, too
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if callable(value):
        return _plain_backend(value)
    raise TypeError(f"a message cannot hold a {type(value).__name__}")


def _plain_backend(make: Any) -> Any:
    """Returns what makes a backend: its class of the list above, and what it is called with."""
    call = make if isinstance(make, functools.partial) else functools.partial(make)
    if call.func not in _BACKENDS.values():
        raise TypeError(f"a message cannot hold {make!r}; a worker makes one of {', '.join(_BACKENDS)}")
    return {"name": call.func.__name__, "args": _plain(call.args), "settings": _plain(call.keywords)}


def _read(hint: Any, value: Any) -> Any:
    """Returns a value as its annotation has it. Raises `ValueError` or `TypeError` where it does not fit."""
    if hint is Any:
        return value
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _first(inner, value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _read_fields(hint, value)
    if origin is tuple and isinstance(value, list):
        return tuple(_read(inner[0], item) for item in value)
    if origin is Mapping and isinstance(value, dict):
        return {key: _read(inner[1], item) for key, item in value.items()}
    if origin is Callable and isinstance(value, dict):
        return _read_backend(value)
    if hint is types.NoneType and value is None:
        return None
    if hint is float and type(value) in (int, float) and math.isfinite(value):
        return value
    if hint is int and type(value) is int and -_LARGEST <= value < _LARGEST:
        return value
    if hint in (bool, str) and type(value) is hint:
        return value
    if isinstance(hint, type) and isinstance(value, str):
        if issubclass(hint, enum.Enum):
            return hint(value)
        if hint is Path:
            return Path(value)
        if hint is datetime:
            return datetime.fromisoformat(value)
    raise TypeError(f"{str(value)[:80]!r} is no {getattr(hint, '__name__', hint)}")


def _first(hints: tuple[Any, ...], value: Any) -> Any:
    for hint in hints:
        try:
            return _read(hint, value)
        except (TypeError, ValueError) as error:
            problem = error
    raise problem


def _read_fields(kind: Any, value: Any) -> Any:
    if not isinstance(value, dict):
        raise TypeError(f"{str(value)[:80]!r} is no {kind.__name__}")
    hints = _hints(kind)
    return kind(**{name: _read(hint, value[name]) for name, hint in hints.items() if name in value})


@functools.cache
def _hints(kind: Any) -> Mapping[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _read_backend(value: dict[str, Any]) -> Any:
    args = tuple(Direction(one) for one in value["args"])
    preload = {"preload": tuple(value["settings"]["preload"])} if "preload" in value["settings"] else {}
    return functools.partial(_BACKENDS[value["name"]], *args, **{**value["settings"], **preload})
