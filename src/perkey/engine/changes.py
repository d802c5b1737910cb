"""What is in the transactions that every instance costs, its start and its end, as objects.

A crowd has hundreds of them in the store's queue at a time, and the garbage collector looks at
whatever lives that long, again and again.  A closure is a function and a cell for each of its
variables; one of these is a single object that it never looks at: texts, keys and plain data,
which are part of no cycle.  ``rounds`` has several share a transaction, so each raises before it
writes anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from perkey.engine.records import Stored, box_of, encode, step_out, stored_of, text_of
from perkey.engine.segments import BODY
from perkey.errors import LeaseLost
from perkey.store.fencing import LeaseState, lease_body, lease_state
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
        if self.timer is not None and tx.get(self.timer, 0) >= self.due:
            return "", "t", tx.now
        for kind, mark in self.marks.items():
            earlier = tx.body(mark)
            if earlier is not None:
                return text_of(earlier), kind, tx.now
        stored = self.stored
        stored.started_ms = tx.now
        tx.put_body(self.record, encode(stored))
        if self.timer is not None:
            tx.put_body(self.timer, encode(self.due))
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
            boxes = [box_of(tx.body(box)) for box in self.boxes]
            stored.state, stored.result, stored.error = self.state, self.result, self.error
            tx.put_body(self.record, encode(stored))
            for key in self.held:
                tx.put_body(key, None)
            for box, known in zip(self.boxes, boxes, strict=True):
                step_out(tx, box, known, self.id)
        return [each.name for each in stored.inbox]


class Riding(msgspec.Struct):
    """``fn``, and in the same commit the engine's lease for another term, once a third is over.

    So whatever an engine has committed keeps its lease, also where the renewal itself waits
    behind very many changes in the store's queue.
    """

    fn: Callable[[Tx], Any]
    lease: Key
    term_ms: int

    def __call__(self, tx: Tx) -> Any:
        result = self.fn(tx)
        state = lease_state(tx.record(self.lease))  # the fence was checked, so it is held
        if state is not None and (state.expires - tx.now) * 3 < self.term_ms * 2:
            held = LeaseState(state.holder, state.token, tx.now + self.term_ms)
            tx.put_body(self.lease, lease_body(held))
        return result


def passed_on(instance_id: str) -> LeaseLost:
    """The error of an engine that no longer owns this instance."""
    return LeaseLost(
        f"instance {instance_id} passed to another engine; this one stops", key=instance_id
    )
