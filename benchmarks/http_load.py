"""A client for measuring servers: many connections from one process, one request at a time each.

It writes prepared bytes and looks only for the length of an answer and what the next request
needs of it, so that on two cores the server, not the client, is what is measured.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import uvloop

HOST = "127.0.0.1"

Next = Callable[[bytes, bytes], bytes]
"""(head, body) of the last answer, both empty at first -> the next request."""


@dataclass(frozen=True)
class Turn:
    """What one side did in one turn."""

    answers: int
    seconds: float
    p50_ms: float
    p99_ms: float

    @property
    def rate(self) -> float:
        """Answers per second."""
        return self.answers / self.seconds


class _Client(asyncio.Protocol):
    """One connection; ``times`` gets how long each request took."""

    def __init__(self, following: Next, end: float, times: list[float]) -> None:
        self._following = following
        self._end = end
        self._times = times
        self._began = 0.0
        self._data = b""
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._ask(b"", b"")

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, blank, body = self._data.partition(b"\r\n\r\n")
        if not blank or len(body) < _length(head):
            return
        now = time.perf_counter()
        self._times.append(now - self._began)
        self._data = b""
        if now < self._end:
            self._ask(head, body)
        else:
            self._transport.close()

    def _ask(self, head: bytes, body: bytes) -> None:
        try:
            request = self._following(head, body)
        except Exception as error:  # what came is not what was to come
            self.done.set_exception(error)
            self._transport.abort()
            return
        self._began = time.perf_counter()
        self._transport.write(request)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


def _length(head: bytes) -> int:
    """The Content-Length; 0 where the answer has none."""
    at = head.lower().find(b"content-length: ")
    return int(head[at + 16 :].partition(b"\r\n")[0]) if at >= 0 else 0


def turn(port: int, clients: list[Next], seconds: float) -> Turn:
    """Let all clients ask one request after the other for a while."""
    times: list[float] = []

    async def run() -> float:
        loop = asyncio.get_running_loop()
        began = time.perf_counter()
        made = [
            await loop.create_connection(
                lambda each=each: _Client(each, began + seconds, times), HOST, port
            )
            for each in clients
        ]
        await asyncio.gather(*(client.done for _, client in made))
        return time.perf_counter() - began

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        took = runner.run(run())
    cuts = statistics.quantiles(times, n=100)
    return Turn(len(times), took, cuts[49] * 1000, cuts[98] * 1000)
