"""What else one can lock a key with, each as a row of the table of ``benchmarks.locks``.

A row is a function that makes ``enter``; one enters with ``with enter(key):`` or
``async with enter(key):``.  A package that is not installed raises ``ImportError``.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from typing import Any

Enter = Callable[[str], Any]


class CountedLocks:
    """The textbook: a dict of locks and counts of their users, behind a mutex."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.entries: dict[str, list[Any]] = {}

    def __call__(self, key: str) -> Counted:
        return Counted(self, key)


class Counted:
    """One entry into a lock of ``CountedLocks``."""

    def __init__(self, locks: CountedLocks, key: str) -> None:
        self.locks = locks
        self.key = key

    def __enter__(self) -> None:
        with self.locks.mutex:
            self.entry = self.locks.entries.setdefault(self.key, [threading.Lock(), 0])
            self.entry[1] += 1
        self.entry[0].acquire()

    def __exit__(self, *error: object) -> None:
        self.entry[0].release()
        with self.locks.mutex:
            self.entry[1] -= 1
            if not self.entry[1]:
                del self.locks.entries[self.key]


class CountedTasks:
    """The same for the tasks of one event loop, which needs no mutex."""

    def __init__(self) -> None:
        self.entries: dict[str, list[Any]] = {}

    def __call__(self, key: str) -> CountedTask:
        return CountedTask(self.entries, key)


class CountedTask:
    """One entry into a lock of ``CountedTasks``."""

    def __init__(self, entries: dict[str, list[Any]], key: str) -> None:
        self.entries = entries
        self.key = key

    async def __aenter__(self) -> None:
        self.entry = self.entries.setdefault(self.key, [asyncio.Lock(), 0])
        self.entry[1] += 1
        await self.entry[0].acquire()

    async def __aexit__(self, *error: object) -> None:
        self.entry[0].release()
        self.entry[1] -= 1
        if not self.entry[1]:
            del self.entries[self.key]


class _Lock:
    """A lock that can be referred to weakly."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()


class WeakLocks:
    """A ``WeakValueDictionary`` behind a mutex: an entry stays while somebody refers to it."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.entries: weakref.WeakValueDictionary[str, _Lock] = weakref.WeakValueDictionary()

    def __call__(self, key: str) -> _Lock:
        with self.mutex:
            lock = self.entries.get(key)
            if lock is None:
                lock = self.entries[key] = _Lock()
            return lock


def weak_tasks() -> Enter:
    """A ``WeakValueDictionary`` of ``asyncio.Lock``."""
    entries: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def enter(key: str) -> asyncio.Lock:
        lock = entries.get(key)
        if lock is None:
            lock = entries[key] = asyncio.Lock()
        return lock

    return enter


def aiologic() -> Enter:
    """One lock for all keys: it has none per key."""
    import aiologic

    lock = aiologic.Lock()
    return lambda key: lock


def dogpile() -> Enter:
    """The registry of ``dogpile.core``, which the package ``dogpile.cache`` ships."""
    from dogpile.core import NameRegistry

    return NameRegistry(lambda key: threading.Lock()).get


def oslo() -> Enter:
    """``lockutils.internal_lock``: a registry of semaphores."""
    from oslo_concurrency import lockutils

    return lockutils.internal_lock


def oslo_lock() -> Enter:
    """``lockutils.lock``, which people call, without its log lines."""
    from oslo_concurrency import lockutils

    return lambda key: lockutils.lock(key, do_log=False)


def keyed_asyncio() -> Enter:
    """``asyncio-keyed-lock``."""
    from asyncio_keyed_lock import AsyncioKeyedLock

    return AsyncioKeyedLock()


THREADS: list[tuple[str, Callable[[], Enter]]] = [
    ("textbook counted dict", CountedLocks),
    ("WeakValueDictionary", WeakLocks),
    ("dogpile.core NameRegistry", dogpile),
    ("oslo.concurrency internal_lock", oslo),
    ("oslo.concurrency lock(do_log=False)", oslo_lock),
    ("aiologic.Lock (one lock, no keys)", aiologic),
]
TASKS: list[tuple[str, Callable[[], Enter]]] = [
    ("textbook counted dict", CountedTasks),
    ("WeakValueDictionary", weak_tasks),
    ("asyncio-keyed-lock", keyed_asyncio),
    ("aiologic.Lock (one lock, no keys)", aiologic),
]
