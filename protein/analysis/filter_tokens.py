"""The words of filters: `protein.analysis.filters` says what they mean, and evaluates what is read of them."""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from protein.errors import UsageError
from protein.units import SECONDS

TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?P<unit>[dhms])?(?![\w.]))
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | `(?P<quoted>[^`]+)`
    | (?P<sign><=|>=|==|!=|<>|<|>|=|\(|\)|,|-(?=inf\b)|\+(?=inf\b))
    | (?P<word>[^\W\d][\w.\-/:@]*)
    )""",
    re.VERBOSE,
)
KEYWORDS = ("and", "or", "not", "in", "contains")
CONSTANTS: Mapping[str, Any] = {"true": True, "false": False, "none": None, "nan": math.nan, "inf": math.inf}


class FilterError(UsageError):
    """A filter that cannot be understood; `position` counts its characters from 0."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"filter, character {position + 1}: {message}")
        self.position = position


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    kind: str  # "number", "text", "name" (in backticks), "word", "sign", "end"
    value: Any
    position: int

    @property
    def shown(self) -> str:
        return "the end" if self.kind == "end" else f"'{self.value}'"


def tokens(text: str) -> list[Token]:
    """Returns the tokens of a filter, the end last. Raises `FilterError` where a character begins none."""
    found = []
    position = 0
    while text[position:].strip():
        match = TOKEN.match(text, position)
        if match is None:
            start = position + len(text[position:]) - len(text[position:].lstrip())
            sign = text[start]
            if sign in "\"'`":
                raise FilterError(f"the text that begins here has no closing {sign}", start)
            raise FilterError(f"'{sign}' cannot be read", start)
        start = match.end() - len(match[0].lstrip())
        if match["number"] is not None:
            unit = match["unit"]
            digits = match["number"][: -1 if unit else None]
            found.append(Token("number", _number(digits) * SECONDS.get(unit or "s", 1), start))
        elif match["text"] is not None:
            found.append(Token("text", re.sub(r"\\(.)", r"\1", match["text"][1:-1]), start))
        elif match["quoted"] is not None:
            found.append(Token("name", match["quoted"], start))
        else:
            word = match["word"]
            lowered = word.lower() if word and word.lower() in KEYWORDS else word
            found.append(Token("sign" if word is None else "word", lowered or match["sign"], start))
        position = match.end()
    return [*found, Token("end", "", len(text.rstrip()))]


def _number(digits: str) -> int | float:
    try:
        value = int(digits)
    except ValueError:
        return float(digits)
    return value if -(2**63) <= value < 2**63 else float(value)  # arrays hold no larger integers
