"""What a store keeps: one record a key, and the versions before it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perkey.errors import UsageError

ERASED = "!"
"""Behind the id of a write that left a tombstone, where a later record remembers it."""

RECENT_OPS_CHARS = 300
"""How much text a record spends on remembering earlier writes by their ``op``: about 16."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One version of one key, as the store keeps it.

    Texts, bytes and numbers only, so the garbage collector need not look at it.

    ``version`` counts 1, 2, 3 ... per key and is never used again, not even after a delete
    and a re-create: a delete leaves a tombstone (``body is None``) that goes on counting.
    """

    key: str
    version: int
    body: bytes | None
    """The JSON we encoded, byte for byte; None for a tombstone."""
    by: str = ""
    at: int = 0
    """Milliseconds since the epoch, by the store's time."""
    op: str = ""
    """The id of the write that made this version."""
    ops: str = ""
    """The ids of the writes before it, newest first, a space between: the first of them made
    ``version - 1``.  One that deleted has ``ERASED`` behind it.  One text, so that moving it
    costs no more than moving a number."""
    fence: int = 0
    """The largest fencing token that ever wrote this key."""
    base: int = 0
    """The version its author had read; below ``version - 1`` it overwrote unseen changes."""

    @property
    def deleted(self) -> bool:
        return self.body is None


def op_at(record: Record, version: int) -> str | None:
    """The op that made ``version`` of this record's key, or None when it is out of the window."""
    age = record.version - version
    if age == 0:
        return record.op
    if age < 0 or not record.ops:
        return None
    ops = record.ops.split(" ")
    return ops[age - 1].removesuffix(ERASED) if age <= len(ops) else None


def op_of(found: Sequence[Record], version: int) -> str | None:
    """The op of ``version`` in a piece of history that should begin with it, or None."""
    return found[0].op if found and found[0].version == version else None


def has_op(record: Record, op: str) -> bool:
    """Whether that write made this record or one of the versions it remembers."""
    return record.op == op or not {op, op + ERASED}.isdisjoint(record.ops.split(" "))


def erased_since(record: Record, version: int) -> bool | None:
    """Whether the key was deleted after ``version`` and before this record; None when that is
    out of the window."""
    between = record.version - version - 1
    if between <= 0:
        return False
    ops = record.ops.split(" ")[:between] if record.ops else []
    if any(op.endswith(ERASED) for op in ops):
        return True
    return False if len(ops) == between else None


def following(head: Record | None) -> tuple[int, str, int]:
    """(version, ops, fence) for the write that comes after ``head``."""
    if head is None:
        return 1, "", 0
    ops = head.op if head.body is not None else head.op + ERASED
    if head.ops:
        ops = f"{ops} {head.ops}"
    if len(ops) > RECENT_OPS_CHARS:
        ops = ops[: ops.rfind(" ", 0, RECENT_OPS_CHARS)]
    return head.version + 1, ops, head.fence


def signed(by: str | None) -> str:
    """Who wrote a version, as an error says it: `` by 'ann'``, or nothing where nobody signed."""
    return f" by {by!r}" if by else ""


class Page(msgspec.Struct, frozen=True):
    """A run of changes from ``Backend.changes``."""

    records: list[Record]
    cursors: list[str]
    """For each record, the cursor right behind it."""
    cursor: str
    """Where to go on; opaque to everyone but the backend."""
    gap: bool = False
    """Retention dropped changes between the caller's cursor and the first record."""
    live: bool = True
    """Nothing more stood behind this page when it was read."""


class Walk(msgspec.Struct, frozen=True):
    """A run of heads from ``Backend.walk``."""

    records: list[Record]
    cursor: str
    """Where to go on; ``""`` where the walk is over.  Opaque to everyone but the backend."""


def position(cursor: str) -> int:
    """The number that a cursor is, for stores that number their changes; ``""`` is 0."""
    if cursor and not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19):
        raise UsageError(f"expected a cursor of this store, found {cursor!r:.60}")
    return int(cursor or 0)
