"""From a request to plain arguments with bounds, and from plain values to JSON.

NaN and the infinities are the texts "nan", "inf" and "-inf" in JSON, which has no numbers for them.
"""

import gzip
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import anyio.to_thread
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from protein.errors import ProteinError, StoreUnavailable, UsageError

MAX_BODY_BYTES = 1 << 20
MAX_TEXT = 4_000  # characters of one argument
MAX_LENGTH = 30_000  # characters
_PACKED = ("application/json", "text/html")
_LEAST_PACKED = 1_000  # bytes of an answer; to pack a shorter one saves nothing
_PACKING = 5  # of 9: tighter takes twice as long for a few per cent


class NotFound(UsageError):
    """What was asked for is not there; answered with status 404."""


class StillComputing(UsageError):
    """What was asked for takes longer; answered with `{"state": "computing"}`, and the page asks again."""


class Query:
    """The arguments of a request. Every reader has a bound and raises `UsageError` beyond it."""

    def __init__(self, given: QueryParams, path: Mapping[str, Any]) -> None:
        self._given = given
        self._path = path

    def path(self, name: str) -> Any:
        """Returns a part of the path."""
        return self._path[name]

    def text(self, name: str, default: str = "", *, most: int = MAX_TEXT) -> str:
        value = self._given.get(name, default)
        if len(value) > most:
            raise UsageError(f"{name} has {len(value)} characters; at most {most} are allowed")
        return value

    def texts(self, name: str, *, most: int) -> list[str]:
        """Returns the values of an argument that may be given several times."""
        values = self._given.getlist(name)
        if len(values) > most:
            raise UsageError(f"{name} is given {len(values)} times; at most {most} are allowed")
        for value in values:
            if len(value) > MAX_TEXT:
                raise UsageError(f"{name} has {len(value)} characters; at most {MAX_TEXT} are allowed")
        return values

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        value = self._given.get(name, default)
        if value not in choices:
            raise UsageError(f"{name} '{value[:80]}' is not one of {', '.join(choices)}")
        return value

    def flag(self, name: str) -> bool:
        return self.choice(name, ("0", "1", "false", "true"), "0") in ("1", "true")

    def integer(self, name: str, default: int, *, least: int, most: int) -> int:
        given = self._given.get(name)
        if given is None:
            return default
        try:
            value = int(given)
        except ValueError:
            raise UsageError(f"{name} '{given[:80]}' is not a whole number") from None
        if not least <= value <= most:
            raise UsageError(f"{name} {value} must be from {least} to {most}")
        return value

    def optional_integer(self, name: str, *, least: int, most: int) -> int | None:
        return None if name not in self._given else self.integer(name, 0, least=least, most=most)

    def number(self, name: str, default: float | None = None) -> float | None:
        """Returns a finite number, or the default where it was not given."""
        given = self._given.get(name)
        if given is None:
            return default
        try:
            value = float(given)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UsageError(f"{name} '{given[:80]}' is not a finite number")
        return value


Handler = Callable[[Query], Any]
Writer = Callable[[Mapping[str, Any]], Any]


def get(path: str, handler: Handler) -> Route:
    """Returns a route that answers GET with what the handler returns, which runs in a thread of its own."""

    async def endpoint(request: Request) -> Response:
        query = Query(request.query_params, request.path_params)
        return await anyio.to_thread.run_sync(lambda: packed(_answered(lambda: handler(query)), request))

    return Route(path, endpoint, methods=["GET"])


def post(path: str, handler: Writer) -> Route:
    """Returns a route that takes a JSON object and answers POST with what the handler returns."""

    async def endpoint(request: Request) -> Response:
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    return failure(f"the request is larger than the limit of {MAX_BODY_BYTES} bytes", 413)
        except ClientDisconnect:
            return failure("the request has ended before it was whole", 400)  # which nobody reads any more
        try:
            given = json.loads(body)
        except (ValueError, RecursionError):
            given = None
        if not isinstance(given, dict):
            return failure("the request is not a JSON object", 400)
        return await anyio.to_thread.run_sync(lambda: _answered(lambda: handler(given)))

    return Route(path, endpoint, methods=["POST"])


def answer(value: Any, status: int = 200) -> Response:
    """Returns a value as JSON."""
    text = json.dumps(plain(value), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "replace"), status, media_type="application/json")


def packed(response: Response, request: Request) -> Response:
    """Returns an answer as gzip where it is a text of some length and the browser reads that. Files stay so."""
    packs = "gzip" in request.headers.get("accept-encoding", "") and response.media_type in _PACKED
    if packs and len(getattr(response, "body", b"")) >= _LEAST_PACKED:
        response.body = gzip.compress(bytes(response.body), _PACKING)
        response.headers.update({"content-encoding": "gzip", "content-length": str(len(response.body))})
        response.headers.add_vary_header("accept-encoding")
    return response


def failure(line: str, status: int) -> Response:
    """Returns an error as JSON: one clear line."""
    return answer({"error": " ".join(line.split())}, status)


def plain(value: Any) -> Any:
    """Returns a value made of what JSON has: numpy's arrays and numbers as Python's, NaN and infinities as texts."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else number_text(value)
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # an array or a number of numpy's, which this module does not load
        return plain(value.tolist())
    raise TypeError(f"a {type(value).__name__} cannot be sent")


def number_text(value: float) -> str:
    """Returns the text for a number that JSON does not have."""
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def selected(text: str, *, most: int) -> dict[str, list[int]]:
    """Returns the selection of an address, `pong:1-4.7,breakout:3`: numbers by sweep, in the order given, each once.

    `static/lib/selection.js` writes the same text. Names are percent-encoded. Numbers and ranges of them stand between
    points.

    Raises:
        UsageError: the text cannot be read, or names more than `most` trials.
    """
    found: dict[str, dict[int, None]] = {}
    count = 0
    for part in filter(None, text.split(",")):
        name, colon, numbers = part.rpartition(":")
        if not colon:
            raise UsageError(f"sel: '{part[:80]}' has no numbers; write SWEEP:1-4.7")
        own = found.setdefault(unquote(name), {})
        for piece in numbers.split("."):
            first, last = _numbers_of(piece)
            count += last - first + 1
            if count > most:
                raise UsageError(f"sel names more than {most} trials; select fewer")
            own.update(dict.fromkeys(range(first, last + 1)))
    return {name: list(numbers) for name, numbers in found.items()}


def _answered(work: Callable[[], Any]) -> Response:
    try:
        found = work()
    except StillComputing:
        return answer({"state": "computing"})
    except NotFound as error:
        return failure(str(error), 404)
    except StoreUnavailable as error:
        return failure(str(error), 503)
    except ProteinError as error:
        return failure(str(error), 400)
    return found if isinstance(found, Response) else answer(found)


def _numbers_of(piece: str) -> tuple[int, int]:
    first, dash, last = piece.partition("-")
    if not (first.isascii() and first.isdecimal()) or (dash and not (last.isascii() and last.isdecimal())):
        raise UsageError(f"sel: '{piece[:40]}' is not a number or a range of numbers such as 1-4")
    low, high = int(first[:18]), int((last or first)[:18])
    if high < low:
        raise UsageError(f"sel: the range '{piece[:40]}' ends before it begins")
    return low, high
