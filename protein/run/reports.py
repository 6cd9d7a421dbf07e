"""How a trial's reports are read: the trainer's messages, and what a command prints of its training.

Nothing here raises for what a process prints. Three forms are read:

- JSON lines of our trainer: `start`, any number of `measurement`, then one of `result`, `failed` and `interrupted`
  (see `protein.trainer.events`). A line that is no message is text for the log.
- JSON lines of a command, such as `{"steps": 100, "score": 0.7, "cost_seconds": 3.5, "metrics": {"loss": 0.2}}`, or
  `{"result": 0.8}` for the final score. Only the score is needed. Other numbers of the object are metrics, too. What
  loggers put before a line, such as `INFO:root:` or `[rank0]: `, is passed over.
- A command's log, by regular expressions: the score, the steps, and metrics.

A score is a number as programs print it: `0.5`, `1,234.5`, `87.5%`, `1.2k`, `tensor(0.5, device='cuda:0')`, `[0.5]`.
What may be two numbers is none, as `1,234` where nothing shows what its comma stands for.

The files that a command writes are followed in `protein.run.score_files`.
"""

import dataclasses
import json
import math
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

from protein.types import Measurement, is_score

MAX_STEPS = 2**53  # more is garbage, and would not fit the database
MAX_SHOWN = 40  # characters of a score that is no number, in a message
MAX_NUMBER = 1000  # characters that a number with all that is around it may have
SEARCH_SECONDS = 0.5  # for one search in a long line: some expressions take time with the square of its length
_QUICK_TEXT = 10_000  # characters that any sensible expression is quick with
# Colours, cursor movements, titles and links, sets of characters; and backspaces, as bars end their line.
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~])|(?<!\x08)\x08++$")
_ANSI_BYTES = re.compile(_ANSI.pattern.encode())
_FIELDS = frozenset({"steps", "score", "cost_seconds", "metrics", "result"})
_LIKE_REPORT = re.compile(rb"""\{\s*["'](?:score|result)["']\s*:""")
_MAX_PREFIX = 300  # bytes that a logger puts before a line
# What loggers and launchers put before a line: tags, times, levels, names between signs. Plain words are none of it: in
# `best so far: {"score": 0.9}` a program quotes a report, and makes none.
_PREFIX = re.compile(
    rb"""(?: \s+
    | -\s[\w.]+\s(?=-) | [\w.-]+\s+\|                # 12:00:00 - root - INFO -, worker-0 | of docker compose
    | \[[^\]{}]*\] | \([^){}]*\) | <[^>{}]*>          # [rank0], (trainer pid=7), [1,0]<stdout>
    | [IWEF]\d{4}(?=\s) | \d[\d:.,/TZ+-]*            # I0102 of absl, 2026-01-02T12:00:00,123, 0 of srun -l
    | [\w.-]+\s+(?:-\s+)?(?=(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b)    # root - INFO -, root INFO
    | [\w./]+:[\w<>]+:\d+ | [\w./]+\.py:\d+           # module:function:12, file.py:12
    | (?:TRACE|DEBUG|INFO|NOTICE|SUCCESS|WARN(?:ING)?|ERROR|CRITICAL)\b (?:\s*:\s*[\w.]+(?=\s*:))?    # INFO:root:
    | [-:|>,\]]
    )++""",
    re.VERBOSE | re.IGNORECASE,
)
_SIGNS = "\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d\u00a0\u2009\u202f"  # that a line is read without
_DASH = re.compile(r"(?<![\w.])[\u2010-\u2013\ufe63\uff0d](?=[\d.,]|inf|nan)")  # set for a minus
_GROUP_SPACE = re.compile(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))")  # which \S does not match
_GROUP_MARK = re.compile(r"(?<=\d)['\u2019](?=\d{3}(?!\d))")
_CALL = re.compile(
    r"(?:\w+\.)*(?:tensor|array|devicearray|b?float\d*|longdouble|u?int\d*|decimal|parameter)"
    r"\((.*?)(?:,\s*\w+=[^=]*)*,?\s*\)",
    re.DOTALL | re.IGNORECASE,
)
_LIST = re.compile(r"[\[(](.*?),?\s*[\])]", re.DOTALL)
_OPENING = {")": "(", "]": "[", "}": "{"}
_OF_TENSORFLOW = re.compile(r"<tf\..*\bnumpy=(.*)>", re.DOTALL)
_FACTORS = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?(?:[eE][+-]?\d+)?")  # 1,234.5
_SWAP = str.maketrans(",.", ".,")
_NUMBER = r"[-+]?\d*\.?\d+(?:[eE][-+]?\d+)?"
_IN_NUMBER = re.compile(r"[-+]?\.?\d[\d.]*(?:[eE][-+]?\d*)?")  # what an expression may cut out of one
_HEAD = re.compile(  # of a number, before what was cut out of it
    r"(?:(?<![\w.)\]%+/-])[-+])?(?:\d{1,3}(?:,\d{3})*,\d{1,3}\.?|\d++\.?\d*+(?:[eE][-+]?\d*)?|\.\d*)?$"
)
_UNSIGNED = re.compile(r"-\((?!\?[^P])")  # an expression that asks for a number behind a minus
_PLAIN = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_WITH_COMMA = re.compile(r"[-+]?(?:\d+(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d{3})*,\d+)(?:[eE][-+]?\d+)?(?![\d.,]*\d)")

OPEN = "whose comma may be a decimal one or stand between thousands; say which with --score-comma"

Message = Mapping[str, Any]
Comma = Literal["", "decimal", "thousands"]
Remark = Callable[[str, str], None]  # takes the kind of what a person should know, of which one is said, and the words


def measurement_in(message: Message) -> Measurement | None:
    """Returns a `measurement` message as a curve point, or None when it lacks usable steps and seconds."""
    count, elapsed = steps_in(message), seconds_in(message)
    if count is None or elapsed is None:
        return None
    return Measurement(
        steps=count,
        elapsed_seconds=elapsed,
        score=score_in(message),
        metrics=numbers_in(message.get("metrics")),
    )


def seconds_in(message: Message) -> float | None:
    """Returns the message's `elapsed_seconds` if it is a usable duration."""
    value = _finite(message.get("elapsed_seconds"))
    return value if value is not None and value >= 0 else None


def steps_in(message: Message) -> int | None:
    """Returns the message's `steps` if it is a usable count."""
    value = _finite(message.get("steps"))
    return int(value) if value is not None and 0 <= value <= MAX_STEPS else None


def score_in(message: Message) -> float | None:
    """Returns the message's `score`, or None when it is missing or no score (`protein.types.is_score`)."""
    value = _finite(message.get("score"))
    return value if value is not None and is_score(value) else None


def numbers_in(value: object) -> dict[str, float]:
    """Returns the finite numbers of a JSON object by name, without its other values."""
    if not isinstance(value, dict):
        return {}
    return {str(key): number for key, item in value.items() if (number := _finite(item)) is not None}


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One report. A score that is no usable number is `nan`.

    Attributes:
        steps: of training so far; None: the report does not say.
        score: as the command knows it; None: there is none yet.
        shown: the score as it was written, for messages.
        wrong: why a score is no usable number, to be added to a message; "": it is one, or is not finite.
        cost_seconds: so far, by the command's own account; None: the wall clock counts.
        metrics: further finite numbers.
        is_result: whether the score is final.
    """

    steps: int | None = None
    score: float | None = None
    shown: str = ""
    wrong: str = ""
    cost_seconds: float | None = None
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    is_result: bool = False


def from_json(line: bytes, commas: "Commas | None" = None, *, any_field: bool = False) -> Said | None:
    """Returns the report that a line holds, or None where it is text for the log.

    With `any_field`, an object without a score is a report, too: only where nothing else is written.
    """
    text = line.strip()
    if b"\x1b" in text:
        text = _ANSI_BYTES.sub(b"", text).strip()
    if not text.startswith(b"{"):
        begin = text.find(b"{", 0, _MAX_PREFIX) if text.endswith(b"}") else -1
        if begin < 0 or not _PREFIX.fullmatch(text, 0, begin):
            return None
        text = text[begin:]
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
    said = scored(given, commas or Commas())
    return dataclasses.replace(
        said,
        steps=steps_in({"steps": _unquoted(found.get("steps"))}),
        cost_seconds=seconds_in({"elapsed_seconds": _unquoted(found.get("cost_seconds"))}),
        metrics=numbers_in(others) | numbers_in(found.get("metrics")),
        is_result=is_result,
    )


def looks_like_report(line: bytes) -> bool:
    """Whether a line that is no report may have been meant as one: Python's `{'score': 0.5}`, or one behind a bar."""
    return _LIKE_REPORT.search(line) is not None


def scored(given: object, commas: "Commas", line: str = "", pattern: re.Pattern[str] | None = None) -> Said:
    """Returns a report of a score as it was written: a number, a text, or a list of one of these; None: of none.

    Args:
        given: the score.
        commas: what they stand for. They learn from it.
        line: in which it was found.
        pattern: by which it was found.
    """
    while isinstance(given, list) and len(given) == 1:
        given = given[0]
    if given is None:
        return Said()
    if not isinstance(given, str):
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        return Said(
            score=_as_float(given) if is_number else math.nan,
            shown=shown(given),
            wrong="" if is_number else "which is no number",
        )
    commas.see(given)
    number = number_of(given, commas)
    if number is not None:
        return Said(score=number, shown=shown(given, commas))
    wrong = "which is no number"
    if commas.is_open(given):
        wrong = OPEN
    elif pattern is not None:
        wrong += _remedy(pattern, line)
    return Said(score=math.nan, shown=shown(given, commas), wrong=wrong)


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _remedy(pattern: re.Pattern[str], line: str) -> str:
    """Returns an expression like the user's that reads a number where that one reads a text, for a message; or ""."""
    named = "score" in pattern.groupindex
    group = r"\(\?P<score>[^()]*\)" if named else r"\((?!\?)[^()]*\)"
    number = f"[^-+.\\d\\s]*({'?P<score>' if named else ''}{_NUMBER})"
    better = re.sub(group, lambda _: number, pattern.pattern, count=1)
    try:
        found = re.search(better, line[:_QUICK_TEXT])
    except re.error:
        return ""
    if better == pattern.pattern or found is None:
        return ""
    return f"; --score-regex '{better}' would read {_written(found, 'score', found)}"


class Commas:
    """What commas in the numbers of one log stand for: it is judged by all of them, and not guessed.

    In `0,912` a comma can only be a decimal one. In `1,234.5` it can only stand between thousands. `1,234` may be
    either: it is a number where others have shown which. Where a log shows both, or a point in one number and a
    decimal comma in the other, what is left open stays no number.
    """

    def __init__(self, means: Comma = "") -> None:
        """Has seen no number yet; `means`: what commas stand for, as the user says it; "": it is judged."""
        self._means = means
        self._decimal = self._point = False  # whether numbers were seen that have a decimal comma, or a point

    def see(self, text: str) -> None:
        """Learns from a number as it was written."""
        if "," not in text and (self._point or "." not in text):
            return  # it would show nothing new
        plain, _ = _bare(text)
        by_point, by_comma = _readings(plain)
        self._decimal |= by_comma is not None and by_point is None
        self._point |= by_point is not None and by_comma is None and ("." in plain or "," in plain)

    def read(self, plain: str) -> float | None:
        """Returns the number that a bare text stands for; None: none, or it is not known which."""
        by_point, by_comma = _readings(plain)
        if self._means == "decimal":
            return by_point if by_comma is None and "," not in plain else by_comma
        if self._means == "thousands" or by_comma is None:
            return by_point
        if by_point is None:
            return None if self._point else by_comma
        if "," in plain:  # 1,234
            return None if self._point == self._decimal else by_point if self._point else by_comma
        return None if self._decimal and not self._point else by_point  # 1.234

    def is_open(self, text: str) -> bool:
        """Whether a text is a number, and it is not known which one."""
        plain, _ = _bare(text)
        return not self._means and self.read(plain) is None and _readings(plain) != (None, None)


def _readings(plain: str) -> tuple[float | None, float | None]:
    """Returns the number with a decimal point, and that with a decimal comma; None where it is none so."""
    by_point = _by_point(plain)
    return by_point, _by_point(plain.translate(_SWAP)) if "," in plain or "." in plain else None


def _by_point(plain: str) -> float | None:
    if _GROUPED.fullmatch(plain):
        return float(plain.replace(",", ""))
    try:
        return float(plain)
    except ValueError:
        return None


def number_of(text: str | None, commas: Commas | None = None) -> float | None:
    """Returns the number that a text stands for; None where it is none, or may be two.

    Args:
        text: a number as programs print it, as in "0.5", "1,234.5", "87.5%", "nan", "1.2k" or "tensor([0.5])".
        commas: what they stand for; None: only what is sure without any other number.
    """
    if text is None:
        return None
    plain, factor = _bare(text)
    number = (commas or Commas()).read(plain)
    return None if number is None else number * factor


def _bare(text: str) -> tuple[str, float]:
    """Returns a number without all that is around it, and the factor that its last letter stands for."""
    bare = _GROUP_MARK.sub("", plain_text(text[:MAX_NUMBER])).strip()
    while True:
        bare = bare.strip("'\"")
        while bare and (bare[-1] in ",;:. '\"" or bare.count(_OPENING.get(bare[-1], bare[-1])) < bare.count(bare[-1])):
            bare = bare[:-1]  # also brackets of what stands around it: {'loss': tensor(0.5)}
        for form in (_CALL, _LIST, _OF_TENSORFLOW):
            if found := form.fullmatch(bare.rstrip(",;:.")):
                bare = found[1].strip().strip("'\"")
                bare = bare if form is not _LIST or "," not in bare else ""  # a list of two, or a decimal comma
                break
        else:
            break
    if not any(sign in bare for sign in "[("):
        bare = bare.rstrip(",;:.%)]}").rstrip()
    if bare[-1:] in _FACTORS and bare[-2:-1].isdigit():
        return bare[:-1], _FACTORS[bare[-1]]
    return bare, 1.0


def plain_text(text: str) -> str:
    """Returns a line without colours, with ASCII's minus, and without spaces between groups of digits."""
    text = _ANSI.sub("", text)
    return text if text.isascii() else _GROUP_SPACE.sub("", _DASH.sub("-", text.replace("\u2212", "-")))


class PatternReader:
    """Reads scores from a log by regular expressions.

    The number is the group `score` (or `steps`), or the first group. The expression for the score may have both groups.
    Otherwise the steps are those of the last line in which they were found.
    """

    def __init__(self, score: str, steps: str, commas: Commas, remark: Remark) -> None:
        """Reads nothing yet.

        Args:
            score: the expression.
            steps: the expression; "": none.
            commas: what they stand for. They learn from each line.
            remark: takes what a person should know.
        """
        self._score = re.compile(score)
        self._steps = re.compile(steps) if steps else None
        self._keeps_signs = any(sign in score + steps for sign in _SIGNS)  # the expressions ask for them
        self._last_steps: int | None = None
        self._commas, self._remark = commas, remark

    def read(self, line: bytes) -> Said | None:
        """Returns the report that a line holds, if any."""
        text = line.decode(errors="replace")
        text = _ANSI.sub("", text) if self._keeps_signs else plain_text(text)
        match = _search(self._score, text, self._remark)
        if self._steps is not None and (found := _search(self._steps, text, self._remark)):
            self._last_steps = self._count(_written(found, "steps", match))
        if match is None:
            return None
        steps = self._last_steps
        if "steps" in match.re.groupindex:
            steps = self._count(_written(match, "steps", match))
        said = scored(_written(match, "score", match), self._commas, text, self._score)
        return dataclasses.replace(said, steps=steps, score=math.nan if said.score is None else said.score)

    def _count(self, text: str | None) -> int | None:
        """Returns the steps that a text gives, or else those that were known before."""
        number = number_of(text, self._commas)
        if number is None and text is not None and self._commas.is_open(text):
            number = number_of(text, Commas("thousands"))  # steps are whole
        count = steps_in({"steps": number})
        return self._last_steps if count is None else count


class MetricReader:
    """Reads metrics from a log by a regular expression each. The number is the group `value`, or the first group."""

    def __init__(self, patterns: Mapping[str, str], commas: Commas, remark: Remark) -> None:
        """Reads nothing yet.

        Args:
            patterns: the expressions, by the metric's name.
            commas: what they stand for. They learn from each line.
            remark: takes what a person should know.
        """
        self._patterns = {name: re.compile(pattern) for name, pattern in patterns.items()}
        self._keeps_signs = any(sign in pattern for pattern in patterns.values() for sign in _SIGNS)
        self._commas, self._remark = commas, remark
        self.unseen = set(patterns)  # metrics that no line has shown so far

    def read(self, line: bytes) -> dict[str, float]:
        """Returns the finite numbers that a line holds, by the metric's name."""
        text = line.decode(errors="replace")
        text = _ANSI.sub("", text) if self._keeps_signs else plain_text(text)
        found: dict[str, float] = {}
        for name, pattern in self._patterns.items():
            match = _search(pattern, text, self._remark)
            written = None if match is None else _written(match, "value", None)
            if written is None:
                continue
            self._commas.see(written)
            number = number_of(written, self._commas)
            if number is None:
                wrong = OPEN if self._commas.is_open(written) else "which is no number: it is left out"
                self._remark(f"metric {name}", f"has the metric {name} as {shown(written)}, {wrong}")
            elif math.isfinite(number):
                found[name] = number
        self.unseen.difference_update(found)
        return found


def _search(pattern: re.Pattern[str], text: str, remark: Remark) -> re.Match[str] | None:
    """Returns the match in a line. A long line is searched as far as the time for it allows, and this is said."""
    length = _QUICK_TEXT
    while length < len(text):
        began = time.thread_time()
        found = pattern.search(text, 0, length)
        if 5 * (time.thread_time() - began) > SEARCH_SECONDS:  # twice the length may take four times as long
            remark(
                "search",
                f"printed a line of {len(text):,} characters, and '{pattern.pattern}' was matched with the first"
                f" {length:,} of them: on more it takes too long; begin it with words that stand before the number",
            )
            return found if found and found.end() < length else None
        length *= 2
    return pattern.search(text)


def _written(match: re.Match[str], name: str, other: re.Match[str] | None) -> str | None:
    """Returns the number in which a group of a match lies, and else the group; None: it took no part.

    An expression such as `([\\d.]+)` finds a part of `1.2e-03`, of `1,234.5`, and of `-0.5` behind a `.*`. A part of a
    number is another number.

    Args:
        match: of an expression.
        name: of the group, which may have none.
        other: the match that has the score, whose number is another one than the steps.
    """
    key = name if name in match.re.groupindex else 1
    group: Any = match.group(key)
    if not isinstance(group, str):
        return None
    text, (begin, end) = match.string, match.span(key)
    if len(group) > MAX_NUMBER or _IN_NUMBER.fullmatch(group) is None:
        return _closed(text, begin, group)
    first, last = max(0, begin - MAX_NUMBER), min(len(text), end + MAX_NUMBER)
    if other is not None:  # two numbers with a comma between them are none
        spans = [other.span(one) for one in range(1, 1 + other.re.groups) if other.span(one) != (begin, end)]
        last = min([last, *(start for start, _ in spans if start >= end)])
        first = max([first, *(stop for _, stop in spans if stop <= begin)])
    if group[0] not in "+-" and (head := _HEAD.search(text, first, begin)) is not None:
        without_sign = head.group() == "-" and _UNSIGNED.search(match.re.pattern)
        begin = begin if without_sign else head.start()
    whole = _PLAIN.match(text, begin, last)
    if whole is not None and whole.end() >= end:
        end = whole.end()
    if text[begin - 1 : begin] not in ("[", "(", ","):
        whole = _WITH_COMMA.match(text, begin, last)
        if whole is not None and not end < match.end() < whole.end():  # the expression does not ask for the comma
            end = max(end, whole.end())
    if end >= match.end():
        end += text[end : end + 1] in _FACTORS and not text[end + 1 : end + 2].isalnum()
    return text[begin:end]


def _closed(text: str, begin: int, group: str) -> str:
    """Returns a group of a match with the rest of the brackets that it opens, as the `device='cuda:0')` of a tensor."""
    depth = 0
    for place, sign in enumerate(text[begin : begin + MAX_NUMBER], 1):
        depth += (sign in "([<") - (sign in ")]>")
        if place >= len(group) and depth <= 0:
            return text[begin : begin + place] if group else group
    return group


def shown(written: object, commas: Commas | None = None) -> str:
    """Returns a score as it was written, for a message: texts that are no numbers in quotes, long ones cut."""
    words = str(written) if isinstance(written, str | int | float) else json.dumps(written)
    words = " ".join(words.split())
    words = words if len(words) <= MAX_SHOWN else f"{words[:MAX_SHOWN]}..."
    return words if number_of(words, commas) is not None or not isinstance(written, str) else f"'{words}'"


def unread(last_line: str) -> str:
    """Returns what a last line without a score holds, and what reads it, to be added to a message; may be empty."""
    try:
        found = json.loads(last_line)
    except (ValueError, RecursionError):
        found = None
    numbers = numbers_in(found) if isinstance(found, dict) else {}
    if not numbers:
        return f"; its last line: {last_line}" if last_line else "; it printed nothing"
    name = next((key for key, value in numbers.items() if not value.is_integer()), next(reversed(numbers)))
    return (
        f"; its last line has {', '.join(numbers)}, and --score-regex '\"{re.escape(name)}\": ([^,}}]+)' would read"
        f" '{name}' as the score"
    )


def _unquoted(value: object) -> object:
    """Returns the number that a text stands for: json.dumps(..., default=str) writes those of NumPy so."""
    return number_of(value) if isinstance(value, str) else value
