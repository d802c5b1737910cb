"""``GET /v1/events``: one stream, resumed without a gap or a repetition, or told of a gap."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as moved

import perkey
from perkey import AsyncStore, Limits
from perkey.errors import StoreUnavailable
from perkey.server import feed as feeds
from perkey.server import identity
from perkey.server.app import Application, application
from perkey.server.settings import Settings
from perkey.store.record import Page
from tests.server.client import Client


@dataclass
class Event:
    """One event of a stream."""

    name: str
    id: str
    data: dict[str, Any]


class Stream:
    """An open stream in this process; ``reading`` can be held up, as by a slow client."""

    def __init__(self, app: Application, target: str, headers: dict[str, str]) -> None:
        self._app = app
        path = target.partition("?")[0] or "/v1/events"
        self._scope = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": target.partition("?")[2].encode(),
            "headers": [
                (n.encode(), v.encode()) for n, v in {"host": "localhost", **headers}.items()
            ],
        }
        self._text = ""
        self._arrived = asyncio.Event()
        self._gone = asyncio.Event()
        self.reading = asyncio.Event()
        self.reading.set()
        self.ended = False
        self.statuses: list[int] = []
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async def receive() -> dict[str, Any]:
            await self._gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            await self.reading.wait()
            if "status" in message:
                self.statuses.append(message["status"])
            self._text += message.get("body", b"").decode()
            self.ended = message["type"] == "http.response.body" and not message.get("more_body")
            self._arrived.set()

        await self._app(self._scope, receive, send)

    async def next(self) -> Event:
        """The next event that is no comment."""
        while True:
            part, end, rest = self._text.partition("\n\n")
            if not end:
                self._arrived.clear()
                assert not self.task.done(), "the stream has ended"
                async with asyncio.timeout(60):
                    await self._arrived.wait()
                continue
            self._text = rest
            fields = dict(line.split(": ", 1) for line in part.split("\n"))
            if "event" in fields:
                return Event(fields["event"], fields.get("id", ""), json.loads(fields["data"]))

    async def until(self, name: str) -> list[Event]:
        """All events up to the next of this name, which is the last of them."""
        found = [await self.next()]
        while found[-1].name != name:
            found.append(await self.next())
        return found

    async def leave(self) -> None:
        """The client goes away."""
        self._gone.set()
        self.reading.set()
        await self.task


Open = Callable[..., Stream]


@asynccontextmanager
async def serving(
    store: AsyncStore, settings: Settings | None = None
) -> AsyncIterator[tuple[Client, Open]]:
    """A running application: a client of it, and a function that opens streams."""
    app = application(store, settings or Settings())
    streams: list[Stream] = []
    await app.services.feed.start()

    def open_(target: str = "", **headers: str) -> Stream:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        streams.append(Stream(app, target, names))
        return streams[-1]

    try:
        yield Client(app), open_
    finally:
        app.stop()
        for stream in streams:
            await stream.leave()
        with suppress(asyncio.CancelledError):
            await app.services.feed.ended()


def versions(events: list[Event]) -> list[int]:
    return [each.data["version"] for each in events if each.name == "document"]


async def test_what_is_committed_is_told(store: AsyncStore) -> None:
    async with serving(store) as (client, open_):
        stream = open_()
        await stream.until("synced")
        await client.put("a", {"secret": 1}, if_none_match="*", perkey_by="ann")
        told = await stream.next()
        assert (told.name, told.data["key"], told.data["version"]) == ("document", "a", 1)
        assert (told.data["by"], told.data["base"]) == ("ann", 0)
        assert "secret" not in json.dumps(told.data), "values are read, not told"
        await client.delete("a", if_match="*")
        assert (await stream.next()).data["deleted"] is True


async def test_boards_are_told_too(store: AsyncStore) -> None:
    async with serving(store) as (_, open_):
        stream = open_()
        await stream.until("synced")
        await perkey.AsyncBoard(store, "run").create(["a"])
        told = await stream.next()
        assert (told.name, told.data["key"]) == ("board", "run")


async def test_coming_back_has_no_gap_and_no_repetition(store: AsyncStore) -> None:
    """From each id, whatever its event was, exactly the later versions follow."""
    async with serving(store) as (client, open_):
        first = open_()
        await first.until("synced")
        await client.create("k", 0)
        for n in range(1, 10):
            await client.put("k", n, if_match="*")
        told = [await first.next() for _ in range(10)]
        assert versions(told) == list(range(1, 11))
        await first.leave()
        for event in told:
            again = open_(last_event_id=event.id)
            seen = await again.until("synced")
            assert versions(seen) == list(range(event.data["version"] + 1, 11))
            assert "gap" not in [each.name for each in seen]
        await client.put("k", 10, if_match="*")
        assert (await again.next()).data["version"] == 11


async def test_coming_back_to_another_server(tmp_path: Path) -> None:
    """The id is the store's: a restarted server, or another replica, goes on behind it."""
    url = f"sqlite:///{tmp_path}/store.db"
    async with await perkey.aopen(url) as store:
        async with serving(store) as (client, open_):
            stream = open_()
            await stream.until("synced")
            await client.create("k", 1)
            last = (await stream.next()).id
        await store.put("k", 2, overwrite=True)
    async with await perkey.aopen(url) as store, serving(store) as (_, open_):
        seen = await open_(last_event_id=last).until("synced")
        assert versions(seen) == [2]
        assert "gap" not in [each.name for each in seen]


async def test_commits_of_other_processes_are_told(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with (
        await perkey.aopen(url) as store,
        await perkey.aopen(url) as other,
        serving(store) as (_, open_),
    ):
        stream = open_()
        await stream.until("synced")
        await other.put("k", 1, create=True)
        assert (await stream.next()).data["key"] == "k"


@pytest.mark.parametrize("last", ["x", "x.5", ".", "5", "{epoch}.", "{epoch}.x", "{epoch}.999999"])
async def test_an_id_that_this_store_never_gave_is_a_gap(store: AsyncStore, last: str) -> None:
    async with serving(store) as (client, open_):
        await client.create("k", 1)
        epoch = client.app.services.feed.epoch
        stream = open_(last_event_id=last.replace("{epoch}", epoch))
        seen = [each.name for each in await stream.until("synced")]
        if last == "{epoch}.":  # the beginning of everything
            assert seen == ["document", "synced"]
        else:
            assert seen == ["gap", "synced"]
        await client.put("k", 2, if_match="*")
        assert (await stream.next()).data["version"] == 2


async def test_a_fresh_store_does_not_go_on_where_another_was(store: AsyncStore) -> None:
    async with serving(store) as (client, open_):
        await client.create("k", 1)
        stream = open_()
        last = (await stream.until("synced"))[-1].id
    async with await perkey.aopen("memory://") as fresh, serving(fresh) as (client, open_):
        for n in range(5):
            await client.create(f"k{n}", 1)
        seen = await open_(last_event_id=last).until("synced")
        assert seen[0].name == "gap"


async def test_what_retention_dropped_is_a_gap() -> None:
    async with await perkey.aopen("memory://", limits=Limits(keep_versions=2)) as store:
        async with serving(store) as (_, open_):
            stream = open_()
            start = (await stream.until("synced"))[-1].id
            await stream.leave()
        await store.put("k", 0, create=True)
        for n in range(5):
            await store.put("k", n, overwrite=True)
        async with serving(store) as (_, open_):
            seen = await open_(last_event_id=start).until("synced")
            assert [each.name for each in seen] == ["gap", "document", "document", "synced"]


async def test_a_slow_reader_keeps_nothing_waiting(
    store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds no queue: the ring goes on without it, and it reads the store when it is back."""
    monkeypatch.setattr(feeds, "RING", 8)
    async with serving(store) as (client, open_):
        slow, quick = open_(), open_()
        for stream in (slow, quick):
            await stream.until("synced")
        slow.reading.clear()
        await client.create("k", 0)
        for n in range(1, 100):
            await client.put("k", n, if_match="*")
        assert versions([await quick.next() for _ in range(100)]) == list(range(1, 101))
        assert len(client.app.services.feed._ring) <= 8
        assert len(client.app.services.feed._numbers) <= 9
        slow.reading.set()
        seen = [await slow.next() for _ in range(100)]
        assert versions(seen) == list(range(1, 101))


async def test_who_never_reads_is_let_go(store: AsyncStore) -> None:
    async with serving(store, replace(Settings(), event_send_s=0.01)) as (client, open_):
        stream = open_()
        await stream.until("synced")
        stream.reading.clear()
        await client.create("k", 1)
        async with asyncio.timeout(60):
            await stream.task
        assert client.app.services.feed.streams == 0
        assert not stream.ended


async def test_only_what_was_asked_for_and_is_allowed(store: AsyncStore, tmp_path: Path) -> None:
    token, entry = identity.make("agent", "read", ["runs/", "notes/"])
    (tmp_path / "t.toml").write_text(entry)
    async with serving(store, Settings(tokens=str(tmp_path / "t.toml"))) as (_, open_):
        given = {"authorization": f"Bearer {token}"}
        everything, some = open_(**given), open_("?prefix=runs/1", **given)
        for stream in (everything, some):
            await stream.until("synced")
        for key in ("secret", "runs/1", "runs", "notes/1", "runs/2", "runs/11", "end", "notes/end"):
            await store.put(key, 1, create=True)
        seen = [(await everything.next()).data["key"] for _ in range(5)]
        assert seen == ["runs/1", "notes/1", "runs/2", "runs/11", "notes/end"]
        assert [(await some.next()).data["key"] for _ in range(2)] == ["runs/1", "runs/11"]


async def test_what_is_no_document_and_no_board_is_never_told(
    store: AsyncStore, tmp_path: Path
) -> None:
    """The text of a receipt's or an account's key may look like one that the token covers, and
    ``GET`` would not show it: not even where a store tells of all its records alike."""
    token, entry = identity.make("agent", "read", ["5:"])
    (tmp_path / "t.toml").write_text(entry)
    async with serving(store, Settings(tokens=str(tmp_path / "t.toml"))) as (client, open_):
        stream = open_(authorization=f"Bearer {token}")
        await stream.until("synced")
        await store.put("5:mine", 1, create=True)
        assert (await stream.next()).data["key"] == "5:mine"
        known = client.app.services.feed._ring[-1][1]
        others = [moved(known, key=f"{space}/5:other") for space in "lraetpqx"]
        last = moved(known, key="d/5:last")
        cursors = [str(n) for n in range(1000, 1000 + len(others) + 1)]
        client.app.services.feed._take(Page([*others, last], cursors, cursors[-1]))
        assert (await stream.next()).data["key"] == "5:last"


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), RuntimeError("a fault of its own")])
async def test_a_stream_that_fails_has_one_head(
    store: AsyncStore, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """What goes wrong behind the head cannot be said any more: the client comes back."""

    async def fails(last: str) -> str | None:
        raise error

    async with serving(store) as (client, open_):
        monkeypatch.setattr(client.app.services.feed, "position", fails)
        stream = open_(last_event_id="x.1")
        async with asyncio.timeout(60):
            await stream.task
        assert stream.statuses == [200]
        assert stream.ended == isinstance(error, StoreUnavailable)
        assert client.app.services.feed.streams == 0
        assert client.app.running == 0


async def test_streams_are_counted_and_take_no_place_of_requests(store: AsyncStore) -> None:
    settings = replace(Settings(), event_clients=3, requests=1)
    async with serving(store, settings) as (client, open_):
        streams = [open_() for _ in range(3)]
        for stream in streams:
            await stream.until("synced")
        assert (await client.send("GET", "/healthz")).status == 200
        (await client.send("GET", "/v1/events")).problem(503, "overloaded")
        await streams[0].leave()
        fresh = open_()
        await fresh.until("synced")
        assert client.app.services.feed.streams == 3


async def test_silence_is_broken(store: AsyncStore) -> None:
    async with serving(store, replace(Settings(), ping_s=0.01)) as (_, open_):
        stream = open_()
        await stream.until("synced")
        async with asyncio.timeout(60):
            while ": ping" not in stream._text:
                stream._arrived.clear()
                await stream._arrived.wait()


async def test_the_end_of_the_server_ends_it(store: AsyncStore) -> None:
    async with serving(store) as (client, open_):
        stream = open_()
        await stream.until("synced")
        client.app.stop()
        async with asyncio.timeout(60):
            await stream.task
        assert stream.ended, "in good order, so that the client comes back by itself"


async def test_metrics(store: AsyncStore) -> None:
    async with serving(store) as (client, open_):
        stream = open_()
        await stream.until("synced")
        await client.create("a-secret-key", 1)
        await client.put("a-secret-key", 1, if_match='"9"')
        await client.send("GET", "/nothing/at/a-secret-key")
        text = (await client.send("GET", "/metrics")).body.decode()
        assert "a-secret-key" not in text
        lines = text.splitlines()
        route = 'path="/v1/documents/{key}"'
        assert f'perkey_http_requests_total{{method="PUT",{route},status="201"}} 1' in lines
        assert f'perkey_http_requests_total{{method="PUT",{route},status="412"}} 1' in lines
        none = 'method="(none)",path="(none)",status="404"'
        assert f"perkey_http_requests_total{{{none}}} 1" in lines
        assert f'perkey_http_request_seconds_bucket{{{route},le="+Inf"}} 2' in lines
        assert f"perkey_http_request_seconds_count{{{route}}} 2" in lines
        assert "perkey_event_streams 1" in lines
        assert 'perkey_events_total{event="Conflicted"} 1' in lines
        for line in lines:
            assert line.startswith("# ") or len(line.rsplit(" ", 1)) == 2


async def test_head_has_the_headers_and_ends(store: AsyncStore) -> None:
    async with serving(store) as (client, _):
        async with asyncio.timeout(60):
            answer = await client.send("HEAD", "/v1/events")
        assert (answer.status, answer.body) == (200, b"")
        assert answer.header("content-type") == "text/event-stream; charset=utf-8"
