"""The modules that all pages share, in a real browser: numbers read as in the terminal, addresses come back."""

import json
import math
from typing import Any

import numpy as np
import pytest
from browser import ODD_NAME, View

from protein.view import text
from protein.view.figures import style
from protein.view.figures.curves import mean_of

NUMBERS = [0.0, 1e-9, 3.2e-7, 0.00123, 0.0456, 0.0994, 0.0996, 0.1, 0.5, 1.0, 9.994, 9.996, 12.34, 59.94, 59.96, 60.0]
NUMBERS += [61.0, 599.5, 3599.4, 3599.6, 3600.0, 7384.0, 86399.0, 86400.0, 1e6, 123456.789, 9999.994, 9999.996, 1e9]
COUNTS = [0, 1, 950, 999, 1000, 1049, 12_345, 999_499, 999_501, 5_000_000, 123_456_789, 10**10]


def call(view: View, module: str, code: str, *given: Any) -> Any:
    """Returns what an expression over a module `m` gives; `given` are its arguments."""
    source = f"async (given) => {{ const m = await import('/static/lib/{module}.js'); return JSON.stringify({code}); }}"
    return json.loads(view.page.evaluate(source, list(given)))


@pytest.mark.parametrize(
    ("name", "shown", "values"),
    [
        ("seconds", text.seconds, NUMBERS),
        ("score", text.score, [sign * value for value in NUMBERS for sign in (1, -1)]),
        ("count", text.count, COUNTS),
    ],
)
def test_numbers_read_as_in_the_terminal(view: View, name: str, shown: Any, values: list[Any]) -> None:
    found = call(view, "format", f"given[0].map((x) => m.{name}(x))", values)
    expected = [shown(value) for value in values]
    same = {a.replace("−", "-"): b for a, b in zip(found, expected, strict=True)}
    differing = {a: b for a, b in same.items() if a != b and not _equal_number(a, b)}
    assert not differing


def test_a_loss_and_a_difference_read_as_in_the_terminal(view: View) -> None:
    given = [[amount, of] for amount in (1.9344, 0.01234, 0.25, 12.3456, 0) for of in (1.9, -1.9, 12.3, 0)]
    expected = [text.score(float(amount), like=float(of)) for amount, of in given]
    assert call(view, "format", "given[0].map(([amount, of]) => m.difference(amount, of))", given) == expected
    column = {"key": "metrics.bits_per_byte", "group": "metrics", "kind": "number"}
    assert call(view, "format", "m.cell(given[0], 1.9344)", column) == "1.934"


def _equal_number(one: str, other: str) -> bool:
    """Whether two texts differ only in how they write the exponent or trailing zeros."""
    try:
        return math.isclose(float(one.removesuffix("s")), float(other.removesuffix("s")), rel_tol=1e-12)
    except ValueError:
        return False


def test_unusual_numbers_are_named(view: View) -> None:
    given = ["nan", "inf", "-inf", None]
    for name in ("score", "seconds", "count", "time"):
        found = call(view, "format", f"given[0].map((x) => m.{name}(x))", given)
        assert found == (["NaN", "∞", "−∞", "–"] if name != "time" else ["–"] * 4)


def test_a_selection_comes_back_from_the_address(view: View) -> None:
    numbers = {"pong": [1, 2, 3, 7, 9, 10], ODD_NAME: [0], "a:b,c": [5, 100_000]}
    code = "[m.format(new Map(Object.entries(given[0]).map(([k, v]) => [k, new Set(v)])))]"
    [written] = call(view, "selection", code, numbers)
    assert written.startswith("pong:1-3.7.9-10,")
    code = "Object.fromEntries([...m.parse(given[0])].map(([k, v]) => [k, [...v]]))"
    assert call(view, "selection", code, written) == numbers
    for nonsense in ("", ":", "pong", "pong:", "pong:x", "pong:1-99999999", "%:1,,:"):
        call(view, "selection", code, nonsense)  # raises nothing


def test_the_state_comes_back_from_the_address(view: View) -> None:
    values = [["sweep", ODD_NAME], ["sweep", "ü/?&=#%"], ["filter", 'note == "a & b"'], ["x", "+ %2B"]]
    code = "[m.format('trial', new URLSearchParams(given[0]), ['a/b', '7'])]"
    [written] = call(view, "state", code, values)
    code = "(({page, path, values}) => ({page, path, values: [...values]}))(m.parse(given[0]))"
    assert call(view, "state", code, written) == {"page": "trial", "path": ["a/b", "7"], "values": values}
    assert call(view, "state", code, "") == {"page": "", "path": [], "values": []}
    assert call(view, "state", code, "#/sweep?sweep=a")["page"] == "overview"  # a link to the page that was Sweep
    assert call(view, "state", code, "#/%E0%A4%A")["page"] == "%E0%A4%A"  # an address that was cut


def test_csv_quotes_what_needs_it(view: View) -> None:
    rows = [["a,b", 'say "x"', "two\nlines", None, 1.5]]
    assert call(view, "export", "m.csv(['h', 'i', 'j', 'k', 'l'], given[0])", rows) == (
        'h,i,j,k,l\r\n"a,b","say ""x""","two\nlines",,1.5\r\n'
    )


def test_csv_holds_no_formula(view: View) -> None:
    cells = ["=1+1", "+a", "-a", "@x", "-1.5", "1e-3", "-inf", -2]
    found = call(view, "export", "m.csv(['=h'], given[0].map((one) => [one]))", cells)
    assert found.split("\r\n")[:-1] == ["'=h", "'=1+1", "'+a", "'-a", "'@x", "-1.5", "1e-3", "-inf", "-2"]


def test_a_report_answers_from_what_it_carries(view: View) -> None:
    code = (
        "await (async () => { const api = new m.EmbeddedApi({'/front?sweep=a&sweep=b': 7});"
        " const found = await api.get('/front', {sweep: ['a', 'b'], filter: '', x: null});"
        " const refused = await api.get('/none').catch((error) => error.message);"
        " return [found, refused]; })()"
    )
    found, refused = call(view, "api", code)
    assert found == 7
    assert "protein view" in refused


def test_slow_answers_are_asked_for_by_one_loop_and_once_more_after_late_wishes(view: View) -> None:
    code = """await (async () => {
      const states = ["computing", "ready", "ready", "ready"];
      const said = [];
      let open = 0;
      let most = 0;
      const api = { async get() {
        most = Math.max(most, open += 1);
        await new Promise((resolve) => setTimeout(resolve, 20));
        open -= 1;
        return { state: states.shift() };
      } };
      const asking = new m.Asking();
      const { signal } = new AbortController();
      const ask = () => asking.whenReady("a", api, "/slow", {}, signal, (one) => said.push(one.state));
      const first = ask();
      for (let i = 0; i < 5; i++) await ask();
      await first;
      await ask();
      return { said, most, left: states.length };
    })()"""
    assert call(view, "slow", code) == {"said": ["computing", "ready", "ready", "ready"], "most": 1, "left": 0}


def test_an_axis_of_steps_begins_at_0_at_the_earliest(view: View) -> None:
    assert call(view, "lines", "m.rangeOf(1, 101, false, true)") == [0, 104]
    assert call(view, "lines", "m.rangeOf(1, 101, false)") == [-2, 104]
    assert call(view, "lines", "m.rangeOf(-1, 99, false, true)") == [-4, 102]


def test_counts_among_the_metrics_are_whole(view: View) -> None:
    column = {"key": "metrics.n", "group": "metrics", "kind": "number"}
    shown = call(view, "format", "given[1].map((x) => m.cell(given[0], x))", column, [256, 21536, 71.9667, 5])
    assert shown == ["256", "21\u2009536", "71.97", "5.000"]


def test_the_legend_of_the_front_has_the_signs_of_the_chart(view: View) -> None:
    points = {"number": [0, 1], "state": ["complete", "failed"], "score": [1.0, None], "run_seconds": [1.0, 2.0]}
    points["calm_seconds"] = points["run_seconds"]
    points |= {"excluded": [False, False]}
    sweep = {
        "name": "s",
        "direction": "maximize",
        "front": [0],
        "left_out": 0,
        "points": {**points, "excluded": [False] * 2},
    }
    code = (
        "m.frontOption({sweeps: [given[0]], expected: new Map(), layers: new Set(['measured']), theme: {series: []},"
        " chosen: [], zoom: [], formatter: String}).legend"
    )
    signs = {one["name"]: one.get("icon") for one in call(view, "front-chart", code, sweep)["data"]}
    assert signs == {"trials": "circle", "failed": "path://M-4,-4L4,4M-4,4L4,-4", "measured front": None}


def test_a_front_that_begins_at_a_cost_of_0_has_an_axis(view: View) -> None:
    """Imported runs may have taken less than a second of a clock that counts seconds."""
    points = {"number": [0, 1], "state": ["complete"] * 2, "score": [1.0, 2.0], "run_seconds": [0.0, 4.0]}
    points["calm_seconds"] = points["run_seconds"]
    sweep = {"name": "s", "direction": "maximize", "front": [0, 1], "left_out": 0}
    sweep |= {"points": {**points, "excluded": [False] * 2}}
    front = [{"cost_seconds": 0.0, "score": {"value": 1.0, "low": 0.5, "high": 1.5}, "trials": [0], "measured": [1.0]}]
    code = (
        "(({xAxis}) => [xAxis.min, xAxis.max])(m.frontOption({sweeps: [given[0]], layers: new Set(['expected']),"
        " expected: new Map([['s', {value: {front: given[1]}}]]), theme: {series: []}, chosen: [], zoom: [],"
        " formatter: String}))"
    )
    low, high = call(view, "front-chart", code, sweep, front)
    assert -4 < low < -3 and 4 < 10**high < 8


def test_better_is_up_on_every_axis_of_scores(view: View) -> None:
    up, down = ({"name": name, "direction": name} for name in ("maximize", "minimize"))
    given = [[], [up], [down], [down, down], [up, down], [down, up, down]]
    assert call(view, "scales", "given.map((one) => m.scoreAxis(one))", *given) == [
        {"label": "score", "inverse": False},
        {"label": "score", "inverse": False},
        {"label": "score (lower is better)", "inverse": True},
        {"label": "score (lower is better)", "inverse": True},
        {"label": "score (lower is better for minimize)", "inverse": False},
        {"label": "score (lower is better for 2 of the sweeps)", "inverse": False},
    ]


def test_an_axis_of_scores_ends_where_it_does_in_a_picture(view: View) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 40))
    scores = [(10.0 ** (row * 3) * np.sign(row - 1.0))[: 1 + i % 40].round(6).tolist() for i, row in enumerate(rows)]
    scores += [[1.0] * 9 + [-1e9], [1.0 + i / 10 for i in range(30)] + [-1e9, -1e12], [0.0, 0.0], [-2.0]]
    found = call(
        view, "scales", "given[0].map((one) => [m.scoreEnds(one), m.scoreEnds(one.map((x) => -x), true)])", scores
    )
    for one, (ends, turned) in zip(scores, found, strict=True):
        assert ends == pytest.approx(style.score_bounds(one))
        assert turned == pytest.approx([-ends[1], -ends[0]])
    assert call(view, "scales", "m.scoreEnds([null, NaN])") == [0, 1]


def test_ticks_of_powers_of_two_are_powers_of_two(view: View) -> None:
    ranges: list[list[float]] = [[8, 256], [16, 4096], [1, 1], [0.25, 2], [64, 2**24], [3, 40]]
    found = call(view, "scales", "given.map(([low, high]) => m.powersOfTwo(low, high))", *ranges)
    assert found == [style.powers_of_two(low, high) for low, high in ranges]
    assert found[:4] == [[8, 16, 32, 64, 128, 256], [16, 64, 256, 1024, 4096], [1], [0.25, 0.5, 1, 2]]
    ticks = [0.25, 1, 4096, 2**17, 2**20, 2**24]
    assert call(view, "format", "given.map((x) => m.power(x))", *ticks) == [style.power(tick) for tick in ticks]
    assert style.power(2**14) == "16384" and style.power(2**20) == "2²⁰"


def test_the_mean_of_curves_and_its_band(view: View) -> None:
    rng = np.random.default_rng(0)
    curves = []
    for length in (1, 3, 8, 8, 5):
        x = np.sort(rng.choice(40, size=length, replace=False)).astype(float)
        curves.append({"x": x.tolist(), "y": rng.normal(size=length).tolist()})
    curves[2]["y"][3] = None  # a gap
    curves.append({"x": [3.0], "y": [None]})
    found = call(view, "../pages/curves", "m.meanOf(given[0])", curves)
    usable = [[(x, y) for x, y in zip(one["x"], one["y"], strict=True) if y is not None] for one in curves]
    usable = [one for one in usable if one]
    lines = [([x for x, _ in one], [y for _, y in one]) for one in usable]
    places = sorted({x for one in usable for x, _ in one})
    drawn = mean_of(lines)
    assert [drawn[0].tolist(), found["y"]] == [found["x"], pytest.approx(drawn[1])], "as in a picture"
    expected = []
    for x in places:
        at = [np.interp(x, xs, ys) for xs, ys in lines if xs[0] <= x <= xs[-1]]
        if 2 * len(at) >= len(usable):
            expected.append((x, np.mean(at), np.std(at, ddof=1) if len(at) > 1 else 0.0, len(at)))
    assert [found["x"], found["count"]] == [[x for x, *_ in expected], [n for *_, n in expected]]
    assert found["y"] == pytest.approx([mean for _, mean, *_ in expected])
    widths = np.subtract(found["band"]["high"], found["band"]["low"]) / 2
    assert widths == pytest.approx([spread for _, _, spread, _ in expected])
    assert widths == pytest.approx(drawn[2])
    code = "(({x, y}) => [x.length, x[0], x.at(-1), Math.max(...y)])(m.meanOf([given[0], given[0]], 50))"
    long = {"x": list(range(1000)), "y": [2.0 * x for x in range(1000)]}
    assert call(view, "../pages/curves", code, long) == [50, 0, 999, 1998]
    assert call(view, "../pages/curves", "m.meanOf([])")["x"] == []


def test_groups_of_curves_hold_each_once(view: View) -> None:
    code = """given.map(([values, kind]) => m.groupsOf(values.map((v, i) => ({ v, i })), (one) => one.v, kind, String)
      .map(({ label, curves }) => [label, curves.map((one) => one.i)]))"""
    numbers = [5, 1, 3, 2, 4, 8, 7, 6, None]
    given = [
        [["b", "a", "b", None], "text"],
        [[2, 1, 2], "integer"],
        [numbers, "number"],
        [[1] * 9 + [2, 3, 4, 5], "integer"],
        [[], "text"],
    ]
    named, few, many, ties, none = call(view, "../pages/curves", code, *given)
    assert named == [["b", [0, 2]], ["a", [1]], ["no value", [3]]]
    assert few == [["1", [1]], ["2", [0, 2]]]
    assert many == [["1 to 2", [1, 3]], ["3 to 4", [2, 4]], ["5 to 6", [0, 7]], ["7 to 8", [6, 5]], ["no value", [8]]]
    assert sorted(i for _, rows in ties for i in rows) == list(range(13)) and ties[0] == ["1", list(range(9))]
    assert none == []


def test_charts_of_several_metrics_share_their_x(view: View) -> None:
    series = [{"x": [3, None, 9]}, {"x": []}, {"x": [1, 4]}]
    assert call(view, "lines", "[m.endsOf(given), m.endsOf(given.slice(1, 2))]", *series) == [[1, 9], None]


def test_the_chart_of_scores_by_number_marks_failures_and_those_far_worse(view: View) -> None:
    code = """given.map((found) => { const made = m.historyOption(found, { series: [] }, String);
      return { inverse: made.yAxis.inverse, ends: [made.yAxis.min, made.yAxis.max],
        ...Object.fromEntries(made.series.map((one) => [one.name, one.data.map((dot) => dot.value || dot)])) }; })"""
    scores = [1.0 + i / 10 for i in range(30)]
    history = {
        "number": list(range(32)),
        "state": ["complete"] * 31 + ["failed"],
        "score": [*scores, 1e9, None],
        "excluded": [False] * 32,
        "best": {"number": [0], "score": [1.0]},
    }
    failed = {**history, "score": [None] * 32, "state": ["failed"] * 32, "best": {"number": [], "score": []}}
    [drawn, nothing] = call(
        view, "sweep-charts", code, *({"history": one, "direction": "minimize"} for one in (history, failed))
    )
    low, high = drawn["ends"]
    assert drawn["inverse"] and 0 < low < 1.0 and 3.9 < high < 8.0
    assert drawn["trials"][:30] == [[i, score] for i, score in enumerate(scores)]
    for number, worse in (drawn["trials"][30], drawn["failed"][0]):
        assert number in (30, 31) and 3.9 < worse < high, "at the lower edge"
    assert drawn["best measured so far"] == [[0, 1.0], [31, 1.0]]
    assert len(nothing["failed"]) == 32 and "trials" not in nothing and "best measured so far" not in nothing
