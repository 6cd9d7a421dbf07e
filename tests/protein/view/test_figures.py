"""Pictures of sweeps: what stands where in the figures, the files, and what is refused. One test draws real stores."""

import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.collections import FillBetweenPolyCollection, LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from sample_trials import curve, failed, fill_store, many, running, store_url, sweep_record, trial

from protein import plots
from protein.analysis.importance import Importance
from protein.direction import shown_contender
from protein.engine.results import Contender
from protein.errors import UsageError
from protein.space import Categorical, Float, Integer, Space
from protein.types import Direction, Estimate, Params, SweepRecord, TrialRecord, TrialState
from protein.units import format_duration
from protein.view.figures import style
from protein.view.figures.curves import MAX_BEHIND, MAX_CURVES, curves, extremes, needed, thin
from protein.view.figures.front import front
from protein.view.figures.parameters import MAX_PARAMS, importance, parallel
from protein.view.figures.style import coordinates

SPACE = Space([Float("lr", 1e-4, 1.0, scale="log"), Integer("layers", 1, 4), Categorical("act", ["relu", "tanh"])])


def sweep(
    name: str = "pong", *, direction: Direction = Direction.MAXIMIZE, env: str = "pong", space: Space | None = None
) -> SweepRecord:
    record = sweep_record(name)
    stored = {} if space is None else space.to_dict()
    spec = dataclasses.replace(record.spec, direction=direction, env=env, space=stored)
    return dataclasses.replace(record, spec=spec)


def points(axes: Axes, label: str) -> list[tuple[float, float]]:
    """The points of the scatter whose label begins so."""
    [found] = [one for one in axes.collections if str(one.get_label()).startswith(label)]
    return [(float(x), float(y)) for x, y in np.asarray(found.get_offsets())]


def the_axes(figure: Figure) -> Axes:
    return figure.axes[0]


def test_the_front_shows_every_trial_and_the_staircase() -> None:
    records = [trial(0, 10.0, 5.0), trial(1, 40.0, 18.0), trial(2, 60.0, 7.0), failed(3, 20.0), running(4)]
    records.append(trial(5, 30.0, 15.0, state=TrialState.PRUNED, reason="stopped at its cost cap"))
    axes = the_axes(front([(sweep(), records)]))
    assert points(axes, "complete (3)") == [(10, 5), (40, 18), (60, 7)]
    assert points(axes, "cut short (1)") == [(30, 15)]
    assert points(axes, "measured front (2)") == [(10, 5), (40, 18)]
    assert [x for x, _ in points(axes, "failed (1)")] == [20]
    [stairs] = axes.lines
    assert np.asarray(stairs.get_ydata()).tolist() == [5, 18, 18]
    assert axes.get_xscale() == "log"
    assert axes.get_title(loc="left") == "pong: 5 trials, 2m43s of training"
    assert the_axes(front([(sweep(), records[:1])])).get_title(loc="left") == "pong: 1 trial, 10.0s of training"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["10s", "20s", "30s", "1m"]


def test_where_lower_is_better_the_best_is_at_the_top_with_its_own_sign() -> None:
    records = [trial(0, 10.0, -5.0), trial(1, 40.0, -1.0), trial(2, 60.0, -3.0)]  # as stored
    axes = the_axes(front([(sweep(direction=Direction.MINIMIZE), records)]))
    assert points(axes, "measured front (2)") == [(10, 5), (40, 1)]
    worst, best = axes.get_ylim()
    assert worst > 5 > 1 > best
    assert axes.get_ylabel() == "score (lower is better)"


def test_the_front_and_its_trials_stand_on_one_clock() -> None:
    """At their costs without other programs, as the expected front; a tail reaches to what was measured."""
    records = [trial(0, 10.0, 5.0), trial(1, 40.0, 18.0), trial(2, 60.0, 7.0), failed(3, 20.0)]
    for number, waited in ((1, 30.0), (3, 10.0)):
        timings = {"wall": records[number].cost_seconds, "waited": waited}
        records[number] = dataclasses.replace(records[number], timings=timings)
    leg = dataclasses.replace(trial(4, 20.0, 19.0), continues=1, continued_seconds=40.0)  # it has waited there, too
    axes = the_axes(front([(sweep(), [*records, leg])]))
    assert points(axes, "complete (4)") == [(10, 5), (10, 18), (60, 7), (30, 19)]
    assert points(axes, "measured front (2)") == [(10, 18), (30, 19)]
    assert [x for x, _ in points(axes, "failed (1)")] == [10]
    [tails] = [one for one in axes.collections if one.get_label() == "_tails"]
    assert [np.asarray(path.vertices).tolist() for path in tails.get_paths()] == [
        [[10, 18], [40, 18]],
        [[30, 19], [60, 19]],
    ]
    assert "without other programs; tails: as measured" in axes.get_xlabel()
    assert axes.get_xlim()[1] > 60
    assert the_axes(front([(sweep(), [trial(0, 10.0, 5.0)])])).get_xlabel() == "cost: time of training (log scale)"


def test_a_few_scores_far_below_leave_room_for_the_others() -> None:
    records = [trial(i, 1.0 + i, 10.0 + i / 10) for i in range(30)]
    records += [trial(30, 2.5, -1e9), trial(31, 4.5, -1e12)]
    axes = the_axes(front([(sweep(), records)]))
    low, high = axes.get_ylim()
    assert 0 < low < 10 and 12.9 < high < 20
    assert len(points(axes, "complete (32)")) == 30
    edges = [one for one in axes.collections if str(one.get_label()).startswith("_")]
    assert sorted(float(x) for one in edges for x, _ in np.asarray(one.get_offsets())) == [2.5, 4.5]


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=30))
def test_an_axis_of_scores_has_room_for_nine_tenths_and_the_best(scores: list[float]) -> None:
    low, high = style.score_bounds(scores)
    assert low < high or not math.isfinite(high - low)
    assert max(scores) <= high
    assert sum(score >= low for score in scores) >= math.floor(0.9 * len(scores))


def test_several_sweeps_share_a_panel_where_they_share_an_environment() -> None:
    records = [(sweep("a"), many(20)), (sweep("b"), many(30)), (sweep("$c$", env="maze"), many(10))]
    figure = front(records)
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in shown] == ["pong", "maze"]
    legends = [axes.get_legend() for axes in shown]
    named = [[text.get_text() for text in legend.get_texts()] for legend in legends if legend is not None]
    assert named == [["a (20 trials, 3 failed)", "b (30 trials, 4 failed)"], [r"\$c\$ (10 trials, 1 failed)"]]
    assert len({style.ink(i) for i in range(30)}) == 30


def test_sweeps_of_two_directions_share_no_picture() -> None:
    sweeps = [(sweep("a"), many(9)), (sweep("b", direction=Direction.MINIMIZE), many(9))]
    for draw in (front, curves, parallel):
        with pytest.raises(UsageError, match="sweep 'a' is to maximize and sweep 'b' to minimize"):
            draw(sweeps)


def contender(one: TrialRecord) -> Contender:
    assert one.score is not None
    return Contender(
        params=one.params,
        score=Estimate(value=one.score, low=one.score - 1.0, high=one.score + 2.0),
        expected_cost_seconds=one.cost_seconds,
        trials=(one.number,),
        measured=(one.score,),
        basis="test",
    )


def marks(**trials: TrialRecord) -> dict[str, tuple[int, Contender]]:
    return {name: (one.number, contender(one)) for name, one in trials.items()}


def test_names_in_the_front_stand_within_its_axes() -> None:
    records = [trial(0, 1.0, 19.0), trial(1, 4.0, 19.2), trial(2, 20.0, 20.0)]
    without = front([(sweep(), records)])
    assert not the_axes(without).texts
    drawn = [front([(sweep(), records)], marks=marks(best=records[2], knee=records[0]))]
    assert [name.get_text() for name in the_axes(drawn[0]).texts] == ["best", "knee"]
    for position in range(0, 11, 2):  # of the knee along the cost axis
        records = [trial(0, 1.0, 10.0), trial(1, 100 ** (position / 10) * 1.01, 15.0), trial(2, 100.0, 20.0)]
        drawn.append(front([(sweep(), records)], marks=marks(best=records[2], knee=records[1])))
        drawn.append(front([(sweep(), records[:2])], marks=marks(best=records[1])))
    for figure in drawn:
        figure.draw_without_rendering()
        axes = the_axes(figure)
        for name in axes.texts:
            area, extent = axes.bbox, name.get_window_extent()
            assert area.x0 + 2 < extent.x0 < extent.x1 < area.x1 + 2 and area.y0 < extent.y0 < extent.y1 < area.y1


@pytest.mark.parametrize("direction", list(Direction))
def test_the_front_shows_the_expected_one_with_its_interval(direction: Direction) -> None:
    records = [trial(0, 1.0, 10.0), trial(1, 10.0, 15.0)]  # as they are stored
    expected = [shown_contender(contender(one), direction) for one in records]
    axes = the_axes(front([(sweep(direction=direction), records)], expected=expected))
    [line] = [line for line in axes.lines if str(line.get_label()).startswith("expected front")]
    sign = 1 if direction is Direction.MAXIMIZE else -1
    assert np.asarray(line.get_ydata()).tolist() == [sign * 10.0, sign * 15.0, sign * 15.0]
    assert np.asarray(line.get_xdata()).tolist()[:2] == [1.0, 10.0]
    [band] = [one for one in axes.collections if isinstance(one, FillBetweenPolyCollection)]
    heights = sign * np.asarray(band.get_paths()[0].vertices)[:, 1]
    assert heights.min() == 9.0 and heights.max() == 17.0


def test_excluded_trials_are_shown_as_such_and_not_on_the_front() -> None:
    records = [trial(0, 10.0, 5.0), dataclasses.replace(trial(1, 40.0, 18.0), excluded=True), trial(2, 60.0, 7.0)]
    axes = the_axes(front([(sweep(), records)]))
    assert points(axes, "excluded (1)") == [(40, 18)]
    assert points(axes, "complete (2)") == points(axes, "measured front (2)") == [(10, 5), (60, 7)]


def test_an_excluded_trial_does_not_stretch_a_picture_of_several_sweeps() -> None:
    one, other = [trial(0, 10.0, 5.0), trial(1, 60.0, 7.0)], [trial(0, 20.0, 6.0), trial(1, 30.0, 6.5)]
    absurd = dataclasses.replace(trial(2, 40.0, 1e9), excluded=True)
    heights = [
        the_axes(front([(sweep_record("a"), trials), (sweep_record("b"), other)])).get_ylim()
        for trials in (one, [*one, absurd])
    ]
    assert heights[0] == heights[1]


def lines(axes: Axes, color: str | None = None) -> list[Any]:
    found = [line for line in axes.lines if len(np.asarray(line.get_xdata())) > 1]
    return [line for line in found if color is None or line.get_color() == color]


def test_curves_stand_out_where_they_are_of_the_front() -> None:
    records = [trial(0, 10.0, 5.0), trial(1, 40.0, 18.0), trial(2, 60.0, 7.0)]
    figure = curves([(sweep(), records)])
    axes = the_axes(figure)
    behind = lines(axes, style.OTHER_COLOR)
    assert [np.asarray(line.get_xdata())[-1] for line in behind] == [60]
    [legend] = figure.legends
    assert [name.get_text() for name in legend.get_texts()] == ["0: 5.000 in 10.0s", "1: 18.00 in 40.0s"]
    asked = curves([(sweep(), records)], trials=[2])
    assert [name.get_text() for name in asked.legends[0].get_texts()] == ["2: 7.000 in 1m00s"]
    with pytest.raises(UsageError, match="sweep 'pong' has no trial 9; it has 3, from 0 to 2"):
        curves([(sweep(), records)], trials=[1, 9])


def test_curves_are_drawn_before_a_trial_is_on_the_front() -> None:
    axes = curves([(sweep_record(), [running(0), failed(1, 4.0)])]).axes[0]
    assert len(axes.lines) == 2
    assert axes.get_legend_handles_labels()[1] == []


def test_at_most_twelve_curves_have_a_color() -> None:
    records = [trial(i, 1.0 + i, float(i)) for i in range(40)]
    axes = the_axes(curves([(sweep(), records)]))
    assert len(lines(axes)) - len(lines(axes, style.OTHER_COLOR)) == MAX_CURVES
    assert len(lines(axes, style.OTHER_COLOR)) == 28


def test_a_point_alone_is_drawn_as_such() -> None:
    """A trial that runs, or one behind the front, has one point at first: a line of one point cannot be seen."""
    short = [dataclasses.replace(one, curve=one.curve[-1:]) for one in (running(0), trial(1, 60.0, 5.0))]
    for records in (short[:1], [*short, trial(2, 10.0, 18.0)]):
        axes = the_axes(curves([(sweep(), records)]))
        alone = [line for line in axes.lines if len(np.asarray(line.get_xdata())) == 1]
        assert alone and all(line.get_marker() not in ("", "None") for line in alone)


def test_means_of_curves_by_sweep_and_by_value() -> None:
    records = [
        dataclasses.replace(one, params={"lr": 10.0**-i, "act": ["relu", "tanh"][i % 2], "layers": 1})
        for i, one in enumerate(many(12))
    ]
    subject = (sweep(space=SPACE), records)

    def drawn(figure: Figure) -> list[str]:
        [legend] = figure.legends
        bands = [one for one in the_axes(figure).collections if isinstance(one, FillBetweenPolyCollection)]
        assert len(bands) == len(legend.get_texts())
        return [words.get_text() for words in legend.get_texts()]

    number = sum(bool(one.curve) for one in records)
    assert drawn(curves([subject], mean=True)) == [f"pong ({number} curves)"]
    assert drawn(curves([subject], mean=True, trials=[1, 2])) == ["pong (2 curves)"]
    assert len(drawn(curves([subject, (sweep("b"), many(5))], mean=True))) == 2
    named = drawn(curves([subject], by="act", mean=True))
    assert [name.split(" (")[0] for name in named] == ["act = relu", "act = tanh"]
    parts = drawn(curves([subject], by="lr", mean=True))
    assert len(parts) == 4 and parts[0].startswith("lr = 1e-11 to ")
    assert sum(int(name.split("(")[1].split()[0]) for name in parts) == number
    with pytest.raises(UsageError, match="no trial has a parameter 'lrr'; did you mean 'lr'"):
        curves([subject], by="lrr", mean=True)


def test_heads_of_parallel_coordinates_do_not_overlap() -> None:
    names = ["train.optimizer.a_very_long_name_of_a_parameter_indeed", "x", "y." * 20 + "end", "unbrokenname" * 4, "b"]
    records = [dataclasses.replace(one, params=dict.fromkeys(names, float(one.number))) for one in many(12)]
    figure = parallel([(sweep("n" * 200), records)])
    figure.draw_without_rendering()
    axes = the_axes(figure)
    heads = [words.get_window_extent() for words in axes.texts if words.get_fontsize() == 8.5]
    assert len(heads) == len(names) + 2
    assert all(one.x1 < other.x0 for one, other in itertools.pairwise(heads))
    title = axes._left_title.get_window_extent()  # type: ignore[attr-defined]
    assert title.x1 < figure.bbox.x1 and all(title.y0 > head.y1 for head in heads)


def test_axes_of_powers_of_two_and_of_time_have_round_ticks() -> None:
    space = Space([Integer("batch", 512, 65536, scale="pow2")])
    records = [dataclasses.replace(one, params={"batch": 2 ** (9 + i % 8)}) for i, one in enumerate(many(12))]
    assert [label for _, label in coordinates([(sweep(space=space), records)], "batch").ticks()] == [
        "512",
        "2048",
        "8192",
        "32768",
    ]
    for most in (0.02, 3.0, 60.0, 452.0, 3600.0, 1e5, 1e7):
        axes = style.new_figure(3, 3).add_subplot()
        style.clock_axis(axes, most)
        ticks = axes.get_xticks()
        assert 3 <= len(ticks) <= 7 and ticks[0] == 0 and ticks[-1] <= most
        steps = {format_duration(float(b - a)) for a, b in itertools.pairwise(ticks)}
        assert len(steps) == 1
    assert ticks[1] % 86400 == 0


def test_curves_run_over_what_is_asked_for() -> None:
    leg = dataclasses.replace(trial(0, 10.0, 5.0), continues=7, continued_seconds=90.0)
    ends = {"seconds": 100.0, "steps": 20_000.0, "fraction": 1.0}
    for x, end in ends.items():
        axes = the_axes(curves([(sweep(), [leg])], x=x))  # type: ignore[arg-type]
        assert np.asarray(lines(axes)[0].get_xdata())[-1] == pytest.approx(end)
    assert axes.get_xlabel() == "fraction of the trial's run"
    trained = dataclasses.replace(sweep(), spec=dataclasses.replace(sweep().spec, config={"train": {}}))
    said = [the_axes(curves([(one, [leg])], x="steps")).get_xlabel() for one in (sweep(), trained)]
    assert said == ["steps", "steps (decisions of one agent)"]  # those of a function may be epochs, or trees
    with pytest.raises(UsageError, match="x 'stps' is not known; did you mean 'steps'"):
        curves([(sweep(), [leg])], x="stps")  # type: ignore[arg-type]


def test_smoothing_is_a_mean_of_what_lies_before() -> None:
    record = dataclasses.replace(trial(0, 10.0, 5.0), curve=curve(10.0, 10.0))
    raw, smoothed = (
        np.asarray(lines(the_axes(curves([(sweep(), [record])], smooth=w)))[0].get_ydata()) for w in (0, 0.5)
    )
    weights = 0.5 ** np.arange(len(raw))[::-1]
    assert smoothed[0] == raw[0]
    assert smoothed[-1] == pytest.approx(np.average(raw, weights=weights))
    with pytest.raises(UsageError, match=r"smooth 1\.0 must be from 0 to below 1"):
        curves([(sweep(), [record])], smooth=1.0)


def test_curves_take_the_color_of_a_parameter() -> None:
    records = [
        dataclasses.replace(t, params={"lr": 10.0 ** -(i % 4), "act": ["relu", "tanh"][i % 2], "layers": 1})
        for i, t in enumerate(many(12))
    ]
    figure = curves([(sweep(space=SPACE), records)], by="act")
    assert {name.get_text() for name in figure.legends[0].get_texts()} == {"act = relu", "act = tanh"}
    figure = curves([(sweep(space=SPACE), records)], by="lr")
    assert figure.axes[1].get_ylabel() == "lr"
    assert [name.get_text() for name in figure.axes[1].get_yticklabels()] == ["0.0001", "0.01", "1"]
    with pytest.raises(UsageError, match="no trial has a parameter 'lrr'; did you mean 'lr'"):
        curves([(sweep(space=SPACE), records)], by="lrr")


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200), st.integers(4, 50))
def test_thinned_curves_keep_their_ends_and_extremes(values: list[float], most: int) -> None:
    kept = extremes(values, most)
    assert kept == sorted(set(kept)) and len(kept) <= max(most, 2) + 2
    assert {0, len(values) - 1} <= set(kept)
    assert min(values) == min(values[i] for i in kept) and max(values) == max(values[i] for i in kept)
    assert len(thin(values, most)) == min(len(values), most)


def test_parallel_coordinates_put_each_value_on_its_own_scale() -> None:
    params: list[Params] = [{"lr": 0.01, "layers": 4, "act": "tanh"}, {"lr": 1.0, "layers": 1, "act": "relu"}]
    records = [trial(0, 10.0, 5.0, params=params[0]), trial(1, 40.0, 18.0, params=params[1])]
    records.append(dataclasses.replace(failed(2, 20.0), params=params[1]))
    axes = the_axes(parallel([(sweep(space=SPACE), records)], params=["lr", "layers"]))
    paths = [
        np.asarray(path.vertices)[:, 1].tolist()
        for one in axes.collections
        if isinstance(one, LineCollection)
        for path in one.get_paths()
    ]
    [lost, worse, better] = paths
    assert worse == pytest.approx([0.5, 0.875, 0.0, 0.0])
    assert better == pytest.approx([1.0, 0.125, 1.0, 1.0])
    assert lost == pytest.approx([1.0, 0.125, 0.5, -0.09])
    words = [text.get_text() for text in axes.texts]
    assert {"lr", "layers", "cost", "score", "failed", "0.01", "18.00", "10.0s"} <= set(words)


def test_a_parameter_that_is_not_active_has_a_place_below_its_axis() -> None:
    params: list[Params] = [{"act": "tanh", "lr": 0.01}, {"act": "relu", "layers": None}, {"act": "relu"}]
    records = [trial(i, 10.0, 5.0 + i, params=one) for i, one in enumerate(params)]
    axes = the_axes(parallel([(sweep(space=SPACE), records)]))
    words = [text.get_text() for text in axes.texts]
    assert words.count("no value") == 2 and "null" in words and "failed" not in words  # below lr, and below layers
    curves([(sweep(space=SPACE), [dataclasses.replace(one, curve=curve(10.0, 5.0)) for one in records])], by="lr")


def test_parallel_coordinates_leave_out_what_never_changes_and_what_tells_least() -> None:
    names = [f"p{i:02d}" for i in range(15)]
    rng = np.random.default_rng(0)

    def one(number: int) -> TrialRecord:
        params = {name: float(value) for name, value in zip(names, rng.random(15), strict=True)}
        return trial(number, 10.0, 5 * params["p03"] + 3 * params["p11"], params={**params, "fixed": 1})

    axes = the_axes(parallel([(sweep(), [one(i) for i in range(60)])]))
    words = [text.get_text() for text in axes.texts]
    assert {"p03", "p11"} <= set(words) and "fixed" not in words
    assert len([word for word in words if word in names]) == MAX_PARAMS
    with pytest.raises(UsageError, match="no trial has a parameter 'p99'"):
        parallel([(sweep(), [one(0)])], params=["p99"])


def test_values_of_an_unreadable_space_get_the_range_that_they_have() -> None:
    records = [trial(i, 1.0, 1.0, params={"a": 10.0**i, "b": i, "c": bool(i % 2)}) for i in range(5)]
    subject = [(sweep(), records)]
    a, b, c = (coordinates(subject, name) for name in "abc")
    assert [a.place(10.0**i) for i in range(5)] == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    assert [b.place(i) for i in (-7, 0, 1, 4, 9)] == pytest.approx([0, 0, 0.25, 1, 1])
    assert (c.choices, c.place(True)) == (("False", "True"), 1.0)
    assert [label for _, label in b.ticks()] == ["0", "2", "4"]


@pytest.mark.parametrize("draw", [front, parallel])
def test_a_picture_of_nothing_is_refused(draw: Any) -> None:
    with pytest.raises(UsageError, match="there is nothing to plot: no trial has a score yet"):
        draw([(sweep(), [running(0), failed(1, 3.0)])])
    with pytest.raises(UsageError, match="no sweep was given"):
        draw([])


def test_curves_of_nothing_are_refused() -> None:
    with pytest.raises(UsageError, match="no trial has reported a score while it trained"):
        curves([(sweep(), [dataclasses.replace(trial(0, 1.0, 1.0), curve=())])])
    with pytest.raises(UsageError, match="the sweeps are of pong, maze, whose scores share no axis"):
        curves([(sweep("a"), many(9)), (sweep("b", env="maze"), many(9))])


@pytest.mark.parametrize("draw", [front, curves, parallel])
@pytest.mark.parametrize("num_trials", [1, 2, 40])
def test_files_are_the_same_each_time(tmp_path: Path, draw: Any, num_trials: int) -> None:
    records = [*many(num_trials), running(99)]
    for again in range(2):
        figure = draw([(sweep("a name's <$\\frac{ü}$> é"), records)])
        style.save(figure, tmp_path / "new" / f"{again}.svg")
    first, second = ((tmp_path / "new" / f"{again}.svg").read_bytes() for again in range(2))
    assert first == second and first.startswith(b"<?xml")


@pytest.mark.parametrize("draw", [front, curves, parallel])
def test_a_file_has_the_format_of_its_ending_or_that_is_given(tmp_path: Path, draw: Any) -> None:
    figure = draw([(sweep(), [*many(2), running(99)])])
    style.save(figure, tmp_path / "figure.pdf")
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")
    style.save(figure, tmp_path / "figure", "png")  # a format that is given needs no ending
    assert (tmp_path / "figure").read_bytes().startswith(b"\x89PNG")
    for name in ("f.gif", "f"):
        with pytest.raises(UsageError, match=r"end it in \.png, \.svg, \.pdf"):
            style.save(figure, tmp_path / name)


def test_the_public_functions_read_a_store(tmp_path: Path) -> None:
    url = store_url(tmp_path)
    fill_store(url)
    fill_store(url, name="again")
    axes = the_axes(plots.front("pong", store=url))
    assert the_axes(plots.front("pong", store=Path(url.removeprefix("sqlite:///")))).get_title(loc="left")
    assert points(axes, "measured front (3)") == [(10, 5), (25, 15), (40, 18)]
    assert len(the_axes(plots.curves("pong", "again", "pong", store=url)).get_title(loc="left").split(",")) == 2
    assert the_axes(plots.parallel("pong", store=url)).texts
    with pytest.raises(UsageError, match="there are 2 sweeps; name one of them: pong, again"):
        plots.front(store=url)
    with pytest.raises(UsageError, match="there is no sweep 'pnog'; did you mean 'pong'"):
        plots.curves("pnog", store=url)


def test_importance_has_a_panel_for_each_method() -> None:
    about: Any = {"meaning": "what it says", "caveat": "what not"}
    found = [
        Importance(method="a", title="method a", shares={"x": 0.75, "y": 0.25}, **about),
        Importance(method="b", title="method b", shares={"x": 0.0, "y": 1.0}, warning="few trials", **about),
        Importance(method="c", title="method c", problem="needs Optuna", **about),
    ]
    figure = importance(found, "title")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["Method a", "Method b", "Method c"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["y", "x"]
    assert [bar.get_width() for bar in figure.axes[0].patches if isinstance(bar, Rectangle)] == [0.25, 0.75]
    said = [axes.get_xlabel() for axes in figure.axes]
    assert said == ["what it says", "what it says. few trials", "needs Optuna"]
    with pytest.raises(UsageError, match="the importance of parameters is not known: needs Optuna"):
        importance(found[2:], "title")


def test_of_many_curves_only_those_that_may_be_drawn_are_read() -> None:
    records = [trial(i, 1.0 + i, -float(i % 700)) for i in range(2000)]
    numbers = needed(records, [3, 1999, 5000])
    assert {0, 3, 1999} <= numbers and len(numbers) <= MAX_CURVES + MAX_BEHIND + 2
    assert needed(records[:3], None) == {0, 1, 2}


def test_curves_of_a_store_are_those_that_were_measured(tmp_path: Path) -> None:
    url = store_url(tmp_path)
    fill_store(url)
    axes = the_axes(plots.curves("pong", store=url, trials=[3]))
    [line] = [one for one in lines(axes) if one.get_color() != style.OTHER_COLOR]
    measured = [(point.elapsed_seconds, point.score) for point in curve(15.0, 25.0) if point.score is not None]
    assert np.asarray(line.get_xydata()) == pytest.approx(np.array(measured))
