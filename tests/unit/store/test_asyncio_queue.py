"""How tasks queue: those of one round of the loop share a commit, and none is left behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import perkey
from perkey import AsyncStore, Store
from tests.unit.sqlite_faults import url


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with perkey.open(url(tmp_path)) as opened:
        yield opened


def add(tx: perkey.Tx) -> int:
    tx["n"] = found = tx.get("n", 0) + 1
    return int(found)


@pytest.mark.parametrize("callers", [1, 2, 64, 300])
def test_all_tasks_of_one_round_share_a_commit(store: Store, callers: int) -> None:
    both = AsyncStore.sharing(store)

    async def crowd() -> list[int]:
        return await asyncio.gather(*(both.transact("n", add) for _ in range(callers)))

    for round_ in range(3):
        before = store.statistics()["commits"]
        done = asyncio.run(crowd())
        assert done == [round_ * callers + n for n in range(1, callers + 1)]
        assert store.statistics()["commits"] == before + 1


def test_a_crowd_of_callers_stays_together(store: Store) -> None:
    both = AsyncStore.sharing(store)

    async def caller() -> None:
        for _ in range(10):
            await both.transact("n", add)

    async def crowd() -> None:
        await asyncio.gather(*(caller() for _ in range(50)))

    asyncio.run(crowd())
    assert store.get("n").value == 500
    assert store.statistics()["commits"] == 10


def stopped_while_queued(store: Store) -> tuple[asyncio.AbstractEventLoop, asyncio.Task[int]]:
    """A loop that was stopped right after its task had queued."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(AsyncStore.sharing(store).transact("n", add))
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert store.statistics()["waiting"] == 1
    return loop, task


def test_a_loop_that_stopped_goes_on_later(store: Store) -> None:
    loop, task = stopped_while_queued(store)
    assert loop.run_until_complete(task) == 1
    loop.close()


def test_a_thread_takes_along_what_a_stopped_loop_had_queued(store: Store) -> None:
    loop, task = stopped_while_queued(store)
    before = store.statistics()["commits"]
    assert store.transact("n", add) == 1
    assert store.statistics()["commits"] == before + 1
    assert loop.run_until_complete(task) == 2
    loop.close()


def test_another_loop_does_not_wait_for_one_that_stopped(store: Store) -> None:
    loop, task = stopped_while_queued(store)
    assert asyncio.run(AsyncStore.sharing(store).transact("n", add)) == 2
    assert loop.run_until_complete(task) == 1
    loop.close()


def test_a_loop_that_is_closed_with_a_caller_in_the_queue_stops_nobody(store: Store) -> None:
    loop, task = stopped_while_queued(store)
    loop.close()
    assert asyncio.run(AsyncStore.sharing(store).transact("n", add)) == 2
    assert store.transact("n", add) == 3
    assert not task.done()
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_closing_tells_who_is_queued_on_a_stopped_loop(store: Store) -> None:
    loop, task = stopped_while_queued(store)
    store.close()
    with pytest.raises(perkey.StoreClosed):
        loop.run_until_complete(task)
    loop.close()


def test_a_cancelled_caller_leaves_the_round(store: Store) -> None:
    both = AsyncStore.sharing(store)

    async def crowd() -> list[int]:
        tasks = [asyncio.ensure_future(both.transact("n", add)) for _ in range(5)]
        asyncio.get_running_loop().call_soon(tasks[2].cancel)  # runs after all have queued
        await asyncio.wait(tasks)
        return [task.result() for task in tasks if not task.cancelled()]

    assert asyncio.run(crowd()) == [1, 2, 3, 4]
    assert store.get("n").value == 4


def test_loops_and_threads_all_get_their_turn(store: Store) -> None:
    """Four loops and four threads at once: every caller is answered, and once."""
    both = AsyncStore.sharing(store)

    async def crowd() -> None:
        async def caller() -> None:
            for _ in range(10):
                await both.transact("n", add)

        await asyncio.gather(*(caller() for _ in range(5)))

    def alone() -> None:
        for _ in range(50):
            store.transact("n", add)

    threads = [threading.Thread(target=lambda: asyncio.run(crowd())) for _ in range(4)]
    threads += [threading.Thread(target=alone) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get("n").value == 400
    assert store.get("n").version == 400


class Leading:
    """A thread that leads, and stays inside its transaction until it is let go."""

    def __init__(self, store: Store) -> None:
        self._inside, self._go = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: store.transact("n", self._slowly))
        self._thread.start()
        self._inside.wait()

    def _slowly(self, tx: perkey.Tx) -> int:
        self._inside.set()
        self._go.wait()
        return add(tx)

    def let_go(self) -> None:
        self._go.set()
        self._thread.join()


def test_a_stopped_loop_that_is_next_holds_nobody_up(store: Store) -> None:
    leading = Leading(store)
    loop, task = stopped_while_queued(store)
    leading.let_go()
    assert store.transact("n", add) == 2
    assert loop.run_until_complete(task) == 3
    loop.close()


def test_a_loop_that_closed_while_it_was_next_holds_nobody_up(store: Store) -> None:
    leading = Leading(store)
    loop, task = stopped_while_queued(store)
    loop.close()
    leading.let_go()
    assert store.transact("n", add) == 3
    assert not task.done()
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_a_thread_behind_a_stopped_loop_gets_its_turn(store: Store) -> None:
    leading = Leading(store)
    loop, task = stopped_while_queued(store)
    results: list[int] = []
    behind = threading.Thread(target=lambda: results.append(store.transact("n", add)))
    behind.start()
    while store.statistics()["waiting"] < 2:
        pass
    leading.let_go()
    behind.join()
    assert results == [3]
    assert loop.run_until_complete(task) == 2
    loop.close()


def test_a_loop_behind_a_stopped_loop_gets_its_turn(store: Store) -> None:
    leading = Leading(store)
    first, queued = stopped_while_queued(store)
    results: list[int] = []

    def other() -> None:
        results.append(asyncio.run(AsyncStore.sharing(store).transact("n", add)))

    behind = threading.Thread(target=other)
    behind.start()
    while store.statistics()["waiting"] < 2:
        pass
    leading.let_go()
    behind.join()
    assert results == [3]
    assert first.run_until_complete(queued) == 2
    first.close()
