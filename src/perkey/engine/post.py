"""Where messages and the instances that want them meet: in memory, or on a store.

An instance's address is its correlation key, else its business key, else its id.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from perkey.clock import Clock
from perkey.engine.instances import Delivered, Instance, Mark
from perkey.engine.limits import EngineLimits
from perkey.errors import QueueFull


class Post(Protocol):
    """Six verbs, each all or nothing."""

    async def live(self, process: str, correlation: str) -> str | None:
        """The live instance of a correlation key, wherever it runs."""

    async def deliver(self, instance_id: str, message: Delivered, mark: Mark | None) -> str:
        """Into an instance's inbox: ``delivered``, ``duplicate``, ``full``, or empty once the
        instance has ended."""

    async def offer(
        self, name: str, address: str, message: Delivered, left_s: float, mark: Mark | None
    ) -> tuple[str, str]:
        """To the instance that waits at this address, else into its box for ``left_s`` seconds:
        (``delivered``, ``waiting``, ``dropped``, ``full`` or ``duplicate``; id of the
        instance)."""

    async def take(
        self, instance: Instance, name: str, step: str, wait_ms: int | None
    ) -> tuple[Delivered | None, float | None]:
        """The next message ``name``, made the result of ``step``, else (None, seconds that are
        left of ``wait_ms``) and whoever comes finds the instance waiting."""

    async def give_up(self, instance: Instance, name: str, step: str) -> Delivered | None:
        """``step`` waited long enough; the message that came after all, if one did."""


@dataclass(slots=True)
class _Box:
    waiting: deque[Instance] = field(default_factory=deque)
    """Several may have one address; the first gets the next message."""
    letters: deque[tuple[float, Delivered]] = field(default_factory=deque)
    """(until when it waits, message), oldest first."""


class LocalPost:
    """The post of an engine in memory.  A box exists only while something is in it."""

    def __init__(
        self, clock: Clock, limits: EngineLimits, find: Callable[[str], Instance | None]
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._find = find
        self._boxes: dict[tuple[str, str], _Box] = {}
        self._live: dict[tuple[str, str], str] = {}
        self._seen: OrderedDict[Mark, str] = OrderedDict()
        self._letters = 0

    # ------------------------------------------------------------------------- who has what

    def began(self, instance: Instance, mark: Mark | None) -> None:
        """A new instance lives, perhaps by a message."""
        if instance.correlation is not None:
            self._live[instance.key, instance.correlation] = instance.id
        if mark is not None:
            self._note(mark, instance.id)

    def ended(self, instance: Instance) -> None:
        """It lives no longer."""
        if instance.correlation is not None:
            self._live.pop((instance.key, instance.correlation), None)

    def holder(self, mark: Mark | None) -> str | None:
        """The instance that has this message; empty while it waits in a box."""
        return None if mark is None else self._seen.get(mark)

    def _note(self, mark: Mark | None, instance_id: str) -> None:
        if mark is not None:
            self._seen[mark] = instance_id
            if len(self._seen) > self._limits.message_ids:
                self._seen.popitem(last=False)

    async def live(self, process: str, correlation: str) -> str | None:
        """The live instance of a correlation key."""
        return self._live.get((process, correlation))

    # --------------------------------------------------------------------------- delivering

    async def deliver(self, instance_id: str, message: Delivered, mark: Mark | None) -> str:
        """Into an instance's inbox."""
        if self.holder(mark) is not None:
            return "duplicate"
        instance = self._find(instance_id)
        if instance is None or instance.state.ended:
            return ""
        if len(instance.inbox) >= self._limits.inbox:
            return "full"
        instance.inbox.append(message)
        self._note(mark, instance_id)
        return "delivered"

    async def offer(
        self, name: str, address: str, message: Delivered, left_s: float, mark: Mark | None
    ) -> tuple[str, str]:
        """To the instance that waits at this address, else into its box."""
        earlier = self.holder(mark)
        if earlier is not None:
            return "duplicate", earlier
        place = (name, address)
        waiting = self._next(place)
        if waiting is not None:
            waiting.inbox.append(message)
            self._note(mark, waiting.id)
            return "delivered", waiting.id
        if left_s <= 0:
            return "dropped", ""
        self._check_room()
        box = self._boxes.setdefault(place, _Box())
        box.letters.append((self._clock.monotonic() + left_s, message))
        self._letters += 1
        self._note(mark, "")
        return "waiting", ""

    def _next(self, place: tuple[str, str]) -> Instance | None:
        """Take the first of those that wait here and have not ended."""
        box = self._boxes.get(place)
        found = None
        while found is None and box is not None and box.waiting:
            first = box.waiting.popleft()
            found = None if first.state.ended else first
        if box is not None:
            self._tidy(place)
        return found

    def _check_room(self) -> None:
        limit = self._limits.waiting
        if self._letters >= limit:
            self._sweep()
        if self._letters >= limit:
            raise QueueFull(
                f"{self._letters} unmatched messages wait already, and the limit is {limit}"
            )

    def _sweep(self) -> None:
        """Drop every letter whose time is over."""
        now = self._clock.monotonic()
        for place, box in list(self._boxes.items()):
            kept = deque(each for each in box.letters if now < each[0])
            self._letters -= len(box.letters) - len(kept)
            box.letters = kept
            self._tidy(place)

    # --------------------------------------------------------------------------- receiving

    async def take(
        self, instance: Instance, name: str, step: str, wait_ms: int | None
    ) -> tuple[Delivered | None, float | None]:
        """From the inbox, else the oldest letter of the box; else wait there."""
        came = _first(instance, name)
        if came is not None:
            return came, None
        place = (name, instance.address)
        box = self._boxes.setdefault(place, _Box())
        now = self._clock.monotonic()
        while box.letters:
            until, message = box.letters.popleft()
            self._letters -= 1
            if now < until:
                self._tidy(place)
                self._note(message.mark, instance.id)
                return message, None
        if instance not in box.waiting:
            box.waiting.append(instance)
        return None, None if wait_ms is None else wait_ms / 1000

    async def give_up(self, instance: Instance, name: str, step: str) -> Delivered | None:
        """It no longer waits; what came between the timeout and this is taken all the same."""
        self.leave(instance, name)
        return _first(instance, name)

    def leave(self, instance: Instance, name: str) -> None:
        """Nobody waits there any more."""
        place = (name, instance.address)
        box = self._boxes.get(place)
        if box is not None and instance in box.waiting:
            box.waiting.remove(instance)
            self._tidy(place)

    def _tidy(self, place: tuple[str, str]) -> None:
        box = self._boxes[place]
        if not box.waiting and not box.letters:
            del self._boxes[place]


def _first(instance: Instance, name: str) -> Delivered | None:
    """Take the first message ``name`` out of an inbox."""
    for index, message in enumerate(instance.inbox):
        if message.name == name:
            del instance.inbox[index]
            return message
    return None
