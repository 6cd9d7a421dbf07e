"""What `protein serve` answers: the folder of the sweeps, for workers on machines that do not see it.

The server is a front of that folder, and keeps nothing itself. The sweeps do not know of it. Only sweeps of its own
user are served. All calls need the token:

| call | does |
|---|---|
| POST /look | writes messages of workers at their places, returns those for them, and which sweeps run; workers join |
| GET /list/SWEEP/WORKER/TRIAL | the sizes of the files of a trial's folder |
| GET, PUT /files/SWEEP/WORKER/TRIAL/FILE | reads a file there, or writes it as a whole |

A worker that the sweep has given up has no folder of messages any more, and then none of this is done for it: a late
report is lost, and a late file overwrites nothing. No symbolic link is followed.
"""

import base64
import contextlib
import hmac
import json
import math
import os
import secrets
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import uvicorn
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from protein.run.folder import FOLDER, NEXT, OFFER, PLAIN, goes_next, join, offers
from protein.run.mailbox import ALIVE, FROM_WORKER, MAX_READ_BYTES, TO_WORKER
from protein.run.served import CHALLENGE, MAX_FILE_BYTES, VERSION
from protein.run.slot import signatures, version
from protein.web.app import WholeRequests, configured
from protein.web.security import App, Receive, Scope, Send

DEFAULT_PORT = 8743
MAX_LOOK_BYTES = 2 * MAX_READ_BYTES  # messages are a third longer on their way
UPLOAD_SECONDS = 3600.0  # within which a file must be here
SEEN_SECONDS = 0.5  # how old the list of sweeps may be


class _Folder:
    """The calls. Each raises `HTTPException` where it is refused."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._seen: tuple[float, dict[str, Any]] = -math.inf, {}  # when, and the sweeps that run
        self._signs: dict[Path, tuple[str, float]] = {}  # of life, of sweeps

    def look(self, body: bytes) -> Response:
        try:
            asked = [
                (name, *name.split("/"), int(at), int(read), base64.b64decode(new))
                for name, (at, read, new) in json.loads(body).items()
            ]
            room, workers = MAX_READ_BYTES, dict[str, str | None]()
            for name, sweep, worker, at, read, new in asked:
                said = self._exchange(sweep, worker, at, read, new, room)
                workers[name] = None if said is None else base64.b64encode(said).decode()
                room -= len(said or b"")
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise HTTPException(400, "this is no look of a worker") from error
        return JSONResponse({"workers": workers, "sweeps": self._sweeps()})

    def listed(self, request: Request) -> Response:
        _, place = self._place(request)
        if not place.is_dir():
            return JSONResponse({} if place.is_file() else None)
        sizes = {str(one.relative_to(place)): size for one, (_, size, _) in signatures(place).items()}
        return Response(json.dumps(sizes), media_type="application/json")  # names may have bytes that are no UTF-8

    def read(self, request: Request) -> Response:
        _, place = self._place(request)
        if not place.is_file():
            raise HTTPException(404, "there is no such file")
        return FileResponse(place)

    async def write(self, request: Request) -> Response:
        folder, place = await run_sync(self._place, request)
        _length(request, MAX_FILE_BYTES)
        # It vanishes with the worker. So one that was given up meanwhile overwrites nothing.
        unfinished = folder / f".{secrets.token_hex(8)}"
        try:
            with unfinished.open("xb") as file:
                async for piece in request.stream():
                    await run_sync(file.write, piece)
            place.parent.mkdir(parents=True, exist_ok=True)
            os.replace(unfinished, place)  # noqa: PTH105
        finally:
            unfinished.unlink(missing_ok=True)
        return Response()

    def _exchange(self, sweep: str, worker: str, at: int, read: int, new: bytes, room: int) -> bytes | None:
        """Writes a worker's messages, and returns those for it; None: it has been given up, or its sweep has ended."""
        try:
            folder = self._messages(sweep, worker, joins=at == read == 0)
            ours = os.open(folder / FROM_WORKER, os.O_WRONLY | os.O_NOFOLLOW)
            with os.fdopen(ours, "wb") as file:
                if not 0 <= at <= os.fstat(ours).st_size:
                    return None
                file.seek(at)
                file.write(new)
            with os.fdopen(os.open(folder / TO_WORKER, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                file.seek(max(read, 0))
                return file.read(room)
        except (FileNotFoundError, HTTPException):
            return None

    def _sweeps(self) -> dict[str, Any]:
        """Returns the sweeps that run, with their signs of life and their workers."""
        if time.monotonic() - self._seen[0] > SEEN_SECONDS:
            found = {}
            for folder in offers(self._root, signs=self._signs):
                name = folder.parent.name
                try:
                    said = {one: (self._plain(f"{name}/{FOLDER}") / one).read_text() for one in (OFFER, ALIVE)}
                    workers = [one.name for one in os.scandir(folder) if PLAIN.fullmatch(one.name) and one.is_dir()]
                except (OSError, HTTPException):  # it has just ended
                    continue
                found[name] = {**said, NEXT: goes_next(folder), "workers": workers}
            self._seen = time.monotonic(), found
        return self._seen[1]

    def _messages(self, sweep: str, worker: str, *, joins: bool = False) -> Path:
        """Returns the folder of a worker's messages, in a sweep of this user. It is made where the worker `joins`."""
        folder = self._plain(f"{sweep}/{FOLDER}/{worker}")
        if not PLAIN.fullmatch(worker) or folder.parent.stat().st_uid != os.geteuid():
            raise HTTPException(404, "there is no such worker")
        if joins and not folder.exists():
            join(folder.parent, worker)
        if not folder.is_dir():
            raise HTTPException(404, "the sweep has ended, or has given this worker up")
        return folder

    def _place(self, request: Request) -> tuple[Path, Path]:
        """Returns the folder of a worker's messages, and a place among the trials of its sweep."""
        sweep, worker, path = (str(request.path_params[name]) for name in ("sweep", "worker", "path"))
        folder = self._messages(sweep, worker)
        if path.startswith(".") and not path.startswith(".shared-"):  # of hidden ones, the sweep's own probe alone
            raise HTTPException(400, "this is no trial's folder")
        return folder, self._plain(f"{sweep}/{path}")

    def _plain(self, path: str) -> Path:
        """Returns a path in the folder of the sweeps that leads nowhere else: by no link, and by no "..".

        Raises:
            HTTPException: it does.
        """
        place = self._root / path
        try:
            if str(place.resolve()) == f"{self._root}/{path}":
                return place
        except (OSError, ValueError):  # ValueError: a NUL character
            pass
        raise HTTPException(400, "this path leads elsewhere")


def make_server(root: Path, token: str) -> uvicorn.Server:
    """Returns a server of the sweeps in a folder, which does not listen yet."""
    return uvicorn.Server(configured(_app(root, token), _Uploads))


class _AnyPath(StringConvertor):
    """The rest of a path, whatever stands there. Starlette's own ends at a line break."""

    regex = "(?s:.*)"


register_url_convertor("any", _AnyPath())


class _Uploads(WholeRequests):
    """Connections on which large files come."""

    body_seconds = UPLOAD_SECONDS


def _app(root: Path, token: str) -> App:
    folder = _Folder(root)
    wanted = f"Bearer {token}".encode()

    async def look(request: Request) -> Response:
        _length(request, MAX_LOOK_BYTES)
        return await run_sync(folder.look, await request.body())

    files = "/files/{sweep}/{worker}/{path:any}"
    app = Starlette(
        routes=[
            Route("/look", look, methods=["POST"]),
            Route("/list/{sweep}/{worker}/{path:any}", folder.listed, methods=["GET"]),
            Route(files, folder.read, methods=["GET"]),
            Route(files, folder.write, methods=["PUT"]),
        ],
        exception_handlers={HTTPException: _refused, OSError: _failed, ClientDisconnect: _failed},
    )

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        async def marked(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = [(VERSION.encode(), version().encode()), (b"cache-control", b"no-store")]
                message["headers"] = [*message.get("headers", ()), *headers]
            await send(message)

        given = dict(scope["headers"]).get(b"authorization", b"")
        if hmac.compare_digest(given, wanted):
            # As the bytes that a file's name has: uvicorn's own path replaces those that are no UTF-8.
            await app({**scope, "path": os.fsdecode(unquote_to_bytes(scope["raw_path"]))}, receive, marked)
        else:
            refusal = Response("the token is wrong", 401, {"connection": "close", "www-authenticate": CHALLENGE})
            await refusal(scope, receive, send)

    return guarded


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:  # read to its end: who is still sending it reads no answer
        with contextlib.suppress(ClientDisconnect):
            async for _ in request.stream():
                pass
    unknown = "give the URL as protein serve prints it" if error.detail == "Not Found" else error.detail
    return Response(unknown, error.status_code, {"connection": "close"})


async def _failed(request: Request, error: Exception) -> Response:
    """Such as a full disk: the worker tries again. Not so where a file stands in the way of a folder."""
    gone, never = isinstance(error, FileNotFoundError), (FileExistsError, NotADirectoryError, IsADirectoryError)
    status = 404 if gone else 400 if isinstance(error, never) else 503
    return Response(getattr(error, "strerror", None) or str(error), status, {"connection": "close"})


def _length(request: Request, limit: int) -> None:
    """Raises `HTTPException` unless a body says how long it is, to which h11 holds it, and that is within a limit."""
    text = request.headers.get("content-length", "")
    if not text.isdecimal() or len(text) > 18:
        raise HTTPException(411, "a body must say its length")
    if int(text) > limit:
        raise HTTPException(413, f"a body of {int(text):,} bytes is over the limit of {limit:,}")
