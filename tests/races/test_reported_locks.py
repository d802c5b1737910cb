"""Keyed locks that people published, written here as they write them, each tried as a user of
``perkey.testing`` would: with the decorator, on unmodified code.  The mended twin of each holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from perkey.testing import explore, explore_threads, step

HERE = sys.modules[__name__]


class Work:
    """What the lock is for: nobody else is inside."""

    def __init__(self) -> None:
        self.inside = self.most = 0

    async def some(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await step("work")
        finally:
            self.inside -= 1

    def briefly(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.inside -= 1


# ------------------------------------------------------------ pruned when it is not locked


class Pruned:
    """The entry goes when nobody holds the lock; a waiter that was woken holds nothing yet."""

    def __init__(self) -> None:
        self.locks: dict[str, asyncio.Lock] = {}

    @contextlib.asynccontextmanager
    async def __call__(self, key: str) -> AsyncIterator[None]:
        lock = self.locks.setdefault(key, asyncio.Lock())
        async with lock:
            yield
        if not lock.locked():
            self.locks.pop(key, None)


class PrunedWhenUnused(Pruned):
    """Mended: who holds it and who waits are counted, before the wait."""

    def __init__(self) -> None:
        super().__init__()
        self.users: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def __call__(self, key: str) -> AsyncIterator[None]:
        lock = self.locks.setdefault(key, asyncio.Lock())
        self.users[key] += 1
        try:
            async with lock:
                yield
        finally:
            self.users[key] -= 1
            if not self.users[key]:
                del self.users[key], self.locks[key]


def callers(number: int, locks: Pruned) -> Iterator[Any]:
    work = Work()

    async def caller() -> None:
        async with locks("k"):
            await work.some()

    yield [caller] * number
    assert work.most == 1
    assert locks.locks == {}


@explore(expect="check")
def test_pruned_if_not_locked() -> Iterator[Any]:
    return (yield from callers(3, Pruned()))


@explore(failures=1, cancellations=1)
def test_pruned_when_unused() -> Iterator[Any]:
    return (yield from callers(3, PrunedWhenUnused()))


@explore()
def test_two_callers_are_too_few_to_see_it() -> Iterator[Any]:
    return (yield from callers(2, Pruned()))


# ------------------------------------------------------------ counted, with a leak


class Leaky:
    """Counted before the wait, uncounted after the work: a cancelled waiter stays counted."""

    def __init__(self) -> None:
        self.locks: dict[str, asyncio.Lock] = {}
        self.users: Counter[str] = Counter()

    async def use(self, key: str, work: Work) -> None:
        lock = self.locks.setdefault(key, asyncio.Lock())
        self.users[key] += 1
        await lock.acquire()
        try:
            await work.some()
        finally:
            lock.release()
            self._forget(key)

    def _forget(self, key: str) -> None:
        self.users[key] -= 1
        if not self.users[key]:
            del self.users[key], self.locks[key]


class Mended(Leaky):
    """The count is taken back whatever happens."""

    async def use(self, key: str, work: Work) -> None:
        lock = self.locks.setdefault(key, asyncio.Lock())
        self.users[key] += 1
        try:
            async with lock:
                await work.some()
        finally:
            self._forget(key)


@pytest.mark.parametrize(("locks", "leaks"), [(Leaky, True), (Mended, False)])
def test_a_cancelled_waiter_leaves_no_entry(locks: type[Leaky], leaks: bool) -> None:
    def scenario() -> Iterator[Any]:
        made, work = locks(), Work()

        async def caller() -> None:
            await made.use("k", work)

        yield [caller] * 2
        assert work.most == 1
        assert not made.locks

    explore(scenario).assert_holds()  # nobody is cancelled: nothing is wrong
    result = explore(scenario, cancellations=1)
    if leaks:
        assert "! cancelled, at" in result.assert_fails("check").story
    else:
        result.assert_holds()


# ------------------------------------------------------------ threads


class Registry:
    """Looked up and made in two steps: two threads make two locks."""

    def __init__(self) -> None:
        self.locks: dict[str, threading.Lock] = {}
        self.work = Work()

    def use(self) -> None:
        if "k" not in self.locks:
            self.locks["k"] = threading.Lock()
        with self.locks["k"]:
            self.work.briefly()


class Guarded(Registry):
    """Mended: a guard around the look and the making."""

    def __init__(self) -> None:
        super().__init__()
        self.guard = threading.Lock()

    def use(self) -> None:
        with self.guard:
            if "k" not in self.locks:
                self.locks["k"] = threading.Lock()
            lock = self.locks["k"]
        with lock:
            self.work.briefly()


@explore_threads(lines=[HERE], expect="check")
def test_made_twice() -> Iterator[Any]:
    registry = Registry()
    yield [registry.use] * 2
    assert registry.work.most == 1


@explore_threads(lines=[HERE], preemptions=1)
def test_made_once() -> Iterator[Any]:
    registry = Guarded()
    yield [registry.use] * 2
    assert registry.work.most == 1
