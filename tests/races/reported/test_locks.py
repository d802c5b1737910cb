"""Keyed locks: what other projects reported, played with ours and with the bug put back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from perkey import NestedSection
from perkey.locks import KeyedLocks
from perkey.testing import Result, explore, step
from tests.explore.test_locks import LoopClock, Room, caller, exclusive, exclusive_and_empty
from tests.races import buggy_locks, lock_maps


def ours() -> KeyedLocks:
    return KeyedLocks(clock=LoopClock())


def three(make: Callable[[], Any], check: Any = exclusive, **budgets: Any) -> Result:
    """Three callers of one key, in every order."""
    return explore(lambda: Room(make()), [caller] * 3, check=check, **budgets)


# ------------------------------------------------------------------ two holders of one key


def test_one_holder_whoever_comes_and_goes() -> None:
    three(ours, exclusive_and_empty, failures=1).assert_holds()


@pytest.mark.parametrize(
    "bug",
    [
        buggy_locks.DeleteOnRelease,
        buggy_locks.DeleteIfMine,
        buggy_locks.DeleteIfNotLocked,
        buggy_locks.CountAfterWaiting,
        buggy_locks.ForgetsLater,
    ],
)
def test_maps_that_forget_too_early_have_two_holders(bug: Callable[[], Any]) -> None:
    three(bug).assert_fails("check")


def test_a_lock_that_only_the_map_refers_to_has_two_holders() -> None:
    three(buggy_locks.Weak, prune="none").assert_fails("check")


async def janitor(room: Room) -> None:
    room.locks.clean()


def test_a_janitor_that_looks_and_removes_makes_a_second_holder() -> None:
    callers = [caller, caller, caller, janitor]
    explore(lambda: Room(buggy_locks.TimedJanitor()), callers, check=exclusive).assert_fails()


# ------------------------------------------------------------------------ a lost wake-up


def test_a_cancelled_waiter_strands_nobody() -> None:
    three(ours, exclusive_and_empty, cancellations=1).assert_holds()


@pytest.mark.parametrize(
    "bug",
    [
        buggy_locks.WakeACancelledWaiter,
        buggy_locks.SkipsACancelledWaiter,
        buggy_locks.LosesAWakeUp,
    ],
)
def test_queues_that_lose_a_wake_up_hang(bug: Callable[[], Any]) -> None:
    three(bug).assert_holds()
    three(bug, cancellations=1).assert_fails("deadlock")


# ------------------------------------------------------------------------ one's own lock


async def starts(room: Room) -> None:
    """Holds the key, and calls a helper that takes it too."""
    async with room.locks("k"):
        try:
            async with room.locks("k"):
                await step("work")
        except NestedSection:
            return


def test_taking_ones_own_key_again_is_an_error_not_a_hang() -> None:
    """As in https://github.com/gustavo-iniguez-goya/opensnitch/issues/69."""
    callers = [starts, caller]
    explore(lambda: Room(ours()), callers, check=exclusive_and_empty).assert_holds()


def test_taking_ones_own_plain_lock_again_hangs() -> None:
    plain = lambda: Room(lock_maps.KeepForEver().holding)  # noqa: E731
    explore(plain, [starts, caller], check=exclusive).assert_fails("deadlock")


# ------------------------------------------------------------------------ two keys at once


async def forth(room: Room) -> None:
    async with room.locks.many(["a", "b"]):
        await step("work")


async def back(room: Room) -> None:
    async with room.locks.many(["b", "a"]):
        await step("work")


def test_opposite_transfers_do_not_wait_for_each_other() -> None:
    explore(lambda: Room(ours()), [forth, back], check=exclusive_and_empty).assert_holds()


def test_keys_locked_in_the_order_given_deadlock() -> None:
    explore(lambda: Room(buggy_locks.InTheOrderGiven()), [forth, back]).assert_fails("deadlock")


# ------------------------------------------------------------------------------- memory


async def entries_left(locks: Any, entries: Callable[[], int]) -> int:
    for number in range(1000):
        async with locks(f"session {number}"):
            pass
    return entries()


async def test_locks_of_ended_sessions_leave_nothing() -> None:
    """As in https://github.com/aden-hive/hive/issues/2584."""
    locks = KeyedLocks()
    assert await entries_left(locks, lambda: len(locks._table.claims)) == 0


async def test_a_map_that_forgets_nothing_grows() -> None:
    kept = lock_maps.KeepForEver()
    assert await entries_left(kept.holding, lambda: len(kept.locks)) == 1000
