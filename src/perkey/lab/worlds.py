"""One source, three worlds: an exploration, an ordinary asyncio loop, ordinary threads.

``io`` is where a scenario meets the outside, and where others may run.  In an exploration it
is a step point; on an ordinary loop it gives way once; on a thread it gives way to other
threads.  In a stress test the ``Weather`` decides at random which of them fail, and how long
callers dawdle.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

from perkey.clock import SYSTEM
from perkey.testing import VirtualClock, step

T = TypeVar("T")

FAIL_SHARE = 0.3
"""How many of the saves that may fail do so in a stress test."""

DAWDLE = 4
"""A jittered caller lets the others go first fewer than this many times."""


class Weather:
    """What happens to the callers of a stress test, decided by one seed."""

    def __init__(self, jitter: bool, seed: int = 1) -> None:
        self.jitter = jitter
        self.chance = VirtualClock(seed=seed)

    def fails(self) -> bool:
        """Whether this save fails."""
        return self.chance.random() < FAIL_SHARE

    def turns(self) -> int:
        """How many turns of the loop the caller waits here."""
        return int(self.chance.random() * DAWDLE) if self.jitter else 0


WEATHER: ContextVar[Weather | None] = ContextVar("WEATHER", default=None)


def on_a_loop() -> bool:
    """Whether this code runs on an event loop, explored or ordinary."""
    return asyncio._get_running_loop() is not None


async def io(name: str, fails: type[Exception] | None = None) -> None:
    """Be outside for a while: a request to a disk, a server, a model.

    ``fails`` is what it raises when it fails; None: it does not fail.
    """
    loop = asyncio._get_running_loop()
    if hasattr(loop, "points"):
        await step(name, error=fails)
        return
    weather = WEATHER.get()
    if loop is None:
        SYSTEM.sleep(0)
    else:
        await asyncio.sleep(0)
        for _ in range(weather.turns() if weather else 0):
            await asyncio.sleep(0)
    if fails is not None and weather is not None and weather.fails():
        raise fails(f"{name} failed")


class ThreadLock:
    """``threading.Lock`` in the clothes of ``asyncio.Lock``, for callers driven on threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def locked(self) -> bool:
        """Whether somebody holds it."""
        return self._lock.locked()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(self, *exc: object) -> None:
        self._lock.release()


def new_lock() -> Any:
    """A plain lock of the world that this code runs in."""
    return asyncio.Lock() if on_a_loop() else ThreadLock()


class Entered:
    """A perkey guard, entered as the world demands: awaited on a loop, blocking on a thread."""

    def __init__(self, guard: Any) -> None:
        self._guard = guard

    async def __aenter__(self) -> None:
        if on_a_loop():
            await self._guard.__aenter__()
        else:
            self._guard.__enter__()

    async def __aexit__(self, *exc: Any) -> None:
        if on_a_loop():
            await self._guard.__aexit__(*exc)
        else:
            self._guard.__exit__(*exc)


def drive(coro: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on this thread; on a thread nothing in it ever suspends."""
    try:
        coro.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coro.close()
    raise RuntimeError("expected a coroutine that never waits, found one that does")
