"""Limits on metrics: how they are read, and which values keep them."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protein.errors import UsageError
from protein.types import Limit, broken, parse_limits, unreported

NAMES = st.text(st.characters(exclude_characters="<>=≤≥!", exclude_categories=("C", "Z")), min_size=1, max_size=12)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


def parsed(text: Any) -> list[str]:
    found = parse_limits(text, "--require")
    assert found is not None
    return [str(limit) for limit in found]


@given(NAMES, st.sampled_from(["<=", ">=", "<", ">"]), st.floats(-1e9, 1e9).map(lambda x: float(f"{x:.12g}")), NUMBERS)
def test_a_limit_reads_back_as_its_text_and_holds_as_its_sign_says(
    name: str, sign: str, bound: float, value: float
) -> None:
    try:
        float(name)
    except ValueError:
        if name in ("score", "steps", "cost_seconds"):
            return
    else:
        return  # a number is no name
    limit = Limit(name, sign, bound)
    assert parse_limits(str(limit), "--require") == (limit,)
    holds = {"<=": value <= bound, ">=": value >= bound, "<": value < bound, ">": value > bound}[sign]
    assert limit.holds(value) == holds and (broken([limit], {name: value}) == []) == holds
    assert broken([limit], {}) == [], "nothing is known"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("memory_gb<=8", ["memory_gb <= 8"]),
        (["eval/latency ms < 2.5e1"], ["eval/latency ms < 25"]),
        ("8 >= gb", ["gb <= 8"]),
        ("1 < gb ≤ 8 and ms <= 3", ["gb > 1", "gb <= 8", "ms <= 3"]),
        ({"gb": "<= 8", "acc": ">= 0.5"}, ["gb <= 8", "acc >= 0.5"]),
        (["gb <= 8", "gb <= 8"], ["gb <= 8"]),
        ("none", []),
        ([], []),
    ],
)
def test_how_limits_may_be_written(text: Any, found: list[str]) -> None:
    assert parsed(text) == found


def test_without_limits_nothing_is_said_of_them() -> None:
    assert parse_limits(None, "--require") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("memory_gb", "--require 'memory_gb' is no limit; write a metric's name"),
        ("memory_gb <=", "--require 'memory_gb <=' is no limit"),
        ("<= 8", "--require '<= 8' is no limit"),
        ("gb <= 8GB", "'8GB' is no number (without a unit)"),
        ("gb <= ms", "'ms' is no number"),
        ("gb == 8", "has ==, which is no limit"),
        ("gb = 8", "has =, which is no limit"),
        ("gb <= nan", "nan is no finite number"),
        ("gb <= inf", "inf is no finite number"),
        ("3 <= 8", "is no limit on one metric"),
        ("1 <= gb >= 8", "is no limit on one metric"),
        ("", "--require '' is no limit"),
        ("score >= 20", "score cannot be limited: the score is what is searched for"),
        ("cost_seconds <= 60", "cost_seconds cannot be limited: --max-trial-cost is the cap"),
        (["gb <= 8", "gb >= 9"], "no value keeps both 'gb <= 8' and 'gb >= 9'"),
        (["gb < 8", "gb >= 8"], "no value keeps both"),
        (8, "--require must be texts such as 'memory_gb <= 8', got 8"),
        ([8], "--require must be texts"),
        ({"gb": 8}, "--require 'gb 8' is no limit"),
    ],
)
def test_what_is_no_limit_is_refused_in_one_line(text: Any, message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_limits(text, "--require")
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_metric_that_nobody_reported_is_told_with_those_that_exist() -> None:
    limits = [Limit("memory_gb", "<=", 8.0), Limit("ms", "<=", 3.0)]
    assert unreported(limits, [{"memory_gb": math.pi, "ms": 1.0}]) == ""
    line = unreported(limits, [{"mem_gb": 1.0}, {"ms": 2.0}])
    assert line == "no trial reported memory_gb, so nothing is known of 'memory_gb <= 8'; did you mean 'mem_gb'?"
    assert "report metrics, as in report(step, score, metrics={'memory_gb': 5.1})" in unreported(limits, [])
