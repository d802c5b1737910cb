"""The short way beside ASGI's: what comes and goes is the same, byte for byte."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from typing import Any

import pytest
import uvicorn
from starlette.responses import Response
from uvicorn.protocols.http import httptools_impl
from uvicorn.server import ServerState

from perkey import AsyncStore
from perkey.server import exchange
from perkey.server.app import _send, application
from perkey.server.exchange import Exchange, offered
from perkey.server.heads import Guarded, protocol
from perkey.server.replies import json_reply
from perkey.server.settings import Settings
from tests.server.test_heads import Wire

GET = b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEAD = b"HEAD" + GET[3:]
PUT = b"PUT /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"
CHUNKED = (
    b"PUT /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
)
CLOSING = b"GET /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
OLD = b"GET /a HTTP/1.0\r\nHost: localhost\r\n\r\n"


def connection(app: Any, settings: Settings | None = None) -> tuple[Guarded, Wire, ServerState]:
    """A guarded connection to an application, and what it writes to."""
    config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None)
    config.load()
    state, wire = ServerState(), Wire()
    state.default_headers = [(b"date", b"today")]
    guarded: Guarded = protocol(settings or Settings())(
        config=config, server_state=state, app_state={}
    )
    guarded.connection_made(wire)
    return guarded, wire, state


async def exchanged(
    app: Any, *pieces: bytes, settings: Settings | None = None
) -> tuple[bytes, bool]:
    """What came back for these pieces, and whether the connection was closed then."""
    guarded, wire, state = connection(app, settings)
    for piece in pieces:
        guarded.data_received(piece)
        await asyncio.sleep(0)
    while state.tasks:
        await asyncio.wait(state.tasks)
    closed = wire.closed
    guarded.connection_lost(None)
    return wire.sent, closed


class App:
    """Answers with one response, on the short way or on ASGI's."""

    def __init__(self, response: Response, *, short: bool, close: bool = False) -> None:
        self.response, self.short, self.close = response, short, close
        self.messages = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def counted(message: Any) -> None:
            self.messages += 1
            await send(message)

        given = scope if self.short else {**scope, "extensions": {}}
        await _send(self.response, given, counted, close=self.close)


RESPONSES = {
    "json": lambda: json_reply({"a": "é"}, 201, {"location": "/x"}),
    "empty": lambda: Response(status_code=204, headers={"cache-control": "no-store"}),
    "unchanged": lambda: Response(status_code=304, headers={"etag": '"1"'}),
    "own policy": lambda: Response(b"x", headers={"referrer-policy": "same-origin"}),
    "long": lambda: Response(b"x" * 100_000, media_type="application/json"),
    "odd status": lambda: Response(b"x", 428),
}


@pytest.mark.parametrize("request_", [GET, HEAD, PUT, CHUNKED, CLOSING, OLD])
@pytest.mark.parametrize("name", RESPONSES)
@pytest.mark.parametrize("close", [False, True])
async def test_both_ways_say_the_same(request_: bytes, name: str, close: bool) -> None:
    short = App(RESPONSES[name](), short=True, close=close)
    found = await exchanged(short, request_)
    assert found == await exchanged(App(RESPONSES[name](), short=False, close=close), request_)
    assert short.messages == 0, "it did not go the short way"
    assert found[0].startswith(b"HTTP/1.1 ")
    assert found[1] == (close or request_ in (CLOSING, OLD))


async def test_requests_behind_each_other_are_answered_in_their_order() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await _send(Response(scope["raw_path"]), scope, send)

    sent, closed = await exchanged(app, b"".join(GET.replace(b"/a", b"/%d" % n) for n in range(5)))
    assert [part.rpartition(b"\r\n\r\n")[2] for part in sent.split(b"HTTP/1.1 200")[1:]] == [
        b"/%d" % n for n in range(5)
    ]
    assert not closed


def with_header(name: bytes, value: bytes) -> Response:
    response = Response(b"abc")
    response.raw_headers.append((name, value))
    return response


@pytest.mark.parametrize(
    "response",
    [
        with_header(b"x", b"a\r\nset-cookie: b=1"),
        with_header(b"x", b"a\nb"),
        with_header(b"x", b"a\rb"),
        with_header(b"x", b"a\0b"),
        with_header(b"x\r\ny", b"a"),
    ],
)
async def test_what_would_split_an_answer_is_never_sent(response: Response) -> None:
    """It goes ASGI's way, where the server refuses it."""
    for short in (True, False):
        sent, _ = await exchanged(App(response, short=short), GET)
        assert b"set-cookie" not in sent
        assert b"HTTP/1.1 200" not in sent


@pytest.mark.parametrize(
    "header",
    [
        (b"connection", b"close"),
        (b"transfer-encoding", b"chunked"),
        (b"content-length", b"2"),
        (b"content-length", b"4"),
    ],
)
async def test_what_says_how_long_it_is_or_how_to_go_on_goes_the_long_way(
    header: tuple[bytes, bytes],
) -> None:
    app = App(with_header(*header), short=True)
    assert await exchanged(app, GET) == await exchanged(App(with_header(*header), short=False), GET)
    assert app.messages == 2


@pytest.mark.parametrize("name", [*exchange.NEEDED])
@pytest.mark.parametrize("instead", [None, "of another kind"])
async def test_another_uvicorn_is_spoken_to_in_messages(
    monkeypatch: pytest.MonkeyPatch, name: str, instead: str | None
) -> None:
    """One whose requests lack a part, or have it otherwise, serves all the same."""
    make = httptools_impl.RequestResponseCycle.__init__
    whole = App(json_reply({"a": 1}), short=True)
    expected = await exchanged(whole, GET)
    assert whole.messages == 0

    class Changed(httptools_impl.RequestResponseCycle):
        def __init__(self, *args: Any, **more: Any) -> None:
            make(self, *args, **more)

        def __getattribute__(self, asked: str) -> Any:
            # Only for who looks it over: uvicorn itself has what it needs.
            if asked == name and sys._getframe(1).f_code.co_filename == exchange.__file__:
                if instead is None:
                    raise AttributeError(asked)
                return instead
            return super().__getattribute__(asked)

    monkeypatch.setattr(httptools_impl, "RequestResponseCycle", Changed)
    app = App(json_reply({"a": 1}), short=True)
    assert await exchanged(app, GET) == expected
    assert app.messages == 2


class Kept:
    """Keeps the exchange of its request, and answers nothing."""

    def __init__(self) -> None:
        self.exchange: Exchange | None = None
        self.over = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.exchange = offered(scope)
        await self.over.wait()


async def test_a_body_is_there_when_its_last_byte_is() -> None:
    app = Kept()
    guarded, _, state = connection(app)
    for piece in (PUT[:-2], PUT[-2:-1]):
        guarded.data_received(piece)
        await asyncio.sleep(0)
        assert app.exchange is not None
        assert app.exchange.body() is None
    guarded.data_received(PUT[-1:])
    assert app.exchange is not None
    assert (app.exchange.body(), app.exchange.body()) == (b"abc", b""), "it is taken once"
    guarded.connection_lost(None)
    app.over.set()
    await asyncio.wait(state.tasks)


async def test_nothing_is_said_to_who_has_gone_or_does_not_read() -> None:
    app = Kept()
    guarded, wire, state = connection(app)
    guarded.data_received(PUT)
    await asyncio.sleep(0)
    assert app.exchange is not None
    guarded.pause_writing()
    assert not app.exchange.answer(204, [], b"", close=False), "it would not be waited for"
    guarded.resume_writing()
    guarded.connection_lost(ConnectionResetError())
    assert app.exchange.body() is None
    assert not app.exchange.answer(204, [], b"", close=False)
    assert wire.sent == b""
    app.over.set()
    await asyncio.wait(state.tasks)


async def test_one_request_has_one_answer() -> None:
    app = Kept()
    guarded, wire, state = connection(app)
    guarded.data_received(GET)
    await asyncio.sleep(0)
    assert app.exchange is not None
    assert app.exchange.answer(204, [], b"", close=False)
    assert not app.exchange.answer(204, [], b"", close=False)
    assert wire.sent.count(b"HTTP/1.1 ") == 1
    app.over.set()
    await asyncio.wait(state.tasks)
    guarded.connection_lost(None)


# ------------------------------------------------------------------- the whole application


def put(body: bytes, *, chunked: bool, extra: bytes = b"If-None-Match: *\r\n") -> bytes:
    head = b"PUT /v1/documents/k HTTP/1.1\r\nHost: localhost\r\n" + extra
    if chunked:
        return head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    return head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("pieces", [1, 2, 100])
async def test_a_document_is_the_same_however_it_is_cut(
    store: AsyncStore, chunked: bool, pieces: int
) -> None:
    request = put(json.dumps({"a": ["x" * 300]}).encode(), chunked=chunked)
    size = -(-len(request) // pieces)
    cut = [request[n : n + size] for n in range(0, len(request), size)]
    sent, closed = await exchanged(application(store), *cut)
    assert sent.startswith(b"HTTP/1.1 201 ")
    assert not closed
    assert (await store.get("k")).value == {"a": ["x" * 300]}


@pytest.mark.parametrize("chunked", [False, True])
async def test_the_limits_hold_on_the_short_way(store: AsyncStore, chunked: bool) -> None:
    small = replace(Settings(), body_bytes=100)
    request = put(b'"' + b"x" * 200 + b'"', chunked=chunked)
    sent, _ = await exchanged(application(store, small), request)
    assert sent.startswith(b"HTTP/1.1 413 ")
    full = replace(Settings(), bodies_bytes=100)
    app = application(store, full)
    sent, _ = await exchanged(app, request)
    assert sent.startswith(b"HTTP/1.1 503 ")
    assert app._buffered == 0, "what it held is given back"
    assert await store.get("k", None) is None


async def test_a_refusal_before_the_body_closes(store: AsyncStore) -> None:
    """What follows on the connection would be read as a request."""
    request = put(b"1", chunked=False, extra=b"Origin: http://elsewhere\r\n")
    sent, closed = await exchanged(application(store), request)
    assert sent.startswith(b"HTTP/1.1 403 ")
    assert b"connection: close\r\n" in sent
    assert closed
