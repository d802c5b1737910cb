"""A TCP proxy on loopback that loses, delays and repeats replies, and strips HTTP headers.

It knows no protocol.  A *reply* is what the server sends first after the client sent
something; each gets one fault or none, drawn from a seeded generator in the order in which
replies arrive, so one client that waits for its answers meets the same faults in every run.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from tests.servers.base import HOST

Fault = Literal["drop", "delay", "duplicate"]
CHUNK = 65_536


@dataclass(frozen=True)
class Faults:
    """The share of replies, 0 to 1, that meet each fault."""

    drop: float = 0.0
    """The request arrived; the connection breaks instead of a reply."""
    delay: float = 0.0
    """The reply waits ``delay_seconds``."""
    duplicate: float = 0.0
    """The reply comes twice, then the connection breaks: the copy must not answer what follows."""
    delay_seconds: float = 0.05

    def draw(self, random_number: float) -> Fault | None:
        """The fault for a number in [0, 1)."""
        if random_number < self.drop:
            return "drop"
        if random_number < self.drop + self.delay:
            return "delay"
        if random_number < self.drop + self.delay + self.duplicate:
            return "duplicate"
        return None


class Proxy:
    """``with Proxy(server.port, faults=Faults(drop=0.1), seed=7) as proxy: ... proxy.port``."""

    def __init__(
        self,
        upstream: int,
        *,
        faults: Faults = Faults(),
        seed: int = 0,
        only: Callable[[bytes], bool] = lambda request: True,
        strip: Iterable[str] = (),
    ) -> None:
        """``only`` sees a request's first 64 KiB; ``strip`` names HTTP/1.1 request headers."""
        self.upstream = upstream
        self.faults = faults
        self.only = only
        self.strip = frozenset(name.lower().encode() for name in strip)
        self.counts: Counter[str] = Counter()
        self.port = 0
        self._random = random.Random(seed)
        self._armed: deque[Fault] = deque()
        self._loop = asyncio.new_event_loop()
        self._open = asyncio.Event()
        self._links: set[_Link] = set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def url(self, url: str) -> str:
        """``url`` with the upstream's port replaced by the proxy's."""
        assert f":{self.upstream}" in url
        return url.replace(f":{self.upstream}", f":{self.port}", 1)

    def arm(self, fault: Fault, times: int = 1) -> None:
        """The next ``times`` replies that ``only`` admits meet this fault, whatever the draw."""
        self._armed.extend([fault] * times)

    def cut(self) -> None:
        """Break every open connection now; new ones are accepted."""
        self._call(self._cut)

    def partition(self) -> None:
        """Deliver nothing in either direction; connections stay open."""
        self._call(self._open.clear)

    def heal(self) -> None:
        """Deliver again, beginning with what was held back."""
        self._call(self._open.set)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(60)
        assert not self._thread.is_alive()

    # --------------------------------------------------------- on the proxy's own thread

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stopped = asyncio.Event()
        self._open.set()
        server = await asyncio.start_server(self._accept, HOST, 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stopped.wait()
        server.close()
        self._cut()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, asks = await asyncio.open_connection(HOST, self.upstream)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(self, (reader, writer), (answers, asks))
        self._links.add(link)
        try:
            await link.run()
        except asyncio.CancelledError:
            pass  # the proxy ends; nobody awaits this task
        finally:
            self._links.discard(link)

    def _cut(self) -> None:
        for link in list(self._links):
            link.reset()

    def _call(self, action: Callable[[], None]) -> None:
        """Run ``action`` on the loop, and wait until it ran."""
        done = threading.Event()

        def act() -> None:
            action()
            done.set()

        self._loop.call_soon_threadsafe(act)
        assert done.wait(60)

    async def delivered(self) -> None:
        """Wait for the end of a partition."""
        await self._open.wait()

    def choose(self, request: bytes) -> Fault | None:
        """The fault for the reply to ``request``, counted."""
        if not self.only(request):
            self.counts["ignored"] += 1
            return None
        fault = self.faults.draw(self._random.random())
        if self._armed:
            fault = self._armed.popleft()
        self.counts[fault or "passed"] += 1
        return fault


class _Link:
    """One client connection and its connection to the server."""

    def __init__(
        self,
        proxy: Proxy,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.proxy = proxy
        self.client_reader, self.client_writer = client
        self.server_reader, self.server_writer = server
        self.request = bytearray()
        self.stripper = HeaderStripper(proxy.strip) if proxy.strip else None

    async def run(self) -> None:
        """Pump both ways until either side ends."""
        pumps = [asyncio.create_task(self._requests()), asyncio.create_task(self._replies())]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self.close()

    def close(self) -> None:
        """End both connections after what was written to them."""
        self.client_writer.close()
        self.server_writer.close()

    def reset(self) -> None:
        """Break the client's connection at once, as a crash does; the server gets what was sent."""
        raw = self.client_writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.client_writer.transport.abort()
        self.server_writer.close()

    async def _requests(self) -> None:
        while data := await self.client_reader.read(CHUNK):
            if self.stripper is not None:
                data = self.stripper.feed(data)
            self.request += data[: CHUNK - len(self.request)]
            await self.proxy.delivered()
            self.server_writer.write(data)
            await self.server_writer.drain()

    async def _replies(self) -> None:
        while data := await self.server_reader.read(CHUNK):
            fault = self.proxy.choose(bytes(self.request)) if self.request else None
            self.request.clear()
            await self.proxy.delivered()
            if fault == "drop":
                return
            if fault == "delay":
                await asyncio.sleep(self.proxy.faults.delay_seconds)
            self.client_writer.write(data * 2 if fault == "duplicate" else data)
            await self.client_writer.drain()
            if fault == "duplicate":
                return


class HeaderStripper:
    """Removes headers from a stream of HTTP/1.1 requests with ``Content-Length`` bodies."""

    def __init__(self, names: frozenset[bytes]) -> None:
        self._names = names
        self._head = b""
        self._body = 0

    def feed(self, data: bytes) -> bytes:
        """What to pass on; an incomplete head is kept back."""
        out = []
        while data:
            if self._body:
                out.append(data[: self._body])
                self._body, data = self._body - len(out[-1]), data[len(out[-1]) :]
                continue
            self._head += data
            head, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                break
            self._head = b""
            out.append(self._stripped(head) + end)
        return b"".join(out)

    def _stripped(self, head: bytes) -> bytes:
        first, *lines = head.split(b"\r\n")
        kept = [first]
        for line in lines:
            name, _, value = line.partition(b":")
            name = name.strip().lower()
            if name == b"content-length":
                self._body = int(value)
            # Guessing where a chunked body ends would let later headers through.
            assert name != b"transfer-encoding", "chunked requests are not understood"
            if name not in self._names:
                kept.append(line)
        return b"\r\n".join(kept)
