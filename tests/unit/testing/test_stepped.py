"""``SteppedStore``: code over an ``AsyncStore`` is explored as it is; a real store is refused."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import Any

import pytest

import perkey
from perkey import AsyncDocuments, AsyncLeases, AsyncOnce
from perkey.store.backends.memory import MemoryBackend
from perkey.testing import CannotFingerprint, SteppedStore, VirtualClock, explore


async def counted() -> SteppedStore:
    store = SteppedStore()
    await store.put("n", 0, create=True)
    return store


async def blind(store: Any) -> None:
    seen = (await store.get("n")).value
    await store.put("n", seen + 1, overwrite=True)


async def update(store: Any) -> None:
    await AsyncDocuments(store).update("n", lambda n: n + 1)


def two(store: SteppedStore) -> bool:
    return bool(store.value("n") == 2)


def test_a_lost_update_is_found_between_a_read_and_a_commit() -> None:
    found = explore(counted, [blind] * 2, check=two)
    found.assert_fails("check")
    assert found.step_points == ["commit", "read"]


def test_an_update_is_right_in_every_order() -> None:
    explore(counted, [update] * 2, check=two, steps=("commit",)).assert_holds()


def test_a_commit_that_fails_says_so_and_writes_nothing() -> None:
    def check(store: SteppedStore, ended: Any) -> bool:
        refused = sum(isinstance(error, perkey.StoreUnavailable) for error in ended.errors)
        return store.value("n") == 2 - refused == store.version("n") - 1

    found = explore(
        counted, [update] * 2, check=check, failures=2, raises=(perkey.StoreUnavailable,)
    )
    found.assert_holds()


def test_a_scan_and_a_history_are_steps_too() -> None:
    async def looks(store: SteppedStore) -> None:
        first = [each.value async for each in store.scan()]
        assert [each.value for each in await store.history("n")] == first

    explore(counted, [looks, update]).assert_fails("raised")


async def test_outside_of_an_exploration_it_is_an_ordinary_store() -> None:
    store = await counted()
    await asyncio.gather(*(update(store) for _ in range(5)))
    assert (store.value("n"), store.version("n")) == (5, 6)
    assert (store.value("x"), store.version("x")) == (None, 0)
    with pytest.raises(perkey.Conflict):
        await store.put("n", 7, if_match=2)
    await store.delete("n", if_match=6)
    assert (store.value("n"), store.version("n")) == (None, 7)
    once = AsyncOnce(store)
    assert (await once.run("k", 1, lambda context: 8)).value == 8


async def test_its_time_is_a_clock_that_the_test_moves() -> None:
    clock = VirtualClock(5_000)
    store = SteppedStore(clock=clock)
    leases = AsyncLeases(store)
    await leases.acquire("k", ttl=10, holder="a")
    clock.advance(11)
    assert (await leases.acquire("k", ttl=10, holder="b")).token == 2
    assert await store.now_ms() == 16_000


@pytest.mark.parametrize("held", ["itself", "by a face"])
def test_a_real_store_is_refused_and_the_error_says_what_to_take(held: str) -> None:
    async def real() -> Any:
        store = await perkey.aopen("memory://")
        await store.put("n", 0, create=True)
        return store if held == "itself" else AsyncDocuments(store)

    async def looks(state: Any) -> None:
        await asyncio.sleep(0)
        await state.get("n")

    wanted = "found AsyncStore over MemoryBackend; use perkey.testing.SteppedStore"
    with pytest.raises(CannotFingerprint, match=re.escape(wanted)):
        explore(real, [looks] * 2)


def test_a_blocking_store_is_refused_too() -> None:
    def real() -> perkey.Store:
        return perkey.open("memory://")

    async def looks(store: perkey.Store) -> None:
        await asyncio.sleep(0)

    with pytest.raises(CannotFingerprint, match="found Store over MemoryBackend"):
        explore(real, [looks] * 2)


def test_states_that_differ_in_time_or_records_are_told_apart() -> None:
    """Two orders of the same writes, and time that passed in one of them, are other states."""

    async def puts(key: str, store: SteppedStore) -> None:
        await store.put(key, (await store.now_ms()) - 1_700_000_000_000, create=True)

    async def waits(store: SteppedStore) -> None:
        await asyncio.sleep(0)
        store.clock.advance(1)

    outcomes = explore(
        SteppedStore,
        [partial(puts, "a"), partial(puts, "b"), waits],
        outcome=lambda store: (store.value("a"), store.value("b")),
    ).outcomes
    assert set(outcomes) == {(0, 0), (0, 1000), (1000, 0), (1000, 1000)}


def test_what_the_store_holds_is_the_memory_backend() -> None:
    assert isinstance(SteppedStore().backend, MemoryBackend)
