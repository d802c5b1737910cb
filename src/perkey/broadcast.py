"""An in-process sink: every subscriber has a bounded queue of its own.

A subscriber that does not keep up never slows the publisher down and never loses messages
unawares: what is queued for it is thrown away, and the next thing it gets is ``Dropped``,
which says to read the snapshot again.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from perkey.errors import LimitExceeded, Timeout


@dataclass(frozen=True, slots=True)
class Message:
    """What a key looks like, and the version of its record where it has one."""

    key: Any
    value: Any
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """``missed`` messages were thrown away: read the snapshot again; what follows is newer."""

    missed: int


class Broadcast:
    """A sink for ``Publisher(load, broadcast.send)``, for threads and event loops alike."""

    def __init__(self, queue: int = 1000, subscribers: int = 10_000) -> None:
        """At most ``queue`` messages wait for one subscriber."""
        self._queue = queue
        self._limit = subscribers
        self._subscribers: dict[int, Subscription] = {}
        self._mutex = threading.Lock()

    def send(self, key: Hashable, snapshot: Any) -> None:
        """Queue a message for every subscriber; never waits.

        Its version is the snapshot's ``version`` attribute, if there is one.
        """
        message = Message(key, snapshot, getattr(snapshot, "version", None))
        for subscriber in list(self._subscribers.values()):
            subscriber._put(message)

    def subscribe(self) -> Subscription:
        """A new subscriber, who gets what is sent from now on."""
        with self._mutex:
            if len(self._subscribers) >= self._limit:
                raise LimitExceeded(
                    f"{len(self._subscribers)} subscribers and the limit is {self._limit}",
                    limit=self._limit,
                )
            subscription = Subscription(self._queue, self._leave)
            self._subscribers[id(subscription)] = subscription
            return subscription

    def _leave(self, subscription: Subscription) -> None:
        with self._mutex:
            self._subscribers.pop(id(subscription), None)

    def __len__(self) -> int:
        return len(self._subscribers)


class Subscription:
    """One subscriber.  Iterate it, with ``for`` in a thread or ``async for`` on a loop."""

    def __init__(self, limit: int, leave: Callable[[Subscription], None]) -> None:
        self._limit = limit
        self._leave = leave
        self._messages: deque[Message] = deque()
        self._missed = 0
        self._open = True
        self._changed = threading.Condition()
        self._wakers: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def _put(self, message: Message) -> None:
        with self._changed:
            if not self._open:
                return
            if self._missed or len(self._messages) >= self._limit:
                self._missed += len(self._messages) + 1
                self._messages.clear()
            else:
                self._messages.append(message)
            self._notify()

    def _notify(self) -> None:
        self._changed.notify_all()
        for loop, event in list(self._wakers):
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    def _take(self) -> Message | Dropped | None:
        """The next thing; None if there is nothing yet.  Call it with the condition held."""
        if self._missed:
            dropped, self._missed = Dropped(self._missed), 0
            return dropped
        return self._messages.popleft() if self._messages else None

    def get(self, timeout: float | None = None) -> Message | Dropped | None:
        """The next message, blocking; None when the subscription is closed.

        Raises ``Timeout`` after ``timeout`` seconds without one.
        """
        with self._changed:
            ready = self._changed.wait_for(self._ready, timeout)
            if not ready:
                raise Timeout(f"no message within {timeout} s")
            return self._take()

    def _ready(self) -> bool:
        return bool(self._messages or self._missed or not self._open)

    async def get_async(self) -> Message | Dropped | None:
        """The next message; None when the subscription is closed."""
        waker = (asyncio.get_running_loop(), asyncio.Event())
        try:
            while True:
                with self._changed:
                    waker[1].clear()
                    if self._ready():
                        return self._take()
                    self._wakers.add(waker)
                await waker[1].wait()
        finally:
            self._wakers.discard(waker)

    def close(self) -> None:
        """Get no more messages.  What is queued can still be taken."""
        self._leave(self)
        with self._changed:
            self._open = False
            self._notify()

    def __iter__(self) -> Iterator[Message | Dropped]:
        while (message := self.get()) is not None:
            yield message

    async def __aiter__(self) -> AsyncIterator[Message | Dropped]:
        while (message := await self.get_async()) is not None:
            yield message

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
