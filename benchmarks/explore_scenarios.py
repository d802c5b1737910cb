"""The scenarios on which explorers are compared: bugs from public reports, and their mended twins.

Plain asyncio and threading code.  ``await asyncio.sleep(0)`` stands for a database round trip,
which is a switch point for every tool.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

HERE = sys.modules[__name__]


@dataclass(frozen=True)
class Scenario:
    """Callers over fresh state; ``holds`` judges it once all have ended."""

    name: str
    bug: bool
    setup: Callable[[], Any]
    callers: Sequence[Callable[[Any], Any]]
    holds: Callable[[Any], bool]
    lines: Sequence[ModuleType] = field(default=())
    """Threads only: modules in which perkey switches at every line."""


# ------------------------------------------------------------ asyncio


class Document:
    """Whole-document writes: the later one drops the earlier one's section."""

    def __init__(self, locked: bool = False) -> None:
        self.sections: list[int] = []
        self.lock = asyncio.Lock() if locked else None

    async def add(self) -> None:
        if self.lock is None:
            await self.write()
        else:
            async with self.lock:
                await self.write()

    async def write(self) -> None:
        seen = list(self.sections)
        await asyncio.sleep(0)
        self.sections = [*seen, 1]


class Transfers:
    """A lock per key.  The first attempt fails; what it does to the lock's entry is the matter."""

    def __init__(self, leave: str) -> None:
        self.leave = leave
        self.locks: dict[str, asyncio.Lock] = {}
        self.users = 0
        self.done = False
        self.moved = self.inside = self.most = 0

    async def failing(self) -> None:
        await self.attempt(True)

    async def working(self) -> None:
        await self.attempt(False)

    async def attempt(self, fails: bool) -> None:
        lock = self.locks.setdefault("k", asyncio.Lock())
        self.users += 1
        async with lock:
            await self.move(fails)
        self.users -= 1
        mine = self.locks.get("k") is lock
        if (fails and (self.leave == "delete" or (self.leave == "if mine" and mine))) or (
            self.leave == "prune" and not lock.locked()
        ) or (self.leave == "counted" and not self.users):  # fmt: skip
            self.locks.pop("k", None)

    async def move(self, fails: bool) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(0)
        if not fails and not self.done:
            await asyncio.sleep(0)
            self.done = True
            self.moved += 1
        self.inside -= 1


class Counted:
    """Users counted before the wait; the one who is cancelled while waiting stays counted."""

    def __init__(self, careful: bool) -> None:
        self.careful = careful
        self.lock = asyncio.Lock()
        self.users = 0
        self.waiter: asyncio.Task[Any] | None = None

    async def holder(self) -> None:
        self.users += 1
        async with self.lock:
            await asyncio.sleep(0)
        self.users -= 1

    async def waits(self) -> None:
        self.waiter = asyncio.current_task()
        self.users += 1
        try:
            await self.lock.acquire()
        except asyncio.CancelledError:
            if self.careful:
                self.users -= 1
            return
        self.lock.release()
        self.users -= 1

    async def canceller(self) -> None:
        await asyncio.sleep(0)
        if self.waiter is not None and self.lock.locked():
            self.waiter.cancel()


class Machine:
    """Two calls of ``run``: looked at before an await, set after it."""

    def __init__(self, careful: bool) -> None:
        self.careful = careful
        self.state = "new"
        self.starts = 0

    async def run(self) -> None:
        if self.state != "new":
            return
        if self.careful:
            self.state = "starting"
        await asyncio.sleep(0)
        self.starts += 1
        self.state = "running"


class View:
    """The event path sends what is new; the sweep sends what it had read before."""

    def __init__(self, locked: bool) -> None:
        self.lock = asyncio.Lock() if locked else None
        self.value = self.shown = 0

    async def event(self) -> None:
        self.value = 1
        await self.sweep()

    async def sweep(self) -> None:
        if self.lock is None:
            await self.send()
        else:
            async with self.lock:
                await self.send()

    async def send(self) -> None:
        seen = self.value
        await asyncio.sleep(0)
        self.shown = seen


class Pair:
    """Two locks, taken in two orders: a deadlock."""

    def __init__(self, ordered: bool) -> None:
        self.a, self.b = asyncio.Lock(), asyncio.Lock()
        self.back = (self.a, self.b) if ordered else (self.b, self.a)

    async def there(self) -> None:
        await self.both(self.a, self.b)

    async def and_back(self) -> None:
        await self.both(*self.back)

    async def both(self, first: asyncio.Lock, second: asyncio.Lock) -> None:
        async with first:
            await asyncio.sleep(0)
            async with second:
                await asyncio.sleep(0)


def _once(state: Transfers) -> bool:
    return state.most == 1


THREE = (Transfers.failing, Transfers.working, Transfers.working)


def of_tasks() -> list[Scenario]:
    """The scenarios of asyncio."""
    pairs: list[tuple[str, Callable[[bool], Any], Sequence[Any], Callable[[Any], bool]]] = [
        ("lost update", lambda right: Document(right), [Document.add] * 2,
         lambda s: len(s.sections) == 2),
        ("lock deleted on failure", lambda right: Transfers("keep" if right else "delete"),
         THREE, _once),
        ("lock deleted if mine", lambda right: Transfers("counted" if right else "if mine"),
         THREE, _once),
        ("lock pruned if not locked", lambda right: Transfers("counted" if right else "prune"),
         [Transfers.working] * 3, _once),
        ("cancelled waiter leaks", Counted,
         [Counted.holder, Counted.waits, Counted.canceller], lambda s: s.users == 0),
        ("started twice", Machine, [Machine.run] * 2, lambda s: s.starts == 1),
        ("backwards view", View, [View.event, View.sweep], lambda s: s.shown == 1),
        ("two orders of locks", Pair, [Pair.there, Pair.and_back], lambda s: True),
    ]  # fmt: skip
    return _both(pairs)


# ------------------------------------------------------------ threads


class Account:
    """A lock around each half, or around the whole."""

    def __init__(self, whole: bool) -> None:
        self.whole = whole
        self.lock = threading.Lock()
        self.balance = 0

    def deposit(self) -> None:
        if self.whole:
            with self.lock:
                self.balance += 1
            return
        with self.lock:
            seen = self.balance
        with self.lock:
            self.balance = seen + 1


class Inside:
    def __init__(self, careful: bool) -> None:
        self.careful = careful
        self.guard = threading.Lock()
        self.inside = self.most = 0

    def hold(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.inside -= 1


class Registry(Inside):
    """A lock is looked up, and made where there is none."""

    def __init__(self, careful: bool) -> None:
        super().__init__(careful)
        self.locks: dict[str, threading.Lock] = {}

    def find(self) -> threading.Lock:
        if "k" not in self.locks:
            self.locks["k"] = threading.Lock()
        return self.locks["k"]

    def use(self) -> None:
        if self.careful:
            with self.guard:
                lock = self.find()
        else:
            lock = self.find()
        with lock:
            self.hold()


class WeakRegistry(Registry):
    """The same in a ``WeakValueDictionary``, with its own ``setdefault``."""

    def __init__(self, careful: bool) -> None:
        super().__init__(careful)
        self.weak: weakref.WeakValueDictionary[str, threading.Lock] = weakref.WeakValueDictionary()

    def find(self) -> threading.Lock:
        return self.weak.setdefault("k", threading.Lock())


class Crossed:
    """Two locks, taken in two orders."""

    def __init__(self, ordered: bool) -> None:
        self.a, self.b = threading.Lock(), threading.Lock()
        self.back = (self.a, self.b) if ordered else (self.b, self.a)

    def there(self) -> None:
        with self.a, self.b:
            pass

    def and_back(self) -> None:
        with self.back[0], self.back[1]:
            pass


def of_threads() -> list[Scenario]:
    """The scenarios of threads."""
    pairs: list[tuple[Any, ...]] = [
        ("lost update", Account, [Account.deposit] * 2, lambda s: s.balance == 2),
        ("lock made twice", Registry, [Registry.use] * 2, lambda s: s.most == 1, [HERE]),
        ("lock in a WeakValueDictionary", WeakRegistry, [WeakRegistry.use] * 2,
         lambda s: s.most == 1, [HERE, weakref]),
        ("two orders of locks", Crossed, [Crossed.there, Crossed.and_back], lambda s: True),
    ]  # fmt: skip
    return _both(pairs)


def _both(pairs: Sequence[tuple[Any, ...]]) -> list[Scenario]:
    return [
        Scenario(name, bug, lambda make=make, bug=bug: make(not bug), callers, holds, *more)
        for name, make, callers, holds, *more in pairs
        for bug in (True, False)
    ]
