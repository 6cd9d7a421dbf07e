"""The calls to a `protein serve`, and the files of trials behind it.

Each call may be made again with the same result, so a worker goes on where the server was gone for a while. The server
keeps nothing between two calls: it stands for the folder (`protein.web.folder`).
"""

import contextlib
import functools
import http.client
import importlib.metadata
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from protein.errors import FULL, ProteinError, UsageError

TOKEN = "PROTEIN_TOKEN"  # the environment variable that may hold the token
VERSION = "x-protein"  # the header by which a server says its version, to those with the token
CHALLENGE = 'Bearer realm="protein serve"'  # what it says to others, in WWW-Authenticate
CALL_SECONDS = 60.0  # without a byte, after which a call has failed
INSIST_SECONDS = 120.0  # for which a call is made again: then the sweep has given this worker up
FIRST_WAIT, LONGEST_WAIT = 0.2, 5.0  # seconds before it is made again
MAX_ANSWER_BYTES = 64 << 20  # that are held in memory
MAX_FILE_BYTES = 16 << 30  # of one file of a trial
_PROXY = (500, 502, 503, 504)  # what a proxy says where our server does not answer it
_MIN_TOKEN, _MAX_TOKEN = 16, 4096  # characters
_PIECE = 1 << 20  # bytes of a file that are read at once


class GoneError(ProteinError):
    """The sweep or this worker's place in it is not there any more."""


class AwayError(OSError):
    """The server has not answered, or could not do it, for `INSIST_SECONDS`."""


class Server:
    """A `protein serve`. Threads may share one.

    Attributes:
        url: of the server.
        token: which it wants. It is never shown, or written.
    """

    def __init__(self, url: str, token: str) -> None:
        """Takes the URL apart. Raises `UsageError` where it is none."""
        self.url, self.token = url.rstrip("/"), token
        self._version = importlib.metadata.version("protein-sweep")
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise UsageError(f"{url} is no URL ({error}): give one as http://HOST:PORT") from error
        if "@" in parts.netloc:
            raise UsageError("a URL with a user or password is not for protein serve: its token is in a file")
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            raise UsageError(f"{url} is no URL of protein serve: give one as http://HOST:PORT")
        kind: Any = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        port = kind.default_port if port is None else port  # else the end of an IPv6 address is taken for it
        self._connect = functools.partial(kind, host, port, timeout=CALL_SECONDS)
        self._path = quote(parts.path.rstrip("/"), safe="/%")

    def call(self, method: str, path: str, body: bytes | Path = b"", *, into: Path | None = None) -> bytes:
        """Makes a call once, and returns its answer, or writes that to a file.

        Raises:
            OSError: the server does not answer now, or cannot do it now.
            GoneError: what it is about is not there.
            UsageError: the token is wrong, the server has another version, or it is none of ours.
        """
        with contextlib.ExitStack() as stack:
            connection: http.client.HTTPConnection = stack.enter_context(contextlib.closing(self._connect()))
            size, sent = (len(body), body) if isinstance(body, bytes) else _opened(body, stack)
            headers = {"authorization": f"Bearer {self.token}", "content-length": str(size)}
            try:
                connection.request(method, self._path + quote(os.fsencode(path)), sent, headers)
                answer = stack.enter_context(connection.getresponse())
                self._check(answer)
                if into is None:
                    content = answer.read(MAX_ANSWER_BYTES)
                else:
                    content = b""
                    with into.open("wb") as target:
                        while piece := answer.read(_PIECE):
                            target.write(piece)
            except http.client.HTTPException as error:
                raise OSError(f"no proper answer ({type(error).__name__})") from error
            if answer.length:
                raise OSError("the answer ended too early")
            return content

    def _check(self, answer: http.client.HTTPResponse) -> None:
        """Raises as `call` where an answer is none of our server, or a refusal."""
        status, theirs = answer.status, answer.headers.get(VERSION)
        said = http.client.responses.get(status, str(status))
        if status == 401 and answer.headers.get("www-authenticate") == CHALLENGE:
            raise UsageError(f"{self.url} refuses this worker ({said}): give the token that its protein serve has")
        if theirs is None and status not in _PROXY:
            raise UsageError(f"what answers at {self.url} is no protein serve ({said})")
        if theirs is not None and theirs != self._version:
            raise UsageError(
                f"protein serve at {self.url} has protein {theirs[:40]}, and this machine protein {self._version}:"
                " install the same"
            )
        if status == 200:
            return
        if theirs is not None:
            said = " ".join(answer.read(300).decode(errors="replace").split())
        if status == 404:
            raise GoneError(f"{self.url}: {said}")
        if 400 <= status < 500:
            raise UsageError(f"{self.url} cannot do that: {said}")
        raise OSError(said)

    def insist(self, method: str, path: str, body: bytes | Path = b"", *, into: Path | None = None) -> bytes:
        """Makes a call as `call`, again and again for `INSIST_SECONDS`. Raises as `call`, and then `AwayError`."""
        until, wait = time.monotonic() + INSIST_SECONDS, FIRST_WAIT
        while True:
            try:
                return self.call(method, path, body, into=into)
            except OSError as error:
                if isinstance(error, FileNotFoundError) or error.errno in FULL:  # our file to be sent, or our disk
                    raise
                if time.monotonic() + wait > until:
                    raise AwayError(f"{self.url}: {error}") from error
            time.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)


class ServedFiles:
    """The folders of a sweep's trials behind a server, with the calls of fsspec's file systems that `Copies` makes.

    Nothing can be removed: the folders are the sweep's own.
    """

    def __init__(self, server: Server, sweep: str, worker: str) -> None:
        self._server, self._place = server, f"/{sweep}/{worker}"

    def invalidate_cache(self) -> None:
        """Does nothing: there is none."""

    def makedirs(self, path: str, *, exist_ok: bool) -> None:
        """Does nothing: a folder is made with its first file."""

    def exists(self, path: str) -> bool:
        return self._sizes(path) is not None

    def find(self, path: str, *, detail: bool) -> dict[str, dict[str, int]]:
        return {f"{path}/{name}": {"size": size} for name, size in (self._sizes(path) or {}).items()}

    def get_file(self, path: str, target: str) -> None:
        self._server.insist("GET", f"/files{self._place}{path}", into=Path(target))

    def put_file(self, source: str, path: str) -> None:
        self._server.insist("PUT", f"/files{self._place}{path}", Path(source))

    def _sizes(self, path: str) -> dict[str, int] | None:
        """Returns the sizes of a folder's files; None: there is nothing of this name."""
        found = json.loads(self._server.insist("GET", f"/list{self._place}{path}"))
        return None if found is None else {str(name): int(size) for name, size in found.items()}


def _opened(path: Path, stack: contextlib.ExitStack) -> tuple[int, Iterator[bytes]]:
    """Returns how long a file is now, and its content so far: it may be growing."""
    file = stack.enter_context(path.open("rb"))
    size = os.fstat(file.fileno()).st_size
    if size > MAX_FILE_BYTES:
        raise UsageError(f"it has {size:,} bytes, and the limit is {MAX_FILE_BYTES:,}")

    def pieces() -> Iterator[bytes]:
        left = size
        while left > 0:
            piece = file.read(min(left, _PIECE))
            if not piece:
                raise OSError("the file has become shorter")
            left -= len(piece)
            yield piece

    return size, pieces()


def read_token(file: Path | None) -> str | None:
    """Returns the token in a file, or else in the environment, and takes it from there: no trial gets it.

    Returns:
        The token; None: no file was given, and none is in the environment.

    Raises:
        UsageError: it cannot be read, can be guessed, or no header can hold it.
    """
    token, what = os.environ.pop(TOKEN, None), f"${TOKEN}"
    if file is not None:
        what = f"the token in {file}"
        try:
            with file.open(encoding="ascii") as opened:
                token = opened.read(_MAX_TOKEN + 1).strip()  # a device may never come to an end
        except (OSError, UnicodeError) as error:
            raise UsageError(f"{what} cannot be read ({error}); protein serve makes such a file") from error
    if token is not None and (
        not _MIN_TOKEN <= len(token) <= _MAX_TOKEN or not token.isascii() or not token.isprintable() or " " in token
    ):
        raise UsageError(f"{what} must have {_MIN_TOKEN} to {_MAX_TOKEN} characters of ASCII, and no spaces")
    return token
