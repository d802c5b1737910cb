"""What a durable engine drops from its store in passing: records whose time is over.

The records of instances that ended long ago, and letters that nobody fetched while they were
valid.  A page at a time, a few records a second, by whichever engine comes along; each drop
looks again inside its own commit, so two engines may do it side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from perkey.engine.journal import Journal
from perkey.engine.records import BOXES, INSTANCES, box_of, leave_box, stored_of
from perkey.store.keys import Key
from perkey.store.record import Record
from perkey.store.transaction import Tx

PAGE = 50
"""How many records are looked at, and dropped, at once; every store commits so many keys."""


class Tidier:
    """Walks round the store; where it is, is forgotten with the process."""

    def __init__(self, journal: Journal, kept_s: float) -> None:
        """``kept_s``: how long the record of an ended instance stays, in seconds."""
        self._journal = journal
        self._kept_ms = int(kept_s * 1000)
        self._after = {INSTANCES: "", BOXES: ""}

    async def look(self) -> None:
        """Look at the next page of each kind, and at more as long as there is much to drop."""
        now = await self._journal.now_ms()
        await self._walk(INSTANCES, lambda record: self._over(record, now), self._drop)
        await self._walk(BOXES, lambda record: _stale(record, now), _clear)

    async def _walk(
        self, prefix: str, over: Callable[[Record], bool], drop: Callable[[Tx, Key], None]
    ) -> None:
        while True:
            page = await self._journal.scan(prefix, PAGE, self._after[prefix])
            self._after[prefix] = page[-1].key if len(page) == PAGE else ""
            keys = [Key(each.key) for each in page if over(each)]
            if keys:
                await self._journal.commit(keys, partial(_each, keys=keys, drop=drop))
            if len(keys) < PAGE // 2:
                return

    def _over(self, record: Record, now: int) -> bool:
        stored = stored_of(record.body)
        ended = stored is not None and not stored.running
        return ended and now - record.at >= self._kept_ms

    def _drop(self, tx: Tx, key: Key) -> None:
        record = tx.record(key)
        if record is not None and self._over(record, tx.now):
            tx.put_body(key, None)


def _each(tx: Tx, keys: list[Key], drop: Callable[[Tx, Key], None]) -> None:
    for key in keys:
        drop(tx, key)


def _stale(record: Record, now: int) -> bool:
    return any(until <= now for until, _ in box_of(record.body).letters)


def _clear(tx: Tx, key: Key) -> None:
    known = box_of(tx.body(key))
    leave_box(tx, key, known, known.waiting, [each for each in known.letters if tx.now < each[0]])
