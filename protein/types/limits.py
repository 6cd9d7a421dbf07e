"""Limits on what a trial measures beside its score: `memory_gb <= 8`.

A limit is a metric's name, a sign and a number. A name may hold anything but the signs, as `eval/latency ms` does, so a
text is no expression. Several limits are several texts, or one with `and`.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from protein.errors import UsageError
from protein.spelling import nearest

REQUIRE = "require"  # where a stored sweep's space holds the texts of its limits
M = TypeVar("M", bound="Measured")
_FORM = "write a metric's name, one of <=, >=, < and >, and a number, as in 'memory_gb <= 8'"
_SIGN = re.compile(r"(<=|>=|==|!=|<|>|=|≤|≥)")
_TURNED = {"<=": ">=", ">=": "<=", "<": ">", ">": "<"}
_NO_METRICS = {  # words that mean something else -> what to do
    "score": "the score is what is searched for, and every sweep seeks the best one",
    "cost_seconds": "--max-trial-cost is the cap on a trial's cost, and protein best --under recommends below one",
    "steps": "the range of the parameter that counts them limits them",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """What a metric must keep; `str` gives the text that is stored."""

    name: str
    sign: str  # one of <=, >=, <, >
    bound: float

    def __str__(self) -> str:
        return f"{self.name} {self.sign} {self.bound:.15g}"

    @property
    def is_upper(self) -> bool:
        """Whether values must not be above the bound; else they must not be below it."""
        return self.sign[0] == "<"

    def holds(self, value: float) -> bool:
        """Whether a value keeps the limit."""
        if value == self.bound:
            return len(self.sign) == 2
        return (value < self.bound) == self.is_upper


class Measured(Protocol):
    """What has metrics: an `Observation` or a `TrialRecord`."""

    @property
    def metrics(self) -> Mapping[str, float]: ...


def parse_limits(given: Any, what: str) -> tuple[Limit, ...] | None:
    """Returns the limits in texts such as `memory_gb <= 8`, each once and in order; None where none were given.

    Args:
        given: None, one text, several, or a mapping of names to the rest: `{"memory_gb": "<= 8"}`. Nothing and the word
            "none" say that there are no limits (any more).
        what: the flag or keyword that it was given to, to begin an error with.

    Raises:
        UsageError: a text that cannot be read, a name that is no metric's, or limits that no value keeps.
    """
    if given is None:
        return None
    if isinstance(given, Mapping):
        given = [f"{name} {rest}" for name, rest in given.items()]
    texts = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(text, str) for text in texts):
        raise UsageError(f"{what} must be texts such as 'memory_gb <= 8', got {given!r:.80}")
    if [text.strip().lower() for text in texts] == ["none"]:
        return ()
    found = [limit for text in texts for part in re.split(r"\s+and\s+", text) for limit in _parse(part, text, what)]
    for one in found:
        for other in found:
            if one.name == other.name and one.is_upper and not other.is_upper and _exclude(one, other):
                raise UsageError(f"{what}: no value keeps both '{one}' and '{other}'; change one of them")
    return tuple(dict.fromkeys(found))


def broken(limits: Iterable[Limit], metrics: Mapping[str, float]) -> list[Limit]:
    """Returns the limits that measured values break. One without a value is not broken."""
    return [limit for limit in limits if limit.name in metrics and not limit.holds(metrics[limit.name])]


def unbroken(records: Sequence[M], limits: Sequence[Limit]) -> Sequence[M]:
    """Returns the records whose own measured values break no limit."""
    return [one for one in records if not broken(limits, one.metrics)] if limits else records


def unreported(limits: Iterable[Limit], metrics: Iterable[Mapping[str, float]]) -> str:
    """Returns a line on the limits whose metrics no trial has, with the metrics that exist; "": there are none."""
    known = {name for one in metrics for name in one}
    missing = [limit for limit in limits if limit.name not in known]
    if not missing:
        return ""
    names, texts = dict.fromkeys(limit.name for limit in missing), ", ".join(f"'{limit}'" for limit in missing)
    line = f"no trial reported {', '.join(names)}, so nothing is known of {texts}"
    if not known:
        return f"{line}: report metrics, as in report(step, score, metrics={{'{missing[0].name}': 5.1}})"
    return line + nearest(missing[0].name, known)


def _parse(part: str, text: str, what: str) -> list[Limit]:
    """Returns the limits of a comparison, which may be a chain: `1 <= memory_gb <= 8`."""
    words = [word.strip() for word in _SIGN.split(part.replace("≤", "<=").replace("≥", ">="))]
    terms, signs = words[::2], words[1::2]
    if wrong := [sign for sign in signs if sign not in _TURNED]:
        raise UsageError(f"{what} '{text:.80}' has {wrong[0]}, which is no limit; {_FORM}")
    if not signs or not all(terms):
        raise UsageError(f"{what} '{text:.80}' is no limit; {_FORM}")
    numbers = [_number(term) for term in terms]
    names = [place for place, number in enumerate(numbers) if number is None]
    if len(names) > 1:
        raise UsageError(f"{what} '{text:.80}': '{terms[names[1]]:.80}' is no number (without a unit); {_FORM}")
    if not names or len(terms) > 3 or (len(terms) == 3 and (names != [1] or signs[0][0] != signs[1][0])):
        raise UsageError(f"{what} '{text:.80}' is no limit on one metric; {_FORM}")
    name = terms[names[0]]
    if name in _NO_METRICS:
        raise UsageError(f"{what} '{text:.80}': {name} cannot be limited: {_NO_METRICS[name]}")
    limits = []
    for place, number in enumerate(numbers):
        if number is None:
            continue
        if not math.isfinite(number):
            raise UsageError(f"{what} '{text:.80}': {terms[place]} is no finite number; {_FORM}")
        sign = signs[min(place, names[0])]
        limits.append(Limit(name, sign if place > names[0] else _TURNED[sign], number))
    return limits


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _exclude(upper: Limit, lower: Limit) -> bool:
    """Whether no value keeps both an upper and a lower limit."""
    if upper.bound == lower.bound:
        return not (upper.holds(upper.bound) and lower.holds(lower.bound))
    return upper.bound < lower.bound
