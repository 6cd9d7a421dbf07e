"""What the page of `protein view` costs: its start, the table at 1,000 to 100,000 trials, news, memory. One table.

    python benchmarks/view_page.py [--folder FOLDER]      stores are made in the folder, and kept there
    python benchmarks/view_page.py --first                a first visit alone: bytes, round trips, seconds to content

The server is a process of its own, as a user starts it, and the browser is the system's Chromium. Every figure but
those of starts is the median of `REPEATS`. The times of the server's answers include HTTP and JSON.
"""

import argparse
import functools
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import big_store
import machine
import psutil
from playwright.sync_api import Browser, Page, Route, sync_playwright

from protein.storage import open_store
from protein.types import Outcome, Provenance, Suggestion, SuggestionKind, TrialEnd

SIZES = (1_000, 10_000, 100_000)
POINTS = 2  # of each curve: the table reads none
REPEATS = 5
IDLE_SECONDS = 20.0
NUM_COLUMNS = 20
PROVENANCE = Provenance(version="0", git_commit="", machine="", config_hash="")
# What a first visit opens, and what is its first content.
FIRST = {
    "overview": ("overview?sweep=big", ".overview-line"),
    "home": ("home", ".home-table tbody tr"),
    "table": ("table?sweep=big", "tbody tr[data-index]"),
    "front": ("front?sweep=big", ".front-chart canvas"),
}
HELD_MS = 600  # after which a page that waits for its answers asks for nothing more
SORTS = ("-score", "params.train.learning_rate", "origin,-score")
FILTERS = (
    "train.learning_rate < 1e-3 and state == complete",
    "score > 10 or (cost_seconds < 1m and kind == search)",
    "reason contains nan and not excluded",
)


@contextmanager
def serving(store: Path) -> Iterator[tuple[str, int, float]]:
    """Starts `protein view`; yields its address, its process id and the seconds until it has answered a question."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "protein", "view", str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            match = re.search(r"http://\S+", process.stdout.readline())
            assert match is not None, "the server printed no address"
            asked(match[0], "/api/sweeps")
            yield match[0], process.pid, time.perf_counter() - begun
        finally:
            process.terminate()


def asked(address: str, path: str, **query: Any) -> Any:
    """Returns the server's answer."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(address).netloc, timeout=60)
    connection.request("GET", path + "?" + urllib.parse.urlencode(query, doseq=True))
    answer = json.loads(connection.getresponse().read())
    connection.close()
    assert "error" not in answer, answer
    return answer


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def answers(address: str, num_trials: int) -> dict[str, float]:
    """Returns the median seconds of an answer with 100 rows of `NUM_COLUMNS` columns, for new orders and filters.

    The server remembers orders. So each question asks for trials that no earlier one has asked for.
    """
    keys = [one["key"] for one in asked(address, "/api/table", sweep="big", limit=0)["columns"] if not one["empty"]]
    common = {"sweep": "big", "limit": 100, "column": keys[:NUM_COLUMNS]}
    found = {}
    for name, questions in (
        ("sorted", [{"sort": sort} for sort in SORTS]),
        ("filtered", [{"filter": text} for text in FILTERS]),
    ):
        seconds = []
        for repeat in range(REPEATS):
            for question in questions:
                new = f"number != {num_trials + repeat}"
                text = f"({question['filter']}) and {new}" if "filter" in question else new
                query = {**common, **question, "filter": text}
                seconds.append(timed(functools.partial(asked, address, "/api/table", **query)))
        found[name] = statistics.median(seconds)
    return found


def usable(browser: Browser, address: str, page_name: str = "table", shown: str = "tbody tr[data-index]") -> float:
    """Returns the seconds until the rows of the table are there, in a browser that has never seen the page.

    Or until something is `shown` on another page.
    """
    context = browser.new_context(viewport={"width": 1400, "height": 860})
    page = context.new_page()
    begun = time.perf_counter()
    page.goto(f"{address}#/{page_name}?sweep=big")
    page.wait_for_selector(shown)
    seconds = time.perf_counter() - begun
    context.close()
    return seconds


def first_visit(browser: Browser, address: str, place: str, content: str) -> dict[str, float]:
    """Returns the seconds until a page's content is there in a new browser, and the bytes that it took.

    Round trips are counted in another visit, in which all answers of a page are held back until it asks for no more.
    """
    context = browser.new_context(viewport={"width": 1400, "height": 860})
    page = context.new_page()
    session = context.new_cdp_session(page)
    received = 0

    def count(event: dict[str, Any]) -> None:
        nonlocal received
        received += int(event["encodedDataLength"])

    session.on("Network.loadingFinished", count)
    session.send("Network.enable")
    begun = time.perf_counter()
    page.goto(f"{address}#/{place}")
    page.locator(content).first.wait_for()
    seconds = time.perf_counter() - begun
    page.wait_for_timeout(HELD_MS)
    context.close()
    held: list[Route] = []
    context = browser.new_context()
    page = context.new_page()
    page.route("**/api/**", lambda route: held.append(route))
    page.goto(f"{address}#/{place}")
    trips = 0
    while not page.locator(content).first.is_visible():
        page.wait_for_timeout(HELD_MS)
        trips += bool(held)
        while held:
            held.pop().continue_()
        page.wait_for_timeout(HELD_MS)
    context.close()
    return {"seconds": seconds, "kilobytes": received / 1e3, "round trips": trips}


def first_visits(folder: Path, browser: Browser, sizes: Sequence[int]) -> list[dict[str, Any]]:
    rows = []
    for size in sizes:
        store = folder / f"view_{size}.db"
        if not store.exists():
            big_store.make(store, trials=size, points=POINTS)
        with serving(store) as (address, _, _):
            for name, (place, content) in FIRST.items():
                found = first_visit(browser, address, place, content)
                rows.append({"trials": size, "page": name, **found})
                seconds, kilobytes, trips = found.values()
                print(f"{size:>9,} {name:<10}{seconds:>7.2f} s{kilobytes:>8.0f} kB, {trips:.0f} round trips")
    return rows


def scrolled(page: Page, num_trials: int) -> float:
    """Returns the seconds until rows far below are there after a jump."""
    page.evaluate("document.querySelector('.grid-room').scrollTop = 0")
    page.wait_for_selector("tbody tr[data-index='0']")
    begun = time.perf_counter()
    page.evaluate("(() => { const r = document.querySelector('.grid-room'); r.scrollTop = r.scrollHeight * 0.7; })()")
    page.wait_for_selector(f"tbody tr[data-index='{int(0.7 * num_trials) + 5}']")
    return time.perf_counter() - begun


def clicked(page: Page) -> float:
    """Returns the seconds from a click on a head until the rows stand in another order."""
    page.evaluate("document.querySelector('.grid-room').scrollTop = 0")
    row = page.locator("tbody tr[data-index='0']")
    before = row.get_attribute("data-number")
    head = page.locator("thead").get_by_role("button", name="cost", exact=True)
    begun = time.perf_counter()
    head.click()
    page.wait_for_selector(f"tbody tr[data-index='0']:not([data-number='{before}'])")
    return time.perf_counter() - begun


def news(page: Page, store: Path) -> float:
    """Returns the seconds from a trial's end in the store until the page shows it."""
    opened = open_store(str(store))
    [sweep] = opened.list_sweeps()
    started = opened.start_trial(
        sweep.id,
        Suggestion(params={}, kind=SuggestionKind.SEARCH, origin="benchmark"),
        seed=0,
        owner="benchmark",
        lease_seconds=600.0,
        suggest_seconds=0.0,
        provenance=PROVENANCE,
    )
    page.wait_for_selector(f"tbody tr[data-number='{started.number}']")
    outcome = Outcome(end=TrialEnd.COMPLETE, score=123.25, cost_seconds=1.0, steps=100)
    opened.finish_trial(started, outcome)
    begun = time.perf_counter()
    page.wait_for_selector(f"tbody tr[data-number='{started.number}'] >> text=123.25")
    seconds = time.perf_counter() - begun
    opened.close()
    return seconds


def idle_bytes(page: Page) -> float:
    """Returns the bytes a second that an idle page receives."""
    session = page.context.new_cdp_session(page)
    received = 0

    def count(event: dict[str, Any]) -> None:
        nonlocal received
        received += int(event["encodedDataLength"] or event["dataLength"])

    session.on("Network.dataReceived", count)
    session.send("Network.enable")
    page.wait_for_timeout(1000 * IDLE_SECONDS)
    session.detach()
    return received / IDLE_SECONDS


def measure(folder: Path, browser: Browser, num_trials: int) -> dict[str, float]:
    store = folder / f"view_{num_trials}.db"
    if not store.exists():
        big_store.make(store, trials=num_trials, points=POINTS)
    with serving(store) as (address, process, start):
        overview = functools.partial(usable, browser, address, "overview", ".room-best .lead")
        found = {"start": start, "first page": overview(), **answers(address, num_trials)}
        found["overview"] = statistics.median(overview() for _ in range(REPEATS))
        found["page"] = statistics.median(usable(browser, address) for _ in range(REPEATS))
        page = browser.new_page(viewport={"width": 1400, "height": 860})
        page.goto(address + "#/table?sweep=big")
        page.wait_for_selector("tbody tr[data-index]")
        found["jump"] = statistics.median(scrolled(page, num_trials) for _ in range(REPEATS))
        found["click"] = statistics.median(clicked(page) for _ in range(2))
        page.goto(address + "#/table?sweep=big&sort=-number")
        page.wait_for_selector("th[aria-sort] >> text=trial")
        found["news"] = max(news(page, store) for _ in range(3))
        found["idle bytes/s"] = idle_bytes(page)
        page.close()
        found["server MB"] = psutil.Process(process).memory_info().rss / 1e6
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the stores are made and kept (default: a temporary folder)")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of trials")
    parser.add_argument("--first", action="store_true", help="measure a first visit alone")
    arguments = parser.parse_args()
    os.environ.pop("PROTEIN_STORE", None)
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        if arguments.first:
            machine.write_result("view_first", first_visits(folder, browser, arguments.sizes))
            return
        results = {size: measure(folder, browser, size) for size in arguments.sizes}
        browser.close()
    names = list(next(iter(results.values())))
    print(f"{'trials':>14}" + "".join(f"{size:>12,}" for size in results))
    for name in names:
        print(f"{name:>14}" + "".join(f"{found[name]:>12.3g}" for found in results.values()))
    machine.write_result("view_page", [{"trials": size, **found} for size, found in results.items()])


if __name__ == "__main__":
    main()
