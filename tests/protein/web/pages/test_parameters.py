"""The page of the parameters in a real browser: what it draws are the planted facts, and a brush selects."""

import csv
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import Served, View, asked, fill_sweep, opened
from playwright.sync_api import Browser, Locator, Route, expect

from protein.space import Float, Space
from protein.types import Params
from protein.web.answers import StillComputing

pytestmark = pytest.mark.slow  # minutes in a browser without a GPU; pages of the other files stay in `make test`

ViewOf = Callable[..., View]


def part(view: View, name: str) -> Locator:
    return view.page.locator(f".part-{name}")


def table(view: View, name: str) -> list[dict[str, str]]:
    """What a chart shows, as it saves it."""
    part(view, name).get_by_role("button", name="Save").click()
    with view.page.expect_download() as download:
        part(view, name).get_by_role("button", name="CSV").click()
    with download.value.path().open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_page_shows_the_planted_facts(view_of_planted: View) -> None:
    view = view_of_planted
    view.open("parameters?sweep=new-pong-1")
    expect(part(view, "parallel").locator("[data-lines='40']")).to_be_visible()
    expect(view.page.locator(".range-end")).to_have_text(
        re.compile(r"The best values of width lie on the high end of its range \(256\)")
    )
    expect(part(view, "slices").locator("[data-slices='5']")).to_be_visible()
    slices = [row for row in table(view, "slices") if row["parameter"] == "lr"]
    best = min(slices, key=lambda row: float(row["expected score"]))
    assert 3e-4 < float(best["value"]) < 1e-2, "at a share of 0.4 of the range from 1e-4 to 0.1"
    expect(part(view, "matters").locator("[data-matters='lr']")).to_contain_text(re.compile(r"matters\s*\d+\W%\W\["))
    verdicts = {row["parameter"]: row["verdict"] for row in table(view, "matters")}
    assert verdicts["lr"] == "matters" and verdicts["nothing"] != "matters"
    expect(part(view, "importance").locator("[data-methods='ped-anova|permutation|length-scales']")).to_be_visible()
    shares = {row["parameter"]: float(row["permutation share"]) for row in table(view, "importance")}
    assert shares["nothing"] < shares["lr"] and shares["nothing"] < shares["width"]
    expect(part(view, "importance")).to_contain_text("PED-ANOVA (Optuna)")
    expect(part(view, "importance")).to_contain_text("scikit-learn")
    expect(part(view, "map").locator("[data-map]")).to_be_visible()
    view.check_accessible()


def test_slices_go_through_a_trial_and_at_a_cost(view_of_planted: View) -> None:
    view = view_of_planted
    view.open("parameters?sweep=new-pong-1")
    expect(part(view, "slices")).to_contain_text("goes through the best expected config")
    part(view, "slices").get_by_label("Trial that slices go through").fill("3")
    part(view, "slices").get_by_label("Trial that slices go through").press("Enter")
    expect(part(view, "slices")).to_contain_text("goes through trial 3")
    part(view, "slices").get_by_label("Cost in seconds of training").fill("10")
    part(view, "slices").get_by_label("Cost in seconds of training").press("Enter")
    expect(part(view, "slices")).to_contain_text("at a cost of 10.0s: steps follows")
    costs = [float(row["cost in seconds"]) for row in table(view, "slices") if row["parameter"] == "width"]
    assert all(8 < cost < 12 for cost in costs)
    assert "at=3" in view.page.url and "seconds=10" in view.page.url
    part(view, "map").get_by_label("across").select_option("nothing")
    expect(part(view, "map").locator("[data-map^='nothing|']")).to_be_visible()


def test_a_limit_of_cost_without_a_cost_parameter_is_said_and_taken_away(tmp_path: Path, view_of: ViewOf) -> None:
    url = f"sqlite:///{tmp_path}/protein.db"
    trials: list[tuple[Params, float | None, float, str]] = [
        ({"a": i / 10, "b": i * 7 % 10 / 10}, float(i), 1.0 + i, "") for i in range(10)
    ]
    fill_sweep(url, "plain", trials, space=Space([Float("a", 0.0, 1.0), Float("b", 0.0, 1.0)]))
    view = view_of(url)
    view.open("parameters?sweep=plain&seconds=5")
    slices = view.page.locator(".part-slices")
    expect(slices).to_contain_text("the best expected config for 5.00s or less, and moves one parameter")
    slices.get_by_label("Cost in seconds of training").fill("")
    view.page.keyboard.press("Enter")
    expect(slices).to_contain_text("the best expected config, and moves one parameter")


def test_a_stroke_along_an_axis_selects_for_all_pages(view_of_planted: View) -> None:
    view = view_of_planted
    view.open("parameters?sweep=new-pong-1")
    expect(part(view, "parallel").locator("[data-lines='40']")).to_be_visible()
    rows = table(view, "parallel")
    box = part(view, "parallel").locator("canvas").bounding_box()
    assert box is not None
    # The last axis is the score, 56 pixels from the right. Its upper half are the lower losses: better is up.
    x, top, bottom = box["x"] + box["width"] - 56, box["y"] + 62, box["y"] + box["height"] - 22
    view.page.mouse.move(x, top + 1)
    view.page.mouse.down()
    view.page.mouse.move(x, (top + bottom) / 2, steps=5)
    view.page.mouse.up()
    scores = {int(row["trial"]): float(row["score"]) for row in rows}
    middle = (max(scores.values()) + min(scores.values())) / 2
    better = {number for number, value in scores.items() if value < middle}
    expect(part(view, "parallel")).to_contain_text(re.compile(r"\d+ selected"))
    count = int(re.search(r"(\d+) selected", part(view, "parallel").inner_text()).group(1))  # type: ignore[union-attr]
    assert abs(count - len(better)) <= 2, "those in the upper half of the axis, up to a pixel"
    part(view, "parallel").get_by_role("link", name="their curves").click()
    expect(view.page.locator(f".page-curves[data-curves='{min(count, 12)}']")).to_be_visible()
    view.page.go_back()
    part(view, "parallel").get_by_role("button", name="clear").click()
    expect(part(view, "parallel")).not_to_contain_text("selected")
    assert "sel=" not in view.page.url


def test_a_box_on_the_scatter_selects_and_a_point_opens(view: View) -> None:
    view.open("parameters?sweep=loss&x=number&y=score&color=params.optimizer")
    expect(part(view, "scatter").locator("[data-dots='34']")).to_be_visible()
    expect(part(view, "scatter").locator(".ramp-legend")).to_contain_text("muon")
    canvas = part(view, "scatter").locator("canvas")
    canvas.scroll_into_view_if_needed()
    part(view, "scatter").get_by_role("button", name="Draw a box to select").click()
    box = canvas.bounding_box()
    assert box is not None
    left, right = box["x"] + 66, box["x"] + box["width"] - 18
    top, bottom = box["y"] + 12, box["y"] + box["height"] - 52
    # The axis runs from trial 0 to trial 39, with 3 % of room at both ends: the left half are trials up to 19.
    view.page.mouse.move(left + 2, top + 2)
    view.page.mouse.down()
    view.page.mouse.move((left + right) / 2, bottom - 2, steps=5)
    view.page.mouse.up()
    expected = [i for i in range(20) if i % 6 != 5]
    expect(part(view, "scatter")).to_contain_text(f"{len(expected)} selected")
    assert view.page.evaluate("new URLSearchParams(location.hash.split('?')[1]).get('sel')").startswith("loss:0-4.6-10")


def test_fields_are_chosen_and_kept_in_the_address(view: View) -> None:
    view.open("parameters?sweep=loss")
    expect(part(view, "scatter").locator("[data-dots='34']")).to_be_visible()
    part(view, "scatter").get_by_label("across").select_option("params.optimizer")
    part(view, "scatter").get_by_label("up").select_option("cost_seconds")
    expect(part(view, "scatter").locator("[data-dots='40']")).to_be_visible()  # failed trials have a cost, too
    assert "x=params.optimizer" in view.page.url and "y=cost_seconds" in view.page.url
    rows = table(view, "scatter")
    assert {row["params.optimizer"] for row in rows} == {"adam", "sgd", "muon"}


def test_a_sweep_without_models_still_shows_its_trials(view: View) -> None:
    view.open("parameters?sweep=loss")
    expect(part(view, "parallel").locator("[data-lines='34']")).to_be_visible()
    expect(part(view, "slices").locator(".part-body")).to_contain_text("holds no search space")
    expect(part(view, "importance").locator(".part-body")).to_contain_text("holds no search space")
    view.open("parameters?sweep=loss&sweep=pong")
    expect(part(view, "slices")).to_contain_text("Choose a single one")
    expect(part(view, "parallel").locator("[data-lines='39']")).to_be_visible()


def test_a_sweep_without_scores(view: View) -> None:
    view.open("parameters?sweep=failed")
    expect(part(view, "parallel")).to_contain_text("No trial has a score yet.")
    expect(part(view, "scatter").locator("[data-dots]")).to_be_visible()
    lists = part(view, "scatter").locator("select")
    assert lists.nth(0).input_value() != lists.nth(1).input_value() and lists.nth(0).input_value()
    view.open("parameters?sweep=new")
    expect(part(view, "parallel")).to_contain_text("No trial has a score yet.")
    expect(part(view, "scatter")).to_contain_text("No two fields differ between trials yet.")


def test_parameters_on_a_phone(phone: View) -> None:
    phone.open("parameters?sweep=pong")
    expect(part(phone, "scatter").locator("[data-dots]")).to_be_visible()
    expect(part(phone, "slices").locator("[data-state]")).to_be_attached()
    assert phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_the_model_expects_stays_within_the_possible_scores(
    planted_served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    [sweep, *_] = [one["name"] for one in asked(planted_served, "sweeps")["sweeps"]]
    free = patiently(planted_served, "slices", sweep=sweep, points=5)["slices"]
    values = [value for one in free for value in one["estimates"]["value"]]
    low, high = sorted(values)[len(values) // 4], sorted(values)[-len(values) // 4]
    monkeypatch.setattr("protein.web.pages.parameters.score_range", lambda env: (low, high))
    held = patiently(planted_served, "slices", sweep=sweep, points=5)["slices"]
    names = [one["name"] for one in held][:2]
    found = patiently(planted_served, "map", sweep=sweep, x=names[0], y=names[1], points=5)
    parts = [one["estimates"] for one in held]
    parts += [{key: [value for row in found[key] for value in row] for key in ("value", "low", "high")}]
    shown = [value for one in parts for key in ("value", "low", "high") for value in one[key]]
    assert (min(shown), max(shown)) == (pytest.approx(low), pytest.approx(high))


def patiently(served: Served, path: str, **values: Any) -> Any:
    """Asks until the model is fitted."""
    for _ in range(600):
        found = asked(served, path, **values)
        if found.get("state") != "computing":
            return found
        time.sleep(0.2)
    raise AssertionError("the model was not fitted")


def test_the_page_asks_again_while_a_newer_model_is_fitted(browser: Browser, planted_served: Served) -> None:
    earlier: list[Route] = []

    def answer(route: Route) -> None:
        response = route.fetch()
        found = response.json()
        if "slices" in found and not earlier:
            earlier.append(route)
            found |= {"fitting": True, "num_scores": 7}
        route.fulfill(response=response, json=found)

    with opened(browser, planted_served) as view:
        view.page.route("**/api/slices?*", answer)
        view.open("parameters?sweep=new-pong-1")
        expect(part(view, "slices")).to_contain_text("The model has learnt from 40 scores.")
    view.check()
    assert earlier


@pytest.mark.parametrize("path", ["slices", "map"])
def test_a_model_that_takes_long_is_asked_for_again(
    planted_served: Served, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """It is not told as a problem, after which the page would ask no more."""

    def fitted(*given: object) -> None:
        raise StillComputing("the model is being fitted")

    monkeypatch.setattr("protein.web.pages.parameters.fitted", fitted)
    name = asked(planted_served, "sweeps")["sweeps"][0]["name"]
    assert asked(planted_served, path, sweep=name) == {"state": "computing"}
