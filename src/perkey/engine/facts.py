"""What an engine tells its observers: frozen facts, through bounded queues."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that happened in an engine."""

    kind: str
    """engine | registered | unregistered | started | step | delivered | ended | dead-letter"""
    key: str = ""
    version: int = 0
    instance: str = ""
    detail: str = ""


Observer = Callable[[Fact], Any] | Callable[[Fact], Awaitable[Any]]


class Subscription:
    """One observer and its queue.  A slow one loses facts, which are counted; a raising one is
    counted too; neither is felt by the engine."""

    def __init__(self, observer: Observer, limit: int, instance: str = "") -> None:
        """``instance``: only facts about this one."""
        self._observer = observer
        self._instance = instance
        self._limit = limit
        self._queue: deque[Fact] = deque()
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0
        self.errors = 0

    def offer(self, fact: Fact) -> None:
        """Queue a fact, or count it as dropped."""
        if self._instance and fact.instance != self._instance:
            return
        if len(self._queue) >= self._limit:
            self.dropped += 1
            return
        self._queue.append(fact)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        while self._queue:
            fact = self._queue.popleft()
            try:
                if inspect.iscoroutinefunction(self._observer):
                    await self._observer(fact)
                else:
                    await asyncio.to_thread(self._observer, fact)
            except Exception:
                self.errors += 1

    async def flush(self) -> None:
        """Return when everything queued so far has been handed over."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def cancel(self) -> None:
        """Receive nothing more."""
        self._limit = 0
        self._queue.clear()


class Facts:
    """All subscriptions of one engine."""

    def __init__(self) -> None:
        self._subscriptions: list[Subscription] = []

    @property
    def heard(self) -> bool:
        """Whether anybody listens."""
        return bool(self._subscriptions)

    def observe(self, observer: Observer, limit: int, instance: str = "") -> Subscription:
        """Send every later fact, perhaps of one instance only, to ``observer``."""
        subscription = Subscription(observer, limit, instance)
        self._subscriptions.append(subscription)
        return subscription

    def tell(
        self, kind: str, key: str = "", version: int = 0, instance: str = "", detail: str = ""
    ) -> None:
        """Offer a fact to every subscription."""
        if self._subscriptions:
            fact = Fact(kind, key, version, instance, detail)
            for subscription in self._subscriptions:
                subscription.offer(fact)
