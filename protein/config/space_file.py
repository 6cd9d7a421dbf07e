"""A space in a file of its own, for programs that are not our trainer.

    cost_parameter = "steps"

    [space]
    lr = { value = 1e-3, min = 1e-5, max = 1e-1, scale = "log" }
    steps = { min = 1000, max = 100_000, scale = "log" }
    optimizer = { choices = ["adam", "sgd"] }
    batch = 64

The ranges are written as in configs/. A plain value is fixed, and passed to the program, too. A table of tables is a
section: `[space.train]` holds parameters that are called `train.lr` and so on.

Files of other tools are read as they are: the YAML of a W&B sweep (`protein.config.wandb_sweep`) and the `.ini` of
PufferLib (`protein.config.puffer_ini`).
"""

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protein.config.layers import NUMERIC_KEYS, RANGE_KEYS, display_path
from protein.errors import SpaceError, UsageError
from protein.space import Space
from protein.space.parameters import Categorical, Float, Integer, Parameter, Scale
from protein.spelling import nearest
from protein.types import Direction, ParamValue

KEYS = ("space", "cost_parameter", "constraints", "direction")
_TABLE_KEYS = ("value", *RANGE_KEYS)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SpaceFile:
    """What a file says of a sweep.

    Attributes:
        space: what is searched, with the fixed values.
        start: the config that is tried first; None: the file gives no values.
        direction: of the score; None: the file does not say.
        command: how the program is run, in the form of `--command`; None: the file does not say.
        params: how the program gets its parameters (`--params`); None: as usual.
        warnings: what the file holds and is not taken over, a line each.
    """

    space: Space
    start: dict[str, ParamValue] | None = None
    direction: Direction | None = None
    command: str | None = None
    params: str | None = None
    warnings: tuple[str, ...] = ()


def read(path: Path) -> SpaceFile:
    """Returns what a space file holds. Raises `UsageError`, with the file and the key, where it cannot be used."""
    from protein.config import puffer_ini, wandb_sweep

    source = f"--space {display_path(path)}"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{source}: no such file; check the path") from None
    except OSError as error:
        raise UsageError(f"{source}: cannot be read ({error.strerror}); check the path") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{source}: is no text ({error.reason}); give a TOML, YAML or INI file") from error
    readers = {".toml": _read_toml, ".yaml": wandb_sweep.read, ".yml": wandb_sweep.read, ".ini": puffer_ini.read}
    if path.suffix.lower() not in readers:
        raise UsageError(
            f"{source}: '{path.suffix}' is no known kind; give our form (.toml), a W&B sweep (.yaml) or"
            " PufferLib's .ini"
        )
    try:
        return readers[path.suffix.lower()](text, source)
    except SpaceError as error:
        raise UsageError(f"{source}: {error}") from error


def start_of(space: Space, *, given: bool) -> dict[str, ParamValue] | None:
    """Returns the config that is tried first, where the file has given any values; it is made valid."""
    return space.snap(space.default()) if given else None


def direction_of(value: object, source: str, key: str) -> Direction:
    """Returns the direction that a file gives. Raises `UsageError` for another word."""
    for direction in Direction:
        if value == direction.value:
            return direction
    known = [one.value for one in Direction]
    raise UsageError(f"{source}: {key} = {value!r} must be maximize or minimize{nearest(str(value), known)}")


def _read_toml(text: str, source: str) -> SpaceFile:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source}: not valid TOML: {error}") from error
    for key in data:
        if key not in KEYS:
            raise UsageError(f"{source}: unknown key '{key}'{nearest(key, KEYS)}")
    table = data.get("space")
    if not isinstance(table, dict) or not table:
        raise UsageError(f"{source}: has no ranges; write them as [space] and lr = {{ min = 1e-4, max = 0.1 }}")
    parameters: list[Parameter] = []
    fixed: dict[str, ParamValue] = {}
    _collect(table, "", source, parameters, fixed)
    constraints = data.get("constraints", [])
    if not isinstance(constraints, list):
        raise UsageError(f"{source}: constraints = {constraints!r} must be a list of texts")
    cost = data.get("cost_parameter")
    space = Space(parameters, cost_parameter=cost, constraints=constraints, fixed=fixed)
    given = data.get("direction")
    return SpaceFile(
        space=space,
        start=start_of(space, given=any(parameter.default is not None for parameter in parameters)),
        direction=None if given is None else direction_of(given, source, "direction"),
    )


def _collect(
    table: Mapping[str, Any], prefix: str, source: str, parameters: list[Parameter], fixed: dict[str, ParamValue]
) -> None:
    """Adds the parameters and fixed values of a section."""
    for key, given in table.items():
        name = f"{prefix}{key}"
        if isinstance(given, bool | int | float | str):
            fixed[name] = given
        elif not isinstance(given, dict):
            raise UsageError(f"{source}: {name} = {given!r} is no value and no range; write {{ choices = [...] }}")
        elif set(given) & set(_TABLE_KEYS) and not any(isinstance(value, dict) for value in given.values()):
            for one in given:
                if one not in _TABLE_KEYS:
                    raise UsageError(
                        f"{source}: unknown key '{one}' in the table of '{name}'{nearest(one, _TABLE_KEYS)}"
                    )
            if set(given) == {"value"}:
                fixed[name] = given["value"]
            else:
                parameters.append(_parameter(name, given, source))
        elif given and all(isinstance(value, dict | bool | int | float | str) for value in given.values()):
            _collect(given, f"{name}.", source, parameters, fixed)
        else:
            raise UsageError(f"{source}: '{name}' has no range; give min and max, or choices")


def _parameter(name: str, given: Mapping[str, Any], source: str) -> Parameter:
    value = given.get("value")
    if "choices" in given:
        if clash := [key for key in NUMERIC_KEYS if key in given]:
            raise UsageError(f"{source}: {name} gives both choices and {clash[0]}; give either choices or min and max")
        return Categorical(name, given["choices"], value)
    for key in ("min", "max"):
        if key not in given:
            raise UsageError(f"{source}: the range of {name} has no {key}; give both min and max")
    scale: Scale = given.get("scale", "linear")
    low, high = given["min"], given["max"]
    if all(type(one) is int for one in (low, high) if one is not None) and type(value) in (int, type(None)):
        return Integer(name, low, high, scale, value)
    return Float(name, low, high, scale, value)
