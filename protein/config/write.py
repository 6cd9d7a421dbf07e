"""Writes a run config as TOML in the form that `layers` reads: its origin on top, ranges beside the values."""

from collections.abc import Mapping
from typing import Any

import tomli_w

from protein.space import Space
from protein.space.parameters import Categorical, Parameter


def to_toml(config: Mapping[str, Mapping[str, Any]], space: Space, origin: str) -> str:
    """Returns a config file that trains exactly `config` and sweeps `space` from there.

    Args:
        config: nested run config, complete.
        space: the parameters whose ranges are written beside their values.
        origin: one line about where the values come from.
    """
    parameters = {parameter.name: parameter for parameter in space.parameters}
    blocks = [f"# {' '.join(origin.split())}\n"]
    for section, table in config.items():
        lines = [f"[{section}]"]
        for key, value in table.items():
            parameter = parameters.get(f"{section}.{key}")
            lines.append(_line(key, value) if parameter is None else f"{key} = {_range_table(value, parameter)}")
        blocks.append("\n".join(lines) + "\n")
    sweep: dict[str, Any] = {"constraints": list(space.constraints)}
    if space.cost_parameter is not None:
        sweep["cost_parameter"] = space.cost_parameter
    blocks.append("[sweep]\n" + tomli_w.dumps(sweep, indent=2))
    return "\n".join(blocks)


def _range_table(value: Any, parameter: Parameter) -> str:
    if isinstance(parameter, Categorical):
        table: dict[str, Any] = {"value": value, "choices": list(parameter.choices)}
    else:
        table = {"value": value, "min": parameter.low, "max": parameter.high, "scale": parameter.scale}
    return "{ " + ", ".join(_line(key, item) for key, item in table.items()) + " }"


def _line(key: str, value: Any) -> str:
    # An inline table must be one line; the writer breaks arrays over several, and line ends in texts are escaped.
    return " ".join(tomli_w.dumps({key: value}, indent=0).split("\n")).strip()
