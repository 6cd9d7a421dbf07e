"""`/api/changes`: news for an open page, as server-sent events. It says that something changed, never all of it.

The event `hello` comes first. It tells the truth only after the first look at the store: whatever changes after it is
told. An event `changed` has the versions of the sweeps that are watched; an event `sweeps` says that the list of sweeps
changed. A page then asks for what it shows. Between events there is one short comment every `BEAT_SECONDS`, so that
both sides notice when the other one is gone.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from protein.errors import ProteinError
from protein.web.answers import failure
from protein.web.frame import Frame
from protein.web.viewer import MAX_SWEEPS, Viewer

POLL_SECONDS = 0.7  # between two looks at the store: news shall be on the page within two seconds
BEAT_SECONDS = 15.0
MAX_NUMBERS = 200  # trials that an event names; None stands for more


def routes(viewer: Viewer) -> list[BaseRoute]:
    async def changes(request: Request) -> Response:
        names = list(dict.fromkeys(request.query_params.getlist("sweep")))
        if len(names) > MAX_SWEEPS:
            return failure(f"{len(names)} sweeps are watched; at most {MAX_SWEEPS} are allowed", 400)
        events = watch(viewer, names)
        return StreamingResponse(events, media_type="text/event-stream", headers={"cache-control": "no-store"})

    return [Route("/changes", changes, methods=["GET"])]


async def watch(viewer: Viewer, names: list[str]) -> AsyncIterator[str]:
    """Yields the events for a page that shows these sweeps, until the server ends."""
    seen: dict[str, int] = {}
    known: Any = None  # the list of sweeps; None: the store has not been read yet
    greeted = False
    trouble = ""
    last = time.monotonic()
    while not viewer.stopping.is_set():
        try:
            frames, listed = await anyio.to_thread.run_sync(lambda: _look(viewer, names))
        except ProteinError as error:
            if not greeted:  # the server is there; when the store is, too, everything is news
                greeted = True
                yield event("hello", {"epoch": viewer.epoch})
            if str(error) != trouble:
                trouble = str(error)
                yield event("trouble", {"error": " ".join(trouble.split())})
        else:
            if trouble:
                trouble = ""
                yield event("trouble", {"error": ""})
            if not greeted:
                greeted = True
                yield event("hello", {"epoch": viewer.epoch})
            else:
                news = [_news(one, seen.get(name)) for name, one in frames.items() if seen.get(name) != one.version]
                if news:
                    yield event("changed", {"sweeps": news})
                if listed != known:
                    yield event("sweeps", {})
            seen, known = {name: frame.version for name, frame in frames.items()}, listed
        if time.monotonic() - last > BEAT_SECONDS:
            last = time.monotonic()
            yield ": \n\n"
        await asyncio.sleep(POLL_SECONDS)


def event(name: str, data: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"


def _look(viewer: Viewer, names: list[str]) -> tuple[dict[str, Frame], Any]:
    sweeps = viewer.sweeps()
    listed = [(sweep.id, sweep.spec.name, sweep.max_cost_seconds, sweep.spec.tags) for sweep in sweeps.values()]
    return {name: viewer.frame(name) for name in names if name in sweeps}, listed


def _news(frame: Frame, since: int | None) -> dict[str, Any]:
    """Returns what changed in a sweep since a version; None: it was not read before, and all of its trials are new."""
    numbers = None if since is None else frame.numbers[frame.revisions > since].tolist()
    return {
        "name": frame.sweep.spec.name,
        "version": frame.version,
        "trials": len(frame),
        "numbers": None if numbers is None or len(numbers) > MAX_NUMBERS else numbers,
    }
