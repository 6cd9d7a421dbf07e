"""What a file of `--space` says, whatever its form is (`SpaceFile`), and our own form, for other programs.

    cost_parameter = "steps"
    require = ["memory_gb <= 8"]

    [space]
    lr = { value = 1e-3, min = 1e-5, max = 1e-1, scale = "log" }
    width = { value = 64, min = 32, max = 512, step = 32 }
    steps = { min = 1000, max = 100_000, scale = "log" }
    optimizer = { choices = ["adam", "sgd"] }
    momentum = { min = 0.5, max = 0.99, when = "optimizer == 'sgd'" }
    batch = 64

The ranges are written as in configs/, with `low` and `high` for `min` and `max` where you like, and also with a
`belief`. A plain value is fixed, and passed to the program, too. A table of tables is a section: `[space.train]` holds
parameters that are called `train.lr` and so on.

Choices, and a value, may be lists and tables, too. TOML has no null: `choices_json = "[null, 0.5]"` and
`value_json = "null"` hold JSON.

Without `[space]`, every table of the file is a part of the space: `[lr]` with a min and a max, and sections as in
configs/.
"""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from protein import validate
from protein.config.layers import NUMERIC_KEYS, OTHER_NAMES, RANGE_KEYS, looks_like_range, with_own_names
from protein.errors import UsageError
from protein.space import Space
from protein.space.parameters import JSON_VALUE, Categorical, Float, Integer, Parameter, Scale
from protein.spelling import is_slip, nearest
from protein.types import Direction, Limit, ParamValue, parse_limits
from protein.validate import is_json

_KEYS = ("space", "cost_parameter", "constraints", "direction", "require", "score_range")
_AS_JSON = {"value_json": "value", "choices_json": "choices"}
_TABLE_KEYS = ("value", *RANGE_KEYS, *_AS_JSON)
_MARKS = {
    "value",
    "min",
    "max",
    "scale",
    "choices",
    *_AS_JSON,
}  # one of these makes a table a parameter's, not a section
RANGE_CALL = re.compile(r"(?:\w+\.)?(?:\w*uniform|\w*normal|\w*randint|interval|range|choice|tag)\(.*\)", re.DOTALL)
"""A range as Hydra and other tools write it in a text."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SpaceFile:
    """What a file says of a sweep.

    Attributes:
        space: what is searched, with the fixed values.
        start: the config that is tried first; None: the file gives no values.
        direction: of the score; None: the file does not say.
        require: limits on what its trials measure beside the score; None: the file does not say.
        score_range: the lowest and the highest possible score, None for an open end; None: the file does not say.
        command: how the program is run, in the form of `--command`; None: the file does not say.
        params: how the program gets its parameters (`--params`); None: as usual.
        called: what the program calls a parameter that has another name here, after the names of its tables.
        max_trials: how many the file allows; None: it does not say.
        warnings: what the file holds and is not taken over, a line each.
    """

    space: Space
    start: dict[str, ParamValue] | None = None
    direction: Direction | None = None
    require: tuple[Limit, ...] | None = None
    score_range: list[float | None] | None = None
    command: str | None = None
    params: str | None = None
    called: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    max_trials: int | None = None
    warnings: tuple[str, ...] = ()


def start_of(space: Space, *, given: bool) -> dict[str, ParamValue] | None:
    """Returns the config that is tried first, where the file has given any values; it is made valid."""
    return space.snap(space.default()) if given else None


def direction_of(value: object, source: str, key: str) -> Direction:
    """Returns the direction that a file gives. Raises `UsageError` for another word."""
    for direction in Direction:
        if value == direction.value:
            return direction
    close = nearest(str(value), [one.value for one in Direction])
    meant = close if "did you mean" in close else ""
    raise UsageError(f"{source}: {key} = {value!r} must be maximize or minimize{meant}")


def read(text: str, source: str) -> SpaceFile:
    """Returns what the file says. Raises `UsageError`, or `SpaceError` for a range that cannot be."""
    import tomllib  # late, as wherever a command that only shows results may be on the way

    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{source}: not valid TOML: {error}") from error
    return of_data(data, source)


def of_data(data: Mapping[str, Any], source: str) -> SpaceFile:
    """Returns what the tables of a file say. Raises as `read`."""
    beside = {key: value for key, value in data.items() if key not in _KEYS}
    for key, value in beside.items():
        if "space" in data:
            raise UsageError(f"{source}: unknown key '{key}'{nearest(key, _KEYS)}; parameters belong in [space]")
        if not isinstance(value, dict) or is_slip(key, "space"):
            raise UsageError(f"{source}: unknown key '{key}'{nearest(key, _KEYS)}; parameters belong in [space]")
    table = data.get("space", beside)
    if not isinstance(table, dict) or not table:
        fault = "has no ranges" if data else "is empty"
        raise UsageError(f"{source}: {fault}; write ranges as [space] and lr = {{ min = 1e-4, max = 0.1 }}")
    parameters: list[Parameter] = []
    fixed: dict[str, ParamValue] = {}
    first: dict[str, ParamValue] = {}
    _collect(table, "", source, parameters, fixed, first)
    constraints = data.get("constraints", [])
    if not isinstance(constraints, list):
        raise UsageError(f"{source}: constraints = {constraints!r} must be a list of texts")
    cost = data.get("cost_parameter")
    space = Space(parameters, cost_parameter=cost, constraints=constraints, fixed=fixed)
    given = data.get("direction")
    return SpaceFile(
        space=space,
        start=space.snap({**space.default(), **first}) if first else None,
        direction=None if given is None else direction_of(given, source, "direction"),
        require=parse_limits(data.get("require"), f"{source}: require"),
        score_range=validate.score_range(data.get("score_range"), f"{source}: score_range"),
    )


def _fixed(name: str, value: Any, source: str) -> ParamValue:
    """Returns a fixed value. Raises `UsageError` for one that no JSON holds: no store could keep it."""
    if is_json(value):
        return value
    as_text = f'; for a program that reads it from a flag, write the text "{value}"' if isinstance(value, float) else ""
    raise UsageError(f"{source}: the value {value!s:.80} of {name} is no {JSON_VALUE}{as_text}")


def _collect(
    table: Mapping[str, Any],
    prefix: str,
    source: str,
    parameters: list[Parameter],
    fixed: dict[str, ParamValue],
    first: dict[str, ParamValue],
) -> None:
    """Adds the parameters and fixed values of a section, and the values that are to be tried first."""
    for key, given in table.items():
        name = f"{prefix}{key}"
        if isinstance(given, str) and RANGE_CALL.fullmatch(given.strip()):
            raise UsageError(
                f"{source}: {name} = {json.dumps(given)[:60]} looks like a range; write {{ min = ..., max = ... }} or"
                f" {{ choices = [...] }}, and a fixed text as {{ value = {json.dumps(given)[:60]} }}"
            )
        if isinstance(given, bool | int | float | str):
            fixed[name] = _fixed(name, given, source)
        elif not isinstance(given, dict):
            fixed_value = ", or { value = [...] } for a fixed list" if isinstance(given, list) else ""
            raise UsageError(
                f"{source}: {name} = {given!r:.80} is no value and no range; write {{ choices = [...] }}{fixed_value}"
            )
        elif _is_range(given):
            given = with_own_names(name, given)
            for one in given:
                if one not in _TABLE_KEYS:
                    raise UsageError(
                        f"{source}: unknown key '{one}' in the table of '{name}'{nearest(one, _TABLE_KEYS)}"
                    )
            given = _with_json(name, given, source)
            if set(given) == {"value"}:
                fixed[name] = _fixed(name, given["value"], source)
            else:
                parameters.append(_parameter(name, given, source))
                if "value" in given:
                    first[name] = given["value"]
        elif given and all(isinstance(value, dict | bool | int | float | str) for value in given.values()):
            if looks_like_range(given):
                key = next(iter(given))
                raise UsageError(
                    f"{source}: '{name}' looks like a range, but has {' and '.join(given)}; a range has min and max, or"
                    f" choices; fixed values are written as {key} = {{ value = {json.dumps(given[key])[:40]} }}"
                )
            _collect(given, f"{name}.", source, parameters, fixed, first)
        else:
            raise UsageError(f"{source}: '{name}' has no range; give min and max, or choices")


def _with_json(name: str, given: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Returns a table with what the texts of `value_json` and `choices_json` hold. Raises `UsageError` for others."""
    found = dict(given)
    for key, meant in _AS_JSON.items():
        if key not in found:
            continue
        text = found.pop(key)
        if meant in found:
            raise UsageError(f"{source}: {name} gives both {meant} and {key}; leave one of them out")
        try:
            found[meant] = json.loads(text)
        except (TypeError, ValueError, RecursionError):
            raise UsageError(
                f"{source}: {key} of {name} must be a text that holds JSON, as '[null, 0.5]', got {text!r:.80}"
            ) from None
    return found


def _is_range(table: Mapping[str, Any]) -> bool:
    """Whether a table is that of one parameter. A `step` or a `low` alone may be a fixed value of a section."""
    marked = not _MARKS.isdisjoint(table) or OTHER_NAMES.keys() <= table.keys()
    marked |= "when" in table and table.keys() <= {*_TABLE_KEYS, *OTHER_NAMES}
    return marked and not any(isinstance(value, dict) for value in table.values())


def _parameter(name: str, given: Mapping[str, Any], source: str) -> Parameter:
    value, belief, when = given.get("value"), given.get("belief"), given.get("when")
    if "choices" in given:
        if clash := [key for key in NUMERIC_KEYS if key in given]:
            raise UsageError(f"{source}: {name} gives both choices and {clash[0]}; give either choices or min and max")
        return Categorical(name, given["choices"], value, belief=belief, when=when)
    for key in ("min", "max"):
        if key not in given:
            raise UsageError(f"{source}: the range of {name} has no {key}; give both min and max")
    scale: Scale = given.get("scale", "linear")
    low, high, step = given["min"], given["max"], given.get("step")
    if all(type(one) in (int, type(None)) for one in (low, high, step, value)):
        return Integer(name, low, high, scale, value, step=step, belief=belief, when=when)
    return Float(name, low, high, scale, value, step=step, belief=belief, when=when)
