"""Who may ask the server for what. Each rule stands against one attack that a local server invites.

- It listens on this machine alone, unless a token was made for it. It does not encrypt: TLS is a proxy's work.
- **Host**: a page of another site can make its own name point to 127.0.0.1 and read our answers as its own. So a
  request must name this machine.
- **Origin**: a page of another site can send requests to 127.0.0.1. So a request that a browser sent for another site
  is refused, and a write needs our own origin or the token.
- **Content policy**: a text in the store (a sweep's name, a note, a trial's error) that slips into the page as HTML
  could load a script. So scripts, styles and connections of other origins and scripts within the page are forbidden.
- **Files**: a stored path is not trusted. `inside` returns only files within a folder, links resolved.
- **Token**: it is compared in constant time and never logged. The browser gets it once in the address, and afterwards
  sends it as a cookie that no script can read.
"""

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from protein.errors import UsageError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_ADDRESS_BYTES = 32_768  # of a path with its query: a selection of many trials is a long one
MAX_HEAD_BYTES = 2 * MAX_ADDRESS_BYTES  # of a request's first line and headers
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_SAFE_METHODS = ("GET", "HEAD")
_COOKIE = "protein_view"

# Charts place their elements with style attributes, which cannot run anything. Games are WebAssembly, which browsers
# compile only with 'wasm-unsafe-eval': it lets no text become a script, and the files come from this server alone.
# Nothing else in the page is allowed.
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; style-src-attr 'unsafe-inline'"
    "; img-src 'self' data: blob:"
    "; media-src 'self'; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'"
    "; frame-ancestors 'none'"
)
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", CONTENT_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=(), usb=()"),
)


def new_token() -> str:
    """Returns a token that cannot be guessed: 192 bits."""
    return secrets.token_urlsafe(24)


def is_loopback(address: str) -> bool:
    """Returns whether an address to listen on can be reached from this machine alone."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False


def inside(folder: Path, path: "Path | str") -> Path:
    """Returns a file's path with links resolved, if it lies in a folder.

    Raises:
        UsageError: it lies outside, or is no file.
    """
    try:
        root, found = folder.resolve(), (folder / path).resolve()
        good = found.is_relative_to(root) and found.is_file()
    except (OSError, ValueError):  # ValueError: a NUL character
        good = False
    if not good:
        raise UsageError(f"there is no file {Path(str(path).replace(chr(0), '')).name!r} in the trial's folder")
    return found


class Guard:
    """Lets through what the rules above allow, and adds the headers that protect the page."""

    def __init__(self, app: App, *, host: str, token: str | None) -> None:
        self._app = app
        self._token = token
        self._names = {*_LOOPBACK_NAMES, host.strip("[]").lower()}
        if token is not None:  # also on loopback: a proxy with TLS on this machine passes on the name that others use
            self._names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":  # no page opens a web socket
            return await send({"type": "websocket.close", "code": 1008})

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            return await _refuse(with_headers, *refusal)
        if self._token is not None and (found := self._given_in_address(scope)) is not None:
            return await self._sign_in(found, scope, with_headers)
        return await self._app(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Returns the status and the line with which a request is refused; None: it is allowed."""
        if len(scope["path"]) + len(scope["query_string"]) > MAX_ADDRESS_BYTES:
            return 414, f"the address is longer than the limit of {MAX_ADDRESS_BYTES} bytes; select fewer trials"
        hosts = _all(scope, b"host")
        if len(hosts) != 1 or not self._names_us(hosts[0]):
            return (
                403,
                "the request's Host header does not name this machine; open the address that protein view printed",
            )
        if scope["method"] not in (*_SAFE_METHODS, "POST"):
            return 405, f"the method {scope['method'][:20]} is not used here"
        own_origin = False
        for origin in _all(scope, b"origin"):
            if origin.lower() not in (f"http://{hosts[0].lower()}", f"https://{hosts[0].lower()}"):
                return 403, "the request comes from a page of another site and is refused"
            own_origin = True
        # A link from elsewhere may open the page itself; it may fetch nothing else.
        site = next(iter(_all(scope, b"sec-fetch-site")), "")
        if site in ("cross-site", "same-site") and scope["path"] != "/":
            return 403, "the request comes from a page of another site and is refused"
        known = self._knows_token(scope)
        if self._token is not None and not known and self._given_in_address(scope) is None:
            return 401, "this server needs its token; open the address that protein view printed"
        if scope["method"] == "POST":
            if not (own_origin or (known and self._token is not None and _all(scope, b"authorization"))):
                return 403, "a change needs the page itself, or the token in an Authorization header"
            if not next(iter(_all(scope, b"content-type")), "").lower().startswith("application/json"):
                return 415, "a change is sent as application/json"
        return None

    def _names_us(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        if name in self._names:
            return True
        if self._token is None:
            return False
        try:  # a name can be made to point anywhere, a number cannot
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _knows_token(self, scope: Scope) -> bool:
        if self._token is None:
            return True
        given = [line[7:].strip() for line in _all(scope, b"authorization") if line[:7].lower() == "bearer "]
        for line in _all(scope, b"cookie"):
            try:
                given += [item.value for name, item in SimpleCookie(line).items() if name == self._cookie_name(scope)]
            except CookieError:
                continue
        return any(self._is_token(one) for one in given)

    def _given_in_address(self, scope: Scope) -> str | None:
        """Returns the query without the token if the right one is in it."""
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if scope["path"] != "/" or not any(name == "token" and self._is_token(value) for name, value in pairs):
            return None
        return urlencode([(name, value) for name, value in pairs if name != "token"])

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())

    def _cookie_name(self, scope: Scope) -> str:
        # Cookies do not tell ports apart: two servers on one machine must not overwrite each other's.
        return f"{_COOKIE}_{(scope.get('server') or ('', 0))[1]}"

    async def _sign_in(self, query: str, scope: Scope, send: Send) -> None:
        cookie = f"{self._cookie_name(scope)}={self._token}; Path=/; HttpOnly; SameSite=Strict"
        place = "/" + (f"?{query}" if query else "")
        headers = [(b"location", place.encode()), (b"set-cookie", cookie.encode()), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def _all(scope: Scope, name: bytes) -> list[str]:
    headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return [value.decode("latin-1") for key, value in headers if key.lower() == name]


async def _refuse(send: Send, status: int, line: str) -> None:
    from protein.web.answers import failure

    response = failure(line, status)
    headers = [*response.raw_headers, (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})
