"""The known races: found where they are, exhausted where they are not."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

import pytest

from perkey.testing import InjectedFailure, explore, step
from tests.explore.keyed import Bank, exclusive, exclusive_and_empty


@pytest.mark.parametrize("caller", [Bank.deleted, Bank.deleted_if_mine, Bank.counted_late])
def test_a_lock_that_vanishes_while_someone_waits_lets_two_in(caller: Any) -> None:
    result = explore(Bank, [caller] * 3, always=exclusive, failures=1)
    assert "two in one section" in result.assert_fails("always").message


@pytest.mark.parametrize("caller", [Bank.deleted, Bank.deleted_if_mine])
def test_two_callers_alone_do_not_meet_it(caller: Any) -> None:
    """It takes a failed attempt, a waiter and a late arrival: three callers, or a retry."""
    explore(Bank, [caller] * 2, always=exclusive, failures=1).assert_holds()


@pytest.mark.parametrize("caller", [Bank.deleted, Bank.deleted_if_mine])
def test_a_retry_is_a_late_arrival(caller: Any) -> None:
    async def retried(bank: Bank) -> None:
        try:
            await caller(bank)
        except InjectedFailure:
            await caller(bank)

    result = explore(Bank, [retried, caller], always=exclusive, failures=1)
    result.assert_fails("always")


@pytest.mark.parametrize("callers", [2, 3])
@pytest.mark.parametrize(
    ("caller", "check"), [(Bank.kept, exclusive), (Bank.counted, exclusive_and_empty)]
)
def test_the_right_ones_hold_with_failures_and_cancellations(
    caller: Any, check: Any, callers: int
) -> None:
    result = explore(
        Bank, [caller] * callers, always=exclusive, check=check, failures=2, cancellations=2,
        steps=("save",),
    )  # fmt: skip
    result.assert_holds()


def test_a_cancelled_waiter_leaks_its_count() -> None:
    explore(Bank, [Bank.leaky] * 2, check=exclusive_and_empty).assert_holds()
    result = explore(Bank, [Bank.leaky] * 2, check=exclusive_and_empty, cancellations=1)
    assert "left behind" in result.assert_fails("check").message


class Document:
    """A whole-document write, blind or with compare-and-swap."""

    def __init__(self) -> None:
        self.version, self.parts = 0, ()

    async def blind(self) -> None:
        seen = await step("read", lambda: self.parts)
        await step("write", lambda: self._write((*seen, "part")))

    def _write(self, parts: Any) -> None:
        self.version, self.parts = self.version + 1, parts

    async def swapped(self) -> None:
        while True:
            version, seen = await step("read", lambda: (self.version, self.parts))
            if await step("write", lambda v=version, p=seen: self._swap(v, (*p, "part"))):
                return

    def _swap(self, version: int, parts: Any) -> bool:
        if version != self.version:
            return False
        self._write(parts)
        return True


def test_blind_writes_lose_an_update_and_compare_and_swap_does_not() -> None:
    lost = explore(Document, [Document.blind] * 3, outcome=lambda d: len(d.parts))
    assert set(lost.outcomes) == {1, 2, 3}
    explore(Document, [Document.blind] * 2, check=lambda d: len(d.parts) == 2).assert_fails("check")
    explore(Document, [Document.swapped] * 3, check=lambda d: len(d.parts) == 3).assert_holds()


class Machine:
    """``run`` starts it once; two callers must not both start it."""

    def __init__(self) -> None:
        self.state, self.starts = "stopped", 0

    async def unguarded(self) -> None:
        if self.state == "stopped":
            await step("launch")
            self.starts += 1
            self.state = "running"

    async def guarded(self) -> None:
        if self.state == "stopped":
            self.state = "starting"
            await step("launch")
            self.starts += 1
            self.state = "running"


def test_run_twice() -> None:
    once = {"check": lambda machine: machine.starts == 1}
    explore(Machine, [Machine.unguarded] * 2, **once).assert_fails("check")
    explore(Machine, [Machine.guarded] * 2, **once).assert_holds()


class Two:
    """Two locks, taken in two orders."""

    def __init__(self) -> None:
        self.a, self.b = asyncio.Lock(), asyncio.Lock()

    async def a_then_b(self) -> None:
        async with self.a:
            await step("between")
            async with self.b:
                pass

    async def b_then_a(self) -> None:
        async with self.b:
            await step("between")
            async with self.a:
                pass


def test_a_deadlock_says_who_waits_where() -> None:
    explore(Two, [Two.a_then_b] * 2).assert_holds()
    failure = explore(Two, [Two.a_then_b, Two.b_then_a]).assert_fails("deadlock")
    assert "a_then_b waits at test_scenarios.py" in failure.story
    assert "async with self.b:" in failure.story
    assert "b_then_a waits at test_scenarios.py" in failure.story
    assert "[locked, waiters:1]" in failure.story


class Rows:
    """A lock as a row in a shared store: it outlives its owner's process."""

    def __init__(self) -> None:
        self.owner: str | None = None
        self.jobs: list[str] = []

    async def removed_in_finally(self) -> None:
        if await step("take", self._take):
            try:
                await step("work")
                self.jobs.append("done")
            finally:
                self.owner = None

    def _take(self) -> bool:
        if self.owner is not None:
            return False
        self.owner = "someone"
        return True


def test_a_crash_leaves_its_lock_row_behind() -> None:
    """No ``finally`` runs on a power cut; on a mere failure or a cancellation it does."""
    free = {"check": lambda rows: rows.owner is None}
    callers = [Rows.removed_in_finally] * 2
    explore(Rows, callers, failures=1, cancellations=0, **free).assert_holds()
    failure = explore(Rows, callers, crashes=1, **free).assert_fails("check")
    assert "! crash, at test_scenarios.py" in failure.story


class Weak:
    """A popular keyed lock: a ``WeakValueDictionary`` of locks."""

    def __init__(self) -> None:
        self.locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self.inside = self.most = 0

    async def pinned(self) -> None:
        lock = self.locks.setdefault("k", asyncio.Lock())
        async with lock:
            await self._section()

    async def looked_up_again(self) -> None:
        if "k" not in self.locks:
            self.locks["k"] = asyncio.Lock()
            await step("announce")
        lock = self.locks.setdefault("k", asyncio.Lock())
        async with lock:
            await self._section()

    async def _section(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await step("save")
        self.inside -= 1


def test_weak_dictionaries_are_seen_into() -> None:
    for caller in (Weak.pinned, Weak.looked_up_again):
        result = explore(Weak, [caller] * 3, always=lambda weak: weak.most <= 1)
        result.assert_holds()
        plain = explore(Weak, [caller] * 2, always=lambda weak: weak.most <= 1, prune="none")
        plain.assert_holds()


class Bell:
    """Whoever waits leaves the method that wakes it; from Python 3.12 its type has another name."""

    def __init__(self) -> None:
        self.wake: list[Any] = []

    async def waits(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self.wake.append(future.set_result)
        await future

    async def rings(self) -> None:
        await step("walk")
        for each in self.wake:
            each(None)
        self.wake.clear()


def test_the_method_of_a_future_is_seen_into() -> None:
    found = explore(Bell, [Bell.waits, Bell.rings])
    assert found.assert_fails("deadlock")  # it rings before anybody waits
    plain = explore(Bell, [Bell.waits, Bell.rings], prune="none", stop_at_failure=False)
    merged = explore(Bell, [Bell.waits, Bell.rings], stop_at_failure=False)
    assert plain.schedules >= merged.schedules
