"""``SteppedStore``: code over an ``AsyncStore`` is explored as it is; a real store is refused."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import Any

import pytest

import perkey
from perkey import AsyncDocuments, AsyncLeases, AsyncOnce, OutcomeUnknown
from perkey.store.backends.memory import MemoryBackend
from perkey.testing import (
    CannotFingerprint,
    Ended,
    ExplorationFailed,
    SteppedStore,
    VirtualClock,
    explore,
)


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


# ------------------------------------------------------------------------- lost replies


async def paid_by_put(store: SteppedStore) -> None:
    """Whoever repeats a write that may have landed does it twice: the planted bug."""
    for _ in range(2):
        try:
            await AsyncDocuments(store).update("n", lambda n: n + 1)
            return
        except OutcomeUnknown:
            pass


async def paid_once(store: SteppedStore) -> None:
    """The same with a key: the second attempt is a replay."""
    for _ in range(2):
        try:
            await AsyncOnce(store).transact("pay", "n", add_one)
            return
        except OutcomeUnknown:
            pass


def add_one(tx: Any) -> None:
    tx["n"] += 1


async def with_replies() -> SteppedStore:
    store = SteppedStore(replies=True)
    await store.put("n", 0, create=True)
    return store


def test_a_lost_reply_is_an_unknown_outcome_and_repeating_it_is_found() -> None:
    explore(with_replies, [paid_by_put] * 2, check=two).assert_holds()
    explore(with_replies, [paid_by_put] * 2, check=two, lost_replies=1).assert_fails("check")


def test_a_key_makes_the_second_attempt_a_replay_under_every_schedule() -> None:
    explore(
        with_replies,
        [paid_once] * 2,
        check=lambda store: store.value("n") == 1,
        lost_replies=1,
        cancellations=1,
        steps=("commit",),
    ).assert_holds()


def test_a_caller_may_crash_between_its_commit_and_the_reply() -> None:
    def landed_and_crashed(store: SteppedStore, ended: Ended) -> tuple[Any, int]:
        return store.value("n"), ended.crashed.count(True)

    def outcomes(setup: Any) -> set[Any]:
        found = explore(setup, [update] * 2, outcome=landed_and_crashed, crashes=1)
        return set(found.assert_holds().outcomes)

    assert outcomes(counted) == {(2, 0), (1, 1)}
    assert outcomes(with_replies) == {(2, 0), (1, 1), (2, 1)}


def test_without_replies_none_can_be_lost_and_the_search_says_so() -> None:
    found = explore(counted, [paid_by_put], check=lambda _: True, lost_replies=1)
    with pytest.raises(ExplorationFailed, match="replies=True"):
        found.assert_holds()
