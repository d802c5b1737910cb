"""``KeyedLocks`` between the tasks of an event loop."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from perkey import errors
from perkey.locks import KeyedLocks

OPTIONS = [
    {},
    {"profile": "lean"},
    {"shared": True},
    {"shared": True, "profile": "lean"},
    {"reentrant": True},
]
CHECKED = [{}, {"shared": True}, {"reentrant": True}]
every = pytest.mark.parametrize("options", OPTIONS)


def empty(locks: KeyedLocks) -> bool:
    return locks.active_keys() == [] and locks._table.queues == {}


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@every
async def test_waiters_are_served_in_the_order_in_which_they_came(
    options: dict[str, object],
) -> None:
    locks = KeyedLocks(**options)
    order: list[int] = []

    async def visit(number: int) -> None:
        async with locks("k"):
            order.append(number)
            await asyncio.sleep(0)

    async with locks("k"):
        tasks = [asyncio.create_task(visit(number)) for number in range(6)]
        await settle()
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3, 4, 5]
    assert empty(locks)


@every
async def test_release_hands_the_key_over_and_never_awaits(options: dict[str, object]) -> None:
    """Between a release and the waiter's turn nobody else gets in, though it has not run yet."""
    locks = KeyedLocks(**options)

    async def visit() -> None:
        async with locks("k"):
            await asyncio.sleep(0)

    async with locks("k"):
        task = asyncio.create_task(visit())
        await settle()
    assert locks.active_keys() == ["k"]
    assert locks.try_acquire("k") is None
    await task
    assert empty(locks)


@every
async def test_a_cancelled_waiter_leaves_no_trace(options: dict[str, object]) -> None:
    locks = KeyedLocks(**options)
    async with locks("k"):
        task = asyncio.create_task(enter(locks, "k"))
        await settle()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert locks._table.queues == {}
    assert empty(locks)


async def enter(locks: KeyedLocks, key: str, timeout: float | None = None) -> str:
    async with locks(key, timeout):
        await asyncio.sleep(0)
    return key


@every
async def test_a_waiter_cancelled_after_the_grant_passes_it_on(options: dict[str, object]) -> None:
    locks = KeyedLocks(**options)
    async with locks("k"):
        first = asyncio.create_task(enter(locks, "k"))
        second = asyncio.create_task(enter(locks, "k"))
        await settle()
    first.cancel()  # it has the key, and does not know yet
    assert await asyncio.wait_for(second, 60) == "k"
    assert first.cancelled()
    assert empty(locks)


@every
async def test_a_timed_out_waiter_leaves_no_trace(options: dict[str, object]) -> None:
    locks = KeyedLocks(**options)
    async with locks("k"):
        for timeout in (0.01, 0, -1):
            task = asyncio.create_task(enter(locks, "k", timeout))
            with pytest.raises(errors.Timeout):
                await task
            assert locks._table.queues == {}
    assert empty(locks)


@every
async def test_a_timer_that_fires_after_the_grant_changes_nothing(
    options: dict[str, object],
) -> None:
    locks = KeyedLocks(**options)
    async with locks("k"):
        task = asyncio.create_task(enter(locks, "k", 0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # its timer is due in this very turn of the loop
    with contextlib.suppress(errors.Timeout):
        await task
    assert empty(locks)


@pytest.mark.parametrize("options", [{}, {"shared": True}])
async def test_re_entry_raises_instead_of_hanging(options: dict[str, object]) -> None:
    locks = KeyedLocks(**options)
    async with locks("k"):
        with pytest.raises(errors.NestedSection, match="'k'"):
            async with locks("k"):
                raise AssertionError("entered twice")
        assert locks.try_acquire("k") is None
    assert empty(locks)


async def test_a_task_may_re_enter_a_reentrant_key_and_others_wait() -> None:
    locks = KeyedLocks(reentrant=True)
    async with locks("k"), locks("k"):
        task = asyncio.create_task(enter(locks, "k"))
        await settle()
        assert not task.done()
    await task
    assert empty(locks)


async def test_many_takes_all_or_nothing() -> None:
    locks = KeyedLocks()
    async with locks("b"):
        task = asyncio.create_task(enter_many(locks, ["a", "b", "c"]))
        await settle()
        task.cancel()
        await asyncio.wait([task])
        assert locks.active_keys() == ["b"]
    await enter_many(locks, ["a", "b"])
    assert empty(locks)


async def enter_many(locks: KeyedLocks, keys: list[str]) -> None:
    async with locks.many(keys):
        assert set(keys) <= set(locks.active_keys())
        await asyncio.sleep(0)


async def test_wait_idle_is_awaited_on_a_loop() -> None:
    locks = KeyedLocks()
    await locks.wait_idle()
    async with locks("k"):
        with pytest.raises(errors.Timeout):
            await locks.wait_idle(timeout=0.01)
        idle = asyncio.create_task(locks.wait_idle())
        await settle()
        assert not idle.done()
    await asyncio.wait_for(idle, 60)
    assert empty(locks)


async def test_a_guard_may_stand_in_an_async_exit_stack() -> None:
    locks = KeyedLocks()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(locks("a"))
        assert "a" in locks
    assert empty(locks)


async def test_try_acquire_never_waits_and_its_guard_works_both_ways() -> None:
    locks = KeyedLocks()
    async with locks("other"):
        guard = locks.try_acquire("k")
        assert guard is not None
        with guard:
            assert locks.try_acquire("k") is None
        async with locks.try_acquire("k") as again:
            assert again.key == "k"
        assert locks.active_keys() == ["other"]
    assert locks.statistics().skipped == 1


@pytest.mark.parametrize("options", OPTIONS)
async def test_a_storm_of_failures_and_cancellations(options: dict[str, object]) -> None:
    """3,000 tasks on 20 keys; 30 % fail inside, 20 % are cancelled somewhere."""
    locks = KeyedLocks(**options)
    inside: set[int] = set()
    overlaps = 0

    async def visit(number: int) -> None:
        nonlocal overlaps
        key = number % 20
        async with locks(key, 60 if number % 3 else None):
            overlaps += key in inside
            inside.add(key)
            try:
                await asyncio.sleep(0)
                if number % 10 < 3:
                    raise ZeroDivisionError
            finally:
                inside.discard(key)

    tasks = [asyncio.create_task(visit(number * 7919)) for number in range(3000)]
    for round_ in range(600):
        await asyncio.sleep(0)
        tasks[(round_ * 1013) % 3000].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert overlaps == 0
    assert empty(locks)
    cancelled = sum(isinstance(result, asyncio.CancelledError) for result in results)
    failed = sum(isinstance(result, ZeroDivisionError) for result in results)
    assert cancelled > 100
    assert failed > 500


def test_a_registry_may_move_to_a_new_loop_when_its_own_is_closed() -> None:
    locks = KeyedLocks()
    assert asyncio.run(enter(locks, "k")) == "k"
    assert asyncio.run(enter(locks, "k")) == "k"


def test_a_registry_belongs_to_threads_or_to_one_loop() -> None:
    locks = KeyedLocks()
    with locks("k"):
        pass
    with pytest.raises(errors.WrongColour, match="threads"):
        asyncio.run(enter(locks, "k"))

    async def main() -> None:
        tasks_only = KeyedLocks()
        async with tasks_only("k"):
            pass
        with pytest.raises(errors.WrongColour, match="event loop"), tasks_only("k"):
            raise AssertionError("entered with the wrong colour")
        with pytest.raises(errors.WrongColour, match="event loop"):
            await asyncio.to_thread(lambda: asyncio.run(enter(tasks_only, "k")))

    asyncio.run(main())


@pytest.mark.parametrize("options", CHECKED)
async def test_a_task_that_ended_inside_blocks_nobody(options: dict[str, object]) -> None:
    """Entered by hand and never left: the task is over, and so is its claim."""
    locks = KeyedLocks(**options)

    async def forgetful() -> None:
        await locks("k").__aenter__()

    await asyncio.create_task(forgetful())
    assert await asyncio.wait_for(enter(locks, "k"), 60) == "k"
    assert empty(locks)
