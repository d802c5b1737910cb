"""Every interleaving of tasks that share one watch, and of those who write meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perkey import Change
from perkey.store.record import Page
from perkey.store.views import Document, Synced
from perkey.store.watch import AsyncWatch, _Bell
from perkey.testing import explore, register_fingerprint, step
from perkey.testing.runner import Ended
from tests.explore.stepped import SteppedStore, _of_store


class Watched(SteppedStore):
    """A store with one watch that several tasks read from."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = self.watch("a/")


@pytest.fixture(autouse=True)
def reads_take_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others come in between while a watch reads, as with a disk or a network."""

    async def look(self: AsyncWatch, end: float | None) -> bool:
        page = self._core.read(self._at.look)
        await step("look", error=None)
        self._at.take(page)
        return True

    monkeypatch.setattr(AsyncWatch, "_look", look)


def _of_watch(watch: AsyncWatch) -> list[Any]:
    at = watch._at
    return [watch._closed, at.cursor, at.synced, list(at.ready), watch._bell]


register_fingerprint(Watched, lambda store: [*_of_store(store), store.shared])
register_fingerprint(AsyncWatch, _of_watch)
register_fingerprint(_Bell, lambda bell: [bell.loop is None, bell.rung, bell.turn])
register_fingerprint(
    Page, lambda page: [page.records, page.cursors, page.cursor, page.gap, page.live]
)
register_fingerprint(Document, lambda seen: [seen.key, seen.version])


async def watched() -> Watched:
    return Watched()


async def written_to() -> Watched:
    """The same, while a task that nobody cancels writes to it."""
    store = Watched()
    background.append(asyncio.ensure_future(write(store)))
    return store


background: list[object] = []


async def take(store: Watched) -> None:
    """Wait for one change."""
    while not isinstance(item := await store.shared.next(), Change):
        assert isinstance(item, Synced)
    store.notes.append(item.document.key)


async def write(store: Watched) -> None:
    """Two changes, which a look finds one by one or together."""
    await store.put("a/1", 1, create=True)
    await store.put("a/2", 2, create=True)


def each_once(store: Watched) -> bool:
    return store.notes == ["a/1", "a/2"]


def test_tasks_that_share_a_watch_get_each_change_once() -> None:
    explore(watched, [take, take, write], check=each_once).assert_holds()


def test_a_cancelled_task_takes_no_change_with_it() -> None:
    def check(store: Watched, ended: Ended) -> bool:
        taken = ended.cancelled.count(False)
        return store.notes == ["a/1", "a/2"][:taken]

    explore(written_to, [take, take], check=check, cancellations=1).assert_holds()


def test_a_watch_that_begins_at_its_first_item_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = AsyncWatch.__init__

    def late(self: AsyncWatch, core: Any, prefix: str, after: str | None) -> None:
        real(self, core, prefix, after)
        self._at.cursor = after

    monkeypatch.setattr(AsyncWatch, "__init__", late)
    # Who misses a change asks for it for ever.
    explore(watched, [take, take, write], check=each_once, max_moves=100).assert_fails()


def test_tasks_that_do_not_wait_for_their_turn_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    class Open(asyncio.Lock):
        async def acquire(self) -> bool:
            return True

        def release(self) -> None: ...

    monkeypatch.setattr(AsyncWatch, "_turn_here", lambda self: _open(self, Open()))
    explore(watched, [take, take, write], check=each_once).assert_fails()


def _open(watch: AsyncWatch, turn: asyncio.Lock) -> asyncio.Lock:
    watch._bell.loop = asyncio.get_running_loop()
    return turn
