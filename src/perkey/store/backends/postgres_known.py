"""Heads that need not be read: what this process found or wrote last.

They are a guess, since other processes write too, and every use of it is compared by the server.
One process shares it among its connections, so it has a lock.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from perkey.clock import Clock
from perkey.store.evaluate import Batch, Heads, Unit
from perkey.store.keys import Key
from perkey.store.record import Record
from perkey.store.transaction import Transaction

ROOM = 16 * 1024 * 1024
"""Over how many bytes of records those are forgotten that were not used for longest."""
OVERHEAD = 512
"""What a record takes besides its body, in bytes; an estimate."""
AGE_S = 10.0
"""How long the store's time is carried on by this machine's before it is asked for again."""
WARY = 16
"""How many commits a key is looked at for, after another process has written it."""
WARIEST = 1024
"""How many such keys are noted."""


class Known:
    """The heads of the last commits, and the store's time.

    Who takes heads out puts them back, as they are then, once the commit's reply is known; when
    that never comes, they are simply not known any more.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._heads: OrderedDict[Key, Record] = OrderedDict()
        """In the order of their last use: whoever uses one takes it out, and puts it back last."""
        self._room = ROOM
        self._wary: OrderedDict[Key, int] = OrderedDict()
        self._told: tuple[float, int] | None = None
        self._latest = 0

    # ------------------------------------------------------------------ time

    def told(self, now: int) -> int:
        """The server has just told its time; returns the store's, which never goes back."""
        with self._lock:
            self._told = self._clock.monotonic(), now
            self._latest = max(self._latest, now)
            return self._latest

    def _carried(self) -> int | None:
        """The store's time without asking; None where it was told too long ago."""
        if self._told is None:
            return None
        at, now = self._told
        age = self._clock.monotonic() - at
        if not 0 <= age <= AGE_S:
            return None
        self._latest = max(self._latest, now + int(age * 1000))
        return self._latest

    # ------------------------------------------------------------------ heads

    def take(self, batch: Batch) -> tuple[Heads, int] | None:
        """(heads, the store's time) to try ``batch`` on without a look, or None.

        Whatever is known of its keys is not any more.  A receipt that is not known is most
        likely new.
        """
        heads: Heads = {}
        complete = True
        wary = self._wary
        with self._lock:
            for transaction in batch.transactions:
                for key in transaction.keys:
                    if key in heads:
                        continue
                    head = heads[key] = self._taken(key)
                    if head is None and (key in wary or not _likely_new(key, transaction)):
                        complete = False
            now = self._carried()
        return (heads, now) if complete and now is not None else None

    def keep(self, heads: Heads, unit: Unit) -> None:
        """Remember ``heads`` as ``unit``, which has landed over them, left them behind."""
        with self._lock:
            for record in unit.writes:
                if record.key in heads:
                    heads[record.key] = record  # type: ignore[index]  # its hash is its text's
                else:  # appended
                    self._taken(record.key)  # type: ignore[arg-type]
            for key, head in heads.items():
                if self._wary and self._watched(key):
                    continue
                self._taken(key)
                if head is not None:
                    self._heads[key] = head
                    self._room -= OVERHEAD + len(head.body or b"")
            while self._room < 0 and self._heads:
                self._taken(next(iter(self._heads)))

    def _taken(self, key: Key) -> Record | None:
        """The head of ``key``, which is not known any more."""
        head = self._heads.pop(key, None)
        if head is not None:
            self._room += OVERHEAD + len(head.body or b"")
        return head

    def differed(self, guessed: Heads, found: Heads) -> None:
        """Whose guess was wrong is looked at for a while."""
        with self._lock:
            for key, head in guessed.items():
                if _name(head) != _name(found[key]):
                    self._wary[key] = WARY
            while len(self._wary) > WARIEST:
                self._wary.popitem(last=False)

    def _watched(self, key: Key) -> bool:
        """Whether this key, which is being committed, is looked at the next time."""
        left = self._wary.pop(key, 0)
        if left > 1:
            self._wary[key] = left - 1
        if left:
            self._taken(key)
        return left > 0


def _likely_new(key: Key, transaction: Transaction) -> bool:
    """Whether a key of which nothing is known has most likely never been written."""
    claim = transaction.claim
    return transaction.foreseen or (claim is not None and claim.key == key)


def _name(head: Record | None) -> tuple[str, int]:
    """What tells a head from every other one of its key."""
    return ("", 0) if head is None else (head.op, head.version)
