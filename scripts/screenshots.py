"""Pictures of every page of `protein view`, dark and light, as the documentation shows them.

python scripts/screenshots.py sqlite:///runs/protein.db pong docs/images
python scripts/screenshots.py sqlite:///runs/protein.db old,new docs/images compare

It serves the store, opens each page (or those named last, between commas) with the named sweeps in Chromium, and writes
view_PAGE.png and view_PAGE_dark.png. It needs Playwright's Python package and Chromium.
"""

import io
import shutil
import sys
import threading
from pathlib import Path
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

from protein.api import stores
from protein.api.recommended import recommendation
from protein.web import app

SIZE = {"width": 1280, "height": 800}
COLORS = 128  # of a picture's palette: a third of the size, and the eye sees no difference
PATIENCE_MS = 180_000  # for the models of a large sweep


def places(store_url: str, names: list[str]) -> dict[str, str]:
    """Returns the address of each page behind "#/", with trials to look at: the front's, and the recommended one."""
    with stores.opened(store_url) as store:
        sweep = stores.find(store, names[0])
        found = recommendation(sweep, store.trials(sweep.id, curves=False))
    shown, first = "&".join(f"sweep={quote(name)}" for name in names), quote(names[0], safe="")
    chosen = f"sel={first}:{'.'.join(str(choice.trial.number) for choice in found.front[-4:])}"
    return {
        "table": f"table?{shown}&sort=-score&{chosen}",
        "front": f"front?{shown}",
        "curves": f"curves?{shown}&pick=spread&n=50",
        "compare": f"compare?{shown}" + ("" if len(names) > 1 else f"&{chosen}"),
        "parameters": f"parameters?{shown}",
        "trial": f"trial/{first}/{found.best.trial.number}?{shown}",
        "sweep": f"sweep?{shown}",
    }


def save(page: Page, path: Path) -> None:
    """Saves what the page shows once nothing loads any more."""
    page.wait_for_selector("main .page > *", timeout=PATIENCE_MS)
    for _ in range(2):  # a part may begin to load when another one is there
        page.wait_for_timeout(1500)
        expect(page.locator("main .spinner, main .loading")).to_have_count(0, timeout=PATIENCE_MS)
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    image.quantize(COLORS, dither=Image.Dither.NONE).save(path, optimize=True)


def main(given: str, sweeps: str, folder: str, wanted: str = "") -> None:
    store_url = stores.url(given)
    shown = places(store_url, sweeps.split(","))
    listening = app.listen("127.0.0.1", None)
    server = app.make_server(store_url, host="127.0.0.1", token=None)
    threading.Thread(target=server.serve_on, args=(listening,), daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for dark, ending in ((False, ""), (True, "_dark")):
            scheme = "dark" if dark else "light"
            page = browser.new_page(viewport=SIZE, color_scheme=scheme)  # type: ignore[arg-type]
            for name in wanted.split(",") if wanted else shown:
                page.goto(f"http://127.0.0.1:{listening.getsockname()[1]}/#/{shown[name]}")
                page.reload()  # a new address behind "#" alone keeps what the page has loaded
                save(page, Path(folder) / f"view_{name}{ending}.png")
        browser.close()
    server.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
