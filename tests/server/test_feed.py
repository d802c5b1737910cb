"""The feed behind the event streams, on pages that a store may answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import perkey
from perkey.server.feed import Feed
from perkey.store.record import Page, Record


def record(version: int) -> Record:
    return Record("d/report", version, b"1", "ann", 0, f"op{version}")


class Script:
    """Answers each cursor with a page of its own."""

    def __init__(self, pages: dict[str, Page]) -> None:
        self.pages = pages

    def changes(self, prefix: str, cursor: str, limit: int) -> Page:
        return self.pages[cursor]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, dict[str, Page]], None]:
    """Let a store's readers meet a script instead of its backend."""

    def script(store: perkey.AsyncStore, pages: dict[str, Page]) -> None:
        async def read_async(use: Callable[[Any], Any]) -> Any:
            await asyncio.sleep(0)
            return use(Script(pages))

        monkeypatch.setattr(store.core, "read_async", read_async)

    return script


async def until(feed: Feed, cursor: str) -> None:
    async with asyncio.timeout(60):
        while feed.cursor != cursor:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def begun(store: perkey.AsyncStore) -> tuple[Feed, str]:
    """A feed that stands somewhere, and where."""
    feed = Feed(store)
    await feed.start()
    return feed, feed.cursor


async def test_a_page_without_a_change_is_passed(
    store: perkey.AsyncStore, scripted: Callable[[Any, dict[str, Page]], None]
) -> None:
    feed, start = await begun(store)
    scripted(
        store,
        {
            start: Page([], [], "500", live=False),  # leases and receipts only
            "500": Page([record(1)], ["501"], "502"),
            "502": Page([], [], "502"),
            "503": Page([], [], "503"),
        },
    )
    await until(feed, "501")
    page = await feed.after(start)
    assert [each.version for each in page.records] == [1]
    assert page.live
    # A place that a stream was told by the store itself is behind the latest change, and known.
    assert await feed.position(feed.identified("502")) == "502"
    assert await feed.position(feed.identified("503")) is None
    feed.stop()
    await feed.ended()


@pytest.mark.parametrize("found", [1, 0])
async def test_a_gap_of_the_feed_is_told_to_those_before_it(
    store: perkey.AsyncStore, scripted: Callable[[Any, dict[str, Page]], None], found: int
) -> None:
    feed, start = await begun(store)
    some = [record(9)][:found]
    gap = Page(some, ["9"][:found], "9", gap=True)
    scripted(
        store,
        {
            start: gap,
            "9": Page([record(10)], ["10"], "10"),
            "10": Page([], [], "10"),
        },
    )
    waker = asyncio.Event()
    feed.join(waker)
    await until(feed, "10")
    assert waker.is_set()
    assert (await feed.after(start)).gap
    page = await feed.after("9")
    assert ([each.version for each in page.records], page.gap, page.live) == ([10], False, True)
    feed.stop()
    await feed.ended()


async def test_without_a_stream_a_commit_wakes_nobody(store: perkey.AsyncStore) -> None:
    feed, _ = await begun(store)
    await feed.catch_up()
    await asyncio.sleep(0)
    feed._awake.clear()
    await store.put("k", 1, create=True)
    assert not feed._awake.is_set()
    waker = asyncio.Event()
    feed.join(waker)
    assert feed._awake.is_set(), "what was committed before must be seen now"
    async with asyncio.timeout(60):
        await waker.wait()
    assert feed.seen == 1
    feed._awake.clear()
    await store.put("k", 2, if_match=1)
    async with asyncio.timeout(60):
        while feed.seen != 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    feed.stop()
    await feed.ended()


async def test_catching_up_takes_in_all_that_is_committed(
    store: perkey.AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perkey.server.feed.PAGE", 2)
    feed, _ = await begun(store)
    for n in range(7):
        await store.put("k", n, overwrite=True)
    await feed.catch_up()
    assert feed.seen == 7
    feed.stop()
    await feed.ended()
    await store.close()
    await feed.catch_up()  # a store that is closed has nothing more to say


async def test_the_ring_holds_no_values(store: perkey.AsyncStore) -> None:
    feed, start = await begun(store)
    await store.put("k", "x" * 10_000, create=True)
    await store.delete("k")
    await feed.catch_up()
    told = (await feed.after(start)).records
    assert [(each.version, each.deleted) for each in told] == [(1, False), (2, True)]
    assert all(not each.body for each in feed.latest())
    feed.stop()
    await feed.ended()
