"""Asks the pages' endpoints within this process, without a socket: for a report, and for tests of the answers."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urlencode

from protein.errors import UsageError

T = TypeVar("T")
App = Callable[..., Awaitable[None]]


class Refused(UsageError):
    """An answer with an error; `status` is that of the answer."""

    def __init__(self, line: str, status: int) -> None:
        super().__init__(line)
        self.status = status


async def ask(app: App, path: str, params: Mapping[str, Any] | None = None) -> Any:
    """Returns the JSON that an application answers to a GET.

    Args:
        app: an ASGI application, such as the router of `/api`.
        path: behind /api.
        params: a value may be a list; None and "" are left out.

    Raises:
        Refused: the answer is an error.
    """
    status, body = 0, b""

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status, body
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            body += message.get("body", b"")

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query_of(params or {}).encode(),
        "headers": [(b"host", b"localhost")],
    }
    await app(scope, receive, send)
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if status == 200 and found is not None:
        return found
    line = found["error"] if isinstance(found, dict) and "error" in found else f"status {status}"
    raise Refused(line, status)


def finished(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end, also where this thread runs a loop already, as a notebook's does."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def query_of(params: Mapping[str, Any]) -> str:
    """Returns the query of an address, as `address` of lib/api.js writes it."""
    pairs = [
        (key, str(one))
        for key, value in params.items()
        for one in (value if isinstance(value, Sequence) and not isinstance(value, str) else [value])
        if one is not None and one is not False and one != ""
    ]
    return urlencode(pairs, safe="*").replace("~", "%7E")  # as browsers do


def address(path: str, params: Mapping[str, Any]) -> str:
    """Returns the address of a question, by which a report keeps its answer."""
    query = query_of(params)
    return path + (f"?{query}" if query else "")
