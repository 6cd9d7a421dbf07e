"""The gallery: the page in the repository is what the script makes today, but for the games and policies in it."""

import json
import re
import sys
from pathlib import Path

import pytest
from node import run_module

from scripts import gallery

PAGE = Path(__file__).parents[2] / "docs" / "gallery" / "index.html"
PACK = re.compile(r'(?<= id="pack">)[^<]*')  # compressed, which may be other bytes with another zlib


# Each game with each of its policies, for some decisions: the game may be of an earlier day than the page.
FITS = """
import { readFileSync } from "node:fs";
import { Match } from "play/match.js";
import { Policy } from "play/policy.js";
import { World } from "play/world.js";
const bytes = (text) => Buffer.from(text, "base64");
const found = {};
for (const { name, wasm, policies } of JSON.parse(readFileSync(0, "utf8"))) {
  found[name] = [];
  for (const { policy: file } of policies) {
    const policy = Policy.parse(bytes(file));
    const match = new Match(await World.load(bytes(wasm), { frameSkip: policy.frameSkip }), policy);
    found[name].push(match.step() && Number.isFinite(match.said.values[0]) ? "" : "does not play");
  }
}
process.stdout.write(JSON.stringify(found));
"""


def test_the_page_is_that_of_todays_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "index.html"
    made.write_bytes(PAGE.read_bytes())
    names = [game["name"] for game in gallery.content(PAGE)["data"]["games"]]
    monkeypatch.setattr(sys, "argv", ["gallery.py", "--repack", "--into", str(tmp_path), "--games", *names])
    assert gallery.main() == 0
    stands, today = (PACK.sub("", path.read_text(encoding="utf-8")) for path in (PAGE, made))
    again = "docs/gallery/index.html is not of today's code: run python scripts/gallery.py --repack"
    assert stands == today, again
    pack = gallery.content(PAGE)
    assert pack == gallery.content(made), again
    assert names == gallery.GAMES
    fits = json.loads(run_module(FITS, json.dumps(pack["data"]["games"]).encode()))
    assert fits == {name: [""] * 3 for name in names}
