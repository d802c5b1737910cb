"""Keyed locks with one bug each, small copies of bugs that people reported in public.

Every one of them passes an ordinary test, and is caught by the exploration.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator


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
