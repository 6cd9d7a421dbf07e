"""The server: the page's own files at once, and the answers of `/api` as soon as the store is open.

The server listens before the store is open, so that the page is there in well under a second. Requests to `/api` wait
until then. What takes long to import (SQLAlchemy, numpy, the pages' own modules) is imported meanwhile.
"""

import asyncio
import contextlib
import functools
import hashlib
import html
import importlib
import json
import os
import posixpath
import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import anyio.to_thread
import h11
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Mount, Route, Router
from starlette.staticfiles import StaticFiles
from uvicorn.protocols.http.h11_impl import H11Protocol

from protein.errors import ProteinError, UsageError
from protein.web.answers import failure, packed
from protein.web.security import MAX_HEAD_BYTES, Guard, Receive, Scope, Send

STATIC = Path(__file__).parent / "static"
# The modules of `protein.web.pages`, each with `routes(viewer)`; their paths begin behind /api. The first ones answer
# as soon as the store is open. The others import models, which takes longer, and follow.
FIRST_PAGES = (
    "sweeps",
    "overview",
    "table",
    "changes",
    "writing",
)
PAGES = (
    *FIRST_PAGES,
    "front",
    "trial",
    "play",
    "sweep",
    "curves",
    "compare",
    "parameters",
)
DEFAULT_PORT = 8742
GRACE_SECONDS = 2  # how long answers may take after Ctrl-C
REQUEST_SECONDS = 10.0  # within which a request's head must be whole, and then its body


class Opening:
    """The store's way from a URL to routes, in a thread, while the server is listening already."""

    def __init__(self, store_url: str, artifacts: Path | None) -> None:
        self.error: Exception | None = None
        self.stopping = threading.Event()
        self._url, self._artifacts = store_url, artifacts
        self._failed: Callable[[], None] = lambda: None
        self._open = contextlib.ExitStack()
        self._first = _Stage()
        self._rest = _Stage()
        self._thread = threading.Thread(target=self._run, name="protein-view-opening", daemon=True)

    def start(self, *, failed: Callable[[], None]) -> None:
        """Begins to open the store; `failed` is called if that cannot be done."""
        self._failed = failed
        self._thread.start()

    def close(self) -> None:
        """Closes the store; safe to call twice."""
        self.stopping.set()
        self._thread.join()
        self._open.close()

    async def router(self, scope: Scope) -> Router:
        """Waits for the routes that a request needs. Raises `ProteinError` if they will never be there."""
        first = await self._ready(self._first)
        if any(route.matches(scope)[0] is not Match.NONE for route in first.routes):
            return first
        return await self._ready(self._rest)

    async def _ready(self, stage: "_Stage") -> Router:
        if not stage.done.is_set():
            await anyio.to_thread.run_sync(stage.done.wait)
        if stage.router is None:
            raise self.error if isinstance(self.error, ProteinError) else UsageError("the server is ending")
        return stage.router

    def _run(self) -> None:
        try:
            from protein.api import stores
            from protein.web.viewer import Viewer

            modules = _modules(FIRST_PAGES)
            store = self._open.enter_context(stores.opened(self._url))
            viewer = Viewer(store, self._url, self.stopping, artifacts=self._artifacts)
            self._first.open(modules, viewer)
            self._rest.open(_modules([name for name in PAGES if name not in FIRST_PAGES]), viewer)
        except Exception as error:  # kept for `serve_on`, which raises it: a thread has nobody to tell
            self.error = error
            self._failed()
        finally:
            self._first.done.set()
            self._rest.done.set()


class _Stage:
    """Some of the routes, and whether they are there."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.router: Router | None = None

    def open(self, modules: Sequence[ModuleType], viewer: object) -> None:
        self.router = Router([route for module in modules for route in module.routes(viewer)])
        self.done.set()


def _modules(names: Sequence[str]) -> list[ModuleType]:
    return [importlib.import_module(f"protein.web.pages.{name}") for name in names]


def create_app(opening: Opening, *, host: str, token: str | None) -> Guard:
    """Returns the application; `opening` must have been started."""

    async def api(scope: Scope, receive: Receive, send: Send) -> None:
        response: Any
        try:
            response = await opening.router(scope)
        except ProteinError as error:
            response = failure(str(error), 503)
        await response(scope, receive, send)

    async def index(request: Request) -> Response:
        folder = build()
        text = (STATIC / "index.html").read_text(encoding="utf-8").replace('"/static/', f'"/static/{folder}/')
        text = text.replace("MODULES", html.escape(json.dumps(needed(folder), separators=(",", ":"))))
        return packed(Response(text, media_type="text/html", headers=_FRESH), request)

    async def missing(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        return failure(f"there is nothing at {request.url.path}" if status == 404 else "not possible here", status)

    async def broken(request: Request, error: Exception) -> Response:
        return failure(f"a defect of the server: {type(error).__name__}: {error}; the terminal shows more", 500)

    routes: list[BaseRoute] = [
        Route("/", index, methods=["GET"]),
        Mount("/api", app=api),
        Mount("/static", app=GZipMiddleware(_Files(directory=STATIC))),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: missing, Exception: broken})
    return Guard(app, host=host, token=token)


_FRESH = {"cache-control": "no-cache"}  # asked for again each time; answered with "not modified"
_KEPT = {"cache-control": "public, max-age=31536000, immutable"}
_BUILD = "build-"
_CHARTS = "lib/echart.js"
_IMPORT = re.compile(r"""(?:^(?:import|export)\b[^"';()]*?|(?<![\w.$])import\()"(\.{1,2}/[^"]+)\"""", re.MULTILINE)


def build() -> str:
    """Returns the folder by which the page names its files; it changes whenever one of them does.

    Modules name each other by relative paths, so all of them are asked for in this folder. A browser keeps them, and
    asks for none of them at its next visit.
    """
    facts = sorted((str(path), found.st_size, found.st_mtime_ns) for path, found in _listed(STATIC))
    return _BUILD + hashlib.sha256(repr(facts).encode()).hexdigest()[:12]


@functools.lru_cache(maxsize=1)
def needed(folder: str) -> dict[str, list[str]]:
    """Returns the files that each page's module imports, itself among them, so that the browser asks for all at once.

    The key "" has those of all pages; `folder` is `build()`, as the answer is of these files. A page whose own module
    draws charts is drawn with their library, and others load that when somebody scrolls to a chart.
    """
    first = _imported("app.js")
    pages = {path.stem: _imported(f"pages/{path.name}") for path in sorted((STATIC / "pages").glob("*.js"))}
    for page, names in pages.items():
        draws = f"../{_CHARTS}" in _IMPORT.findall((STATIC / names[0]).read_text(encoding="utf-8"))
        pages[page] = [name for name in names if name not in first and (draws or not name.startswith("vendor/"))]
    return {"": first, **pages}


def _imported(name: str) -> list[str]:
    found = [name]
    for one in found:  # which grows
        if one.startswith("vendor/"):
            continue
        text = (STATIC / one).read_text(encoding="utf-8")
        others = (posixpath.normpath(posixpath.join(posixpath.dirname(one), other)) for other in _IMPORT.findall(text))
        found += [other for other in dict.fromkeys(others) if other not in found]
    return found


def _listed(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _listed(Path(entry.path))
            else:
                yield Path(entry.path), entry.stat()


class _Files(StaticFiles):
    """Files of the package. Under the name of this build a browser keeps them, else it asks for changes each time."""

    def get_path(self, scope: Scope) -> str:
        first, _, rest = super().get_path(scope).partition(os.sep)
        return rest if first.startswith(_BUILD) else str(Path(first, rest))

    def file_response(self, full_path: Any, stat_result: Any, scope: Scope, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(full_path, stat_result, scope, *args, **kwargs)
        named = f"/static/{build()}/" in scope["path"]  # and not by a page of before an upgrade
        response.headers.update(_KEPT if named else _FRESH)
        return response


def listen(host: str, port: int | None, usual: int = DEFAULT_PORT) -> socket.socket:
    """Returns a socket that listens; without a port on the usual one, or a free one where that is taken.

    Raises:
        UsageError: the port is taken, or the address is none of this machine's.
    """
    wanted = (usual, 0) if port is None else (port,)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for last, one in ((one == wanted[-1], one) for one in wanted):
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host.strip("[]"), one))
            listening.listen(128)
        except (OSError, OverflowError) as error:
            listening.close()
            if last:
                reason = getattr(error, "strerror", None) or str(error)
                raise UsageError(
                    f"cannot listen on {host}{f' port {one}' if one else ''} ({reason})"
                    "; give another --host or --port, or leave out --port for a free one"
                ) from error
            continue
        return listening
    raise AssertionError("no port was tried")


def shown_host(host: str) -> str:
    """Returns how an address names the machine: by its name where it listens on all of its addresses."""
    bare = host.strip("[]")
    if bare in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{bare}]" if ":" in bare else bare


def make_server(store_url: str, *, host: str, token: str | None, artifacts: Path | None = None) -> "PageServer":
    """Returns a server for a store's page, which does not listen yet.

    Without the `token` it answers nobody; None: it answers everybody.
    """
    opening = Opening(store_url, artifacts)
    return PageServer(configured(create_app(opening, host=host, token=token), WholeRequests), opening)


def configured(app: Any, connection: "type[WholeRequests]") -> uvicorn.Config:
    """Returns how an app is served, by connections of one kind."""
    return uvicorn.Config(
        app,
        access_log=False,  # its lines would hold what people search for, and the token
        log_level="error",  # a stranger's broken requests are warnings, and would fill the terminal
        lifespan="off",
        http=connection,  # and not what else is installed: all machines have the same limits
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        ws="none",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


class WholeRequests(H11Protocol):
    """A connection that is closed where a request's head, or then its body, is not whole in time.

    That is one limit for all of it, and not one for each read: else a client that sends a byte now and then keeps its
    connection for ever. An answer has no limit.
    """

    body_seconds = REQUEST_SECONDS  # within which a body must be whole
    _part: tuple[object, object] | None = None  # of which request what is awaited
    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def handle_events(self) -> None:
        super().handle_events()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._limit is not None:
            self._limit.cancel()

    def _watch(self) -> None:
        awaited = self.conn.their_state
        if (awaited, self.cycle) == self._part:
            return
        self._part = awaited, self.cycle
        if self._limit is not None:
            self._limit.cancel()
        if awaited in (h11.IDLE, h11.SEND_BODY):
            seconds = self.body_seconds if awaited is h11.SEND_BODY else REQUEST_SECONDS
            self._limit = self.loop.call_later(seconds, self.transport.abort)


class PageServer(uvicorn.Server):
    """Serves the page until Ctrl-C, or until the store turns out to be none that can be opened."""

    def __init__(self, config: uvicorn.Config, opening: Opening) -> None:
        super().__init__(config)
        self._opening = opening

    def serve_on(self, listening: socket.socket) -> None:
        """Serves on a socket that listens.

        Raises:
            StoreError: the store cannot be opened, or another error of the pages' modules, which is a defect.
        """
        self._opening.start(failed=self.stop)
        try:
            self.run(sockets=[listening])
        finally:
            self._opening.close()
            listening.close()
        if self._opening.error is not None:
            raise self._opening.error

    def stop(self) -> None:
        """Asks the server to end, from any thread. Open streams end, too."""
        self._opening.stopping.set()
        self.should_exit = True

    def handle_exit(self, sig: int, frame: Any) -> None:
        self._opening.stopping.set()
        super().handle_exit(sig, frame)
