"""A space in a JSON file of another tool; which one shows in the file.

Ray Tune's objects have no form in JSON of their own. They are read in the forms that tools and people write:

    {"lr": "tune.loguniform(1e-4, 0.1)", "layers": "randint(1, 4)"}    its calls, as texts of plain values
    {"lr": {"space": "loguniform", "lower": 1e-4, "upper": 0.1}}       Ludwig's; `type` in place of `space`, too
    {"lr": {"domain_cls": "Float", "domain_kwargs": {...}, ...}}       Syne Tune's metadata.json
    {"lr": {"grid_search": [0.1, 0.01]}}                               Ray's own

Optuna's are what `distribution_to_json` returns, by name: as text or as its table. ConfigSpace's is the file that
`to_json` writes, with its conditions and its forbidden clauses. A sweep of W&B is read as in YAML. Any other value is
fixed, and a table of these is a section. What a space cannot say is refused, with its name.

Source: ray/tune/search/sample.py; syne_tune/config_space.py; "Hyperparameter optimization" in Ludwig's documentation;
optuna/distributions.py; ConfigSpace/read_and_write of ConfigSpace 1.2.
"""

import ast
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from protein.config import wandb_sweep
from protein.config.layers import looks_like_range
from protein.config.space_toml import RANGE_CALL, SpaceFile, start_of
from protein.errors import UsageError
from protein.space import Space
from protein.space.parameters import Categorical, Float, Integer, Scale
from protein.spelling import nearest

_ARGUMENTS = {  # of Ray's functions -> their arguments, in order; those in brackets may be left out
    **dict.fromkeys(("uniform", "randint"), ("lower", "upper")),
    **dict.fromkeys(("loguniform", "lograndint"), ("lower", "upper", "[base]")),
    **dict.fromkeys(("quniform", "qrandint"), ("lower", "upper", "q")),
    **dict.fromkeys(("qloguniform", "qlograndint"), ("lower", "upper", "q", "[base]")),
    "randn": ("[mean]", "[sd]"),
    "qrandn": ("mean", "sd", "q"),
    "choice": ("categories",),
    "grid_search": ("values",),
}
_CALL = re.compile(r"((?:\w+\.)*)(\w+)\((.*)", re.DOTALL)
_PREFIXES = ("", "tune.", "ray.tune.")
_PICKLE = "CLOUDPICKLE_FALLBACK"  # marks what Ray has pickled within JSON
_COMPARED = {"EQ": "==", "NEQ": "!=", "LT": "<", "GT": ">", "EQUALS": "==", "LESS": "<", "GREATER": ">"}


def read(text: str, source: str) -> SpaceFile:
    """Returns what the file says. Raises `UsageError`, or `SpaceError` for a range that cannot be."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{source}: not valid JSON: {error!s:.120}") from error
    if not isinstance(data, dict) or not data:
        raise UsageError(f'{source}: holds no parameters; write them as {{"lr": "loguniform(1e-4, 0.1)"}}')
    if isinstance(data.get("parameters"), dict) and {"method", "metric", "program", "command"} & data.keys():
        return wandb_sweep.read(text, source)
    return of_table(data, source)


def of_table(data: Mapping[str, Any], source: str) -> SpaceFile:
    """Returns what a table of parameters says, as `read` does that of a file."""
    found = wandb_sweep.Parameters(source)
    constraints: list[str] = []
    is_configspace = isinstance(data.get("hyperparameters"), list)
    try:
        if is_configspace:
            constraints = _configspace(data, found)
        else:
            _collect(data, (), found, source)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{source}: is no such file as its tool writes ({error!r:.80}); write it again") from error
    space = Space(found.parameters, constraints=constraints, fixed=found.fixed)
    start = start_of(space, given=is_configspace)
    return SpaceFile(space=space, start=start, called=found.called, warnings=tuple(found.warnings))


def _collect(table: Mapping[str, Any], above: tuple[str, ...], found: wandb_sweep.Parameters, source: str) -> None:
    """Adds the parameters of a table that stands in the tables `above`."""
    for key, given in table.items():
        name = ".".join((*above, key))
        if isinstance(given, Mapping) and given.get("_type") == _PICKLE:
            raise UsageError(
                f"{source}: '{name}' is pickled by Ray, and to read that would run its code; write it as a text, as in"
                ' "loguniform(1e-4, 0.1)"'
            )
        if (distribution := _optunas(given)) is not None:
            _add_optunas(found, (*above, key), *distribution)
        elif (call := _call(name, given, source)) is not None:
            found.add({key: _as_wandbs(name, *call, source)}, above)
        elif isinstance(given, Mapping) and given:
            if any(isinstance(one, int | float | list) for one in given.values()) and looks_like_range(given):
                raise UsageError(
                    f"{source}: '{name}' looks like a range, but of none of the forms that a JSON file has"
                    f' ({", ".join(given):.60}); write it as in "loguniform(1e-4, 0.1)"'
                )
            _collect(given, (*above, key), found, source)
        else:
            found.add({key: {"value": given}}, above)


def _call(name: str, given: Any, source: str) -> tuple[str, dict[str, Any]] | None:
    """Returns one of Ray's functions and its arguments by name; None for what is no range.

    Raises:
        UsageError: it is a range that cannot be one here.
    """
    if isinstance(given, str):
        text = given.strip()
        match = _CALL.fullmatch(text)
        if match is None or not (match[2] in _ARGUMENTS or match[1].endswith("tune.") or RANGE_CALL.match(text)):
            return None  # a text as any other
        prefix, function, inner = match.groups()
        if prefix not in _PREFIXES:
            _known(name, prefix + function, source)
        keys = [key.strip("[]") for key in _known(name, function, source)]
        try:
            call = ast.parse(f"f({inner}", mode="eval").body
            assert isinstance(call, ast.Call)
            plain = [ast.literal_eval(one) for one in call.args]
            named = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError, AssertionError):
            raise UsageError(
                f"{source}: '{name}' = {given!r:.60} is not of plain values; write them, as in loguniform(1e-4, 0.1)"
            ) from None
        if len(plain) > len(keys):
            raise UsageError(f"{source}: '{name}': {function} has {len(plain)} values, but takes {', '.join(keys)}")
        return function, {**dict(zip(keys, plain, strict=False)), **named}
    if not isinstance(given, Mapping):
        return None
    if given.keys() == {"grid_search"}:
        return "grid_search", {"values": given["grid_search"]}
    if "domain_cls" in given:
        return _syne_tunes(name, given, source)
    for key in ("space", "type"):
        rest = {one: value for one, value in given.items() if one != key}
        if isinstance(given.get(key), str) and (given[key] in _ARGUMENTS or looks_like_range(rest)):
            _known(name, given[key], source)
            return given[key], rest
    return None


def _known(name: str, function: str, source: str) -> tuple[str, ...]:
    """Returns the arguments of a function of Ray's. Raises `UsageError` for one that is not known here."""
    if function not in _ARGUMENTS:
        raise UsageError(
            f"{source}: '{name}' = {function:.60} cannot be a range here{nearest(function, list(_ARGUMENTS))}"
        )
    return _ARGUMENTS[function]


def _syne_tunes(name: str, given: Mapping[str, Any], source: str) -> tuple[str, dict[str, Any]]:
    """Returns the function of Ray's that a domain of Syne Tune is; its whole ranges have both ends."""
    kind, values = str(given["domain_cls"]), dict(given["domain_kwargs"])
    sampler = str(given.get("sampler_cls", "Uniform"))
    if kind in ("Categorical", "Ordinal", "OrdinalNearestNeighbor"):
        return "choice", {"categories": values["categories"]}
    if kind == "FiniteRange":
        low, high, size = float(values["lower"]), float(values["upper"]), int(values["size"])
        if values.get("log_scale"):
            low, high = math.log(low), math.log(high)
        listed = [low + (high - low) * i / max(size - 1, 1) for i in range(size)]
        listed = [math.exp(one) if values.get("log_scale") else one for one in listed]
        return "choice", {"categories": [round(one) if values.get("cast_int") else one for one in listed]}
    ends = {"lower": values.get("lower"), "upper": values.get("upper")}
    if kind == "Integer" and sampler in ("Uniform", "LogUniform"):
        return "qrandint" if sampler == "Uniform" else "qlograndint", {**ends, "q": 1}
    if kind == "Float" and sampler in ("Uniform", "LogUniform"):
        return sampler.lower(), ends
    raise UsageError(f"{source}: '{name}': a {kind} that is drawn by {sampler} cannot be a range here; give another")


def _as_wandbs(name: str, function: str, values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Returns a call of Ray's as the table that W&B would have for it."""
    arguments = _ARGUMENTS[function]
    allowed = [one.strip("[]") for one in arguments]
    for one in values:
        if one not in allowed:
            raise UsageError(f"{source}: '{name}': {function} has no '{one}'{nearest(one, allowed)}")
    if lacking := [one for one in arguments if one not in values and not one.startswith("[")]:
        raise UsageError(f"{source}: '{name}': {function} needs {' and '.join(lacking)}; give all of them")
    if function in ("choice", "grid_search"):
        return {"values": values[allowed[0]]}
    if function.endswith("randn"):
        quantum = {"q": values["q"]} if "q" in values else {}
        kind = "q_normal" if quantum else "normal"
        return {"distribution": kind, "mu": values.get("mean", 0.0), "sigma": values.get("sd", 1.0), **quantum}
    low, high = values["lower"], values["upper"]
    whole = function.endswith("randint")
    if whole and not function.startswith("q") and type(high) is int:
        high -= 1  # which Ray never draws
    kind = "log_uniform_values" if "log" in function else "uniform"
    if whole or "q" in values:
        return {"distribution": f"q_{kind}", "min": low, "max": high, "q": values.get("q", 1)}
    return {"distribution": kind, "min": low, "max": high}


def _optunas(given: Any) -> tuple[str, Mapping[str, Any]] | None:
    """Returns the name and the attributes of a distribution of Optuna's; None for anything else."""
    if isinstance(given, str) and given.lstrip().startswith("{") and "Distribution" in given:
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return None
    if isinstance(given, Mapping) and given.keys() == {"name", "attributes"}:
        return str(given["name"]), given["attributes"]
    return None


def _add_optunas(
    found: wandb_sweep.Parameters, path: tuple[str, ...], kind: str, attributes: Mapping[str, Any]
) -> None:
    name = found.named(path)
    if kind == "CategoricalDistribution":
        found.add_values(name, attributes["choices"])
        return
    if kind not in ("FloatDistribution", "IntDistribution"):
        raise found.error(f"'{name}': {kind} of an older Optuna; read it and write it again with Optuna 3 or newer")
    low, high, step = attributes["low"], attributes["high"], attributes.get("step")
    if low == high:
        found.fixed[name] = low
        return
    scale: Scale = "log" if attributes.get("log") else "linear"
    kept = None if step is None or (kind == "IntDistribution" and step == 1) else step
    found.parameters.append((Integer if kind == "IntDistribution" else Float)(name, low, high, scale, step=kept))


def _configspace(data: Mapping[str, Any], found: wandb_sweep.Parameters) -> list[str]:
    """Adds the parameters of a ConfigSpace, and returns its forbidden clauses as constraints."""
    names = {one["name"]: found.named((one["name"],)) for one in data["hyperparameters"]}
    when: dict[str, list[str]] = {}
    for one in data.get("conditions", ()):
        when.setdefault(names[one["child"]], []).append(_clause(one, names, found))
    for one in data["hyperparameters"]:
        name, kind, default = names[one["name"]], str(one["type"]), one.get("default_value")
        under = " and ".join(when[name]) if name in when else None
        if kind == "constant" and under is None:
            found.fixed[name] = found.plain(one["value"], name)
        elif kind in ("categorical", "ordinal"):
            choices = one["choices"] if kind == "categorical" else one["sequence"]
            if one.get("weights"):
                found.warn(f"{name}: 'weights' are not taken over: all values are equal at first")
            listed = [found.plain(choice, name) for choice in choices]
            found.parameters.append(Categorical(name, listed, default, when=under))
        elif kind.endswith(("_float", "_int")):
            if not kind.startswith("uniform"):
                found.warn(f"{name}: the shape of '{kind}' is not taken over: its range is searched evenly")
            scale: Scale = "log" if one.get("log") else "linear"
            made = Float if kind.endswith("_float") else Integer
            found.parameters.append(made(name, one["lower"], one["upper"], scale, default, when=under))
        else:
            raise found.error(f"'{name}': a parameter of the kind '{kind}' cannot be one here; leave it out")
    return [f"not ({_clause(one, names, found)})" for one in data.get("forbiddens", ())]


def _clause(one: Mapping[str, Any], names: Mapping[str, str], found: wandb_sweep.Parameters) -> str:
    """Returns a condition or a forbidden clause in our grammar."""
    kind = str(one["type"])
    if kind in ("AND", "OR"):
        inner: Sequence[Any] = one.get("conditions") or one["clauses"]
        return f" {kind.lower()} ".join(f"({_clause(part, names, found)})" for part in inner)
    if "left" in one and kind in _COMPARED:
        return f"{names[one['left']]} {_COMPARED[kind]} {names[one['right']]}"
    name = names[one["parent" if "parent" in one else "name"]]
    if kind == "IN":
        return f"{name} in {list(one['values'])!r}"
    if kind in _COMPARED:
        return f"{name} {_COMPARED[kind]} {one['value']!r}"
    raise found.error(f"'{name}': a clause of the kind '{kind}' cannot be one here; leave it out")
