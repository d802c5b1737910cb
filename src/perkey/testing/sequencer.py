"""``Sequencer``: blocks of several tasks or threads, run in an order that the test writes down.

    order = Sequencer()

    async def one():
        async with order(0): ...
        async with order(2): ...

    async def other():
        async with order(1): ...

The idea is trio's ``testing.Sequencer``; this one serves tasks and threads alike, also mixed.
"""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType

from perkey.errors import UsageError


class SequenceBroken(RuntimeError):
    """A block before this one failed or was cancelled, so its turn will never come."""


class Sequencer:
    """Positions 0, 1, 2, ... each used once, each entered when the one before has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0
        self._broken = False
        self._used: set[int] = set()
        self._waiting: dict[int, _Turn] = {}

    def __call__(self, position: int) -> _Turn:
        """The block at ``position``; use it with ``with`` or ``async with``."""
        if isinstance(position, bool) or not isinstance(position, int) or position < 0:
            raise UsageError(f"expected a position from 0, found {position!r}")
        with self._lock:
            if position in self._used:
                raise UsageError(f"position {position} of this sequence was used before")
            self._used.add(position)
        return _Turn(self, position)

    def _join(self, turn: _Turn) -> bool:
        """Whether it is this turn's time already; else it is woken later."""
        with self._lock:
            if self._broken:
                raise _broken(turn.position)
            if turn.position == self._next:
                return True
            self._waiting[turn.position] = turn
            return False

    def _leave(self, turn: _Turn, failed: bool) -> None:
        with self._lock:
            self._broken = self._broken or failed
            self._next += 1
            if self._broken:
                woken = list(self._waiting.values())
                self._waiting.clear()
            else:
                following = self._waiting.pop(self._next, None)
                woken = [following] if following else []
        for each in woken:
            each.wake()

    def _withdraw(self, turn: _Turn) -> None:
        with self._lock:
            self._waiting.pop(turn.position, None)
            self._broken = True
            woken = list(self._waiting.values())
            self._waiting.clear()
        for each in woken:
            each.wake()

    def check(self, turn: _Turn) -> None:
        """Raise ``SequenceBroken`` if this turn was woken because the sequence broke."""
        if self._broken:
            raise _broken(turn.position)


class _Turn:
    def __init__(self, sequencer: Sequencer, position: int) -> None:
        self._sequencer = sequencer
        self.position = position
        self._event = threading.Event()
        self._future: asyncio.Future[None] | None = None

    def wake(self) -> None:
        """Its time has come, or will never come."""
        future = self._future
        if future is None:
            self._event.set()
        else:
            future.get_loop().call_soon_threadsafe(_resolve, future)

    def __enter__(self) -> None:
        if not self._sequencer._join(self):
            try:
                self._event.wait()
            except BaseException:
                self._sequencer._withdraw(self)
                raise
            self._sequencer.check(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._sequencer._leave(self, kind is not None)

    async def __aenter__(self) -> None:
        self._future = asyncio.get_running_loop().create_future()
        if not self._sequencer._join(self):
            try:
                await self._future
            except BaseException:
                self._sequencer._withdraw(self)
                raise
            self._sequencer.check(self)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._sequencer._leave(self, kind is not None)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _broken(position: int) -> SequenceBroken:
    return SequenceBroken(f"a block before position {position} failed; its turn will not come")
