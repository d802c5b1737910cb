"""Watching: every kept version in order, then live; never a silent jump.

A watcher pulls.  It holds no queue that could overflow: a slow one only lags behind, and
when retention passes it by it is told ``Gap``.  A store that cannot be reached is asked again,
after pauses that grow, for ``Limits.timeout_s`` or until the caller's own timeout; then the error
is raised.  That ends nothing: the next call goes on from where the watcher stands.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from perkey.errors import StoreClosed, StoreError, StoreUnavailable, WrongColour
from perkey.store.limits import backoff, seconds
from perkey.store.record import Page
from perkey.store.views import Change, Gap, Synced, document

if TYPE_CHECKING:
    from perkey.store.abc import Backend
    from perkey.store.core import Core

Item = Change | Synced | Gap

POLL_S = 0.2
"""How often a watcher looks for commits of other processes, in seconds."""
PAGE = 256
LONGEST_PAUSE_S = 2.0
"""The longest pause between two tries to reach a store that has gone away."""


class _Position:
    """Where a watcher stands, and what it has read but not yet handed out."""

    def __init__(self, prefix: str, after: str | None) -> None:
        self.prefix = prefix
        self.cursor = after
        self.ready: deque[Item] = deque()
        self.synced = False
        self.pause = POLL_S
        """How long to wait before the next look, in seconds."""
        self._beginning = threading.Lock()
        self._late = False
        """Whether a commit was made before a place could be found."""
        self._tries = 0
        self._until = 0.0

    def begin(self, backend: Backend) -> None:
        """Stand behind all that is committed, unless it stands somewhere already."""
        if self.cursor is None:
            cursor = backend.cursor(self.prefix)
            with self._beginning:  # a committer and a reader may both be here: the first wins
                if self.cursor is None:
                    self.cursor = cursor
                    if self._late:
                        self.ready.append(Gap(cursor))

    def begin_before_commit(self, backend: Backend) -> None:
        """``begin`` on the committer's side.  An error is no business of who writes; but what is
        committed now may be behind the place that is found later, so the watcher is told."""
        try:
            self.begin(backend)
        except StoreError:
            with self._beginning:
                self._late = self.cursor is None

    def missed(self, error: StoreUnavailable, core: Core, end: float | None) -> None:
        """The store could not be read: set a pause, or raise ``error`` where the time is up."""
        now = core.clock.monotonic()
        if not self._tries:
            self._until = now + core.limits.timeout_s
        self._tries += 1
        pause = backoff(self._tries, core.limits, core.clock.random())
        self.pause = min(pause, LONGEST_PAUSE_S)
        if now + self.pause >= (self._until if end is None else min(self._until, end)):
            self._tries = 0
            self.pause = POLL_S
            raise error

    def look(self, backend: Backend) -> Page:
        """Read the next page."""
        self.begin(backend)
        assert self.cursor is not None
        return backend.changes(self.prefix, self.cursor, PAGE)

    def take(self, page: Page) -> None:
        """Queue what the page says."""
        self._tries, self.pause = 0, POLL_S
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


def _left(end: float | None, core: Core, pause: float = POLL_S) -> float:
    """Seconds until it is time to look again, or until ``end``; 0 or less: it has come."""
    return pause if end is None else min(pause, end - core.clock.monotonic())


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
        """The next item, or None when closed or when ``timeout`` seconds brought nothing.

        Raises ``StoreUnavailable`` when the store cannot be reached for ``timeout`` seconds, at
        most ``Limits.timeout_s``; call again to go on where it stands.
        """
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
            if not self._at.ready and not self._look(end):
                return None
            if self._at.ready:
                return self._at.ready.popleft()
            left = _left(end, self._core, self._at.pause)
            if left <= 0:
                return None
            self._event.wait(left)
        return None

    def _look(self, end: float | None) -> bool:
        try:
            self._at.take(self._core.read(self._at.look))
        except StoreClosed:
            self.close()
            return False
        except StoreUnavailable as error:
            self._at.missed(error, self._core, end)
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
        """The next item, or None when closed or when ``timeout`` seconds brought nothing.

        Raises ``StoreUnavailable`` when the store cannot be reached for ``timeout`` seconds, at
        most ``Limits.timeout_s``; call again to go on where it stands.
        """
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
            if not self._at.ready and not await self._look(end):
                return None
            if self._at.ready:
                return self._at.ready.popleft()
            left = _left(end, self._core, self._at.pause)
            if left <= 0:
                return None
            try:
                async with asyncio.timeout(left):
                    await bell.rung.wait()
            except TimeoutError:
                continue
        return None

    async def _look(self, end: float | None) -> bool:
        try:
            self._at.take(await self._core.read_async(self._at.look))
        except StoreClosed:
            self.close()
            return False
        except StoreUnavailable as error:
            self._at.missed(error, self._core, end)
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
