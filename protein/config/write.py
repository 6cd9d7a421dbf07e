"""Writes a found config as a TOML file that holds only what differs from the files below it (see `layers`).

Each line says where its value comes from and what it replaces. So the file is short enough to be read. Laid over the
files below with `--config`, it trains exactly the config that was found. A sweep that starts from it searches the same
parameters as the sweep that found it.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from protein.config.layers import Layers, Setting, is_argument
from protein.space import Space
from protein.space.parameters import Categorical, Parameter
from protein.trainer.settings import has_range

SEED = "train.seed"
MAX_COMMENT = 60  # characters of a value that a comment quotes


def to_toml(values: Mapping[str, Any], space: Space, below: Layers, head: Sequence[str], *, found: str) -> str:
    """Returns a config file that, laid over `below`, trains exactly `values` and sweeps `space` from there.

    Args:
        values: the run config by dotted name. Values that it lacks stay as they are below.
        space: the parameters that were searched, whose ranges are kept.
        below: the layers that the file will be laid over, without flags.
        head: lines at the top, about where the values come from.
        found: how the searched values were found, in a word or two, as in "searched".
    """
    searched = {parameter.name: parameter for parameter in space.parameters}
    active = space.only_active(values) if space.is_conditional else searched
    nothing = Setting(value=None, source="no file below")
    arguments = {name: nothing for name in values if is_argument(name) and name not in below.settings}
    ranges = {parameter.name: parameter for parameter in below.parameters()}
    blocks = ["".join(f"# {' '.join(line.split())}\n" for line in head)]
    sections = dict.fromkeys(name.partition(".")[0] for name in below.settings)
    for section in sections:
        lines = []
        for name, setting in {**below.settings, **arguments}.items():
            key = name.removeprefix(f"{section}.")
            if key == name or name not in values:
                continue
            is_subject = name == below.kind.subject
            text = _setting(values[name], setting, searched.get(name), ranges.get(name), is_subject=is_subject)
            if text is not None:
                how = found if name in searched else "the trial's own" if name == SEED else "fixed by the sweep"
                how = "not active with these values" if name in searched and name not in active else how
                lines.append(f"{key} = {text}  # {_comment(values[name], setting, how, section)}")
        if lines:
            blocks.append("\n".join([f"[{section}]", *lines]) + "\n")
    if sweep := _sweep(space, below):
        blocks.append("[sweep]\n" + tomli_w.dumps(sweep, indent=2))
    return "\n".join(blocks)


def _setting(
    value: Any, setting: Setting, searched: Parameter | None, below: Parameter | None, *, is_subject: bool
) -> str | None:
    """Returns what the file says of a value: alone, or in a table beside its range; None: nothing differs.

    What is learnt (`is_subject`) is said in any case.
    """
    if searched is None:
        same = _same(value, setting.value) and below is None and not is_subject
        if same:
            return None
        return _table({"value": value}) if has_range(value) else _text(value)  # a table of an environment's argument
    if below is not None and _range(searched) == _range(below):
        return None if _same(value, setting.value) else _table({"value": value})
    if isinstance(searched, Categorical):
        table: dict[str, Any] = {"value": value, "choices": list(searched.choices)}
    else:
        table = {"value": value, "min": searched.low, "max": searched.high, "scale": searched.scale}
        table |= {} if searched.step is None else {"step": searched.step}
    belief = None if searched.belief is None else list(searched.belief)
    table |= {key: one for key, one in (("belief", belief), ("when", searched.when)) if one is not None}
    return _table(table)


def _range(parameter: Parameter) -> Parameter:
    return dataclasses.replace(parameter, default=None)


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _comment(value: Any, setting: Setting, how: str, section: str) -> str:
    if section in ("env", "data") and _same(value, setting.value):
        return "the environment" if section == "env" else "the text"
    if setting.value is None:
        return f"{how}; {setting.source} has it"
    where = setting.source
    if where.endswith(".toml"):
        where = Path(where).name
    is_same = "has the same value" if _same(value, setting.value) else f"has {_quoted(setting.value)}"
    return f"{how}; {'the ' if not where.endswith('.toml') else ''}{where} {is_same}"


def _quoted(value: Any) -> str:
    text = _text(value)
    return text if len(text) <= MAX_COMMENT else f"{text[: MAX_COMMENT - 1]}…"


def _sweep(space: Space, below: Layers) -> dict[str, Any]:
    """Returns the keys of `[sweep]` that differ from those below."""
    found: dict[str, Any] = {}
    if tuple(space.constraints) != tuple(below.sweep.constraints):
        found["constraints"] = list(space.constraints)
    if space.cost_parameter is not None and space.cost_parameter != below.sweep.cost_parameter:
        found["cost_parameter"] = space.cost_parameter
    return found


def _table(items: Mapping[str, Any]) -> str:
    return "{ " + ", ".join(f"{_key(key)} = {_text(item)}" for key, item in items.items()) + " }"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _text(key)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return _table(value)
    # An inline table must be one line; the writer breaks arrays over several, and line ends in texts are escaped.
    return " ".join(tomli_w.dumps({"v": value}, indent=0).split("\n")).strip().removeprefix("v = ")
