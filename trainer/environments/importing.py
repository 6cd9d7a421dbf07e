"""Finds what a user's own environment is made by: a function or class of a module, `package.module:name`."""

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from ..errors import ConfigError


def find_beside_us() -> None:
    """Lets modules in the working directory be found, as they are by python itself."""
    here = os.getcwd()  # noqa: PTH109
    if here not in sys.path:
        sys.path.append(here)


def find(
    env: str, module_name: str, function: str, *, what: str, extras: Mapping[str, str]
) -> tuple[ModuleType, Callable[..., Any]]:
    """Returns a module, and what is called so in it.

    Args:
        env: the environment's name, for messages.
        module_name: as `import` takes it; it may lie in the working directory.
        function: the name of a function or class.
        what: the word for it in a message.
        extras: of ours that bring a missing package, by the package's name.

    Raises:
        ConfigError: there is no such module, or nothing of that name in it.
    """
    find_beside_us()
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        extra = extras.get(module_name.partition(".")[0]) if isinstance(error, ModuleNotFoundError) else None
        remedy = f": pip install 'protein-sweep[{extra}]'" if extra else ""
        raise ConfigError(f"cannot make '{env}': {' '.join(str(error).split())}{remedy}") from error
    found = getattr(module, function, None)
    if not callable(found):
        raise ConfigError(f"cannot make '{env}': module {module_name} has no {what} '{function}'")
    return module, found
