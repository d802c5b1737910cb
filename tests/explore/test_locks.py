"""Every interleaving of three callers on one key, with a failure, a cancellation, a timeout.

The exploration exhausts the real locks, and finds the bug in each planted one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from perkey import Timeout
from perkey.locks import KeyedLocks, Sections
from perkey.testing import explore, step
from tests.races import buggy_locks


class LoopClock:
    """The loop's own time, which the exploration moves."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def random(self) -> float:
        return 0.5


class Room:
    """Callers that enter one key; the work inside may fail."""

    def __init__(self, locks: Any) -> None:
        self.locks = locks
        self.inside = 0
        self.overlaps = 0

    async def visit(self, *timeout: float) -> None:
        async with self.locks("k", *timeout):
            self.inside += 1
            self.overlaps += self.inside > 1
            try:
                await step("work")
            finally:
                self.inside -= 1


async def caller(room: Room) -> None:
    await room.visit()


async def hasty(room: Room) -> None:
    await room.visit(1.0)


async def trying(room: Room) -> None:
    """Tries, and works if it may."""
    guard = room.locks.try_acquire("k")
    if guard is not None:
        with guard:
            room.inside += 1
            room.overlaps += room.inside > 1
            try:
                await step("work")
            finally:
                room.inside -= 1


def exclusive(room: Room) -> bool:
    return room.overlaps == 0


def exclusive_and_empty(room: Room) -> bool:
    table = room.locks._table
    return room.overlaps == 0 and table.claims == {} and table.queues == {}


MAKERS = [
    pytest.param(lambda: KeyedLocks(clock=LoopClock()), id="keyed"),
    pytest.param(lambda: KeyedLocks(clock=LoopClock(), profile="lean"), id="keyed-lean"),
    pytest.param(lambda: KeyedLocks(clock=LoopClock(), reentrant=True), id="keyed-reentrant"),
    pytest.param(lambda: KeyedLocks(clock=LoopClock(), shared=True), id="keyed-shared"),
    pytest.param(lambda: Sections(1, hash=len, clock=LoopClock()), id="sections"),
    pytest.param(lambda: Sections(1, hash=len, clock=LoopClock(), profile="lean"), id="lean"),
    pytest.param(lambda: Sections(1, hash=len, clock=LoopClock(), shared=True), id="shared"),
]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    "callers", [[caller] * 3, [caller, caller, hasty], [caller, hasty, trying]]
)
def test_exclusion_and_no_trace_in_every_interleaving(
    make: Callable[[], Any], callers: list[Any]
) -> None:
    explore(
        lambda: Room(make()),
        callers,
        check=exclusive_and_empty,
        failures=1,
        cancellations=1,
        early_timers=1 if hasty in callers else 0,
        raises=(Timeout,),
        steps=("work",),
    ).assert_holds()


async def several(keys: list[str], room: Room) -> None:
    async with room.locks.many(keys):
        await step("work")


def test_many_in_any_order_never_deadlocks() -> None:
    def forth(room: Room) -> Any:
        return several(["a", "b"], room)

    def back(room: Room) -> Any:
        return several(["b", "a"], room)

    for make in (
        lambda: KeyedLocks(clock=LoopClock()),
        lambda: Sections(2, hash=lambda key: ord(key), clock=LoopClock()),
    ):
        explore(
            lambda make=make: Room(make()),
            [forth, back, back],
            check=exclusive_and_empty,
            failures=1,
            cancellations=1,
        ).assert_holds()


# -------------------------------------------------------------------------------- mutants


@pytest.mark.parametrize(
    "bug",
    [
        buggy_locks.DeleteOnRelease,
        buggy_locks.DeleteIfMine,
        buggy_locks.DeleteIfNotLocked,
        buggy_locks.CountAfterWaiting,
    ],
)
def test_the_exploration_finds_two_holders(bug: Callable[[], Any]) -> None:
    result = explore(lambda: Room(bug()), [caller] * 3, check=exclusive)
    result.assert_fails()


def test_the_exploration_finds_what_a_timed_janitor_breaks() -> None:
    async def janitor(room: Room) -> None:
        room.locks.clean()

    explore(
        lambda: Room(buggy_locks.TimedJanitor()), [caller, caller, caller, janitor], check=exclusive
    ).assert_fails()


def test_the_exploration_finds_the_hand_over_to_a_cancelled_waiter() -> None:
    make = buggy_locks.WakeACancelledWaiter
    explore(lambda: Room(make()), [caller] * 3, check=exclusive).assert_holds()
    result = explore(lambda: Room(make()), [caller] * 3, check=exclusive, cancellations=1)
    result.assert_fails()
    assert result.failure.kind == "deadlock"


# -------------------------------------------------------------- the late arrival, by hand


async def late_arrival(locks: Any) -> int:
    """A fails while B waits; C comes after A's clean-up.  How many were inside at once."""
    inside = most = 0

    async def work(fail: bool = False) -> None:
        nonlocal inside, most
        async with locks("k"):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            inside -= 1
            if fail:
                raise ConnectionError

    a = asyncio.create_task(work(fail=True))
    await asyncio.sleep(0)
    b = asyncio.create_task(work())
    with contextlib.suppress(ConnectionError):
        await a
    c = asyncio.create_task(work())
    await asyncio.gather(b, c)
    return most


@pytest.mark.parametrize("_round", range(20))
async def test_the_late_arrival(_round: int) -> None:
    assert await late_arrival(KeyedLocks()) == 1
    assert await late_arrival(KeyedLocks(profile="lean")) == 1
    assert await late_arrival(Sections()) == 1
    assert await late_arrival(buggy_locks.DeleteOnRelease()) == 2
    assert await late_arrival(buggy_locks.DeleteIfMine()) == 2
