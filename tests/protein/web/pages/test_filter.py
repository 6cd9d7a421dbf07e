"""The field for a filter, in a real browser: names are offered while somebody types."""

from browser import View
from playwright.sync_api import Locator, Route, expect


def offered(view: View) -> Locator:
    return view.page.get_by_role("listbox").get_by_role("option")


def test_names_are_completed_while_typing(view: View) -> None:
    view.allow("status of 400")  # of what is not finished
    view.open("table?sweep=loss")
    view.page.get_by_label("Filter trials").press_sequentially("optim")
    expect(offered(view).filter(has_text="optimizer")).to_be_visible()
    view.page.keyboard.press("ArrowDown")
    view.page.keyboard.press("Enter")
    expect(view.page.get_by_label("Filter trials")).to_have_value("optimizer")
    view.page.keyboard.type(" == ")
    expect(offered(view)).to_have_text(["adam", "muon", "sgd"])
    view.page.keyboard.type("sgd")
    expect(view.page.get_by_text("13 of 40 trials")).to_be_visible()


def test_names_are_offered_to_those_who_typed_before_the_columns_were_there(new_view: View) -> None:
    new_view.allow("status of 400")  # of what is not finished
    held: list[Route] = []
    holds = True

    def hold(route: Route) -> None:  # to the end of the test: a request may be lost where its route is taken away
        if holds:
            held.append(route)
        else:
            route.continue_()

    new_view.page.route("**/api/table?*", hold)
    new_view.open("table?sweep=loss")
    new_view.page.get_by_label("Filter trials").press_sequentially("optim")
    new_view.page.wait_for_url("**filter=optim**")  # the page itself knows of it, a quarter of a second later
    expect(offered(new_view)).to_have_count(0)
    holds = False
    for route in held:
        route.continue_()
    expect(offered(new_view).filter(has_text="optimizer")).to_be_visible()
    expect(new_view.page.get_by_label("Filter trials")).to_be_focused()
    new_view.page.unroute("**/api/table?*")
