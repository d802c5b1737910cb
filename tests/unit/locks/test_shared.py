"""Threads and several event loops on one registry or one array."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from perkey import errors
from perkey.locks import KeyedLocks, Sections
from tests.unit.locks.helpers import Crew, eventually

MAKERS = [
    pytest.param(lambda: KeyedLocks(shared=True), id="keyed"),
    pytest.param(lambda: KeyedLocks(shared=True, profile="lean"), id="keyed-lean"),
    pytest.param(lambda: Sections(1, shared=True), id="sections"),
]


def waiting(locks: Any) -> int:
    return sum(len(queue) for queue in list(locks._table.queues.values()))


@pytest.mark.parametrize("make", MAKERS)
def test_threads_and_two_loops_take_turns_in_order(make: Any) -> None:
    locks, order = make(), []

    async def visit(name: str) -> None:
        async with locks("k"):
            order.append(name)
            await asyncio.sleep(0)

    def block(name: str) -> None:
        with locks("k"):
            order.append(name)

    with Crew() as crew:
        with locks("k"):
            starts = [
                (lambda name: asyncio.run(visit(name)), "loop 1"),
                (block, "thread 1"),
                (lambda name: asyncio.run(visit(name)), "loop 2"),
                (block, "thread 2"),
            ]
            for number, (work, name) in enumerate(starts):
                crew.start(work, name)
                eventually(lambda n=number: waiting(locks) == n + 1)
        crew.join()
    assert order == ["loop 1", "thread 1", "loop 2", "thread 2"]
    assert locks._table.claims == {}
    assert locks._table.queues == {}


@pytest.mark.parametrize("make", MAKERS)
def test_no_two_are_inside_at_once(make: Any) -> None:
    locks = make()
    total = 0

    async def visit() -> None:
        nonlocal total
        async with locks("k"):
            seen = total
            await asyncio.sleep(0)
            total = seen + 1

    async def visits() -> None:
        await asyncio.gather(*(visit() for _ in range(100)))

    def block() -> None:
        nonlocal total
        for _ in range(100):
            with locks("k"):
                seen = total
                threading.Event().wait(0)
                total = seen + 1

    with Crew() as crew:
        for _ in range(2):
            crew.start(lambda: asyncio.run(visits()))
            crew.start(block)
        crew.join()
    assert total == 400
    assert locks._table.claims == {}


@pytest.mark.parametrize("make", [MAKERS[0], MAKERS[2]])
def test_blocking_a_loop_for_what_its_own_task_holds_raises(make: Any) -> None:
    locks = make()

    async def main() -> None:
        inside, leave = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            async with locks("k"):
                inside.set()
                await leave.wait()

        task = asyncio.create_task(hold(), name="holder")
        await inside.wait()
        with pytest.raises(errors.WrongColour, match="holder"), locks("k"):
            raise AssertionError("entered a held key")
        leave.set()
        await task
        with locks("k"):
            pass

    asyncio.run(main())
    assert locks._table.claims == {}


@pytest.mark.parametrize("make", [MAKERS[0], MAKERS[2]])
def test_blocking_a_loop_behind_its_own_waiting_task_raises(make: Any) -> None:
    """The holder is a thread, but a task of this loop is next and could never run."""
    locks = make()

    async def main() -> None:
        task = asyncio.create_task(enter(locks))
        await asyncio.sleep(0)
        assert waiting(locks) == 1
        with pytest.raises(errors.WrongColour), locks("k"):
            raise AssertionError("entered a held key")
        leave.set()
        await task

    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with locks("k"):
            inside.set()
            assert leave.wait(60)

    with Crew() as crew:
        crew.start(hold)
        assert inside.wait(60)
        asyncio.run(main())


async def enter(locks: Any) -> None:
    async with locks("k"):
        pass


@pytest.mark.parametrize("make", MAKERS)
def test_a_waiter_whose_loop_was_closed_is_passed_over(make: Any) -> None:
    locks = make()
    loop = asyncio.new_event_loop()
    order: list[str] = []

    def block() -> None:
        with locks("k"):
            order.append("thread")

    with Crew() as crew:
        with locks("k"):
            task = loop.create_task(enter(locks))
            loop.run_until_complete(asyncio.sleep(0.001))
            assert waiting(locks) == 1
            crew.start(block)
            eventually(lambda: waiting(locks) == 2)
            loop.close()
        crew.join()
    assert order == ["thread"]
    assert locks._table.claims == {}
    task._log_destroy_pending = False  # type: ignore[attr-defined]
