"""Filters over trials: `train.learning_rate < 1e-3 and state == complete`. A small grammar, nothing is ever evaluated.

    expression  := part { "or" part }
    part        := term { "and" term }
    term        := "not" term | "(" expression ")" | comparison
    comparison  := value { ("<" | "<=" | ">" | ">=" | "==" | "=" | "!=" | "contains") value }
                 | value ["not"] "in" "(" value { "," value } ")"
                 | value ["not"] "in" column
                 | column
    value       := column | number | duration | time | 'text' | "text" | words | true | false | none | nan | inf

- A column is named by its key (`params.train.learning_rate`), by its head in a table (`cost`, `predicted score`) or,
  where that is clear, without its group (`train.learning_rate`) or by its last part (`learning_rate`). Case does not
  matter, and "_" may be a space. Fields of the trial come first: a parameter that is called `steps` is `params.steps`.
- Words that are no column stand for a text: `state == user error`. A text needs quotes where it holds more than words
  and is no value of the column. Backticks take any name: `` `learning rate` ``.
- A text that no trial has, and that is no known value, is a mistake: `state == complet`.
- Numbers may be durations, `cost < 5m`, counts, `steps > 12.3k`, and what a table shows: a value that is rounded there
  is what is shown (see `Shown`). Times are texts, `started > 2026-03-01 18:00`; `==` means the whole day, minute or
  second that is written.
- Comparisons may be chained: `1e-4 < train.learning_rate <= 1e-2`.
- A missing value makes every comparison false, but `!=` and `== none`, as in "this trial has no score".
- `"slow" in tags`, `tags contains slow` and `tags == slow` find a tag. `contains` on a text ignores case.
- A column of truth values stands alone: `excluded`, `not excluded`; or it is compared with yes or no.
"""

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import numpy as np
import numpy.typing as npt

from protein.analysis.columns import Column, Kind, Mask
from protein.columns import GROUPS, HEADS  # where a name without a group is looked for, in this order
from protein.errors import UsageError
from protein.spelling import nearest
from protein.units import SECONDS

MAX_LENGTH = 2_000  # characters of a filter
MAX_DEPTH = 40  # parentheses and nots within each other
MAX_KNOWN = 12  # values that a message lists
_MAX_COMPARED = 500  # values among which the nearest is looked for
_COUNTS = {"k": 1_000, "M": 1_000_000, "G": 1_000_000_000}
_DIGITS = r"(?:\d{1,3}(?:[\u2009\u202f]\d{3})+(?:\.\d*)?|\d+\.?\d*|\.\d+)(?:[eE][+\-\u2212]?\d+)?"  # 1 024, .5, 1e-3
TOKEN = re.compile(
    rf"""\s*(?:
      (?P<time>\d{{4}}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?(?![\w.:]))
    | (?P<duration>[+\-\u2212]?(?:{_DIGITS}[dhms])+(?![\w.]))
    | (?P<number>[+\-\u2212]?{_DIGITS}(?P<count>[kMG])?(?![\w.]))
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | `(?P<quoted>[^`]+)`
    | (?P<infinite>[+\-\u2212]?(?:∞|(?<=[+\-\u2212])inf\b))
    | (?P<missing>[\u2013\u2014](?=[\s),]|$))
    | (?P<sign><=|>=|==|!=|<>|[<>=≤≥≠]|&&?|\|\|?|\(|\)|,)
    | (?P<word>[^\W\d][\w.\-/:@]*)
    )""",
    re.VERBOSE,
)
KEYWORDS = ("and", "or", "not", "in", "contains")
CONSTANTS: Mapping[str, Any] = {"true": True, "false": False, "none": None, "nan": math.nan, "inf": math.inf}
_TRUTH = {"yes": True, "true": True, "no": False, "false": False}
_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip
_SAME_SIGN = {"=": "==", "<>": "!=", "≠": "!=", "≤": "<=", "≥": ">="}
_SAME_WORD = {"&": "and", "&&": "and", "|": "or", "||": "or"}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_ROUNDING = 0.06  # a value is shown at most this far, as a share of it, from what it is: 0.0105 s as 0.011s


class FilterError(UsageError):
    """A filter that cannot be understood; `position` counts its characters from 0."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"filter, character {position + 1}: {message}")
        self.position = position


class UnknownValueError(FilterError):
    """A text that no trial has in this column, and that is none of its known values."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """How a table shows the trials, so that a filter takes what is read there.

    Attributes:
        number: gives the text of a number in the column of a key. A value counts as the number that its text says:
            `score == 18.20` finds 18.2034, which `score > 18.20` does not find. None: values are compared as they are.
        words: key -> further texts that stand in this column, coded, of as many rows; its words are known values of the
            column, also where no row has them.
        zone: of times without an offset.
    """

    number: Callable[[str, int | float], str] | None = None
    words: Mapping[str, Column] = dataclasses.field(default_factory=dict)
    zone: tzinfo = UTC


def matching(text: str, columns: Mapping[str, Column], num_rows: int, shown: Shown | None = None) -> Mask:
    """Returns which rows of a table match a filter; all of them where it is empty.

    Raises:
        FilterError: it does not follow the grammar, names no column, or compares what cannot be compared.
    """
    if not text.strip():
        return np.ones(num_rows, np.bool_)
    if len(text) > MAX_LENGTH:
        raise FilterError(f"a filter has at most {MAX_LENGTH} characters, got {len(text)}", MAX_LENGTH)
    return _Reader(text, columns, num_rows, shown or Shown()).whole()


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    kind: str  # "number", "text", "time", "name" (in backticks), "word", "sign", "end"
    value: Any
    position: int
    end: int  # where the next one may begin

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


def token_at(text: str, position: int) -> Token:
    """Returns the token that begins at a position, behind spaces. Raises `FilterError` where none does."""
    match = TOKEN.match(text, position)
    if match is None:
        start = position + len(text[position:]) - len(text[position:].lstrip())
        if start == len(text):
            return Token("end", "", len(text.rstrip()), len(text))
        sign = text[start]
        if sign in "\"'`":
            raise FilterError(f"the text that begins here has no closing {sign}", start)
        raise FilterError(f"'{sign}' cannot be read", start)
    start, end = match.end() - len(match[0].lstrip()), match.end()
    plain = match[0].strip().replace("\u2212", "-").translate({0x2009: None, 0x202F: None})
    if match["duration"]:
        parts = re.findall(rf"({_DIGITS})([dhms])", plain.lstrip("+-"))
        seconds = sum(_number(count) * SECONDS[unit] for count, unit in parts)
        return Token("number", -seconds if plain.startswith("-") else seconds, start, end)
    if match["number"]:
        count = match["count"]
        value = _number(plain[: -1 if count else None])
        return Token("number", _number(f"{value * _COUNTS[count]:.15g}") if count else value, start, end)
    if match["infinite"]:
        return Token("number", -math.inf if plain.startswith("-") else math.inf, start, end)
    if match["text"] is not None:
        return Token("text", re.sub(r"\\(.)", r"\1", match["text"][1:-1]), start, end)
    if match["missing"]:
        return Token("word", "none", start, end)
    if match["sign"] in _SAME_WORD:
        return Token("word", _SAME_WORD[match["sign"]], start, end)
    for kind, group in (("time", "time"), ("name", "quoted"), ("sign", "sign")):
        if match[group] is not None:
            return Token(kind, match[group], start, end)
    word = match["word"]
    return Token("word", word.lower() if word.lower() in KEYWORDS else word, start, end)


class _Reader:
    """Reads a filter from left to right and returns masks of rows at once: there is no tree to keep."""

    def __init__(self, text: str, columns: Mapping[str, Column], num_rows: int, shown: Shown) -> None:
        self._text = text
        self._columns = columns
        self._names = Names(columns)
        self._num_rows = num_rows
        self._shown = shown
        self._at = 0  # where the next token may begin
        self._depth = 0

    def whole(self) -> Mask:
        found = self._expression()
        if self._now.kind != "end":
            raise FilterError(f"and, or, or the end is expected here, got {self._now.shown}", self._now.position)
        return found

    @property
    def _now(self) -> Token:
        """The next token. It is read when it is needed: a name or a text may stand there that is none."""
        return token_at(self._text, self._at)

    def _is(self, *values: str) -> bool:
        try:
            return self._now.kind in ("word", "sign") and self._now.value in values
        except FilterError:  # nothing that is a token by itself
            return False

    def _next(self) -> Token:
        token = self._now
        self._at = token.end
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
        if not self._is("not", "(") or self._phrase_here("")[1]:
            return self._comparison()
        token = self._now
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
            _ = self._now  # a sign that cannot be read is the mistake
            return self._alone(left)
        found = np.ones(self._num_rows, np.bool_)
        while self._is("contains") or self._is(*_COMPARISONS, *_SAME_SIGN):
            sign = self._next()
            right = self._operand(left)
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
            found = found | self._compared(left, "==", self._operand(left))
            if self._is(","):
                self._next()
                continue
            self._expect(")", f"the list of character {opening.position + 1} is not closed")
            return found

    def _expect(self, value: str, message: str) -> None:
        if not self._is(value):
            raise FilterError(f"{message}, got {self._now.shown}", self._now.position)
        self._next()

    def _operand(self, beside: _Operand | None = None) -> _Operand:
        """Reads one side of a comparison; `beside` is the other one, where that was read before."""
        key = "" if beside is None else beside.key
        phrase = self._phrase(key)
        if phrase is not None:
            return phrase
        token = self._next()
        if token.kind == "number":
            return _Operand(token.position, None, "", token.value)
        if token.kind in ("text", "time"):
            return _Operand(token.position, None, "", token.value)
        if token.kind == "name":
            found = self._names.key(token.value)
            if found is None:
                raise FilterError(self._names.unknown(token.value), token.position)
            return _Operand(token.position, self._columns[found], found, word=token.value)
        if token.kind == "word" and token.value not in KEYWORDS:
            return self._words(token, key)
        raise FilterError(f"a column or a value is expected here, got {token.shown}", token.position)

    def _phrase(self, beside: str) -> _Operand | None:
        """Returns a name, or a text of the column beside it, that stands here as it is, with spaces and signs in it."""
        start, phrase, is_text = self._phrase_here(beside)
        if not phrase:
            return None
        self._at = start + len(phrase)
        key = None if is_text else self._names.key(phrase)
        if key is None:
            return _Operand(start, None, "", phrase)
        return _Operand(start, self._columns[key], key, word=phrase)

    def _phrase_here(self, beside: str) -> tuple[int, str, bool]:
        """Returns where the next thing begins, the longest such phrase there, "": none, and whether it is a text."""
        start = len(self._text) - len(self._text[self._at :].lstrip())
        words = (word for one in self._coded(beside) for word in one.words if not isinstance(word, int | float))
        texts = {text for word in words for written in _texts(word) for text in (written, " ".join(written.split()))}
        is_number = _kind_at(self._text, start) == "number"
        longest = ""
        for phrase in itertools.chain(self._names.phrases, texts):
            if len(phrase) <= len(longest) or not self._text.startswith(phrase, start):
                continue
            if phrase in texts:  # a word of its own is read as such, but for `opt == and`
                is_phrase = not _PLAIN.fullmatch(phrase) or phrase in KEYWORDS
            else:
                is_phrase = not (beside and is_number)
            after = self._text[start + len(phrase) : start + len(phrase) + 1]
            if is_phrase and not (_WITHIN.fullmatch(after) and _WITHIN.fullmatch(phrase[-1])):
                longest = phrase
        return start, longest, longest in texts

    def _words(self, token: Token, beside: str) -> _Operand:
        """Returns what all the words and numbers that stand in a row mean together: a column, or else a text."""
        end = token.end
        while _kind_at(self._text, end) in ("word", "number"):
            more = token_at(self._text, end)
            if more.value in KEYWORDS:
                break
            end = more.end
        self._at = end
        written = " ".join(self._text[token.position : end].split())
        key = self._names.key(written)
        if key is not None or any(_says(one, written) for one in self._coded(beside)):
            return _Operand(token.position, self._columns[key] if key else None, key or "", written, written)
        constant = CONSTANTS.get(token.value.lower(), written) if end == token.end else written
        return _Operand(token.position, None, "", constant, word=written)

    def _coded(self, key: str) -> list[Column]:
        """Returns the columns whose words stand in the column of a key, as a table shows it."""
        found = (self._columns.get(key), self._shown.words.get(key))
        return [one for one in found if one is not None and one.kind.coded]

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
            raise FilterError(self._names.unknown(operand.word), operand.position)
        raise FilterError("a value stands alone; compare a column with it", operand.position)

    def _compared(self, left: _Operand, sign: str, right: _Operand) -> Mask:
        if left.column is None and right.column is None:
            left, right = (self._quoted(one) for one in (left, right))
        if left.column is None and right.column is None:
            # `lerning_rate < 3`: one side is meant to be a column.
            written = left if left.word or not right.word else right
            message = self._names.unknown(written.word) if written.word else "one of the two sides must be a column"
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

    def _quoted(self, operand: _Operand) -> _Operand:
        """Returns the column that a text in quotes names, where one is needed; else the operand as it is."""
        text = operand.constant
        key = self._names.key(text) if isinstance(text, str) and not operand.word else None
        return operand if key is None else _Operand(operand.position, self._columns[key], key, word=text)

    def _against(self, left: _Operand, sign: str, constant: Any, right: _Operand) -> Mask:
        """Returns where a column compares with a constant; false where its value is missing."""
        column = left.column
        assert column is not None
        if constant is None:
            if sign != "==":
                raise FilterError("none can only be compared with == and !=", right.position)
            return column.missing
        if column.kind is Kind.BOOLEAN and isinstance(constant, str) and constant.lower() in _TRUTH:
            constant = _TRUTH[constant.lower()]
        if sign == "==" and (column.kind.coded or (isinstance(constant, str) and left.key in self._shown.words)):
            found = self._equal(left.key, constant)
            if found is None:
                raise UnknownValueError(self._no_such(left.key, str(constant)), right.position)
            return found
        if column.kind.coded:
            return _table_compared(column, sign, constant) & ~column.missing
        if column.kind is Kind.TIME and isinstance(constant, str):
            begin, end = _time(constant, right.position, self._shown.zone)
            if sign == "==":
                return (column.values >= begin) & (column.values < end) & ~column.missing
            constant = np.nextafter(end, -math.inf) if sign == "<=" and end > begin else begin
        if isinstance(constant, str):
            if column.kind is Kind.BOOLEAN:
                raise FilterError(f"'{left.key}' is yes or no, got '{constant:.80}'", right.position)
            if right.word:
                raise FilterError(f"'{left.key}' holds numbers; {self._names.unknown(right.word)}", right.position)
            raise FilterError(f"'{left.key}' holds numbers and cannot be compared with a text", right.position)
        if isinstance(constant, float) and math.isnan(constant):
            if sign != "==":
                raise FilterError("nan can only be compared with == and !=", right.position)
            unordered: Mask = np.isnan(column.values.astype(np.float64)) & ~column.missing
            return unordered
        result: Mask = _COMPARISONS[sign](column.values, constant)
        same = self._reads_as(left.key, column, constant)
        return (result | same if "=" in sign else result & ~same) & ~column.missing

    def _equal(self, key: str, constant: Any) -> Mask | None:
        """Returns which rows have a text in a column, the same or else the same but for case and signs; None: unknown.

        Where nothing is known of a column, nothing can be unknown.
        """
        columns = self._coded(key)
        for same in (_same, _alike):
            tables = [
                np.array([same(word, constant) or self._reads(key, word, constant) for word in one.words] or [False])
                for one in columns
            ]
            if any(table.any() for table in tables):
                found = np.zeros(self._num_rows, np.bool_)
                for one, table in zip(columns, tables, strict=True):
                    found |= _looked_up(one, table) & ~one.missing
                return found
        return None if any(one.words for one in columns) else np.zeros(self._num_rows, np.bool_)

    def _reads(self, key: str, word: Any, constant: Any) -> bool:
        """Whether a number among other choices is shown as this one."""
        if self._shown.number is None or not _are_numbers(word):
            return False
        said = _said(constant) if isinstance(constant, str) else constant
        return said is not None and _said(self._shown.number(key, word)) == said

    def _no_such(self, key: str, text: str) -> str:
        texts = sorted({one for column in self._coded(key) for word in column.words for one in _texts(word)}, key=len)
        hint = nearest(text, texts[:_MAX_COMPARED])
        if "did you mean" not in hint and len(texts) > MAX_KNOWN:
            hint = "; contains finds a part of a text"
        return f"no trial has '{text:.80}' in {self._names.offered(key)}{hint:.500}"

    def _reads_as(self, key: str, column: Column, constant: float) -> Mask:
        """Returns where the text that is shown for a value says this number, `n`."""
        found = np.zeros(self._num_rows, np.bool_)
        text = self._shown.number
        if text is None or column.kind in (Kind.BOOLEAN, Kind.TIME) or not math.isfinite(constant):
            return found
        values = column.values.astype(np.float64)
        with np.errstate(invalid="ignore"):
            near = np.flatnonzero(np.abs(values - constant) <= _ROUNDING * np.maximum(np.abs(values), abs(constant)))
        for value in np.unique(values[near]).tolist():
            # A page rounds a half up, and a terminal to the even digit.
            if any(_said(text(key, one)) == constant for one in (value, value * (1.0 + 2.0**-52))):
                found[near] |= values[near] == value
        return found

    def _contains(self, holder: _Operand, sought: _Operand) -> Mask:
        column = holder.column
        if column is None:
            message = self._names.unknown(holder.word) if holder.word else "a column is expected here"
            raise FilterError(message, holder.position)
        if not column.kind.coded:
            raise FilterError(f"'{holder.key}' holds numbers; in and contains search texts and tags", holder.position)
        text = sought.word or sought.constant
        if not isinstance(text, str):
            raise FilterError("a text is expected here, as in tags contains 'slow'", sought.position)
        wanted = text.casefold()
        if column.kind is Kind.TAGS and column.words and not any(_alike(word, text) for word in column.words):
            raise UnknownValueError(self._no_such(holder.key, text), sought.position)

        def has(word: Any) -> bool:
            if isinstance(word, tuple):
                return any(tag.casefold() == wanted for tag in word)
            return wanted in str(word).casefold()

        table = np.array([has(word) for word in column.words] or [False])
        return _looked_up(column, table) & ~column.missing


def _kind_at(text: str, position: int) -> str:
    """Returns of what kind the next token is, "" where none can be read."""
    try:
        return token_at(text, position).kind
    except FilterError:
        return ""


def _number(digits: str) -> int | float:
    try:
        value = int(digits)
    except ValueError:
        return float(digits)
    return value if -(2**63) <= value < 2**63 else float(value)  # arrays hold no larger integers


def _said(text: str) -> float | None:
    """Returns the number that a text says; None where it says none."""
    try:
        token = token_at(text, 0)
    except FilterError:
        return None
    return token.value if token.kind == "number" and token.end == len(text) else None


def _time(text: str, position: int, zone: tzinfo) -> tuple[float, float]:
    """Returns when the day, the minute or the second that is written begins and ends, in seconds since 1970."""
    try:
        moment = datetime.fromisoformat(text)
        if not moment.tzinfo:
            moment = moment.replace(tzinfo=zone)
        lasts = timedelta(days=1) if ":" not in text else timedelta(minutes=1) if text.count(":") == 1 else timedelta(0)
        lasts = timedelta(seconds=1) if text.count(":") > 1 and "." not in text else lasts
        return moment.timestamp(), (moment + lasts).timestamp()
    except (ValueError, OverflowError):
        raise FilterError(f"'{text:.80}' is not a time; write it like 2026-03-01 18:00", position) from None


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
    """Returns an order of a coded column: of its words, which are few, looked up by code."""
    compare = _COMPARISONS[sign]

    def holds(word: Any) -> bool:
        if _are_numbers(word, constant):
            return bool(compare(word, constant))
        return isinstance(word, str) and isinstance(constant, str) and _texts_compared(sign, word, constant)

    return _looked_up(column, np.array([holds(word) for word in column.words] or [False]))


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in values)


def _same(word: Any, constant: Any) -> bool:
    """Whether a word of a coded column is this constant; of tags, one of them, or all as they are shown."""
    if isinstance(word, tuple):
        return isinstance(constant, str) and constant in (*word, ", ".join(word))
    if isinstance(word, str) and isinstance(constant, str):
        return word == constant
    return (
        bool(word == constant) if _are_numbers(word, constant) else str(word).lower() == str(constant).lower()
    )  # "64" beside 64


def _alike(word: Any, constant: Any) -> bool:
    """Whether they are the same but for case, and but for spaces in place of "_"."""
    return any(_loose(text) == _loose(str(constant)) for text in _texts(word))


def _says(column: Column, text: str) -> bool:
    return any(_alike(word, text) for word in column.words)


def _texts(word: Any) -> Iterable[str]:
    """Returns the texts that stand for a word of a coded column."""
    return (*word, ", ".join(word)) if isinstance(word, tuple) else (str(word),)


def _loose(text: str) -> str:
    return " ".join(text.replace("_", " ").split()).casefold()


def _texts_compared(sign: str, word: str, constant: str) -> bool:
    return {"<": word < constant, "<=": word <= constant, ">": word > constant, ">=": word >= constant}[sign]


def _looked_up(column: Column, table: npt.NDArray[np.bool_]) -> Mask:
    found: Mask = table[np.where(column.missing, 0, column.values)]
    return found


_PLAIN = re.compile(r"[^\W\d][\w.\-/:@]*")  # what is one word
_WITHIN = re.compile(r"[\w.\-/:@]")  # a sign that goes on with a word


class Names:
    """What columns may be called: by key, without the group, by head, by the last part, and all of it in any case."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = columns

    def key(self, name: str) -> str | None:
        """Returns the key of the one column that a name means; None: there is none, or there are several."""
        for names, said in ((self._exact, name), (self._loosely, _loose_name(name))):
            keys = names.get(said, ())
            if keys:
                return keys[0] if len(keys) == 1 else None
        return None

    @functools.cached_property
    def phrases(self) -> Iterable[str]:
        """Names of more than one word."""
        return [name for name in self._exact if not _PLAIN.fullmatch(name)]

    @functools.cached_property
    def _exact(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {key: [key] for key in self._columns}
        for group in GROUPS:  # the first group that has the name
            for key in self._columns:
                if key.startswith(group + "."):
                    found.setdefault(key.removeprefix(group + "."), [key])
        for key in self._columns:
            if key in HEADS:
                found.setdefault(HEADS[key], [key])
        last: dict[str, list[str]] = {}
        for key in self._columns:
            if "." in _short(key) and (part := key.rpartition(".")[2]):
                last.setdefault(part, []).append(key)
        return {**last, **found}

    @functools.cached_property
    def _loosely(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, keys in self._exact.items():
            known = found.setdefault(_loose_name(name), [])
            known += [key for key in keys if key not in known]
        return found

    def unknown(self, name: str) -> str:
        """Returns the line on a name that is no column's, or that of several."""
        several = self._exact.get(name) or self._loosely.get(_loose_name(name))
        if several:
            return f"'{name:.80}' may be {' or '.join(_short(key) for key in several[:MAX_KNOWN])}; write one of them"
        known = [*map(_short, self._columns), *(HEADS[key] for key in self._columns if key in HEADS)]
        short = [one for one in known if len(name) > 1 and _initials(one) == name.lower()]
        hint = f"; did you mean '{short[0]}'?" if short else nearest(name, known)
        return f"there is no column '{name}'{hint if 'did you mean' in hint else ''}"

    def offered(self, key: str) -> str:
        """Returns the shortest clear name of a column as a filter takes it: a word where that will do, else quoted."""
        for name in (HEADS.get(key, ""), _short(key), key):
            plain = _PLAIN.fullmatch(name) and name.lower() not in (*KEYWORDS, *CONSTANTS)
            if plain and self.key(name) == key:
                return name
        return f"`{_short(key) if self.key(_short(key)) == key else key}`"


def names(columns: Mapping[str, Column]) -> list[str]:
    """Returns the names of columns as a filter takes them (`Names.offered`)."""
    known = Names(columns)
    return [known.offered(key) for key in columns]


def _loose_name(name: str) -> str:
    """Returns a name without what people leave out of it: case, and the signs between its words."""
    return _loose(name.replace(".", " "))


def _initials(name: str) -> str:
    """Returns how people shorten a name: `lr` for `train.learning_rate`."""
    return "".join(part[:1] for part in re.split(r"[_ ]", name.rpartition(".")[2])).lower()


def _short(key: str) -> str:
    group, _, rest = key.partition(".")
    return rest if group in GROUPS and rest else key
