"""The lab's store: perkey's own, with every meeting visible and a commit that may fail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perkey import AsyncDocuments, AsyncOnce, Conflict, KeyedLocks
from perkey.lab.double_move import SaveFailed
from perkey.lab.stepped import SteppedStore
from perkey.lab.worlds import Entered, drive
from perkey.testing import VirtualClock, explore


async def add(store: SteppedStore) -> None:
    await AsyncDocuments(store).update("n", lambda n: n + 1, default=0)


async def read_then_write(store: SteppedStore) -> None:
    docs = AsyncDocuments(store)
    read = await docs.get("n", None)
    value = 1 if read is None else read.value + 1
    await docs.put("n", value, overwrite=True)


def test_reads_and_commits_are_step_points() -> None:
    counted = explore(SteppedStore, [add] * 2, check=lambda store: store.value("n") == 2)
    assert counted.assert_holds().step_points == ["commit"]
    lost = explore(SteppedStore, [read_then_write] * 2, check=lambda store: store.value("n") == 2)
    lost.assert_fails("check")
    assert lost.step_points == ["commit", "read"]


def test_a_commit_that_fails_writes_nothing() -> None:
    def all_or_nothing(store: SteppedStore, ended: Any) -> bool:
        return store.version("n") == (store.value("n") or 0) == 2 - sum(ended.failed)

    made = explore(
        lambda: SteppedStore(SaveFailed), [add] * 2, check=all_or_nothing, failures=2,
        steps=("commit",),
    )  # fmt: skip
    made.assert_holds()


def test_a_store_without_failures_cannot_be_failed() -> None:
    found = explore(SteppedStore, [add] * 2, failures=1, stop_at_failure=False)
    assert found.schedules
    assert found.failure is None


def test_it_works_on_an_ordinary_loop_and_on_no_loop_at_all() -> None:
    async def work() -> tuple[Any, int]:
        store = SteppedStore()
        await add(store)
        await add(store)
        return store.value("n"), store.version("n")

    assert asyncio.run(work()) == drive(work()) == (2, 2)


async def test_what_is_not_there() -> None:
    store = SteppedStore()
    assert (store.value("n"), store.version("n")) == (None, 0)
    await add(store)
    await AsyncDocuments(store).delete("n")
    assert (store.value("n"), store.version("n")) == (None, 2)


async def test_errors_of_a_flow_come_out() -> None:
    store = SteppedStore()
    await add(store)
    with pytest.raises(Conflict):
        await AsyncDocuments(store).put("n", 7, if_match=9)


async def test_an_effect_runs_and_may_be_awaited() -> None:
    once = AsyncOnce(SteppedStore())

    async def later(context: Any) -> int:
        await asyncio.sleep(0)
        return 7

    assert (await once.run("a", 1, later)).value == 7
    assert (await once.run("b", 1, lambda context: 8)).value == 8
    assert (await once.run("b", 1, lambda context: 9)).replayed


def test_a_guard_is_entered_as_the_world_demands() -> None:
    locks = KeyedLocks(clock=VirtualClock())

    async def enters() -> int:
        async with Entered(locks("k")):
            return locks.statistics().active

    assert asyncio.run(enters()) == 1
    threads = KeyedLocks(clock=VirtualClock())

    async def enters_on_a_thread() -> int:
        async with Entered(threads("k")):
            return threads.statistics().active

    assert drive(enters_on_a_thread()) == 1
    assert threads.statistics().active == locks.statistics().active == 0
