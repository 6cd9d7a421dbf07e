"""The `.ini` file of PufferLib, as its own loader reads it: laid over `default.ini`, with Python's literals as values.

    [policy]
    num_layers = 3
    [sweep]
    metric = perf
    max_runs = 50
    sweep_only = learning_rate, num_layers
    [sweep.policy.num_layers]
    distribution = uniform
    min = 1
    max = 8

`default.ini` is the one beside the file, or in the folders above it, or that of an installed PufferLib. Taken over are
distribution, min, max and mean of each range, the goal, `sweep_only` and `max_runs`. The first config has each range's
mean, or else the program's own value. A range whose own value is whole is searched in whole numbers: PufferLib would
cut a fraction. The other sections are the program's own settings, which it reads itself.

Before PufferLib 3 ranges stood in the form of W&B, as `[sweep.parameters.train.parameters.learning_rate]`. They are
read as such.

Source: config/default.ini, `load_config` in pufferlib/pufferl.py and `_params_from_puffer_sweep` in pufferlib/sweep.py
of PufferLib 3 and 4; clean_pufferl.py and demo.py of versions before.
"""

import ast
import configparser
import contextlib
import dataclasses
import importlib.util
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from protein.config.layers import display_path, with_own_names
from protein.config.space_toml import SpaceFile, direction_of, start_of
from protein.config.wandb_sweep import Parameters, count, direction_of_metric
from protein.errors import SpaceError, UsageError
from protein.space import Space
from protein.space.parameters import Categorical, Float, Integer, Parameter, Scale, parameter_name
from protein.spelling import is_slip, nearest
from protein.types import Direction

COST_PARAMETER = "train.total_timesteps"
DEFAULT = "default.ini"
_SCALES: Mapping[str, Scale] = {
    "uniform": "linear",
    "int_uniform": "linear",
    "uniform_pow2": "pow2",
    "log_normal": "log",
    "logit_normal": "logit",
}
_WHOLE = ("int_uniform", "uniform_pow2")
_KEYS = ("distribution", "min", "max", "mean", "scale")
_COST = "max_suggestion_cost"  # in seconds
_MATCH = "match_enemy_model_path"  # trials are scored by matches
_TAKEN = ("metric", "goal", "sweep_only", "max_runs")  # keys of [sweep]
_OF_SEARCH = (  # keys of [sweep] that say how PufferLib searches
    *("method", "name", "metric_distribution", "downsample", "use_gpu", "gpus", "prune_pareto", "max_score"),
    "early_stop_quantile",
)
_METRIC, _OLD_FORM = "sweep.metric", "sweep.parameters."


def read(text: str, source: str, path: Path | None = None) -> SpaceFile:
    """Returns what the file says.

    Args:
        text: of the file.
        source: for messages.
        path: where it is, for its `default.ini`; None: it is read alone.

    Raises:
        UsageError: something of it cannot be done here.
        SpaceError: a range cannot be.
    """
    own = _parsed(text, source)
    below = None if path is None else _default_of(path, own, source)
    config = _parsed(text, source, below)
    general = {key: _literal(value) for key, value in config["sweep"].items()} if config.has_section("sweep") else {}
    found = _ranges(config, source)
    if not found.parameters:
        raise UsageError(
            f"{source}: has no range; PufferLib writes them as [sweep.train.learning_rate], here or in the {DEFAULT}"
            " beside it"
        )
    parameters = _chosen(found.parameters, general.get("sweep_only"), source)
    names = [parameter.name for parameter in parameters]
    space = Space(parameters, cost_parameter=COST_PARAMETER if COST_PARAMETER in names else None, fixed=found.fixed)
    runs = general.get("max_runs")
    warnings = [] if below is None else [f"{source}: laid over {display_path(below)}"]
    if below is None and path is not None and path.name != DEFAULT:
        warnings.append(
            f"{source}: no {DEFAULT} of PufferLib was found (beside it, in a folder above, or installed): only its own"
            " ranges are searched"
        )
    direction = _direction(config, general, source, warnings)
    return SpaceFile(
        space=space,
        start=start_of(space, given=any(parameter.default is not None for parameter in parameters)),
        direction=direction,
        params="dashes",
        max_trials=None if runs is None else count(runs, "max_runs", source),
        warnings=(*warnings, *found.warnings, *_not_taken(config, general, source)),
    )


def range_of(name: str, kind: str, low: float, high: float) -> Integer | Float:
    """Returns the parameter of one of PufferLib's distributions.

    Raises:
        KeyError: there is no such distribution.
        SpaceError: the range is empty, or its scale does not fit.
    """
    if kind == "uniform_pow2" and low > 0 and high > 0:  # PufferLib rounds to the nearest power, also at the ends
        low, high = (2.0 ** round(math.log2(end)) for end in (low, high))
    if kind in _WHOLE and float(low).is_integer() and float(high).is_integer():
        return Integer(name, int(low), int(high), _SCALES[kind])
    return Float(name, float(low), float(high), _SCALES[kind])


def _parsed(text: str, source: str, below: Path | None = None) -> configparser.ConfigParser:
    """Returns a file's sections, laid over those of `below`. Raises `UsageError` where one is no INI."""
    parser = configparser.ConfigParser(interpolation=None, inline_comment_prefixes=("#", ";"))
    where = source
    try:
        if below is not None:
            where = display_path(below)
            parser.read_string(below.read_text(encoding="utf-8-sig"))
            where = source
        parser.read_string(text)
    except (configparser.Error, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"{where}: not valid INI: {' '.join(str(error).split())}") from error
    return parser


def _default_of(path: Path, own: configparser.ConfigParser, source: str) -> Path | None:
    """Returns the `default.ini` over which PufferLib would lay a file.

    None: there is none, or the file is one. Some folders have a file of this name for environments of their own.
    """
    if path.name == DEFAULT and not _env_name(own):
        return None
    folder = path.absolute().parent
    for candidate in (*(above / DEFAULT for above in (folder, *folder.parents)), *_installed()):
        if not candidate.is_file() or candidate.samefile(path):
            continue
        try:
            config = _parsed("", source, candidate)
        except UsageError:
            if candidate.parent == folder:
                raise
            continue  # of some other program
        if {"base", "train", "sweep"} & set(config.sections()) and not _env_name(config):
            return candidate
    return None


def _env_name(config: configparser.ConfigParser) -> Any:
    return _literal(config.get("base", "env_name", fallback="None"))


def _installed() -> Iterator[Path]:
    """Returns where an installed PufferLib, which is not imported, may have its default."""
    try:
        found = importlib.util.find_spec("pufferlib")
    except (ImportError, ValueError):
        return
    for package in (found.submodule_search_locations or ()) if found is not None else ():
        yield Path(package) / "config" / DEFAULT
        yield Path(package).parent / "config" / DEFAULT


def _literal(text: str) -> Any:
    """Returns a value as PufferLib's loader does: a literal of Python's, or else the text."""
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text.strip()


def _ranges(config: configparser.ConfigParser, source: str) -> Parameters:
    """Returns what is searched, and fixed values of the old form. Raises `UsageError` for a range that cannot be."""
    sections: dict[str, str] = {}  # by the parameter's name
    tables: dict[str, Any] = {}  # the old form: W&B's
    for section in config.sections():
        if section == _METRIC:
            continue
        if section.startswith("sweep."):
            of_old_form = section.startswith(_OLD_FORM)
            parts = section.removeprefix(_OLD_FORM if of_old_form else "sweep.").split(".")
            path = parts[::2] if of_old_form else parts
            name = parameter_name(".".join(path))
            if of_old_form:
                table = tables
                for part in parts[:-1]:
                    table = table.setdefault(part, {})
                table[parts[-1]] = {key: _literal(value) for key, value in config[section].items()}
            elif name in sections:
                raise UsageError(f"{source}: [{section}] and [{sections[name]}] would be one flag; rename one of them")
            sections[name] = section
        elif "distribution" in config[section] or ("." in section and {"min", "max"} <= set(config[section])):
            raise UsageError(
                f"{source}: [{section}] looks like a range, and none is read there; write [sweep.SECTION.KEY]"
            )
    found = Parameters(source)
    found.add(tables)
    known = {*found.fixed, *(parameter.name for parameter in found.parameters)}
    new = [_parameter(name, config[section], source) for name, section in sections.items() if name not in known]
    found.parameters = [
        _finished(parameter, config, sections[parameter.name], source) for parameter in (*new, *found.parameters)
    ]
    return found


def _parameter(name: str, given: Mapping[str, str], source: str) -> Parameter:
    given = with_own_names(name, given)
    for key in given:
        if key not in _KEYS:
            raise UsageError(f"{source}: unknown key '{key}' in [sweep.{name}]{nearest(key, _KEYS)}")
    for key in ("min", "max"):
        if key not in given:
            raise UsageError(
                f"{source}: [sweep.{name}] has no {key}, and no {DEFAULT} of PufferLib beside the file, in a folder"
                " above it or installed has it; give min and max"
            )
    kind = given.get("distribution", "uniform").strip()
    if kind not in _SCALES:
        raise UsageError(f"{source}: [sweep.{name}] has the unknown distribution '{kind}'{nearest(kind, _SCALES)}")
    low, high = (_number(given, key, name, source) for key in ("min", "max"))
    if kind == "int_uniform" and not (low.is_integer() and high.is_integer()):
        raise UsageError(f"{source}: [sweep.{name}]: int_uniform from {low:g} to {high:g} needs whole ends; give these")
    return range_of(name, kind, low, high)


def _finished(parameter: Parameter, config: configparser.ConfigParser, section: str, source: str) -> Parameter:
    """Returns a range in whole numbers where the program's own value is whole, and with the value to begin with.

    A bound with a decimal point says that the range is none of whole numbers, as 0.0 to 5.0 beside the value 1.
    """
    name = parameter.name
    given = with_own_names(name, config[section])
    at, _, key = name.rpartition(".")
    own = _literal(config.get(at, key)) if config.has_option(at, key) else None
    if isinstance(parameter, Categorical):
        return parameter
    if isinstance(parameter, Float) and type(own) is int and not any("." in given[end] for end in ("min", "max")):
        low, high = parameter.low, parameter.high
        if parameter.scale in ("linear", "log") and low.is_integer() and high.is_integer():
            with contextlib.suppress(SpaceError):  # beyond the largest whole number that is searched
                parameter = Integer(name, int(low), int(high), parameter.scale)
    default = _number(given, "mean", name, source) if "mean" in given else own
    if isinstance(default, bool) or not isinstance(default, int | float) or not math.isfinite(default):
        return parameter
    if isinstance(parameter, Integer):
        return dataclasses.replace(parameter, default=parameter.clip(round(default)))
    return dataclasses.replace(parameter, default=float(parameter.clip(default)))


def _number(given: Mapping[str, str], key: str, name: str, source: str) -> float:
    value = _literal(given[key])
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{source}: [sweep.{name}]: {key} = {given[key]} is no number")
    if not math.isfinite(value):
        raise UsageError(f"{source}: [sweep.{name}]: {key} = {given[key]} is not finite; give a number")
    return float(value)


def _chosen(parameters: Sequence[Parameter], only: Any, source: str) -> list[Parameter]:
    """Returns the ranges that `sweep_only` names: by a part of their own name, as PufferLib does, or by all of it."""
    listed = only if isinstance(only, tuple | list) else str(only or "").split(",")
    words = [word for word in (str(one).strip().replace("/", ".") for one in listed) if word]
    if not words:
        return list(parameters)
    names = [parameter.name for parameter in parameters]
    chosen: set[str] = set()
    for word in words:
        meant = {name for name in names if word in name.rpartition(".")[2] or word == name}
        if not meant:
            raise UsageError(f"{source}: sweep_only names '{word}', and no range is called so{nearest(word, names)}")
        chosen |= meant
    return [parameter for parameter in parameters if parameter.name in chosen]


def _direction(
    config: configparser.ConfigParser, general: Mapping[str, Any], source: str, warnings: list[str]
) -> Direction | None:
    """Returns the goal, and extends the warnings by what is to be said of the metric."""
    if config.has_section(_METRIC):
        metric = {key: _literal(value) for key, value in config[_METRIC].items()}
        return direction_of_metric({key: metric[key] for key in ("name", "goal") if key in metric}, source, warnings)
    if "metric" in general:
        warnings.append(
            f"{source}: the metric '{general['metric']}' has to be named with --score-regex or another --score-"
        )
    return direction_of(general["goal"], source, "goal") if "goal" in general else None


def _not_taken(config: configparser.ConfigParser, general: Mapping[str, Any], source: str) -> list[str]:
    """Returns what of [sweep] is not taken over, a line each. Raises `UsageError` for what would change the runs."""
    if general.get(_MATCH):
        raise UsageError(
            f"{source}: {_MATCH} of [sweep] scores trials by matches, which PufferLib's own sweep plays; leave it out"
        )
    warnings = []
    for key, value in general.items():
        if key in (*_TAKEN, *_OF_SEARCH, _COST) or key.startswith("match_"):
            continue
        if any(is_slip(key, known) and known not in general for known in _TAKEN):
            raise UsageError(f"{source}: unknown key '{key}' of [sweep]{nearest(key, (*_TAKEN, *_OF_SEARCH))}")
        warnings.append(f"{source}: '{key} = {value}' of [sweep] is not taken over: it is no key of a sweep")
    if given := [f"{key} = {value}" for key, value in general.items() if key in _OF_SEARCH]:
        warnings.append(f"{source}: {', '.join(given)} of [sweep] not taken over: the engine searches in its own way")
    cost = general.get(_COST, _literal(config.get("base", _COST, fallback="None")))
    if cost is not None:
        warnings.append(f"{source}: {_COST} = {cost} is not taken over: --max-trial-cost {cost}s caps a trial")
    if any("scale" in config[section] for section in config.sections() if section.startswith("sweep.")):
        warnings.append(f"{source}: 'scale' of the ranges is not taken over: the engine learns it")
    return warnings
