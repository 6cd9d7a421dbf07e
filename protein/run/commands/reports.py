"""What a command says of its training, read from text. Nothing here raises, whatever it prints.

A JSON line is an object such as `{"steps": 100, "score": 0.7, "cost_seconds": 3.5, "metrics": {"loss": 0.2}}`, or
`{"result": 0.8}` for the final score. Only the score is needed. Other numbers of the object are metrics, too.
"""

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from protein.run import messages

MAX_TEXT = 10_000  # characters of a line that a regular expression is matched against
MAX_SHOWN = 40  # characters of a score that is no number, in a message
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")  # colours and cursor movements
_FIELDS = frozenset({"steps", "score", "cost_seconds", "metrics", "result"})
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(?![\d,])[^,]*")  # float() judges what follows


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One report. A score that is no usable number is `nan`.

    Attributes:
        steps: of training so far; None: the report does not say.
        score: as the command knows it; None: there is none yet.
        shown: the score as it was written, for messages.
        cost_seconds: so far, by the command's own account; None: the wall clock counts.
        metrics: further finite numbers.
        is_result: whether the score is final.
    """

    steps: int | None = None
    score: float | None = None
    shown: str = ""
    cost_seconds: float | None = None
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    is_result: bool = False


def from_json(line: bytes, *, any_field: bool = False) -> Said | None:
    """Returns the report that a line holds, or None where it is text for the log.

    Args:
        line: without its end.
        any_field: whether an object without a score is a report, too: only where nothing else is written.
    """
    text = line.strip()
    if not text.startswith(b"{"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    if not ("score" in found or "result" in found or (any_field and _FIELDS.intersection(found))):
        return None
    is_result = "result" in found
    given = found["result"] if is_result else found.get("score")
    if isinstance(given, dict):  # {"result": {"score": 0.8, "cost_seconds": 3.5}}
        found = {**found, **given}
        given = found.get("score")
    others = {key: value for key, value in found.items() if key not in _FIELDS}
    return Said(
        steps=messages.steps({"steps": _unquoted(found.get("steps"))}),
        score=None if given is None else _number(given),
        shown=shown(given),
        cost_seconds=messages.seconds({"elapsed_seconds": _unquoted(found.get("cost_seconds"))}),
        metrics=messages.numbers(others) | messages.numbers(found.get("metrics")),
        is_result=is_result,
    )


class PatternReader:
    """Reads scores from a log by regular expressions.

    The number is the group `score` (or `steps`), or the first group. The expression for the score may have both groups.
    Otherwise the steps are those of the last line in which they were found.
    """

    def __init__(self, score: str, steps: str) -> None:
        self._score = re.compile(score)
        self._steps = re.compile(steps) if steps else None
        self._last_steps: int | None = None

    def read(self, line: bytes) -> Said | None:
        """Returns the report that a line holds, if any."""
        text = _ANSI.sub("", line[:MAX_TEXT].decode(errors="replace"))
        if self._steps is not None and (found := self._steps.search(text)):
            self._last_steps = _count(_group(found, "steps"), self._last_steps)
        match = self._score.search(text)
        if match is None:
            return None
        steps = self._last_steps
        if "steps" in match.re.groupindex:
            steps = _count(match.group("steps"), steps)
        written = _group(match, "score")
        score = number_of(written)
        return Said(steps=steps, score=math.nan if score is None else score, shown=shown(written))


def number_of(text: str | None) -> float | None:
    """Returns the number that a text stands for, as in "0.5", "1,234", "87.5%" or "nan"; None where it is none.

    A comma is taken only between groups of three digits. In "0,512" it stands for a point, so this is no number.
    """
    if text is None:
        return None
    written = text.strip().rstrip(",;:.%)]")
    try:
        return float(written.replace(",", "") if _THOUSANDS.fullmatch(written) else written)
    except ValueError:
        return None


def shown(written: object) -> str:
    """Returns a score as it was written, for a message: texts that are no numbers in quotes, long ones cut."""
    words = str(written) if isinstance(written, str | int | float) else json.dumps(written)
    words = " ".join(words.split())
    words = words if len(words) <= MAX_SHOWN else f"{words[:MAX_SHOWN]}..."
    return words if number_of(words) is not None or not isinstance(written, str) else f"'{words}'"


def unread(last_line: str) -> str:
    """Returns what a last line without a score holds, and what reads it, to be added to a message; may be empty."""
    try:
        found = json.loads(last_line)
    except (ValueError, RecursionError):
        found = None
    numbers = messages.numbers(found) if isinstance(found, dict) else {}
    if not numbers:
        return f"; its last line: {last_line}" if last_line else "; it printed nothing"
    name = next((key for key, value in numbers.items() if not value.is_integer()), next(reversed(numbers)))
    return (
        f"; its last line has {', '.join(numbers)}, and --score-regex '\"{re.escape(name)}\": ([^,}}]+)' would read"
        f" '{name}' as the score"
    )


def _group(match: re.Match[str], name: str) -> str | None:
    group: Any = match.group(name if name in match.re.groupindex else 1)
    return group if isinstance(group, str) else None


def _count(text: str | None, before: int | None) -> int | None:
    """Returns the steps that a text gives, or else those that were known before."""
    count = messages.steps({"steps": number_of(text)})
    return before if count is None else count


def _unquoted(value: object) -> object:
    """Returns the number that a text stands for: json.dumps(..., default=str) writes those of NumPy so."""
    return number_of(value) if isinstance(value, str) else value


def _number(value: object) -> float:
    value = _unquoted(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan
