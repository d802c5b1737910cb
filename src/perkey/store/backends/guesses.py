"""Heads that nobody need read, because this process wrote them last or they are new.

Some transactions know that: a claim of a new key, and what ends it.  Their first attempt is
evaluated on the heads that this process remembers, and commits on the condition that they are
still those: one request instead of two.  A wrong guess costs one request, and the next attempt
looks.  A guess alone never answers anybody: what writes nothing is not compared by a commit,
so it looks as well.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence

from perkey.clock import Clock
from perkey.store.backends.parts import Part
from perkey.store.keys import Key
from perkey.store.record import Record

REMEMBERED = 1024
"""How many heads are remembered."""
LONGEST = 4096
"""The longest value that is worth remembering, in bytes."""
AGE_S = 10.0
"""How long the store's time is carried on by this machine's before it is asked for again."""


class Guesses:
    """What one process knows of a store without asking.  Used by one thread at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heads: OrderedDict[Key, Record] = OrderedDict()
        self._looked: tuple[float, int] | None = None

    def looked(self, now: int) -> None:
        """The store has just told its time."""
        self._looked = self._clock.monotonic(), now

    def heads(self, part: Part) -> tuple[dict[Key, Record | None], int] | None:
        """(heads, the store's time) for the first attempt at ``part``; None: look."""
        if self._looked is None or part.lost or part.looks != part.keys or part.batch.doubts:
            return None
        if not all(each.foreseen for each in part.batch.transactions):
            return None
        at, now = self._looked
        age = self._clock.monotonic() - at
        if age > AGE_S:
            return None
        return {key: self._heads.get(key) for key in part.keys}, now + int(age * 1000)

    def landed(self, part: Part, writes: Sequence[Record]) -> None:
        """Remember what was written for those who will not look."""
        heads = self._heads
        wanted = any(each.foreseen for each in part.batch.transactions)
        for record in writes:
            key = Key(record.key)
            if (wanted or key in heads) and len(record.body or b"") <= LONGEST:
                heads[key] = record
                heads.move_to_end(key)
            else:
                heads.pop(key, None)
        while len(heads) > REMEMBERED:
            heads.popitem(last=False)

    def wrong(self, heads: Mapping[Key, Record | None]) -> None:
        """One of these was not so any more."""
        for key in heads:
            self._heads.pop(key, None)
