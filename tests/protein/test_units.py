"""Durations and sizes: what parses, what is refused and how, and that what is printed parses back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protein.errors import UsageError
from protein.units import format_at_least, format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("2h", 7200),
        ("1d", 86400),
        ("1h30m", 5400),
        ("1d2h3m4s", 93784),
        ("2d12h", 216000),  # days are not dropped
        ("0.5s", 0.5),
        ("1.5h", 5400),
        (" 10M ", 600),
        ("100m", 6000),
        ("10min", 600),
        ("1 h", 3600),
        ("2 Hours", 7200),
        ("1 day 1 hr 30 minutes 5 secs", 91805),
        ("1e3s", 1000),
        (".5h", 1800),
    ],
)
def test_a_duration_is_the_sum_of_its_parts(text: str, seconds: float) -> None:
    assert parse_duration(text, "--max-cost") == seconds


@pytest.mark.parametrize(
    "text",
    ["", "10x", "-m", "+5m", "m", "1m1h", "1h1h", "5ms", "nan", "infs", "1h30", "min", "1:30", "10 months", "٣s x"],
)
def test_what_is_no_duration_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_duration(text, "--max-cost")
    assert str(caught.value) == f"--max-cost '{text}' is not a duration; write it like 90s, 15m, 2h, 1d or 1h30m"


@pytest.mark.parametrize("text", ["10", "2.5", "1e3"])
def test_a_number_without_a_unit_is_asked_for_one(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_duration(text, "--max-cost")
    assert str(caught.value) == f"--max-cost '{text}' has no unit; write {text}s, {text}m or {text}h"


@pytest.mark.parametrize("text", ["0s", "0h0m", "0.0s", "0", "0.0", "-5m", "-5s", "-5", "-1h30m"])
def test_a_duration_that_is_not_above_0_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=rf"^--under '{text}' must be above 0; write it like 90s"):
        parse_duration(text, "--under")


def test_a_duration_of_more_than_ten_years_is_refused() -> None:
    assert parse_duration("3650d", "--max-cost") == 3650 * 86400
    with pytest.raises(UsageError, match=r"^--max-cost '3651d' is longer than the limit of 3650d; give a shorter one$"):
        parse_duration("3651d", "--max-cost")
    with pytest.raises(UsageError, match="longer than the limit"):
        parse_duration("9" * 400 + "d", "--max-cost")
    with pytest.raises(UsageError, match="'1e9h' is longer than the limit of 3650d"):
        parse_duration("1e9h", "--max-cost")


@given(st.integers(min_value=1, max_value=3650 * 86400 * 1000))
def test_a_formatted_duration_parses_back(thousandths: int) -> None:
    seconds = thousandths / 1000
    assert parse_duration(format_duration(seconds), "") == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(600, "10m"), (5400, "1h30m"), (90061.5, "1d1h1m1.5s"), (0.25, "0.25s"), (59.9996, "1m"), (0, "0s")],
)
def test_a_duration_is_formatted_without_parts_of_0(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4GiB", 4 << 30),
        ("512MiB", 512 << 20),
        ("4GB", 4 * 10**9),
        ("1.5 kib", 1536),
        ("7B", 7),
        ("2TiB", 2 << 40),
        ("4G", 4 << 30),
    ],
)
def test_a_size_is_in_bytes(text: str, size: int) -> None:
    assert parse_size(text, "--max-trial-memory") == size


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "4Gi", "4 G iB", "1e3MB"])
def test_what_is_no_size_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_size(text, "--max-trial-memory")
    assert str(caught.value) == f"--max-trial-memory '{text}' is not a size; write it like 512MiB or 4GiB"


def test_a_size_without_a_unit_is_asked_for_one() -> None:
    with pytest.raises(UsageError, match=r"^--max-trial-memory '4' has no unit; write 4MiB or 4GiB$"):
        parse_size("4", "--max-trial-memory")


def test_a_size_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="must be more than 0"):
        parse_size("0.1B", "--max-trial-memory")


def test_a_size_without_end_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^--max-trial-memory '9{20}\.\.\.' is larger than any memory; write it"):
        parse_size(400 * "9" + "B", "--max-trial-memory")


def test_sizes_are_shown_in_the_unit_that_fits() -> None:
    assert [format_size(size) for size in (512, 4 << 30, 1536, 5 << 50)] == ["512 B", "4 GiB", "1.5 KiB", "5120 TiB"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0001, "0.001s"), (0.0203, "0.021s"), (9.99, "9.99s"), (153.2, "2m34s"), (7200.0, "2h"), (16_100.0, "4h29m")],
)
def test_what_is_needed_at_least_is_rounded_up_to_what_reads_easily(seconds: float, text: str) -> None:
    assert format_at_least(seconds) == text
    assert parse_duration(text, "--max-cost") >= seconds
