"""How a sweep went, in a real browser: time line, budget, ends, calibration, pause and stop; and the work behind it."""

import itertools
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from browser import Served, View, asked, fill_sweep, refused
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import expect
from sample_trials import add_run

from protein.errors import UsageError
from protein.storage import open_store
from protein.types import Params, Request, TrialEnd
from protein.web import findings
from protein.web.background import Background
from protein.web.frame import Frame
from protein.web.pages.sweep import bars, gaps, lanes, usual_reasons

pytestmark = pytest.mark.slow  # minutes in a browser without a GPU; pages of the other files stay in `make test`

ViewOf = Callable[..., View]


def opened(view: View, sweep: str) -> None:
    """Opens Overview and scrolls to how the sweep went, which comes only then."""
    view.open(f"overview?sweep={sweep}")
    heading = view.page.get_by_role("heading", name="How it went")
    expect(heading).to_be_visible()
    # Not by the locator: what it found may be drawn anew while it waits for it to stand still.
    view.page.evaluate("document.querySelector('.course-head').scrollIntoView()")


def test_where_the_budget_went_and_how_trials_ended(view: View) -> None:
    opened(view, "pong")
    spent = view.page.get_by_role("region", name="Where the budget went").locator("tbody tr")
    expect(spent).to_have_count(4)
    assert [row.split("\t")[1:] for row in spent.all_inner_texts()] == [
        ["1m15s", "33\u2009%"],
        ["1m00s", "26\u2009%"],
        ["1m10s", "30\u2009%"],
        ["25.0s", "11\u2009%"],
    ]
    ends = view.page.get_by_role("region", name="How trials ended")
    expect(ends.locator("tr", has_text="diverged")).to_contain_text("loss is nan")
    expect(ends.locator("tr", has_text="interrupted")).to_contain_text("the engine learns nothing from it")
    ends.locator("tr", has_text="diverged").get_by_role("link", name="2", exact=True).click()
    expect(view.page.get_by_role("heading", name="Trial 2 of pong")).to_be_visible()


def test_what_takes_the_models_comes_when_it_is_ready(view: View, served: Served) -> None:
    opened(view, "loss")
    verdicts = view.page.locator(".verdict")
    expect(verdicts).to_have_count(2)
    expect(verdicts.first).to_have_text("The score intervals are too wide: 33 of 33 within the 80 % interval.")
    answer = asked(served, "sweep/calibration", sweep="loss")["value"]["score"]
    measured = dict(zip(answer["forecasts"]["number"], answer["forecasts"]["measured"], strict=True))
    assert measured == {i: (i - 20) ** 2 / 100 for i in range(1, 40) if i % 6 != 5}
    low, high = (
        dict(zip(answer["forecasts"]["number"], answer["forecasts"][end], strict=True)) for end in ("low", "high")
    )
    assert low == pytest.approx({i: value - 2.0 for i, value in measured.items()})  # of a loss: the stored one, turned
    assert high == pytest.approx({i: value + 1.0 for i, value in measured.items()})
    opened(view, "pong")
    expect(view.page.get_by_text("It needs eight different configs that were trained to their end.")).to_be_visible()


def test_the_time_line_and_the_lines_over_time(served: Served) -> None:
    found = asked(served, "sweep", sweep="loss")
    assert [bar["number"] for bar in found["timeline"]["bars"]] == list(range(40))
    assert found["timeline"]["lanes"] == 1 and {bar["process"] for bar in found["timeline"]["bars"]} == {"test"}
    assert found["progress"]["spent"] == np.cumsum([2.0 + i for i in range(40)]).tolist()
    best = [min((j - 20) ** 2 / 100 for j in range(i + 1) if j % 6 != 5) for i in range(40)]
    assert found["progress"]["best"] == best
    assert found["states"] == {"running": 0, "waiting": 0, "complete": 34, "pruned": 0, "failed": 6, "interrupted": 0}
    history = found["history"]
    assert history["number"] == list(range(40)) and history["state"][4:6] == ["complete", "failed"]
    assert history["score"] == [None if i % 6 == 5 else pytest.approx((i - 20) ** 2 / 100) for i in range(40)]
    falls = [i for i in range(21) if i % 6 != 5]
    assert history["best"] == {"number": falls, "score": [pytest.approx((i - 20) ** 2 / 100) for i in falls]}


def test_a_sweep_is_paused_goes_on_and_is_stopped(own_store: str, view_of: ViewOf) -> None:
    add_run(own_store, of=1)
    store = open_store(own_store)
    [sweep] = store.list_sweeps()
    view = view_of(own_store)
    view.open("overview?sweep=pong")
    expect(view.page.get_by_text("1 running").first).to_be_visible()
    view.page.get_by_role("button", name="Pause", exact=True).click()
    expect(
        view.page.get_by_text("It is paused: running trials go on to their end, and no other starts")
    ).to_be_visible()
    assert store.wishes(sweep.id).requested is Request.PAUSE
    view.page.get_by_role("button", name="Go on", exact=True).click()
    view.page.get_by_role("button", name="Stop", exact=True).click()
    asked_first = view.page.get_by_role("dialog")
    expect(asked_first).to_contain_text("1 trial runs and has taken 0.00s. When the sweep is run again, it can go on")
    view.check_accessible()
    asked_first.get_by_role("button", name="Cancel").click()
    assert store.wishes(sweep.id).requested is Request.RUN
    view.page.get_by_role("button", name="Stop", exact=True).click()
    view.page.get_by_role("button", name="Stop the sweep").click()
    expect(view.page.get_by_text("It was asked to stop: process")).to_be_visible()
    assert store.wishes(sweep.id).requested is Request.STOP
    view.page.get_by_role("button", name="Take it back").click()
    expect(view.page.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    assert store.wishes(sweep.id).requested is Request.RUN
    store.close()


@pytest.mark.parametrize(
    ("sweep", "said"), [("new", "No trial has been started yet."), ("failed", "2 times: loss is nan")]
)
def test_states_say_what_is_so(view: View, sweep: str, said: str) -> None:
    opened(view, sweep)
    expect(view.page.locator("main")).to_contain_text(said)


def test_it_is_accessible_and_fits_a_phone(view: View, phone: View) -> None:
    for one in (view, phone):
        opened(one, "pong")
        expect(one.page.locator(".room-progress canvas")).to_be_visible()
        one.check_accessible()
    assert phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_mistakes_are_one_line(served: Served) -> None:
    assert refused(served, "sweep") == (400, "name the sweep with sweep=NAME")
    assert refused(served, "sweep", sweep="pang")[0] == 404


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)), min_size=1, max_size=30), st.integers(1, 40))
def test_no_two_trials_of_a_lane_run_at_once_and_no_lane_is_wasted(spans: list[tuple[int, int]], most: int) -> None:
    start = np.array([float(begin) for begin, _ in spans])
    end = start + [float(length) for _, length in spans]
    lane = lanes(start, end)
    for one in set(lane.tolist()):
        rows = sorted(np.flatnonzero(lane == one), key=lambda row: (start[row], end[row]))
        assert all(end[a] <= start[b] for a, b in itertools.pairwise(rows))
    busiest = max(sum(s <= t < max(e, s + 0.5) for s, e in zip(start, end, strict=True)) for t in start)
    assert lane.max() + 1 <= busiest
    made = bars(start, end, lane, most)
    assert sorted(row for bar in made for row in bar.rows) == list(range(len(spans)))
    assert all(bar.start == min(start[list(bar.rows)]) and bar.end == max(end[list(bar.rows)]) for bar in made)
    assert len(made) <= 2 * most + 2 * (lane.max() + 1)


def test_gaps_are_the_spans_in_which_nothing_ran() -> None:
    start, end = np.array([0.0, 1.0, 20.0, 2.0]), np.array([5.0, 3.0, 30.0, 8.0])
    assert gaps(start, end, 5.0) == [(8.0, 20.0)]
    assert gaps(start, end, 12.0) == []
    assert gaps(np.array([]), np.array([]), 1.0) == []


def test_slow_work_is_done_once_for_each_version_and_the_old_result_stays_meanwhile() -> None:
    stopping = threading.Event()
    background = Background(stopping)
    gate, calls = threading.Event(), []

    def work(version: int) -> str:
        calls.append(version)
        assert gate.wait(10.0)
        return f"result {version}"

    assert background.known("a") is None
    assert background.ask("a", 1, lambda: work(1), patience=0.0).state == "computing"
    assert background.ask("a", 1, lambda: work(1), patience=0.0).state == "computing"
    gate.set()
    first = background.ask("a", 1, lambda: work(1), patience=10.0)
    assert (first.state, first.value, calls) == ("ready", "result 1", [1])
    gate.clear()
    second = background.ask("a", 2, lambda: work(2), patience=0.0)
    assert (second.state, second.value) == ("computing", "result 1")
    gate.set()
    assert background.ask("a", 2, lambda: work(2), patience=10.0).value == "result 2"
    assert background.ask("a", 2, lambda: work(2)).value == "result 2" and calls == [1, 2]
    stopping.set()


def test_slow_work_that_fails_says_so_and_other_work_goes_on() -> None:
    stopping = threading.Event()
    background = Background(stopping)

    def refuse() -> None:
        raise UsageError("there is nothing to compute")

    found = background.ask("a", 1, refuse, patience=10.0)
    assert (found.state, found.error) == ("failed", "there is nothing to compute")
    broken = background.ask("b", 1, lambda: 1 / 0, patience=10.0)
    assert broken.state == "failed" and "ZeroDivisionError" in broken.error
    assert background.ask("a", 2, lambda: 7, patience=10.0).value == 7
    stopping.set()


def test_slow_work_that_failed_is_done_again_when_it_is_asked_for_later() -> None:
    stopping = threading.Event()
    background = Background(stopping)
    calls: list[int] = []

    def work() -> int:
        calls.append(len(calls))
        if len(calls) == 1:
            raise UsageError("the store is away")
        return 7

    assert background.ask("a", 1, work, patience=10.0).state == "failed"
    assert background.ask("a", 1, work, patience=10.0).state == "failed" and calls == [0]
    found = background.ask("a", 1, work, patience=10.0, retry=0.0)
    assert (found.state, found.value) == ("ready", 7)
    assert background.ask("a", 1, work, patience=10.0, retry=0.0).value == 7 and calls == [0, 1]
    stopping.set()


def test_excluded_trials_are_no_part_of_the_calibration(own_store: str) -> None:
    store = open_store(own_store)
    [sweep] = store.list_sweeps()
    frame = Frame.empty(sweep).updated(sweep, store.columns(sweep.id))
    before = findings.calibrations(frame)["score"]["forecasts"]["number"]
    store.annotate(sweep.id, [before[0]], excluded=True)
    frame = frame.updated(sweep, store.columns(sweep.id, frame.cursor))
    assert findings.calibrations(frame)["score"]["forecasts"]["number"] == before[1:]
    store.close()


def test_predictions_are_shown_within_the_possible_scores_and_judged_as_they_were(tmp_path: Path) -> None:
    """Scores of breakout end at 72. The tables clip; the calibration needs what the model has said."""
    url = f"sqlite:///{tmp_path}/protein.db"
    fill_sweep(url, "night", [({"lr": 0.1 * i}, 71.5, 5.0, "") for i in range(3)], env="breakout")
    served = Served(url)
    highest = asked(served, "table", sweep="night", column=["predicted_score_high", "predicted_score"])["rows"]
    assert highest == [[72.0, 71.5], [72.0, 71.5], [None, None]]
    assert asked(served, "front", sweep="night")["sweeps"][0]["points"]["predicted_score_high"] == [None, 72.0, 72.0]
    served.stop()
    store = open_store(url)
    [sweep] = store.list_sweeps()
    frame = Frame.empty(sweep).updated(sweep, store.columns(sweep.id))
    assert findings.calibrations(frame)["score"]["forecasts"]["high"] == [73.5, 73.5]
    store.close()


def test_reasons_that_differ_in_their_figures_count_as_one() -> None:
    ranked = [f"stopped early: at {share} % of its steps it ranked {share // 9} of 19" for share in (40, 60, 75)]
    found = usual_reasons([*ranked, "stopped early: its curve"], TrialEnd.STOPPED_EARLY)
    assert found == [("at .. % of its steps it ranked .. of ..", 3), ("its curve", 1)]
    assert usual_reasons(["exit code 3"] * 2, TrialEnd.CRASHED) == [("exit code 3", 2)]  # nothing is lost needlessly


def test_the_best_possible_score_is_said_and_a_new_sweep_has_no_ends(new_view: View) -> None:
    rise = {"expected": 0.0, "high": 0.0}
    span = {"seconds": 600.0, "name": "10m", "best": rise, "front": {"expected": 0.2, "high": 0.5}}
    value = {"spent_seconds": 1.0, "highest": True, "spans": [span]}
    answer = {"state": "ready", "error": "", "value": value}
    new_view.page.route("**/api/sweep/outlook*", lambda route: route.fulfill(json=answer))
    opened(new_view, "pong")
    ahead = new_view.page.get_by_role("region", name="Is more training worth it?")
    expect(ahead.locator("tbody tr")).to_have_text(
        "10m of trainingit is the best possible score0.200 (0 to 0.500)", use_inner_text=False
    )
    opened(new_view, "new")
    expect(new_view.page.get_by_role("region", name="How trials ended")).to_contain_text("No trial has ended yet.")


def test_long_names_fit_a_narrow_screen(tmp_path: Path, view_of: ViewOf) -> None:
    url = f"sqlite:///{tmp_path}/long.db"
    name = "n" * 90
    params: Params = {"p" * 60: 1.0, "text": "a long value, " * 6}
    fill_sweep(url, name, [({**params, "p" * 60: float(i)}, float(i), 5.0, "") for i in range(3)])
    view = view_of(url)
    view.page.set_viewport_size({"width": 390, "height": 780})
    for place, shown in [
        (f"overview?sweep={name}", "Best measured: trial 2"),
        (f"front?sweep={name}", "No recommendation yet"),
        (f"parameters?sweep={name}", "so there is no model of it."),
        (f"trial/{name}/1?sweep={name}", "2 searched values"),
    ]:
        view.open(place)
        expect(view.page.get_by_text(shown).first).to_be_visible()
        assert view.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), place
