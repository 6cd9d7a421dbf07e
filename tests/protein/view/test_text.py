"""Numbers, curves and the text plot: short, never broken by an odd input."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_trials import curve, failed, many, running, trial

from protein.direction import shown_estimate
from protein.space.parameters import Categorical, Float, Integer, Parameter
from protein.types import Direction, Estimate, Measurement, TrialState
from protein.view import scatter, text


def test_a_trial_that_continues_another_is_named_behind_it() -> None:
    leg = dataclasses.replace(trial(31, 30.0, 9.0), continues=12, continued_seconds=10.0)
    assert (text.trial_name(trial(12, 10.0, 8.0)), text.trial_name(leg)) == ("12", "12 -> 31")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (math.inf, "-"),
        (0.0, "0.00s"),
        (0.0014, "0.0014s"),
        (0.00137, "0.0014s"),
        (0.0000021, "0.0000021s"),
        (3e-9, "3e-09s"),
        (0.00996, "0.010s"),
        (0.0994, "0.099s"),
        (0.0996, "0.10s"),
        (0.42, "0.42s"),
        (9.994, "9.99s"),
        (9.996, "10.0s"),
        (59.94, "59.9s"),
        (59.96, "1m00s"),
        (3599.4, "59m59s"),
        (3599.6, "1h00m"),
        (86399.0, "1d00h"),
        (90000.0, "1d01h"),
        (1e7, "115d18h"),
    ],
)
def test_seconds_are_shown_in_two_units_at_most_and_with_two_digits_where_they_are_few(
    value: float | None, shown: str
) -> None:
    assert text.seconds(value) == shown


def test_no_prediction_of_a_sweep_that_minimises_is_a_negative_zero() -> None:
    shown = shown_estimate(Estimate(value=0.0, low=0.0, high=0.5), Direction.MINIMIZE)
    assert text.prediction(shown) == "0.000 (-0.500 to 0.000)"


def test_an_interval_without_width_promises_nothing() -> None:
    assert text.estimate(Estimate(value=20.61, low=20.0, high=21.0)) == "20.61 (20.00 to 21.00)"
    assert text.estimate(Estimate(value=20.61, low=20.61, high=20.61)) == "20.61 (no spread seen)"


def test_an_interval_keeps_to_the_scores_that_are_possible() -> None:
    wide = Estimate(value=15.76, low=-54.8, high=26.9)
    assert text.estimate(text.within(wide, (-21.0, 21.0))) == "15.76 (-21.00 to 21.00)"
    assert text.estimate(wide) == "15.76 (-54.80 to 26.90)"
    assert text.within(Estimate(value=22.0, low=20.0, high=30.0), (-21.0, 21.0)) == Estimate(
        value=21.0, low=20.0, high=21.0
    )
    guessed = dataclasses.replace(trial(3, 31.5, 9.5, predicted=True), predicted_score=wide)
    line = text.outcome_line(text.clipped(guessed, (-21.0, 21.0)))
    assert "predicted 15.76 (-21.00 to 21.00), off by -6.260 (0.2 sd)" in line


def test_a_difference_is_from_the_prediction_that_is_shown() -> None:
    high = Estimate(value=21.4, low=15.89, high=23.0)
    guessed = text.clipped(dataclasses.replace(trial(47, 30.0, 18.69), predicted_score=high), (-21.0, 21.0))
    assert guessed.predicted_score == Estimate(value=21.0, low=15.89, high=21.0)
    assert "score 18.69, predicted 21.00 (15.89 to 21.00), off by -2.31 (0.6 sd), in" in text.outcome_line(guessed)
    above = Estimate(value=22.0, low=21.5, high=23.0)
    guessed = text.clipped(dataclasses.replace(guessed, predicted_score=above), (-21.0, 21.0))
    assert "predicted 21.00 (21.00 to 21.00), off by -2.31, in" in text.outcome_line(guessed)  # no interval is left
    assert text.clipped(trial(1, 1.0, 1.0), (-21.0, 21.0)).predicted_score is None


def test_a_cost_as_predicted_is_off_by_0() -> None:
    near = dataclasses.replace(trial(3, 29.9, 9.5, predicted=True))
    assert text.cost_error(near).startswith("0 % (")


def test_losses_and_accuracies_have_three_decimals() -> None:
    assert [text.score(value) for value in (1.9344, -1.9344, 0.5, 12.3456)] == ["1.934", "-1.934", "0.500", "12.35"]
    assert [text.score(0.25, like=like) for like in (1.9, -1.9, 12.3)] == ["0.250", "0.250", "0.25"]
    guess = Estimate(value=-2.05, low=-2.2, high=-1.95)
    missed = dataclasses.replace(trial(1, 30.0, -1.9), predicted_score=guess)
    assert text.score_error(missed).startswith("+0.150 (")


def test_numbers_are_short() -> None:
    assert [text.score(x) for x in (None, 0.0, -21.0, 18.246, 0.0312345, 123456.7)] == [
        "-",
        "0.000",
        "-21.00",
        "18.25",
        "0.0312",
        "123457",
    ]
    assert [text.count(x) for x in (0, 999, 12_345, 999_999, 5_200_000, 3_000_000_000_000)] == [
        "0",
        "999",
        "12.3k",
        "1M",
        "5.2M",
        "3e+03G",
    ]
    assert [text.param(x) for x in (True, 5_000_000, 0.001234567, "adam")] == [
        "True",
        "5,000,000",
        "0.00123457",
        "adam",
    ]
    assert text.shorten("abcdef", 4) == "abc…"
    assert text.shorten("abcd", 4) == "abcd"


def test_a_sparkline_shows_a_rise() -> None:
    line = text.sparkline(curve(10.0, 60.0), 8)
    assert len(line) == 8
    assert list(line) == sorted(line)
    assert (line[0], line[-1]) == ("▁", "█")


def test_a_sparkline_spreads_time_evenly_and_fills_gaps() -> None:
    points = [
        Measurement(steps=i, elapsed_seconds=seconds, score=score)
        for i, (seconds, score) in enumerate([(0.0, 0.0), (1.0, 0.0), (99.0, 1.0), (100.0, 1.0)])
    ]
    assert text.sparkline(points, 4) == "▁▁▁█"


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.none() | st.floats(-1e9, 1e9)), max_size=40),
    st.integers(min_value=-1, max_value=30),
)
def test_any_curve_fits(points: list[tuple[float, float | None]], width: int) -> None:
    made = [
        Measurement(steps=0, elapsed_seconds=when, score=score) for when, score in sorted(points, key=lambda p: p[0])
    ]
    line = text.sparkline(made, width)
    assert len(line) <= max(width, 0)
    assert (line == "") == (width < 1 or all(score is None for _, score in points))


def test_a_flat_curve_is_drawn_low() -> None:
    flat = [Measurement(steps=i, elapsed_seconds=float(i), score=3.0) for i in range(5)]
    assert text.sparkline(flat, 5) == "▁▁▁▁▁"


def test_an_outcome_is_one_line_with_prediction_against_reality() -> None:
    assert text.outcome_line(trial(3, 31.5, 9.5, predicted=True)) == (
        "trial 3: score 9.500, predicted 10.00 (8.000 to 11.50), off by -0.500 (0.3 sd), in 31.5s, predicted 30.0s, off"
        " by +5 % (0.2 sd); improving the front near 30 s"
    )
    assert text.outcome_line(trial(0, 31.5, 9.5)) == "trial 0: score 9.500 in 31.5s; initial config"
    odd = dataclasses.replace(trial(0, 31.5, 9.5), reason="after its result: killed by SIGSEGV")
    assert text.outcome_line(odd, is_brief=True) == f"trial 0: score 9.500 in 31.5s, {odd.reason}"
    stopped = trial(4, 60.0, 5.0, state=TrialState.PRUNED, reason="stopped at its cost cap")
    assert "in 1m00s, stopped at its cost cap;" in text.outcome_line(stopped)
    early = trial(4, 60.0, 5.0, state=TrialState.PRUNED, reason="stopped early: last of 20")
    assert "in 1m00s, stopped early: last of 20;" in text.outcome_line(early)
    assert text.outcome_line(failed(5, 2.0, "diverged:\n  nan")).startswith(
        "trial 5: failed after 2.00s: diverged: nan;"
    )
    assert text.outcome_line(failed(6, 2.0, "interrupted")).startswith("trial 6: interrupted after 2.00s;")


def test_the_plot_without_a_score_says_so() -> None:
    for trials in ([], [running(0)], [failed(0, 3.0)]):
        assert scatter.scatter(trials, 60, 12) == ["no trial has a score yet"]


@pytest.mark.parametrize("width", [1, 24, 40, 80, 200])
@pytest.mark.parametrize("height", [1, 6, 16])
@pytest.mark.parametrize("num_trials", [1, 2, 40, 400])
def test_the_plot_keeps_to_its_room(width: int, height: int, num_trials: int) -> None:
    lines = scatter.scatter(many(num_trials), width, height)
    assert len(lines) == max(height, scatter.MIN_HEIGHT)
    assert max(map(len, lines)) <= max(width, scatter.MIN_WIDTH)
    assert sum(line.count("★") for line in lines) == 1


def test_an_excluded_trial_does_not_stretch_the_plot() -> None:
    trials = many(30)
    absurd = dataclasses.replace(trial(30, 5.0, 1e9), excluded=True)
    assert scatter.scatter([*trials, absurd], 80, 18) == scatter.scatter(trials, 80, 18)


def test_the_plot_marks_the_front_the_failures_and_those_stopped_early() -> None:
    trials = [trial(0, 10.0, 0.0), trial(1, 20.0, 5.0), trial(2, 30.0, 4.0), trial(3, 40.0, 10.0), failed(4, 15.0)]
    trials.append(trial(5, 40.0, 2.0, state=TrialState.PRUNED))
    lines = scatter.scatter(trials, 60, 14)
    drawn = "\n".join(lines)
    assert [drawn.count(mark) for mark in "★●·○×"] == [1, 2, 1, 1, 1]
    assert lines[0].split()[0] == "10"
    assert lines[-3].split()[0] == "0"
    assert "★" in lines[0]
    assert "×" in lines[-2]
    assert all(label in lines[-1] for label in ("10s", "20s", "30s"))


@given(
    st.lists(st.tuples(st.floats(0, 1e8), st.floats(-1e12, 1e12)), min_size=1, max_size=20),
    st.integers(10, 120),
    st.integers(3, 30),
)
def test_any_scores_and_costs_can_be_plotted(points: list[tuple[float, float]], width: int, height: int) -> None:
    lines = scatter.scatter([trial(i, cost, score) for i, (cost, score) in enumerate(points)], width, height)
    assert sum(line.count("★") for line in lines) == 1
    assert len(lines) == max(height, scatter.MIN_HEIGHT)


@given(st.floats(1e-3, 1e8), st.floats(2.0, 1e9))
def test_a_cost_axis_has_labels(low: float, factor: float) -> None:
    ticks = scatter.cost_ticks(low, low * factor)
    assert len(ticks) >= 2
    assert all(low <= tick <= low * factor for tick in ticks)
    assert ticks == sorted(set(ticks))


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (5e5, 5e6, ["10d", "20d", "30d", "40d", "50d"]),
        (1500.0, 3000.0, ["30m", "40m", "50m"]),
        (9000.0, 18000.0, ["3h", "4h", "5h"]),
        (0.0, 0.0, ["0.001s"]),  # no label twice
    ],
)
def test_a_narrow_cost_axis_has_round_labels(low: float, high: float, labels: list[str]) -> None:
    lines = scatter.scatter([trial(0, low, 0.0), trial(1, high, 1.0)], 70, 8)
    assert lines[-1].split() == labels


@pytest.mark.parametrize(
    ("value", "span", "label"),
    [
        (0.123456, 1.0, "0.1"),
        (0.123456, 0.5, "0.12"),
        (4.63e-12, 4.0e-12, "4.6e-12"),
        (-4.63e-12, 4.0e-12, "-4.6e-12"),
        (9.15e-13, 1.0e-11, "9e-13"),
        (1.0e-20, 4.0e-12, "0"),
        (0.5, 1.0e-12, "0.500000000"),
        (4.63e12, 1.0e12, "4.63e+12"),
    ],
)
def test_a_score_on_an_axis_has_the_digits_that_its_span_resolves(value: float, span: float, label: str) -> None:
    assert scatter.score_label(value, span) == label


@pytest.mark.parametrize(
    ("parameter", "shown"),
    [
        (Float("lr", 1e-4, 0.1, "log", when="opt == 'sgd'"), "lr 0.0001 to 0.1 (log, when opt == 'sgd')"),
        (Integer("n", 1, 8, belief=(4, 2), when="x"), "n 1 to 8 (whole, believed 4, when x)"),
        (Float("x", 0.0, 1.0), "x 0 to 1"),
        (Categorical("hidden", [None, [64, 64], "a"], when="x"), "hidden (null [64, 64] a, when x)"),
        (Categorical("mixed", [None, "null", True]), "mixed (None 'null' True)"),
    ],
)
def test_what_is_searched_in_a_line(parameter: Parameter, shown: str) -> None:
    assert text.searched(parameter) == shown
