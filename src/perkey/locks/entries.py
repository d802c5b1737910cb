"""What ``sections(key)`` returns: the way into one section, remembered for one key.

An entry is made once for a key and used by everybody, so it carries no state of a single
acquisition.  The claim on a section is the identity of its owner: an owner may be in one
section of an array at a time, so its identity is a token that nobody else can have.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Hashable
from typing import Any

from perkey import errors
from perkey.locks.abandoned import is_ours, stack
from perkey.locks.owner import caller, describe, ended, get_ident, running_loop, task_of
from perkey.locks.ready import Ready
from perkey.locks.table import NOBODY, READY, SHARED, THREADS, Table, refuse_stall
from perkey.locks.where import entered_at


class Section:
    """One section of an array: who came in last, and how often somebody came in."""

    __slots__ = ("count", "entry")

    def __init__(self) -> None:
        self.count = 0
        self.entry: Any = None


class Entry:
    """What the checked entries share."""

    __slots__ = (
        "array",
        "claims",
        "index",
        "inside",
        "key",
        "queues",
        "section",
        "table",
        "timeout",
    )

    def __init__(
        self, array: Any, table: Table, section: Section, index: int, key: Hashable
    ) -> None:
        self.array = array
        self.table = table
        self.claims = table.claims
        self.queues = table.queues
        self.section = section
        self.index = index
        self.key = key
        self.timeout: float | None = None
        # Who is where: with many tasks inside, searching the claims would take too long.
        self.inside = array.inside

    def __enter__(self) -> Any:
        self.array.settle(THREADS)
        return thread_enter(self)()

    def __aenter__(self) -> Any:
        self.array.settle(asyncio.get_running_loop())
        self.__class__ = TaskEntry
        return self.__aenter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        queues = self.queues
        if not queues:
            try:
                self.inside.pop(self.claims.pop(self.index), None)
            except KeyError:
                raise not_held(self.index) from None
            if queues:  # somebody joined meanwhile
                self.table.leave(self.index, NOBODY)
            return READY
        token = self.claims.get(self.index)
        if token is None:
            raise not_held(self.index)
        self.inside.pop(token, None)
        self.table.leave(self.index, token)
        return READY

    __aexit__ = __exit__

    def owner(self) -> Any:
        return get_ident() if self.table.home is THREADS else caller()

    def take(self) -> bool:
        """Enter if the section is free; never waits."""
        me = self.owner()
        self.check(me)
        if self.claims.setdefault(self.index, me) is not me and not self.recovered(me):
            self.table.skipped += 1
            return False
        self.entered(me)
        return True

    def entered(self, me: Any) -> None:
        self.section.entry = self
        self.section.count += 1

    def check(self, me: Any) -> None:
        """Raise if ``me`` is in a section of this array, free to enter or not."""
        for index, token in list(self.table.claims.items()):
            if token == me and not self.freed(index, token):
                raise nested(self, index, me)

    def recovered(self, me: Any) -> bool:
        """True if the section was held by a task that ended, or by us, and never left."""
        token = self.claims.get(self.index)
        if not (ended(token) or token == me) or not self.freed(self.index, token):
            return False
        return self.claims.setdefault(self.index, me) is me

    def freed(self, index: int, token: Any) -> bool:
        """Free a section whose holder is gone for good; False if it is not."""
        if not self.array.suspect(index, token):
            return False
        self.table.leave(index, token)
        return True


class ThreadEntry(Entry, metaclass=Ready):
    """An entry of an array that belongs to threads."""

    __slots__ = ("__enter__", "__exit__")

    def __init__(self, *where: Any) -> None:
        super().__init__(*where)
        self.__enter__ = thread_enter(self)  # type: ignore[method-assign]
        self.__exit__ = thread_exit(self)  # type: ignore[method-assign]

    def __aenter__(self) -> Any:
        self.table.settle(running_loop())


def thread_enter(self: Entry) -> Callable[[], Any]:
    """What enters the section of an entry."""
    table, claims, section, index = self.table, self.claims, self.section, self.index

    def __enter__() -> Any:
        me = get_ident()
        if claims:
            self.check(me)
        try:
            if claims.setdefault(index, me) is not me:
                table.block(index, me, self.timeout, self)
            section.entry = self
            section.count += 1
        except BaseException:
            table.leave(index, me)
            raise
        return self

    return __enter__


def thread_exit(entry: Entry) -> Callable[..., None]:
    """What leaves it.  It does not refer to the entry, or the two would never let go."""
    table, claims, queues, index = entry.table, entry.claims, entry.queues, entry.index

    def __exit__(kind: Any, error: Any, trace: Any) -> None:
        if not queues:
            try:
                del claims[index]
            except KeyError:
                raise not_held(index) from None
            if queues:  # somebody joined meanwhile
                table.leave(index, NOBODY)
            return
        token = claims.get(index)
        if token is None:
            raise not_held(index)
        table.leave(index, token)

    return __exit__


class TaskEntry(Entry):
    """An entry of an array that belongs to one event loop."""

    __slots__ = ()

    def __enter__(self) -> Any:
        self.table.settle(THREADS)

    def __aenter__(self) -> Any:
        table = self.table
        me = task_of(table.home)
        if me is None or get_ident() != table.thread:
            me = table.settle_task()
        inside = self.inside
        if me in inside:
            self.check(me)
        try:
            if self.claims.setdefault(self.index, me) is not me:
                return self.suspend(me)
            inside[me] = self.index
            section = self.section
            section.entry = self
            section.count += 1
        except BaseException:
            table.leave(self.index, me)
            raise
        return READY

    async def suspend(self, me: Any) -> None:
        if not self.recovered(me):
            await self.table.suspend(self.index, me, self.timeout, self)
        self.entered(me)

    def entered(self, me: Any) -> None:
        self.inside[me] = self.index
        super().entered(me)

    def check(self, me: Any) -> None:
        index = self.inside.get(me)
        if index is None:
            return
        if self.table.claims.get(index) == me and not self.freed(index, me):
            raise nested(self, index, me)
        self.inside.pop(me, None)

    def freed(self, index: int, token: Any) -> bool:
        if not super().freed(index, token):
            return False
        self.inside.pop(token, None)
        return True


class SharedEntry(TaskEntry):
    """An entry of an array on which threads and several event loops wait together."""

    __slots__ = ()

    def __enter__(self) -> Any:
        me = caller()
        self.check(me)
        try:
            if self.claims.setdefault(self.index, me) is not me and not self.recovered(me):
                refuse_stall(self.table, self.index, me, self.key)
                self.table.block(self.index, me, self.timeout, self)
            self.entered(me)
        except BaseException:
            self.inside.pop(me, None)
            self.table.leave(self.index, me)
            raise
        return self

    def __aenter__(self) -> Any:
        me = caller()
        self.check(me)
        if self.claims.setdefault(self.index, me) is not me:
            return self.suspend(me)
        self.entered(me)
        return READY


class Several:
    """``many``: the sections of several keys, entered in the order of their numbers."""

    __slots__ = ("_entered", "_entries", "_me", "_timeout")

    def __init__(self, entries: list[Any], timeout: float | None) -> None:
        self._entries = entries
        self._timeout = timeout
        self._entered: list[Any] = []
        self._me: Any = None

    def _begin(self, home: Any) -> float | None:
        first = self._entries[0]
        if first.table.home is not SHARED:
            first.table.settle(home)
        self._me = first.owner()
        first.check(self._me)
        return None if self._timeout is None else first.table.clock.monotonic() + self._timeout

    def _left(self, deadline: float | None) -> float | None:
        if deadline is None:
            return None
        return float(max(0.0, deadline - self._entries[0].table.clock.monotonic()))

    def __enter__(self) -> Several:
        if not self._entries:
            return self
        deadline, me = self._begin(THREADS), self._me
        try:
            for entry in self._entries:
                if entry.claims.setdefault(entry.index, me) is not me:
                    refuse_stall(entry.table, entry.index, me, entry.key)
                    entry.table.block(entry.index, me, self._left(deadline), entry)
                self._entered.append(entry)
                entry.entered(me)
        except BaseException:
            self.__exit__()
            raise
        return self

    async def __aenter__(self) -> Several:
        if not self._entries:
            return self
        deadline, me = self._begin(running_loop()), self._me
        try:
            for entry in self._entries:
                if entry.claims.setdefault(entry.index, me) is not me:
                    await entry.table.suspend(entry.index, me, self._left(deadline), entry)
                self._entered.append(entry)
                entry.entered(me)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        while self._entered:
            self._entered.pop().__exit__(None, None, None)

    async def __aexit__(self, *error: object) -> None:
        self.__exit__()


def nested(entry: Entry, index: int, me: Any) -> errors.NestedSection:
    """The error that names both keys, both sections and where the first was taken."""
    first = entry.array.sections[index].entry
    first_key = None if first is None else first.key
    taken = entered_at(stack(sys._getframe(1)), entry.array, is_ours) or "an unknown place"
    return errors.NestedSection(
        f"{describe(me)} is in section {index} for key {first_key!r}, taken at {taken}, and may "
        f"not enter section {entry.index} for key {entry.key!r} as well: two that did so in "
        "turn would wait for each other. Take both at once with many()",
        key=entry.key,
        section=entry.index,
        first_key=first_key,
        first_section=index,
        first_taken=taken,
        owner=describe(me),
    )


def not_held(index: int) -> errors.UsageError:
    return errors.UsageError(f"section {index} is not held; only its guard releases it, once")
