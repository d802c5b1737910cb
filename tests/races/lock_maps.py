"""Four ways to keep one lock per key in a map, as people write them; two of them are wrong.

``enter`` and ``leave`` are called around the lock's acquisition and release; ``failed`` says
that the attempt raised.  Only the last one and ``KeepForEver`` keep callers apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class LockMap:
    """A lock per key; what happens to its entry is what the variants differ in."""

    def __init__(self) -> None:
        self.locks: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def holding(self, key: str) -> AsyncIterator[None]:
        lock = self.enter(key)
        failed = True
        try:
            async with lock:
                yield
                failed = False
        finally:
            self.leave(key, lock, failed)

    def enter(self, key: str) -> asyncio.Lock:
        return self.locks.setdefault(key, asyncio.Lock())

    def leave(self, key: str, lock: asyncio.Lock, failed: bool) -> None:
        """What becomes of the entry."""


class ForgetOnLeave(LockMap):
    """A failed attempt cleans up, so that the map does not grow."""

    def leave(self, key: str, lock: asyncio.Lock, failed: bool) -> None:
        if failed:
            self.locks.pop(key, None)


class ForgetIfMine(LockMap):
    """The "fixed" version: only my own lock.  A waiter holds the same pointer, so it is no fix."""

    def leave(self, key: str, lock: asyncio.Lock, failed: bool) -> None:
        if failed and self.locks.get(key) is lock:
            del self.locks[key]


class KeepForEver(LockMap):
    """Right, and the map grows with every key ever used."""

    def leave(self, key: str, lock: asyncio.Lock, failed: bool) -> None:
        """Nothing is forgotten."""


class CountedUsers(LockMap):
    """Right: the entry goes when its last holder or waiter has left."""

    def __init__(self) -> None:
        super().__init__()
        self.users: dict[str, int] = {}

    def enter(self, key: str) -> asyncio.Lock:
        self.users[key] = self.users.get(key, 0) + 1
        return super().enter(key)

    def leave(self, key: str, lock: asyncio.Lock, failed: bool) -> None:
        self.users[key] -= 1
        if not self.users[key]:
            del self.users[key], self.locks[key]


WRONG = (ForgetOnLeave, ForgetIfMine)
RIGHT = (KeepForEver, CountedUsers)
