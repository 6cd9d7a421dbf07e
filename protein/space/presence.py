"""Which parameters exist when, found from the params of runs: what a search that is defined while it runs does not say.

A rule is on one other parameter, with texts, truth values, None or whole numbers: with some of its values all runs have
the parameter, and with the others, or without a value of it, none has. Rules on several parameters are not looked for.
"""

import keyword
import math
from collections import Counter
from collections.abc import Container, Sequence
from types import NoneType
from typing import Any

import numpy as np

from protein.types import Params

_LACKS = object()  # in place of a value
_LUCK = 0.01  # where a rule is likelier by luck, it is none
_MAX_GROUPS = 64  # different values of the other parameter


def rules(runs: Sequence[Params], ordered: Container[str]) -> dict[str, str]:
    """Returns conditions (`when`) of parameters that some runs lack, where a rule explains exactly which runs do.

    Args:
        runs: their params.
        ordered: the parameters with numbers whose order means something, so that a rule may be `layers >= 2`.
    """
    names = dict.fromkeys(name for run in runs for name in run)
    values = {name: [run.get(name, _LACKS) for run in runs] for name in names}
    found: dict[str, str] = {}
    for name, own in values.items():
        has = [value is not _LACKS for value in own]
        for other, given in values.items() if not all(has) else ():
            if rule := _rule(other, given, has, ordered=other in ordered):
                found[name] = rule
                break
    return found


def _rule(name: str, values: Sequence[Any], has: Sequence[bool], *, ordered: bool) -> str | None:
    """Returns the condition on a parameter's values under which runs have another one; None where there is none."""
    kinds = {type(value) for value in values if value is not _LACKS}
    if not kinds <= {str, bool, int, NoneType} or any(keyword.iskeyword(part) for part in name.split(".")):
        return None
    within = {_typed(value) for value, one in zip(values, has, strict=True) if one}
    without = {_typed(value) for value, one in zip(values, has, strict=True) if not one} - {_typed(_LACKS)}
    if _typed(_LACKS) in within or not without or within & without:
        return None
    sizes = Counter(_typed(value) for value in values if value is not _LACKS)
    if _by_luck(list(sizes.values()), sum(sizes[value] for value in within)) > _LUCK:
        return None
    inside, outside = [value for _, value in within], [value for _, value in without]
    if ordered and kinds == {int} and min(inside) > max(outside):
        return f"{name} >= {min(inside)}"
    if ordered and kinds == {int} and max(inside) < min(outside):
        return f"{name} <= {max(inside)}"
    texts = sorted(map(repr, inside))
    return f"{name} == {texts[0]}" if len(texts) == 1 else f"{name} in [{', '.join(texts)}]"


def _by_luck(sizes: Sequence[int], num_within: int) -> float:
    """Returns how likely a rule is exact by luck: that random runs, as many as have the parameter, are whole groups.

    `sizes` are the numbers of runs with each value of the other parameter.
    """
    num_runs = sum(sizes)
    if len(sizes) > _MAX_GROUPS:
        return 1.0
    ways = np.zeros(num_runs + 1)  # entry n: number of ways to choose groups that have n runs together
    ways[0] = 1.0
    for size in sizes:
        ways[size:] += ways[: num_runs + 1 - size].copy()
    log_sets = math.lgamma(num_runs + 1) - math.lgamma(num_within + 1) - math.lgamma(num_runs - num_within + 1)
    return float(ways[num_within]) * math.exp(-log_sets)


def _typed(value: Any) -> tuple[type, Any]:
    return type(value), value
