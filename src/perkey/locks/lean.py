"""The lean locks: exclusion and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from msgspec import Struct

from perkey.locks.owner import get_ident, running_loop
from perkey.locks.ready import Ready
from perkey.locks.table import READY, THREADS, Table, limit

HELD: Final = object()  # the token of whoever holds a lean section


def lean_guards(table: Table, default: float | None) -> Callable[..., Any]:
    """What makes the guards of a lean ``KeyedLocks``, for any colour.

    The class is made for one registry, so that its methods reach the table as a closure:
    attribute look-ups are a fifth of the cost of entering.
    """
    claims, queues = table.claims, table.queues

    class LeanGuard(Struct, eq=False):
        key: Any
        timeout: float | None = default

        def __enter__(self) -> LeanGuard:
            if table.home is not THREADS:
                table.settle(THREADS)
            try:
                if claims.setdefault(self.key, self) is not self:
                    table.block(self.key, self, self.timeout)
            except BaseException:
                table.leave(self.key, self)
                raise
            return self

        def __aenter__(self) -> Any:
            if get_ident() != table.thread:
                table.settle_task()
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

        def holds(self) -> bool:
            return claims.get(self.key) is self

    return LeanGuard


def redirect(old: Any, new: Any) -> None:
    """After a fork: who kept the old guards enters by the new ones, and leaves what it is in."""
    leave = old.__exit__

    def __exit__(self: Any, *error: Any) -> Any:
        return leave(self, *error) if self.holds() else new.__exit__(self, *error)

    old.__enter__ = lambda self: new.__enter__(self)
    old.__aenter__ = lambda self: new.__aenter__(self)
    old.take = lambda self: new.take(self)
    old.__exit__ = old.__aexit__ = __exit__


class LeanThreadSection(metaclass=Ready):
    """A re-entrant lock in C: entered and left without running a line of Python."""

    __slots__ = ("__enter__", "__exit__", "acquire", "index", "table")

    def __init__(self, lock: Any, index: int, table: Table) -> None:
        self.index = index
        self.table = table
        self.acquire = lock.acquire
        self.__enter__ = lock.__enter__
        self.__exit__ = lock.__exit__

    def __aenter__(self) -> Any:
        self.table.settle(running_loop())

    async def __aexit__(self, *error: object) -> None:
        """Never reached: ``async with`` looks it up before it enters."""


class TimedSection(LeanThreadSection):
    """The same with a limit on the wait."""

    __slots__ = ("key", "timeout")

    def __init__(self, section: LeanThreadSection, key: Hashable, timeout: float | None) -> None:
        self.key = key
        self.index = section.index
        self.table = section.table
        self.timeout = timeout
        self.acquire = acquire = section.acquire
        self.__exit__ = section.__exit__

        def __enter__() -> Any:
            if not acquire(False):
                self._wait()

        self.__enter__ = __enter__

    def _wait(self) -> None:
        timeout = limit(self.timeout)
        if timeout is None:
            self.acquire()
        elif timeout <= 0 or not self.acquire(True, timeout):
            self.table.timed_out(self.index, timeout, self)


class LeanTaskSection(metaclass=Ready):
    """A lean section of one event loop; who holds it has no name."""

    __slots__ = ("__aenter__", "__aexit__", "index", "key", "table", "timeout")

    def __init__(self, table: Table, index: int, key: Hashable, timeout: float | None) -> None:
        self.key = key
        claims, queues = table.claims, table.queues
        self.table = table
        self.index = index
        self.timeout = timeout

        def __aenter__() -> Any:
            if get_ident() != table.thread:
                table.settle_task()
            if index in claims:
                return table.suspend(index, object(), self.timeout, self)
            claims[index] = HELD
            return READY

        def __aexit__(kind: Any, error: Any, trace: Any) -> Any:
            if queues:
                table.leave(index, claims[index])
            else:
                del claims[index]
            return READY

        self.__aenter__, self.__aexit__ = __aenter__, __aexit__

    def __enter__(self) -> Any:
        self.table.settle(THREADS)

    def __exit__(self, *error: object) -> None:
        self.__aexit__(None, None, None)

    def acquire(self, blocking: bool) -> bool:
        if self.index in self.table.claims:
            return False
        self.table.claims[self.index] = HELD
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
