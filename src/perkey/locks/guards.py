"""The checked guards of ``KeyedLocks``.

A guard is the token of its own claim, so only it releases.  It knows its owner: it refuses
re-entry instead of hanging, counts, and lets a claim be freed whose guard is gone for good.
Uncontended, it runs one atomic ``dict.setdefault`` and one ``del``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Any

from perkey import errors
from perkey.locks.owner import caller, describe, ended, get_ident, running_loop, task_of
from perkey.locks.table import READY, SHARED, THREADS, Table, refuse_stall


class Guard:
    """What the checked guards share.  ``claims`` is None except between entry and release."""

    __slots__ = ("base", "claims", "depth", "key", "owner", "table", "timeout")

    base: Any
    claims: Any
    depth: int
    key: Hashable
    owner: Any
    table: Table
    timeout: float | None

    def __enter__(self) -> Any:
        self.table.settle(THREADS)
        self.__class__ = ThreadGuard
        self.table.guard = ThreadGuard
        return self.__enter__()

    def __aenter__(self) -> Any:
        self.table.settle(asyncio.get_running_loop())
        self.__class__ = TaskGuard
        self.table.guard = TaskGuard
        return self.__aenter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        table = self.table
        try:
            if not table.queues:
                del self.claims[self.key]
                self.claims = None
                if not table.queues:
                    return READY
            elif self.claims is None:
                raise TypeError
        except TypeError:
            raise errors.UsageError(f"this guard of {self.key!r} is not holding it") from None
        self.claims = None
        table.leave(self.key, self)
        return READY

    __aexit__ = __exit__

    def _undo(self) -> None:
        """The entry failed or was interrupted: give back what was taken."""
        claims, self.claims = self.claims, None
        if claims is not None and claims.get(self.key) is self:
            self.table.leave(self.key, self)

    def take(self) -> bool:
        """Take the key if it is free; never waits."""
        table = self.table
        claims = self.claims = table.claims
        self.owner = get_ident() if table.home is THREADS else caller()
        try:
            other = claims.setdefault(self.key, self)
            if self._meet(other) is not self:
                self.claims = None
                table.skipped += 1
                return False
        except BaseException:
            self._undo()
            raise
        table.acquired += 1
        return True

    def _meet(self, other: Any) -> Any:
        """Somebody holds the key: who, or ``self`` if that was a claim nobody will release."""
        table, key = self.table, self.key
        while other is not self:
            if not (other.owner == self.owner or ended(other.owner)):
                break
            if table.suspect is None or not table.suspect(key, other):
                break
            table.leave(key, other)
            other = table.claims.setdefault(key, self)
        return other

    def _await_turn(self, other: Any) -> bool:
        """True if the key is ours, False if we must stand in line; raises if that is futile."""
        other = self._meet(other)
        if other is not self and other.owner == self.owner:
            me = describe(self.owner)
            raise errors.NestedSection(
                f"{me} already holds {self.key!r} and would wait for itself; hand on what it "
                "holds, or make the registry with reentrant=True",
                key=self.key,
                owner=me,
            )
        return other is self

    def _block(self, other: Any) -> None:
        if not self._await_turn(other):
            self.table.block(self.key, self, self.timeout)

    async def _suspend(self, other: Any) -> None:
        try:
            if not self._await_turn(other):
                await self.table.suspend(self.key, self, self.timeout)
        except BaseException:
            self._undo()
            raise
        self.table.acquired += 1


class ThreadGuard(Guard):
    """A guard of a registry that belongs to threads."""

    __slots__ = ()

    def __enter__(self) -> Any:
        table = self.table
        if self.claims is not None:
            raise in_use(self)
        claims = self.claims = table.claims
        self.owner = get_ident()
        try:
            other = claims.setdefault(self.key, self)
            if other is not self:
                self._block(other)
        except BaseException:
            self._undo()
            raise
        table.acquired += 1
        return self

    def __aenter__(self) -> Any:
        self.table.settle(running_loop())


class TaskGuard(Guard):
    """A guard of a registry that belongs to one event loop."""

    __slots__ = ()

    def __enter__(self) -> Any:
        self.table.settle(THREADS)

    def __aenter__(self) -> Any:
        table = self.table
        if self.claims is not None:
            raise in_use(self)
        me = task_of(table.home)
        if me is None or get_ident() != table.thread:
            me = table.settle_task()
        self.owner = me
        claims = self.claims = table.claims
        try:
            other = claims.setdefault(self.key, self)
            if other is not self:
                return self._suspend(other)
        except BaseException:
            self._undo()
            raise
        table.acquired += 1
        return READY


class SharedGuard(Guard):
    """A guard of a registry on which threads and several event loops wait together."""

    __slots__ = ()

    def __enter__(self) -> Any:
        if self.claims is not None:
            raise in_use(self)
        claims = self.claims = self.table.claims
        self.owner = caller()
        try:
            other = claims.setdefault(self.key, self)
            if other is not self:
                refuse_stall(self.table, self.key, self.owner, self.key)
                self._block(other)
        except BaseException:
            self._undo()
            raise
        self.table.acquired += 1
        return self

    def __aenter__(self) -> Any:
        if self.claims is not None:
            raise in_use(self)
        claims = self.claims = self.table.claims
        self.owner = caller()
        try:
            other = claims.setdefault(self.key, self)
            if other is not self:
                return self._suspend(other)
        except BaseException:
            self._undo()
            raise
        self.table.acquired += 1
        return READY


class ReentrantGuard(SharedGuard):
    """Its owner may enter again.  The first guard keeps the claim until the last one leaves."""

    __slots__ = ()

    def _settle(self, home: Any) -> None:
        if self.table.home is not SHARED:
            self.table.settle(home)

    def __enter__(self) -> Any:
        self._settle(THREADS)
        self.base, self.depth = self, 1
        return super().__enter__()

    def __aenter__(self) -> Any:
        self._settle(running_loop())
        self.base, self.depth = self, 1
        return super().__aenter__()

    def _meet(self, other: Any) -> Any:
        other = super()._meet(other)
        if other is self or other.owner != self.owner:
            return other
        other.depth += 1
        self.base = other
        return self

    def take(self) -> bool:
        self.base, self.depth = self, 1
        return super().take()

    def _undo(self) -> None:
        if self.claims is None or self.base is self:
            super()._undo()
        else:
            self.__exit__(None, None, None)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        if self.claims is None:
            raise errors.UsageError(f"this guard of {self.key!r} is not holding it")
        base, self.claims = self.base, None
        base.depth -= 1
        if not base.depth:
            self.table.leave(self.key, base)
        return READY

    __aexit__ = __exit__


def in_use(guard: Guard) -> errors.UsageError:
    return errors.UsageError(f"this guard of {guard.key!r} is in use; make one for each entry")
