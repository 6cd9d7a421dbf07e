"""Flags for the arguments of an environment, `--env.args.NAME VALUE`, whose names only the environment knows.

They are taken off the command line before tyro reads it.
"""

from collections.abc import Sequence
from typing import Any

from protein.config.layers import ARGS
from protein.errors import UsageError

PREFIX = f"--{ARGS}."


def split(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Returns the words without these flags, and the values that the flags gave, by dotted name.

    A value is read as TOML, `2`, `0.5`, `true`, `[1, 2]`, and as a text where it is not TOML. `True` and `False`, as
    all other flags have them, are no texts: "False" would count as true. No argument can be a date, so that is a text.

    Raises:
        UsageError: a flag without its name or its value.
    """
    rest: list[str] = []
    values: dict[str, Any] = {}
    remaining = iter(words)
    for word in remaining:
        if not word.startswith(PREFIX):
            rest.append(word)
            continue
        flag, equals, text = word.partition("=")
        given = text if equals else next(remaining, None)
        name = flag.removeprefix(PREFIX).replace("-", "_")
        if not name.isidentifier():
            raise UsageError(f"flag '{flag}' must be {PREFIX}NAME, with the name of an argument")
        if given is None:
            raise UsageError(f"flag '{flag}' needs a value")
        values[f"{ARGS}.{name}"] = _read(given)
    return rest, values


def _read(text: str) -> Any:
    import datetime  # these take a tenth of the time of the help, which does not need them
    import tomllib

    if text in ("True", "False"):
        return text == "True"
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text
    return text if isinstance(value, datetime.date | datetime.time) else value
