"""From Hydra's overrides, and the tables of `hydra.sweeper.params`, to a space and the words of a command line.

    lr='tag(log, interval(1e-5, 1e-1))'     a number on a log scale; tags are our scales: log, logit, pow2
    layers='int(interval(1, 8))'            a whole number; both ends are tried
    batch='range(16, 129, 16)'              16, 32, ... 128, as Hydra counts them
    model=small,large                       choices, as choice(small, large); glob(*) is every config of the group
    seed=3                                  a fixed value

An interval of Hydra has no last value. Here, as in Hydra's sweeper for Optuna, both ends belong to it. An order of
`shuffle` or `sort` says nothing to a search.
"""

import dataclasses
import itertools
import math
import re
import shlex
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import (
    ChoiceSweep,
    IntervalSweep,
    Override,
    Quote,
    QuotedString,
    RangeSweep,
    Sweep,
    Transformer,
)
from hydra.errors import HydraException

from protein.errors import UsageError
from protein.space.parameters import SCALES
from protein.spelling import nearest

_PARAMS = "hydra.sweeper.params"
_MAX_VALUES = 10_000  # of a range that has to be counted
_MARKS = {"min", "max", "low", "high", "bounds", "choices", "values", "value", "type"}  # of a parameter's table
_PLAIN = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)  # a text that needs no quotes
_CONSTANTS = ("true", "false", "null", "inf", "nan")  # which it is not


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the overrides ask for.

    Attributes:
        tables: of every parameter that is searched, as a space file has it, by its name.
        keys: what Hydra calls these, as in `+model/encoder`, by their names.
        fixed: overrides of the other values, as they were given.
    """

    tables: dict[str, dict[str, Any]]
    keys: dict[str, str]
    fixed: tuple[str, ...]

    def words(self) -> list[str]:
        """Returns the overrides of a run, with placeholders for what is searched, quoted for a command line."""
        searched = [f"{key.replace('{', '{{').replace('}', '}}')}={{{name}}}" for name, key in self.keys.items()]
        return [shlex.quote(word) for word in (*map(as_it_is, self.fixed), *searched)]

    def overrides(self, params: Mapping[str, Any]) -> list[str]:
        """Returns the overrides of one config."""
        return [*self.fixed, *(f"{self.keys[name]}={value}" for name, value in params.items())]


def as_it_is(word: str) -> str:
    """Returns a word for a command line with placeholders, in which it has none."""
    return word.replace("{", "{{").replace("}", "}}")


def read(params: Mapping[str, Any], arguments: list[str], loader: ConfigLoader) -> Asked:
    """Returns what the parameters of the config and the overrides of the command line ask for; the latter come first.

    Raises:
        UsageError: an override that Hydra cannot read, or that cannot be searched.
    """
    parser = OverridesParser.create(config_loader=loader)
    given: dict[str, tuple[str, Override | dict[str, Any]]] = {}
    for key, value in flat(params, _MARKS).items():
        if isinstance(value, dict):
            given[key.lstrip("+")] = key, _table(key, value)
        else:
            text = value if isinstance(value, str) else word(value)
            given[key.lstrip("+")] = key, _parsed(parser, f"{key}={text}", f"{_PARAMS}: ")
    for argument in arguments:
        override = _parsed(parser, argument, "")
        key = override.get_key_element()
        given[key.lstrip("+~")] = key, override
    tables: dict[str, dict[str, Any]] = {}
    keys: dict[str, str] = {}
    fixed: list[str] = []
    for key, found in given.values():
        table = found if isinstance(found, dict) else _of_override(found)
        if table is None:
            assert isinstance(found, Override) and found.input_line is not None
            fixed.append(found.input_line)
        elif set(table) == {"value"}:
            fixed.append(f"{key}={table['value']}")
        else:
            name = _name(key)
            if name in tables:
                raise UsageError(f"{keys[name]} and {key} would both be called {name} in the sweep; fix one of them")
            tables[name], keys[name] = table, key
    return Asked(tables=tables, keys=keys, fixed=tuple(fixed))


def word(value: Any) -> Any:
    """Returns a value as a choice: numbers and bools as they are, all else as the text that Hydra reads so."""
    if isinstance(value, bool | int | float):
        return value
    return Transformer.str(value if value is None else _quoted(value))


def _quoted(value: Any) -> Any:
    """Returns a value of YAML as Hydra's grammar has it: texts in quotes where they would be read as something else."""
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _CONSTANTS
        return value if plain else QuotedString(text=value, quote=Quote.single)
    if isinstance(value, list):
        return [_quoted(one) for one in value]
    return {key: _quoted(one) for key, one in value.items()} if isinstance(value, dict) else value


def _parsed(parser: OverridesParser, text: str, where: str) -> Override:
    try:
        return parser.parse_overrides([text])[0]  # which knows the groups, unlike `parse_override`
    except HydraException as error:
        raise UsageError(f"{where}{' '.join(str(error).split())}") from error


def flat(values: Mapping[str, Any], marks: Collection[str] = (), prefix: str = "") -> dict[str, Any]:
    """Returns values by dotted name. A table is a section, unless it has one of the marks."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        is_section = isinstance(value, dict) and not any(mark in value for mark in marks)
        found |= flat(value, marks, f"{prefix}{key}.") if is_section else {f"{prefix}{key}": value}
    return found


def _table(key: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a parameter's table in our form; it may be in that of Hydra's sweepers for Ax and for Optuna."""
    table = dict(given)
    kind = table.pop("type", None)
    if kind not in (None, "range", "choice", "fixed", "float", "int", "categorical"):
        raise UsageError(f"{_PARAMS}.{key}: type {kind!r} is unknown; give range, choice or fixed")
    if "bounds" in table:
        ends = table.pop("bounds")
        if not isinstance(ends, list) or len(ends) != 2:
            raise UsageError(f"{_PARAMS}.{key}: bounds {ends!r:.80} must be [LOWEST, HIGHEST]")
        table["min"], table["max"] = ends
    if "values" in table:
        table["choices"] = table.pop("values")
    is_log = [table.pop(name) for name in ("log", "log_scale") if name in table]
    if any(is_log):
        table["scale"] = "log"
    if table.pop("value_type", kind) == "float":
        table |= {name: float(table[name]) for name in ("min", "max", "low", "high") if name in table}
    if isinstance(table.get("choices"), list):
        table["choices"] = [word(one) for one in table["choices"]]
    if "value" in table:
        table["value"] = word(table["value"])
    return table


def _of_override(override: Override) -> dict[str, Any] | None:
    """Returns the table of what an override searches; None: it gives one value."""
    key, value = override.get_key_element(), override.value()
    if not override.is_sweep_override():
        return None
    try:
        table: dict[str, Any] = (
            {"min": value.start, "max": value.end} if isinstance(value, IntervalSweep) else _values(override)
        )
    except (HydraException, ValueError, TypeError, ArithmeticError) as error:
        raise UsageError(f"{override.input_line}: {error}") from error
    tags = sorted(value.tags) if isinstance(value, Sweep) else []
    unknown = [tag for tag in tags if tag not in SCALES or "choices" in table]
    if unknown or len(tags) > 1:
        odd = unknown[0] if unknown else " and ".join(tags)
        what = "choices have no scale" if "choices" in table else f"one of {', '.join(SCALES)} is the scale of a range"
        raise UsageError(f"{override.input_line}: tag '{odd}' cannot be used: {what}{nearest(odd, SCALES)}")
    if "min" in table:
        if table["min"] == table["max"]:
            return {"value": table["min"]}
        table |= {"scale": tags[0]} if tags else {}
    elif not table["choices"]:
        raise UsageError(f"{override.input_line}: there is no such value; {key} needs one at least")
    elif len(table["choices"]) == 1:
        return {"value": table["choices"][0]}
    return table


def _values(override: Override) -> dict[str, Any]:
    """Returns the table of choices, or of numbers at equal steps."""
    sweep = override.value()
    if isinstance(sweep, RangeSweep) and not getattr(sweep, "transformers", ()):  # Hydra 1.4 may cast each value
        start, stop, step = (Decimal(str(one)) for one in (sweep.start, sweep.stop, sweep.step))
        whole = all(isinstance(one, int) for one in (sweep.start, sweep.stop, sweep.step))
        count = math.ceil((stop - start) / step) if step else 0
        if count < 1:
            raise ValueError("the range holds no value; its step must lead from its first value to the end")
        first, last = sorted([start, start + step * (count - 1)])
        kind = int if whole else float
        width = {} if whole and abs(step) == 1 else {"step": kind(abs(step))}
        return {"min": kind(first), "max": kind(last), **(width if count > 1 else {})}
    # Hydra's own iterator would shuffle, to another order at each start.
    values = sweep.list if isinstance(sweep, ChoiceSweep) else override.sweep_iterator()
    if isinstance(sweep, ChoiceSweep) and any(isinstance(one, Sweep) for one in sweep.list):
        raise ValueError("a range cannot be one of several choices; give the range alone, or single values")
    choices = [
        one if isinstance(one, bool | int | float) else Transformer.str(one)
        for one in itertools.islice(values, _MAX_VALUES + 1)
    ]
    if len(choices) > _MAX_VALUES:
        raise ValueError(f"more than {_MAX_VALUES} values; give an interval")
    return {"choices": choices}


def _name(key: str) -> str:
    """Returns what a key of Hydra is called in the sweep: a dotted name."""
    plain = re.sub(r"[^\w.]+", "_", key.lstrip("+"))
    return ".".join(part if part.isidentifier() else f"_{part}" for part in plain.split("."))
