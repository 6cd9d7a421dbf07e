"""Filters: what each form of an expression means, and that mistakes are one line with their place."""

import contextlib
import math
import operator
from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protein.analysis.columns import Kind, column_of
from protein.analysis.filters import CONSTANTS, KEYWORDS, FilterError, Names, Shown, matching, names, token_at
from protein.view.text import table_number

SCORES = [1.0, None, -2.5, math.nan, math.inf, 7.0]
COLUMNS = {
    "score": column_of(SCORES, Kind.NUMBER),
    "number": column_of([0, 1, 2, 3, 4, 5]),
    "state": column_of(["complete", "failed", "complete", "pruned", "running", "complete"]),
    "reason": column_of([None, "diverged: loss is NaN", None, "Stopped", None, None], Kind.TEXT),
    "excluded": column_of([True, False, False, True, False, None], Kind.BOOLEAN),
    "tags": column_of([("slow",), (), ("slow", "Odd one"), (), None, ()], Kind.TAGS),
    "cost_seconds": column_of([30.0, 60.0, 90.0, 300.0, 3600.0, 0.5]),
    "started_at": column_of([1.7e9 + 86400 * i for i in range(6)], Kind.TIME),
    "kind": column_of(["search", "random", "search", "search", "random", "search"]),
    "params.train.learning_rate": column_of([1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0]),
    "params.width": column_of([64, "auto", 128, "auto", 64, 32]),
    "params.score": column_of([5, 6, 7, 8, 9, 10]),
    "params.learning rate": column_of([1, 2, 3, 4, 5, 6]),
    "params.search": column_of([1, 1, 1, 1, 1, 1]),
    "params.schedule": column_of(["none", "linear", "none", "true", None, "nan"]),
    "metrics.train_score": column_of([0.0, 1.0, -3.0, 2.0, None, 7.0], Kind.NUMBER),
}


# The same table with what its pages know of it: in other words, or not by any trial.
SHOWN = Shown(
    number=table_number,
    words={
        "state": column_of(
            ["complete", "diverged", "complete", "stopped early", "running", "complete"],
            known=["out of budget", "queued", "interrupted"],
        ),
        "score": column_of([None, "diverged", None, None, None, None], Kind.TEXT),
    },
)
FURTHER = {
    "params.opt": column_of(["adam"] * 6, known=["sgd"]),
    "params.and": column_of([1, 2, 3, 4, 5, 6]),
    "params.a.decay": column_of([1, 2, 3, 4, 5, 6]),
    "params.b.decay": column_of([1, 2, 3, 4, 5, 6]),
}


def found(text: str, shown: Shown | None = None) -> list[int]:
    columns = COLUMNS if shown is None else {**COLUMNS, **FURTHER}
    return np.flatnonzero(matching(text, columns, 6, shown)).tolist()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [0, 1, 2, 3, 4, 5]),
        ("score > 0", [0, 4, 5]),
        ("0 < score", [0, 4, 5]),
        ("score == 7", [5]),
        ("score = 7.0", [5]),
        ("score != 7", [0, 1, 2, 3, 4]),
        ("score <> 7", [0, 1, 2, 3, 4]),
        ("score == nan", [3]),
        ("score != nan", [0, 1, 2, 4, 5]),
        ("score == inf", [4]),
        ("score > -inf", [0, 2, 4, 5]),
        ("score == none", [1]),
        ("score != none", [0, 2, 3, 4, 5]),
        ("state == complete", [0, 2, 5]),
        ("complete == state", [0, 2, 5]),
        ("state == 'complete' and score < 5", [0, 2]),
        ("state == complete and score < 5 or number == 3", [0, 2, 3]),
        ("state == complete and (score < 5 or number == 5)", [0, 2, 5]),
        ("not state == complete", [1, 3, 4]),
        ("not not state == complete", [0, 2, 5]),
        ("NOT state == complete AND number > 1", [3, 4]),
        ("state in (failed, pruned)", [1, 3]),
        ("state not in ('failed', \"pruned\")", [0, 2, 4, 5]),
        ("number in (1, 3, 99)", [1, 3]),
        ("excluded", [0, 3]),
        ("not excluded", [1, 2, 4, 5]),
        ("excluded == false", [1, 2, 4]),
        ("true", [0, 1, 2, 3, 4, 5]),
        ("slow in tags", [0, 2]),
        ("'odd ONE' in tags", [2]),
        ("tags contains slow", [0, 2]),
        ("slow not in tags", [1, 3, 4, 5]),
        ("reason contains nan", [1]),
        ("reason contains 'STOP'", [3]),
        ("reason == none", [0, 2, 4, 5]),
        ("train.learning_rate < 1e-3", [0]),
        ("params.train.learning_rate <= 1e-3", [0, 1]),
        ("1e-4 < train.learning_rate <= 1e-2", [1, 2]),
        ("width == auto", [1, 3]),
        ("width > 40", [0, 2, 4]),
        ("width in (auto, 32)", [1, 3, 5]),
        ("params.score >= 9", [4, 5]),
        ("`learning rate` > 4", [4, 5]),
        ("cost_seconds >= 1m", [1, 2, 3, 4]),
        ("cost_seconds < 1.5m", [0, 1, 5]),
        ("cost_seconds == 1h", [4]),
        ("started_at < '2023-11-15'", [0]),
        ("started_at < '2023-11-15T22:13:20+00:00'", [0]),
        ("kind == search", [0, 2, 3, 5]),  # a parameter has this name, too
        ("schedule == none", [0, 2]),  # a choice
        ("schedule in (true, nan)", [3, 5]),
        ("score < metrics.train_score", []),
        ("score > train_score", [0, 2]),
        ("number != params.score", [0, 1, 2, 3, 4, 5]),
        ("  score>0  ", [0, 4, 5]),
        ("score>-3", [0, 2, 4, 5]),
    ],
)
def test_what_a_filter_finds(text: str, expected: list[int]) -> None:
    assert found(text) == expected


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("scor > 3", 0, "there is no column 'scor'; did you mean 'score'"),
        ("score > abc", 8, "'score' holds numbers; there is no column 'abc'"),
        ("score > 'abc'", 8, "'score' holds numbers and cannot be compared with a text"),
        ("score >", 7, "a column or a value is expected here, got the end"),
        ("score > 3 state == complete", 10, "and, or, or the end is expected here, got 'state'"),
        ("(score > 3", 10, "the parenthesis of character 1 is not closed, got the end"),
        ("score in (1, 2", 14, "the list of character 10 is not closed"),
        ("3 < scor", 4, "there is no column 'scor'"),
        ("score in 3", 9, "a column is expected here"),
        ("score ; 3", 6, "';' cannot be read"),
        ("state == 'complete", 9, "the text that begins here has no closing '"),
        ("score", 0, "'score' stands alone; compare it with a value"),
        ("nothing", 0, "there is no column 'nothing'"),
        ("3", 0, "a value stands alone"),
        ("3 < 4", 0, "one of the two sides must be a column"),
        ("score not 3", 10, "after not, in is expected here"),
        ("score < none", 8, "none can only be compared with == and !="),
        ("score < nan", 8, "nan can only be compared with == and !="),
        ("started_at > 'yesterday'", 13, "'yesterday' is not a time"),
        ("state < score", 8, "cannot be compared: one holds texts"),
        ("`no such` > 1", 0, "there is no column 'no such'"),
        ("score contains 3", 0, "'score' holds numbers; in and contains search texts and tags"),
        ("(" * 50 + "score > 3", 40, "more than 40 parentheses and nots"),
        ("not " * 50 + "score > 3", 160, "more than 40 parentheses and nots"),
        ("score > 3" + " " * 3000 + "or score > 4", 2000, "a filter has at most 2000 characters"),
        ("__import__('os').system('x')", 0, "there is no column '__import__'"),
        ("excluded('os').system('x')", 8, "and, or, or the end is expected here, got '('"),
        ("__import__('os')", 0, "there is no column '__import__'"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(text: str, position: int, message: str) -> None:
    with pytest.raises(FilterError) as raised:
        found(text)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert raised.value.position == position
    assert str(raised.value).startswith(f"filter, character {position + 1}: ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("trial == 3", [3]),
        ("Cost < 1m", [0, 5]),
        ("cost <= 1m00s and cost > .5s", [0, 1]),
        ("cost in (1h00m, 5m)", [3, 4]),
        ("'cost' >= 1h", [4]),
        ("learning_rate < 1e-3", [0]),
        ("Train.Learning Rate > 0.5 and learning_rate < 2", [4]),
        ("train learning_rate ≥ 1 && cost ≤ 1h || trial ≠ trial", [4, 5]),
        ("learning rate == 6", [5]),  # the parameter of this very name
        ("suggested by == random", [1, 4]),
        ("excluded == yes", [0, 3]),
        ("excluded = No", [1, 2, 4]),
        ("state == diverged", [1]),
        ("state == Failed", [1]),
        ("state == out of budget", []),  # which a trial can be
        ("state == queued or state in (running, stopped early)", [3, 4]),
        ("score == diverged", [1]),
        ("score == −2.50", [2]),
        ("score == – or score == ∞", [1, 4]),
        ("reason == diverged: loss is NaN", [1]),
        ("tags == slow", [0, 2]),
        ("tags == slow, Odd one", [2]),
        ("tags == odd one and score < 0", [2]),
        ("number > 0.001k and number < 4", [2, 3]),
        ("started == 2023-11-15", [1]),
        ("started == 2023-11-15 22:13", [1]),
        ("started == 2023-11-15 22:13:20", [1]),
        ("started <= 2023-11-15", [0, 1]),
        ("started > 2023-11-15 00:00 and started < 2023-11-17", [1, 2]),
        ("width == 128", [2]),
        ("opt == SGD", []),  # a choice that no trial has had
        ("`and` == 3", [2]),
    ],
)
def test_a_filter_takes_the_words_of_the_table(text: str, expected: list[int]) -> None:
    assert found(text, SHOWN) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("state == divergd", "no trial has 'divergd' in state; did you mean 'diverged'?"),
        ("state != complet", "no trial has 'complet' in state; did you mean 'complete'?"),
        ("opt in (adma)", "no trial has 'adma' in opt; did you mean 'adam'?"),
        ("width == 65", "no trial has '65' in width; known: 128, 32, 64, auto"),
        ("slwo in tags", "no trial has 'slwo' in tags; did you mean 'slow'?"),
        ("tags contains slwo", "no trial has 'slwo' in tags; did you mean 'slow'?"),
        ("excluded == maybe", "'excluded' is yes or no, got 'maybe'"),
        ("lr > 3", "there is no column 'lr'; did you mean 'train.learning_rate'?"),
        ("decay > 3", "'decay' may be a.decay or b.decay; write one of them"),
        ("started == yesterday", "'yesterday' is not a time"),
        ("cost now > 3", "there is no column 'cost now'; did you mean 'cost'?"),
    ],
)
def test_what_no_trial_and_no_enum_knows_is_refused_with_the_nearest(text: str, message: str) -> None:
    with pytest.raises(FilterError) as raised:
        found(text, SHOWN)
    assert message in str(raised.value) and "\n" not in str(raised.value)


_TEXTS = st.text(min_size=1, max_size=12).filter(lambda one: one == " ".join(one.split()) and "`" not in one)
_HEADS = _TEXTS.filter(lambda one: one.lower() not in (*KEYWORDS, *CONSTANTS) and not set(one) & set("\"'=<>!"))
_FINITE = st.floats(-1e12, 1e12) | st.integers(-10_000, 10_000).map(lambda one: one / 16)
_COSTS = st.floats(0.0, 1e6) | st.integers(0, 10_000).map(lambda one: one / 16)
_ZONE = ZoneInfo("Europe/Berlin")


@settings(max_examples=30)
@given(st.data())
def test_every_head_and_every_shown_value_is_accepted_and_finds_exactly_its_rows(data: st.DataObject) -> None:
    heads = data.draw(st.lists(_HEADS, min_size=3, max_size=3, unique_by=lambda one: one.casefold()), label="heads")
    kinds: dict[str, tuple[str, Any, st.SearchStrategy[Any]]] = {
        "score": ("score", Kind.NUMBER, _FINITE),
        "cost_seconds": ("cost", Kind.NUMBER, _COSTS),
        "steps": ("steps", Kind.INTEGER, st.integers(0, 10**12)),
        "excluded": ("excluded", Kind.BOOLEAN, st.booleans()),
        "started_at": ("started", Kind.TIME, st.integers(6 * 10**9, 8 * 10**9).map(lambda one: one / 4)),
        "reason": ("reason", Kind.TEXT, _TEXTS),
        f"params.{heads[0]}": (heads[0], None, _FINITE | st.integers(-(10**9), 10**9)),
        f"params.train.{heads[1]}": (heads[1], None, _TEXTS | st.booleans() | _FINITE),
        f"metrics.{heads[2]}": (heads[2], Kind.NUMBER, _FINITE),
        "timings.startup": ("startup", Kind.NUMBER, _COSTS),
    }
    count = data.draw(st.integers(1, 4))
    rows = {
        key: data.draw(st.lists(st.none() | values, min_size=count, max_size=count), label=key)
        for key, (_, _, values) in kinds.items()
    }
    columns = {key: column_of(rows[key], kind) for key, (_, kind, _) in kinds.items()}
    shown = Shown(number=table_number, zone=_ZONE)
    for key, (head, kind, _) in kinds.items():
        named = Names(columns).key(head) == key  # else a field of the trial, or another group, comes first
        texts = [_text(key, kind, value) for value in columns[key].listed()]
        for text in set(texts):
            rule = f"{head if named else f'`{key}`'} == {text}"
            expected = [_comparable(one) == _comparable(text) for one in texts]
            assert matching(rule, columns, count, shown).tolist() == expected, rule
            if text != "–" and kind is Kind.NUMBER:  # and a value is either less, or this, or more
                less, more = (matching(rule.replace("==", sign, 1), columns, count, shown) for sign in "<>")
                present = [one != "–" for one in texts]
                assert (less.astype(int) + more + expected).tolist() == present, rule


def _text(key: str, kind: Kind | None, value: Any) -> str:
    """As a table shows it (`table-cells.js`)."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return ("yes" if value else "no") if kind is Kind.BOOLEAN else str(value).lower()
    if kind is Kind.TIME:
        return f"{datetime.fromtimestamp(value, _ZONE):%Y-%m-%d %H:%M:%S}"
    return table_number(key, value).replace("-", "−", 1) if isinstance(value, int | float) else str(value)


def _comparable(text: str) -> Any:
    """What one reads in it: 1.50k is 1500, and 1 is 1.0."""
    with contextlib.suppress(FilterError):
        token = token_at(text, 0)
        if token.kind == "number" and token.end == len(text):
            return token.value
    return text


_NUMBERS = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True), st.integers(-5, 5).map(float))
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}


@given(st.lists(_NUMBERS, min_size=1, max_size=20), st.sampled_from(sorted(_SIGNS)), st.floats(-1e300, 1e300))
def test_numbers_compare_as_in_python(values: list[float | None], sign: str, constant: float) -> None:
    columns = {"x": column_of(values, Kind.NUMBER)}
    expected = [value is not None and _SIGNS[sign](value, constant) for value in values]
    assert matching(f"x {sign} {constant!r}", columns, len(values)).tolist() == expected
    assert matching(f"not x {sign} {constant!r}", columns, len(values)).tolist() == [not one for one in expected]


@given(st.text(max_size=60))
def test_any_text_is_understood_or_refused_in_one_line(text: str) -> None:
    try:
        mask = matching(text, {**COLUMNS, **FURTHER}, 6, SHOWN)
    except FilterError as error:
        assert 0 <= error.position <= len(text)
    else:
        assert mask.shape == (6,) and mask.dtype == np.bool_


@given(st.text(min_size=1, max_size=12).filter(lambda name: "`" not in name and name.strip() == name))
def test_the_name_that_is_offered_for_a_column_means_it(name: str) -> None:
    columns = {"score": column_of([1.0, 2.0]), f"params.{name}": column_of([1.0, 3.0])}
    offered = names(columns)[1]
    assert matching(f"{offered} > 2", columns, 2).tolist() == [False, True]
