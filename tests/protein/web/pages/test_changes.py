"""The stream of news, without a browser: the store changes at chosen moments, and the clock is never waited for."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sample_trials import fill_store, store_url

from protein.errors import StoreUnavailable
from protein.ports import Store
from protein.storage import open_store
from protein.web import viewer as viewer_module
from protein.web.pages import changes
from protein.web.report import finished
from protein.web.viewer import Viewer

NUM_LOOKS = 3  # after which the server ends


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    fill_store(store_url(tmp_path))
    opened = open_store(store_url(tmp_path))
    yield opened
    opened.close()


@pytest.fixture
def viewer(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Viewer:
    """Reads the store at each look; its stream ends after `NUM_LOOKS` looks, between which no time passes."""
    stopping = threading.Event()
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == NUM_LOOKS:
            stopping.set()

    monkeypatch.setattr(viewer_module, "REFRESH_SECONDS", -1.0)
    # Its own name alone: a server of other tests, in this process, sleeps by the module.
    monkeypatch.setattr(changes, "asyncio", SimpleNamespace(sleep=sleep))
    return Viewer(store, store_url(tmp_path), stopping)


def told(viewer: Viewer, after: Mapping[int, Callable[[], object]]) -> list[tuple[str, Any]]:
    """Returns all events of a page that shows "pong"; `after` has what happens once an event has come, by its place."""

    async def events() -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = []
        async for one in changes.watch(viewer, ["pong"]):
            name, data = one.splitlines()[:2]
            found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
            after.get(len(found) - 1, lambda: None)()
        return found

    return finished(events())  # the tests' browser may have a loop in this thread


def test_what_changes_after_the_greeting_is_told(viewer: Viewer, store: Store) -> None:
    [sweep] = store.list_sweeps()
    greeting, change = told(viewer, {0: lambda: store.annotate(sweep.id, [2, 5], tags=["seen"])})
    assert greeting == ("hello", {"epoch": viewer.epoch})
    name, news = change
    assert name == "changed" and news["sweeps"] == [
        {"name": "pong", "version": viewer.frame("pong").version, "trials": 7, "numbers": [2, 5]}
    ]


def test_where_the_store_was_away_at_the_greeting_all_is_news(
    viewer: Viewer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> Any:
        raise StoreUnavailable("no store\nhere")

    def back() -> None:
        monkeypatch.setattr(viewer, "sweeps", sweeps)

    sweeps = viewer.sweeps
    monkeypatch.setattr(viewer, "sweeps", away)
    events = told(viewer, {1: back})
    assert [name for name, _ in events] == ["hello", "trouble", "trouble", "changed", "sweeps"]
    assert [data for name, data in events if name == "trouble"] == [{"error": "no store here"}, {"error": ""}]
    [change] = events[3][1]["sweeps"]
    assert change["numbers"] is None and change["trials"] == 7
