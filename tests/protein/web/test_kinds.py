"""Every page shows every kind of sweep: of commands, of functions, imported ones, and one with a trial that waits."""

from collections.abc import Callable
from typing import Any

import pytest
from browser import View
from playwright.sync_api import expect
from store_samples import PROVENANCE, points

from protein.plots import curves, front, importance, parallel
from protein.ports import Store
from protein.space import Categorical, Float, Space
from protein.storage import open_store
from protein.types import Outcome, Suggestion, SuggestionKind, SweepRecord, SweepSpec, TrialEnd
from protein.web import report

ViewOf = Callable[..., View]
PAGES = ("table", "front", "curves", "compare", "compare?view=sweeps", "parameters", "overview", "trial/{name}/3")
FIT_MS = 90_000  # for the models, and the packages that they load
SPACE = Space([Float("lr", 1e-4, 1.0, scale="log"), Float("momentum", 0.0, 1.0), Categorical("opt", ("adam", "sgd"))])
COMMAND = {"program": "sh train.sh", "template": ["sh", "train.sh", "--lr", "{lr}"]}
# What is unusual about a sweep: its env is a text, no env of ours; its config is no run config.
KINDS: dict[str, dict[str, Any]] = {
    "command": {"env": "sh train.sh", "config": {"own": {"start": None}, "command": COMMAND}},
    "function": {"env": "mytask.train", "config": {"own": {"start": {"lr": 0.01, "momentum": 0.5, "opt": "adam"}}}},
    "imported": {"env": "protein pong", "method": "imported", "config": {"own": {"start": None}, "imported": {}}},
}


def fill(store: Store, kind: str) -> SweepRecord:
    """Adds a sweep of a kind with 14 finished trials, the last of which has failed, and one that waits."""
    given = {"method": "protein", **KINDS[kind]}
    spec = SweepSpec(name=kind, seed=0, space=SPACE.to_dict(), provenance=PROVENANCE, **given)
    sweep = store.create_sweep(spec, 600.0)
    for number in range(15):
        params = {"lr": 10 ** (-4 + number / 4), "momentum": number / 15, "opt": ("adam", "sgd")[number % 2]}
        trial = store.start_trial(
            sweep.id,
            Suggestion(params=params, kind=SuggestionKind.SEARCH, origin="improving the front"),
            seed=number,
            owner="test",
            lease_seconds=600.0,
            suggest_seconds=0.1,
            provenance=PROVENANCE,
        )
        store.add_measurements(trial, points(1, 9), 600.0)
        if number == 14:
            store.release_trial(trial, "preempted: the node was taken away")
            continue
        end = TrialEnd.CRASHED if number == 13 else TrialEnd.COMPLETE
        outcome = Outcome(
            end=end,
            score=None if end is TrialEnd.CRASHED else 10.0 - (number - 7) ** 2 / 10,
            cost_seconds=2.0 + number,
            steps=100,
            reason="exit code 3" if end is TrialEnd.CRASHED else "",
        )
        store.finish_trial(trial, outcome)
    return sweep


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a store with a sweep of each kind."""
    url = f"sqlite:///{tmp_path_factory.mktemp('kinds')}/protein.db"
    store = open_store(url)
    for kind in KINDS:
        fill(store, kind)
    store.close()
    return url


def test_every_page_shows_every_sweep(stored: str, view_of: ViewOf) -> None:
    """The view fails at its end if the browser has logged an error."""
    view = view_of(stored)
    for kind in KINDS:
        for page in PAGES:
            place = page.format(name=kind)
            view.open(f"{place}{'&' if '?' in place else '?'}sweep={kind}&sel={kind}:2.5.14")
            expect(view.page.locator("main .state.error"), place).to_have_count(0)
            expect(view.page.locator("main .state.loading"), place).to_have_count(0, timeout=FIT_MS)
            if page == "parameters":
                expect(view.page.locator(".part-body[data-state='ready']"), place).to_have_count(6)
            if page == "front":
                expect(view.page.locator(".big-answer strong"), place).to_be_visible()
    # A trial that waits is shown as one.
    view.open("table?sweep=function&filter=state == waiting")
    expect(view.page.locator("tbody tr[data-number]")).to_have_count(1)
    expect(view.page.locator("tbody tr[data-number='14']")).to_contain_text("waiting")
    view.open("overview?sweep=function")
    expect(view.page.locator("main")).to_contain_text("1 waiting")
    view.open("trial/function/14?sweep=function")
    expect(view.page.locator("main")).to_contain_text("waiting")
    expect(view.page.locator("main .state.error")).to_have_count(0)


def test_reports_and_pictures_of_every_kind(stored: str) -> None:
    store = open_store(stored)
    sweeps = store.list_sweeps()
    written = report.write(store, sweeps)
    store.close()
    assert all(sweep.spec.name in written.document for sweep in sweeps)
    for sweep in sweeps:
        for draw in (front, curves, parallel):
            assert draw(sweep.spec.name, store=stored).axes
    assert importance("imported", store=stored).axes
