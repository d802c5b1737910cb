"""Watching: every kept version in order, then live; never a silent jump.

A watcher pulls.  It holds no queue that could overflow: a slow one only lags behind, and
when retention passes it by it is told ``Gap``.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from perkey.errors import StoreClosed, StoreError, WrongColour
from perkey.store.limits import seconds
from perkey.store.record import Page
from perkey.store.views import Change, Gap, Synced, document

if TYPE_CHECKING:
    from perkey.store.abc import Backend
    from perkey.store.core import Core

Item = Change | Synced | Gap

POLL_S = 0.2
"""How often a watcher looks for commits of other processes, in seconds."""
PAGE = 256


class _Position:
    """Where a watcher stands, and what it has read but not yet handed out."""

    def __init__(self, prefix: str, after: str | None) -> None:
        self.prefix = prefix
        self.cursor = after
        self.ready: deque[Item] = deque()
        self.synced = False
        self._beginning = threading.Lock()
        self._failed: StoreError | None = None

    def begin(self, backend: Backend) -> None:
        """Stand behind all that is committed, unless it stands somewhere already."""
        if self._failed is not None:
            raise self._failed
        if self.cursor is None:
            cursor = backend.cursor(self.prefix)
            with self._beginning:  # a committer and a reader may both be here: the first wins
                if self.cursor is None:
                    self.cursor = cursor

    def begin_before_commit(self, backend: Backend) -> None:
        """``begin`` on the committer's side: an error is for whoever watches."""
        try:
            self.begin(backend)
        except StoreError as error:
            self._failed = error

    def look(self, backend: Backend) -> Page:
        """Read the next page."""
        self.begin(backend)
        assert self.cursor is not None
        return backend.changes(self.prefix, self.cursor, PAGE)

    def take(self, page: Page) -> None:
        """Queue what the page says."""
        if page.gap:
            self.ready.append(Gap(self.cursor or ""))
        for record, cursor in zip(page.records, page.cursors, strict=True):
            self.ready.append(Change(document(record), cursor))
        if page.records:
            self.synced = False
        self.cursor = page.cursor
        if page.live and not self.synced:
            self.synced = True
            self.ready.append(Synced(page.cursor))


def _left(end: float | None, core: Core) -> float:
    """Seconds until it is time to look again, or until ``end``; 0 or less: it has come."""
    return POLL_S if end is None else min(POLL_S, end - core.clock.monotonic())


class Watch:
    """An endless iterator of changes for threads.  Close it from anywhere to end it.

    Threads may share one: each item goes to one of them, in order.  Without ``after`` it
    begins at the moment of its opening.
    """

    def __init__(self, core: Core, prefix: str, after: str | None) -> None:
        self._core = core
        self._at = _Position(prefix, after)
        self._turn = threading.Lock()
        self._closed = False
        if after is None:
            core.read(self._at.begin)
        self._event = event = threading.Event()
        self._undo = core.on_commit(self, lambda _: event.set())

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> Item:
        item = self.next()
        if item is None:
            raise StopIteration
        return item

    def next(self, timeout: float | None = None) -> Item | None:
        """The next item, or None when closed or when ``timeout`` seconds brought nothing."""
        end = None if timeout is None else self._core.clock.monotonic() + seconds(timeout)
        while not self._turn.acquire(timeout=max(0.0, _left(end, self._core))):
            if self._closed or _left(end, self._core) <= 0:
                return None
        try:
            return self._next(end)
        finally:
            self._turn.release()

    def _next(self, end: float | None) -> Item | None:
        while not self._closed:
            self._event.clear()
            if not self._at.ready and not self._look():
                return None
            if self._at.ready:
                return self._at.ready.popleft()
            left = _left(end, self._core)
            if left <= 0:
                return None
            self._event.wait(left)
        return None

    def _look(self) -> bool:
        try:
            self._at.take(self._core.read(self._at.look))
        except StoreClosed:
            self.close()
            return False
        return True

    def close(self) -> None:
        """End the iteration, also for threads that are blocked in it."""
        self._closed = True
        self._undo()
        self._event.set()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Bell:
    """Wakes the one loop on which a watcher waits, from any thread."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self.rung = asyncio.Event()
        self.turn = asyncio.Lock()

    def ring(self, _: None = None) -> None:
        if self.loop is None:
            return
        try:
            self.loop.call_soon_threadsafe(self.rung.set)
        except RuntimeError:  # that loop is closed: nobody waits there any more
            return


class AsyncWatch:
    """An endless async iterator of changes.

    Tasks of one loop may share it: each item goes to one of them, in the order in which they
    asked.  Without ``after`` it begins where ``async with``, ``await`` or the first item finds
    the store, and in any case before the next commit that this process makes after opening it.
    """

    def __init__(self, core: Core, prefix: str, after: str | None) -> None:
        self._core = core
        self._at = _Position(prefix, after)
        self._closed = False
        self._bell = _Bell()
        if after is None and core.backend.blocking:
            core.before_commit(self, self._at.begin_before_commit)
        elif after is None:
            core.read(self._at.begin)
        self._undo = core.on_commit(self, self._bell.ring)

    def __aiter__(self) -> AsyncWatch:
        return self

    def __await__(self) -> Generator[Any, None, AsyncWatch]:
        return self.__aenter__().__await__()

    async def __anext__(self) -> Item:
        item = await self.next()
        if item is None:
            raise StopAsyncIteration
        return item

    async def next(self, timeout: float | None = None) -> Item | None:
        """The next item, or None when closed or when ``timeout`` seconds brought nothing."""
        end = None if timeout is None else self._core.clock.monotonic() + seconds(timeout)
        turn = self._turn_here()
        try:
            async with asyncio.timeout(timeout):
                await turn.acquire()
        except TimeoutError:
            return None
        try:
            return await self._next(end)
        finally:
            turn.release()

    def _turn_here(self) -> asyncio.Lock:
        loop, bell = asyncio.get_running_loop(), self._bell
        if bell.loop is not loop:
            if bell.loop is not None and not bell.loop.is_closed():
                raise WrongColour(
                    "this watch is in use on another event loop; open one of its own here, with "
                    "store.watch(prefix, after=cursor)"
                )
            bell.rung, bell.turn, bell.loop = asyncio.Event(), asyncio.Lock(), loop
        return bell.turn

    async def _next(self, end: float | None) -> Item | None:
        bell = self._bell
        while not self._closed:
            bell.rung.clear()
            if not self._at.ready and not await self._look():
                return None
            if self._at.ready:
                return self._at.ready.popleft()
            left = _left(end, self._core)
            if left <= 0:
                return None
            try:
                async with asyncio.timeout(left):
                    await bell.rung.wait()
            except TimeoutError:
                continue
        return None

    async def _look(self) -> bool:
        try:
            self._at.take(await self._core.read_async(self._at.look))
        except StoreClosed:
            self.close()
            return False
        return True

    def close(self) -> None:
        """End the iteration, also for tasks that wait in it."""
        self._closed = True
        self._undo()
        self._bell.ring()

    async def __aenter__(self) -> AsyncWatch:
        if self._at.cursor is None:
            await self._core.read_async(self._at.begin)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()
