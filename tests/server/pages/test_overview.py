"""The overview: counters and their samples, hot keys, the latest changes, health."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from perkey import AsyncDocuments, AsyncStore, Conflict
from perkey.server import pulse
from perkey.server.app import Application, application
from perkey.server.pages import overview
from perkey.store.record import Record
from tests.server.client import Client
from tests.server.pages.conftest import Guarded
from tests.server.pages.html import Page, compact


@pytest.fixture
async def running(store: AsyncStore) -> AsyncIterator[Application]:
    """A server whose feed and pulse are at work."""
    app = application(store)
    async with alive(app):
        yield app


class alive:
    """The server's start, and its end."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __aenter__(self) -> None:
        self._messages: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._sent: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._task = asyncio.create_task(
            self._app({"type": "lifespan"}, self._messages.get, self._sent.put)  # type: ignore[arg-type]
        )
        await self._messages.put({"type": "lifespan.startup"})
        assert (await self._sent.get())["type"] == "lifespan.startup.complete"

    async def __aexit__(self, *exc: object) -> None:
        await self._messages.put({"type": "lifespan.shutdown"})
        assert (await self._sent.get())["type"] == "lifespan.shutdown.complete"
        await self._task


async def seen(app: Application, count: int) -> None:
    """Wait until the feed has seen so many changes."""
    waker, feed = asyncio.Event(), app.services.feed
    feed.join(waker)
    while feed.seen < count:
        waker.clear()
        await waker.wait()
    feed.leave(waker)


def section(page: Page, title: str) -> str:
    """The text of the card with that title."""
    (found,) = (
        each for each in page.all("section") if each.attributes.get("aria-labelledby", "") == title
    )
    return compact(found.text)


async def test_before_anything_happened_it_teaches(running: Application) -> None:
    page = Page(await Client(running).send("GET", "/ui"))
    assert "Nothing has changed since this server started" in section(page, "recent-title")
    store, put = page.one("pre").text.splitlines()
    assert store == "export PERKEY_STORE=http://localhost"
    assert put.startswith("perkey doc put hello ")
    assert "A key that many write at once" in section(page, "hot-title")
    assert "ready" in section(page, "health-title")
    assert "memory" in section(page, "health-title")
    assert len(page.all("div", "plot")) == 6
    assert page.commands()[0] == "curl -s http://localhost/metrics"


async def test_what_happened_is_counted_and_listed(running: Application, store: AsyncStore) -> None:
    docs, client = AsyncDocuments(store), Client(running)
    await docs.put("a", {"x": 1}, create=True, by="ann")
    await docs.put("a", {"x": 1, "y": 1}, if_match=1, by="bob")
    await docs.put("a", {"x": 2}, if_match=1, merge=True, by="cy")
    await docs.put("a", {"x": 3}, overwrite=True, base=1, by="di")
    with pytest.raises(Conflict):
        await docs.put("a", {"x": 4}, if_match=1, by="ed")
    await docs.put("b", 1, create=True, by="ann")
    await seen(running, 5)
    now = running.services.pulse.now()
    assert now.commits == 6, "and the one that names the store to its event streams"
    assert (now.conflicts, now.merges, now.stale, now.changes) == (1, 1, 1, 5)
    page = Page(await client.send("GET", "/ui"))
    totals = {each["data-total"]: each.text for each in page.all("strong")}
    assert (totals["commits"], totals["conflicts"], totals["merges"]) == ("6", "1", "1")
    assert section(page, "hot-title").startswith(
        "Hot keys last five minutes Key Versions Authors Stale overwrites a 4 4 1 b 1 1 0 "
        "A stale overwrite is a version that was put over others which its author had not read."
    )
    recent = section(page, "recent-title")
    assert recent.index("b 1 ann") < recent.index("a stale overwrite 4 di")
    assert "% of writes met a conflict" in section(page, "hot-title")


async def test_samples_come_once_each(running: Application, store: AsyncStore) -> None:
    client = Client(running)
    first = (await client.send("GET", "/ui/live?after=0")).json
    assert first[0].keys() == {"at", "commits", "conflicts", "retries", "merges", "stale",
                               "replays", "changes", "requests"}  # fmt: skip
    assert (await client.send("GET", f"/ui/live?after={first[-1]['at'] + 10**9}")).json == []
    Page(await client.send("GET", "/ui/live?after=x"), 400)


async def test_samples_are_bounded(running: Application) -> None:
    own = running.services.pulse
    for _ in range(pulse.KEPT * 2):
        own.samples.append(own.now())
    assert len(own.samples) == pulse.KEPT


async def test_pages_are_no_requests_to_count(running: Application) -> None:
    client = Client(running)
    await client.send("GET", "/healthz")
    await client.send("GET", "/ui")
    await client.send("GET", "/ui/live?after=0")
    assert running.services.pulse.now().requests == 1


def record(key: str, version: int, base: int, at: int = 10, by: str = "ann") -> Record:
    return Record(key, version, b"1", by, at, base=base)


def test_hot_keys() -> None:
    found = overview.hot(
        [
            record("d/a", 3, 1, by="bob"),
            record("d/a", 2, 1),
            record("b/a", 1, 0),
            record("d/old", 1, 0, at=1),
        ],
        5,
    )
    assert [
        (each.key, each.document, each.versions, each.stale, len(each.authors)) for each in found
    ] == [
        ("a", True, 2, 1, 2),
        ("a", False, 1, 0, 1),
    ]
    many = [record(f"d/{n}", 1, 0) for n in range(50)]
    assert len(overview.hot(many, 0)) == overview.HOT


async def test_a_token_sees_its_own_changes(guarded: Guarded, store: AsyncStore) -> None:
    docs = AsyncDocuments(store)
    async with alive(guarded.app):
        await docs.put("runs/1", 1, create=True, by="agent")
        await docs.put("secret/plan", 1, create=True, by="boss")
        with pytest.raises(Conflict):
            await docs.put("secret/plan", 1, create=True, by="agent")
        await seen(guarded.app, 2)
        page = Page(await guarded.signed_in("agent").send("GET", "/ui"))
        assert "runs/1" in page.text
        assert "secret" not in page.text
        assert "secret/plan" in Page(await guarded.signed_in("boss").send("GET", "/ui")).text


async def test_a_slash_too_many_leads_to_the_first_page(client: Client) -> None:
    for target in ("/", "/ui/"):
        answer = await client.send("GET", target)
        assert (answer.status, answer.header("location")) == (303, "/ui")
