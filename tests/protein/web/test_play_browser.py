"""The player in a real browser, in the gallery: keys, fingers, two policies, and what cannot be played."""

import base64
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import View, watched
from patience import wait_until
from playwright.sync_api import Browser, Locator, expect
from policy_files import make_checkpoint

from protein.envs_c import worlds
from protein.trainer.export import export_policy
from scripts.gallery import document

Opened = Callable[..., View]


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with games of each kind; one policy of the last game is cut off, and so is one game."""
    folder = tmp_path_factory.mktemp("gallery")
    games: list[dict[str, Any]] = []
    for name in ("pong", "entities", "maze", "pendulum", "snake"):
        files = [export_policy(make_checkpoint(folder / f"{name}-{seed}", name, seed=seed)) for seed in range(2)]
        policies = [
            {"title": f"{10**i} s", "note": f"score {i}", "policy": _text(file)} for i, file in enumerate(files)
        ]
        games.append({"name": name, "wasm": _text(worlds.read(name)), "policies": policies})
    games[4]["policies"][1]["policy"] = _text(files[1][:-50])
    games.append({**games[0], "name": "cut", "wasm": _text(worlds.read("pong")[:-50])})
    file = folder / "index.html"
    file.write_text(document(games), encoding="utf-8")
    return file


def _text(file: bytes) -> str:
    return base64.b64encode(file).decode()


@pytest.fixture
def opened(browser: Browser, gallery: Path) -> Iterator[Opened]:
    """Opens a game of the gallery, without a network: `opened("pong", width=390)`."""
    contexts, views = [], []

    def make(game: str, *, width: int = 1000, **options: object) -> View:
        size = {"width": width, "height": 800}
        contexts.append(browser.new_context(viewport=size, offline=True, **options))  # type: ignore[arg-type]
        views.append(watched(contexts[-1].new_page(), gallery.as_uri()))
        views[-1].page.goto(f"{gallery.as_uri()}#{game}")
        views[-1].page.wait_for_selector(".play-stage")
        return views[-1]

    yield make
    for context in contexts:
        context.close()
    for view in views:
        view.check()


def figure(stage: Locator, name: str) -> Locator:
    return stage.locator(".play-figures > div").filter(has_text=name).locator("strong")


def test_policies_play_beside_each_other_and_keys_take_over(opened: Opened) -> None:
    view = opened("pong")
    stages, status = view.page.locator(".play-stage"), view.page.locator(".play").get_by_role("status")
    expect(stages).to_have_count(2)
    for stage in stages.all():
        expect(figure(stage, "value")).not_to_have_text("–")
        expect(stage.locator(".play-share").first).to_contain_text("%")
    # Paused it stands still; a step is one decision of both.
    view.page.get_by_role("button", name="Pause").click()
    view.page.get_by_role("button", name="Step").click()
    values = figure(stages, "value").all_inner_texts()
    view.page.get_by_role("button", name="Step").click()
    wait_until(lambda: figure(stages, "value").all_inner_texts() != values, "the next picture")
    # The other one is taken over by a key, and only that. What is pressed is shown, and Escape hands back.
    other = stages.nth(1).locator(".play-view")
    other.press("w")
    expect(status).to_have_text("You play 10 s. Escape hands back.")
    expect(stages.nth(1).get_by_role("button", name="Hand back")).to_be_visible()
    expect(stages.nth(0).get_by_role("button", name="Take over")).to_be_visible()
    view.page.get_by_role("button", name="Play", exact=True).click()
    other.focus()
    view.page.keyboard.down("ArrowDown")
    expect(stages.nth(1).locator(".play-action.taken")).to_have_text(re.compile("down"))
    view.page.keyboard.up("ArrowDown")
    expect(stages.nth(1).locator(".play-action.taken")).to_have_text(re.compile("stay"))
    view.page.keyboard.press("Escape")
    expect(status).to_have_text("The agent plays.")
    # One game alone, at another seed and speed; and nobody: a person plays.
    view.page.get_by_label("Seed of the games").fill("-1")
    view.page.get_by_role("button", name="Restart").click()
    expect(status).to_have_text("A seed is a whole number from 0 on.")
    view.page.get_by_label("Seed of the games").fill("5")
    view.page.get_by_role("button", name="Restart").click()
    view.page.get_by_label("Speed").select_option("16")
    expect(figure(stages.first, "score")).not_to_have_text("0")
    view.check_accessible()
    for name in ("1 s", "10 s"):
        view.page.get_by_role("checkbox", name=name, exact=True).uncheck()
    expect(stages).to_have_count(1)
    expect(figure(stages, "value")).to_be_hidden()


def test_keys_mean_the_same_with_shift_and_whichever_is_let_go_first(opened: Opened) -> None:
    page = opened("entities").page
    stage = page.locator(".play-stage").first
    taken = stage.locator(".play-action.taken")
    stage.locator(".play-view").focus()
    page.keyboard.down("Shift")
    page.keyboard.press("P")  # waits
    page.keyboard.up("Shift")
    page.keyboard.down("2")
    page.keyboard.press(".")
    expect(taken.last).to_contain_text("strike 2nd")
    # The same key, as a layout names it that has digits on Shift: it was down with Shift, and goes up without.
    stage.locator(".play-view").evaluate(
        "(e) => e.dispatchEvent(new KeyboardEvent('keyup', { code: 'Digit2', key: 'é', bubbles: true }))"
    )
    page.keyboard.press(".")
    expect(taken.last).to_contain_text("do nothing")


def test_it_waits_where_less_motion_is_wanted_and_fingers_play_on_a_phone(opened: Opened) -> None:
    view = opened("maze", width=390, has_touch=True, color_scheme="dark", reduced_motion="reduce")
    stages = view.page.locator(".play-stage")
    expect(view.page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    expect(figure(stages.first, "value")).to_have_text("–")  # nothing was decided
    drawn = "canvas => new Set(new Uint32Array(canvas.getContext('2d').getImageData(0, 0, 300, 300).data.buffer)).size"
    for stage in stages.all():
        expect(stage.get_by_role("img")).to_have_attribute("aria-label", re.compile("^maze: find the goal"))
        assert stage.locator(".play-view canvas").evaluate(drawn) > 2  # but the maze is there
    view.check_accessible()
    assert view.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # A press on one of the listed actions takes over and moves once.
    stages.first.get_by_role("button", name="up").tap()
    expect(stages.first.get_by_role("button", name="Hand back")).to_be_visible()
    view.page.get_by_role("button", name="Play", exact=True).tap()
    expect(stages.first.locator(".play-action.taken")).to_have_text(re.compile("up"))
    # A swipe over the game, too.
    stages.first.locator(".play-view").evaluate(
        """(game) => {
          const { left, top } = game.getBoundingClientRect();
          game.setPointerCapture = () => {};
          for (const [type, x] of [["pointerdown", 80], ["pointermove", 120], ["pointerup", 120]])
            game.dispatchEvent(new PointerEvent(type, { clientX: left + x, clientY: top + 90, bubbles: true }));
        }"""
    )
    expect(stages.first.locator(".play-action.taken")).to_have_text(re.compile("right"))
    # Numbers are actions, too.
    view.page.get_by_role("link", name="pendulum").tap()
    view.page.get_by_role("button", name="Play", exact=True).tap()
    stages.first.get_by_role("button", name="turn left").press("Enter")
    expect(stages.first.get_by_role("img", name=re.compile("^action"))).to_be_visible()


def test_what_cannot_be_played_is_said(opened: Opened) -> None:
    view = opened("snake")
    words = view.page.locator(".play-words:visible")
    damaged = "It cannot be played here: the policy's file is damaged or none of this program"
    expect(words).to_have_text(re.compile(damaged))
    expect(words).to_have_attribute("role", "alert")
    expect(figure(view.page.locator(".play-stage").first, "value")).not_to_have_text("–")  # the other one plays
    view.page.get_by_role("link", name="cut").click()
    expect(words.first).to_have_text(re.compile("It cannot be played here: the game's file is damaged"))
    expect(view.page.get_by_role("group", name="Playback")).to_be_hidden()
    view.page.evaluate("delete globalThis.WebAssembly")
    view.page.get_by_role("link", name="maze").click()
    expect(words.first).to_have_text("It cannot be played here: this browser has no WebAssembly, which games need.")


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (lambda whole: whole[: len(whole) // 2], "the file has been cut short: get it again"),
        (lambda whole: f"{whole[:100_000]}AAAAAAAA{whole[100_008:]}", "(the file is damaged: get it again)"),
    ],
)
def test_a_file_that_arrived_damaged_says_so(
    browser: Browser, gallery: Path, tmp_path: Path, damage: Callable[[str], str], line: str
) -> None:
    (tmp_path / "damaged.html").write_text(damage(gallery.read_text(encoding="utf-8")), encoding="utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "damaged.html").as_uri())
    expect(page.locator("main")).to_contain_text(line)
    page.close()
