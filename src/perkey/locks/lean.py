"""The lean locks: exclusion and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

from perkey.locks.owner import get_ident, running_loop
from perkey.locks.table import READY, THREADS, Table

_RLock: Any = type(threading.RLock())


def lean_guards(table: Table, default: float | None) -> Callable[..., Any]:
    """What makes the guards of a lean ``KeyedLocks``, for any colour.

    The class is made for one registry, so that its methods reach the table as a closure:
    attribute look-ups are a fifth of the cost of entering.
    """
    claims, queues = table.claims, table.queues

    class LeanGuard:
        __slots__ = ("key", "timeout")

        key: Hashable
        timeout: float | None

        def __enter__(self) -> LeanGuard:
            try:
                if claims.setdefault(self.key, self) is not self:
                    table.block(self.key, self, self.timeout)
            except BaseException:
                table.leave(self.key, self)
                raise
            return self

        def __aenter__(self) -> Any:
            if claims.setdefault(self.key, self) is self:
                return READY
            return table.suspend(self.key, self, self.timeout)

        def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
            if not queues:
                del claims[self.key]
                if not queues:
                    return READY
            table.leave(self.key, self)
            return READY

        __aexit__ = __exit__

        def take(self) -> bool:
            return claims.setdefault(self.key, self) is self

    def hold(key: Hashable, timeout: float | None = default) -> LeanGuard:
        guard = LeanGuard()
        guard.key = key
        guard.timeout = timeout
        return guard

    return hold


class LeanThreadSection(_RLock):  # type: ignore[misc]
    """A re-entrant lock in C: entered and left without running a line of Python."""

    __slots__ = ("index", "table")

    index: int
    table: Table

    def __aenter__(self) -> Any:
        self.table.settle(running_loop())

    async def __aexit__(self, *error: object) -> None:
        """Never reached: ``async with`` looks it up before it enters."""


class TimedSection:
    """A lean section of threads with a limit on the wait."""

    __slots__ = ("section", "timeout")

    def __init__(self, section: LeanThreadSection, timeout: float | None) -> None:
        self.section = section
        self.timeout = timeout

    def __enter__(self) -> TimedSection:
        timeout = self.timeout
        if timeout is None:
            self.section.acquire()
        elif not self.section.acquire(timeout > 0, timeout if timeout > 0 else -1):
            self.section.table.timed_out(self.section.index, timeout)
        return self

    def __exit__(self, *error: object) -> None:
        self.section.release()

    def __aenter__(self) -> Any:
        self.section.table.settle(running_loop())

    async def __aexit__(self, *error: object) -> None:
        """Never reached: ``async with`` looks it up before it enters."""


class LeanTaskSection:
    """A lean section of one event loop; the section itself is the token of its holder."""

    __slots__ = ("claims", "index", "queues", "table", "timeout")

    def __init__(self, table: Table, index: int, timeout: float | None) -> None:
        self.table = table
        self.claims = table.claims
        self.queues = table.queues
        self.index = index
        self.timeout = timeout

    def __enter__(self) -> Any:
        self.table.settle(THREADS)

    def __aenter__(self) -> Any:
        table = self.table
        if get_ident() != table.thread:
            table.settle_task()
        claims, index = self.claims, self.index
        if index in claims:
            return table.suspend(index, object(), self.timeout)
        claims[index] = self
        return READY

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        if self.queues:
            self.table.leave(self.index, self.claims[self.index])
        else:
            del self.claims[self.index]
        return READY

    __aexit__ = __exit__

    def acquire(self, blocking: bool) -> bool:
        if self.index in self.table.claims:
            return False
        self.table.claims[self.index] = self
        return True


class LeanFirst:
    """The first use settles whether the array belongs to threads or to an event loop."""

    __slots__ = ("array", "key", "real", "timeout")

    def __init__(self, array: Any, key: Hashable, timeout: float | None) -> None:
        self.array = array
        self.key = key
        self.timeout = timeout
        self.real: Any = None

    def __enter__(self) -> Any:
        self.array.settle(THREADS)
        self.real = self.array(self.key, self.timeout)
        return self.real.__enter__()

    def __aenter__(self) -> Any:
        self.array.settle(running_loop())
        self.real = self.array(self.key, self.timeout)
        return self.real.__aenter__()

    def __exit__(self, *error: object) -> Any:
        return self.real.__exit__(*error)

    def __aexit__(self, *error: object) -> Any:
        return self.real.__aexit__(*error)
