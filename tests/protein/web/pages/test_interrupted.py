"""A trial whose process has died is stored as running. All pages in a real browser say that it is interrupted."""

from collections.abc import Callable

import pytest
from browser import Served, View, asked
from playwright.sync_api import expect
from sample_trials import add_run, curve
from store_samples import ended_owner

from protein.storage import open_store

ViewOf = Callable[..., View]
DEAD = ended_owner()
TOLD = "Trial 7 of pong was interrupted: its process is gone. Start the sweep again to go on."


@pytest.fixture
def left_store(own_store: str) -> str:
    """Trial 7 has trained for 4 seconds when its process died; trial 8 runs."""
    add_run(own_store, of=1, owner=DEAD)
    add_run(own_store, of=2)
    store = open_store(own_store)
    [sweep] = store.list_sweeps()
    store.add_measurements(store.trial(sweep.id, 7), curve(12.0, 4.0), 600.0)
    store.close()
    return own_store


def test_the_pages_tell_it_and_a_closed_line_stays_closed(left_store: str, view_of: ViewOf) -> None:
    view = view_of(left_store)
    view.open("table?sweep=pong")
    expect(view.page.locator(".notice")).to_contain_text(TOLD)
    expect(view.page.locator("tr[data-number='7']")).to_contain_text("interrupted")
    expect(view.page.locator("tr[data-number='8']")).to_contain_text("running")
    expect(view.page.locator("tr[data-number='8'] .no-score")).to_have_class("number no-score unfinished")
    view.page.get_by_role("button", name="Close this message").click()
    view.page.get_by_role("link", name="Overview", exact=True).click()
    expect(view.page.locator(".overview-line")).to_contain_text("1 running")
    expect(view.page.locator(".overview-line")).to_contain_text(
        "2 interrupted"
    )  # one in the end, and one whose process is gone
    expect(view.page.locator(".notice")).to_have_count(0)


def test_its_own_page_says_what_to_do(left_store: str, view_of: ViewOf) -> None:
    view = view_of(left_store)
    view.open("trial/pong/7")
    expect(view.page.locator(".trial-head")).to_contain_text("interrupted")
    expect(view.page.locator(".failure strong")).to_have_text(
        "Interrupted: its process is gone; start the sweep again to go on."
    )
    expect(view.page.get_by_text("it runs", exact=True)).to_have_count(0)
    view.open("trial/pong/8")
    expect(view.page.locator(".trial-head")).to_contain_text("running")
    expect(view.page.locator(".failure")).to_have_count(0)


def test_the_time_line_ends_it_where_it_ended(left_store: str) -> None:
    served = Served(left_store)
    found = asked(served, "sweep", sweep="pong")
    bars = {bar["number"]: bar for bar in found["timeline"]["bars"]}
    assert (bars[7]["state"], bars[8]["state"]) == ("interrupted", "running")
    assert bars[7]["end"] - bars[7]["start"] == pytest.approx(4.0)
    served.stop()
