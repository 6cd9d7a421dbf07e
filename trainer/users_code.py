"""Code of the user's own, a network or an environment: how it is found, and how what it raises becomes one line."""

import contextlib
import importlib
import inspect
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from protein.spelling import nearest

from .errors import ConfigError, TrainerError, UsersCodeError

# What the user's code may raise; `sys.exit()`, too: it would end the run without a word, and as if all were well.
RAISED = (Exception, SystemExit)
_OURS = Path(__file__).resolve().parent
_LIBRARIES = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")}
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')  # in a traceback that is text


def find_beside_us() -> None:
    """Lets modules in the working directory be found, as they are by python itself."""
    here = os.getcwd()  # noqa: PTH109
    if here not in sys.path:
        sys.path.append(here)


@contextlib.contextmanager
def back_here() -> Iterator[None]:
    """Goes back to the working directory at the end, because the user's code may go to a folder of its own."""
    here = None
    with contextlib.suppress(FileNotFoundError):  # it was deleted
        here = os.getcwd()  # noqa: PTH109
    try:
        yield
    finally:
        if here is not None:
            with contextlib.suppress(OSError):  # it was deleted meanwhile
                os.chdir(here)


def find(
    module_name: str, name: str, *, failing: str, what: str, extras: Mapping[str, str] | None = None
) -> tuple[ModuleType, Callable[..., Any]]:
    """Returns a module, and what is called so in it.

    Args:
        module_name: as `import` takes it; it may lie in the working directory.
        name: of a function or class.
        failing: the beginning of a message, as in "cannot make 'python:walk:Walk'".
        what: the word in a message for what is looked for.
        extras: of ours that bring a missing package, by the package's name.

    Raises:
        ConfigError: there is no such module, it cannot be loaded, or nothing of that name is in it.
    """
    find_beside_us()
    if module_name.endswith(".py") or "/" in module_name:
        named = ".".join(part for part in module_name.removesuffix(".py").split("/") if part not in ("", ".", ".."))
        raise ConfigError(
            f"{failing}: '{module_name}' is a file: give its module, as import has it, such as {named or 'my_file'}"
        )
    try:
        module = importlib.import_module(module_name)
    except RAISED as error:  # the user's file may raise anything
        extra = (extras or {}).get(module_name.partition(".")[0]) if isinstance(error, ModuleNotFoundError) else None
        remedy = f": pip install 'protein-sweep[{extra}]'" if extra else ""
        raise ConfigError(f"{failing}: {in_words(error)}{remedy}") from error
    found = getattr(module, name, None)
    if not callable(found):
        public = [known for known in vars(module) if not known.startswith("_")]
        missing = f"{failing}: module {module_name} has no {what} '{name}'{nearest(name, public)}"
        raise ConfigError(missing + _hidden(module))
    return module, found


def _hidden(module: ModuleType) -> str:
    """Returns what to say where a file in the working directory is hidden by an installed module of its name."""
    ours, theirs = Path(f"{module.__name__.replace('.', '/')}.py"), getattr(module, "__file__", None)
    if not ours.is_file() or (theirs is not None and Path(theirs).resolve() == ours.resolve()):
        return ""
    return f"; it is {theirs or 'built in'}, not the {ours} here: rename yours"


def in_words(error: BaseException, trace: str = "") -> str:
    """Returns what was raised as one line: its type, its text, and where in the user's code it comes from.

    `trace`: a traceback as text, for an error that was raised far from its cause.
    """
    reason = " ".join(str(error).split()).partition(" Hint: ")[0]  # torch's are about its own tools
    words = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
    if isinstance(error, SyntaxError):  # its text has the file and the line
        return words
    place = _place((frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(error.__traceback__))
    place = place or _place((file, int(line)) for file, line in _FRAME.findall(trace))
    return words + (f" ({place})" if place else "")


def fail(failing: str, error: BaseException) -> NoReturn:
    """Raises `UsersCodeError`, whose message begins with `failing`, for what the user's code has raised.

    Our own errors, and those that say that memory ran out, which has another remedy, are raised again as they are.
    """
    memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"  # torch's: not loaded here
    if memory or "allocate memory" in str(error) or isinstance(error, TrainerError):
        raise error
    raise UsersCodeError(f"{failing}: {in_words(error)}") from error


def argument_names(takes: Callable[..., Any]) -> tuple[set[str], bool]:
    """Returns the named arguments of a class (with those of its bases, where it passes the rest on) or a function.

    The second value says whether it takes any others, too.
    """
    calls: list[Callable[..., Any]] = [takes]
    if inspect.isclass(takes):
        calls = [kind.__init__ for kind in takes.__mro__ if "__init__" in vars(kind)]  # type: ignore[misc]
    names: set[str] = set()
    for call in calls:
        try:
            parameters = list(inspect.signature(call).parameters.values())
        except (TypeError, ValueError):  # a function in C without a signature
            return names, True
        kinds = {parameter.kind for parameter in parameters}
        names |= {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)} - {"self"}
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            return names, False
    return names, True


def _place(frames: Iterable[tuple[str, int]]) -> str:
    """Returns the file and the line of the last frame in code of the user's; empty where there is none."""
    place = ""
    for name, line in frames:
        file = Path(name).resolve()
        if not name.startswith("<") and not any(file.is_relative_to(folder) for folder in (_OURS, *_LIBRARIES)):
            shown = file.relative_to(here) if file.is_relative_to(here := Path.cwd()) else file
            place = f"{shown}, line {line}"
    return place
