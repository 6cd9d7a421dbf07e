"""A sweep file of W&B, as it is: what is searched, and how the program is run.

Taken over are `parameters` with their distributions, the `goal` of `metric`, `run_cap`, `program` and `command` with
all macros. A parameter keeps W&B's name on the command line, whatever characters that has; inside it has one that a
space can have. What is not taken over and changes only how is searched is a warning each. What would change the runs
is refused.

Source: "Sweep configuration options" in W&B's documentation; wandb/wandb_agent.py and wandb/sdk/launch/sweeps/utils.py
in its client.
"""

import contextlib
import itertools
import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from protein.config import yaml_text
from protein.config.layers import OTHER_NAMES, with_own_names
from protein.config.space_toml import SpaceFile, direction_of, start_of
from protein.errors import SpaceError, UsageError
from protein.space import Space
from protein.space.parameters import Categorical, Float, Integer, Parameter, Scale, free_name, parameter_name
from protein.spelling import is_slip, nearest
from protein.types import Direction, ParamValue
from protein.validate import is_json

_KEYS = ("parameters", "metric", "program", "command", "run_cap")
_IGNORED = {  # key -> what to do about it
    "method": "the engine searches; --method random is the only other way of these",
    "early_terminate": "bad trials are stopped early by the engine's own rule",
    "name": "use --name",
    **dict.fromkeys(
        ("project", "entity", "description", "controller", "job", "image_uri", "settings", "scheduler"),
        "it is W&B's own",
    ),
}
_METRIC_KEYS = ("name", "goal")
_RANGE = ("min", "max")
_STEPPED = (*_RANGE, "q")
_NORMAL = ("mu", "sigma")
_DISTRIBUTIONS = {  # -> the keys that go with each
    "constant": ("value",),
    "categorical": ("values", "probabilities"),
    "categorical_w_probabilities": ("values", "probabilities"),
    **dict.fromkeys(("int_uniform", "uniform"), _RANGE),
    **dict.fromkeys(("log_uniform", "inv_log_uniform", "log_uniform_values", "inv_log_uniform_values"), _RANGE),
    **dict.fromkeys(("q_uniform", "q_log_uniform", "q_log_uniform_values"), _STEPPED),
    **dict.fromkeys(("normal", "log_normal"), _NORMAL),
    **dict.fromkeys(("q_normal", "q_log_normal"), (*_NORMAL, "q")),
    "beta": ("a", "b"),
    "q_beta": ("a", "b", "q"),
}
_PARAMETER_KEYS = ["distribution", "parameters", *dict.fromkeys(itertools.chain(*_DISTRIBUTIONS.values()))]
_MOST_STEPS = 1e12  # from 0 to an end of a range
_SPREAD = 3.0  # standard deviations that the range of a normal distribution has to either side
_COMMAND = ("${env}", "${interpreter}", "${program}", "${args}")
_LISTS = ("args", "args_no_boolean_flags", "args_no_hyphens", "args_no_equals", "args_json")  # `{*args}` and so on here
_MACRO = re.compile(r"\$\{([^{}]*)\}")
_VARIABLE = re.compile(r"envvar:([A-Za-z_]\w*)")


def read(text: str, source: str) -> SpaceFile:
    """Returns what the file says. Raises `UsageError`, or `SpaceError` for a range that cannot be."""
    data = _load(text, source)
    warnings = _left_out(data, source)
    tables = data.get("parameters")
    if not isinstance(tables, dict) or not tables:
        raise UsageError(f"{source}: has no parameters; write them as parameters: {{lr: {{min: 0.001, max: 0.1}}}}")
    found = Parameters(source)
    found.add(tables)
    space = Space(found.parameters, fixed=found.fixed)
    return SpaceFile(
        space=space,
        start=start_of(space, given=False),
        direction=direction_of_metric(data.get("metric"), source, warnings),
        command=_command(data, source),
        called=found.called,
        max_trials=None if data.get("run_cap") is None else count(data["run_cap"], "run_cap", source),
        warnings=(*warnings, *found.warnings),
    )


def count(value: Any, key: str, source: str) -> int:
    """Returns how many runs a file allows. Raises `UsageError` for what is no such number."""
    if type(value) is not int or value < 1:
        raise UsageError(f"{source}: {key} = {_short(value)} must be a whole number from 1")
    return value


def direction_of_metric(metric: Any, source: str, warnings: list[str]) -> Direction | None:
    """Returns the direction that the file's metric has; None: there is none. Extends `warnings`."""
    if metric is None:
        return None
    if not isinstance(metric, dict):
        raise UsageError(f"{source}: metric must hold a name and a goal, got {_short(metric)}")
    for key in metric:
        if key in _METRIC_KEYS:
            continue
        if any(is_slip(str(key), known) and known not in metric for known in _METRIC_KEYS):
            raise UsageError(f"{source}: unknown key '{key}' of the metric{nearest(str(key), _METRIC_KEYS)}")
        warnings.append(f"{source}: '{key}: {_short(metric[key])}' of the metric is not taken over")
    if metric.get("name"):
        warnings.append(
            f"{source}: the metric '{metric['name']}' is not read from W&B: report it, or name it with --score-regex,"
            " --score-csv or --score-tensorboard"
        )
    goal = metric.get("goal")
    if goal is None:
        goal = "minimize"
        warnings.append(
            f"{source}: the metric has no goal, which means minimize in W&B; --direction, where given, overrides it"
        )
    return direction_of(goal, source, "goal")


def _left_out(data: Mapping[Any, Any], source: str) -> list[str]:
    """Returns a warning for each key that is not taken over. Raises `UsageError` for a slip of one that would be."""
    warnings = []
    for key, value in data.items():
        if key in _KEYS:
            continue
        if key not in _IGNORED and any(is_slip(str(key), known) and known not in data for known in _KEYS):
            raise UsageError(f"{source}: unknown key '{key}'{nearest(str(key), (*_KEYS, *_IGNORED))}")
        why = _IGNORED.get(key, "it is no key of a sweep")
        warnings.append(f"{source}: '{key}: {value!s:.60}' is not taken over: {why}")
    return warnings


def _load(text: str, source: str) -> dict[Any, Any]:
    try:
        data = yaml_text.plain(text)
    except ImportError as error:
        raise UsageError(f"{source}: reading YAML needs a package; pip install pyyaml") from error
    except ValueError as error:
        raise UsageError(f"{source}: not valid YAML: {error}") from error
    if data is None:
        raise UsageError(
            f"{source}: is empty; write the sweep into it, as in parameters: {{lr: {{min: 1e-4, max: 0.1}}}}"
        )
    if not isinstance(data, dict):
        raise UsageError(f"{source}: holds no W&B sweep, but a {type(data).__name__}")
    return data


class Parameters:
    """The parameters of W&B's tables.

    Attributes:
        parameters: those that are searched, in order.
        fixed: the others' values, by name.
        called: W&B's own name of each that has another name here, after those of its tables.
        warnings: what is not taken over, a line each.
    """

    def __init__(self, source: str) -> None:
        self.parameters: list[Parameter] = []
        self.fixed: dict[str, ParamValue] = {}
        self.called: dict[str, tuple[str, ...]] = {}
        self.warnings: list[str] = []
        self._source = source
        self._names: set[str] = set()

    def add(self, tables: Mapping[Any, Any], above: tuple[str, ...] = ()) -> None:
        """Adds all parameters of a table, which stands in the tables `above`.

        Raises:
            UsageError: something of it cannot be done here.
            SpaceError: a range cannot be.
        """
        for key, given in tables.items():
            path = (*above, self._usable(key if isinstance(key, str) else json.dumps(key, default=str), "the name"))
            shown = ".".join(path)
            if not isinstance(given, dict) or not given:
                raise self.error(f"parameter '{shown}' must hold value, values or min and max, got {_short(given)}")
            for one in given:
                if one not in (*_PARAMETER_KEYS, *OTHER_NAMES):
                    known = nearest(str(one), _PARAMETER_KEYS)
                    raise self.error(f"unknown key '{one}' of parameter '{shown}'{known}")
            if isinstance(given.get("parameters"), dict):
                if others := [one for one in given if one != "parameters"]:
                    raise self.error(f"'{shown}' holds parameters and {others[0]}; give one of them")
                self.add(given["parameters"], path)
            else:
                self._add(path, with_own_names(shown, given))

    def named(self, path: tuple[str, ...]) -> str:
        """Returns the name that a parameter has here, and keeps what it is called there."""
        name = free_name(parameter_name(".".join(path)), self._names)
        self._names.add(name)
        if path != (name,):
            self.called[name] = path
        return name

    def _add(self, path: tuple[str, ...], given: Mapping[str, Any]) -> None:
        name = self.named(path)
        kind = self._kind(name, given)
        if kind == "constant":
            self.fixed[name] = self.plain(given["value"], name)
        elif not kind.startswith("categorical"):
            self.parameters.append(self._of_range(name, kind, given))
        else:
            if "probabilities" in given:
                self.warn(f"{name}: 'probabilities' is not taken over: all values are equal at first")
            if not isinstance(given["values"], list):
                raise self.error(f"values of '{name}' must be a list, got {_short(given['values'])}")
            self.add_values(name, given["values"])

    def add_values(self, name: str, listed: Sequence[Any]) -> None:
        """Adds a parameter that has one of some values. Raises `UsageError` for a value that is none of JSON."""
        values = [self.plain(value, name) for value in listed]
        if len(values) == 1:
            self.fixed[name] = values[0]
        else:
            self.parameters.append(_of_values(name, values))

    def _kind(self, name: str, given: Mapping[str, Any]) -> str:
        """Returns the distribution, as W&B chooses one where none is named. Raises `UsageError` for keys of another."""
        whole = type(given.get("min")) is int and type(given.get("max")) is int
        by_keys = {"value": "constant", "values": "categorical", "mu": "normal", "sigma": "normal"}
        guess = next((kind for key, kind in by_keys.items() if key in given), "int_uniform" if whole else "uniform")
        kind = str(given.get("distribution") or guess)
        if kind not in _DISTRIBUTIONS:
            raise self.error(f"{name}: unknown distribution '{kind}'{nearest(kind, list(_DISTRIBUTIONS))}")
        allowed = _DISTRIBUTIONS[kind]
        for key in given:
            if key not in ("distribution", *allowed):
                raise self.error(f"{name}: '{key}' does not go with {kind}, which has {' and '.join(allowed)}")
        if (needed := allowed[0]) in ("value", "values") and needed not in given:
            raise self.error(f"{name}: {kind} needs {needed}; give it")
        return kind

    def _of_range(self, name: str, kind: str, given: Mapping[str, Any]) -> Parameter:
        base = kind.removeprefix("q_")
        if base in ("normal", "log_normal"):
            mu, sigma = (self._number(given.get(key, i), f"{key} of {name}") for i, key in enumerate(_NORMAL))
            low, high = mu - _SPREAD * sigma, mu + _SPREAD * sigma
            low, high = (_exp(low), _exp(high)) if base == "log_normal" else (low, high)
            self.warn(f"{name}: a range has ends: '{kind}' becomes {low:.6g} to {high:.6g}")
        elif base == "beta":
            low, high = 0.0, 1.0
            self.warn(f"{name}: the shape of '{kind}' is not taken over: it is searched evenly in 0 to 1")
        else:
            for key in _RANGE:
                if given.get(key) is None:
                    raise self.error(f"{name}: the range has no {key}; give both")
            low, high = (self._number(given[key], f"{key} of {name}") for key in _RANGE)
        if base in ("log_uniform", "inv_log_uniform"):  # their bounds are exponents
            exponents = (low, high) if base == "log_uniform" else (-high, -low)
            if not math.isfinite(_exp(exponents[1])):
                raise self.error(
                    f"{name}: the bounds of {kind} are exponents of e, and those from {low:g} to {high:g} are too"
                    f" large; for bounds that are values write {kind}_values"
                )
            low, high = (_exp(exponent) for exponent in exponents)
        if base.startswith("inv_"):
            self.warn(f"{name}: '{kind}' is searched on a log scale")
        scale: Scale = "log" if "log" in base else "linear"
        if kind.startswith("q_"):
            return self._in_steps(name, given.get("q", 1), low, high, scale)
        if kind == "int_uniform":
            for bound in (low, high):
                if not bound.is_integer():
                    raise self.error(f"{name}: {bound:g} is no whole number, as int_uniform needs; write uniform")
            return Integer(name, int(low), int(high))
        return Float(name, low, high, scale)

    def _in_steps(self, name: str, given: Any, low: float, high: float, scale: Scale) -> Parameter:
        """Returns the range of a value that W&B rounds to the nearest multiple of `q`."""
        size = self._number(given, f"q of {name}")
        if size <= 0:
            raise self.error(f"{name}: q = {given} must be above 0")
        if not max(abs(low), abs(high)) / size < _MOST_STEPS:
            raise self.error(f"{name}: steps of {size:g} (q) are too small for {low:g} to {high:g}; raise q")
        first, last = round(low / size), round(high / size)
        if first == last:
            raise self.error(
                f"{name}: with steps of {size:g} (q) {low:g} to {high:g} has one value; lower q, or give the value"
            )
        if scale == "log" and first == 0:
            self.warn(f"{name}: has the value 0, which a log scale cannot hold: it is searched on a linear one")
            scale = "linear"
        if size.is_integer():
            return Integer(name, first * int(size), last * int(size), scale, step=int(size))
        exact = Decimal(repr(size))
        return Float(name, float(first * exact), float(last * exact), scale, step=size)

    def plain(self, value: Any, name: str) -> ParamValue:
        """Returns a value of JSON. Raises `UsageError` for any other."""
        if not is_json(value):
            raise self.error(
                f"the value {_short(value)} of '{name}' is none of JSON; for a program that reads it from a flag, write"
                f" the text {_short(str(value))}"
            )
        for text in [value] if isinstance(value, str) else _texts(value):
            self._usable(text, f"a value of '{name}'")
        return value

    def _usable(self, text: str, what: str) -> str:
        """Returns a text that a program can be given. Raises `UsageError` for others."""
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            raise self.error(f"{what} {_short(text)} has a character that no program can be given; leave it out")
        return text

    def _number(self, value: Any, what: str) -> float:
        try:  # YAML takes 1e-3 for a text
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise self.error(f"{what} is {_short(value)}, which is no finite number")
        return number

    def warn(self, text: str) -> None:
        """Keeps what is not taken over."""
        self.warnings.append(f"{self._source}: {text}")

    def error(self, text: str) -> UsageError:
        """Returns an error that names the file."""
        return UsageError(f"{self._source}: {text}")


def _texts(value: ParamValue) -> Iterator[str]:
    """Yields the texts in a list or a table, names included."""
    for one in (*value, *value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from [one] if isinstance(one, str) else _texts(one)


def _of_values(name: str, values: list[ParamValue]) -> Parameter:
    """Returns listed values as a parameter.

    Three or more whole numbers, or three or more decimal ones, are a range with an order where that has the very same
    values: powers of two that double, or values at equal distances. Others are choices.
    """
    kinds = set(map(type, values))
    if (kinds == {int} or kinds == {float}) and len(set(values)) == len(values) >= 3:
        numbers: list[Any] = sorted(values)
        with contextlib.suppress(SpaceError, InvalidOperation):  # as for infinity, or numbers too large for a range
            kind = Integer if kinds == {int} else Float
            step: Any = numbers[1] - numbers[0]
            if numbers[0] > 0 and all(b == 2 * a for a, b in itertools.pairwise(numbers)):
                found = kind(name, numbers[0], numbers[-1], "pow2")
            elif kind is Integer:
                found = kind(name, numbers[0], numbers[-1], step=step)
            else:
                step = float(Decimal(repr(numbers[1])) - Decimal(repr(numbers[0])))  # of 0.3 and 0.4: 0.1
                found = kind(name, numbers[0], numbers[-1], step=step)
            listed = found.values()
            if listed is not None and len(listed) == len(numbers) and list(listed) == numbers:
                return found
    return Categorical(name, values)


def _command(data: Mapping[str, Any], source: str) -> str | None:
    """Returns the file's command in the form of `--command`; None: it has none, or W&B is told it elsewhere."""
    program, given = data.get("program"), data.get("command")
    if program is None and given is None:
        return None
    if not isinstance(given, list | None) or any(isinstance(word, dict | list) for word in given or ()):
        raise UsageError(
            f"{source}: command must be a list of words, as in [python, train.py, '${{args}}'], got {_short(given)}"
        )
    words = [str(word) for word in given or _COMMAND]
    if program is None and any("${program}" in word for word in words):
        return None
    if words[0] == "${env}" and not (len(words) > 1 and (words[1].startswith("-") or "=" in words[1])):
        words = words[1:]  # /usr/bin/env before a program changes nothing
    return shlex.join(_filled(word, str(program), source) for word in words) or None


def _filled(word: str, program: str, source: str) -> str:
    """Returns a word with placeholders in place of its macros. Raises `UsageError` for a macro that is not known."""
    plain = {"env": "/usr/bin/env", "interpreter": "python", "program": _escaped(program)}
    placeholders = {"args_json_file": "{params_file}", **{name: f"{{*{name}}}" for name in _LISTS}}
    found, end = "", 0
    for macro in _MACRO.finditer(word):
        name = macro.group(1)
        variable = _VARIABLE.fullmatch(name)
        known = plain | placeholders
        if variable is None and name not in known:
            close = nearest(name, [*known, "envvar:NAME"])
            raise UsageError(f"{source}: {macro.group()} in the command is no macro of W&B's{close}")
        text = known[name] if variable is None else f"{{env:{variable.group(1)}}}"
        found, end = found + _escaped(word[end : macro.start()]) + text, macro.end()
    rest = word[end:]
    if "${" in rest:
        raise UsageError(f"{source}: a macro in the word {_short(word)} of the command is not closed; write ${{args}}")
    return found + _escaped(rest)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _exp(exponent: float) -> float:
    """Returns e to the power of it, which may be infinite."""
    try:
        return math.exp(exponent)
    except OverflowError:
        return math.inf


def _short(value: object) -> str:
    return f"{value!r:.60}"
