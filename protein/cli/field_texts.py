"""What tyro is given of a dataclass's fields, so that a command line is read and explained quickly.

Left alone, tyro and docstring_parser parse a whole module once for every class in it, and tyro loads typeguard, which
needs 0.07 s of CPU time, to compare a default with a type such as `str | None`.
"""

import ast
import dataclasses
import functools
import inspect
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin


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
