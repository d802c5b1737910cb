"""What was committed, read once for all event streams of a server.

One task follows the store and keeps the latest changes in a ring.  A stream has no queue that
could overflow: it stands at a cursor and pulls.  Where its cursor is in the ring it reads from
there; where it is not, because it is slow or comes back after a while, it reads the store, and
is told of a gap only where retention dropped what it had not seen.

While there is no stream, a commit wakes nobody: the store is looked at a few times a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress

import msgspec

from perkey.errors import PerkeyError, StoreClosed, UsageError
from perkey.flows import steps
from perkey.store.keys import Key
from perkey.store.record import Page, Record
from perkey.store.transaction import Outcome, Tx
from perkey.stores import AsyncStore

RING = 4096
"""How many changes are kept in memory."""
PAGE = 256
POLL_S = 0.2
"""How often the store is asked for commits of other processes, in seconds."""
STREAM = Key("q/stream")
"""The record that names this store to its streams, so that a cursor of another one is known."""

_log = logging.getLogger("perkey.server")


class Feed:
    """The changes of one store, in order, each with the cursor right behind it."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        # Files have no order of commits over keys, and list what they are asked for.
        self._prefix = "d/" if store.backend.name == "files" else ""
        self._ring: deque[tuple[str, Record]] = deque()
        self._first = 1
        """The number of the ring's oldest change; numbers count from the feed's start."""
        self._numbers: dict[str, int] = {}
        """Cursor -> the number of the change right before it."""
        self._wakers: set[asyncio.Event] = set()
        self._awake = asyncio.Event()
        self._looking = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.epoch = ""
        self.cursor = ""
        """Behind the latest change that the feed has seen."""
        self._looked = ""
        """How far the store has been read: it may have passed what is no change."""
        self.stopping = False

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Begin to follow the store."""
        self.epoch = await self._store.run(_epoch(self._store.core.clock.token()))
        self.cursor = await self._store.core.read_async(lambda each: each.cursor(self._prefix))
        self._looked = self.cursor
        self._numbers[self.cursor] = 0
        loop, awake, wakers = asyncio.get_running_loop(), self._awake, self._wakers

        def committed(_: None) -> None:
            if wakers:
                with suppress(RuntimeError):  # that loop is closed, and the feed with it
                    loop.call_soon_threadsafe(awake.set)

        undo = self._store.core.on_commit(self, committed)
        self._task = asyncio.create_task(self._follow())
        self._task.add_done_callback(lambda task: undo())

    def stop(self) -> None:
        """Let every stream end.  More than once is harmless."""
        self.stopping = True
        if self._task is not None:
            self._task.cancel()
        self._wake()

    async def ended(self) -> None:
        """Wait until nothing of the feed runs any more."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _follow(self) -> None:
        while not self.stopping:
            self._awake.clear()
            try:
                live = await self._look()
            except StoreClosed:
                return
            if not live:
                continue
            try:
                async with asyncio.timeout(POLL_S):
                    await self._awake.wait()
            except TimeoutError:
                continue

    async def _look(self) -> bool:
        """Take in the next page; whether it was the last for now."""
        async with self._looking:
            try:
                page = await self._read(self._looked)
            except StoreClosed:
                raise
            except PerkeyError as error:
                _log.warning("the event feed cannot read the store, it tries again: %s", error)
                return True
            self._take(page)
            return page.live

    async def catch_up(self) -> None:
        """Take in all that is committed by now, where the store can be read."""
        with suppress(StoreClosed):
            while not await self._look():
                pass

    def _take(self, page: Page) -> None:
        if page.gap:
            self._begin_again(page.cursor)
        self._looked = page.cursor
        for record, cursor in zip(page.records, page.cursors, strict=True):
            self._ring.append((cursor, _without_value(record)))
            self._numbers[cursor] = self._first + len(self._ring) - 1
        if page.records:
            self.cursor = page.cursors[-1]
        while len(self._ring) > RING:
            self._ring.popleft()
            self._numbers.pop(next(iter(self._numbers)))
            self._first += 1
        if page.records or page.gap:
            self._wake()

    def _begin_again(self, cursor: str) -> None:
        """Forget the ring: retention was faster than the feed, and whoever stands before the
        gap must ask the store, which tells of it."""
        self._first += len(self._ring)
        self._ring.clear()
        self._numbers.clear()
        self.cursor = cursor

    def _wake(self) -> None:
        for waker in self._wakers:
            waker.set()

    async def _read(self, cursor: str) -> Page:
        return await self._store.core.read_async(
            lambda backend: backend.changes(self._prefix, cursor, PAGE)
        )

    # ------------------------------------------------------------------ streams

    def join(self, waker: asyncio.Event) -> None:
        """Set ``waker`` at each new change, and when the feed stops."""
        self._wakers.add(waker)
        self._awake.set()  # while there was none, commits woke nobody

    def leave(self, waker: asyncio.Event) -> None:
        """Undo ``join``."""
        self._wakers.discard(waker)

    @property
    def streams(self) -> int:
        """How many streams have joined."""
        return len(self._wakers)

    @property
    def seen(self) -> int:
        """How many changes it has seen since it started, whoever made them."""
        return self._first + len(self._ring) - 1

    def latest(self) -> list[Record]:
        """The changes in the ring, newest first, without their values."""
        return [record for _, record in reversed(self._ring)]

    def identified(self, cursor: str) -> str:
        """A cursor as an event's id."""
        return f"{self.epoch}.{cursor}"

    async def position(self, last: str) -> str | None:
        """The cursor that an event's id names; None where this store never gave it out."""
        epoch, dot, cursor = last.partition(".")
        if not dot or epoch != self.epoch:
            return None
        if cursor in self._numbers:
            return cursor
        try:
            await self._read(cursor)
        except UsageError:
            return None
        # A store that was put back from a copy of earlier days is behind what it told then.
        known = self._looked
        numbers = cursor.isdecimal() and known.isdecimal()
        return None if numbers and int(cursor) > int(known) else cursor

    async def after(self, cursor: str) -> Page:
        """The changes behind ``cursor``, as many as fit a page."""
        number = self._numbers.get(cursor)
        if number is None:
            return await self._read(cursor)
        start = number + 1 - self._first
        count = min(PAGE, len(self._ring) - start)
        found = [self._ring[start + n] for n in range(count)]
        cursors = [each for each, _ in found]
        end = cursors[-1] if cursors else cursor
        return Page([record for _, record in found], cursors, end, live=end == self.cursor)


def _without_value(record: Record) -> Record:
    """What streams tell of a record: the ring must not hold thousands of large values."""
    return record if record.body is None else msgspec.structs.replace(record, body=b"", ops="")


def _epoch(fresh: str) -> steps.Flow[str]:
    """The store's name for its streams, made once."""

    def name(tx: Tx) -> str:
        if STREAM not in tx:
            tx[STREAM] = fresh
        return str(tx[STREAM])

    outcome: Outcome = yield steps.Transact((STREAM,), name)
    return str(outcome.result)
