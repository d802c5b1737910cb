"""Hours of work in a moment: ordinary async code on the explorer's loop, whose time is virtual."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from perkey.testing import VirtualClock
from perkey.testing.loop import Loop

T = TypeVar("T")


class LoopClock(VirtualClock):
    """A ``Clock`` whose time is the running loop's, and whose chance comes from a seed."""

    def now_ms(self) -> int:
        """Milliseconds since the loop began."""
        return int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        """Seconds since the loop began."""
        return asyncio.get_running_loop().time()


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run ``main()`` to its end, first come, first served; a sleep takes no time at all."""
    before = asyncio._get_running_loop()
    loop: Any = Loop()
    asyncio._set_running_loop(loop)
    try:
        task: asyncio.Task[T] = loop.start(main(), "main")
        while not task.done():
            move = loop.next_in_order()
            if move is None:
                raise RuntimeError("everybody waits, and nothing can happen any more")
            loop.make(move)
        return task.result()
    finally:
        loop.dispose()
        asyncio._set_running_loop(before)
