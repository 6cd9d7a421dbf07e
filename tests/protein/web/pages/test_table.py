"""The page in a real browser: the shell around all pages, and the table of trials."""

import csv
import dataclasses
import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from browser import ODD_NAME, Served, View, fill_loss, fill_sweep
from playwright.sync_api import Locator, Route, expect
from sample_trials import add_run
from store_samples import complete, start

from protein.analysis.columns import Kind, column_of
from protein.analysis.filters import Shown, matching
from protein.storage import open_store
from protein.view.text import table_number

pytestmark = pytest.mark.slow  # minutes in a browser without a GPU; pages of the other files stay in `make test`

ViewOf = Callable[..., View]


def rows(view: View) -> Locator:
    return view.page.locator("tbody tr[data-index]")


def numbers(view: View) -> list[int]:
    """The trials in the order in which they are shown."""
    found: list[str] = rows(view).evaluate_all("(rows) => rows.map((row) => row.dataset.number)")
    return [int(number) for number in found]


def cells(view: View, number: int) -> list[str]:
    return view.page.locator(f"tbody tr[data-number='{number}'] td").all_inner_texts()


def head(view: View, name: str) -> Locator:
    return view.page.locator("thead").get_by_role("button", name=name, exact=True)


def filtered(view: View, text: str) -> None:
    view.page.get_by_label("Filter trials").fill(text)


def test_the_newest_sweep_opens_and_trials_show_their_values(view: View) -> None:
    view.open("table?sweep=pong")
    expect(rows(view)).to_have_count(7)
    assert numbers(view) == [6, 5, 4, 3, 2, 1, 0]
    assert cells(view, 1)[1:5] == ["1", "complete", "18.00", "40.0s"]
    assert cells(view, 2)[1:5] == ["2", "failed", "failed", "20.0s"]  # a failure is a value
    assert cells(view, 5)[2] == "capped"
    expect(view.page.get_by_text("7 trials")).to_be_visible()


def test_sorting_by_a_head_and_by_a_second_one(view: View) -> None:
    view.open("table?sweep=pong")
    head(view, "score").click()
    expect(view.page.locator("th[aria-sort=descending]")).to_have_text(re.compile("score"))
    expect(rows(view).first).to_have_attribute("data-number", "5")
    assert numbers(view)[-2:] == [2, 6]  # without a score: last
    head(view, "score").click()
    expect(rows(view).first).to_have_attribute("data-number", "0")
    assert numbers(view)[-2:] == [2, 6]
    head(view, "cost").click(modifiers=["Shift"])
    expect(view.page.locator("th[aria-sort]")).to_have_count(2)
    assert "sort=score,-cost_seconds" in view.page.url
    view.page.reload()  # the address keeps the view
    expect(rows(view).first).to_have_attribute("data-number", "0")
    assert numbers(view) == [0, 3, 4, 1, 5, 2, 6]


def test_a_filter_is_applied_kept_in_the_address_and_explained(view: View) -> None:
    view.allow("status of 400")
    view.open("table?sweep=loss")
    filtered(view, "score < 0.5 and optimizer in (adam, muon)")
    expect(view.page.get_by_text(re.compile("of 40 trials"))).to_be_visible()
    expected = [i for i in range(39, -1, -1) if i % 6 != 5 and (i - 20) ** 2 / 100 < 0.5 and i % 3 != 1]
    assert numbers(view) == expected
    filtered(view, "lerning < 3")
    expect(view.page.get_by_role("alert")).to_contain_text("character 1: there is no column 'lerning'")
    expect(view.page.get_by_label("Filter trials")).to_have_attribute("aria-invalid", "true")
    filtered(view, "score > 1e6")
    expect(view.page.get_by_text("No trial matches this filter.")).to_be_visible()
    view.page.get_by_role("button", name="Clear the filter").last.click()
    expect(view.page.get_by_text("40 trials", exact=True)).to_be_visible()


def test_rows_are_selected_by_mouse_shift_and_keyboard_for_the_other_pages(view: View) -> None:
    view.open("table?sweep=loss")
    rows(view).nth(1).locator("td").nth(3).click()
    rows(view).nth(4).locator("td").nth(3).click(modifiers=["Shift"])
    expect(view.page.get_by_text("4 selected")).to_be_visible()
    assert "sel=loss:35-38" in view.page.url
    assert "sel=loss" in (view.page.get_by_role("link", name="Curves").last.get_attribute("href") or "")
    view.page.keyboard.press("Escape")
    expect(view.page.locator("tbody tr.chosen")).to_have_count(0)
    view.page.keyboard.press("Home")
    view.page.keyboard.press("j")
    view.page.keyboard.press("Space")
    view.page.keyboard.press("Shift+ArrowDown")
    view.page.keyboard.press("Shift+ArrowDown")
    expect(view.page.get_by_text("3 selected")).to_be_visible()
    assert "sel=loss:36-38" in view.page.url
    view.page.keyboard.press("a")
    expect(view.page.get_by_text("40 selected")).to_be_visible()
    expect(view.page.get_by_label("Select all trials that match")).to_be_checked()


def test_columns_are_chosen_and_pinned(view: View) -> None:
    view.open("table?sweep=loss")
    view.page.get_by_role("button", name="Columns").click()
    panel = view.page.get_by_role("dialog", name="Choose columns")
    panel.get_by_label("Find a column").fill("seed")
    expect(panel.get_by_text("No column has that in its name.")).to_be_visible()
    panel.get_by_label("Find a column").fill("")
    panel.get_by_label("steps", exact=True).check()
    panel.get_by_label("lr", exact=True).uncheck()
    panel.get_by_label("Keep optimizer in sight").click()
    view.page.keyboard.press("Escape")
    expect(head(view, "steps")).to_be_visible()
    expect(head(view, "lr")).to_have_count(0)
    expect(view.page.locator("thead th.stuck")).to_have_count(3)
    expect(view.page.locator("thead th").nth(2)).to_have_text("optimizer")  # behind the box and the trial's number


def test_tags_notes_and_exclusions_are_stored_shown_and_undone(own_store: str, view_of: ViewOf) -> None:
    view = view_of(own_store)
    view.open("table?sweep=pong&sel=pong:1.4")
    view.page.get_by_role("button", name="Exclude").click()
    expect(view.page.locator("tbody tr.excluded")).to_have_count(2)
    store = open_store(own_store)
    [sweep] = store.list_sweeps()
    assert [trial.number for trial in store.trials(sweep.id) if trial.excluded] == [1, 4]
    view.page.get_by_role("button", name="Undo").click()
    expect(view.page.locator("tbody tr.excluded")).to_have_count(0)
    assert not any(trial.excluded for trial in store.trials(sweep.id))
    view.page.get_by_role("button", name="Tag", exact=True).click()
    view.page.get_by_label("Name of a tag").fill("lucky run")
    view.page.keyboard.press("Enter")
    expect(rows(view).get_by_text("lucky run", exact=True)).to_have_count(2)
    view.page.get_by_role("button", name="Note", exact=True).click()
    view.page.get_by_label("Note", exact=True).fill("looks like <b>an exploit</b>")
    view.page.get_by_role("button", name="Save the note").click()
    expect(rows(view).get_by_text("looks like <b>an exploit</b>")).to_have_count(2)
    filtered(view, '"lucky run" in tags and number > 1')
    expect(rows(view)).to_have_count(1)
    noted = {trial.number: (trial.tags, trial.note) for trial in store.trials(sweep.id) if trial.note}
    store.close()
    assert noted == dict.fromkeys((1, 4), (("lucky run",), "looks like <b>an exploit</b>"))


def test_undo_brings_back_what_each_trial_had(own_store: str, view_of: ViewOf) -> None:
    store = open_store(own_store)
    [sweep] = store.list_sweeps()
    store.annotate(sweep.id, 1, excluded=True, tags=["b", "a"], note="seen")
    store.annotate(sweep.id, 4, tags=["lucky"])

    def annotated() -> dict[int, tuple[bool, tuple[str, ...], str]]:
        return {trial.number: (trial.excluded, trial.tags, trial.note) for trial in store.trials(sweep.id)}

    before = annotated()
    view = view_of(own_store)
    view.open("table?sweep=pong&sel=pong:1.2.4")
    undo = view.page.get_by_role("button", name="Undo")

    view.page.get_by_role("button", name="Exclude").click()
    expect(view.page.locator("tbody tr.excluded")).to_have_count(3)
    undo.click()
    expect(view.page.locator("tbody tr.excluded")).to_have_count(1)
    assert annotated() == before

    for action in ("Add", "Remove"):
        view.page.get_by_role("button", name="Tag", exact=True).click()
        view.page.get_by_label("Name of a tag").fill("lucky" if action == "Add" else "b")
        view.page.get_by_role("button", name=action, exact=True).click()
        expect(view.page.get_by_text("tagged" if action == "Add" else "without the tag")).to_be_visible()
        assert annotated() != before
        undo.click()
        expect(view.page.get_by_text("3 trials as before.")).to_be_visible()
        assert annotated() == before

    view.page.get_by_role("button", name="Note", exact=True).click()
    view.page.get_by_label("Note", exact=True).fill("other")
    view.page.get_by_role("button", name="Save the note").click()
    expect(view.page.get_by_text("3 trials noted.")).to_be_visible()
    undo.click()
    expect(view.page.get_by_text("3 trials as before.")).to_be_visible()
    assert annotated() == before
    store.close()


def test_a_change_is_undone_from_another_page(own_store: str, view_of: ViewOf) -> None:
    view = view_of(own_store)
    view.open("table?sweep=pong&sel=pong:1")
    view.page.get_by_role("button", name="Exclude").click()
    expect(view.page.locator("tbody tr.excluded")).to_have_count(1)
    view.page.get_by_role("navigation", name="Pages").get_by_role("link", name="Curves").click()
    view.page.wait_for_url("**/#/curves**")
    view.page.get_by_role("button", name="Undo", exact=True).click()
    expect(view.page.get_by_text("Trial 1 as before.")).to_be_visible()
    store = open_store(own_store)
    assert not any(trial.excluded for trial in store.trials(store.list_sweeps()[0].id))
    store.close()


def test_a_column_with_commas_in_its_name_is_sorted_by(tmp_path: Path, view_of: ViewOf) -> None:
    url = f"sqlite:///{tmp_path}/protein.db"
    fill_sweep(url, "commas", [({"a,b,c 5% 9%": float(x)}, 1.0, 1.0, "") for x in (2, 3, 1)])
    view = view_of(url)
    view.open("table?sweep=commas")
    head(view, "a,b,c 5% 9%").click()
    expect(view.page.locator("th[aria-sort=descending]")).to_have_text(re.compile("a,b,c"))
    expect(rows(view).first).to_have_attribute("data-number", "1")
    assert numbers(view) == [1, 0, 2]


def test_the_table_is_saved_as_csv(view: View) -> None:
    view.open("table?sweep=loss&filter=score%20%3C%200.05&sort=score")
    expect(rows(view)).to_have_count(5)
    with view.page.expect_download() as saving:
        view.page.get_by_role("button", name="Save CSV").click()
    saved = list(csv.DictReader(io.StringIO(Path(saving.value.path()).read_text())))
    assert saving.value.suggested_filename == "loss.csv"
    assert [row["number"] for row in saved] == [str(row) for row in numbers(view)]
    assert [float(row["score"]) for row in saved] == [0.0, 0.01, 0.01, 0.04, 0.04]
    assert saved[0]["params.optimizer"] == "muon"


def test_new_trials_appear_and_a_server_that_comes_back_catches_up(own_store: str, view_of: ViewOf) -> None:
    served = Served(own_store)
    view = view_of(own_store, served)
    view.allow("ERR_CONNECTION_REFUSED|ERR_INCOMPLETE|ERR_EMPTY|ERR_CONNECTION_RESET")
    view.open("table?sweep=pong")
    expect(rows(view)).to_have_count(7)
    add_run(own_store, of=1, score=17.5, cost_seconds=38.0)
    expect(rows(view)).to_have_count(8)
    assert cells(view, 7)[1:5] == ["7", "complete", "17.50", "38.0s"]
    served.stop()
    expect(view.page.get_by_text("The server does not answer.")).to_be_visible()
    assert numbers(view)[0] == 7  # what is known stays
    add_run(own_store, of=1, score=16.25, cost_seconds=39.0)
    served = served.restarted()
    expect(view.page.get_by_text("The server does not answer.")).to_be_hidden()
    expect(rows(view)).to_have_count(9)
    assert cells(view, 8)[3] == "16.25"
    served.stop()


def test_the_keys_stay_on_their_trial_when_another_one_comes(own_store: str, view_of: ViewOf) -> None:
    view = view_of(own_store)
    view.open("table?sweep=pong")
    expect(rows(view)).to_have_count(7)
    view.page.keyboard.press("ArrowDown")
    expect(view.page.locator("tr.focus")).to_have_attribute("data-number", "5")
    add_run(own_store, of=1, score=17.5, cost_seconds=38.0)
    expect(rows(view)).to_have_count(8)
    expect(view.page.locator("tr.focus")).to_have_attribute("data-number", "5")
    view.page.keyboard.press("Shift+ArrowDown")
    expect(view.page.get_by_text("2 selected")).to_be_visible()
    assert "sel=pong:4-5" in view.page.url


@pytest.mark.parametrize("key", ["params.train.learning_rate", "timings.startup"])
def test_a_sort_that_another_sweep_does_not_know_is_dropped_with_its_sweep(view: View, key: str) -> None:
    view.open(f"table?sweep=pong&sort={key}")
    view.page.locator(".picker-button").click()
    view.page.locator("button.menu-item", has_text="loss").click()
    expect(view.page.get_by_text("40 trials", exact=True)).to_be_visible()
    assert key not in view.page.url


def test_a_key_that_is_pressed_during_an_update_moves_from_row_to_row(own_store: str, view_of: ViewOf) -> None:
    view = view_of(own_store)
    view.open("table?sweep=pong")
    expect(rows(view)).to_have_count(7)
    view.page.keyboard.press("ArrowDown")
    held: list[Route] = []
    view.page.route("**/api/table?*", lambda route: held.append(route))
    add_run(own_store, of=1, score=17.5, cost_seconds=38.0)
    while not held:
        view.page.wait_for_timeout(20)
    view.page.keyboard.press("j")
    expect(view.page.locator("tr.focus")).to_have_attribute("data-number", "4")
    view.page.unroute("**/api/table?*")
    for route in held:
        route.continue_()
    expect(rows(view)).to_have_count(8)
    expect(view.page.locator("tr.focus")).to_have_attribute("data-number", "4")


def test_several_sweeps_stand_in_one_table(view: View) -> None:
    view.open("table?sweep=pong")
    view.page.get_by_role("button", name="pong").click()
    view.page.get_by_label("Show failed with the others").check()
    view.page.keyboard.press("Escape")
    expect(view.page.get_by_text("9 trials")).to_be_visible()
    filtered(view, "sweep == failed")
    expect(rows(view)).to_have_count(2)
    assert cells(view, 0)[1:5] == ["failed", "0", "diverged", "diverged"]


def test_odd_names_and_texts_are_texts(view: View) -> None:
    view.open("table")
    view.page.get_by_role("button", name="Choose sweeps").or_(view.page.locator(".picker-button")).first.click()
    view.page.get_by_role("button", name=ODD_NAME).click()
    expect(rows(view)).to_have_count(3)
    expect(view.page.get_by_text("<script>alert(2)</script>")).to_be_visible()
    expect(head(view, 'a "quoted", <i>name</i>')).to_be_visible()
    filtered(view, "`lërning rate` > 0.05")
    expect(rows(view)).to_have_count(2)
    head(view, "lërning rate").click()
    expect(view.page.locator("th[aria-sort=descending]")).to_contain_text("lërning rate")
    view.page.reload()
    expect(rows(view)).to_have_count(2)
    rows(view).first.locator("td").nth(3).click()
    expect(view.page.get_by_text("1 selected")).to_be_visible()


def test_a_sweep_of_one_trial_that_runs(tmp_path: Path, view_of: ViewOf) -> None:
    url = f"sqlite:///{tmp_path}/one.db"
    fill_sweep(url, "one", [])
    view = view_of(url)
    view.open("table")
    expect(view.page.get_by_text("This sweep has no trial yet.")).to_be_visible()
    store = open_store(url)
    started = start(store, store.list_sweeps()[0], params={"lr": 0.25})
    expect(view.page.get_by_text("1 trial", exact=True)).to_be_visible()
    expect(head(view, "lr")).to_be_visible()  # the same in all trials, but there is only one
    expect(rows(view).first).to_contain_text("running")
    store.finish_trial(started, complete())
    expect(rows(view).first).to_contain_text("complete")
    expect(head(view, "score")).to_be_visible()  # its column comes with the first score
    store.close()


def test_no_number_is_cut_also_of_a_trial_that_comes_later(tmp_path: Path, view_of: ViewOf) -> None:
    url = f"sqlite:///{tmp_path}/wide.db"
    fill_sweep(url, "wide", [({"lr": 0.5 * i}, 123456.789 * i, 5.0, "") for i in range(12)])
    view = view_of(url)
    view.open("table?sweep=wide")
    expect(rows(view)).to_have_count(12)
    assert cut(view) == []
    store = open_store(url)
    started = start(store, store.list_sweeps()[0], params={"lr": 0.123456})
    store.finish_trial(started, dataclasses.replace(complete(), score=-1.23456e-123))
    expect(rows(view)).to_have_count(13)
    expect(rows(view).first).to_contain_text("−1.23e-123")
    assert cut(view) == []
    store.close()


def cut(view: View) -> list[str]:
    """The texts of cells that are wider than their columns."""
    found: list[str] = rows(view).evaluate_all(
        """(rows) => rows.flatMap((row) => [...row.querySelectorAll("td.number")]).filter((cell) => {
            const text = document.createRange();
            text.selectNodeContents(cell);
            return text.getBoundingClientRect().width > cell.getBoundingClientRect().width - 22;  // 11 px on each side
        }).map((cell) => cell.textContent)"""
    )
    return found


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("table?sweep=new", "This sweep has no trial yet."),
        ("nothing?sweep=pong", "There is no page “nothing”."),
    ],
)
def test_states_say_what_is_so(view: View, place: str, text: str) -> None:
    view.open(place)
    expect(view.page.get_by_text(text)).to_be_visible()


def test_an_unknown_sweep_in_the_address_is_said_and_another_one_shown(new_view: View) -> None:
    new_view.allow("status of 404")  # it was asked for before the list of sweeps was there
    new_view.open("table?sweep=gone")
    expect(new_view.page.get_by_text("The store has no sweep “gone”.")).to_be_visible()
    expect(new_view.page.get_by_text("This sweep has no trial yet.")).to_be_visible()  # "new" is the newest


def test_an_empty_store_says_how_to_begin_and_shows_its_first_sweep(tmp_path: Path, view_of: ViewOf) -> None:
    from sample_trials import fill_store

    url = f"sqlite:///{tmp_path}/empty.db"
    open_store(url).close()
    view = view_of(url)
    view.open("table")
    expect(view.page.get_by_text("This store holds no sweep yet.")).to_be_visible()
    fill_store(url)
    expect(rows(view)).to_have_count(7)


def test_the_page_is_accessible_and_fits_a_narrow_screen(view: View, phone: View) -> None:
    view.open("table?sweep=pong&sel=pong:1-2")
    expect(rows(view)).to_have_count(7)
    view.check_accessible()
    phone.open("table?sweep=pong&sel=pong:1-2")
    expect(rows(phone)).to_have_count(7)
    phone.check_accessible()
    assert phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_theme_and_keys(view: View) -> None:
    view.open("table?sweep=pong")
    root = view.page.locator("html")
    expect(root).to_have_attribute("data-theme", "light")
    view.page.keyboard.press("d")
    expect(root).to_have_attribute("data-theme", "dark")
    view.page.reload()
    expect(root).to_have_attribute("data-theme", "dark")
    expect(rows(view)).to_have_count(7)
    view.page.keyboard.press("?")
    expect(view.page.get_by_role("dialog", name="Keys")).to_contain_text("select or unselect the trial")


def test_what_has_the_focus_keeps_its_keys(view: View) -> None:
    view.open("table?sweep=pong")
    expect(rows(view)).to_have_count(7)
    view.page.get_by_role("button", name="Columns").focus()
    view.page.keyboard.press("Enter")  # and not: open the trial
    panel = view.page.get_by_role("dialog", name="Choose columns")
    panel.get_by_label("steps", exact=True).focus()
    view.page.keyboard.press("Space")
    expect(head(view, "steps")).to_be_visible()
    view.page.keyboard.press("d")  # a key of the page does nothing while a panel is open
    expect(view.page.locator("html")).to_have_attribute("data-theme", "light")
    view.page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    head(view, "score").focus()
    view.page.keyboard.press("Enter")
    expect(view.page.locator("th[aria-sort=descending]")).to_contain_text("score")


def test_a_long_table_is_scrolled_and_updated_where_it_is(tmp_path: Path, view_of: ViewOf) -> None:
    url = f"sqlite:///{tmp_path}/long.db"
    fill_loss(url, num_trials=400)
    view = view_of(url)
    view.open("table?sweep=loss&sort=number")
    expect(rows(view).first).to_have_attribute("data-number", "0")
    assert rows(view).count() < 100  # only what is in sight
    expect(view.page.get_by_role("table", name="Trials")).to_have_attribute("aria-rowcount", "401")
    view.page.evaluate(
        "(() => { const r = document.querySelector('.grid-room'); r.scrollTop = r.scrollHeight / 2; })()"
    )
    expect(view.page.locator("tr[data-number='200']")).to_be_visible()
    store = open_store(url)
    sweep = store.list_sweeps()[0]
    store.annotate(sweep.id, [201, 3], note="seen while scrolled")
    expect(view.page.locator("tr[data-number='201']")).to_contain_text("seen while scrolled")
    view.page.keyboard.press("Home")
    expect(view.page.locator("tr[data-number='3']")).to_contain_text("seen while scrolled")
    # Many questions in a row: the last one counts.
    for text in ("number < 300", "number < 200", "number < 100", "note != none"):
        filtered(view, text)
        head(view, "trial").click()
    expect(view.page.get_by_text("2 of 400 trials")).to_be_visible()
    expect(rows(view)).to_have_count(2)
    store.close()


def test_the_last_rows_stay_in_sight_when_trials_come_above(tmp_path: Path, view_of: ViewOf) -> None:
    url = f"sqlite:///{tmp_path}/long.db"
    fill_loss(url, num_trials=150)
    view = view_of(url)
    view.open("table?sweep=loss")
    expect(rows(view).first).to_have_attribute("data-number", "149")
    view.page.evaluate("(() => { const r = document.querySelector('.grid-room'); r.scrollTop = r.scrollHeight; })()")
    last = view.page.locator("tr[data-number='0']")
    expect(last).to_be_visible()
    before = last.evaluate("(row) => row.getBoundingClientRect().y")
    store = open_store(url)
    start(store, store.list_sweeps()[0], params={"lr": 0.1})
    store.close()
    expect(view.page.get_by_role("table", name="Trials")).to_have_attribute("aria-rowcount", "152")
    assert last.evaluate("(row) => row.getBoundingClientRect().y") == before


def test_the_best_come_first_and_the_last_rows_stay_while_a_filter_is_typed(view: View) -> None:
    view.allow("status of 400")
    view.open("table?sweep=loss")
    head(view, "score").focus()
    view.page.keyboard.press("Enter")
    expect(view.page.locator("th[aria-sort=ascending]")).to_have_text(re.compile("score"))  # lower is better
    expect(rows(view).first).to_have_attribute("data-number", "20")
    expect(head(view, "score")).to_be_focused()  # the head is drawn anew, and the keys go on with it
    filtered(view, "optimizer == sgd")
    expect(view.page.get_by_text("13 of 40 trials")).to_be_visible()
    before = numbers(view)
    filtered(view, "optimizer == sgdd")
    expect(view.page.get_by_role("alert")).to_contain_text("no trial has 'sgdd' in optimizer; did you mean 'sgd'?")
    assert numbers(view) == before


def test_trials_are_grouped_and_a_view_is_saved_by_name(view: View) -> None:
    view.open("table?sweep=loss&filter=number%20%3C%2030")
    view.page.get_by_label("Group by").select_option(label="optimizer")
    groups = view.page.get_by_role("table", name="Groups of trials")
    expect(groups.get_by_role("row")).to_have_count(4)
    view.page.get_by_role("button", name="Views").click()
    view.page.get_by_label("Name of this view").fill("by <b>optimizer</b>")
    view.page.keyboard.press("Enter")
    view.check_accessible()
    groups.get_by_role("button", name="sgd").click()
    expect(view.page.get_by_text("10 of 40 trials")).to_be_visible()
    expect(view.page.get_by_label("Filter trials")).to_have_value('(number < 30) and optimizer == "sgd"')
    view.open("table?sweep=pong")  # which has no such parameter
    view.page.get_by_role("button", name="Views").click()
    view.page.get_by_role("button", name="by <b>optimizer</b>", exact=True).click()
    expect(view.page.get_by_text("names what this sweep does not have: optimizer")).to_be_visible()
    expect(rows(view)).to_have_count(7)


def test_a_page_shows_the_numbers_that_filters_read(view: View) -> None:
    whole = [0.0, 1.0, 64.0, 1024.0, 99_950.0, 2.5e6]
    values = [*whole, 0.0105, 0.0994, 9.9949, 18.2034, 59.951, 1.0625, 1234.5, 3599.6, 100000.25, 1e-7]
    keys = ("score", "cost_seconds", "params.x", "metrics.y", "timings.startup")
    columns = {"steps": whole, **dict.fromkeys(keys, values)}
    view.open("table?sweep=pong")
    shown = view.page.evaluate(
        """async (columns) => {
            const shell = document.querySelector("script[src$='app.js']").src;
            const { tableCells } = await import(new URL("lib/table-cells.js", shell));
            const no = () => false;
            const cells = tableCells({ asked: () => [], interrupted: no, scale: no, lower: no });
            const text = (key, value) => cells.text({ key, kind: "number", group: groupOf(key) }, value, {});
            const groupOf = (key) => (key.includes(".") ? key.split(".")[0] : "trial");
            return Object.entries(columns).map(([key, values]) => values.map((value) => text(key, value)));
        }""",
        columns,
    )
    for (key, given), texts in zip(columns.items(), shown, strict=True):
        column = {key: column_of(given, Kind.NUMBER)}
        for place, text in enumerate(texts):
            found = matching(f"`{key}` == {text}", column, len(given), Shown(number=table_number))
            assert found[place], (key, given[place], text)
