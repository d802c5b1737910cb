"""``GET /ui/events``: an open page is told when to look again, and only of what it shows."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace as moved

import perkey
from perkey import AsyncStore
from perkey.server import identity
from perkey.server.settings import Settings
from tests.server.test_events import Event, Open, Stream, serving


async def opened(open_: Open, query: str, **headers: str) -> Stream:
    """A page's stream that has begun: what is written from now on is told."""
    stream = open_(f"/ui/events?{query}", **headers)
    async with asyncio.timeout(60):
        while "retry: " not in stream._text:
            stream._arrived.clear()
            await stream._arrived.wait()
    return stream


async def test_a_page_is_told_that_something_changed_and_nothing_more(store: AsyncStore) -> None:
    async with serving(store) as (client, open_):
        page = await opened(open_, "of=documents")
        await client.create("a-secret-key", {"secret": 1})
        told = await page.next()
        assert (told.name, told.data, told.id) == ("changed", {}, "")
        assert "secret" not in page._text


@pytest.mark.parametrize(
    ("query", "mine"),
    [
        ("of=documents&prefix=orders/", "orders/2"),
        ("of=documents", "other"),
        ("of=documents,runs&prefix=orders/", "orders/2"),
    ],
)
async def test_only_of_what_it_shows(store: AsyncStore, query: str, mine: str) -> None:
    """A stream beside it that is told of everything says when the others have been told."""
    async with serving(store) as (_, open_):
        page, all_ = await opened(open_, query), await opened(open_, "of=documents,runs")
        await perkey.AsyncBoard(store, "elsewhere").create(["a"])
        if "prefix" in query:
            await store.put("order", 1, create=True)
        await all_.next()
        assert "changed" not in page._text
        await store.put(mine, 1, create=True)
        assert (await page.next()).name == "changed"


async def test_runs_have_a_feed_of_their_own(store: AsyncStore) -> None:
    async with serving(store) as (_, open_):
        page, all_ = await opened(open_, "of=runs&prefix=q"), await opened(open_, "of=documents")
        await store.put("q", 1, create=True)
        await all_.next()
        assert "changed" not in page._text
        await perkey.AsyncBoard(store, "q").create(["a"])
        assert (await page.next()).name == "changed"


async def test_what_has_no_feed_is_told_by_its_commit(store: AsyncStore) -> None:
    async with serving(store) as (_, open_):
        page = await opened(open_, "of=commits")
        for name in ("bank", "ann"):
            await perkey.AsyncLedger(store).open_account(name, unit="EUR")
            assert (await page.next()).name == "changed"
        assert store.core._wakers.kept
        await page.leave()
        gone = await opened(open_, "of=documents")
        await gone.leave()
        assert len(store.core._wakers.kept) == 1, "only the feed's own is left"


async def test_a_crowd_of_commits_is_one_word(store: AsyncStore) -> None:
    async with serving(store) as (_, open_):
        page = await opened(open_, "of=commits,documents")
        for n in range(200):
            await store.put("k", n, overwrite=True)
        await page.next()
        assert page._text.count("changed") < 200


async def test_a_reader_is_told_of_its_own_keys_only(store: AsyncStore, tmp_path: Path) -> None:
    made = [identity.make(name, "read", [prefix]) for name, prefix in (("a", "runs/"), ("b", ""))]
    (tmp_path / "t.toml").write_text("\n".join(entry for _, entry in made))
    async with serving(store, Settings(tokens=str(tmp_path / "t.toml"))) as (client, open_):
        page, all_ = [
            await opened(open_, "of=documents", cookie=f"perkey_token={token}") for token, _ in made
        ]
        await store.put("secret", 1, create=True)
        await all_.next()
        assert "changed" not in page._text
        await store.put("runs/1", 1, create=True)
        assert (await page.next()).name == "changed"
        refused = await client.send("GET", "/ui/events?of=documents")
        assert refused.status == 303, "to sign in"


def moments(event: Event) -> list[int]:
    return [each["at"] for each in cast(list[dict[str, int]], event.data)]


async def test_the_samples_of_the_charts_come_once_each(store: AsyncStore) -> None:
    async with serving(store) as (client, open_):
        pulse = client.app.services.pulse
        pulse.samples.append(pulse.now())
        page = await opened(open_, "of=samples")
        first = await page.next()
        assert first.name == "samples"
        assert moments(first) == [int(first.id)]
        pulse.samples.append(moved(pulse.now(), at=int(first.id) + 1000))
        for waker in pulse.wakers:
            waker.set()
        second = await page.next()
        assert moments(second) == [int(first.id) + 1000]
        again = await opened(open_, "of=samples", last_event_id=first.id)
        assert (await again.next()).data == second.data
        await page.leave()
        await again.leave()
        assert pulse.wakers == set()


@pytest.mark.parametrize("last", ["", "9" * 5000, "²".encode().decode("latin-1"), "-1", "1.5"])
async def test_a_moment_that_is_none_is_before_all(store: AsyncStore, last: str) -> None:
    async with serving(store) as (client, open_):
        pulse = client.app.services.pulse
        pulse.samples.append(pulse.now())
        page = await opened(open_, "of=samples", last_event_id=last)
        assert len(moments(await page.next())) == 1


async def test_pages_are_counted_apart_from_streams(store: AsyncStore) -> None:
    settings = replace(Settings(), page_streams=2, event_clients=1, requests=1)
    async with serving(store, settings) as (client, open_):
        pages = [await opened(open_, "of=documents") for _ in range(2)]
        stream = open_("/v1/events")
        await stream.until("synced")
        assert client.app.services.watching == 2
        refused = await client.send("GET", "/ui/events?of=documents")
        assert refused.status == 503
        (await client.send("GET", "/v1/events")).problem(503, "overloaded")
        await pages[0].leave()
        assert client.app.services.watching == 1
        await opened(open_, "of=documents")
        assert (await client.send("GET", "/ui/process")).status == 200


@pytest.mark.parametrize("query", ["", "of=", "of=documents,", "of=nothing", "of=runs&after=1"])
async def test_what_it_does_not_know_is_refused(store: AsyncStore, query: str) -> None:
    async with serving(store) as (client, _):
        assert (await client.send("GET", f"/ui/events?{query}")).status == 400
        assert client.app.services.watching == 0


async def test_head_ends_at_once(store: AsyncStore) -> None:
    async with serving(store) as (client, _):
        answer = await client.send("HEAD", "/ui/events?of=documents")
        assert (answer.status, answer.body) == (200, b"")
        assert client.app.services.watching == 0


async def test_the_end_of_the_server_ends_it(store: AsyncStore) -> None:
    async with serving(store) as (client, open_):
        page = await opened(open_, "of=documents,commits,samples")
        client.app.stop()
        async with asyncio.timeout(60):
            await page.task
        assert page.ended, "in good order, so that the page comes back by itself"
        assert client.app.services.watching == 0
