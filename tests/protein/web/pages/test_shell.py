"""The shell in a real browser: the token, the content policy, news; and that the guard of these tests can fail."""

import http.client
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from browser import Served, View, fill_sweep, watched
from patience import PATIENCE_SECONDS
from playwright.sync_api import Browser, expect
from sample_trials import add_run

from protein.storage import open_store
from protein.web.viewer import MAX_SWEEPS

ViewOf = Callable[..., View]


def test_the_guard_sees_errors_outside_requests_and_poor_access(browser: Browser, served: Served) -> None:
    context = browser.new_context()
    view = watched(context.new_page(), served.address)
    view.open("table?sweep=pong")
    view.check()
    view.page.evaluate("console.error('something broke')")
    with pytest.raises(AssertionError, match="something broke"):
        view.check()
    view.allow("something broke")
    view.check()
    view.page.evaluate("setTimeout(() => { throw new Error('thrown') })")
    view.page.evaluate("new Image().src = 'http://outside.example/x.png'")
    view.page.wait_for_timeout(200)
    with pytest.raises(AssertionError, match=r"thrown[\s\S]*outside\.example|outside\.example[\s\S]*thrown"):
        view.check()
    view.page.evaluate("document.querySelector('main').append(document.createElement('input'))")
    with pytest.raises(AssertionError, match="label"):
        view.check_accessible()
    context.close()


def test_nothing_that_slips_into_the_page_runs(new_view: View) -> None:
    new_view.allow("Content Security Policy")
    new_view.open("table?sweep=pong")
    new_view.page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x: onerror=\"window.hacked = 1\">"
        '<a id=trap href="javascript:window.hacked = 2">x</a><iframe src="https://outside.example"></iframe>\');'
        "const script = document.createElement('script'); script.textContent = 'window.hacked = 3';"
        "document.body.append(script); document.getElementById('trap').click();"
    )
    new_view.page.wait_for_timeout(200)
    assert new_view.page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in problem for problem in new_view.problems)
    new_view.allow("outside.example|x:")


def test_the_address_with_the_token_opens_the_page_and_keeps_the_view(own_store: str, browser: Browser) -> None:
    served = Served(own_store, token="of-this-test")
    context = browser.new_context()
    view = watched(context.new_page(), served.address)
    view.page.goto(f"{served.address}?token=of-this-test#/table?sweep=pong&sort=score")
    expect(view.page.locator("tbody tr[data-index]")).to_have_count(7)
    assert view.page.url == f"{served.address}#/table?sweep=pong&sort=score"
    add_run(own_store, of=1, score=17.5)
    expect(view.page.locator("tbody tr[data-index]")).to_have_count(8)  # the stream has the cookie, too
    stranger = browser.new_context()
    answer = stranger.new_page().goto(served.address)
    assert answer is not None and answer.status == 401
    assert "needs its token" in answer.text()
    stranger.close()
    context.close()
    served.stop()
    view.check()


def test_the_stream_names_what_changed_and_nothing_else(own_store: str) -> None:
    served = Served(own_store)
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=PATIENCE_SECONDS)
    connection.request("GET", "/api/changes?sweep=pong&sweep=unknown")
    stream = connection.getresponse()
    assert stream.getheader("content-type") == "text/event-stream; charset=utf-8"

    def event() -> tuple[str, object]:
        lines = iter(stream.readline, b"")
        name = next(line for line in lines if line.startswith(b"event: ")).decode()
        return name.removeprefix("event: ").strip(), json.loads(next(lines).removeprefix(b"data: "))

    name, greeting = event()
    assert name == "hello" and isinstance(greeting, dict) and greeting["epoch"]
    store = open_store(own_store)
    [sweep] = store.list_sweeps()
    store.annotate(sweep.id, [2, 5], tags=["seen"])
    name, news = event()
    assert name == "changed" and isinstance(news, dict)
    [change] = news["sweeps"]
    assert (change["name"], change["trials"], change["numbers"]) == ("pong", 7, [2, 5])
    store.set_budget(sweep.id, 999.0)
    assert event() == ("sweeps", {})
    store.close()
    connection.close()
    served.stop()


def test_a_page_that_cannot_be_loaded_says_so_and_tries_again(new_view: View) -> None:
    new_view.allow("status of 500|Failed to load")
    fail = True
    new_view.page.route(
        "**/api/table?*",
        lambda route: route.fulfill(status=500, json={"error": "no luck"}) if fail else route.continue_(),
    )
    new_view.open("table?sweep=pong")
    expect(new_view.page.get_by_text("no luck")).to_be_visible()
    fail = False
    new_view.page.get_by_role("button", name="Try again").click()
    expect(new_view.page.locator("tbody tr[data-index]")).to_have_count(7)
    expect(new_view.page.get_by_text("no luck")).to_be_hidden()


def test_more_sweeps_than_fit_into_a_view_are_refused_in_words(view_of: ViewOf, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/many.db"
    names = [f"s{i:02d}" for i in range(MAX_SWEEPS + 1)]
    for name in names:
        fill_sweep(url, name, [])
    view = view_of(url)
    view.open("table?" + "&".join(f"sweep={name}" for name in names))
    expect(view.page.get_by_text(f"At most {MAX_SWEEPS} sweeps can be looked at together.")).to_be_visible()
    expect(view.page.locator(".picker-label")).to_have_text(f"s00 and {MAX_SWEEPS - 1} more")
    view.page.locator(".picker-button").click()
    view.page.get_by_label(f"Show {names[-1]} with the others").click()
    expect(view.page.get_by_label(f"Show {names[-1]} with the others")).not_to_be_checked()
    assert f"sweep={names[-1]}" not in view.page.url


def test_other_sweeps_are_chosen_on_the_page_of_no_trial(view: View) -> None:
    view.open("trial?sweep=pong")
    expect(view.page.get_by_text("Choose a trial.")).to_be_visible()
    view.page.locator(".picker-button").click()
    view.page.locator("button.menu-item", has_text="loss").click()
    expect(view.page).to_have_url(f"{view.address}#/trial?sweep=loss")
    expect(view.page.get_by_role("link", name="trial 20 of loss")).to_be_visible()


def test_moving_between_pages_keeps_sweep_filter_and_selection(view: View) -> None:
    view.open("table?sweep=loss&filter=score%20%3C%201&sel=loss:14-16")
    expect(view.page.get_by_text("3 selected")).to_be_visible()
    view.page.keyboard.press("g")
    view.page.keyboard.press("o")
    expect(view.page).to_have_url(f"{view.address}#/overview?sweep=loss&sel=loss:14-16&filter=score%20%3C%201")
    view.page.go_back()
    expect(view.page.get_by_text("3 selected")).to_be_visible()
    expect(view.page.get_by_label("Filter trials")).to_have_value("score < 1")
    expect(view.page).to_have_title("loss · Table · Protein")
