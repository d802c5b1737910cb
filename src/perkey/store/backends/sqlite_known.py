"""Heads that need not be read again: what this connection wrote, while nobody else writes.

SQLite's ``data_version`` differs as soon as another connection, of this process or another, has
committed.  It is asked inside the write transaction, where nobody else can commit any more.
"""

from __future__ import annotations

from collections.abc import Sequence

from perkey.store.evaluate import Heads
from perkey.store.record import Record

ROOM = 4 * 1024 * 1024
"""After how many bytes of records all are forgotten."""
OVERHEAD = 512
"""What a record takes besides its body, in bytes; an estimate."""


class Known:
    """The heads of the last commits.

    Whoever takes heads out must put them back, as they are then, once the commit's reply is
    known; when that never comes, they are simply not known any more.
    """

    def __init__(self) -> None:
        self._heads: Heads = {}
        self._data_version = 0
        self._room = ROOM

    def take(self, blank: Heads, data_version: int) -> Heads:
        """Fill in, and forget, what is known of these keys; returns the rest, still blank."""
        known = self._heads
        if data_version != self._data_version:
            known.clear()
            self._data_version = data_version
        if not known:
            return blank
        rest: Heads = {}
        for key in blank:
            if key in known:
                blank[key] = known.pop(key)
            else:
                rest[key] = None
        return rest

    def keep(self, heads: Heads, writes: Sequence[Record]) -> None:
        """Remember ``heads`` as this commit, which has landed, left them behind."""
        for record in writes:
            if record.key in heads:
                heads[record.key] = record  # type: ignore[index]  # its hash is its text's
            else:  # appended, where somebody may have found nothing before
                self._heads.pop(record.key, None)  # type: ignore[call-overload]
        for head in heads.values():
            self._room -= OVERHEAD + (len(head.body) if head and head.body else 0)
        if self._room < 0:
            self._heads.clear()
            self._room = ROOM
        else:
            self._heads.update(heads)
