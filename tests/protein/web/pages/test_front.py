"""The page Front in a real browser: points, fronts, the slider, selection; and what its endpoints answer."""

import csv
import io
import math
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import ODD_NAME, Served, View, asked, fill_sweep, refused
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Route, expect
from sample_trials import STORED, add_run
from store_samples import complete, start

from protein.api.recommended import Recommendation, recommendation
from protein.storage import open_store
from protein.types import Outcome, TrialEnd, TrialState
from protein.view import text
from protein.web.pages.front import thinned

ViewOf = Callable[..., View]
CHART = ".front-chart .chart"


def series(view: View) -> dict[str, list[Any]]:
    """What the chart draws: the data of each series by its name."""
    found: dict[str, list[Any]] = view.page.evaluate(
        """async (chart) => {
          const own = document.querySelector("script[type=module]").src;
          const { getInstanceByDom } = await import(own.replace("app.js", "vendor/echarts.esm.min.js"));
          const all = getInstanceByDom(document.querySelector(chart)).getOption().series;
          return Object.fromEntries(all.map((one) => [one.name, one.data]));
        }""",
        CHART,
    )
    return found


def place(view: View, x: float, y: float) -> tuple[float, float]:
    """Where in the window a point of the chart stands; x in seconds."""
    found: list[float] = view.page.evaluate(
        """async ([chart, x, y]) => {
          const own = document.querySelector("script[type=module]").src;
          const { getInstanceByDom } = await import(own.replace("app.js", "vendor/echarts.esm.min.js"));
          const room = document.querySelector(chart);
          const at = getInstanceByDom(room).convertToPixel({ gridIndex: 0 }, [Math.log10(x), y]);
          const box = room.getBoundingClientRect();
          return [box.left + at[0], box.top + at[1]];
        }""",
        [CHART, x, y],
    )
    return found[0], found[1]


def recommended(url: str, name: str = "pong") -> Recommendation:
    store = open_store(url)
    sweep = store.find_sweep(name)
    assert sweep is not None
    found = recommendation(sweep, store.trials(sweep.id))
    store.close()
    return found


def test_points_and_both_fronts_are_those_of_the_store(view: View, known_store: str) -> None:
    view.open("front?sweep=pong")
    expect(view.page.locator(".big-answer strong")).to_be_visible()
    drawn = series(view)
    points = {one["trial"][1]: (10 ** one["value"][0], one["value"][1]) for one in drawn["trials"] + drawn["cut short"]}
    wanted = {number: (cost, score) for number, (cost, score, _, _) in enumerate(STORED) if score is not None}
    assert {number: (pytest.approx(cost), score) for number, (cost, score) in wanted.items()} == points
    assert {one["trial"][1] for one in drawn["failed"]} == {2, 6}
    assert [one["trial"][1] for one in drawn["measured front"] if "trial" in one] == [0, 3, 1]
    found = recommended(known_store)
    assert [one["value"][1] for one in drawn["expected front"]][:-1] == [c.contender.score.value for c in found.front]
    band = [one[1:] for one in drawn["80 % interval"]][:-1]
    assert band == [[c.contender.score.low, c.contender.score.high] for c in found.front]
    [star] = drawn["best for the limit"]
    assert star["value"][1] == found.best.contender.score.value and star["trial"] == ["pong", found.best.trial.number]


def test_the_slider_gives_the_best_config_for_the_seconds_and_the_command_that_trains_it(
    view: View, known_store: str
) -> None:
    found = recommended(known_store)
    view.open("front?sweep=pong&under=30")
    expect(view.page.locator(".under-limit")).to_have_text("30s")
    choice = found.affordable(30.0)
    assert choice is not None and choice.trial.number != found.best.trial.number
    expect(view.page.locator(".big-answer strong")).to_have_text(text.score(choice.contender.score.value))
    side = view.page.locator(".front-side")
    expect(side.get_by_role("link", name=str(choice.trial.number), exact=True)).to_be_visible()
    expect(side.get_by_text(re.compile(r"train --env pong --from pong --under 25s"))).to_be_visible()
    expect(side.get_by_text(re.compile(r"--write pong_25s\.toml"))).to_be_visible()
    row = side.locator("tr.changed", has_text="learning_rate")
    assert row.locator("td").all_inner_texts() == ["0.004", "0.008"]  # of trial 3, and of the initial config
    slider = view.page.get_by_label("Most seconds of training")
    slider.focus()
    slider.press("Home")
    expect(view.page.locator(".under-limit")).to_have_text("10s")
    expect(view.page.locator(".big-answer strong")).to_have_text(text.score(found.front[0].contender.score.value))
    assert "under=10" in view.page.url
    slider.press("End")
    expect(view.page.locator(".under-limit")).to_have_text("no limit")
    assert "under" not in view.page.url


def test_the_slider_can_be_dragged(view: View) -> None:
    view.open("front?sweep=pong")
    slider = view.page.get_by_label("Most seconds of training")
    box = slider.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] - 8, box["y"] + box["height"] / 2
    view.page.mouse.move(x, y)
    view.page.mouse.down()
    for step in range(1, 11):
        view.page.mouse.move(x - step * box["width"] / 20, y)
    view.page.mouse.up()
    assert 350 < int(slider.input_value()) < 650
    expect(view.page.locator(".under-limit")).not_to_have_text("no limit")


def test_rows_move_the_slider_after_a_touch_on_it_has_scrolled_the_page(view: View) -> None:
    view.open("front?sweep=pong")
    slider = view.page.get_by_label("Most seconds of training")
    for event in ("pointerdown", "pointercancel"):  # what a browser tells of such a touch
        slider.dispatch_event(event)
    view.page.get_by_role("region", name="Expected front").locator("tbody tr").first.get_by_role("button").click()
    expect(view.page.locator(".under-limit")).to_have_text("10s")
    expect(slider).to_have_value("0")


def test_the_table_of_the_expected_front_moves_the_slider(view: View, known_store: str) -> None:
    found = recommended(known_store)
    view.open("front?sweep=pong")
    rows = view.page.get_by_role("region", name="Expected front").locator("tbody tr")
    expect(rows).to_have_count(len(found.front))
    for row, choice in zip(rows.all(), found.front, strict=True):
        expect(row.locator("td").nth(1)).to_have_text(text.score(choice.contender.score.value))
        expect(row.get_by_role("link", name=str(choice.trial.number), exact=True)).to_be_visible()
    expect(rows.last).to_contain_text("best expected")
    rows.first.get_by_role("button").click()
    expect(view.page.locator(".under-limit")).to_have_text("10s")
    expect(rows.first).to_have_class("picked")


def test_hovering_tells_the_config_and_a_click_opens_the_trial(view: View) -> None:
    view.open("front?sweep=pong")
    expect(view.page.locator(".big-answer strong")).to_be_visible()
    view.page.mouse.move(*place(view, 70.0, 19.0))
    tip = view.page.locator(".tip-body")
    expect(tip).to_contain_text("trial 5")
    expect(tip).to_contain_text("cut short")
    expect(tip).to_contain_text("0.006 (initial 0.008)")  # the learning rate
    expect(tip).to_contain_text("10.00 (8.000 to 11.50)")  # what was predicted
    view.page.mouse.click(*place(view, 70.0, 19.0))
    expect(view.page.get_by_role("heading", name="Trial 5 of pong")).to_be_visible()
    assert "#/trial/pong/5" in view.page.url


def test_a_box_selects_trials_for_the_other_pages_or_enlarges(view: View) -> None:
    view.open("front?sweep=pong")
    expect(view.page.locator(".big-answer strong")).to_be_visible()
    view.page.get_by_role("button", name="Select").click()
    drag(view, place(view, 20.0, 18.5), place(view, 65.0, 13.0))
    expect(view.page.get_by_role("button", name="3 selected")).to_be_visible()
    assert "sel=pong:1.3-4" in view.page.url
    view.page.get_by_role("button", name="Zoom").click()
    drag(view, place(view, 20.0, 18.5), place(view, 65.0, 13.0))
    expect(view.page.get_by_role("button", name="Show everything")).to_be_visible()
    low, high, bottom, top = (
        float(one) for one in urllib.parse.unquote(view.page.url).partition("zoom=")[2].split(",")
    )
    assert [10**low, 10**high] == pytest.approx([20.0, 65.0], rel=0.05)
    assert [bottom, top] == pytest.approx([13.0, 18.5], abs=0.3)
    view.page.keyboard.press("z")
    expect(view.page.get_by_role("button", name="Show everything")).to_be_hidden()


def drag(view: View, begin: tuple[float, float], end: tuple[float, float]) -> None:
    view.page.mouse.move(*begin)
    view.page.mouse.down()
    view.page.mouse.move(*end, steps=5)
    view.page.mouse.up()


def test_layers_are_switched_by_button_and_key_and_kept_in_the_address(view: View) -> None:
    view.open("front?sweep=pong")
    expect(view.page.locator(".big-answer strong")).to_be_visible()
    view.page.get_by_role("button", name="Predictions").click()
    view.page.keyboard.press("m")
    expect(view.page.get_by_role("button", name="Measured front")).to_have_attribute("aria-pressed", "false")
    drawn = series(view)
    assert "measured front" not in drawn
    predicted = {one["trial"][1]: one["value"] for one in drawn["predicted"] if "trial" in one}
    assert predicted == {number: [pytest.approx(math.log10(30.0)), 10.0] for number in (1, 3, 4, 5)}
    view.page.reload()
    expect(view.page.get_by_role("button", name="Predictions")).to_have_attribute("aria-pressed", "true")
    expect(view.page.get_by_role("button", name="Measured front")).to_have_attribute("aria-pressed", "false")


def test_several_sweeps_stand_over_each_other(own_store: str, view_of: ViewOf) -> None:
    fill_sweep(own_store, ODD_NAME, [({"x": 0.5}, 12.0, 30.0, "")])
    view = view_of(own_store)
    view.open(f"front?sweep=pong&sweep={urllib.parse.quote(ODD_NAME)}")
    rows = view.page.locator(".chooser tbody tr")
    expect(rows).to_have_count(2)
    drawn = series(view)
    assert {"pong: trials", "pong: measured front", f"{ODD_NAME}: trials"} <= drawn.keys()
    rows.nth(1).get_by_role("button").click()
    # Its stored space is empty, so nothing can be recommended; the trials are shown all the same.
    expect(view.page.locator(".front-side")).to_contain_text("cannot be read")


def test_scores_to_be_minimised_have_the_best_on_top(view: View) -> None:
    view.open("front?sweep=loss")
    drawn_on = view.page.locator(CHART)
    expect(drawn_on).to_be_visible()
    front = [one["trial"][1] for one in series(view)["measured front"] if "trial" in one]
    assert front == [i for i in range(21) if i % 6 != 5]  # the loss falls until trial 20
    assert place(view, 22.0, 0.0)[1] < place(view, 2.0, 4.0)[1]


def test_a_new_trial_appears_and_moves_the_front(own_store: str, view_of: ViewOf) -> None:
    view = view_of(own_store)
    view.open("front?sweep=pong")
    expect(view.page.locator(".big-answer strong")).to_be_visible()
    before = view.page.locator(".big-answer strong").inner_text()
    add_run(own_store, of=1, score=20.5, cost_seconds=38.0)
    expect(view.page.get_by_text(re.compile("Trial 7 measured higher"))).to_be_visible()
    after = text.score(recommended(own_store).best.contender.score.value)
    assert after != before
    expect(view.page.locator(".big-answer strong")).to_have_text(after)
    assert [one["trial"][1] for one in series(view)["measured front"] if "trial" in one] == [0, 3, 7]


def test_a_trial_that_failed_at_once_does_not_stretch_the_axis(tmp_path: Path, view_of: ViewOf) -> None:
    url = f"sqlite:///{tmp_path}/protein.db"
    failed = ({"x": 0.5}, None, 0.0, "the machine had no memory left")
    fill_sweep(url, "early", [({"x": i / 10}, float(i), 10.0 + i, "") for i in range(5)] + [failed])
    view = view_of(url)
    view.open("front?sweep=early")
    expect(view.page.locator(CHART)).to_be_visible()
    view.page.wait_for_function(
        """async (chart) => {
          const own = document.querySelector("script[type=module]").src;
          const { getInstanceByDom } = await import(own.replace("app.js", "vendor/echarts.esm.min.js"));
          return getInstanceByDom(document.querySelector(chart))?.getOption().series.length;
        }""",
        arg=CHART,
    )
    [cross] = series(view)["failed"]
    assert 8.0 < 10 ** cross["value"][0] < 10.0  # the axis' beginning, not 0.001 s


def test_the_front_of_a_new_sweep_is_drawn_once(tmp_path: Path, view_of: ViewOf) -> None:
    url = f"sqlite:///{tmp_path}/protein.db"
    fill_sweep(url, "young", [])
    view = view_of(url)
    view.open("front?sweep=young")
    expect(view.page.get_by_text("No trial has ended yet.")).to_be_visible()
    store = open_store(url)
    [sweep] = store.list_sweeps()
    for count in (1, 2, 3):
        store.finish_trial(start(store, sweep), complete(float(count)))
        view.page.wait_for_function(
            """async ([chart, count]) => {
              const found = document.querySelector(chart);
              const own = document.querySelector("script[type=module]").src;
              const { getInstanceByDom } = await import(own.replace("app.js", "vendor/echarts.esm.min.js"));
              const all = found && getInstanceByDom(found) ? getInstanceByDom(found).getOption().series : [];
              return all.find((one) => one.name === "trials")?.data.length === count;
            }""",
            arg=[CHART, count],
        )
    expect(view.page.locator(CHART)).to_have_count(1)
    view.page.keyboard.press("?")
    expect(view.page.get_by_text("expected front on or off")).to_have_count(1)
    store.close()


def test_a_button_enlarges_the_best_scores(view: View) -> None:
    """The best quarter of the 34 losses is 0 to 0.36: those of trials 14 to 26, which cost 16 to 28 seconds."""
    view.open("front?sweep=loss")
    view.page.get_by_role("button", name="Near the best").click()
    expect(view.page).to_have_url(re.compile("zoom="))
    zoom = [float(one) for one in urllib.parse.unquote(view.page.url).split("zoom=")[1].split("&")[0].split(",")]
    assert zoom[2] <= 0.0 and 0.36 <= zoom[3] <= 0.6
    assert 14.0 < 10 ** zoom[0] <= 16.0 and 28.0 <= 10 ** zoom[1] < 31.0
    view.page.get_by_role("button", name="Show everything").click()
    expect(view.page).not_to_have_url(re.compile("zoom="))
    view.page.keyboard.press("b")
    expect(view.page).to_have_url(re.compile("zoom="))


def test_the_chart_is_saved_as_csv_and_svg(view: View) -> None:
    view.open("front?sweep=pong")
    expect(view.page.locator(".big-answer strong")).to_be_visible()
    for kind in ("CSV", "SVG"):
        view.page.locator(".front-chart").get_by_role("button", name="Save").click()
        with view.page.expect_download() as saving:
            view.page.get_by_role("button", name=kind).click()
        content = Path(saving.value.path()).read_text()
        if kind == "SVG":
            assert content.startswith("<svg") and "cost: seconds of training" in content
            continue
        rows = {int(row["trial"]): row for row in csv.DictReader(io.StringIO(content))}
        assert {number for number, row in rows.items() if row["measured_front"] == "true"} == {0, 1, 3}
        assert (float(rows[1]["score"]), float(rows[1]["cost_seconds"]), rows[2]["score"]) == (18.0, 40.0, "")


@pytest.mark.parametrize(("sweep", "said"), [("new", "No trial has ended yet."), ("failed", "No recommendation yet")])
def test_states_say_what_is_so(view: View, sweep: str, said: str) -> None:
    view.open(f"front?sweep={sweep}")
    expect(view.page.locator("main")).to_contain_text(said)


def test_it_is_accessible_and_fits_a_phone(view: View, phone: View) -> None:
    for one in (view, phone):
        one.open("front?sweep=pong")
        expect(one.page.locator(".big-answer strong")).to_be_visible()
        one.check_accessible()
    assert phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_many_trials_are_thinned_but_the_front_and_the_extremes_stay(tmp_path: Path, view_of: ViewOf) -> None:
    url = f"sqlite:///{tmp_path}/many.db"
    costs = [1.0 + i * 37 % 100 for i in range(100)]
    scores = [10 * math.sin(i) + i / 50 for i in range(100)]
    fill_sweep(url, "many", [({"x": i / 100}, scores[i], costs[i], "") for i in range(100)])
    served = Served(url)
    whole = asked(served, "front", sweep="many")["sweeps"][0]
    assert whole["left_out"] == 0 and len(whole["points"]["number"]) == 100
    thin = asked(served, "front", sweep="many", points=20)["sweeps"][0]
    kept = thin["points"]["number"]
    assert thin["left_out"] == 100 - len(kept) and set(thin["front"]) == set(whole["front"]) <= set(kept)
    assert {scores.index(max(scores)), scores.index(min(scores))} <= set(kept)
    inside = asked(served, "front/within", sweep="many", least_cost=5, most_cost=40, least_score=0)
    assert inside["numbers"] == [i for i in range(100) if 5 <= costs[i] <= 40 and scores[i] >= 0]
    served.stop()


def test_mistakes_are_one_line(served: Served) -> None:
    assert refused(served, "front") == (400, "0 sweeps were asked for; give 1 to 20 with sweep=NAME")
    assert refused(served, "front", sweep="pong", points=10**9)[0] == 400
    assert refused(served, "expected", sweep="pang")[0] == 404
    assert refused(served, "front/config", sweep="pong", number=99) == (400, "sweep 'pong' has no such trial")
    assert refused(served, "front/config", sweep="pong", number="x")[0] == 400


def test_a_password_of_the_store_is_not_shown_in_commands() -> None:
    from types import SimpleNamespace

    from protein.web.findings import store_words

    shown = store_words(SimpleNamespace(url="postgresql+psycopg://me:secret@host:5432/db"))  # type: ignore[arg-type]
    assert shown == ["--store", "postgresql+psycopg://me@host:5432/db"]


def test_excluded_trials_are_drawn_apart_and_leave_the_front(own_store: str, view_of: ViewOf) -> None:
    store = open_store(own_store)
    [sweep] = store.list_sweeps()
    store.annotate(sweep.id, 1, excluded=True)
    assert store.trials(sweep.id)[1].state is TrialState.COMPLETE
    store.close()
    view = view_of(own_store)
    view.open("front?sweep=pong")
    expect(view.page.locator(".big-answer strong")).to_be_visible()
    drawn = series(view)
    assert [one["trial"][1] for one in drawn["excluded"]] == [1]
    assert [one["trial"][1] for one in drawn["measured front"] if "trial" in one] == [0, 3, 4]


def test_a_chart_that_is_not_there_yet_says_that_it_loads(new_view: View) -> None:
    held: list[Route] = []
    new_view.page.route("**/echarts.esm.min.js", lambda route: held.append(route))
    new_view.open("front?sweep=pong")
    expect(new_view.page.get_by_text("Loading the chart")).to_be_visible()
    held[0].continue_()
    expect(new_view.page.locator(".front-chart canvas")).to_be_visible()
    expect(new_view.page.get_by_text("Loading the chart")).to_have_count(0)


def test_a_busy_machine_is_told_where_costs_are_measured_and_expected(own_store: str, view_of: ViewOf) -> None:
    """Trials waited for most of their time, and the expected front leaves that out: the two stand far apart."""
    add_run(own_store, of=1)
    store = open_store(own_store)
    [sweep] = store.list_sweeps()
    timings = {"wall": 10.0, "waited": 7.9}
    ended = Outcome(end=TrialEnd.COMPLETE, score=12.0, cost_seconds=10.0, steps=100, timings=timings)
    store.finish_trial(store.trial(sweep.id, 7), ended)
    store.close()
    view = view_of(own_store)
    view.open("front?sweep=pong")
    expect(view.page.locator(".front-steps")).to_contain_text(
        "Other programs had the cores for 79\u2009% of the trials' time. Trials stand at their costs without it"
    )
    measured = next(one for one in series(view)["measured front"] if one.get("trial", ["", 0])[1] == 7)
    assert 10 ** measured["value"][0] == pytest.approx(2.1)
    [tail] = [one["coords"] for one in series(view)["measured cost"]]
    assert [10**x for x, _ in tail] == pytest.approx([2.1, 10.0])


def test_an_idle_machine_is_not_told(view: View) -> None:
    view.open("front?sweep=pong")
    expect(view.page.locator(".front-steps table")).to_be_visible()
    expect(view.page.get_by_text("Other programs had the cores")).to_have_count(0)


@given(st.integers(0, 400), st.integers(1, 300), st.integers(0, 2**31), st.sampled_from([1.0, 1e-12, 1e12]))
def test_few_points_that_hold_the_extremes_and_what_must_be_kept(
    number: int, most: int, seed: int, size: float
) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=number) * size, np.round(rng.normal(size=number), 1)
    keep = rng.permutation(number)[: number // 20]
    found = thinned(x, y, most, keep)
    assert found.tolist() == sorted(set(found.tolist()))
    if number <= most:
        assert found.tolist() == list(range(number))
        return
    assert set(keep) <= set(found)
    assert len(found) <= max(most, len(keep) + 5)
    for values in (x, y):
        assert values[found].min() == values.min() and values[found].max() == values.max()


def test_points_far_apart_all_stay_while_those_on_one_spot_become_one() -> None:
    x = np.concatenate([np.linspace(0.0, 1.0, 50), np.full(1000, 0.5)])
    y = np.concatenate([np.linspace(0.0, 1.0, 50), np.full(1000, 0.2)])
    found = thinned(x, y, 60, np.zeros(0, dtype=np.intp))
    assert set(range(50)) <= set(found.tolist()) and len(found) == 51
