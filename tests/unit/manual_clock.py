"""A clock that only moves when a test says so, or when somebody sleeps on it."""

from __future__ import annotations

from collections.abc import Callable

import perkey
from perkey.store.backends.memory import MemoryBackend
from perkey.stores import AsyncStore, Store


class ManualClock:
    """``wall`` may be set apart from ``elapsed``, as when somebody sets a machine's clock."""

    def __init__(self) -> None:
        self.elapsed = 1000.0
        self.wall = 1_700_000_000_000
        self.slept: list[float] = []
        self.on_sleep: Callable[[], None] = lambda: None
        self._tokens = 0

    def now_ms(self) -> int:
        return self.wall

    def monotonic(self) -> float:
        return self.elapsed

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.elapsed += seconds
        self.on_sleep()

    def random(self) -> float:
        return 0.5

    def token(self) -> str:
        self._tokens += 1
        return f"t{self._tokens}"


def memory_store(clock: ManualClock, limits: perkey.Limits | None = None) -> Store:
    """A store in memory whose time is ``clock``'s; every function runs twice (``strict``)."""
    return Store(MemoryBackend(limits, clock), clock=clock, strict=True)


def async_memory_store(clock: ManualClock, limits: perkey.Limits | None = None) -> AsyncStore:
    """The same for asyncio; its sleeps are the loop's own."""
    return AsyncStore(MemoryBackend(limits, clock), clock=clock)
