"""The page that compares, in a real browser: trials side by side, and sweeps over each other."""

import csv
import re
from collections.abc import Callable

import pytest
from browser import View
from playwright.sync_api import Locator, Route, expect
from sample_trials import report, start_trial

from protein.storage import open_store

NAMES = "&".join(f"sweep={side}-pong-{seed}" for side in ("old", "new") for seed in (1, 2))


def row(view: View, name: str) -> list[str]:
    """The values of a row, each with its difference from the reference."""
    found = view.page.locator("table.compare tr").filter(has=view.page.locator(f"th.row-name:text-is('{name}')"))
    return [text.replace("\n", " ") for text in found.locator("td").all_inner_texts()]


def heads(view: View) -> Locator:
    return view.page.locator("table.compare thead th:not(.row-name)")


def test_only_what_differs_is_shown_against_a_reference(view: View) -> None:
    view.open("compare?sweep=loss&sel=loss:1.4.7")
    expect(heads(view)).to_have_count(3)
    assert row(view, "score") == ["3.610", "2.560 −1.050", "1.690 −1.920"]
    better = view.page.locator("table.compare .delta.good").first
    expect(better).to_have_text("−1.050")  # a lower loss is better
    assert row(view, "optimizer") == [], "all three are sgd"
    assert row(view, "layers") == ["2", "1 ×0.5", "4 ×2"]
    assert row(view, "nesterov") == ["no", "yes", "no"]
    expect(view.page.get_by_text(re.compile(r"3 trials against trial 1\."))).to_be_visible()
    view.page.get_by_label("all rows").check()
    expect(view.page.locator("table.compare")).to_contain_text("optimizer")
    assert row(view, "optimizer") == ["sgd", "sgd", "sgd"]
    view.page.get_by_label("all rows").uncheck()
    heads(view).nth(2).hover()
    heads(view).nth(2).get_by_role("button", name="make reference").click()
    expect(view.page.get_by_text(re.compile(r"against trial 7\."))).to_be_visible()
    assert row(view, "score") == ["3.610 +1.920", "2.560 +0.870", "1.690"]
    view.page.reload()
    expect(view.page.get_by_text(re.compile(r"against trial 7\."))).to_be_visible()


def test_what_is_chosen_while_a_part_loads_is_done_when_it_is_there(new_view: View) -> None:
    new_view.open("compare?sweep=loss&sel=loss:1.4.7&view=sweeps")
    expect(new_view.page.get_by_text("Choose two or more sweeps.")).to_be_visible()
    held: list[Route] = []
    new_view.page.route("**/api/curves?*", lambda route: held.append(route))
    new_view.page.get_by_role("button", name="Trials").click()
    expect(heads(new_view)).to_have_count(3)
    new_view.page.get_by_label("all rows").check()
    while not held:
        new_view.page.wait_for_timeout(20)
    assert row(new_view, "optimizer") == []
    held[0].continue_()
    expect(new_view.page.locator("table.compare")).to_contain_text("optimizer")


def test_what_a_trial_makes_while_a_part_loads_is_shown(view_of: Callable[..., View], own_store: str) -> None:
    store = open_store(own_store)
    trial = start_trial(store)
    view = view_of(own_store)
    view.open("compare?sweep=pong&sel=pong:6.7&view=sweeps")
    held: list[Route] = []
    view.page.route("**/api/curves?*", lambda route: route.continue_() if held else held.append(route))
    view.page.get_by_role("button", name="Trials").click()
    expect(heads(view)).to_have_count(2)
    assert row(view, "steps")[-1].startswith("20 ")
    report(store, trial, 3)
    view.page.wait_for_timeout(1500)  # the news of it come within a second
    assert row(view, "steps")[-1].startswith("20 ")
    held[0].continue_()
    expect(view.page.locator("table.compare")).to_contain_text("30 ×")
    store.close()


def test_a_trial_can_be_taken_out_and_opened_and_the_table_saved(view: View) -> None:
    view.open("compare?sweep=loss&sel=loss:1.4.7")
    expect(view.page.locator(".u-over")).to_be_visible()  # their curves, below
    view.page.locator(".toolbar-rest").get_by_role("button", name="Save").click()
    with view.page.expect_download() as download:
        view.page.get_by_role("button", name="CSV").click()
    with download.value.path().open(newline="") as file:
        rows = {line[0]: line[1:] for line in csv.reader(file)}
    assert rows["field"] == ["loss 1", "loss 4", "loss 7"] and rows["score"] == ["3.61", "2.56", "1.69"]
    heads(view).nth(1).hover()
    view.page.get_by_role("button", name="Take trial 4 out").click()
    expect(heads(view)).to_have_count(2)
    assert "sel=loss:1.7" in view.page.url
    heads(view).first.get_by_role("link").click()
    expect(view.page).to_have_url(re.compile(r"#/trial/loss/1\?"))


def test_trials_of_two_sweeps_a_failed_one_and_none(view: View) -> None:
    view.open("compare?sweep=loss&sweep=pong&sel=loss:5,pong:1")
    expect(heads(view).first).to_contain_text("loss 5")
    assert row(view, "score") == ["–", "18.00"]
    assert row(view, "state") == ["failed", "complete"]
    assert row(view, "lr")[1] == ""
    view.open("compare?sweep=loss")
    expect(view.page.get_by_text("No trial is selected.")).to_be_visible()
    view.page.get_by_role("button", name="Sweeps").click()
    expect(view.page.get_by_text("Choose two or more sweeps.")).to_be_visible()


def test_a_trial_that_is_not_there_can_be_left_out(view: View) -> None:
    view.open("compare?sweep=loss&sel=loss:1.4.77")
    expect(heads(view)).to_have_count(2)
    expect(view.page.get_by_text("Sweep loss has no trial 77.")).to_be_visible()
    view.page.get_by_role("button", name="Leave it out").click()
    expect(view.page.get_by_text("has no trial 77")).to_have_count(0)
    expect(view.page).to_have_url(re.compile(r"sel=loss:1\.4$"))
    expect(heads(view)).to_have_count(2)
    view.open("compare?sweep=loss&sel=loss:77.78")
    expect(view.page.get_by_text("2 of the selected trials are not there")).to_be_visible()
    view.page.get_by_role("button", name="Leave them out").click()
    expect(view.page.get_by_text("No trial is selected.")).to_be_visible()


def test_old_against_new_both_tuned(view_of_planted: View) -> None:
    view = view_of_planted
    view.open(f"compare?{NAMES}")
    room = view.page.locator(".compare-room[data-sides='old|new']")
    expect(room).to_be_visible()
    expect(room.locator(".headline")).to_contain_text("new is better than old in its best config")
    figures = room.locator("table.side-figures tbody tr")
    expect(figures).to_have_count(2)
    best = [float(text) for text in figures.locator("td:nth-child(4) > span:first-child").all_inner_texts()]
    assert 1.0 >= best[0] > best[1]  # the winner first
    raw = figures.locator("td:nth-child(3)").all_inner_texts()
    expect(room.locator(".headline")).to_contain_text(f"score {raw[0]} instead of {raw[1]}")
    expect(figures.nth(0)).to_contain_text("2")  # seeds
    expect(view.page.locator(".u-over")).to_have_count(2)  # best so far, and the front
    figures.nth(0).get_by_role("button", name="make reference").click()
    expect(view.page.locator(".headline")).to_contain_text("new is better than old")
    view.page.get_by_label("seeds together").uncheck()
    expect(view.page.locator("table.side-figures tbody tr")).to_have_count(4)
    expect(view.page.locator(".headline")).to_contain_text("With one seed on a side")


def test_sides_may_be_named(view_of_planted: View) -> None:
    view = view_of_planted
    view.open("compare?sweep=old-pong-1&sweep=new-pong-1")
    view.page.get_by_role("button", name="Sides").click()
    view.page.get_by_label("Side of old-pong-1").fill("PPO")
    view.page.get_by_label("Side of new-pong-1").fill("PPO + memory")
    view.page.get_by_role("button", name="Compare", exact=True).click()
    expect(view.page.locator(".compare-room[data-sides='PPO|PPO + memory']")).to_be_visible()
    view.page.reload()
    expect(view.page.locator(".headline")).to_contain_text("PPO + memory is ahead of PPO")
    expect(view.page.get_by_text("0 is score")).to_be_visible()
    view.page.locator(".picker-button").click()  # the sides were those of two sweeps
    view.page.get_by_label("Show new-pong-2 with the others").check()
    expect(view.page.locator(".compare-room[data-sides='old-pong-1|new']")).to_be_visible()


def test_what_cannot_be_compared_says_why(view: View) -> None:
    view.open("compare?sweep=loss&sweep=pong")
    expect(view.page.get_by_text("no environment in common")).to_be_visible()
    view.open("compare?sweep=loss&sweep=failed")
    expect(view.page.get_by_text("has no complete trial yet")).to_be_visible()


def test_of_many_selected_trials_the_best_are_compared(view: View) -> None:
    view.open("compare?sweep=loss&sel=loss:0-39")
    expect(heads(view)).to_have_count(24)
    expect(view.page.get_by_text("The best 24 of 40 selected ones are shown.")).to_be_visible()
    scores = [float(text.split()[0]) for text in row(view, "score")]
    every = sorted((i - 20) ** 2 / 100 for i in range(40) if i % 6 != 5)
    assert scores == [pytest.approx(one, abs=1e-3) for one in every[:24]]


def test_compare_on_a_phone_and_for_everybody(phone: View) -> None:
    phone.open("compare?sweep=loss&sel=loss:1.4.7.5")
    expect(heads(phone)).to_have_count(4)
    assert phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    phone.check_accessible()


def test_compared_sweeps_for_everybody(view_of_planted: View) -> None:
    view_of_planted.open(f"compare?{NAMES}")
    expect(view_of_planted.page.locator("table.side-figures")).to_be_visible()
    view_of_planted.check_accessible()


def test_the_best_trials_are_compared_where_none_is_selected(view: View) -> None:
    view.open("compare?sweep=loss")
    view.page.get_by_role("button", name="Compare the best five").click()
    expect(heads(view)).to_have_count(5)
    assert row(view, "score")[2] == "0.000"  # of trial 20: lower is better
    expect(view.page.locator("th.reference")).to_contain_text("trial 20")
    expect(view.page).to_have_url(re.compile("sel=loss:18-22"))
    view.open("compare?sweep=failed")
    view.page.get_by_role("button", name="Compare the best five").click()
    expect(view.page.get_by_text("No trial of failed is complete yet.")).to_be_visible()
