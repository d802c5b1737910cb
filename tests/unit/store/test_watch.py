"""Watching: where it begins, who gets which item when several share it, and that it ends."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

import perkey
from perkey import AsyncStore, Change, Gap, Store, Synced
from perkey.clock import SYSTEM
from perkey.errors import StoreUnavailable, Timeout, UsageError, WrongColour
from perkey.store.backends.memory import MemoryBackend
from perkey.store.limits import Limits
from perkey.store.record import Page
from perkey.store.transaction import Tx
from perkey.store.watch import LONGEST_PAUSE_S, POLL_S, AsyncWatch, Item, Watch, _Position
from tests.unit.manual_clock import ManualClock

PATIENCE = 30.0


@pytest.fixture(params=["memory://", "sqlite:///"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path: str = request.param
    return path if path == "memory://" else f"sqlite:///{tmp_path}/s.db?synchronous=OFF"


def names(items: list[Item | None]) -> list[str]:
    """The keys of the changes among ``items``."""
    return [each.document.key for each in items if isinstance(each, Change)]


class Blocking(MemoryBackend):
    """A backend in memory that is called off the loop, as one over a network is."""

    def __init__(self) -> None:
        super().__init__(Limits(), SYSTEM)
        self.blocking = True
        self.fault: Exception | None = None
        self.cursors = 0
        self.looks = 0
        self.away = 0
        """How many looks find nobody."""

    def changes(self, prefix: str, cursor: str, limit: int) -> Page:
        self.looks += 1
        if self.looks <= self.away:
            raise StoreUnavailable("the server is away")
        return super().changes(prefix, cursor, limit)

    def cursor(self, prefix: str) -> str:
        self.cursors += 1
        if self.fault is not None:
            raise self.fault
        return super().cursor(prefix)


# ------------------------------------------------------------------------- where it begins


def test_it_begins_when_it_was_opened(url: str) -> None:
    with perkey.open(url) as store:
        store.put("a/before", 0, create=True)
        watch = store.watch("a/")
        store.put("a/1", 1, create=True)
        store.put("b/1", 1, create=True)
        store.put("a/2", 2, create=True)
        items = [watch.next(0) for _ in range(4)]
        assert names(items) == ["a/1", "a/2"]
        assert isinstance(items[2], Synced)
        assert items[3] is None


async def test_on_asyncio_it_begins_before_the_next_commit(url: str) -> None:
    async with await perkey.aopen(url) as store:
        await store.put("a/before", 0, create=True)
        watch = store.watch("a/")
        await store.put("a/1", 1, create=True)
        await store.put("a/2", 2, create=True)
        assert names([await watch.next(0) for _ in range(3)]) == ["a/1", "a/2"]


async def test_a_change_that_was_queued_when_it_was_opened_may_show_and_none_after_is_lost(
    url: str,
) -> None:
    async with await perkey.aopen(url) as store:
        running = [asyncio.ensure_future(store.put(f"a/{n}", n, create=True)) for n in range(5)]
        await asyncio.sleep(0)
        watch = store.watch("a/")
        late = [asyncio.ensure_future(store.put(f"b/{n}", n, create=True)) for n in range(5)]
        both = store.watch("")
        await asyncio.gather(*running, *late)
        await store.put("b/last", 1, create=True)
        seen = []
        while not seen or seen[-1] != "b/last":
            seen += names([await both.next(PATIENCE)])
        assert {f"b/{n}" for n in range(5)} <= {*seen}
        assert set(names([await watch.next(0)])) <= {f"a/{n}" for n in range(5)}


@pytest.mark.parametrize("how", ["await", "async with"])
async def test_awaited_or_entered_it_begins_there_for_other_processes_too(
    tmp_path: Path, how: str
) -> None:
    url = f"sqlite:///{tmp_path}/s.db?synchronous=OFF"
    with perkey.open(url) as other:
        async with await perkey.aopen(url) as store:
            other.put("a/before", 1, create=True)
            watch = store.watch("a/")
            assert await (watch if how == "await" else watch.__aenter__()) is watch
            other.put("a/1", 1, create=True)
            assert names([await watch.next(PATIENCE)]) == ["a/1"]


async def test_its_place_is_looked_up_once() -> None:
    backend = Blocking()
    async with AsyncStore(backend) as store:
        async with store.watch("a/") as watch:
            for n in range(3):
                await store.put(f"a/{n}", n, create=True)
            assert names([await watch.next(0) for _ in range(3)]) == ["a/0", "a/1", "a/2"]
        assert backend.cursors == 1


async def test_a_place_that_cannot_be_found_is_told_to_the_watcher_and_not_to_the_writer() -> None:
    backend = Blocking()
    async with AsyncStore(backend) as store:
        watch = store.watch("a/")
        backend.fault = StoreUnavailable("the server is away")
        written = await store.put("a/1", 1, create=True)
        assert written.version == 1
        with pytest.raises(StoreUnavailable, match="the server is away"):
            await watch.next(0)
        backend.fault = None
        await store.put("a/2", 1, create=True)
        # It begins behind a/1 and a/2, and says that it may have missed something.
        items = [await watch.next(0) for _ in range(2)]
        assert [type(item) for item in items] == [Gap, Synced]
        await store.put("a/3", 1, create=True)
        assert names([await watch.next(PATIENCE)]) == ["a/3"]


async def test_a_place_that_was_found_in_time_is_no_gap() -> None:
    """The reader was there before the committer failed."""
    backend = Blocking()
    async with AsyncStore(backend) as store:
        watch = store.watch("a/")
        assert isinstance(await watch.next(0), Synced)
        backend.fault = StoreUnavailable("the server is away")
        await store.put("a/1", 1, create=True)
        assert names([await watch.next(PATIENCE)]) == ["a/1"]


def test_one_that_cannot_be_opened_says_so_at_once() -> None:
    backend = Blocking()
    with Store(backend) as store:
        backend.fault = StoreUnavailable("the server is away")
        with pytest.raises(StoreUnavailable, match="the server is away"):
            store.watch("a/")
        gc.collect()
        assert not store.core._wakers.kept


# --------------------------------------------------------------------------- shared by many


async def test_tasks_share_one_watch_and_each_item_goes_to_one(url: str) -> None:
    """Every change reaches exactly one task, and they are handed out in order."""
    many = 60
    async with await perkey.aopen(url) as store:
        watch = store.watch("a/")
        got: list[tuple[int, str]] = []
        all_taken = asyncio.Event()

        async def take(who: int) -> None:
            async for item in watch:
                got.extend((who, name) for name in names([item]))
                if len(got) == many:
                    all_taken.set()
                await asyncio.sleep(0)

        takers = [asyncio.ensure_future(take(who)) for who in range(4)]
        for n in range(many):
            await store.put(f"a/{n:03}", n, create=True)
        await asyncio.wait_for(all_taken.wait(), PATIENCE)
        watch.close()
        await asyncio.wait_for(asyncio.gather(*takers), PATIENCE)
        assert [name for _, name in got] == [f"a/{n:03}" for n in range(many)]
        assert {who for who, _ in got} == set(range(4))


async def test_tasks_get_their_items_in_the_order_in_which_they_asked() -> None:
    async with await perkey.aopen("memory://") as store:
        watch = store.watch("a/", after="")
        assert isinstance(await watch.next(0), Synced)
        asking = [asyncio.ensure_future(watch.next(PATIENCE)) for _ in range(3)]
        await asyncio.sleep(0)
        for n in range(3):
            await store.put(f"a/{n}", n, create=True)
        found = await asyncio.gather(*asking)
        assert names(found) == ["a/0", "a/1", "a/2"]


def put_two(tx: Tx) -> None:
    tx["a/0"], tx["a/1"] = 0, 1


@pytest.mark.parametrize("leaves", range(3))
async def test_a_cancelled_task_takes_no_item_with_it(leaves: int) -> None:
    async with AsyncStore(Blocking()) as store:
        async with store.watch("a/") as watch:
            assert isinstance(await watch.next(0), Synced)
            asking = [asyncio.ensure_future(watch.next(PATIENCE)) for _ in range(3)]
            await asyncio.sleep(0.001)
            asking[leaves].cancel()
            await store.transact(["a/0", "a/1"], put_two)
            found = await asyncio.gather(*asking, return_exceptions=True)
        assert isinstance(found.pop(leaves), asyncio.CancelledError)
        assert names(found) == ["a/0", "a/1"]


def test_threads_share_one_watch_and_each_item_goes_to_one(url: str) -> None:
    many = 200
    with perkey.open(url) as store:
        watch = store.watch("a/")
        got: list[list[str]] = [[] for _ in range(4)]

        def take(mine: list[str]) -> None:
            for item in watch:
                mine.extend(names([item]))

        takers = [threading.Thread(target=take, args=(mine,)) for mine in got]
        for taker in takers:
            taker.start()
        for n in range(many):
            store.put(f"a/{n:03}", n, create=True)
        pause = threading.Event()
        for _ in range(10_000):
            if sum(map(len, got)) >= many or pause.wait(0.003):
                break
        watch.close()
        for taker in takers:
            taker.join(PATIENCE)
            assert not taker.is_alive()
        assert sorted(name for mine in got for name in mine) == [f"a/{n:03}" for n in range(many)]
        assert all(mine == sorted(mine) for mine in got)


async def test_a_watch_belongs_to_one_loop_at_a_time() -> None:
    def elsewhere(watch: AsyncWatch) -> object:
        return asyncio.run(watch.next(0))

    async with await perkey.aopen("memory://") as store:
        watch = store.watch("a/", after="")
        # A loop that is over no longer owns it.
        assert isinstance(await asyncio.to_thread(elsewhere, watch), Synced)
        assert await watch.next(0) is None
        with pytest.raises(WrongColour, match="in use on another event loop"):
            await asyncio.to_thread(elsewhere, watch)


# ------------------------------------------------------------------------------- the end


async def test_closing_ends_it_for_every_task(url: str) -> None:
    async with await perkey.aopen(url) as store, store.watch("a/") as watch:
        assert isinstance(await watch.next(0), Synced)
        asking = [asyncio.ensure_future(watch.next()) for _ in range(3)]
        await asyncio.sleep(0)
        watch.close()
        assert await asyncio.wait_for(asyncio.gather(*asking), PATIENCE) == [None] * 3


def test_closing_ends_it_for_every_thread() -> None:
    with perkey.open("memory://") as store:
        watch = store.watch("a/")
        assert isinstance(watch.next(0), Synced)
        got: list[object] = []
        asking = [threading.Thread(target=lambda: got.append(watch.next())) for _ in range(3)]
        for thread in asking:
            thread.start()
        watch.close()
        for thread in asking:
            thread.join(PATIENCE)
        assert got == [None] * 3


@pytest.mark.parametrize("timeout", [-1, float("nan"), "soon", True])
async def test_a_timeout_is_seconds(timeout: float) -> None:
    async with await perkey.aopen("memory://") as store:
        with pytest.raises(UsageError, match="timeout= as seconds"):
            await store.watch("a/").next(timeout)
        with pytest.raises(UsageError, match="timeout= as seconds"):
            Store.sharing(store).watch("a/").next(timeout)


async def test_an_error_of_the_store_is_no_empty_answer() -> None:
    """The store's own ``Timeout`` is a ``TimeoutError`` too, and must not pass for "nothing"."""
    backend = Blocking()
    async with AsyncStore(backend) as store:
        watch = store.watch("a/")
        backend.fault = Timeout()
        with pytest.raises(Timeout):
            await watch.next(0)


# ------------------------------------------------------------------------ a store that goes away


@pytest.mark.parametrize("away", [1, 3])
def test_a_store_that_comes_back_ends_no_iteration(away: int) -> None:
    backend = Blocking()
    with Store(backend) as store, store.watch("a/") as watch:
        store.put("a/1", 1, create=True)
        backend.away = away
        assert names([next(watch)]) == ["a/1"]
        assert backend.looks == away + 1


@pytest.mark.parametrize("away", [1, 3])
async def test_a_store_that_comes_back_ends_no_iteration_on_asyncio(away: int) -> None:
    backend = Blocking()
    async with AsyncStore(backend) as store, store.watch("a/") as watch:
        await store.put("a/1", 1, create=True)
        backend.away = away
        assert names([await anext(watch)]) == ["a/1"]
        assert backend.looks == away + 1


class Waited:
    """A position whose watcher pauses without waiting: the clock goes on instead."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.core = Store(MemoryBackend(Limits(timeout_s=5)), clock=self.clock).core
        self.at = _Position("d/", "")

    def miss(self, end: float | None = None) -> float:
        self.at.missed(StoreUnavailable("the server is away"), self.core, end)
        self.clock.sleep(self.at.pause)
        return self.at.pause


def test_pauses_grow_to_a_longest_and_the_error_comes_when_the_stores_time_is_up() -> None:
    waited = Waited()
    began = waited.clock.monotonic()
    pauses: list[float] = []

    def miss_for_ever() -> None:
        while True:
            pauses.append(waited.miss())

    for _ in range(2):  # and begins anew for the next call
        pauses.clear()
        with pytest.raises(StoreUnavailable, match="away"):
            miss_for_ever()
        assert sum(pauses) < 5
        assert sum(pauses) > 5 - LONGEST_PAUSE_S
        assert pauses[0] < 0.2
        assert max(pauses) <= LONGEST_PAUSE_S
    assert waited.clock.monotonic() - began < 10


def test_a_caller_without_time_is_told_at_once_and_one_with_little_soon() -> None:
    waited = Waited()
    for time in (0.0, 0.01):
        with pytest.raises(StoreUnavailable):
            waited.miss(waited.clock.monotonic() + time)
    assert waited.miss(waited.clock.monotonic() + 4) < 4


def test_a_look_that_succeeds_makes_the_pauses_short_again() -> None:
    waited = Waited()
    pauses = [waited.miss() for _ in range(4)]
    assert pauses[3] > 2 * pauses[0]
    waited.at.take(Page([], [], "1", False))
    assert waited.at.pause == POLL_S
    assert waited.miss() < 0.2


def open_watch(store: Store) -> Watch:
    return store.watch("a/")


def open_async_watch(store: Store) -> AsyncWatch:
    return AsyncStore.sharing(store).watch("a/")


@pytest.mark.parametrize("opened", [open_watch, open_async_watch])
def test_a_dropped_watch_leaves_nothing_behind(opened: Callable[[Store], object]) -> None:
    with Store(Blocking()) as store:
        for _ in range(100):
            opened(store)
        kept = opened(store)
        gone = weakref.ref(opened(store))
        gc.collect()
        assert gone() is None
        assert len(store.core._wakers.kept) == 1
        assert len(store.core._committer.before.kept) == (opened is open_async_watch)
        store.put("a/1", 1, create=True)
        assert not store.core._committer.before.kept
        assert kept is not None


async def test_a_watch_dropped_in_mid_iteration_leaves_nothing_behind() -> None:
    async with await perkey.aopen("memory://") as store:
        await store.put("a/1", 1, create=True)
        async for item in store.watch("a/", after=""):
            assert names([item]) == ["a/1"]
            break
        gc.collect()
        assert not store.core._wakers.kept


def test_watches_come_and_go_while_others_commit() -> None:
    """Registering takes no lock that the collector, on the same thread, could wait for."""
    with perkey.open("memory://") as store:
        done = threading.Event()

        def commit() -> None:
            while not done.is_set():
                store.put("a/x", 1, overwrite=True)

        writers = [threading.Thread(target=commit) for _ in range(2)]
        for writer in writers:
            writer.start()
        before = gc.get_threshold()
        gc.set_threshold(1)  # a collection at almost every step
        try:
            for _ in range(300):
                ring: list[object] = [store.watch("a/")]
                ring.append(ring)  # only the collector can take it away
        finally:
            gc.set_threshold(*before)
            done.set()
            for writer in writers:
                writer.join(PATIENCE)
        del ring
        gc.collect()
        assert not any(writer.is_alive() for writer in writers)
        assert not store.core._wakers.kept
