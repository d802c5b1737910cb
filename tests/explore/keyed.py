"""Keyed locks, right and wrong: the scenarios every explorer has to tell apart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from perkey.testing import step


class Entry:
    """One key's lock, with the number of its holders and waiters."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class Bank:
    """A transfer per caller, all under one key; ``inside`` counts who is in the section."""

    def __init__(self) -> None:
        self.locks: dict[str, Entry] = {}
        self.inside = self.most = 0
        self.moved = 0

    async def work(self) -> None:
        """The section itself."""
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            before = self.moved
            await step("save")
            self.moved = before + 1
        finally:
            self.inside -= 1

    async def kept(self) -> None:
        """Right: the lock is never removed."""
        async with self.locks.setdefault("k", Entry()).lock:
            await self.work()

    async def counted(self) -> None:
        """Right: whoever leaves last removes the lock, and waiters count."""
        entry = self.locks.setdefault("k", Entry())
        entry.users += 1
        try:
            async with entry.lock:
                await self.work()
        finally:
            entry.users -= 1
            if entry.users == 0:
                del self.locks["k"]

    async def deleted(self) -> None:
        """Wrong: a failed attempt removes the lock while another caller waits for it."""
        try:
            async with self.locks.setdefault("k", Entry()).lock:
                await self.work()
        except Exception:
            self.locks.pop("k", None)
            raise

    async def deleted_if_mine(self) -> None:
        """Wrong as well: the waiter holds the very same lock."""
        entry = self.locks.setdefault("k", Entry())
        try:
            async with entry.lock:
                await self.work()
        except Exception:
            if self.locks.get("k") is entry:
                del self.locks["k"]
            raise

    async def counted_late(self) -> None:
        """Wrong: a waiter is counted only once it holds the lock."""
        entry = self.locks.setdefault("k", Entry())
        async with entry.lock:
            entry.users += 1
            try:
                await self.work()
            finally:
                entry.users -= 1
                if entry.users == 0:
                    self.locks.pop("k", None)

    async def leaky(self) -> None:
        """Wrong: a waiter that is cancelled is counted for ever."""
        entry = self.locks.setdefault("k", Entry())
        entry.users += 1
        await entry.lock.acquire()
        try:
            await self.work()
        finally:
            entry.lock.release()
            entry.users -= 1
            if entry.users == 0:
                del self.locks["k"]


def exclusive(bank: Bank) -> None:
    assert bank.most <= 1, "two in one section"


def exclusive_and_empty(bank: Bank) -> None:
    exclusive(bank)
    assert not bank.locks, "a lock is left behind"


Caller = Callable[[Any], Any]
