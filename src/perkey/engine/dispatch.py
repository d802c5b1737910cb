"""What a message does: reach the live instance of its key, start one, wait, or be set aside.

The version is resolved here, at the moment of dispatch, never when a trigger was opened; and
``publish`` returns only after the instance is tracked, so a message is never acknowledged
before there is something that carries it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from perkey.engine.definitions import Message
from perkey.engine.hub import Hub
from perkey.engine.instances import Delivered, Instance
from perkey.engine.lifecycle import State
from perkey.engine.registry import Registry
from perkey.engine.runner import Runner
from perkey.engine.starts import Starts
from perkey.errors import LimitExceeded, QueueFull
from perkey.locks import KeyedLocks
from perkey.store import codec
from perkey.store.keys import check_name

if TYPE_CHECKING:
    from perkey.engine.engine import AsyncEngine


class Published(msgspec.Struct, frozen=True):
    """What became of a message."""

    outcome: str
    """started | delivered | duplicate | waiting | buffered | dead-letter | dropped"""
    instance: str = ""
    """The id of the instance that has it."""


class _Letter(msgspec.Struct, frozen=True):
    message: Delivered
    key: str | None
    until: float
    """By ``Clock.monotonic``: how long it waits for somebody who wants it."""


class Dispatcher:
    """Lives on the engine's loop."""

    def __init__(
        self,
        registry: Registry,
        hub: Hub,
        runner: Runner,
        starts: Starts,
        engine: AsyncEngine,
    ) -> None:
        self._registry = registry
        self._hub = hub
        self._runner = runner
        self._starts = starts
        self._engine = engine
        self._keys = KeyedLocks()
        self._buffer: deque[_Letter] = deque()
        self._waiting: deque[_Letter] = deque()
        self._dead: deque[tuple[Delivered, str]] = deque(maxlen=engine.limits.dead_letters)

    async def publish(
        self, name: str, payload: Any, key: str | None, message_id: str | None, ttl: float
    ) -> Published:
        """Dispatch one message, or hold it back while the engine is paused."""
        check_name(name)
        codec.encode(payload)
        if key is not None:
            check_name(key)
        message = Delivered(name, payload, message_id or "")
        letter = _Letter(message, key, self._engine.clock.monotonic() + ttl)
        if self._engine.state is State.PAUSED:
            return self._hold_back(letter)
        return await self._dispatch(letter)

    def _hold_back(self, letter: _Letter) -> Published:
        limits = self._engine.limits
        if len(self._buffer) >= limits.buffered:
            if limits.when_full == "refuse":
                raise QueueFull(
                    f"the paused engine holds back {len(self._buffer)} messages and its limit is "
                    f"{limits.buffered}"
                )
            self._buffer.popleft()
        self._buffer.append(letter)
        return Published("buffered")

    async def resume(self) -> None:
        """Dispatch what was held back, in order."""
        self._runner.launch_pending()
        while self._buffer and self._engine.state is State.STARTED:
            await self._dispatch(self._buffer.popleft())

    # ------------------------------------------------------------------------- dispatching

    async def _dispatch(self, letter: _Letter) -> Published:
        owner = self._hub.message_owner(letter.message.name)
        if owner is None:
            return await self._offer(letter)
        process, start = owner
        try:
            correlation = letter.key or start.correlation(letter.message.payload)
        except Exception as error:
            return self._bury(letter, process, error)
        if correlation is None and letter.message.mark is None:
            return await self._reach(letter, process, None)
        # One at a time per key: the look for a live instance and the start of a new one.
        lock = f"{process}\0{correlation or letter.message.mark}"
        async with self._keys(lock):
            return await self._reach(letter, process, correlation)

    async def _reach(self, letter: _Letter, process: str, correlation: str | None) -> Published:
        while True:
            if correlation is not None:
                live = await self._runner.post.live(process, correlation)
                reached = None if live is None else await self._deliver(letter, live)
                if reached is not None:
                    return reached
            begun = await self._begin(letter, process, correlation)
            if begun is not None:
                return begun
            # Another engine on this store started the instance of this key just now, so the
            # message is for that one.

    async def _deliver(self, letter: _Letter, instance_id: str) -> Published | None:
        """Hand a message to a live instance; None if it has ended meanwhile."""
        message = letter.message
        done = await self._runner.post.deliver(instance_id, message, message.mark)
        if done == "full":
            raise LimitExceeded(
                f"instance {instance_id} has {self._engine.limits.inbox} unread messages, "
                "which is the limit"
            )
        if done == "delivered":
            self._runner.arrived(instance_id, message)
        return Published(done, instance_id) if done else None

    async def _begin(
        self, letter: _Letter, process: str, correlation: str | None
    ) -> Published | None:
        """Start an instance; None if the correlation key has a live one."""
        version = self._registry.latest_locked(process)
        if version is None:  # unregistered a moment ago
            return self._leave(letter)
        begun = await self._starts.start(
            version, {}, correlation=correlation, trigger=letter.message
        )
        if begun.found == "k":
            return None
        return Published("duplicate" if begun.found else "started", begun.id)

    async def signal(self, name: str, payload: Any) -> list[Instance]:
        """Start one instance in every process that declares the signal."""
        check_name(name)
        codec.encode(payload)
        started: list[Instance] = []
        for process in self._hub.signal_keys(name):
            version = self._registry.latest_locked(process)
            if version is not None:
                trigger = Delivered(name, payload)
                begun = await self._starts.start(version, {}, trigger=trigger)
                assert begun.instance is not None
                started.append(begun.instance)
        return started

    async def _offer(self, letter: _Letter) -> Published:
        """To the instance that waits for this message at this address, else into its box."""
        if letter.key is None:
            return self._leave(letter)
        message = letter.message
        left_s = letter.until - self._engine.clock.monotonic()
        outcome, instance_id = await self._runner.post.offer(
            message.name, letter.key, message, left_s, message.mark
        )
        if outcome == "full":
            raise QueueFull(
                f"{self._engine.limits.waiting} unmatched messages {message.name!r} wait for "
                f"{letter.key!r} already, which is the limit"
            )
        if outcome == "delivered":
            self._runner.arrived(instance_id, message)
        return Published(outcome, instance_id)

    # -------------------------------------------------------------------- nobody wants it

    def _leave(self, letter: _Letter) -> Published:
        now = self._engine.clock.monotonic()
        if now >= letter.until:
            return Published("dropped")
        mark = letter.message.mark
        if mark is not None and any(each.message.mark == mark for each in self._waiting):
            return Published("duplicate")
        limit = self._engine.limits.waiting
        if len(self._waiting) >= limit:
            self._waiting = deque(each for each in self._waiting if now < each.until)
        if len(self._waiting) >= limit:
            raise QueueFull(
                f"{len(self._waiting)} unmatched messages wait already, and the limit is {limit}"
            )
        self._waiting.append(letter)
        return Published("waiting")

    async def retry_waiting(self) -> None:
        """Somebody may want now what nobody wanted before."""
        letters, self._waiting = self._waiting, deque()
        for letter in letters:
            if self._engine.clock.monotonic() < letter.until:
                await self._dispatch(letter)

    def _bury(self, letter: _Letter, process: str, error: Exception) -> Published:
        self._dead.append((letter.message, f"{type(error).__name__}: {error}"))
        self._runner.facts.tell("dead-letter", process, detail=letter.message.name)
        return Published("dead-letter")

    def dead_letters(self) -> list[tuple[Delivered, str]]:
        """The kept dead letters, oldest first."""
        return list(self._dead)


__all__ = ["Dispatcher", "Message", "Published"]
