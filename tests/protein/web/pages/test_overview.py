"""The page Overview: its answer beside the store, and in a real browser what a browser alone does."""

from collections.abc import Callable
from typing import Any

import pytest
from browser import Served, View, asked, refused
from playwright.sync_api import Route, expect
from sample_trials import add_run, start_trial

from protein.api.overview import overview
from protein.storage import open_store
from protein.web.pages.overview import stop_loses

ViewOf = Callable[..., View]


def test_the_page_says_what_the_source_of_answers_does(served: Served) -> None:
    store = open_store(served.store_url)
    for name in ("pong", "failed", "new", "loss"):
        sweep = next(one for one in store.list_sweeps() if one.spec.name == name)
        found: Any = asked(served, "overview", sweep=name)
        assert found["headline"] == overview(store, sweep, served.store_url).headline, name
        assert found["curves"] == [] and found["requested"] == "run"
    store.close()
    assert refused(served, "overview") == (400, "name the sweep with sweep=NAME")
    assert refused(served, "overview", sweep="pang")[0] == 404


def test_what_runs_has_a_curve_beside_that_of_the_best(own_store: str) -> None:
    store = open_store(own_store)
    start_trial(store)
    store.close()
    served = Served(own_store)
    found: Any = asked(served, "overview", sweep="pong")
    served.stop()
    assert [one["number"] for one in found["running"]] == [7]
    running, best = found["curves"]
    assert (running["number"], running["seconds"], running["score"]) == (7, [1.0, 2.0], [1.0, 2.0])
    assert best["number"] == found["best_measured"] == 1


def test_the_four_answers_stand_there_before_and_after_the_models(own_store: str, view_of: ViewOf) -> None:
    view = view_of(own_store)  # of a server that has fitted nothing yet
    held: list[Route] = []
    view.page.route("**/api/overview/findings*", lambda route: held.append(route))
    view.open("overview?sweep=pong")
    answers = view.page.locator(".answers")
    expect(answers.get_by_role("region", name="What is best?")).to_contain_text("Best measured: trial 1, score 18.00")
    expect(answers.get_by_role("region", name="What matters?")).to_contain_text("are being ranked")
    assert view.page.locator("canvas").count() == 0  # nothing is loaded for charts yet
    view.page.unroute("**/api/overview/findings*")
    for route in held:
        route.continue_()
    expect(answers.get_by_role("region", name="Can I trust it?")).to_contain_text("was run once: it measured")
    best = answers.get_by_role("region", name="What is best?")
    expect(best.locator("code")).to_contain_text("train --env pong --from pong")
    expect(best.get_by_role("button", name="Copy")).to_be_visible()
    expect(answers.get_by_role("region", name="What next?")).to_contain_text("When it has ended: run trial")
    view.page.set_viewport_size({"width": 390, "height": 800})
    assert view.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    view.check_accessible()
    view.page.keyboard.press("d")
    view.check_accessible()


@pytest.mark.parametrize("score", [None, 17.0])
def test_news_of_the_store_change_the_page(own_store: str, view_of: ViewOf, score: float | None) -> None:
    view = view_of(own_store)
    view.open("overview?sweep=pong")
    expect(view.page.get_by_text("was run once")).to_be_visible()
    add_run(own_store, of=4, score=score)
    if score is None:
        expect(view.page.get_by_role("region", name="Running now")).to_contain_text("trial 7 no score yet")
    else:
        expect(view.page.get_by_text("It was run 2 times")).to_be_visible()


def test_what_a_stop_loses_depends_on_what_runs(served: Served) -> None:
    store = open_store(served.store_url)
    trainer, function = (next(one for one in store.list_sweeps() if one.spec.name == name) for name in ("pong", "loss"))
    store.close()
    assert stop_loses(trainer, []) == "No trial runs now, so nothing is lost."
    assert "when the sweep is run again" in stop_loses(trainer, [4.0, 5.5]).lower()
    assert stop_loses(trainer, [4.0, 5.5]).startswith("2 trials run and have taken 9.50s.")
    assert "one that returns is kept" in stop_loses(function, [1.0])
