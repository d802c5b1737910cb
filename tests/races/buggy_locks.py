"""Keyed locks with one bug each, small copies of bugs that people reported in public.

Every one of them passes an ordinary test, and is caught by the exploration.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Sequence
from weakref import WeakValueDictionary


class DeleteOnRelease:
    """The map's entry goes with its holder, although somebody waits on that very lock.

    Like https://github.com/bytedance/deer-flow/pull/5176: a later caller makes a second lock
    and passes by the waiter.
    """

    def __init__(self) -> None:
        self.locks: dict[str, asyncio.Lock] = {}

    def leave(self, key: str, lock: asyncio.Lock) -> None:
        lock.release()
        self.locks.pop(key, None)

    @contextlib.asynccontextmanager
    async def __call__(self, key: str) -> AsyncIterator[None]:
        lock = self.locks.setdefault(key, asyncio.Lock())
        await lock.acquire()
        try:
            yield
        finally:
            self.leave(key, lock)


class DeleteIfMine(DeleteOnRelease):
    """The entry goes if it is still the holder's lock.  The waiter waits on that lock too.

    Like ``locks.remove(key, lock)`` in https://github.com/craftercms/commons/pull/416 without
    its count of users.
    """

    def leave(self, key: str, lock: asyncio.Lock) -> None:
        lock.release()
        if self.locks.get(key) is lock:
            del self.locks[key]


class DeleteIfNotLocked(DeleteOnRelease):
    """The entry goes if nobody holds it; who was woken but has not run yet does not count.

    Like the idle-lock eviction in https://github.com/pocketpaw/pocketpaw/pull/441.
    """

    def leave(self, key: str, lock: asyncio.Lock) -> None:
        lock.release()
        if not lock.locked():
            self.locks.pop(key, None)


class CountAfterWaiting(DeleteOnRelease):
    """Users are counted once they have the lock, so those who wait are not.

    Like the review of https://github.com/0chain/blobber/pull/552: the count is raised on a lock
    that was taken out of the map meanwhile.
    """

    def __init__(self) -> None:
        super().__init__()
        self.users: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def __call__(self, key: str) -> AsyncIterator[None]:
        lock = self.locks.setdefault(key, asyncio.Lock())
        await lock.acquire()
        self.users[key] = self.users.get(key, 0) + 1
        try:
            yield
        finally:
            lock.release()
            self.users[key] -= 1
            if not self.users[key]:
                self.locks.pop(key, None)


class TimedJanitor(DeleteOnRelease):
    """Entries stay, and a janitor removes now and then what looks idle.

    Like the collector in https://github.com/buildbuddy-io/buildbuddy/pull/3298, where a
    reviewer asks what happens if a lock comes into use between the look and the removal.
    """

    def leave(self, key: str, lock: asyncio.Lock) -> None:
        lock.release()

    def clean(self) -> None:
        for key, lock in list(self.locks.items()):
            if not lock.locked():
                del self.locks[key]


class WakeACancelledWaiter:
    """The lock is handed to a waiter that was cancelled a moment ago and never takes it.

    Like ``asyncio.Lock`` before https://github.com/python/cpython/pull/1031.
    """

    def __init__(self) -> None:
        self.queues: dict[str, deque[asyncio.Future[None]]] = {}

    @contextlib.asynccontextmanager
    async def __call__(self, key: str) -> AsyncIterator[None]:
        queue = self.queues.get(key)
        if queue is None:
            self.queues[key] = deque()
        else:
            future = asyncio.get_running_loop().create_future()
            queue.append(future)
            await future
        try:
            yield
        finally:
            queue = self.queues[key]
            if queue:
                future = queue.popleft()
                if not future.done():
                    future.set_result(None)
            else:
                del self.queues[key]


class ForgetsLater(CountAfterWaiting):
    """Users are counted right, but the last one looks at the count and removes the entry later.

    Like https://github.com/Darkseal/LockProvider/issues/8: between the two a newcomer takes the
    entry that is about to go, and the next one makes another.
    """

    @contextlib.asynccontextmanager
    async def __call__(self, key: str) -> AsyncIterator[None]:
        lock = self.locks.setdefault(key, asyncio.Lock())
        self.users[key] = self.users.get(key, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self.users[key] -= 1
            if not self.users[key]:
                await asyncio.sleep(0)  # another thread runs here
                self.locks.pop(key, None)


class Weak:
    """Entries live as long as somebody refers to the lock, and nobody does while it is held.

    Like https://github.com/google/guava/issues/3323 and the ``WeakValueDictionary`` in
    https://github.com/Cyberdrop-DL/cyberdrop-dl/pull/1317.
    """

    def __init__(self) -> None:
        self.locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @contextlib.asynccontextmanager
    async def __call__(self, key: str) -> AsyncIterator[None]:
        await self.locks.setdefault(key, asyncio.Lock()).acquire()
        try:
            yield
        finally:
            lock = self.locks.get(key)
            if lock is not None and lock.locked():
                lock.release()


class Queue:
    """One key's lock, handed from holder to waiter; the parent of two that lose somebody."""

    def __init__(self) -> None:
        self.held = False
        self.queue: deque[asyncio.Future[None]] = deque()

    @contextlib.asynccontextmanager
    async def __call__(self, key: str) -> AsyncIterator[None]:
        if self.held:
            future = asyncio.get_running_loop().create_future()
            self.queue.append(future)
            await self.wait(future)
        self.held = True
        try:
            yield
        finally:
            self.release()

    async def wait(self, future: asyncio.Future[None]) -> None:
        """Wait for the hand-over."""

    def release(self) -> None:
        """Hand over."""


class SkipsACancelledWaiter(Queue):
    """Release sees that the first waiter was cancelled and wakes nobody; the next one stays.

    Like https://github.com/agronholm/anyio/pull/1145.
    """

    async def wait(self, future: asyncio.Future[None]) -> None:
        try:
            await future
        finally:
            self.queue.remove(future)

    def release(self) -> None:
        self.held = False
        if self.queue and not self.queue[0].done():
            self.held = True
            self.queue[0].set_result(None)


class LosesAWakeUp(Queue):
    """A waiter that is cancelled after it was woken keeps the lock that it never takes.

    Like https://github.com/python/asyncio/issues/270 and
    https://github.com/python/cpython/issues/90155.
    """

    async def wait(self, future: asyncio.Future[None]) -> None:
        try:
            await future
        except asyncio.CancelledError:
            if future in self.queue:
                self.queue.remove(future)
            raise

    def release(self) -> None:
        self.held = False
        while self.queue:
            future = self.queue.popleft()
            if not future.done():
                self.held = True
                return future.set_result(None)


class InTheOrderGiven:
    """Several keys, locked in the order in which the caller names them.

    Like https://github.com/layer-3/nitrolite/pull/830: two transfers in opposite directions each
    hold what the other one needs.
    """

    def __init__(self) -> None:
        self.locks: dict[str, asyncio.Lock] = {}

    @contextlib.asynccontextmanager
    async def many(self, keys: Sequence[str]) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for key in keys:
                await asyncio.sleep(0)  # each row lock is a request of its own
                await stack.enter_async_context(self.locks.setdefault(key, asyncio.Lock()))
            yield
