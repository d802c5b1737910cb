"""How an engine numbers its instances, so that one record marks very many as its own.

An id is the name of a *segment*, a dash and a number.  The first instances of a segment write
its record, in the same commit as their own; so whoever looks for what a dead engine left finds
its segments, and by their names the instances, which lie side by side on the store.  When all
that a segment has given out have ended, its record goes.  An instance that was taken over keeps
its id, and has a record of its own below its new engine.
"""

from __future__ import annotations

from perkey.clock import Clock
from perkey.engine.records import INSTANCES, below
from perkey.store.keys import Key

SIZE = 128
"""How many instances a segment has.  A record less for each, but so many to look through when
one of them outlives its engine."""
BODY = str(SIZE).encode()
"""The value of a segment's record.  That of an instance which was taken over is its id."""


class Segment:
    """Up to ``SIZE`` instances of one engine."""

    __slots__ = ("given", "name", "noted", "record", "unended")

    def __init__(self, name: str, mine: str) -> None:
        """``mine``: what the keys of its engine's records begin with."""
        self.name = name
        self.record = below(mine, name)
        self.given = 0
        self.unended = 0
        """How many of those that it gave may still run, or be started."""
        self.noted = False
        """Its record is on the store, until this engine drops it, or another one looks after an
        engine that has died."""


class Segments:
    """Lives on the engine's loop."""

    def __init__(self, clock: Clock, mine: str) -> None:
        self._clock = clock
        self._mine = mine
        self._last = self._next()
        self.spent: list[Key] = []
        """Records of segments that are over."""

    def _next(self) -> Segment:
        return Segment(self._clock.token(), self._mine)

    def give(self) -> tuple[str, Segment]:
        """The id of a new instance, and what to tell when it has ended."""
        segment = self._last
        if segment.given == SIZE:
            segment = self._last = self._next()
        segment.given += 1
        segment.unended += 1
        return f"{segment.name}-{segment.given:02x}", segment

    def ended(self, segment: Segment) -> None:
        """One of its instances has ended on the store, or will never be there."""
        segment.unended -= 1
        self._look(segment)

    def close(self) -> None:
        """Give nothing more of the last segment."""
        segment = self._last
        if segment.given < SIZE:
            segment.given = SIZE
            self._look(segment)

    def _look(self, segment: Segment) -> None:
        if segment.given == SIZE and not segment.unended and segment.noted:
            self.spent.append(segment.record)


def is_segment(body: bytes) -> bool:
    """Whether a record below an engine is that of a segment, not of one instance."""
    return body[:1] != b'"'


def instances_of(name: str) -> str:
    """What the keys of a segment's instances begin with."""
    return below(INSTANCES, f"{name}-00")[:-2]
