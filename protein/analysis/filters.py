"""Filters over trials: `train.learning_rate < 1e-3 and state == complete`. A small grammar, nothing is ever evaluated.

    expression  := part { "or" part }
    part        := term { "and" term }
    term        := "not" term | "(" expression ")" | comparison
    comparison  := value { ("<" | "<=" | ">" | ">=" | "==" | "=" | "!=" | "contains") value }
                 | value ["not"] "in" "(" value { "," value } ")"
                 | value ["not"] "in" column
                 | column
    value       := column | number | duration | 'text' | "text" | word | true | false | none | nan | inf

- A column is named by its key (`params.train.learning_rate`) or, where that is clear, without its group
  (`train.learning_rate`). Backticks take any name: `` `learning rate` ``. Fields of the trial come first: a parameter
  that is called `steps` is `params.steps`.
- A word that is no column stands for a text: `state == complete`.
- Numbers may be durations, `cost_seconds < 5m`, and times are texts, `started_at > "2026-03-01"` (UTC).
- Comparisons may be chained: `1e-4 < train.learning_rate <= 1e-2`.
- A missing value makes every comparison false, but `!=` and `== none`, as in "this trial has no score".
- `"slow" in tags` and `tags contains slow` find a tag. `contains` on a text ignores case.
- A column of truth values stands alone: `excluded`, `not excluded`.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from protein.analysis.columns import Column, Kind, Mask
from protein.columns import GROUPS  # where a name without a group is looked for, in this order
from protein.errors import UsageError
from protein.spelling import nearest
from protein.units import SECONDS

MAX_LENGTH = 2_000  # characters of a filter
MAX_DEPTH = 40  # parentheses and nots within each other
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
_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip
_SAME_SIGN = {"=": "==", "<>": "!="}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


class FilterError(UsageError):
    """A filter that cannot be understood; `position` counts its characters from 0."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"filter, character {position + 1}: {message}")
        self.position = position


def matching(text: str, columns: Mapping[str, Column], num_rows: int) -> Mask:
    """Returns which rows of a table match a filter; all of them where it is empty.

    Raises:
        FilterError: it does not follow the grammar, names no column, or compares what cannot be compared.
    """
    if not text.strip():
        return np.ones(num_rows, np.bool_)
    if len(text) > MAX_LENGTH:
        raise FilterError(f"a filter has at most {MAX_LENGTH} characters, got {len(text)}", MAX_LENGTH)
    return _Reader(text, columns, num_rows).whole()


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    kind: str  # "number", "text", "name" (in backticks), "word", "sign", "end"
    value: Any
    position: int

    @property
    def shown(self) -> str:
        return "the end" if self.kind == "end" else f"'{self.value}'"


@dataclasses.dataclass(frozen=True, slots=True)
class _Operand:
    """One side of a comparison: a column, or a constant. A word may be either, until the other side is known."""

    position: int
    column: Column | None
    key: str  # of the column; else ""
    constant: Any = None
    word: str = ""  # as it is written, where it may stand for a text


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


class _Reader:
    """Reads a filter from left to right and returns masks of rows at once: there is no tree to keep."""

    def __init__(self, text: str, columns: Mapping[str, Column], num_rows: int) -> None:
        self._columns = columns
        self._num_rows = num_rows
        self._tokens = tokens(text)
        self._at = 0
        self._depth = 0

    def whole(self) -> Mask:
        found = self._expression()
        if self._now.kind != "end":
            raise FilterError(f"and, or, or the end is expected here, got {self._now.shown}", self._now.position)
        return found

    @property
    def _now(self) -> Token:
        return self._tokens[self._at]

    def _is(self, *values: str) -> bool:
        return self._now.kind in ("word", "sign") and self._now.value in values

    def _next(self) -> Token:
        token = self._now
        self._at += token.kind != "end"
        return token

    def _expression(self) -> Mask:
        found = self._part()
        while self._is("or"):
            self._next()
            found = found | self._part()
        return found

    def _part(self) -> Mask:
        found = self._term()
        while self._is("and"):
            self._next()
            found = found & self._term()
        return found

    def _term(self) -> Mask:
        token = self._now
        if not self._is("not", "("):
            return self._comparison()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise FilterError(f"more than {MAX_DEPTH} parentheses and nots are within each other", token.position)
        self._next()
        if token.value == "not":
            found = ~self._term()
        else:
            found = self._expression()
            self._expect(")", f"the parenthesis of character {token.position + 1} is not closed")
        self._depth -= 1
        return found

    def _comparison(self) -> Mask:
        left = self._operand()
        if self._is("in", "not"):
            negated = self._next().value == "not"
            if negated:
                self._expect("in", "after not, in is expected here")
            found = self._membership(left)
            return ~found if negated else found
        if not (self._is("contains") or self._is(*_COMPARISONS, *_SAME_SIGN)):
            return self._alone(left)
        found = np.ones(self._num_rows, np.bool_)
        while self._is("contains") or self._is(*_COMPARISONS, *_SAME_SIGN):
            sign = self._next()
            right = self._operand()
            name = _SAME_SIGN.get(sign.value, sign.value)
            found = found & (self._contains(left, right) if name == "contains" else self._compared(left, name, right))
            left = right
        return found

    def _membership(self, left: _Operand) -> Mask:
        if not self._is("("):
            return self._contains(self._operand(), left)
        opening = self._next()
        found = np.zeros(self._num_rows, np.bool_)
        while True:
            found = found | self._compared(left, "==", self._operand())
            if self._is(","):
                self._next()
                continue
            self._expect(")", f"the list of character {opening.position + 1} is not closed")
            return found

    def _expect(self, value: str, message: str) -> None:
        if not self._is(value):
            raise FilterError(f"{message}, got {self._now.shown}", self._now.position)
        self._next()

    def _operand(self) -> _Operand:
        token = self._next()
        if token.kind in ("number", "text"):
            return _Operand(token.position, None, "", token.value)
        if token.kind == "sign" and token.value in ("-", "+") and self._is("inf"):
            self._next()
            return _Operand(token.position, None, "", -math.inf if token.value == "-" else math.inf)
        if token.kind == "name" or (token.kind == "word" and token.value not in KEYWORDS):
            key = self._key(token.value)
            if key is not None:
                return _Operand(token.position, self._columns[key], key, word=token.value)
            if token.kind == "name":
                raise FilterError(self._unknown(token.value), token.position)
            if token.value.lower() in CONSTANTS:
                return _Operand(token.position, None, "", CONSTANTS[token.value.lower()], word=token.value)
            return _Operand(token.position, None, "", token.value, word=token.value)
        raise FilterError(f"a column or a value is expected here, got {token.shown}", token.position)

    def _key(self, name: str) -> str | None:
        """Returns the key of the column that a name means, if there is one."""
        for key in (name, *(f"{group}.{name}" for group in GROUPS)):
            if key in self._columns:
                return key
        return None

    def _unknown(self, name: str) -> str:
        names = [key.partition(".")[2] if key.partition(".")[0] in GROUPS else key for key in self._columns]
        hint = nearest(name, names)
        return f"there is no column '{name}'{hint if 'did you mean' in hint else ''}"

    def _alone(self, operand: _Operand) -> Mask:
        column = operand.column
        if column is not None and column.kind is Kind.BOOLEAN:
            found: Mask = (column.values != 0) & ~column.missing
            return found
        if column is not None:
            raise FilterError(
                f"'{operand.key}' stands alone; compare it with a value, as in {operand.key} != none", operand.position
            )
        if isinstance(operand.constant, bool):
            return np.full(self._num_rows, operand.constant)
        if operand.word:
            raise FilterError(self._unknown(operand.word), operand.position)
        raise FilterError("a value stands alone; compare a column with it", operand.position)

    def _compared(self, left: _Operand, sign: str, right: _Operand) -> Mask:
        if left.column is None and right.column is None:
            # `lerning_rate < 3`: one side is meant to be a column.
            written = left if left.word or not right.word else right
            message = self._unknown(written.word) if written.word else "one of the two sides must be a column"
            raise FilterError(message, written.position)
        if left.column is None or (right.column is not None and _is_word_of(left, right.column)):
            left, sign, right = right, _TURNED[sign], left
        assert left.column is not None
        if right.column is not None and not _is_word_of(right, left.column):
            return _columns_compared(left, sign, right)
        # A choice may be called "none" or "true".
        constant = right.word if right.column is not None or _is_word_of(right, left.column) else right.constant
        if sign == "!=":
            return ~self._against(left, "==", constant, right)
        return self._against(left, sign, constant, right)

    def _against(self, left: _Operand, sign: str, constant: Any, right: _Operand) -> Mask:
        """Returns where a column compares with a constant; false where its value is missing."""
        column = left.column
        assert column is not None
        if constant is None:
            if sign != "==":
                raise FilterError("none can only be compared with == and !=", right.position)
            return column.missing
        if column.kind.coded:
            return _table_compared(column, sign, constant) & ~column.missing
        if column.kind is Kind.TIME and isinstance(constant, str):
            constant = _time(constant, right.position)
        if isinstance(constant, str):
            if right.word:
                raise FilterError(f"'{left.key}' holds numbers; {self._unknown(right.word)}", right.position)
            raise FilterError(f"'{left.key}' holds numbers and cannot be compared with a text", right.position)
        if isinstance(constant, float) and math.isnan(constant):
            if sign != "==":
                raise FilterError("nan can only be compared with == and !=", right.position)
            unordered: Mask = np.isnan(column.values.astype(np.float64)) & ~column.missing
            return unordered
        found: Mask = _COMPARISONS[sign](column.values, constant)
        return found & ~column.missing

    def _contains(self, holder: _Operand, sought: _Operand) -> Mask:
        column = holder.column
        if column is None:
            message = self._unknown(holder.word) if holder.word else "a column is expected here"
            raise FilterError(message, holder.position)
        if not column.kind.coded:
            raise FilterError(f"'{holder.key}' holds numbers; in and contains search texts and tags", holder.position)
        text = sought.word or sought.constant
        if not isinstance(text, str):
            raise FilterError("a text is expected here, as in tags contains 'slow'", sought.position)
        wanted = text.casefold()

        def has(word: Any) -> bool:
            if isinstance(word, tuple):
                return any(tag.casefold() == wanted for tag in word)
            return wanted in str(word).casefold()

        table = np.array([has(word) for word in column.words] or [False])
        return _looked_up(column, table) & ~column.missing


def _number(digits: str) -> int | float:
    try:
        value = int(digits)
    except ValueError:
        return float(digits)
    return value if -(2**63) <= value < 2**63 else float(value)  # arrays hold no larger integers


def _time(text: str, position: int) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise FilterError(f"'{text}' is not a time; write it like \"2026-03-01 18:00\"", position) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _is_word_of(operand: _Operand, column: Column) -> bool:
    """Whether a word means a text beside this column, although there is a column or a constant of that name, too."""
    return bool(operand.word) and column.kind in (Kind.TEXT, Kind.MIXED) and operand.word in column.words


def _columns_compared(left: _Operand, sign: str, right: _Operand) -> Mask:
    one, other = left.column, right.column
    assert one is not None and other is not None
    gone = one.missing | other.missing
    if one.kind.coded != other.kind.coded:
        raise FilterError(f"'{left.key}' and '{right.key}' cannot be compared: one holds texts", right.position)
    if one.kind.coded:
        if sign not in ("==", "!="):
            raise FilterError("texts of two columns can only be compared with == and !=", right.position)
        same = np.array([a == b for a, b in zip(one.listed(), other.listed(), strict=True)], np.bool_) & ~gone
        return ~same if sign == "!=" else same
    found: Mask = _COMPARISONS["==" if sign == "!=" else sign](one.values, other.values) & ~gone
    return ~found if sign == "!=" else found


def _table_compared(column: Column, sign: str, constant: Any) -> Mask:
    """Returns the comparison of a coded column: of its words, which are few, looked up by code."""
    compare = _COMPARISONS[sign]

    def holds(word: Any) -> bool:
        if isinstance(word, tuple):  # tags: the trial has exactly this one
            return sign == "==" and word == (constant,)
        numbers = isinstance(word, int | float) and isinstance(constant, int | float)
        if numbers or (isinstance(word, str) and isinstance(constant, str)):
            return bool(compare(word, constant)) if numbers else _texts_compared(sign, word, constant)
        return sign == "==" and str(word).lower() == str(constant).lower()  # a choice such as "64" beside 64

    return _looked_up(column, np.array([holds(word) for word in column.words] or [False]))


def _texts_compared(sign: str, word: str, constant: str) -> bool:
    if sign == "==":
        return word == constant
    return {"<": word < constant, "<=": word <= constant, ">": word > constant, ">=": word >= constant}[sign]


def _looked_up(column: Column, table: npt.NDArray[np.bool_]) -> Mask:
    found: Mask = table[np.where(column.missing, 0, column.values)]
    return found


def names(columns: Mapping[str, Column]) -> list[str]:
    """Returns the names of columns as a filter takes them, the shortest that is clear; quoted where they need it."""
    found = []
    for key in columns:
        group, _, rest = key.partition(".")
        short = rest if group in GROUPS and rest and _first_key(rest, columns) == key else key
        match = TOKEN.fullmatch(short)
        plain = match is not None and match["word"] is not None and short.lower() not in (*KEYWORDS, *CONSTANTS)
        found.append(short if plain else f"`{short}`")
    return found


def _first_key(name: str, columns: Mapping[str, Column]) -> str | None:
    return next((key for key in (name, *(f"{group}.{name}" for group in GROUPS)) if key in columns), None)
