"""Load on a real server: readers, writers on few keys, and event streams, all at once.

Every acknowledged write names the version that it made, so at the end it can be said of each
version who made it: a version that nobody made, or two made, is a write that was lost or doubled.
Each event stream must have seen every version of every key, in order.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil

from tests.servers import base
from tests.servers.perkey_http import PerkeyHttp

BY_DESIGN = {200, 201, 304, 409, 412, 503}
SAMPLE_S = 0.25
SAMPLES = 8
"""At least so many samples of memory, and"""
ROUNDS = 5
"""at least so many rounds of each worker, however long the machine stood still meanwhile."""
LAST = "load/last"
"""The document that is written when all is over: what comes before it in a stream is all."""


@dataclass
class Tally:
    """What one run came to."""

    keys: list[str]
    seconds: float
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By what was asked and the answer."""
    times: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Seconds of each request, by what was asked."""
    made: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Key -> the version of each acknowledged write."""
    last: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Key -> (version, how many writes its value counts) at the end."""
    seen: list[dict[str, list[int]]] = field(default_factory=list)
    """For each stream: key -> the versions it was told of, in order."""
    gaps: int = 0
    memory: list[int] = field(default_factory=list)
    """The server's resident memory, in bytes, four times a second."""

    @property
    def unexpected(self) -> list[tuple[str, int]]:
        """Answers that are no part of the design."""
        return [each for each in self.statuses if each[1] not in BY_DESIGN]

    def wrong(self) -> list[str]:
        """Every write that was lost or doubled, and every event that was not told in order."""
        found = []
        for key in self.keys:
            version, count = self.last[key]
            if sorted(self.made[key]) != list(range(1, version + 1)):
                found.append(f"{key}: versions 1 to {version}, acknowledged {len(self.made[key])}")
            if count != version:
                found.append(f"{key}: {version} writes, and the value counts {count}")
            for number, stream in enumerate(self.seen):
                if stream[key] != list(range(1, version + 1)):
                    found.append(f"stream {number}, {key}: {len(stream[key])} of {version}")
        return found

    @property
    def growth(self) -> int:
        """Bytes by which the second half of the run held more than the first, warm-up apart."""
        warm = self.memory[len(self.memory) // 4 :]
        middle = len(warm) // 2
        return int(statistics.median(warm[middle:]) - statistics.median(warm[:middle]))

    def table(self) -> str:
        """The figures, for people."""
        heads = "".join(f"{each:>10}" for each in ("answers", "per s", "p50 ms", "p99 ms"))
        lines = [f"{'asked for':<12}{heads}  statuses"]
        for what, took in sorted(self.times.items()):
            cuts = [1000 * each for each in statistics.quantiles(took, n=100)]
            counted = sorted((s, n) for (each, s), n in self.statuses.items() if each == what)
            told = ", ".join(f"{status}: {count}" for status, count in counted)
            figures = f"{len(took):>10}{len(took) / self.seconds:>10.0f}"
            lines.append(f"{what:<12}{figures}{cuts[49]:>10.1f}{cuts[98]:>10.1f}  {told}")
        events = sum(len(versions) for stream in self.seen for versions in stream.values())
        figures = f"{events:>10}{events / self.seconds:>10.0f}"
        lines.append(f"{'events':<12}{figures}{'':>20}  gaps: {self.gaps}")
        mib = [each / 2**20 for each in self.memory]
        lines.append(
            f"memory, MiB: first {mib[0]:.0f}, most {max(mib):.0f}, last {mib[-1]:.0f}; "
            f"second half against first {self.growth / 2**20:+.1f}"
        )
        return "\n".join(lines)


class Connection:
    """One connection that stays open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self, method: str, path: str, headers: dict[str, str], body: bytes = b""
    ) -> tuple[int, dict[str, str], bytes]:
        """One request; its status, headers and body."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(base.HOST, self._port)
        reader, writer = self._streams
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        status, found = await _head(reader)
        data = await reader.readexactly(int(found.get("content-length", "0")))
        if found.get("connection") == "close":
            await self.close()
        return status, found, data

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
    pairs = (line.split(": ", 1) for line in lines)
    return int(first.split(" ")[1]), {name.lower(): value for name, value in pairs}


class Run:
    """One run on one server."""

    def __init__(self, server: PerkeyHttp, seconds: float, keys: int) -> None:
        self._port = server.port
        self._process = psutil.Process(server.pid)
        self._end = 0.0
        self.tally = Tally([f"load/{n}" for n in range(keys)], seconds)

    async def go(self, readers: int, writers: int, streams: int) -> Tally:
        """Let them all work for as long as the tally says; what it came to."""
        tally = self.tally
        tally.seen = [defaultdict(list) for _ in range(streams)]
        synced = [asyncio.Event() for _ in range(streams)]
        listening = [
            asyncio.create_task(self._listen(seen, event))
            for seen, event in zip(tally.seen, synced, strict=True)
        ]
        for event in synced:
            await event.wait()
        one = Connection(self._port)
        for key in tally.keys:
            tally.made[key].append(await self._create(one, key))
        self._end = time.monotonic() + tally.seconds
        work = [self._write(n) for n in range(writers)] + [self._read(n) for n in range(readers)]
        await asyncio.gather(self._sample(), *work)
        for key in tally.keys:
            _, headers, body = await one.ask("GET", _path(key), {})
            tally.last[key] = int(headers["etag"].strip('"')), json.loads(body)["count"]
        await self._create(one, LAST)
        await one.close()
        async with asyncio.timeout(60):  # the streams have yet to be told of the latest
            await asyncio.gather(*listening)
        return tally

    async def _create(self, connection: Connection, key: str) -> int:
        value = json.dumps({"count": 1, "by": -1, "pad": "x" * 200}).encode()
        status, _, body = await connection.ask("PUT", _path(key), {"If-None-Match": "*"}, value)
        assert status == 201, body
        version: int = json.loads(body)["version"]
        return version

    async def _sample(self) -> None:
        while time.monotonic() < self._end or len(self.tally.memory) < SAMPLES:
            self.tally.memory.append(self._process.memory_info().rss)
            await asyncio.sleep(SAMPLE_S)

    async def _asked(self, what: str, asking: Any) -> tuple[int, dict[str, str], bytes]:
        began = time.perf_counter()
        answer: tuple[int, dict[str, str], bytes] = await asking
        self.tally.times[what].append(time.perf_counter() - began)
        self.tally.statuses[what, answer[0]] += 1
        return answer

    def _turns(self, first: int) -> Iterator[int]:
        """Counts up from ``first`` until the time is over, and a few times at the least."""
        turn = first
        while time.monotonic() < self._end or turn < first + ROUNDS:
            yield turn
            turn += 1

    async def _write(self, number: int) -> None:
        """Count one more in a document, on the condition that nobody else did meanwhile."""
        connection, keys = Connection(self._port), self.tally.keys
        for turn in self._turns(number):
            key = keys[turn % len(keys)]
            status, headers, body = await self._asked("read", connection.ask("GET", _path(key), {}))
            value = json.loads(body)
            value["count"], value["by"] = value["count"] + 1, number
            given = {"If-Match": headers["etag"]}
            status, headers, body = await self._asked(
                "write", connection.ask("PUT", _path(key), given, json.dumps(value).encode())
            )
            if status in (200, 201):
                self.tally.made[key].append(json.loads(body)["version"])
        await connection.close()

    async def _read(self, number: int) -> None:
        """Read documents, half of the time only if they have changed."""
        connection, keys = Connection(self._port), self.tally.keys
        tags: dict[str, str] = {}
        for turn in self._turns(number):
            key = keys[turn % len(keys)]
            given = {"If-None-Match": tags[key]} if key in tags and turn % 3 else {}
            _, headers, _ = await self._asked("read", connection.ask("GET", _path(key), given))
            if "etag" in headers:
                tags[key] = headers["etag"]
        await connection.close()

    async def _listen(self, seen: dict[str, list[int]], synced: asyncio.Event) -> None:
        """Hear of changes up to the very last."""
        reader, writer = await asyncio.open_connection(base.HOST, self._port)
        writer.write(b"GET /v1/events?prefix=load/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
        status, _ = await _head(reader)
        assert status == 200
        text, tally = b"", self.tally
        while LAST not in seen:
            text += await _chunk(reader)
            *events, text = text.split(b"\n\n")
            for event in events:
                lines = dict(line.split(b": ", 1) for line in event.split(b"\n"))
                if lines.get(b"event") == b"document":
                    told = json.loads(lines[b"data"])
                    seen[told["key"]].append(told["version"])
                elif lines.get(b"event") == b"gap":
                    tally.gaps += 1
                elif lines.get(b"event") == b"synced":
                    synced.set()
        writer.close()


async def _chunk(reader: asyncio.StreamReader) -> bytes:
    """One chunk of a chunked body."""
    size = int(await reader.readline(), 16)
    return (await reader.readexactly(size + 2))[:-2]


def _path(key: str) -> str:
    return "/v1/documents/" + key.replace("/", "%2F")


def run(
    server: PerkeyHttp,
    seconds: float,
    *,
    readers: int = 100,
    writers: int = 50,
    streams: int = 50,
    keys: int = 8,
) -> Tally:
    """Two hundred connections for a while."""
    return asyncio.run(Run(server, seconds, keys).go(readers, writers, streams))
