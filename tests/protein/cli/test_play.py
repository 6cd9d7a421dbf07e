"""`protein play`: whose game it takes, what it refuses, and the file that it writes, opened from the disk."""

import base64
import hashlib
import re
import webbrowser
from pathlib import Path
from typing import Any

import pytest
from browser import watched
from commands import Run
from playwright.sync_api import Browser, expect
from policy_files import make_checkpoint, native_game
from sample_trials import add_run

from protein.envs_c import worlds
from protein.trainer.export import export_policy
from protein.web import play


@pytest.fixture
def agents(filled: Path) -> Path:
    """A working directory whose sweep's trial 7, a run of the recommended config, has left its agent."""
    checkpoint = filled / "runs" / "pong" / "0007" / "checkpoint.safetensors"
    checkpoint.parent.mkdir(parents=True)
    make_checkpoint(checkpoint, "pong", seed=7)
    add_run("sqlite:///runs/protein.db", of=4, score=19.0, checkpoint=checkpoint)
    return filled


def test_an_agent_is_named_by_its_sweep_its_trial_its_folder_or_its_file(
    agents: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Any] = []
    opened: list[str] = []

    def document(players: Any, **given: Any) -> str:
        shown.append((players, given))
        return "<html>"

    monkeypatch.setattr(play, "document", document)
    monkeypatch.setattr(webbrowser, "open", opened.append)
    trial = agents / "runs" / "pong" / "0007"
    lines = ["pong", "", "pong --trial 7", str(trial), f"{trial}/checkpoint.safetensors", f"pong {trial}"]
    for line in lines:
        assert re.fullmatch(r"game: g\.html \(0\.00 MB\); open it in a browser\n", run(f"play {line} -o g.html"))
    policies = [player.policy for players, _ in shown for player in players]
    assert policies == [policies[0]] * 7
    notes = [f"{player.title}: {player.note}" for players, _ in shown for player in players]
    assert notes[0] == notes[1] == notes[2] == notes[5] == "trial 7 of pong: score 19.00 in 1.00s of training"
    assert notes[3] == notes[6] == "0007: 1,000 steps in 2.50s of training"
    assert opened == []
    printed = run("play pong --seed 5 --human --greedy")
    assert shown[-1][1] == {"title": "pong", "seed": 5, "human": True, "greedy": True, "config": None}
    path = Path(re.fullmatch(r"game: (\S+\.html) .*\n", printed)[1])  # type: ignore[index]
    assert opened == [path.as_uri()]
    assert path.read_text() == "<html>"
    path.unlink()
    run("play breakout --human -o g.html")  # which no sweep is called
    assert shown[-1][0] == [play.Player(env="breakout", title="breakout", note="played by you", policy=None)]


def test_a_file_that_would_be_large_has_weights_of_16_bits(folder: Path, run: Run) -> None:
    make_checkpoint(folder / "large", "snake", {"hidden_size": 350})
    printed = run("play large -o snake.html")
    size = (folder / "snake.html").stat().st_size
    assert 500_000 < size < play.MAX_BYTES
    assert printed.endswith("its weights have 16 bits, so that it is below 1 MB\n")


def test_what_cannot_be_played_is_refused_in_a_line(agents: Path, run: Run) -> None:
    assert run.error("play snake").startswith("there is no sweep 'snake'")
    assert run.error("play snake").endswith("to play snake yourself, add --human")
    assert run.error("play snake --human --trial 3").startswith("there is no sweep 'snake'")
    assert run.error("play ''").startswith("there is no sweep ''")
    assert run.error("play none/checkpoint.safetensors").startswith(
        "there is no checkpoint none/checkpoint.safetensors"
    )
    assert run.error("play runs").startswith("runs is a folder without checkpoint.safetensors")
    assert run.error("play pong --trial 99") == "sweep 'pong' has no trial 99; it has 0 to 7"
    assert run.error("play pong --trial 0").startswith("trial 0 of sweep 'pong' cannot play: it left no checkpoint;")
    assert run.error("play pong --trial 7 --under 10s").startswith("--trial 7 and --under 10s both choose a trial")
    assert run.error("play pong --under 0.001s").startswith("no trial of sweep 'pong' cost 0.001s or less")
    assert run.error("play pong --seed -1") == f"--seed -1 must be from 0 to {2**53 - 1}"
    assert run.error("play pong --learn --human").startswith("--human is for an agent that has learnt")
    assert run.error("play pong --learn --store a.db").startswith("--store is for an agent that has learnt")
    assert run.error("play --learn").startswith("--learn takes one game; name one of")
    assert run.error("play memory --learn").startswith("a page learns with policy.recurrence of none alone")
    assert run.error("play snake --learn").startswith("a page learns games of one agent with one choice")
    assert run.error("play pong -o runs").startswith("--output runs")
    path = agents / "runs" / "pong" / "0007" / "checkpoint.safetensors"
    assert run.error(f"play {path} --trial 3").startswith("--trial and --under choose among a sweep's trials")
    make_checkpoint(path, "pong", env="gym:CartPole-v1")
    assert "'gym:CartPole-v1' cannot be played in a page" in run.error(f"play {path}")
    make_checkpoint(path, "pong", module="mine:Net")
    assert "has a network of your own, mine:Net" in run.error(f"play {path}")
    path.write_bytes(path.read_bytes()[:500])
    assert "it is damaged or no checkpoint" in run.error("play pong")
    assert not (agents / "g.html").exists()


PLAYS = """
async ([world64, policy64]) => {
  const { World } = await proteinImport("play/file.js", "./world.js");
  const { Policy } = await proteinImport("play/file.js", "./policy.js");
  const bytes = (text) => Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const policy = Policy.parse(bytes(policy64));
  const world = await World.load(bytes(world64), { frameSkip: policy.frameSkip });
  const seen = [];
  const add = (array) => seen.push(...new Uint8Array(array.buffer, array.byteOffset, array.byteLength));
  add(world.reset(3, 2));
  for (let step = 0; step < 300; step++) {
    const { rewards, terminals, truncations } = world.step(policy.act(world.observation, { greedy: true }).actions);
    policy.reset(terminals, truncations);
    for (const array of [world.observation, rewards, terminals, truncations]) add(array);
  }
  const digest = await crypto.subtle.digest("SHA-256", Uint8Array.from(seen));
  return Array.from(new Uint8Array(digest), (one) => one.toString(16).padStart(2, "0")).join("");
}
"""


def test_the_file_plays_the_native_game_in_a_browser_without_a_network(
    browser: Browser, folder: Path, run: Run
) -> None:
    path = make_checkpoint(folder / "breakout.safetensors", "breakout", {"recurrence": "mingru"}, normalised=True)
    run(f"play {path} --human -o 'a game.html'")
    context = browser.new_context(viewport={"width": 900, "height": 800}, offline=True)
    view = watched(context.new_page(), (folder / "a game.html").as_uri())
    view.page.goto(view.address)
    expect(view.page.get_by_role("heading", name="breakout", level=1)).to_be_visible()
    expect(view.page.get_by_role("img", name="breakout: break a wall")).to_be_visible()
    expect(view.page.get_by_text("1,000 steps in 2.50s of training")).to_be_visible()
    _, seen, _ = native_game(path, seed=3, index=2, steps=300)
    given = [base64.b64encode(one).decode() for one in (worlds.read("breakout"), export_policy(path))]
    assert view.page.evaluate(PLAYS, given) == hashlib.sha256(seen).hexdigest()
    view.check_accessible()
    context.close()
    view.check()


def test_the_page_learns_in_a_worker_and_draws_meanwhile(browser: Browser, folder: Path, run: Run) -> None:
    run("play pong --learn -o learns.html")
    context = browser.new_context(viewport={"width": 900, "height": 800}, offline=True)
    view = watched(context.new_page(), (folder / "learns.html").as_uri())
    page = view.page
    page.goto(view.address)
    learnt = page.get_by_text("s of learning: ")
    expect(learnt).to_be_visible()  # a batch is learnt
    assert len(page.workers) == 1
    expect(page.get_by_role("img", name="pong: first to 21")).to_be_visible()
    expect(page.get_by_role("button", name="Take over")).to_be_enabled()
    page.get_by_role("button", name="Pause learning").click()
    go_on = page.get_by_role("button", name="Go on learning")
    expect(go_on).to_be_visible()
    go_on.click()
    expect(learnt).not_to_have_text(learnt.inner_text())
    # A new beginning ends the worker that was there.
    with page.workers[0].expect_event("close"):
        page.get_by_role("button", name="Start again").click()
    expect(page.get_by_text("It begins to learn.")).to_be_hidden()
    assert len(page.workers) == 1
    view.check()
    # A browser without workers says so, and a person may play.
    page.add_init_script("delete globalThis.Worker")
    page.reload()
    expect(page.get_by_text("It cannot be learnt here: this browser has no workers")).to_be_visible()
    expect(page.get_by_role("button", name="Take over")).to_be_hidden()
    view.check()
    context.close()
