"""``FaultyStore``: fails as asked, the same way each time, and never lies about it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import perkey
from perkey.store.backends.memory import MemoryBackend
from perkey.store.transaction import Tx
from perkey.testing import AsyncFaultyStore, Faults, FaultyBackend, FaultyStore, check_backend
from tests.unit.manual_clock import ManualClock


def add(tx: Tx) -> int:
    tx["n"] = tx.get("n", 0) + 1
    return int(tx["n"])


def run(store: FaultyStore, times: int = 100) -> list[str]:
    """What became of each of ``times`` increments."""
    told = []
    for _ in range(times):
        try:
            store.transact("n", add)
            told.append("done")
        except perkey.PerkeyError as error:
            told.append(error.code)
    return told


def test_a_failed_save_wrote_nothing_and_a_lost_reply_is_a_success() -> None:
    store = FaultyStore("memory://", fail=0.3, lose=0.3, seed=1)
    told = run(store)
    assert set(told) == {"done", "store-unavailable"}
    assert store.get("n").value == told.count("done") == store.get("n").version
    assert store.counts["failed"] == told.count("store-unavailable")
    assert 15 <= store.counts["failed"] <= 45
    assert store.counts["lost"] > 5
    assert store.counts["saves"] == 100


def test_the_same_seed_tells_the_same_story() -> None:
    def story(seed: int) -> list[str]:
        return run(FaultyStore("memory://", fail=0.3, lose=0.2, unknown=0.1, seed=seed))

    assert story(1) == story(1)
    assert story(1) != story(2)


def test_one_share_moves_no_other() -> None:
    plain = run(FaultyStore("memory://", fail=0.3, seed=5))
    with_more = run(FaultyStore("memory://", fail=0.3, lose=0.5, seed=5))
    assert plain == with_more


def test_saves_by_number() -> None:
    store = FaultyStore("memory://", fail={1, 4}, unknown=[2])
    assert run(store, 5) == [
        "store-unavailable",
        "outcome-unknown",
        "done",
        "store-unavailable",
        "done",
    ]
    assert store.counts == {"saves": 5, "failed": 2, "unknown": 1}


def test_half_of_the_unknown_saves_happened() -> None:
    store = FaultyStore("memory://", unknown=1.0)
    assert set(run(store, 10)) == {"outcome-unknown"}
    assert store.get("n").value == 5


def test_a_delay_is_slept_on_the_clock_that_is_given() -> None:
    clock = ManualClock()
    store = FaultyStore("memory://", delay={2}, delay_s=7.0, clock=clock)
    run(store, 3)
    assert clock.slept == [7.0]
    assert store.counts["delayed"] == 1


def test_every_reply_lost_is_still_done_once_each() -> None:
    store = FaultyStore("memory://", lose=1.0)
    assert run(store, 20) == ["done"] * 20
    assert store.get("n").value == 20
    assert store.counts["lost"] == 20


def test_a_transaction_that_writes_nothing_has_no_reply_to_lose() -> None:
    store = FaultyStore("memory://", lose=1.0)
    assert store.transact("n", lambda tx: tx.get("n", "none")) == "none"


def test_over_an_open_store_the_other_way_in_stays_sound() -> None:
    with perkey.open("memory://") as truth:
        faulty = FaultyStore(truth, fail=1.0)
        with pytest.raises(perkey.StoreUnavailable):
            faulty.put("a", 1, create=True)
        truth.put("a", 2, create=True)
        assert faulty.get("a").value == 2
        faulty.close()
        assert truth.get("a").value == 2


def test_two_ways_in_take_turns() -> None:
    truth = perkey.open("memory://")
    faulty = FaultyStore(truth, lose=0.5, seed=3)

    def work(store: Any) -> None:
        for _ in range(100):
            store.transact("n", add)

    threads = [threading.Thread(target=work, args=(each,)) for each in (truth, faulty) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert truth.get("n").value == 400


async def test_for_asyncio() -> None:
    async with AsyncFaultyStore("memory://", fail={2}, lose={1, 3}) as store:
        assert await store.transact("n", add) == 1
        with pytest.raises(perkey.StoreUnavailable):
            await store.transact("n", add)
        assert await store.transact("n", add) == 2
        assert store.counts == {"saves": 3, "failed": 1, "lost": 2}


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), 7])
def test_a_share_is_between_none_and_all(share: float) -> None:
    with pytest.raises(perkey.UsageError, match="share from 0 to 1"):
        FaultyStore("memory://", fail=share)


def test_limits_belong_to_the_store_that_is_given() -> None:
    with (
        perkey.open("memory://") as truth,
        pytest.raises(perkey.UsageError, match="belongs to the store"),
    ):
        FaultyStore(truth, limits=perkey.Limits())


def test_a_store_that_only_loses_replies_conforms() -> None:
    """Nothing in the contract depends on a reply that arrives."""

    def lossy(limits: perkey.Limits) -> FaultyBackend:
        return FaultyBackend(MemoryBackend(limits), Faults(lose=1.0))

    assert check_backend(lossy).raise_if_failed().passed


def test_what_it_is_made_of_shows() -> None:
    store = FaultyStore("memory://", fail={1})
    run(store, 1)
    assert store.backend.describe()["failed"] == "1"
    assert store.backend.name == "memory"
