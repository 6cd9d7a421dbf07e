"""The gallery: the page in the repository is what the script makes today, but for the games and policies in it."""

import re
import sys
from pathlib import Path

import pytest

from scripts import gallery

PAGE = Path(__file__).parents[2] / "docs" / "gallery" / "index.html"
PACK = re.compile(r'(?<= id="pack">)[^<]*')  # compressed, which may be other bytes with another zlib


def test_the_page_is_that_of_todays_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "index.html"
    made.write_bytes(PAGE.read_bytes())
    names = [game["name"] for game in gallery.content(PAGE)["data"]["games"]]
    monkeypatch.setattr(sys, "argv", ["gallery.py", "--repack", "--into", str(tmp_path), "--games", *names])
    assert gallery.main() == 0
    stands, today = (PACK.sub("", path.read_text(encoding="utf-8")) for path in (PAGE, made))
    again = "docs/gallery/index.html is not of today's code: run python scripts/gallery.py --repack"
    assert stands == today, again
    pack, pack_today = (gallery.content(path) for path in (PAGE, made))
    for game in (*pack["data"]["games"], *pack_today["data"]["games"]):
        del game["wasm"]  # which may be of an earlier day: it goes with the policies
    assert pack == pack_today, again
    assert names == gallery.GAMES
