"""Home: the table of sweeps as the server answers it, and in a real browser; the first answer over a slow line."""

import gzip
import json
import re
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import ODD_NAME, Served, View, asked, fill_loss, refused
from playwright.sync_api import Route, expect
from sample_trials import add_run, start_trial

from protein.api.answers import Answers
from protein.storage import open_store, open_whole_store
from protein.types import Outcome, Request, TrialEnd
from protein.web import viewer
from protein.web.app import STATIC, build, needed

ViewOf = Callable[..., View]


def rows(served: Served, **query: Any) -> dict[str, dict[str, Any]]:
    found = asked(served, "home", **query)
    listed = [dict(zip(found["shown"], row, strict=True)) for row in found["rows"]]
    return {row["sweep"]: row for row in listed}


def posted(served: Served, path: str, **body: Any) -> Any:
    headers = {"Content-Type": "application/json", "Origin": served.address.rstrip("/")}
    request = urllib.request.Request(f"{served.address}api/{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())


def test_each_sweep_has_a_row_that_filters_and_sorts_as_trials_do(served: Served) -> None:
    found = rows(served)
    assert list(found) == ["new", "failed", ODD_NAME, "loss", "pong"]
    assert (found["loss"]["score"], found["loss"]["best"], found["loss"]["failed_trials"]) == (0.0, 20, 6)
    assert found["loss"]["direction"] == "minimize" and found["loss"]["trials"] == 40
    assert found["pong"]["budget_seconds"] == 240.0 and found["pong"]["spent_seconds"] == pytest.approx(230.0)
    assert found["new"]["state"] == "new" and found["new"]["score"] is None
    assert list(rows(served, sort="-trials,sweep")) == ["loss", "pong", ODD_NAME, "failed", "new"]
    assert set(rows(served, filter="failed_trials > 0 and env == own")) == {"loss", "failed"}
    assert set(rows(served, filter="score == none")) == {"failed", "new"}
    assert rows(served, filter="state == stopping or state == failed") == {}
    assert len(rows(served, limit=2)) == 2
    assert refused(served, "home", filter="scroe > 1")[0] == 400
    assert "there is no column 'nothing'" in refused(served, "home", sort="nothing")[1]


def test_home_takes_what_is_kept_and_fits_nothing(
    own_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    served = Served(own_store)
    measured = rows(served)["pong"]
    assert (measured["best"], measured["score"], measured["score_low"]) == (1, 18.0, None)
    store = open_store(own_store)
    [sweep] = store.list_sweeps()
    kept = Answers(store, sweep, most=1)  # as of a very large one: those are kept
    best = kept.recommendation().best
    store.tag_sweeps([sweep.id], add_tags=["seen"])  # which changes no answer
    with monkeypatch.context() as patch:
        patch.setattr("protein.engine.recommend.learn", lambda *given: pytest.fail("a model was fitted"))
        found = rows(served)["pong"]
    score = best.contender.score
    assert (found["best"], found["score"]) == (best.trial.number, pytest.approx(score.value))
    assert (found["score_low"], found["score_high"]) == (pytest.approx(score.low), pytest.approx(score.high))
    add_run(own_store, of=best.trial.number, score=18.0)
    assert rows(served)["pong"]["score_low"] is None  # a confirmation makes what was kept an old answer
    store.close()
    served.stop()


def test_a_persons_own_stop_is_no_failure_and_states_have_words(
    own_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(viewer, "REFRESH_SECONDS", -1.0)
    served = Served(own_store)
    before, listed = rows(served)["pong"], asked(served, "sweeps")["sweeps"][0]["states"]
    store = open_store(own_store)
    [sweep] = store.list_sweeps()
    trial = start_trial(store)
    assert rows(served)["pong"]["running_trials"] == before["running_trials"] + 1
    store.finish_trial(trial, Outcome(end=TrialEnd.INTERRUPTED, reason="cancelled by hand", cost_seconds=1.0))
    found = rows(served)["pong"]
    assert (found["failed_trials"], found["interrupted_trials"]) == (
        before["failed_trials"],
        before["interrupted_trials"] + 1,
    )
    now = asked(served, "sweeps")["sweeps"][0]["states"]
    assert (now["failed"], now["interrupted"]) == (listed["failed"], listed["interrupted"] + 1)
    store.request(sweep.id, Request.PAUSE)
    assert rows(served)["pong"]["state"] == "paused"
    store.set_ended(sweep.id, "error: there is no disk")
    assert (rows(served)["pong"]["state"], rows(served)["pong"]["why"].split(";")[0]) == (
        "failed",
        "error: there is no disk",
    )
    store.close()
    served.stop()


def test_sweeps_are_put_away_and_taken_back(own_store: str) -> None:
    served = Served(own_store)
    assert posted(served, "tag", sweeps=["pong"], add_tags=["archived", "paper"]) == {"changed": 1}
    assert rows(served) == {} and asked(served, "home")["archived"] == 1
    found = rows(served, archived=1)["pong"]
    assert (found["tags"], found["archived"]) == (["paper"], True)
    assert list(rows(served, archived=1, filter="tags == paper")) == ["pong"]
    posted(served, "tag", sweeps=["pong"], remove_tags=["archived"])
    assert list(rows(served)) == ["pong"]
    wrong: tuple[dict[str, Any], ...] = (
        {"sweeps": []},
        {"sweeps": ["gone"]},
        {"sweeps": "pong"},
        {"sweeps": ["pong"], "add_tags": [1]},
    )
    for body in wrong:
        with pytest.raises(urllib.request.HTTPError):
            posted(served, "tag", **body)
    served.stop()


def test_texts_are_packed_and_files_of_this_build_are_kept(served: Served) -> None:
    def got(path: str, encoding: str) -> tuple[Any, bytes]:
        asking = urllib.request.Request(served.address + path, headers={"Accept-Encoding": encoding})
        with urllib.request.urlopen(asking) as answer:
            return answer.headers, answer.read()

    for path in ("", "api/sweeps", "static/lib/dom.js", "static/vendor/echarts.esm.min.js"):
        (head, packed), (plain_head, plain) = got(path, "gzip"), got(path, "identity")
        assert head["content-encoding"] == "gzip" and plain_head["content-encoding"] is None
        assert head["vary"].lower() == "accept-encoding"
        assert len(packed) < len(plain) / 1.5 and gzip.decompress(packed) == plain
    assert "immutable" in got(f"static/{build()}/app.js", "gzip")[0]["cache-control"]
    for other in ("static/app.js", "static/build-0/app.js"):  # a page of before an upgrade
        assert got(other, "gzip")[0]["cache-control"] == "no-cache"


def test_the_first_page_is_small() -> None:
    """What the browser loads for a page, packed; the largest library is drawn last."""
    size = {
        path: len(gzip.compress((STATIC / path).read_bytes())) for names in needed(build()).values() for path in names
    }
    always = len(gzip.compress((STATIC / "index.html").read_bytes())) + sum(size[path] for path in needed(build())[""])
    always += sum(len(gzip.compress(path.read_bytes())) for path in (STATIC / "css").glob("*.css"))
    for page, names in needed(build()).items():
        assert always + sum(size[path] for path in names) < 450_000, page


@pytest.mark.parametrize("place", ["overview?sweep=pong", "trial/loss/3", "home", "front?sweep=pong"])
def test_a_page_asks_for_its_sweeps_and_itself_at_once(new_view: View, place: str) -> None:
    """All answers are held back, as by a slow line: what was asked for until then takes one round trip."""
    held: list[Route] = []
    path = re.split(r"[/?]", place)[0]
    new_view.page.route("**/api/**", lambda route: held.append(route))
    with new_view.page.expect_request(f"**/api/{path}?*"):
        new_view.page.goto(f"{new_view.address}#/{place}")
    expect(new_view.page.get_by_text("Loading", exact=True)).to_be_visible()
    expect(new_view.page.get_by_role("heading", level=1)).to_have_count(1)  # what it is going to be
    assert any(route.request.url.endswith("/api/sweeps") for route in held)
    new_view.page.unroute("**/api/**")
    for route in held:
        route.continue_()
    expect(new_view.page.get_by_text("Loading", exact=True)).to_be_hidden()
    expect(new_view.page.get_by_role("heading", level=1)).to_have_count(1)


def test_sweeps_are_found_compared_and_archived(own_store: str, view_of: ViewOf) -> None:
    fill_loss(own_store, num_trials=8)
    view = view_of(own_store)
    view.page.goto(view.address)  # the store has several sweeps, so it opens here
    expect(view.page.get_by_role("heading", name="Sweeps")).to_be_visible()
    lines = view.page.locator(".home-table tbody tr")
    expect(lines).to_have_count(2)
    view.check_accessible()
    view.page.get_by_label("Filter sweeps").fill("env == pong")
    expect(lines).to_have_count(1)
    view.page.get_by_label("Filter sweeps").fill("env ==")
    expect(view.page.locator(".filter-error")).to_be_visible()
    expect(lines).to_have_count(1)  # the last good rows stay
    view.page.get_by_label("Filter sweeps").fill("")
    expect(lines).to_have_count(2)
    view.allow("status of 400")
    view.page.get_by_label("Choose loss").check()
    view.page.get_by_role("button", name="Archive").click()
    expect(lines).to_have_count(1)
    view.page.get_by_role("button", name="Undo").click()
    expect(lines).to_have_count(2)
    view.page.get_by_label("Choose all sweeps").check()
    view.page.get_by_role("button", name="Compare").click()
    expect(view.page).to_have_url(f"{view.address}#/compare?sweep=loss&sweep=pong&view=sweeps")


def test_a_sweep_that_is_removed_while_it_is_open_is_said(own_store: str, view_of: ViewOf) -> None:
    fill_loss(own_store, num_trials=2)
    view = view_of(own_store)
    view.open("table?sweep=loss")
    store = open_whole_store(own_store)
    store.rename_sweep("loss", "lower")
    store.close()
    view.allow("status of 404")
    expect(view.page.get_by_text("The store does not hold “loss” any more")).to_be_visible()
    view.page.get_by_role("button", name="All sweeps").click()
    expect(view.page.locator(".home-table").get_by_role("link", name="lower")).to_be_visible()
