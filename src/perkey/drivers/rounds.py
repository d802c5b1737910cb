"""What many tasks of one loop ask for in the same round of it, asked for together.

A round is what a loop does between two looks at its clock: every task that was ready takes one
step.  Hundreds of tasks that were answered by one commit come back in one round; what they ask
for then can share a transaction, so that its price is paid once for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

W = TypeVar("W")
A = TypeVar("A")


class Rounds(Generic[W, A]):
    """The callers of one loop, in the order they came.  Belongs to that loop's thread alone."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        cut: Callable[[Sequence[W]], list[list[W]]],
        serve: Callable[[Sequence[W]], Coroutine[Any, Any, list[A | None]]],
    ) -> None:
        """``cut`` says which neighbours may be asked for together; ``serve`` asks, and returns
        an answer for each, or None for one that must be tried alone."""
        self.loop = loop
        self.callers = 0
        """How many are between their call and its answer; counted by whoever owns this."""
        self._cut = cut
        self._serve = serve
        self._wishes: list[W | None] = []
        self._futures: list[asyncio.Future[A | None]] = []
        self._running: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> bool:
        """Whether somebody has asked in this round, and so comes before who asks now."""
        return bool(self._futures)

    async def ask(self, wish: W | None) -> A | None:
        """The answer to ``wish``; None says that the caller has to see to it alone, now.

        Without a wish it only waits until those before it have been served.  Cancelled before
        the round is over, nothing was asked for; later, nobody knows.
        """
        if not self._futures:
            self.loop.call_soon(self._over)
        future: asyncio.Future[A | None] = self.loop.create_future()
        self._wishes.append(wish)
        self._futures.append(future)
        return await future

    def _over(self) -> None:
        """The round is over: serve all, in the order they came."""
        wishes, self._wishes = self._wishes, []
        futures, self._futures = self._futures, []
        together: list[W] = []
        told: list[asyncio.Future[A | None]] = []
        for wish, future in zip(wishes, futures, strict=True):
            if future.done():  # its caller has gone
                continue
            if wish is None:
                self._start(together, told)
                together, told = [], []
                future.set_result(None)
            else:
                together.append(wish)
                told.append(future)
        self._start(together, told)

    def _start(self, wishes: Sequence[W], futures: Sequence[asyncio.Future[A | None]]) -> None:
        start = 0
        for share in self._cut(wishes):
            part = futures[start : start + len(share)]
            start += len(share)
            if len(part) == 1:
                part[0].set_result(None)
                continue
            task = self.loop.create_task(self._answer(share, part))
            self._running.add(task)  # a loop itself keeps only a weak reference
            task.add_done_callback(self._running.discard)

    async def _answer(
        self, wishes: Sequence[W], futures: Sequence[asyncio.Future[A | None]]
    ) -> None:
        answers: list[A | None] = [None] * len(futures)
        try:
            answers = await self._serve(wishes)
        finally:
            # However that ended, nobody waits for ever: who has no answer tries alone.
            for future, answer in zip(futures, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
