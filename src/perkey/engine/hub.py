"""The hub: which triggers are open, and for which key.

A start subscription belongs to (key, trigger), never to a version.  A redeploy with the same
triggers opens and closes nothing: which version a message starts is decided when it is
dispatched.  Opening is all or nothing, new ones before old ones are closed, so at no moment
does a key stand without its triggers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from perkey.engine.definitions import At, Every, Message, Signal, Start, Timer
from perkey.engine.facts import Facts
from perkey.engine.guarded import outside
from perkey.errors import InvalidState

Fire = Callable[[str, Timer, int], Awaitable[None]]
"""(process key, timer, due time in ms): start an instance for this tick."""


class Broker(Protocol):
    """Where messages come from, if not from ``publish`` alone."""

    async def open(self, key: str, start: Start) -> None:
        """Begin to deliver this trigger; raising leaves it closed."""

    async def close(self, key: str, start: Start) -> None:
        """Stop delivering it."""


class LocalBroker:
    """Messages come from ``publish`` in this process; nothing to open."""

    async def open(self, key: str, start: Start) -> None:
        """Nothing to do."""

    async def close(self, key: str, start: Start) -> None:
        """Nothing to do."""


async def sleep_until(due: int, now_ms: Callable[[], Awaitable[int]]) -> int:
    """Sleep until the engine's time is ``due``; the loop's own clock may run differently."""
    now = await now_ms()
    while now < due:
        await asyncio.sleep((due - now) / 1000)
        now = await now_ms()
    return now


class Hub:
    """Open triggers by key.  Lives on the engine's loop; takes no lock of its own."""

    def __init__(
        self, broker: Broker, fire: Fire, now_ms: Callable[[], Awaitable[int]], facts: Facts
    ) -> None:
        self._facts = facts
        self._broker = broker
        self._fire = fire
        self._now_ms = now_ms
        self._open: dict[str, dict[str, Start]] = {}
        self._messages: dict[str, tuple[str, Message]] = {}
        """Message name -> who it starts; kept beside ``_open``, since every message asks."""
        self._timers: dict[tuple[str, str], asyncio.Task[None]] = {}
        self.accepting = False

    async def start(self) -> None:
        """Accept subscriptions from now on."""
        outside("the hub was started")
        self.accepting = True

    async def reconcile(self, key: str, starts: Sequence[Start]) -> bool:
        """Make exactly ``starts`` open for ``key``; the caller holds the key's lock.

        All or nothing: if one cannot be opened, those opened before it are closed again and
        the old ones stay.  Raises only then, never after the change.  Returns whether anything
        was opened.
        """
        outside("a subscription was changed")
        if not self.accepting:
            return False
        current = self._open.get(key, {})
        wanted = {start.trigger: start for start in starts}
        opened: list[Start] = []
        try:
            for trigger, start in wanted.items():
                if trigger not in current:
                    self._check_free(key, start)
                    await self._broker.open(key, start)
                    opened.append(start)
            for start in opened:  # another process may have taken it while the broker opened
                self._check_free(key, start)
        except BaseException:
            await self._shut(key, opened[::-1])
            raise
        if self._closed_meanwhile():
            await self._shut(key, opened)
            return False
        self._open[key] = wanted
        self._note_messages(key, current, wanted)
        for start in opened:
            self._start_timer(key, start)
        await self._shut(key, [each for each in current.values() if each.trigger not in wanted])
        return bool(opened)

    def _closed_meanwhile(self) -> bool:
        return not self.accepting

    def _note_messages(self, key: str, before: dict[str, Start], after: dict[str, Start]) -> None:
        for start in before.values():
            if isinstance(start, Message):
                del self._messages[start.name]
        for start in after.values():
            if isinstance(start, Message):
                self._messages[start.name] = (key, start)

    def _check_free(self, key: str, start: Start) -> None:
        if isinstance(start, Message):
            owner = self.message_owner(start.name)
            if owner is not None and owner[0] != key:
                raise InvalidState(
                    f"message {start.name!r} already starts process {owner[0]!r}, and a message "
                    "starts one instance; use a signal to start several processes",
                    key=key,
                )

    def _start_timer(self, key: str, start: Start) -> None:
        if isinstance(start, Every | At):
            task = asyncio.get_running_loop().create_task(self._tick(key, start))
            self._timers[key, start.trigger] = task

    async def _tick(self, key: str, timer: Timer) -> None:
        last = await self._now_ms()
        while True:
            due = timer.next_ms(last)
            now = await sleep_until(due, self._now_ms)
            try:
                await self._fire(key, timer, due)
            except Exception as error:  # the next tick may do better
                said = f"{timer.trigger} at {due} started nothing: {type(error).__name__}: {error}"
                self._facts.tell("engine", key, detail=said)
            # Ticks that passed while this one waited are skipped, not made up for.
            last = max(due, now)

    async def _shut(self, key: str, starts: Sequence[Start]) -> None:
        """Close these, whatever happens: one that fails or is cancelled keeps no other open."""
        for start in starts:
            task = self._timers.pop((key, start.trigger), None)
            if task is not None:
                task.cancel()
        cancelled = False
        for start in starts:
            try:
                await self._broker.close(key, start)
            except asyncio.CancelledError:
                cancelled = True
            except Exception as error:
                said = f"{start.trigger} was not closed: {type(error).__name__}: {error}"
                self._facts.tell("engine", key, detail=said)
        task = asyncio.current_task()
        if cancelled and task is not None:
            task.cancel()  # at its next step, when the change is complete

    def keys(self) -> list[str]:
        """The processes that have something open."""
        return list(self._open)

    def message_owner(self, name: str) -> tuple[str, Message] | None:
        """The process that a message starts, and the start that says so."""
        return self._messages.get(name)

    def signal_keys(self, name: str) -> list[str]:
        """The processes that a signal starts."""
        trigger = f"signal:{name}"
        return [
            key for key, starts in self._open.items() if isinstance(starts.get(trigger), Signal)
        ]

    def open_triggers(self) -> list[tuple[str, str]]:
        """Every open (key, trigger)."""
        return [(key, trigger) for key, starts in self._open.items() for trigger in starts]

    async def stop(self) -> None:
        """Close everything; nothing is accepted afterwards."""
        outside("the hub was stopped")
        self.accepting = False
        for key, starts in list(self._open.items()):
            await self._shut(key, list(starts.values()))
        self._open.clear()
        self._messages.clear()
