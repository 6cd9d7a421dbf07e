"""`/api/changes`: news for an open page, as server-sent events. It says that something changed, never all of it.

An event `changed` has the versions of the sweeps that are watched; an event `sweeps` says that the list of sweeps
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
    known: Any = None
    trouble = ""
    last = time.monotonic()
    yield event("hello", {"epoch": viewer.epoch})
    while not viewer.stopping.is_set():
        try:
            frames, listed = await anyio.to_thread.run_sync(lambda: _look(viewer, names))
        except ProteinError as error:
            if str(error) != trouble:
                trouble = str(error)
                yield event("trouble", {"error": " ".join(trouble.split())})
        else:
            if trouble:
                trouble = ""
                yield event("trouble", {"error": ""})
            news = [_news(frame, seen.get(name)) for name, frame in frames.items() if seen.get(name) != frame.version]
            if news and seen:
                yield event("changed", {"sweeps": news})
            seen = {name: frame.version for name, frame in frames.items()}
            if known is not None and listed != known:
                yield event("sweeps", {})
            known = listed
        if time.monotonic() - last > BEAT_SECONDS:
            last = time.monotonic()
            yield ": \n\n"
        await asyncio.sleep(POLL_SECONDS)


def event(name: str, data: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"


def _look(viewer: Viewer, names: list[str]) -> tuple[dict[str, Frame], Any]:
    sweeps = viewer.sweeps()
    listed = [(sweep.id, sweep.max_cost_seconds) for sweep in sweeps.values()]
    return {name: viewer.frame(name) for name in names if name in sweeps}, listed


def _news(frame: Frame, since: int | None) -> dict[str, Any]:
    numbers = frame.numbers[frame.revisions > (since or 0)].tolist() if since is not None else []
    return {
        "name": frame.sweep.spec.name,
        "version": frame.version,
        "trials": len(frame),
        "numbers": numbers if len(numbers) <= MAX_NUMBERS else None,
    }
