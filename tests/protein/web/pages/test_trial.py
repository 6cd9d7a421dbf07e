"""The page Trial in a real browser, its files and its safety; and an agent of a real, short sweep at play."""

import dataclasses
import re
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import ODD_NAME, Served, View, asked, refused
from playwright.sync_api import expect
from sample_trials import PROVENANCE, add_run, curve, fill_store

from protein.cli import main
from protein.storage import open_store
from protein.types import USAGE_FILE, Artifact, Measurement, Outcome, Suggestion, SuggestionKind, TrialEnd
from protein.web import artifacts

pytestmark = pytest.mark.slow  # minutes in a browser without a GPU; pages of the other files stay in `make test`

ViewOf = Callable[..., View]


def test_a_trial_shows_its_result_beside_its_prediction(view: View) -> None:
    view.open("trial/pong/1?sweep=pong")
    expect(view.page.get_by_role("heading", name="Trial 1 of pong")).to_be_visible()
    figures = view.page.locator(".figure")
    expect(figures.nth(0)).to_contain_text("18.00")
    expect(figures.nth(0)).to_contain_text("predicted 10.00 (8.000 to 11.50)")
    expect(figures.nth(0)).to_contain_text("off by +8.00 (6.8 sd)")
    expect(figures.nth(1)).to_contain_text("40.0s")
    expect(figures.nth(1)).to_contain_text("off by +33 % (1.3 sd)")
    side = view.page.locator(".trial-side")
    expect(side).to_contain_text("Initial design 1 of 8.")
    expect(side).to_contain_text("abc")  # the commit
    expect(side).to_contain_text("it left no checkpoint, so its agent cannot play", ignore_case=True)


def test_its_config_stands_beside_the_initial_one_and_in_its_ranges(view: View) -> None:
    view.open("trial/pong/5?sweep=pong")
    rows = view.page.locator("table.config.wide tbody tr")
    expect(rows.first).to_contain_text("learning_rate")  # what differs comes first
    assert rows.first.locator("td").all_inner_texts()[:2] == ["0.006", "0.008"]
    expect(view.page.get_by_text("1 of 11 searched values differ from the initial config")).to_be_visible()
    # 5e-4 to 0.05 on a log scale: ln(0.006 / 5e-4) / ln(100) = 0.54
    expect(rows.first.get_by_role("img")).to_have_attribute("aria-label", "at 54 percent of 0.0005 to 0.05")
    expect(view.page.locator("details.fixed").first).to_contain_text("fixed values")
    view.page.locator("details.fixed summary").first.click()
    expect(
        view.page.locator("details.fixed").first.locator("tr", has=view.page.get_by_title("env.num_envs"))
    ).to_contain_text("64")


def test_a_failure_says_how_and_why(view: View) -> None:
    view.open("trial/pong/2?sweep=pong")
    expect(view.page.locator(".failure")).to_contain_text("diverged: loss is nan")
    expect(view.page.locator(".figure").first).to_contain_text("–")
    view.page.keyboard.press("j")
    expect(view.page.get_by_role("heading", name="Trial 3 of pong")).to_be_visible()
    view.page.keyboard.press("k")
    expect(view.page.get_by_role("heading", name="Trial 2 of pong")).to_be_visible()


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("trial/pong/99?sweep=pong", "Sweep 'pong' has no trial 99."),
        ("trial/pong/x?sweep=pong", "“x” is not the number of a trial."),
        ("trial?sweep=pong", "Choose a trial."),
    ],
)
def test_states_say_what_is_so(view: View, place: str, said: str) -> None:
    view.allow("status of 404")
    view.open(place)
    expect(view.page.get_by_text(said)).to_be_visible()


def test_odd_names_and_texts_are_texts(view: View) -> None:
    view.open(f"trial/{urllib.parse.quote(ODD_NAME, safe='')}/2?sweep={urllib.parse.quote(ODD_NAME)}")
    expect(view.page.get_by_role("heading", name=f"Trial 2 of {ODD_NAME}")).to_be_visible()
    expect(view.page.get_by_text("<script>alert(2)</script>")).to_be_visible()
    expect(view.page.locator(".figure").nth(2)).to_contain_text("1\u2009000 steps")  # its own, whatever they are


def test_tags_a_note_and_an_exclusion_are_stored(own_store: str, view_of: ViewOf) -> None:
    view = view_of(own_store)
    view.open("trial/pong/1?sweep=pong")
    view.page.get_by_label("Add a tag").fill("odd <b>")
    view.page.keyboard.press("Enter")
    expect(view.page.locator(".tags .badge")).to_contain_text("odd <b>")
    view.page.get_by_role("textbox", name="Note").fill("looks like an exploit")
    view.page.get_by_label("Exclude it from the engine").check()
    expect(view.page.locator(".trial-head").get_by_text("excluded")).to_be_visible()
    store = open_store(own_store)
    [sweep] = store.list_sweeps()
    stored = store.trial(sweep.id, 1)
    assert (stored.tags, stored.note, stored.excluded) == (("odd <b>",), "looks like an exploit", True)
    view.page.get_by_label("Exclude it from the engine").uncheck()
    expect(view.page.locator(".trial-head").get_by_text("excluded")).to_be_hidden()
    assert not store.trial(sweep.id, 1).excluded
    store.close()


def test_trials_of_one_run_stand_together(own_store: str, view_of: ViewOf) -> None:
    store = open_store(own_store)
    [sweep] = store.list_sweeps()
    leg = store.start_trial(
        sweep.id,
        Suggestion(
            params=store.trials(sweep.id)[3].params,
            kind=SuggestionKind.CONTINUATION,
            origin="continuing trial 3",
            continues=3,
            continued_seconds=25.0,
        ),
        seed=1,
        owner="test",
        lease_seconds=60.0,
        suggest_seconds=0.1,
        provenance=PROVENANCE,
    )
    store.add_measurements(leg, [dataclasses.replace(one, steps=one.steps + 20_000) for one in curve(17.0, 5.0)], 60.0)
    store.finish_trial(leg, Outcome(end=TrialEnd.COMPLETE, score=17.0, cost_seconds=5.0, steps=40_000))
    store.close()
    served = Served(own_store)
    first, second = (asked(served, "trial", sweep="pong", number=number) for number in (3, 7))
    assert [one["number"] for one in first["run"]] == [one["number"] for one in second["run"]] == [3, 7]
    assert [one["run_seconds"] for one in second["run"]] == [25.0, 30.0]
    assert [one["number"] for one in first["curves"]] == [3] and [one["number"] for one in second["curves"]] == [3, 7]
    view = view_of(own_store, served)
    view.open("trial/pong/7?sweep=pong")
    expect(view.page.get_by_text("It goes on with trial 3, after 25.0s of training.")).to_be_visible()
    expect(view.page.locator("tr.picked")).to_contain_text("30.0s")
    served.stop()


def test_a_trial_that_waits_says_why_and_that_it_goes_on(own_store: str, view_of: ViewOf) -> None:
    """What a node that dies leaves: a part of a curve, no score, no owner."""
    store = open_store(own_store)
    [sweep] = store.list_sweeps()
    waiting = store.start_trial(
        sweep.id,
        Suggestion(params=store.trials(sweep.id)[3].params, kind=SuggestionKind.RANDOM, origin="random"),
        seed=1,
        owner="test",
        lease_seconds=60.0,
        suggest_seconds=0.1,
        provenance=PROVENANCE,
    )
    store.add_measurements(waiting, curve(17.0, 5.0), 60.0)
    store.release_trial(waiting, "preempted: node <b>vm</b> died", 6.5)
    store.close()
    view = view_of(own_store)
    view.open("trial/pong/7?sweep=pong")
    expect(view.page.locator(".trial-head")).to_contain_text("waiting")
    told = view.page.locator(".failure.waiting")
    expect(told.locator("strong")).to_have_text("Waiting: taken up again when the sweep runs.")
    expect(told.locator(".reason")).to_have_text("preempted: node <b>vm</b> died")
    figures = view.page.locator(".figure")
    expect(figures.nth(0).locator("strong")).to_have_text("–")
    expect(figures.nth(1).locator("strong")).to_have_text("6.50s")
    side = view.page.locator(".trial-side")
    expect(side).to_contain_text("The trial waits to be taken up again; it leaves its agent at its end.")
    expect(side.locator("tr", has_text="finished")).to_contain_text("not yet: it waits")
    assert "it runs" not in side.inner_text()
    assert re.findall(r".*\b(?:NaN|undefined|null)\b.*", view.page.inner_text("body")) == []
    view.open("table?sweep=pong")
    sign = view.page.locator(".dot-state.waiting").bounding_box()
    assert sign and sign["width"] == sign["height"] == 8


@pytest.fixture
def with_files(tmp_path: Path) -> tuple[str, Path, Path]:
    """A store whose first trial left files in its folder, and names one outside; the folder, and the file outside."""
    return fill_with_files(tmp_path, "runs")


def fill_with_files(tmp_path: Path, artifacts: str) -> tuple[str, Path, Path]:
    url = f"sqlite:///{tmp_path}/runs/protein.db"
    (tmp_path / "runs").mkdir()
    sweep = fill_store(url)
    folder = tmp_path / artifacts / "pong" / "0007"
    folder.mkdir(parents=True)
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    log = folder / "trial.log"
    log.write_bytes(b"filler\n" * 2000 + b"x" * 60_000 + "\nlast <b>line</b> ä\n".encode())
    (folder / "play.gif").write_bytes(
        b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"
    )
    (folder / "link.txt").symlink_to(secret)
    store = open_store(url)
    trial = store.start_trial(
        sweep.id,
        Suggestion(params=store.trials(sweep.id)[1].params, kind=SuggestionKind.RANDOM, origin="random"),
        seed=1,
        owner="test",
        lease_seconds=60.0,
        suggest_seconds=0.1,
        provenance=PROVENANCE,
    )
    store.add_measurements(trial, [Measurement(steps=1, elapsed_seconds=1.0, score=1.0)], 60.0)
    left = [
        Artifact(kind="log", path=str(log)),
        Artifact(kind="checkpoint", path=str(secret)),
        Artifact(kind="config", path=f"{folder}/../../../secret.txt"),
        Artifact(kind="config", path=str(folder / "gone.json")),
    ]
    store.finish_trial(trial, Outcome(end=TrialEnd.COMPLETE, score=1.0, cost_seconds=1.0, steps=1), left)
    store.close()
    return url, folder, secret


def test_files_in_a_folder_that_the_view_was_given(tmp_path: Path) -> None:
    url, folder, _ = fill_with_files(tmp_path, "scratch")
    for given, size in ((None, None), (tmp_path / "scratch", (folder / "trial.log").stat().st_size)):
        served = Served(url, artifacts=given)
        listed = {one["name"]: one for one in asked(served, "trial", sweep="pong", number=7)["files"]}
        assert listed["trial.log"]["size"] == size
        assert "it lies outside" in listed["secret.txt"]["problem"]
        served.stop()


def test_files_are_listed_and_sent_from_the_sweeps_folder_alone(
    with_files: tuple[str, Path, Path], view_of: ViewOf
) -> None:
    url, folder, _ = with_files
    served = Served(url)
    listed = {one["name"]: one for one in asked(served, "trial", sweep="pong", number=7)["files"]}
    assert listed["trial.log"]["size"] == (folder / "trial.log").stat().st_size
    outside = "it lies outside the folder of the sweep's artifacts"
    assert listed["secret.txt"]["problem"] == listed["link.txt"]["problem"] == outside
    assert listed["gone.json"]["problem"] == "it is no longer there"
    for name in ("secret.txt", "link.txt", "../../../secret.txt", str(folder / "trial.log"), "2-secret.txt"):
        status, line = refused(served, "trial/file", sweep="pong", number=7, name=name)
        assert status == 400 and "secret" not in line.replace(name, "")
    answer = urllib.request.urlopen(f"{served.address}api/trial/file?sweep=pong&number=7&name=trial.log")
    assert answer.headers["content-disposition"] == 'attachment; filename="trial.log"'
    assert answer.read() == (folder / "trial.log").read_bytes()
    log = asked(served, "trial/log", sweep="pong", number=7)
    assert log["cut"] and log["lines"][0] == "filler" and len(log["lines"]) < 1000
    assert log["lines"][-2:] == ["x" * artifacts.MAX_LINE, "last <b>line</b> ä"]
    number = (folder / "trial.log").read_text().count("\n")
    assert asked(served, "trial/log", sweep="pong", number=7, find="<B>Line</b> Ä") == {
        "count": 1,
        "found": [[number, "last <b>line</b> ä"]],
    }
    found = asked(served, "trial/log", sweep="pong", number=7, find="filler")
    assert found["count"] > len(found["found"]) == artifacts.MAX_FOUND
    assert asked(served, "trial/log", sweep="pong", number=7, find="nowhere") == {"count": 0, "found": []}
    view = view_of(url, served)
    view.open("trial/pong/7?sweep=pong")
    expect(view.page.locator(".log")).to_contain_text("last <b>line</b> ä")
    expect(view.page.locator(".stage img")).to_have_js_property("naturalWidth", 1)  # the GIF among its files
    view.page.get_by_role("searchbox", name="Search the log").fill("LINE")
    expect(view.page.locator(".log mark")).to_have_text("line")
    served.stop()


def test_the_log_and_the_machines_use_of_a_running_trial_are_shown_as_they_grow(
    tmp_path: Path, view_of: ViewOf
) -> None:
    url = f"sqlite:///{tmp_path}/runs/protein.db"
    (tmp_path / "runs").mkdir()
    fill_store(url)
    add_run(url, of=1)
    folder = tmp_path / "runs" / "pong" / "0007"
    folder.mkdir(parents=True)
    (folder / "trial.log").write_text("it begins\n")
    (folder / USAGE_FILE).write_text(
        "seconds,cores,memory_bytes,gpu_memory_bytes\n1.0,0.98,1048576,\n2.0,1.00,2097152,\n"
    )
    view = view_of(url)
    view.open("trial/pong/7?sweep=pong")
    expect(view.page.locator(".log")).to_have_text("it begins")
    expect(view.page.locator(".usage-room .chart")).to_have_count(2)  # cores and memory; there is no GPU
    with (folder / "trial.log").open("a") as log:
        log.write("it goes on\n")
    expect(view.page.locator(".log")).to_contain_text("it goes on")


def test_a_copied_store_finds_the_files_that_were_copied_with_it(
    with_files: tuple[str, Path, Path], tmp_path: Path
) -> None:
    import shutil

    _, folder, _ = with_files
    shutil.copytree(tmp_path / "runs", tmp_path / "copy")
    shutil.rmtree(folder)
    served = Served(f"sqlite:///{tmp_path}/copy/protein.db")
    listed = {one["name"]: one for one in asked(served, "trial", sweep="pong", number=7)["files"]}
    assert listed["trial.log"]["problem"] == ""
    served.stop()


def test_a_running_trial_grows_on_the_page(own_store: str, view_of: ViewOf) -> None:
    add_run(own_store, of=1)
    view = view_of(own_store)
    view.open("trial/pong/7?sweep=pong")
    expect(view.page.get_by_text("No episode has ended yet.")).to_be_visible()
    store = open_store(own_store)
    [sweep] = store.list_sweeps()
    trial = store.trial(sweep.id, 7)
    store.add_measurements(trial, curve(12.0, 4.0), 600.0)
    expect(view.page.locator(".figure").nth(1)).to_contain_text("4.00s")
    expect(view.page.locator(".curve-room canvas")).to_be_visible()
    store.close()


def test_an_agent_of_a_real_sweep_plays_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, view_of: ViewOf, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROTEIN_STORE", raising=False)
    small = "--policy.hidden-size 16 --env.num-envs 32 --train.horizon 16 --train.minibatch-size 128 --eval.episodes 2"
    line = f"sweep --env cartpole --max-trials 1 --train.total-timesteps 2048 --eval.num-envs 2 {small}"
    assert main(line.split()) == 0
    url = f"sqlite:///{tmp_path}/runs/protein.db"
    view = view_of(url)
    view.open("trial/cartpole/0?sweep=cartpole")
    expect(view.page.locator("table.files")).to_contain_text("checkpoint.safetensors")
    # In the page itself: the policy plays, a key takes over, and what plays is handed back.
    player, status = view.page.locator(".play-stage"), view.page.locator(".play").get_by_role("status")
    expect(player.locator(".play-share").first).to_contain_text("%", timeout=60_000)
    player.locator(".play-view").press("ArrowLeft")
    expect(status).to_have_text("You play. Escape hands back.")
    player.locator(".play-view").press("Escape")
    expect(status).to_have_text("The agent plays.")
    # Where that does not work, it says why, and the server plays an episode.
    view.page.route("**/api/play/world*", lambda route: route.fulfill(body=b"\0asm"))  # cut off
    view.page.reload()
    expect(player.get_by_role("alert")).to_contain_text("It cannot be played here: the game's file is damaged")
    view.page.get_by_role("button", name="Watch it play one episode").click()
    view.page.wait_for_selector(".stage canvas", timeout=60_000)
    keys, place = view.page.get_by_role("group", name="Playback"), view.page.locator(".player-place")
    keys.get_by_role("slider").fill("0")  # to choose a picture pauses it
    expect(keys.get_by_role("button", name="Play", exact=True)).to_be_visible()
    keys.get_by_role("button", name="Step").click()
    expect(place).to_have_text(re.compile("^2 of "))
    keys.get_by_role("button", name="Back").click()
    expect(place).to_have_text(re.compile("^1 of "))
    keys.get_by_role("button", name="Start again").click()
    expect(place).not_to_have_text(re.compile("^1 of "))
    expect(view.page.get_by_text(re.compile(r"train --config .*/0000/config\.json"))).to_be_visible()


def test_it_is_accessible_and_fits_a_phone(view: View, phone: View) -> None:
    for one in (view, phone):
        one.open("trial/pong/1?sweep=pong")
        expect(one.page.locator(".curve-room canvas")).to_be_visible()
        one.check_accessible()
    assert phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_mistakes_are_one_line(served: Served) -> None:
    assert refused(served, "trial", number=1) == (400, "name the sweep with sweep=NAME")
    assert refused(served, "trial", sweep="pong", number=-1)[0] == 400
    assert refused(served, "trial/log", sweep="pong", number=1) == (404, "trial 1 has no log that can be read")
    assert asked(served, "trial/played", sweep="pong", number=1) == {"state": "none", "error": ""}


def test_its_address_names_its_sweep_and_the_bar_shows_where_one_is(phone: View) -> None:
    phone.open("trial/loss/5")
    expect(phone.page.locator("#picker")).to_contain_text("loss")
    here = phone.page.locator("#pages a[aria-current]")
    expect(here).to_have_text("Trial")
    bar, link = phone.page.locator("#pages").bounding_box(), here.bounding_box()
    assert bar and link and bar["x"] <= link["x"] and link["x"] + link["width"] <= bar["x"] + bar["width"]


def test_a_dot_on_the_end_of_a_range_is_not_cut_off(view: View) -> None:
    view.open("trial/pong/5?sweep=pong")
    dot = view.page.locator("table.config.wide .range i").first
    dot.evaluate("(dot) => { dot.style.left = '100%'; }")
    room = view.page.locator(".scroll-x").first.bounding_box()
    found = dot.bounding_box()
    assert room and found and found["x"] + found["width"] <= room["x"] + room["width"]


def test_seconds_say_what_they_are(new_view: View) -> None:
    """The clock and the CPU's time are those of the training: no part of them is beside the cost."""
    new_view.page.route(
        "**/api/trial?*",
        lambda route: route.fulfill(
            json=_with_timings(route.fetch().json(), {"startup": 2.0, "wall": 7.0, "own": 1.0})
        ),
    )
    new_view.open("trial/pong/1?sweep=pong")
    facts = new_view.page.locator("table.facts.plain tr")
    expect(facts.first).to_be_visible()
    assert [row.split("\t")[0] for row in facts.all_inner_texts()][:3] == [
        "startup, not in the cost",
        "on the clock",
        "own",
    ]


def _with_timings(answer: Any, timings: dict[str, float]) -> Any:
    return {**answer, "trial": {**answer["trial"], "timings": timings}}
