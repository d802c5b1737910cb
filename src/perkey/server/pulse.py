"""What the store's counters did in the last minutes, one sample a second, for live charts."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any

import msgspec

from perkey.clock import Clock
from perkey.server.feed import Feed
from perkey.server.metrics import Meters
from perkey.stores import AsyncStore

EVERY_S = 1.0
KEPT = 300
"""How many samples are kept: five minutes."""


class Sample(msgspec.Struct, frozen=True):
    """Counters since the server started, as they stood at a moment."""

    at: int
    """Milliseconds since the epoch."""
    commits: int
    conflicts: int
    retries: int
    merges: int
    stale: int
    """Overwrites of versions that their author had not read."""
    replays: int
    changes: int
    """Versions that any process wrote, as the feed saw them."""
    requests: int
    """Answered, pages not counted."""


class Pulse:
    """Takes the samples, and keeps the latest of them."""

    def __init__(self, store: AsyncStore, feed: Feed, meters: Meters, clock: Clock) -> None:
        self._store = store
        self._feed = feed
        self._meters = meters
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self.wakers: set[asyncio.Event] = set()
        """Set at each new sample."""
        self.samples: deque[Sample] = deque(maxlen=KEPT)
        self.began = clock.now_ms()

    def start(self) -> None:
        """Begin to take samples."""
        self.samples.append(self.now())
        self._task = asyncio.create_task(self._beat())

    async def stop(self) -> None:
        """Take no more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            self.samples.append(self.now())
            for waker in self.wakers:
                waker.set()

    def now(self) -> Sample:
        """The counters at this moment."""
        found: dict[str, Any] = self._store.statistics()
        events: dict[str, int] = found["events"]
        attempts: dict[int, int] = found["attempts"]
        counted = self._meters.requests.items()
        return Sample(
            at=self._clock.now_ms(),
            commits=events.get("Committed", 0),
            conflicts=events.get("Conflicted", 0),
            retries=sum((tried - 1) * times for tried, times in attempts.items()),
            merges=events.get("Merged", 0),
            stale=events.get("StaleOverwrite", 0),
            replays=events.get("Replayed", 0),
            changes=self._feed.seen,
            requests=sum(n for (_, path, _), n in counted if not path.startswith("/ui")),
        )

    def after(self, at: int) -> list[Sample]:
        """The samples behind that moment."""
        return [each for each in self.samples if each.at > at]
