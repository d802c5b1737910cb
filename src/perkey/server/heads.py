"""Limits on the head of a request: uvicorn's protocol has none on lines, length or time."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from perkey.server.problems import answer
from perkey.server.refusals import HeadersTooLarge
from perkey.server.settings import Settings


class Guarded(HttpToolsProtocol):
    """Ends a connection whose request line and headers are too many, too long or too slow."""

    settings: Settings
    _timer: asyncio.TimerHandle | None = None
    _size = 0
    _lines = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_arrived()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._size = self._lines = 0
        self._wait_for_head()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._size += len(url)
        self._check()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._lines += 1
        self._size += len(name) + len(value) + 4
        self._check()

    def data_received(self, data: bytes) -> None:
        if not self.transport.is_closing():
            super().data_received(data)

    def on_headers_complete(self) -> None:
        self._head_arrived()
        if not self.transport.is_closing():
            super().on_headers_complete()

    def shutdown(self) -> None:
        """The server stops: an event stream whose reader does not read cannot end by itself."""
        super().shutdown()
        stuck = self.flow.write_paused and self.scope is not None
        if stuck and self.scope["path"].endswith("/v1/events"):
            self.transport.abort()

    def _check(self) -> None:
        too_many = self._lines > self.settings.head_lines
        if (too_many or self._size > self.settings.head_bytes) and not self.transport.is_closing():
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
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        self.transport.close()


def protocol(settings: Settings) -> type[Guarded]:
    """The protocol with these settings."""
    return type("Guarded", (Guarded,), {"settings": settings})
