"""A space for runs that another tool has made: the tool's own, a file's, or what the values of the runs show.

Of values, the range is from the lowest to the highest one. It is a log range where they are positive and spread over a
factor of `LOG_SPREAD`, a logit range where they crowd below 1 in the same way (as discounts do), and powers of two
where all are. Texts and booleans are choices. A parameter that never varies is a fixed value. One that more than a
tenth of the runs lack, or a text that is different nearly every time (a name, a path), is left out of the space; the
trials keep its values.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from protein.config import space_file
from protein.errors import SpaceError, UsageError
from protein.imports.runs import Imported, Run
from protein.space import Space
from protein.space.parameters import Categorical, Float, Integer, Parameter, Scale
from protein.types import ParamValue

LOG_SPREAD = 20.0  # the highest value is this many times the lowest
MIN_SHARE = 0.9  # of the runs have a parameter of the space; the engine leaves out the others
MAX_CHOICES = 64
MAX_DISTINCT_SHARE = 0.5  # more different texts for each run than this are names, and no choices
_MIN_POWERS = 3  # different powers of two that show a pow2 scale
_MAX_INTEGER = 10**12
_MAX_SIZE = 1e100  # of a number that may be searched; ranges of larger ones overflow


def infer(imported: Imported, file: Path | None = None, cost_parameter: str | None = None) -> Space:
    """Returns the space of imported runs.

    Args:
        imported: the runs, and the tool's own parameters where it has some.
        file: ranges, in any form of `--space` of a sweep; they count in place of everything else.
        cost_parameter: a parameter that makes runs expensive; None: the one that the file or the tool names.

    Raises:
        UsageError: the file cannot be used; nothing varies; there is no such cost parameter.
    """
    given = None if file is None else space_file.read(file).space
    parameters, fixed = [], dict[str, ParamValue]()
    runs = [run for run in imported.runs if run.score is not None] or list(imported.runs)
    for name, values in _values(runs).items():
        if given is not None:
            continue
        if len(set(map(repr, values))) == 1 and name not in imported.parameters:
            if len(values) == len(runs):
                fixed[name] = values[0]
            continue
        numbers = [value for value in values if type(value) in (int, float)]
        if len(values) - len(numbers) == values.count("None") and len(numbers) >= MIN_SHARE * len(runs):
            values = numbers  # a number that a few runs do not have is no choice
        if len(values) < MIN_SHARE * len(runs):
            continue
        parameter = _widened(imported.parameters.get(name), values) or from_values(name, values, len(runs))
        if parameter is not None:
            parameters.append(parameter)
    if given is not None:
        parameters = [dataclasses.replace(parameter, default=None) for parameter in given.parameters]
    if not parameters:
        raise UsageError(
            f"no parameter varies over the {len(runs)} runs of {imported.where}, so they span no space; give the ranges"
            " with --space FILE"
        )
    cost = cost_parameter or (given and given.cost_parameter) or imported.cost_parameter
    names = {parameter.name: parameter for parameter in parameters}
    if cost is not None and (cost not in names or isinstance(names[cost], Categorical)):
        if cost_parameter is not None:
            raise UsageError(f"--cost-parameter '{cost}' is no numeric parameter of the space: {', '.join(names)}")
        cost = None
    return Space(parameters, cost_parameter=cost, fixed={name: v for name, v in fixed.items() if name not in names})


def from_values(name: str, values: Sequence[ParamValue], num_runs: int) -> Parameter | None:
    """Returns the parameter that values of a run each show; None where they are no parameter of a search."""
    kinds = {type(value) for value in values}
    try:
        if kinds <= {int, float}:
            return _numeric(name, [float(value) for value in values], whole=kinds == {int})
        typed = sorted({(type(value).__name__, value) for value in values})  # False and 0 are two choices
        choices = [value for _, value in typed]
        if len(choices) > MAX_CHOICES or (len(choices) > 4 and len(choices) > MAX_DISTINCT_SHARE * num_runs):
            return None
        return Categorical(name, tuple(choices))
    except (SpaceError, OverflowError):
        return None


def _numeric(name: str, values: Sequence[float], *, whole: bool) -> Parameter | None:
    low, high = min(values), max(values)
    if not low < high or max(abs(low), abs(high)) > _MAX_SIZE:
        return None
    distinct = set(values)
    scale: Scale = "linear"
    if low > 0 and len(distinct) >= _MIN_POWERS and all(math.frexp(value)[0] == 0.5 for value in distinct):
        scale = "pow2"
    elif low > 0 and high >= LOG_SPREAD * low:
        scale = "log"
    elif not whole and low >= 0.5 and high < 1.0 and (1.0 - low) >= LOG_SPREAD * (1.0 - high):
        scale = "logit"
    if whole and max(abs(low), abs(high)) <= _MAX_INTEGER:
        return Integer(name, int(low), int(high), scale)
    return Float(name, low, high, scale)


def _widened(parameter: Parameter | None, values: Sequence[ParamValue]) -> Parameter | None:
    """Returns the tool's own parameter, with a range that holds all values; None where it cannot hold them.

    Runs that the tool did not suggest, such as the user's first one, may lie outside.
    """
    if parameter is None or isinstance(parameter, Categorical):
        fits = parameter is not None and all(any(_same(value, one) for one in parameter.choices) for value in values)
        return parameter if fits else None
    if isinstance(parameter, Integer) and not all(isinstance(value, int) for value in values):
        return None
    numbers: list[Any] = [value if isinstance(parameter, Integer) else float(value) for value in values]
    bounds: dict[str, Any] = {"low": min(parameter.low, *numbers), "high": max(parameter.high, *numbers)}
    try:
        wider = dataclasses.replace(parameter, default=None, **bounds)
        for value in numbers:
            wider.check(value)
    except SpaceError:
        return None
    return wider


def _same(one: ParamValue, other: ParamValue) -> bool:
    return type(one) is type(other) and one == other


def _values(runs: Sequence[Run]) -> dict[str, list[ParamValue]]:
    """Returns the values of every parameter that some run has, in the order of the first runs."""
    found: dict[str, list[ParamValue]] = {}
    for run in runs:
        for name, value in run.params.items():
            found.setdefault(name, []).append(value)
    mixed = {name: Counter(type(value) for value in values) for name, values in found.items()}
    for name, kinds in mixed.items():
        if set(kinds) == {int, float}:
            found[name] = [float(value) for value in found[name]]
    return found
