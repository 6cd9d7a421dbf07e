"""The connections of the page's server: which are closed, and when. The clock is set, and nothing is waited for."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.server import ServerState

from protein.web.answers import post
from protein.web.app import REQUEST_SECONDS, WholeRequests
from protein.web.security import Receive, Scope, Send

APART = ThreadPoolExecutor(1)  # where loops run: the browser of other tests may have one in this thread
BODY = b'{"a":1}'
WHOLE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nA: bcd\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\n" + BODY,
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n"
    + BODY[:3]
    + b"\r\n4\r\n"
    + BODY[3:]
    + b"\r\n0\r\n\r\n",
    b"POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 7\r\n\r\n" + BODY,
)


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers at once: `/refused` before the body has come, everything else after it."""
    more = scope["path"] != "/refused"
    while more:
        more = (await receive()).get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


class Connection(asyncio.Transport):
    """One connection to the server, on a loop whose clock is set."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.sent, self.closed, self.now = b"", False, 0.0
        self.loop = asyncio.SelectorEventLoop()
        self.loop.time = lambda: self.now  # type: ignore[method-assign]
        config = uvicorn.Config(answer, lifespan="off", log_config=None, timeout_keep_alive=10**6)
        self.protocol = WholeRequests(config, ServerState(), {}, _loop=self.loop)
        self.protocol.connection_made(self)

    def wait(self, seconds: float) -> None:
        """Lets this time pass for the server."""
        self.now += seconds
        APART.submit(self._turn).result()

    def _turn(self) -> None:
        for _ in range(6):  # what is due may make other things due
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()

    def give(self, data: bytes) -> None:
        self.protocol.data_received(data)
        self.wait(0)

    def end(self) -> None:
        self.abort()
        self.wait(0)
        self.loop.close()

    def write(self, data: Any) -> None:
        self.sent += data

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            self.loop.call_soon(self.protocol.connection_lost, None)

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


@pytest.fixture
def connections() -> Iterator[list[Connection]]:
    made: list[Connection] = []
    yield made
    for one in made:
        one.end()


@given(
    st.lists(st.sampled_from(WHOLE), min_size=1, max_size=3).flatmap(
        lambda requests: st.tuples(
            st.just(requests),
            st.lists(st.tuples(st.integers(1, 40), st.floats(0.0, 12.0)), max_size=8),
        )
    )
)
def test_a_request_whose_parts_take_too_long_ends_its_connection(
    drawn: tuple[list[bytes], list[tuple[int, float]]],
) -> None:
    """Requests come in pieces of drawn sizes after drawn times; a plain model says when the connection ends."""
    requests, steps = drawn
    data = b"".join(requests)
    ends: list[int] = []  # behind which byte a head or a body that was awaited is whole
    for request in requests:
        start = ends[-1] if ends else 0
        head = start + request.index(b"\r\n\r\n") + 4
        ends += [head, start + len(request)] if request.startswith(b"POST") else [head]
    connection, at, since, closed = Connection(app), 0, 0.0, False
    for size, seconds in steps:
        connection.wait(seconds)
        closed = closed or connection.now >= since + REQUEST_SECONDS
        assert connection.closed is closed
        if closed:
            break
        before, at = at, min(at + size, len(data))
        if before < at:
            connection.give(data[before:at])
        if any(before < end <= at for end in ends):
            since = connection.now
    if not closed:
        answered = sum(
            at >= (end if b"refused" not in request else end - len(BODY))
            for request, end in zip(requests, _ends(requests), strict=True)
        )
        assert connection.sent.count(b"HTTP/1.1 200") == answered
    connection.end()


def _ends(requests: list[bytes]) -> list[int]:
    return [sum(map(len, requests[: count + 1])) for count in range(len(requests))]


def test_an_answer_may_take_longer(connections: list[Connection]) -> None:
    begun = asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await begun.wait()
        await app(scope, receive, send)

    connections.append(Connection(slow))
    connections[0].give(WHOLE[0])
    connections[0].wait(100 * REQUEST_SECONDS)
    assert not connections[0].closed
    begun.set()
    connections[0].wait(0)
    assert connections[0].sent.startswith(b"HTTP/1.1 200")


def test_a_body_that_is_never_whole_is_no_defect(
    connections: list[Connection], caplog: pytest.LogCaptureFixture
) -> None:
    connections.append(Connection(post("/", lambda given: given)))
    connections[0].give(WHOLE[1][:-1])
    connections[0].wait(REQUEST_SECONDS)
    assert connections[0].closed and not connections[0].sent and not caplog.records


@pytest.mark.parametrize("body", [b"[" * 200_000, b'{"a":' * 100_000, b'{"a":' + b"1" * 10_000 + b"}", b"\xff", b""])
def test_a_body_that_no_parser_reads_is_refused(connections: list[Connection], body: bytes) -> None:
    connections.append(Connection(post("/", lambda given: given)))
    connections[0].give(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert connections[0].sent.startswith(b"HTTP/1.1 400")
    assert json.loads(connections[0].sent.partition(b"\r\n\r\n")[2]) == {"error": "the request is not a JSON object"}
