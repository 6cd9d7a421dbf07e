"""For tests of the page: a known store, a server in this process, a real browser, and a guard over what it does.

    def test_the_table(view: View) -> None:
        view.open("table?sweep=pong")
        expect(view.page.get_by_role("row")).to_have_count(8)

A test fails at its end if the browser has logged an error, or asked anything outside the server. An error that belongs
to the test is named before: `view.allow("status of 400")`. Loading the page takes most of the time of a short test, so
`view` and `phone` are loaded once for all tests. One that answers requests itself, or is about the loading, takes
`new_view`.
"""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import socket
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Route, expect, sync_playwright
from sample_trials import PROVENANCE, fill_store

from protein.space import Space
from protein.storage import open_store
from protein.types import (
    Direction,
    Estimate,
    Measurement,
    Outcome,
    Params,
    Suggestion,
    SuggestionKind,
    SweepSpec,
    TrialEnd,
)
from protein.web import app

AXE = Path(__file__).parents[1] / "assets" / "axe" / "axe.min.js"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# Chromium loads two pages of its own for the address line of every window, which nobody sees in a test: they take more
# of the processor than ours. Its last `--disable-features` replaces those before, so Playwright's own are named again.
OFF = (
    "WebUIOmniboxPopup",
    "WebUIOmniboxAimPopup",
    "WebUIOmniboxFullPopup",
    "AimEnabled",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsFirstBalancedModeAutoEnable",
    "HttpsUpgrades",
    "LensOverlay",
    "MediaRouter",
    "NetworkTimeServiceQuerying",
    "OptimizationHints",
    "PaintHolding",
    "PreconnectToSearch",
    "ThirdPartyStoragePartitioning",
)
FORGET = """() => {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  for (const id of ["notices", "toasts", "main"]) document.getElementById(id).replaceChildren();
  document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.activeElement?.blur();
  localStorage.clear();
}"""
WAIT_MS = 120_000  # for anything that is to appear: patience on a busy machine, no bound on speed
ODD_NAME = 'it\'s a "naïve" <b>søk</b> 100% #1 & 2'  # what names may hold


class MissingChromiumError(Exception):
    """No Chromium is installed."""


def find_chromium() -> str:
    """Returns the program. Raises `MissingChromiumError`."""
    for program in PROGRAMS:
        if found := shutil.which(program):
            return found
    raise MissingChromiumError("tests of the page need Chromium: apt-get install chromium")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for all tests. Without Chromium: a skip, but in CI a failure."""
    try:
        program = find_chromium()
    except MissingChromiumError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", f"--disable-features={','.join(OFF)}"]
        opened = playwright.chromium.launch(executable_path=program, args=flags)
        yield opened
        opened.close()


class Served:
    """A store's page, served from a thread of this process."""

    def __init__(
        self, store_url: str, port: int | None = None, *, token: str | None = None, artifacts: Path | None = None
    ) -> None:
        self.store_url = store_url
        self._token = token
        self._listening = app.listen("127.0.0.1", port) if port else _free()
        self.port: int = self._listening.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}/"
        self.server = app.make_server(store_url, host="127.0.0.1", token=token, artifacts=artifacts)
        self._thread = threading.Thread(target=self.server.serve_on, args=(self._listening,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.server.stop()
        self._thread.join()

    def restarted(self) -> "Served":
        """Returns a new server on the same port."""
        return Served(self.store_url, self.port, token=self._token)


def _free() -> socket.socket:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", 0))
    listening.listen(128)
    return listening


@dataclasses.dataclass
class View:
    """A page of the browser that looks at a served store."""

    page: Page
    address: str
    problems: list[str]
    _allowed: list[str] = dataclasses.field(default_factory=list)

    def open(self, place: str) -> None:
        """Opens a page, such as "table?sweep=pong", and waits until it shows something."""
        self.page.goto(f"{self.address}#/{place}")
        self.page.wait_for_selector("main .page > :visible, main .state:not(.loading):visible", timeout=WAIT_MS)

    def forget(self) -> None:
        """Takes the page to no place, with nothing open, chosen or remembered, as when it was new."""
        self.page.keyboard.press("Escape")
        self.page.mouse.move(0.0, 0.0)
        self.page.goto(f"{self.address}#/none")
        expect(self.page.get_by_text("There is no page")).to_be_visible()
        self.page.evaluate(FORGET)
        self.problems.clear()
        self._allowed.clear()

    def allow(self, pattern: str) -> None:
        """Expects errors of the browser that match a pattern."""
        self._allowed.append(pattern)

    def check(self) -> None:
        """Fails if the browser has logged an error that was not expected, or asked another machine."""
        left = [one for one in self.problems if not any(re.search(pattern, one) for pattern in self._allowed)]
        assert not left, "\n".join(left)

    def check_accessible(self) -> None:
        """Fails on what axe-core finds: names, roles, contrast, headings."""
        self.page.evaluate(AXE.read_text())
        found: list[Any] = self.page.evaluate(
            "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"
            ".map((one) => `${one.id}: ${one.help}: ${one.nodes.slice(0, 4).map((node) => node.html).join(' | ')}`)"
        )
        assert not found, "\n".join(found)


def watched(page: Page, address: str) -> View:
    """Returns a view whose problems are collected. Requests that would leave the server are stopped."""
    problems: list[str] = []

    def log(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            problems.append(f"{message.type}: {message.text} at {message.location.get('url', '')}")

    def outside(route: Route, request: Request) -> None:
        problems.append(f"request to {request.url}")
        route.abort()

    page.on("console", log)
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.route(re.compile(rf"^(?!{re.escape(address)}|data:|blob:)"), outside)
    page.set_default_timeout(WAIT_MS)
    return View(page=page, address=address, problems=problems)


@pytest.fixture(scope="session")
def known_store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a store that tests only read; see `fill_known`."""
    url = f"sqlite:///{tmp_path_factory.mktemp('known')}/protein.db"
    fill_known(url)
    return url


@pytest.fixture(scope="session")
def served(known_store: str) -> Iterator[Served]:
    """The known store's server, which all tests share."""
    server = Served(known_store)
    yield server
    server.stop()


# Nothing moves while a test waits: without a GPU each frame takes the processor.
LAPTOP: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce"}
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 780},
    "color_scheme": "dark",
    "has_touch": True,
    "reduced_motion": "reduce",
}


@contextlib.contextmanager
def opened(browser: Browser, served: Served, like: dict[str, Any] = LAPTOP) -> Iterator[View]:
    """A new page of a server, of a screen's size."""
    context = browser.new_context(**like)
    yield watched(context.new_page(), served.address)
    context.close()


@pytest.fixture(scope="session")
def kept_view(browser: Browser, served: Served) -> Iterator[View]:
    with opened(browser, served) as view:
        yield view


@pytest.fixture(scope="session")
def kept_phone(browser: Browser, served: Served) -> Iterator[View]:
    with opened(browser, served, PHONE) as view:
        yield view


@pytest.fixture
def view(kept_view: View) -> Iterator[View]:
    """The page of the known store, of a laptop's size, which tests share."""
    kept_view.forget()
    yield kept_view
    kept_view.check()


@pytest.fixture
def phone(kept_phone: View) -> Iterator[View]:
    """The same on a narrow screen, in the dark."""
    kept_phone.forget()
    yield kept_phone
    kept_phone.check()


@pytest.fixture
def new_view(browser: Browser, served: Served) -> Iterator[View]:
    """As `view`, but a page that has loaded nothing yet."""
    with opened(browser, served) as view:
        yield view
    view.check()


@pytest.fixture
def own_store(tmp_path: Path) -> str:
    """The URL of a small store that the test may change: the sweep "pong" of `sample_trials.STORED`."""
    url = f"sqlite:///{tmp_path}/protein.db"
    fill_store(url)
    return url


@pytest.fixture
def view_of(browser: Browser) -> Iterator[Callable[..., View]]:
    """Serves another store: `view_of(url)` returns a page of it, and `view_of(url, served)` one of a running server."""
    opened: list[tuple[Any, View]] = []
    servers: list[Served] = []

    def make(store_url: str, served: Served | None = None) -> View:
        if served is None:
            served = Served(store_url)
            servers.append(served)
        context = browser.new_context(**LAPTOP)
        found = watched(context.new_page(), served.address)
        opened.append((context, found))
        return found

    yield make
    for context, _ in opened:
        context.close()
    for server in servers:
        server.stop()
    for _, found in opened:
        found.check()


def fill_known(url: str) -> None:
    """Makes a store with the sweep "pong" of `sample_trials.STORED`, and others that are unusual.

    - "loss": 40 trials that minimise, with all kinds of ends, a parameter of three choices and one of mixed types;
      trial `i` has the loss `(i - 20)**2 / 100` and costs `2 + i` seconds.
    - `ODD_NAME`: three trials, with unusual names of parameters and texts.
    - "failed": two trials, which both failed.
    - "new": no trial yet.
    """
    fill_store(url)
    fill_loss(url)
    fill_sweep(
        url,
        ODD_NAME,
        [
            ({"lërning rate": 0.1 * i, 'a "quoted", <i>name</i>': f"<script>alert({i})</script>"}, 1.0 + i, 5.0, "")
            for i in range(3)
        ],
    )
    fill_sweep(url, "failed", [({"x": float(i)}, None, 3.0, "diverged: loss is nan") for i in range(2)])
    fill_sweep(url, "new", [])


def fill_loss(url: str, num_trials: int = 40) -> None:
    """Adds the sweep "loss"; see `fill_known`. Its sixth, twelfth, ... trials have failed."""
    trials: list[tuple[Params, float | None, float, str]] = []
    for i in range(num_trials):
        params: Params = {
            "lr": 10 ** (-4 + i / 10),
            "layers": 1 + i % 4,
            "optimizer": ("adam", "sgd", "muon")[i % 3],
            "width": (64, "auto")[i % 2],
            "nesterov": i % 2 == 0,
        }
        failed = i % 6 == 5
        trials.append(
            (params, None if failed else (i - 20) ** 2 / 100, 2.0 + i, "crashed: signal 11" if failed else "")
        )
    fill_sweep(url, "loss", trials, direction=Direction.MINIMIZE)


def fill_sweep(
    url: str,
    name: str,
    trials: Sequence[tuple[Params, float | None, float, str]],
    *,
    direction: Direction = Direction.MAXIMIZE,
    env: str = "own",
    space: Space | None = None,
) -> None:
    """Adds a sweep. A trial is its params, its score as the user knows it, its cost in seconds, why it failed.

    Without a space it is one that no model can be fitted to.
    """
    sign = 1.0 if direction is Direction.MAXIMIZE else -1.0
    spec = SweepSpec(
        name=name,
        env=env,
        method="protein",
        seed=0,
        space={} if space is None else space.to_dict(),
        config={},
        provenance=PROVENANCE,
        direction=direction,
    )
    store = open_store(url)
    sweep = store.create_sweep(spec, 600.0)
    for number, (params, score, cost, reason) in enumerate(trials):
        around = sign * (score or 0.0)
        predicted = Estimate(value=around, low=around - 1.0, high=around + 2.0)
        started = store.start_trial(
            sweep.id,
            Suggestion(
                params=params,
                kind=SuggestionKind.SEARCH,
                origin=f"improving the front near {cost:.0f} s",
                predicted_score=predicted if number else None,
                predicted_cost_seconds=Estimate(value=cost, low=cost / 2, high=cost * 2) if number else None,
            ),
            seed=number,
            owner="test",
            lease_seconds=600.0,
            suggest_seconds=0.125,
            provenance=PROVENANCE,
        )
        points = [
            Measurement(steps=100 * i, elapsed_seconds=cost * i / 10, score=around * i / 10, metrics={"loss": 1 / i})
            for i in range(1, 11)
        ]
        store.add_measurements(started, points, 600.0)
        end = (
            TrialEnd.COMPLETE if score is not None else TrialEnd.DIVERGED if "diverged" in reason else TrialEnd.CRASHED
        )
        outcome = Outcome(
            end=end,
            score=None if score is None else sign * score,
            cost_seconds=cost,
            steps=1000,
            reason=reason,
            metrics={"train_score": float(number)},
            timings={"startup": 2.0},
        )
        store.finish_trial(started, outcome)
    store.close()


def asked(served: Served, path: str, **values: Any) -> Any:
    query = urllib.parse.urlencode(values, doseq=True)
    with urllib.request.urlopen(f"{served.address}api/{path}?{query}") as answer:
        return json.loads(answer.read())


def refused(served: Served, path: str, **values: Any) -> tuple[int, str]:
    with pytest.raises(urllib.error.HTTPError) as error:
        asked(served, path, **values)
    return error.value.code, json.loads(error.value.read())["error"]
