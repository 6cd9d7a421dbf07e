"""The `.ini` file of PufferLib, whose ranges are sections: `[sweep.train.learning_rate]`, read as they are.

Taken over: distribution, min, max and mean (as the first config) of each range, and the goal. The other sections are
the program's own settings, which it reads itself.

Source: config/default.ini and `load_config` of PufferLib 3.
"""

import configparser
import dataclasses
import math
from collections.abc import Mapping

from protein.config.space_toml import SpaceFile, direction_of, start_of
from protein.errors import UsageError
from protein.space import Space
from protein.space.parameters import Float, Integer, Parameter, Scale
from protein.spelling import nearest

COST_PARAMETER = "train.total_timesteps"
_SCALES: Mapping[str, Scale] = {
    "uniform": "linear",
    "int_uniform": "linear",
    "uniform_pow2": "pow2",
    "log_normal": "log",
    "logit_normal": "logit",
}
_WHOLE = ("int_uniform", "uniform_pow2")
_KEYS = ("distribution", "min", "max", "mean", "scale")
_OF_SWEEP = ("metric", "goal")


def read(text: str, source: str) -> SpaceFile:
    """Returns what the file says. Raises `UsageError`, or `SpaceError` for a range that cannot be."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise UsageError(f"{source}: not valid INI: {' '.join(str(error).split())}") from error
    sections = [section for section in parser.sections() if section.startswith("sweep.")]
    parameters = [_parameter(section.removeprefix("sweep."), parser[section], source) for section in sections]
    warnings: list[str] = []
    if not parameters:
        raise UsageError(f"{source}: has no range; PufferLib writes them as [sweep.train.learning_rate]")
    sweep = dict(parser["sweep"]) if parser.has_section("sweep") else {}
    others = {key: value for key, value in sweep.items() if key not in _OF_SWEEP}
    warnings += [f"{source}: '{key} = {value}' of [sweep] is not taken over" for key, value in others.items()]
    if "metric" in sweep:
        warnings.append(
            f"{source}: the metric '{sweep['metric']}' has to be named with --score-regex or another --score-"
        )
    if any("scale" in parser[f"sweep.{parameter.name}"] for parameter in parameters):
        warnings.append(f"{source}: 'scale' of the ranges is not taken over: the engine learns it")
    names = [parameter.name for parameter in parameters]
    space = Space(parameters, cost_parameter=COST_PARAMETER if COST_PARAMETER in names else None)
    goal = sweep.get("goal")
    return SpaceFile(
        space=space,
        start=start_of(space, given=any(parameter.default is not None for parameter in parameters)),
        direction=None if goal is None else direction_of(goal, source, "goal"),
        params="dashes",
        warnings=tuple(warnings),
    )


def _parameter(name: str, given: Mapping[str, str], source: str) -> Parameter:
    for key in given:
        if key not in _KEYS:
            raise UsageError(f"{source}: unknown key '{key}' in [sweep.{name}]{nearest(key, _KEYS)}")
    kind = given.get("distribution", "uniform").strip()
    if kind not in _SCALES:
        raise UsageError(f"{source}: [sweep.{name}] has the unknown distribution '{kind}'{nearest(kind, _SCALES)}")
    low, high = (_number(given, key, name, source) for key in ("min", "max"))
    parameter = range_of(name, kind, low, high)
    if "mean" not in given:
        return parameter
    mean = _number(given, "mean", name, source)
    if not math.isfinite(mean):
        raise UsageError(f"{source}: [sweep.{name}]: mean = {mean} is not finite; give a number of the range")
    if isinstance(parameter, Integer):
        return dataclasses.replace(parameter, default=parameter.clip(round(mean)))
    return dataclasses.replace(parameter, default=float(parameter.clip(mean)))


def range_of(name: str, kind: str, low: float, high: float) -> Integer | Float:
    """Returns the parameter of one of PufferLib's distributions.

    Raises:
        KeyError: there is no such distribution.
        SpaceError: the range is empty, or its scale does not fit.
    """
    if kind in _WHOLE and float(low).is_integer() and float(high).is_integer():
        return Integer(name, int(low), int(high), _SCALES[kind])
    return Float(name, float(low), float(high), _SCALES[kind])


def _number(given: Mapping[str, str], key: str, name: str, source: str) -> float:
    try:
        return float(given[key].replace("_", ""))
    except KeyError:
        raise UsageError(f"{source}: [sweep.{name}] has no {key}; give min and max") from None
    except ValueError:
        raise UsageError(f"{source}: [sweep.{name}]: {key} = {given[key]} is no number") from None
