"""Reads a space in a file of its own (`--space`); the file's ending says which form it has.

    .toml          our own (`protein.config.space_toml`)
    .yaml, .yml    a sweep of W&B, as it is
    .ini           PufferLib's, as it is (`protein.config.puffer_ini`)

Of a W&B sweep it takes over `parameters` with their distributions, the `goal` of `metric`, and `program` and
`command`. For the rest there is a warning each.

Source: "Sweep configuration options" in W&B's documentation.
"""

import itertools
import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protein.config import puffer_ini, space_toml
from protein.config.layers import display_path
from protein.config.space_toml import SpaceFile, direction_of, start_of
from protein.errors import SpaceError, UsageError
from protein.space import Space
from protein.space.parameters import Categorical, Float, Integer, Parameter, Scale
from protein.spelling import nearest
from protein.types import ParamValue

_KEYS = ("parameters", "metric", "program", "command")
_IGNORED = {  # key -> what to do about it
    "method": "the engine searches; --method random is the only other way of these",
    "early_terminate": "bad trials are stopped early by the engine's own rule",
    "run_cap": "use --max-trials",
    "name": "use --name",
    **dict.fromkeys(
        ("project", "entity", "description", "controller", "job", "image_uri", "settings"), "it is W&B's own"
    ),
}
_PARAMETER_KEYS = [
    "value",
    "values",
    "distribution",
    "min",
    "max",
    "q",
    "mu",
    "sigma",
    "probabilities",
    "parameters",
    "a",
    "b",
]
_DISTRIBUTIONS = [
    "constant",
    "categorical",
    "categorical_w_probabilities",
    "int_uniform",
    "uniform",
    "q_uniform",
    "log_uniform",
    "q_log_uniform",
    "inv_log_uniform",
    "log_uniform_values",
    "q_log_uniform_values",
    "inv_log_uniform_values",
    "normal",
    "q_normal",
    "log_normal",
    "q_log_normal",
    "beta",
    "q_beta",
]
_SPREAD = 3.0  # standard deviations that the range of a normal distribution has to either side
_COMMAND = ("${env}", "${interpreter}", "${program}", "${args}")


def read(path: Path) -> SpaceFile:
    """Returns what a space file holds. Raises `UsageError`, with the file and the key, where it cannot be used."""
    source = f"--space {display_path(path)}"
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors on Windows begin a file with a mark
    except FileNotFoundError:
        raise UsageError(f"{source}: no such file; check the path") from None
    except OSError as error:
        raise UsageError(f"{source}: cannot be read ({error.strerror}); check the path") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{source}: is no text ({error.reason}); give a TOML, YAML or INI file") from error
    readers = {".toml": space_toml.read, ".yaml": _read_wandb, ".yml": _read_wandb, ".ini": puffer_ini.read}
    if path.suffix.lower() not in readers:
        raise UsageError(
            f"{source}: '{path.suffix}' is no known kind; give our form (.toml), a W&B sweep (.yaml) or"
            " PufferLib's .ini"
        )
    try:
        return readers[path.suffix.lower()](text, source)
    except SpaceError as error:
        raise UsageError(f"{source}: {error}") from error


def _read_wandb(text: str, source: str) -> SpaceFile:
    """Returns what the file says. Raises `UsageError`, or `SpaceError` for a range that cannot be."""
    data = _load(text, source)
    warnings: list[str] = []
    for key, value in data.items():
        if key in _IGNORED:
            warnings.append(f"{source}: '{key}: {value!s:.60}' is not taken over: {_IGNORED[key]}")
        elif key not in _KEYS:
            known = (*_KEYS, *_IGNORED)
            raise UsageError(f"{source}: unknown key '{key}'{nearest(str(key), known)}")
    parameters: list[Parameter] = []
    fixed: dict[str, ParamValue] = {}
    tables = data.get("parameters")
    if not isinstance(tables, dict):
        raise UsageError(f"{source}: has no parameters")
    dashed = _rename(tables, source)
    _collect(tables, "", source, parameters, fixed, warnings)
    space = Space(parameters, fixed=fixed)
    metric = data.get("metric") or {}
    goal = metric.get("goal") if isinstance(metric, dict) else None
    if isinstance(metric, dict) and metric.get("name"):
        warnings.append(
            f"{source}: the metric '{metric['name']}' is not read from W&B: report it, or name it with --score-regex,"
            " --score-csv or --score-tensorboard"
        )
    if isinstance(metric, dict) and metric and goal is None:
        goal = "minimize"
        warnings.append(
            f"{source}: the metric has no goal, which means minimize in W&B; --direction, where given, overrides it"
        )
    names = {name: dashed.get(name, name) for name in (*space.names, *fixed)}
    command = _command(data, names, source, warnings)
    return SpaceFile(
        space=space,
        start=start_of(space, given=False),
        direction=None if goal is None else direction_of(goal, source, "goal"),
        command=command,
        params="dashes" if dashed else None,
        warnings=tuple(warnings),
    )


def _rename(tables: dict[str, Any], source: str) -> dict[str, str]:
    """Replaces dashes in the names of parameters by underscores. Returns the names that had any, by the new one."""
    found = {str(name).replace("-", "_"): str(name) for name in tables if "-" in str(name)}
    for new, old in found.items():
        if new in tables:
            raise UsageError(f"{source}: '{old}' and '{new}' would be one parameter here; rename one of them")
        tables[new] = tables.pop(old)
    return found


def _load(text: str, source: str) -> dict[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise UsageError(f"{source}: reading YAML needs a package; pip install pyyaml") from error
    try:
        data = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{source}: not valid YAML: {' '.join(str(error).split())}") from error
    if data is None:
        raise UsageError(
            f"{source}: is empty; write the sweep into it, as in parameters: {{lr: {{min: 1e-4, max: 0.1}}}}"
        )
    if not isinstance(data, dict):
        raise UsageError(f"{source}: holds no W&B sweep, but a {type(data).__name__}")
    return data


def _collect(
    tables: Mapping[str, Any],
    prefix: str,
    source: str,
    parameters: list[Parameter],
    fixed: dict[str, ParamValue],
    warnings: list[str],
) -> None:
    for key, given in tables.items():
        name = f"{prefix}{key}"
        if not isinstance(given, dict):
            raise UsageError(
                f"{source}: parameter '{name}' must hold value, values or min and max, got {_short(given)}"
            )
        for one in given:
            if one not in _PARAMETER_KEYS:
                raise UsageError(
                    f"{source}: unknown key '{one}' of parameter '{name}'{nearest(str(one), _PARAMETER_KEYS)}"
                )
        if isinstance(given.get("parameters"), dict):
            _collect(given["parameters"], f"{name}.", source, parameters, fixed, warnings)
        elif "value" in given:
            fixed[name] = _plain(given["value"], name, source)
        elif "values" in given:
            if "probabilities" in given:
                warnings.append(f"{source}: {name}: 'probabilities' is not taken over: all values are equal at first")
            if not isinstance(given["values"], list):
                raise UsageError(f"{source}: values of '{name}' must be a list, got {_short(given['values'])}")
            values = [_plain(value, name, source) for value in given["values"]]
            if len(values) == 1:
                fixed[name] = values[0]
            else:
                parameters.append(_of_values(name, values))
        else:
            parameters.append(_of_range(name, given, source, warnings))


def _of_values(name: str, values: list[ParamValue]) -> Parameter:
    """Returns listed values as a parameter: as a range where that has the very same values."""
    numbers = sorted(value for value in values if type(value) is int)
    if len(numbers) == len(values) and len(set(numbers)) >= 3:
        if numbers[0] > 0 and all(b == 2 * a for a, b in itertools.pairwise(numbers)):
            if numbers[0] & (numbers[0] - 1) == 0:
                return Integer(name, numbers[0], numbers[-1], "pow2")
        elif numbers == list(range(numbers[0], numbers[-1] + 1)):
            return Integer(name, numbers[0], numbers[-1])
    return Categorical(name, values)


def _of_range(name: str, given: Mapping[str, Any], source: str, warnings: list[str]) -> Parameter:
    low, high = given.get("min"), given.get("max")
    whole = type(low) is int and type(high) is int
    kind = str(given.get("distribution") or ("int_uniform" if whole else "uniform"))
    if kind not in _DISTRIBUTIONS:
        raise UsageError(f"{source}: {name}: unknown distribution '{kind}'{nearest(kind, _DISTRIBUTIONS)}")
    step = given.get("q", 1 if kind.startswith("q_") else None)
    base = kind.removeprefix("q_")
    if base in ("normal", "log_normal"):
        mu, sigma = _number(given.get("mu", 0), name, source), _number(given.get("sigma", 1), name, source)
        low, high = mu - _SPREAD * sigma, mu + _SPREAD * sigma
        low, high = (_exp(low), _exp(high)) if base == "log_normal" else (low, high)
        warnings.append(f"{source}: {name}: a range has ends: '{kind}' becomes {low:.6g} to {high:.6g}")
    elif base == "beta":
        low, high = 0.0, 1.0
        warnings.append(f"{source}: {name}: the shape of '{kind}' is not taken over: it is searched evenly in 0 to 1")
    if low is None or high is None:
        raise UsageError(f"{source}: {name}: the range has no {'min' if low is None else 'max'}; give both")
    low, high = _number(low, name, source), _number(high, name, source)
    if base in ("log_uniform", "inv_log_uniform"):  # their bounds are exponents
        exponents = (low, high) if base == "log_uniform" else (-high, -low)
        if not math.isfinite(_exp(exponents[1])):
            raise UsageError(
                f"{source}: {name}: the bounds of {kind} are exponents of e, and those from {low:g} to {high:g} are too"
                f" large; for bounds that are values write {kind}_values"
            )
        low, high = (_exp(exponent) for exponent in exponents)
    if base.startswith("inv_"):
        warnings.append(f"{source}: {name}: '{kind}' is searched on a log scale")
    scale: Scale = "log" if "log" in base else "linear"
    size = 0.0 if step is None else _number(step, f"q of {name}", source)
    whole = base == "int_uniform" or (size > 0 and size.is_integer())  # multiples of 8 are whole numbers, too
    if size not in (0.0, 1.0):
        tried = "any whole number" if whole else "any value"
        warnings.append(f"{source}: {name}: steps of {step} are not kept: {tried} of the range may be tried")
    return Integer(name, round(low), round(high), scale) if whole else Float(name, low, high, scale)


def _command(data: Mapping[str, Any], names: Mapping[str, str], source: str, warnings: list[str]) -> str | None:
    """Returns the file's command in the form of `--command`; None: it has none.

    Extends `warnings`. `names` are the parameters with what the program calls each.
    """
    program, given = data.get("program"), data.get("command")
    if program is None and given is None:
        return None
    if not isinstance(given, list | None):
        raise UsageError(
            f"{source}: command must be a list of words, as in [python, train.py, '${{args}}'], got {_short(given)}"
        )
    if program is None and "${program}" in (given or _COMMAND):
        return None  # W&B is told it elsewhere
    words: list[str] = []
    for word in given or _COMMAND:
        word = str(word)
        if word == "${env}":
            continue  # /usr/bin/env changes nothing
        if word == "${interpreter}":
            words.append("python")
        elif word == "${program}":
            words.append(str(program))
        elif word in ("${args}", "${args_no_boolean_flags}"):
            words += [f"--{flag}={{{name}}}" for name, flag in names.items()]
            if word != "${args}":
                warnings.append(f"{source}: ${{args_no_boolean_flags}} is read as ${{args}}: booleans get a value")
        elif word == "${args_no_hyphens}":
            words += [f"{flag}={{{name}}}" for name, flag in names.items()]
        elif word == "${args_json_file}":
            words.append("{params_file}")
        elif word.startswith("${"):
            raise UsageError(f"{source}: {word} in the command is not known here; give --command yourself")
        else:
            words.append(word.replace("{", "{{").replace("}", "}}"))
    return shlex.join(words)


def _plain(value: Any, name: str, source: str) -> ParamValue:
    if not isinstance(value, bool | int | float | str):
        raise UsageError(f"{source}: the value {_short(value)} of '{name}' is no number, text or boolean")
    return value


def _exp(exponent: float) -> float:
    """Returns e to the power of it, which may be infinite."""
    try:
        return math.exp(exponent)
    except OverflowError:
        return math.inf


def _number(value: Any, name: str, source: str) -> float:
    try:  # YAML takes 1e-3 for a text
        return float(value)
    except (TypeError, ValueError):
        raise UsageError(f"{source}: {name}: {_short(value)} is no number") from None


def _short(value: object) -> str:
    return f"{value!r:.60}"
