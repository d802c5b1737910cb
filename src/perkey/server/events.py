"""``GET /v1/events``: every change as a server-sent event, on one stream.

The ``id`` of an event names the place right behind it in the store's own order, so a client
that comes back with ``Last-Event-ID`` goes on there without a gap or a repetition, also after
a restart of the server and on another replica; where that is impossible it is told ``gap``,
and reads again what it shows.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from starlette.responses import Response

from perkey.errors import PerkeyError
from perkey.server.calls import Call
from perkey.server.feed import Feed
from perkey.server.refusals import Overloaded
from perkey.server.replies import ALWAYS
from perkey.server.routes import Route
from perkey.store.record import Page, Record
from perkey.store.views import moment

RETRY_MS = 1000
"""How long a client waits before it comes back."""
NAMES = {"d": "document", "b": "board"}
"""What is told of, by its space, and as what."""
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """The data of an event: which version of what, never its value."""

    key: str
    version: int
    by: str
    at: str
    base: int
    deleted: bool = False


class Sent(Response):
    """Stands for an answer that has been sent already."""

    def __init__(self) -> None:
        super().__init__()


class _Head(Response):
    """The headers of a stream."""

    def __init__(self) -> None:
        super().__init__()
        self.raw_headers = [*HEADERS]


async def events(call: Call) -> Response:
    """Changes from now on, or from behind ``Last-Event-ID``."""
    feed, settings = call.services.feed, call.services.settings
    opened = feed.streams - call.services.watching
    if opened >= settings.event_clients:
        limit = settings.event_clients
        raise Overloaded(f"{opened} event streams are open and the limit is {limit}")
    return await streamed(call, Changes(call))


async def streamed(call: Call, stream: Stream) -> Response:
    """The whole life of a stream, as the answer to its request."""
    if call.method == "HEAD":  # it has no body, so there is nothing to wait for
        return _Head()
    call.release()
    await stream.run()
    return Sent()


class Stream(ABC):
    """One client, and what it is told: ``texts``."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._feed: Feed = call.services.feed
        self._waker = asyncio.Event()

    async def run(self) -> None:
        """Send until the client goes away, reads too slowly, or the server stops."""
        settings = self._call.services.settings
        gone = asyncio.ensure_future(self._gone())
        gone.add_done_callback(lambda task: self._waker.set())
        self._feed.join(self._waker)
        try:
            # Before its head is out: what the client writes once it has seen that is told.
            await self._feed.catch_up()
            start = self._feed.cursor
            await self._call.send({"type": "http.response.start", "status": 200,
                                   "headers": [*HEADERS, *ALWAYS]})  # fmt: skip
            async with aclosing(self.texts(start, gone)) as texts:
                async for text in texts:
                    async with asyncio.timeout(settings.event_send_s):
                        await self._send(text)
            await self._send(b"", more=False)
        except TimeoutError:
            return  # too slow a reader: it comes back and goes on where it was
        finally:
            self._feed.leave(self._waker)
            gone.cancel()

    async def _send(self, text: bytes, *, more: bool = True) -> None:
        await self._call.send({"type": "http.response.body", "body": text, "more_body": more})

    async def _gone(self) -> None:
        while (await self._call.receive())["type"] != "http.disconnect":
            pass

    @abstractmethod
    def texts(self, cursor: str, gone: asyncio.Future[None]) -> AsyncGenerator[bytes, None]:
        """Whole events, from behind ``cursor`` until the client has gone or the server stops."""

    async def _patience(self) -> bytes:
        """Wait for something to tell: a comment where nothing came for too long, else nothing."""
        try:
            async with asyncio.timeout(self._call.services.settings.ping_s):
                await self._waker.wait()
        except TimeoutError:
            return b": ping\n\n"
        return b""


class Changes(Stream):
    """Every change under a prefix, with its place in the store's order."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._prefix = call.text("prefix")
        self._last = call.header("last-event-id") or call.text("after")

    async def texts(self, cursor: str, gone: asyncio.Future[None]) -> AsyncGenerator[bytes, None]:
        """``document``, ``board``, ``synced`` and ``gap``."""
        feed = self._feed
        yield b"retry: %d\n\n" % RETRY_MS
        if self._last:
            try:
                known = await feed.position(self._last)
            except PerkeyError:
                return  # the store cannot be read: the client comes back
            if known is None:
                yield self._event("gap", cursor, b"{}")
            cursor = cursor if known is None else known
        synced = False
        while not feed.stopping and not gone.done():
            self._waker.clear()
            try:
                page = await feed.after(cursor)
            except PerkeyError:
                return  # the store cannot be read: the client comes back
            text = self._page(page, cursor)
            cursor = page.cursor
            if page.live and not synced:
                synced = True
                text += self._event("synced", cursor, b"{}")
            if text:
                yield text
            if page.live and not self._waker.is_set():
                text = await self._patience()
                if text:
                    yield text

    def _page(self, page: Page, cursor: str) -> bytes:
        parts = [self._event("gap", cursor, b"{}")] if page.gap else []
        for record, behind in zip(page.records, page.cursors, strict=True):
            if self._wants(record):
                parts.append(self._event(NAMES[record.key[0]], behind, _data(record)))
        return b"".join(parts)

    def _wants(self, record: Record) -> bool:
        """Only what ``GET`` shows under that name, to whom it shows it."""
        if record.key[0] not in NAMES:
            return False  # its text is no key that prefixes speak of
        name = record.key[2:]
        return name.startswith(self._prefix) and self._call.caller.covers(name)

    def _event(self, name: str, cursor: str, data: bytes) -> bytes:
        told = self._feed.identified(cursor)
        return f"event: {name}\nid: {told}\ndata: ".encode() + data + b"\n\n"


def _data(record: Record) -> bytes:
    """One line: JSON has no line breaks of its own."""
    return msgspec.json.encode(
        Change(
            record.key[2:],
            record.version,
            record.by,
            moment(record.at),
            record.base,
            record.deleted,
        )
    )


ROUTES = [Route("GET", "/v1/events", events, query=("prefix", "after"))]
