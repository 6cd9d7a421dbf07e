"""The page of learning curves in a real browser: which curves it shows, how, and what follows a selection."""

import re
from collections.abc import Callable
from typing import Any

from browser import ODD_NAME, View
from patience import wait_until
from playwright.sync_api import Locator, expect
from sample_trials import add_run, report, start_trial

from protein.storage import open_store
from protein.types import Measurement

ViewOf = Callable[..., View]


def chips(view: View) -> Locator:
    return view.page.locator(".chips .chip")


def shown(view: View, count: int) -> None:
    """Waits until the chart shows this number of curves."""
    expect(view.page.locator(f".page-curves[data-curves='{count}']")).to_be_visible()


def note(view: View) -> Locator:
    return view.page.locator(".page-curves .chart-note")


def test_the_best_twelve_are_shown_until_more_are_asked_for(view: View) -> None:
    view.open("curves?sweep=loss")
    shown(view, 12)
    expect(note(view)).to_contain_text("12 of 34 trials, the best first")
    first = chips(view).first
    expect(first).to_contain_text("trial 20")
    expect(first).to_contain_text("0.000")
    view.page.get_by_role("button", name="all 34").click()
    shown(view, 34)
    assert "n=50" in view.page.url, "the link keeps how many"
    view.page.get_by_role("button", name="show 12").click()
    shown(view, 12)


def test_a_selection_is_what_is_shown(view: View) -> None:
    view.open("curves?sweep=loss&sel=loss:3.7-8")
    shown(view, 3)
    assert [text.split("\n")[0] for text in chips(view).all_inner_texts()] == ["trial 3", "trial 7", "trial 8"]
    expect(view.page.get_by_role("button", name="Selected")).to_have_attribute("aria-pressed", "true")
    view.page.get_by_role("button", name="Newest").click()
    expect(chips(view).first).to_contain_text("trial 39")
    chips(view).nth(1).click()
    expect(view.page).to_have_url(re.compile(r"#/trial/loss/38"))


def test_without_a_selection_it_says_how_to_make_one(view: View) -> None:
    view.open("curves?sweep=loss&pick=selected")
    expect(view.page.get_by_text("No trial is selected.")).to_be_visible()
    view.page.get_by_role("button", name="Show the best ones").click()
    shown(view, 12)


def test_curves_follow_filter_colour_axes_and_metric(view: View) -> None:
    view.open("curves?sweep=loss&filter=optimizer%20%3D%3D%20muon")
    muon = sum(i % 3 == 2 and i % 6 != 5 for i in range(40))
    shown(view, muon)
    view.page.get_by_label("Colour").select_option("params.optimizer")
    expect(view.page.locator(".ramp-legend")).to_contain_text("muon")
    expect(chips(view).first).to_contain_text("muon")
    view.page.get_by_label("Colour").select_option("params.lr")
    expect(view.page.locator(".ramp-legend .ramp")).to_be_visible()
    view.page.get_by_role("button", name="Seconds").click()
    view.page.get_by_label("log x").check()
    view.page.get_by_label("Smooth").fill("0.6")
    view.page.get_by_label("Show", exact=True).select_option("loss")
    shown(view, muon)
    for part in ("x=seconds", "logx=1", "smooth=0.6", "metric=loss", "group=params.lr"):
        assert part in view.page.url
    wait_until(
        lambda: series(view, 0)["y"] == "loss", "the other metric's curves"
    )  # the same ones are shown until then
    drawn = series(view, 0)
    assert drawn["x"] == "seconds of training"
    view.page.reload()
    shown(view, muon)
    assert series(view, 0) == drawn, "the link keeps the view"


def series(view: View, index: int) -> dict[str, Any]:
    """The axes' labels of the chart that is drawn, read from what it saves as a table."""
    text = saved(view)
    header = text.splitlines()[0].split(",")
    return {"x": header[1], "y": header[2], "rows": text.splitlines()[1 + index]}


def saved(view: View, form: str = "CSV") -> str:
    view.page.get_by_role("button", name="Save").first.click()
    with view.page.expect_download() as download:
        view.page.get_by_role("button", name=form).click()
    return download.value.path().read_text()


def test_what_is_drawn_are_the_stored_points(view: View) -> None:
    view.open("curves?sweep=loss&sel=loss:3")
    shown(view, 1)
    rows = [line.split(",") for line in saved(view).strip().splitlines()[1:]]
    assert [row[0] for row in rows] == ["trial 3"] * 10
    assert [float(row[1]) for row in rows] == [100.0 * i for i in range(1, 11)]
    assert all(abs(float(row[2]) - 2.89 * i / 10) < 1e-4 for i, row in enumerate(rows, 1))


def test_the_pointer_finds_a_curve_and_opens_its_trial(view: View) -> None:
    view.open("curves?sweep=loss&sel=loss:3")
    shown(view, 1)
    box = view.page.locator(".u-over").bounding_box()
    assert box is not None
    # The middle of the curve, a straight line through its ends: 3 % of room is left at each side.
    view.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(view.page.locator(".tip")).to_contain_text("trial 3")
    expect(view.page.locator(".tip")).to_contain_text("final score")
    expect(view.page.locator(".chip.lit")).to_have_count(1)
    view.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(view.page).to_have_url(re.compile(r"#/trial/loss/3"))


def test_odd_names_no_curves_and_several_sweeps(view: View) -> None:
    view.open("curves?sweep=new")
    expect(view.page.get_by_text("No trial has reported points of a learning curve.")).to_be_visible()
    view.page.goto(
        f"{view.address}#/curves?sweep={ODD_NAME.replace('%', '%25').replace('#', '%23').replace('&', '%26')}"
    )
    shown(view, 3)
    view.open("curves?sweep=loss&sweep=pong&n=4")
    shown(view, 4)
    expect(chips(view).filter(has_text="pong")).to_have_count(2)


def test_while_no_trial_has_a_score_the_newest_are_shown(view: View) -> None:
    """A first trial that runs for hours has a curve, and so have trials that all failed."""
    view.open("curves?sweep=failed")
    shown(view, 2)
    expect(note(view)).to_contain_text("2 trials, the newest first")
    expect(view.page.get_by_role("button", name="Newest")).to_have_attribute("aria-pressed", "true")
    view.page.get_by_role("button", name="Best", exact=True).click()
    expect(view.page.get_by_text("No trial has a score yet.")).to_be_visible()
    view.page.get_by_role("button", name="Show the newest ones").click()
    shown(view, 2)


def test_a_running_trial_grows_before_the_eyes(view_of: ViewOf, own_store: str) -> None:
    view = view_of(own_store)
    view.open("curves?sweep=pong&pick=newest&n=1")
    shown(view, 1)
    expect(chips(view).first).to_contain_text("trial 6")
    store = open_store(own_store)
    trial = start_trial(store)
    expect(chips(view).first).to_contain_text("trial 7")
    expect(chips(view).first).to_contain_text("running")
    report(store, trial, 3)
    expect(view.page.locator(".page-curves[data-points='3']")).to_be_visible()
    store.close()


def test_a_zoom_stays_while_a_trial_grows(view_of: ViewOf, own_store: str) -> None:
    store = open_store(own_store)
    trial = start_trial(store)
    view = view_of(own_store)
    view.open("curves?sweep=pong&pick=newest&n=1")
    expect(view.page.locator(".page-curves[data-points='2']")).to_be_visible()
    whole = ticks(view)

    drag(view)
    zoomed = ticks(view)
    assert zoomed != whole
    report(store, trial, 3, 4)
    expect(view.page.locator(".page-curves[data-points='4']")).to_be_visible()
    assert ticks(view) == zoomed
    view.page.locator(".u-over").dblclick(position={"x": 40, "y": 20})  # far from the curve
    assert ticks(view) not in (zoomed, whole)  # two points more than at first

    drag(view)
    view.page.get_by_label("log y").check()
    view.page.get_by_label("log y").uncheck()
    everything = ticks(view)
    view.page.reload()
    expect(view.page.locator(".page-curves[data-points='4']")).to_be_visible()
    assert ticks(view) == everything
    store.close()


def drag(view: View) -> None:
    """Drags a box over the lower left quarter of the chart."""
    box = view.page.locator(".u-over").bounding_box()
    assert box is not None
    view.page.mouse.move(box["x"] + 0.1 * box["width"], box["y"] + 0.9 * box["height"])
    view.page.mouse.down()
    view.page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"], steps=4)
    view.page.mouse.up()


def ticks(view: View) -> list[str]:
    """Returns what stands at the axes."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", saved(view, "SVG"))


def test_the_keyboard_changes_axes_and_asks_for_more(view: View) -> None:
    view.open("curves?sweep=loss")
    shown(view, 12)
    view.page.keyboard.press("x")
    expect(view.page.get_by_role("button", name="Seconds")).to_have_attribute("aria-pressed", "true")
    view.page.keyboard.press("m")
    shown(view, 34)
    view.page.keyboard.press("l")
    expect(view.page.get_by_label("log y")).to_be_checked()
    assert "x=seconds" in view.page.url and "logy=1" in view.page.url


def test_curves_on_a_phone_and_for_everybody(phone: View) -> None:
    phone.open("curves?sweep=loss&n=34&group=params.lr")
    shown(phone, 34)
    assert phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    phone.check_accessible()


def test_trials_in_which_no_episode_ended_say_so(own_store: str, view_of: ViewOf) -> None:
    """Short trials report metrics, and their score comes from the evaluation at the end."""
    add_run(own_store, of=1)
    store = open_store(own_store)
    [sweep] = store.list_sweeps()
    point = Measurement(steps=100, elapsed_seconds=1.0, score=None, metrics={"loss": 0.5})
    store.add_measurements(store.trial(sweep.id, 7), [point], 600.0)
    store.close()
    view = view_of(own_store)
    view.open("curves?sweep=pong&pick=selected&sel=pong:7")
    expect(view.page.get_by_text("These trials have no curve of the score.")).to_be_visible()
    expect(view.page.get_by_text("No episode ended while they trained.")).to_be_visible()


def test_a_curve_of_one_point_is_a_dot(own_store: str, view_of: ViewOf) -> None:
    add_run(own_store, of=1)
    store = open_store(own_store)
    [sweep] = store.list_sweeps()
    store.add_measurements(store.trial(sweep.id, 7), [Measurement(steps=100, elapsed_seconds=1.0, score=5.0)], 600.0)
    store.close()
    view = view_of(own_store)
    view.open("curves?sweep=pong&pick=selected&sel=pong:7")
    shown(view, 1)
    # The curve's colour is the only one on the canvas that is no grey.
    coloured = """canvas => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let count = 0;
        for (let i = 0; i < data.length; i += 4) count += data[i + 3] > 200 && data[i + 2] - data[i] > 80;
        return count;
    }"""
    assert view.page.locator(".uplot canvas").evaluate(coloured) >= 4
    view.page.get_by_role("button", name="Save").first.click()
    with view.page.expect_download() as download:
        view.page.get_by_role("button", name="SVG").click()
    assert "m-2.5 0a2.5 2.5" in download.value.path().read_text()


def test_metrics_stand_side_by_side_and_groups_have_means(view: View) -> None:
    """A link may name a metric that is gone: the other charts are there."""
    view.open("curves?sweep=loss&group=params.optimizer&mean=1&n=50&also=loss&also=gone")
    view.allow("status of 400")
    shown(view, 34)
    plots = view.page.locator(".page-curves .uplot")
    expect(plots).to_have_count(2)
    expect(view.page.get_by_text("No curve has gone.")).to_be_visible()
    legend = view.page.locator(".curve-legend .swatch-name")
    assert sorted(text.split(":")[0] for text in legend.all_inner_texts()) == ["adam", "muon", "sgd"]
    assert "score (lower is better)" in saved(view).splitlines()[0]
    view.page.get_by_role("button", name="Take the chart of gone away").click()
    expect(view.page.get_by_text("No curve has gone.")).to_have_count(0)
    view.page.get_by_label("mean ± spread").uncheck()
    expect(legend).to_have_count(3)  # the colours of the values
    view.page.get_by_role("button", name="Take the chart of loss away").click()
    expect(plots).to_have_count(1)
    assert "also=" not in view.page.url and "mean=" not in view.page.url
