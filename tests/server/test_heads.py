"""The protocol in front of the application, fed piece by piece as a network may cut it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from perkey.server.heads import Guarded, protocol
from perkey.server.settings import Settings

SETTINGS = replace(Settings(), head_lines=5, head_bytes=200, head_s=1000.0)
GOOD = b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Wire(asyncio.Transport):
    """What a protocol writes to, kept."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.sent += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the length of the body."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    text = str(len(body)).encode()
    length = [(b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    await send({"type": "http.response.body", "body": text})


class Connection:
    """One connection to a guarded server."""

    def __init__(self, settings: Settings) -> None:
        config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None)
        config.load()
        self.state = ServerState()
        made: Callable[..., Guarded] = protocol(settings)
        self.wire = Wire()
        self.guarded = made(config=config, server_state=self.state, app_state={})
        self.guarded.connection_made(self.wire)

    async def feed(self, *pieces: bytes) -> bytes:
        """What came back for these."""
        before = len(self.wire.sent)
        for piece in pieces:
            self.guarded.data_received(piece)
        if self.state.tasks:
            await asyncio.wait(self.state.tasks)
        return self.wire.sent[before:]

    @property
    def timed(self) -> bool:
        """Whether the head must come in time."""
        return self.guarded._timer is not None


@pytest.fixture
async def connection() -> AsyncIterator[Connection]:
    made = Connection(SETTINGS)
    yield made
    made.guarded.connection_lost(None)
    assert not made.timed


def refused(answer: bytes) -> bool:
    assert answer.count(b"HTTP/1.1 ") == 1, answer
    return answer.startswith(b"HTTP/1.1 431 ")


async def test_a_whole_head_is_not_timed(connection: Connection) -> None:
    assert connection.timed, "a client that says nothing is not waited for"
    for _ in range(3):
        assert (await connection.feed(GOOD)).startswith(b"HTTP/1.1 200")
        assert not connection.timed


async def test_a_head_in_pieces_is_timed_until_it_is_complete(connection: Connection) -> None:
    await connection.feed(GOOD)
    for cut in range(1, len(GOOD)):
        assert await connection.feed(GOOD[:cut]) == b""
        assert connection.timed
        assert (await connection.feed(GOOD[cut:])).endswith(b"\r\n\r\n0")
        assert not connection.timed


async def test_a_slow_head_ends_the_connection() -> None:
    slow = Connection(replace(SETTINGS, head_s=0.001))
    await slow.feed(GOOD[:10])
    async with asyncio.timeout(60):
        while not slow.wire.closed:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert slow.wire.sent == b""
    assert await slow.feed(GOOD[10:]) == b"", "what comes late is not read"


async def test_a_body_is_not_counted(connection: Connection) -> None:
    head = b"PUT /a HTTP/1.1\r\nContent-Length: 1000\r\n\r\n"
    whole = head + b"x" * 1000
    assert (await connection.feed(whole)).endswith(b"\r\n\r\n1000")
    assert (await connection.feed(head, b"x" * 400, b"x" * 600)).endswith(b"1000")
    # The end of a long body and the beginning of the next head in one piece.
    first = await connection.feed(head, b"x" * 1000 + GOOD[:20])
    assert first.endswith(b"1000")
    assert connection.timed
    assert (await connection.feed(GOOD[20:])).startswith(b"HTTP/1.1 200")


LINES = b"".join(b"X-%d: v\r\n" % n for n in range(6))
LONG = b"X: " + b"v" * 200 + b"\r\n"


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("more", [LINES, LONG])
@pytest.mark.parametrize("body", [b"", b"Content-Length: 3\r\n"])
async def test_what_is_too_much_is_refused_however_it_is_cut(
    connection: Connection, size: int, more: bytes, body: bytes
) -> None:
    whole = b"PUT /a HTTP/1.1\r\n" + body + more + b"\r\n" + (b"abc" if body else b"")
    pieces = [whole[n : n + size] for n in range(0, len(whole), size)]
    assert refused(await connection.feed(*pieces))
    assert connection.wire.closed


@pytest.mark.parametrize("size", [1, 50])
async def test_as_much_as_is_allowed_is_let_in(connection: Connection, size: int) -> None:
    lines = b"".join(b"X-%d: %b\r\n" % (n, b"v" * 28) for n in range(5))
    whole = b"GET /a HTTP/1.1\r\n" + lines + b"\r\n"
    pieces = [whole[n : n + size] for n in range(0, len(whole), size)]
    assert (await connection.feed(*pieces)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("start", [b"GET /" + b"a" * 201, b"GET /a HTTP/1.1\r\nX: " + b"a" * 201])
async def test_a_line_that_never_ends_is_refused_on_its_way(
    connection: Connection, start: bytes
) -> None:
    """The parser shows no line before its end, so what comes is counted."""
    await connection.feed(b"GET /")
    assert not connection.wire.closed
    answer = await connection.feed(*(start[n : n + 1] for n in range(5, len(start))), b"a" * 20)
    assert refused(answer)


async def test_blank_lines_before_a_head_are_counted(connection: Connection) -> None:
    assert await connection.feed(b"\r\n" * 10) == b""
    assert refused(await connection.feed(*[b"\r\n" * 50] * 4))


async def test_what_is_no_http_has_one_answer(connection: Connection) -> None:
    answer = await connection.feed(b"\x00\x01\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert await connection.feed(GOOD) == b""


CHUNKED = b"PUT /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("piece", [b"X-%d: v\r\n", b"X%d"])
async def test_lines_behind_a_body_are_counted(connection: Connection, piece: bytes) -> None:
    """They come when the head is long over, many short ones or one that never ends."""
    pieces = [piece % n for n in range(200)]
    for each in [CHUNKED + b"3\r\nabc\r\n0\r\n", *pieces]:
        connection.guarded.data_received(each)
    assert refused(connection.wire.sent)
    assert connection.wire.closed
    assert len(connection.guarded.headers) <= SETTINGS.head_lines + 1, "the rest is not kept"


async def test_what_stands_between_chunks_does_not_add_up(connection: Connection) -> None:
    chunks = [b"1\r\n", b"x", b"\r\n"] * 300
    for _ in range(2):
        answer = await connection.feed(CHUNKED, *chunks, b"0\r\n", b"X: v\r\n", b"\r\n")
        assert answer.endswith(b"\r\n\r\n300")


async def test_whole_heads_in_one_piece_do_not_add_up(connection: Connection) -> None:
    for _ in range(20):
        answer = await connection.feed(GOOD * 2)
        assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("apart", [True, False])
async def test_the_body_of_a_refused_request_is_not_added_to_the_one_before(
    connection: Connection, apart: bool
) -> None:
    """Both are there before the first is looked at: it would write what nobody sent."""
    first = b"PUT /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"
    second = b"PUT /b HTTP/1.1\r\nContent-Length: 4\r\n" + LINES + b"\r\nWXYZ"
    answer = await connection.feed(*([first, second] if apart else [first + second]))
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert answer.endswith(b"\r\n\r\n3")
