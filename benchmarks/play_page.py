"""What the player in the page costs: time to the first picture, pictures a second, size.

python benchmarks/play_page.py [docs/gallery/index.html] [--seconds 3]

Opens a file of games in headless Chromium, without a network, and plays each game with all its policies beside each
other. The first picture is timed from the choice of a game until its canvas has been drawn. Needs Chromium and
Playwright (the developers' tools). Pictures a second are at most the screen's, 60.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import machine
from playwright.sync_api import Page, sync_playwright

# Counts the pictures that the player's own loop draws: it asks for each.
COUNTS = """
const ask = globalThis.requestAnimationFrame.bind(globalThis);
globalThis.pictures = { drawn: 0, spent: 0 };
globalThis.requestAnimationFrame = (draw) => ask((now) => {
  const begun = performance.now();
  draw(now);
  pictures.drawn += 1;
  pictures.spent += performance.now() - begun;
});
"""
OPENED = """async () => {
  while (!(document.querySelector(".play-view canvas")?.width > 300)) await new Promise((next) => setTimeout(next));
  const games = [...document.querySelectorAll(".games-list a")].map((link) => link.hash.slice(1));
  return { milliseconds: performance.now(), games };
}"""
FIRST = """async (name) => {
  const begun = performance.now();
  document.querySelector(`a[href="#${name}"]`).click();
  for (;;) {
    await new Promise((next) => setTimeout(next));
    const canvas = document.querySelector(".play-view canvas");
    if (document.querySelector("h2").textContent === name && canvas?.width > 300) {
      const middle = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      if (middle.some((value) => value > 60 && value < 255)) return performance.now() - begun;
    }
  }
}"""
RATE = """async ([seconds, speed]) => {
  const pace = document.querySelector('.play-keys select');
  pace.value = speed;
  pace.dispatchEvent(new Event("change"));
  Object.assign(pictures, { drawn: 0, spent: 0 });
  const begun = performance.now();
  await new Promise((next) => setTimeout(next, 1000 * seconds));
  return [1000 * pictures.drawn / (performance.now() - begun), pictures.spent / pictures.drawn];
}"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", default=Path("docs/gallery/index.html"))
    parser.add_argument("--seconds", type=float, default=3.0, help="of play for each game and speed (3)")
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    arguments = parser.parse_args()
    if not arguments.file.is_file():
        print(f"error: there is no {arguments.file}; python scripts/gallery.py makes it", file=sys.stderr)
        return 2
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=arguments.chromium, args=["--no-sandbox"])
        page = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True).new_page()
        page.add_init_script(COUNTS)
        page.goto(arguments.file.resolve().as_uri())
        opened = _opened(page)
        rows = [_row(page, name, arguments.seconds) for name in opened["games"]]
        browser.close()
    size = arguments.file.stat().st_size
    print(f"{size / 1e6:.2f} MB, {opened['milliseconds']:.0f} ms from the navigation to the first picture")
    print("game       first picture, ms   pictures a second at x1   at x16   ms of a picture at x1   at x16")
    for row in rows:
        first, (rate, spent), (fast, fast_spent) = row["first_ms"], row["x1"], row["x16"]
        print(f"{row['game']:10} {first:18.0f} {rate:25.1f} {fast:8.1f} {spent:23.2f} {fast_spent:8.2f}")
    machine.write_result("play_page", rows, bytes=size, opened_ms=opened["milliseconds"])
    return 0


def _opened(page: Page) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(OPENED)
    return found


def _row(page: Page, name: str, seconds: float) -> dict[str, Any]:
    if page.evaluate("document.querySelector('h2').textContent") == name:  # to choose it, another one must be shown
        page.evaluate("[...document.querySelectorAll('.games-list a')].at(-1).click()")
        page.wait_for_timeout(500)
    first = page.evaluate(FIRST, name)
    return {
        "game": name,
        "first_ms": first,
        **{f"x{speed}": page.evaluate(RATE, [seconds, str(speed)]) for speed in (1, 16)},
    }


if __name__ == "__main__":
    sys.exit(main())
