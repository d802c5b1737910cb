"""What a message does: reach the live instance of its key, start one, wait, or be set aside.

The version is resolved here, at the moment of dispatch, never when a trigger was opened; and
``publish`` returns only after the instance is tracked, so a message is never acknowledged
before there is something that carries it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perkey.engine.definitions import Message
from perkey.engine.hub import Hub
from perkey.engine.instances import Delivered, Instance
from perkey.engine.journal import Journal
from perkey.engine.lifecycle import State
from perkey.engine.registry import Registry
from perkey.engine.runner import Runner
from perkey.errors import QueueFull
from perkey.locks import KeyedLocks
from perkey.store import codec
from perkey.store.keys import check_name

if TYPE_CHECKING:
    from perkey.engine.engine import AsyncEngine


@dataclass(frozen=True, slots=True)
class Published:
    """What became of a message."""

    outcome: str
    """started | delivered | duplicate | waiting | buffered | dead-letter | dropped"""
    instance: str = ""
    """The id of the instance that has it."""


@dataclass(frozen=True, slots=True)
class _Letter:
    message: Delivered
    key: str | None
    until: float
    """By ``Clock.monotonic``: how long it waits for somebody who wants it."""

    @property
    def identity(self) -> tuple[str, ...] | None:
        return (self.message.name, self.message.message_id) if self.message.message_id else None


class Dispatcher:
    """Lives on the engine's loop."""

    def __init__(
        self,
        registry: Registry,
        hub: Hub,
        runner: Runner,
        journal: Journal | None,
        engine: AsyncEngine,
    ) -> None:
        self._registry = registry
        self._hub = hub
        self._runner = runner
        self._journal = journal
        self._engine = engine
        self._keys = KeyedLocks()
        self._buffer: deque[_Letter] = deque()
        self._waiting: deque[_Letter] = deque()
        self._seen: OrderedDict[tuple[str, ...], str] = OrderedDict()
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
        if correlation is None and letter.identity is None:
            return await self._begin(letter, process, None)
        # One at a time per key: the look for a live instance and the start of a new one.
        lock = f"{process}\0{correlation or letter.identity}"
        async with self._keys(lock):
            return await self._reach(letter, process, correlation)

    async def _reach(self, letter: _Letter, process: str, correlation: str | None) -> Published:
        earlier = await self._earlier(letter)
        if earlier is not None:
            return Published("duplicate", earlier)
        if correlation is not None:
            reached = await self._deliver(letter, process, correlation)
            if reached is not None:
                return self._remember(letter, Published("delivered", reached))
        return self._remember(letter, await self._begin(letter, process, correlation))

    async def _earlier(self, letter: _Letter) -> str | None:
        identity = letter.identity
        if identity is None:
            return None
        if identity in self._seen:
            return self._seen[identity]
        return await self._journal.seen(identity) if self._journal else None

    def _remember(self, letter: _Letter, published: Published) -> Published:
        identity = letter.identity
        if identity is not None and published.instance:
            self._seen[identity] = published.instance
            if len(self._seen) > self._engine.limits.message_ids:
                self._seen.popitem(last=False)
        return published

    async def _deliver(self, letter: _Letter, process: str, correlation: str) -> str | None:
        """Hand a message to the live instance of its key; its id, or None if there is none."""
        instance = self._runner.live(process, correlation)
        if instance is not None:
            done = await self._runner.deliver(instance, letter.message, letter.identity)
            return instance.id if done else None
        if self._journal is None:
            return None
        elsewhere = await self._journal.live(process, correlation)
        if elsewhere and await self._journal.deliver(elsewhere, letter.message, letter.identity):
            return elsewhere
        return None

    async def _begin(self, letter: _Letter, process: str, correlation: str | None) -> Published:
        version = self._registry.latest_locked(process)
        if version is None:  # unregistered a moment ago
            return self._leave(letter)
        instance = await self._runner.start(
            version,
            {},
            "",
            correlation=correlation,
            trigger=letter.message,
            message_id=letter.identity,
        )
        return Published("started", instance.id)

    async def signal(self, name: str, payload: Any) -> list[Instance]:
        """Start one instance in every process that declares the signal."""
        check_name(name)
        codec.encode(payload)
        started: list[Instance] = []
        for process in self._hub.signal_keys(name):
            version = self._registry.latest_locked(process)
            if version is not None:
                trigger = Delivered(name, payload)
                started.append(await self._runner.start(version, {}, "", trigger=trigger))
        return started

    async def _offer(self, letter: _Letter) -> Published:
        """To the instance that waits for this message at this address, else into its box."""
        if letter.key is None:
            return self._leave(letter)
        earlier = await self._earlier(letter)
        if earlier is not None:
            return Published("duplicate", earlier)
        if self._journal is not None:
            return self._remember(letter, await self._offer_in_store(self._journal, letter))
        name, boxes = letter.message.name, self._runner.boxes
        instance = boxes.waiting(name, letter.key)
        if instance is not None:
            boxes.close(name, instance)
            await self._runner.deliver(instance, letter.message, letter.identity)
            return self._remember(letter, Published("delivered", instance.id))
        now = self._engine.clock.monotonic()
        if now >= letter.until:
            return Published("dropped")
        if boxes.count >= self._engine.limits.waiting:
            boxes.sweep(now)
        self._check_room(boxes.count)
        boxes.leave(name, letter.key, letter.message, letter.until)
        return Published("waiting")

    async def _offer_in_store(self, journal: Journal, letter: _Letter) -> Published:
        assert letter.key is not None
        left = letter.until - self._engine.clock.monotonic()
        reached = await journal.offer(
            letter.message.name, letter.key, letter.message, left, letter.identity
        )
        if reached is None:
            return Published("waiting" if left > 0 else "dropped")
        here = self._runner.find(reached)
        if here is not None:
            here.wake()
        return Published("delivered", reached)

    # -------------------------------------------------------------------- nobody wants it

    def _leave(self, letter: _Letter) -> Published:
        self._drop_late()
        if self._engine.clock.monotonic() >= letter.until:
            return Published("dropped")
        self._check_room(len(self._waiting))
        self._waiting.append(letter)
        return Published("waiting")

    def _check_room(self, waiting: int) -> None:
        limit = self._engine.limits.waiting
        if waiting >= limit:
            raise QueueFull(f"{waiting} unmatched messages wait already, and the limit is {limit}")

    def _drop_late(self) -> None:
        now = self._engine.clock.monotonic()
        while self._waiting and self._waiting[0].until <= now:
            self._waiting.popleft()

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
