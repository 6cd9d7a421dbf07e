"""Arguments of an environment, `[env.args]`: checked against the signature that takes them, before anything is made."""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from protein.spelling import nearest

from ..errors import ConfigError
from ..users_code import argument_names

_UNEXPECTED = re.compile(r"unexpected keyword argument '(\w+)'")


def check(args: Mapping[str, Any], takes: Callable[..., Any], env: str, *, ours: Iterable[str] = ()) -> None:
    """Raises `ConfigError` for an argument that a class or function does not take.

    Args:
        args: by name.
        takes: what is called with them. Where it has `**kwargs`, only the call itself can tell: see `refusals`.
        env: the environment's name, for the message.
        ours: names that it takes, but that the trainer gives.
    """
    known, open_ended = argument_names(takes)
    for name in args:
        if name in ours:
            raise ConfigError(f"env.args.{name} of '{env}' is given by the trainer: remove it from [env.args]")
        if name not in known and not open_ended:
            raise ConfigError(_unknown(name, env, known - set(ours)))


@contextlib.contextmanager
def refusals(args: Mapping[str, Any], takes: Callable[..., Any], env: str) -> Iterator[None]:
    """Raises `ConfigError` instead of the error of a call inside that has refused one of `args`."""
    try:
        yield
    except TypeError as error:
        found = _UNEXPECTED.search(str(error))
        if found is None or found.group(1) not in args:
            raise
        raise ConfigError(_unknown(found.group(1), env, argument_names(takes)[0])) from error


def check_reset(env: Any, name: str, *given: str) -> None:
    """Raises `ConfigError` where `reset` of an environment, or of a wrapper of it, does not take what is `given`."""
    while env is not None:
        known, open_ended = argument_names(env.reset)
        for argument in given:
            if argument not in known and not open_ended:
                raise ConfigError(
                    f"cannot make '{name}': reset of {type(env).__name__} takes no {argument}: write it as "
                    "reset(self, seed=None, options=None), and draw all random numbers from that seed"
                )
        env = vars(env).get("env")


def refuse(args: Mapping[str, Any], env: str) -> None:
    """Raises `ConfigError` where there are arguments for an environment that takes none."""
    if args:
        raise ConfigError(
            f"'{env}' is written in C and takes no arguments, got env.args.{next(iter(args))}: remove [env.args]"
        )


def _unknown(name: str, env: str, known: Iterable[str]) -> str:
    names = sorted(known)
    if not names:
        return f"'{env}' takes no arguments, got env.args.{name}: remove it"
    return f"'{env}' takes no argument env.args.{name}{nearest(name, names)}"
