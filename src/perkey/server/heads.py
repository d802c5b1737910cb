"""Limits on the head of a request: uvicorn's protocol has none on lines, length or time."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from perkey.server.exchange import EXTENSION, Exchange, fits
from perkey.server.problems import answer
from perkey.server.refusals import HeadersTooLarge
from perkey.server.settings import Settings

STREAMS = (b"/v1/events", b"/ui/events")
"""How the paths of event streams end; a slash inside a key is sent as %2F."""
LAST_WORDS_S = 0.5
"""How long the reader of a stream may take for the rest of it when the server stops, in seconds."""
PIECES = 10
"""In so many pieces: where the machine stands still for a while, only one of them is lost."""


class Guarded(HttpToolsProtocol):
    """Ends a connection whose request line and headers are too many, too long or too slow.

    A head mostly comes whole, in one piece of data, and is looked at once it is complete; only
    one that comes in several pieces is counted and timed on its way.  What stands between and
    behind the chunks of a body, where lines may come as well, is counted in the same way.
    """

    settings: Settings
    url = b""
    _short: bool | None = None
    """Whether this uvicorn's requests have the short way; known with the first one of a server."""
    _timer: asyncio.TimerHandle | None = None
    _arriving = True
    """Whether a head is waited for, or has begun and is not complete."""
    _begins = True
    """Whether it began in this piece of data, whose length may be that of a body before it."""
    _received = 0
    """How many bytes of it came in later pieces: the parser shows a line only when it ends."""
    _moved = False
    """Whether this piece of data held the end of a head or something of a body."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_arrived()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._arriving = self._begins = True
        self._received = 0

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._begins = self._moved = False
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._arriving:
            self._received += 0 if self._begins else len(data)
            self._check()
            self._wait_for_head()
        elif not self._moved:  # the lines behind a body, or what is no line at all
            self._received += len(data)
            self._check()

    def on_headers_complete(self) -> None:
        self._head_arrived()
        self._check()
        if self.transport.is_closing():
            return
        former = self.cycle
        super().on_headers_complete()
        if self.cycle is former:
            return
        if self._short is None:
            type(self)._short = fits(self.cycle)
        if self._short:  # the application has not begun: its task has yet to run
            self.scope["extensions"] = {EXTENSION: {"exchange": Exchange(self.cycle)}}

    def on_body(self, body: bytes) -> None:
        """A body whose head was refused is nobody's: not that of the request before it, either."""
        self._moved, self._received = True, 0
        if not self.transport.is_closing():
            super().on_body(body)

    def shutdown(self) -> None:
        """The server stops: an event stream whose reader does not read cannot end by itself.

        Its client comes back and goes on where it was, so nothing is lost with the connection.
        """
        super().shutdown()
        if self.cycle is not None and self.cycle.scope["raw_path"].endswith(STREAMS):
            self._let_go(PIECES)

    def _let_go(self, pieces: int) -> None:
        """End the connection after so many pieces of a moment, unless it has ended by itself."""
        if pieces:
            self.loop.call_later(LAST_WORDS_S / PIECES, self._let_go, pieces - 1)
        else:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Also called where the rest of a request that was refused cannot be read."""
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def _check(self) -> None:
        """Refuse a head, or what has come of it, that is beyond a limit."""
        lines, limits = self.headers or (), self.settings
        size = len(self.url) + sum([len(name) + len(value) + 4 for name, value in lines])
        if max(size, self._received) > limits.head_bytes or len(lines) > limits.head_lines:
            self._refuse()

    def _refuse(self) -> None:
        response = answer(
            HeadersTooLarge(
                f"expected at most {self.settings.head_lines} header lines and "
                f"{self.settings.head_bytes} bytes of them"
            )
        )
        lines = [b"HTTP/1.1 431 Request Header Fields Too Large"]
        lines += [name + b": " + value for name, value in response.raw_headers]
        head = b"\r\n".join([*lines, b"connection: close", b"", b""])
        self.transport.write(head + bytes(response.body))
        self.transport.close()

    def _wait_for_head(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.settings.head_s, self._too_slow)

    def _head_arrived(self) -> None:
        self._arriving, self._moved, self._received = False, True, 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        self.transport.close()


def protocol(settings: Settings) -> type[Guarded]:
    """The protocol with these settings."""
    return type("Guarded", (Guarded,), {"settings": settings})
