"""The two transactions that every instance costs, its start and its end, as objects.

A crowd has hundreds of them in the store's queue at a time, and the garbage collector looks at
whatever lives that long, again and again.  A closure is a function and a cell for each of its
variables; one of these is a single object that it never looks at: texts, keys and plain data,
which are part of no cycle.
"""

from __future__ import annotations

from typing import Any

import msgspec

from perkey.engine.records import Stored, box_of, encode, step_out, stored_of, text_of
from perkey.engine.segments import BODY
from perkey.errors import LeaseLost
from perkey.store.keys import Key
from perkey.store.transaction import Tx


class Begin(msgspec.Struct, gc=False):
    """Write a new instance, unless an earlier one or an earlier tick is in its way.

    Its result: (id of the instance, kind that named it, ms of store time).  The kind is empty if
    it is new, and ``t`` if the tick, or a later one, was fired already.
    """

    record: Key
    segment: Key | None
    """Where to note its segment, unless that is known to be there."""
    stored: Stored
    marks: dict[str, Key]
    """Kind -> where the id of the only instance of that kind is."""
    timer: Key | None
    due: int
    """In ms; which tick of the timer this is."""

    def __call__(self, tx: Tx) -> tuple[str, str, int]:
        if self.timer is not None:
            if tx.get(self.timer, 0) >= self.due:
                return "", "t", tx.now
            tx.put_body(self.timer, encode(self.due))
        for kind, mark in self.marks.items():
            earlier = tx.body(mark)
            if earlier is not None:
                return text_of(earlier), kind, tx.now
        stored = self.stored
        stored.started_ms = tx.now
        tx.put_body(self.record, encode(stored))
        if self.segment is not None and tx.body(self.segment) is None:
            tx.put_body(self.segment, BODY)
        for mark in self.marks.values():
            tx.put_body(mark, encode(stored.id))
        return stored.id, "", tx.now


class End(msgspec.Struct, gc=False):
    """Write how an instance ended, and free what it held; ``LeaseLost`` if it has passed on.

    Its result: the names of the messages that it never received.  May be repeated.
    """

    id: str
    owner: str
    record: Key
    held: tuple[Key, ...]
    """What goes: its correlation key's mark, and where its engine noted that it took it over."""
    boxes: tuple[Key, ...]
    """Where it may wait for a message."""
    state: str
    result: Any
    error: str

    def __call__(self, tx: Tx) -> list[str]:
        stored = stored_of(tx.body(self.record))
        if stored is None or stored.owner != self.owner:
            raise passed_on(self.id)
        if stored.running:  # else an earlier attempt landed, and only its reply was lost
            stored.state, stored.result, stored.error = self.state, self.result, self.error
            tx.put_body(self.record, encode(stored))
            for key in self.held:
                tx.put_body(key, None)
            for box in self.boxes:
                step_out(tx, box, box_of(tx.body(box)), self.id)
        return [each.name for each in stored.inbox]


def passed_on(instance_id: str) -> LeaseLost:
    """The error of an engine that no longer owns this instance."""
    return LeaseLost(
        f"instance {instance_id} passed to another engine; this one stops", key=instance_id
    )
