"""Watching: every kept version in order, then live; never a silent jump.

A watcher pulls.  It holds no queue that could overflow: a slow one only lags behind, and
when retention passes it by it is told ``Gap``.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING

from perkey.errors import StoreClosed
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

    def look(self, backend: Backend) -> Page:
        """Read the next page; a watcher that began without ``after`` begins at the end."""
        if self.cursor is None:
            self.cursor = backend.cursor(self.prefix)
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


class Watch:
    """An endless iterator of changes for threads.  Close it from anywhere to end it."""

    def __init__(self, core: Core, prefix: str, after: str | None) -> None:
        self._core = core
        self._at = _Position(prefix, after)
        self._event = threading.Event()
        self._closed = False
        self._undo = core.on_commit(self._event.set)

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> Item:
        item = self.next()
        if item is None:
            raise StopIteration
        return item

    def next(self, timeout: float | None = None) -> Item | None:
        """The next item, or None when closed or when ``timeout`` seconds brought nothing."""
        end = None if timeout is None else self._core.clock.monotonic() + timeout
        while not self._closed:
            self._event.clear()
            if not self._at.ready and not self._look():
                return None
            if self._at.ready:
                return self._at.ready.popleft()
            left = POLL_S if end is None else min(POLL_S, end - self._core.clock.monotonic())
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
        """End the iteration, also for a thread that is blocked in it."""
        self._closed = True
        self._undo()
        self._event.set()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AsyncWatch:
    """An endless async iterator of changes."""

    def __init__(self, core: Core, prefix: str, after: str | None) -> None:
        self._core = core
        self._at = _Position(prefix, after)
        self._closed = False
        self._event: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._undo = core.on_commit(self._wake)

    def _wake(self) -> None:
        loop, event = self._loop, self._event
        if loop is None or event is None:
            return
        try:
            loop.call_soon_threadsafe(event.set)
        except RuntimeError:  # that loop is closed: nobody waits there any more
            self._undo()

    def __aiter__(self) -> AsyncWatch:
        return self

    async def __anext__(self) -> Item:
        item = await self.next()
        if item is None:
            raise StopAsyncIteration
        return item

    async def next(self, timeout: float | None = None) -> Item | None:
        """The next item, or None when closed or when ``timeout`` seconds brought nothing."""
        if self._event is None:
            self._event = asyncio.Event()
            self._loop = asyncio.get_running_loop()
        end = None if timeout is None else self._core.clock.monotonic() + timeout
        while not self._closed:
            self._event.clear()
            if not self._at.ready and not await self._look():
                return None
            if self._at.ready:
                return self._at.ready.popleft()
            left = POLL_S if end is None else min(POLL_S, end - self._core.clock.monotonic())
            if left <= 0:
                return None
            try:
                async with asyncio.timeout(left):
                    await self._event.wait()
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
        """End the iteration, also for a task that waits in it."""
        self._closed = True
        self._undo()
        self._wake()

    async def __aenter__(self) -> AsyncWatch:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()
