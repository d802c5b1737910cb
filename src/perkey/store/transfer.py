"""Moving a whole store into another one: every record of every space, bit for bit.

Keys are walked in the source's own order; of each, what the target lacks is read from the
source's history and restored under the target's own conditional commit.  So a copy that was
killed goes on where it stood, and two copies at once do no harm.  What the target has already
must be the source's, record by record, or the copy stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import msgspec

from perkey.clock import Clock
from perkey.errors import HistoryGap, StoreCorrupt, UsageError
from perkey.store.abc import Backend, Restores
from perkey.store.backends.envelope import pack
from perkey.store.checkup import commit
from perkey.store.evaluate import Batch
from perkey.store.keys import Key, keeps_history
from perkey.store.limits import Limits
from perkey.store.record import Record, op_at
from perkey.store.settle import settled
from perkey.store.transaction import Transaction, Tx

MARKER = Key("q/copy")
"""The target's record of whose copy it is."""
OWN = "q/"
"""The space of a store's own scratch records, which stay behind."""
PAGE = 200
BATCH_RECORDS = 256
BATCH_BYTES = 4 * 1024 * 1024
READ_BYTES = 16 * 1024 * 1024
PASSES = 3
"""How often the keys that moved on meanwhile are copied again."""
NAMED = 5
"""How many keys that differ are named."""
LIMITS = Limits(value_bytes=1 << 29, keep_versions=1 << 50)
"""What both stores are opened with: nothing is dropped, nothing is too long for us."""


class Mark(msgspec.Struct, frozen=True):
    """The value of the target's marker."""

    origin: str
    state: str
    """copying | done"""


@dataclass(slots=True)
class Progress:
    """How far it is; one object, told again and again."""

    phase: str = ""
    """copying | comparing"""
    keys: int = 0
    records: int = 0
    """Copied in this run, or compared."""
    total: int | None = None
    """How many keys there are, where the store knows."""


@dataclass(slots=True)
class Report:
    """What the comparison of two stores found."""

    keys: int = 0
    records: int = 0
    """Heads and kept versions."""
    digest: str = ""
    """Over all records of the source, whatever the order."""
    behind: int = 0
    """Keys that went on in the source after they were copied."""
    different: int = 0
    """Keys whose records are not the same."""
    extra: int = 0
    """Keys that only the target has."""
    copied: int = 0
    """Records that this run wrote."""
    named: list[str] = field(default_factory=list)
    """Some of the keys that are not the same."""

    @property
    def same(self) -> bool:
        """Whether the target is the source, record by record."""
        return not (self.behind or self.different or self.extra)


Tell = Callable[[Progress], None]


def move(source: Backend, target: Backend, origin: str, clock: Clock, tell: Tell) -> Report:
    """Copy everything, compare everything, and copy again what moved on meanwhile.

    ``origin`` names the source in the target.  Raises ``UsageError`` where the target holds
    anything but a copy of this source.  A report that is not ``same`` says what is left.
    """
    begin(target, origin, clock)
    copied = 0
    for _ in range(PASSES):
        copied += carry(source, target, clock, tell)
        report = compare(source, target, tell)
        if report.same or report.different or report.extra:
            break
    report.copied = copied
    if report.same:
        mark(target, Mark(origin, "done"), clock)
    return report


def begin(target: Backend, origin: str, clock: Clock) -> None:
    """Refuse a target that holds anything else, and mark it as a copy of ``origin``."""
    if isinstance(target, Restores):
        target.restoring()
    head = target.read([MARKER])[0]
    found = None if head is None or head.body is None else _mark(head.body)
    if found is not None and found.origin != origin:
        raise UsageError(
            f"the target holds a copy of {found.origin}, not of {origin}; name an empty store"
        )
    if found is None:
        some = next(_heads(target), None)
        if some is not None:
            raise UsageError(
                f"the target is not empty (it has {some.key[2:]!r:.80}) and no half-done copy; "
                "nothing was written: name an empty store"
            )
    mark(target, Mark(origin, "copying"), clock)


def mark(target: Backend, what: Mark, clock: Clock) -> None:
    """Write the target's marker."""
    body = msgspec.json.encode(what)
    commit(target, lambda tx: tx.put_body(MARKER, body), clock, MARKER)


def carry(source: Backend, target: Backend, clock: Clock, tell: Tell) -> int:
    """One pass over all keys; returns how many records were written."""
    progress = Progress("copying", total=_count(source))
    waiting: list[Record] = []
    size = 0
    for page in _pages(source):
        there = target.read([Key(head.key) for head in page])
        for head, have in zip(page, there, strict=True):
            for record in _missing(source, head, have):
                waiting.append(record)
                size += len(record.body or b"") + 500
                if len(waiting) >= BATCH_RECORDS or size >= BATCH_BYTES:
                    progress.records += _restore(target, waiting, clock)
                    waiting, size = [], 0
                    tell(progress)
            progress.keys += 1
        tell(progress)
    progress.records += _restore(target, waiting, clock)
    tell(progress)
    return progress.records


def compare(source: Backend, target: Backend, tell: Tell) -> Report:
    """Hold every head and every kept version of both stores side by side."""
    progress = Progress("comparing", total=_count(source))
    report = Report()
    total = 0
    met: set[bytes] = set()
    for page in _pages(source):
        there = target.read([Key(head.key) for head in page])
        for head, have in zip(page, there, strict=True):
            name = _digest(head.key.encode())
            if name in met:  # a walk may meet a key twice
                continue
            met.add(name)
            total += _compare_key(source, target, head, have, report)
            report.keys += 1
            progress.keys, progress.records = report.keys, report.records
        tell(progress)
    for head in _heads(target):
        if _digest(head.key.encode()) not in met and source.read([Key(head.key)])[0] is None:
            report.extra += 1
            _name(report, head.key)
    report.digest = f"{total % (1 << 128):032x}"
    return report


# ------------------------------------------------------------------------------- one key


def _missing(source: Backend, head: Record, have: Record | None) -> Iterator[Record]:
    """The records of one key that the target lacks, in order."""
    key = Key(head.key)
    if have is not None and have.version > head.version:
        head = source.read([key])[0] or head  # another copy may have seen a later one
    if have is not None:
        _check_same(source, head, have)
        if have.version == head.version:
            return
    if not keeps_history(key):
        yield head
        return
    version = 0 if have is None else have.version
    for record in _history(source, key, version):
        if have is not None and record.version != version + 1:
            raise HistoryGap(
                f"the source dropped versions of {key.name!r} after they were copied half: the "
                f"target stands at {version}, the source begins with {record.version}; begin "
                "again with an empty target"
            )
        yield record
        have, version = record, record.version


def _check_same(source: Backend, head: Record, have: Record) -> None:
    """Raise unless ``have`` is what the source has, or had, at that version."""
    if have.version == head.version:
        fine = have == head
    elif have.version > head.version:
        fine = False
    elif keeps_history(head.key):
        kept = source.history(head.key, have.version - 1, 1)
        fine = not kept or kept[0].version != have.version or kept[0] == have
    else:
        fine = op_at(head, have.version) in (None, have.op)
    if not fine:
        raise UsageError(
            f"{head.key[2:]!r} at version {have.version} in the target is not the source's: "
            "somebody wrote to the target; name an empty store"
        )


def _compare_key(
    source: Backend, target: Backend, head: Record, have: Record | None, report: Report
) -> int:
    """Compare one key, note it in ``report``, and return its part of the digest."""
    key = Key(head.key)
    total = _of(head)
    report.records += 1
    equal = have == head
    if keeps_history(key):
        theirs = _history(target, key, 0)
        last = head
        for record in _history(source, key, 0):
            total += _of(record)
            report.records += 1
            equal = next(theirs, None) == record and equal
            last = record
        equal = equal and next(theirs, None) is None and last == head
    if not equal:
        now = source.read([key])[0]
        moved = now is not None and (have is None or have.version < now.version)
        report.behind += moved
        report.different += not moved
        _name(report, key)
    return total


def _name(report: Report, key: str) -> None:
    if len(report.named) < NAMED:
        report.named.append(key[2:])


def _of(record: Record) -> int:
    return int.from_bytes(_digest(pack(record)), "big")


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


# --------------------------------------------------------------------------------- stores


def _pages(source: Backend) -> Iterator[list[Record]]:
    """All heads but the store's own, page by page."""
    cursor = ""
    while True:
        page = source.walk(cursor, PAGE)
        heads = [record for record in page.records if not record.key.startswith(OWN)]
        if heads:
            yield heads
        cursor = page.cursor
        if not cursor:
            return


def _heads(source: Backend) -> Iterator[Record]:
    for page in _pages(source):
        yield from page


def _history(source: Backend, key: Key, after: int) -> Iterator[Record]:
    """All kept versions above ``after``, a bounded number of bytes at a time."""
    limit = 16
    while found := source.history(key, after, limit):
        yield from found
        after = found[-1].version
        size = sum(len(record.body or b"") + 500 for record in found) // len(found)
        limit = max(1, min(500, READ_BYTES // size))


def _restore(target: Backend, records: Sequence[Record], clock: Clock) -> int:
    """Write these, one transaction each, in as few commits as the target can."""
    if not records:
        return 0
    transactions = [_restoring(record, clock) for record in records]
    batch = Batch(transactions, value_bytes=target.limits.value_bytes, clock=clock)
    outcomes, interrupt = settled(target.apply, batch, target.limits, clock)
    if interrupt is not None:
        raise interrupt
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    return sum(len(outcome.writes) for outcome in outcomes)


def _restoring(record: Record, clock: Clock) -> Transaction:
    key = Key(record.key)

    def restore(tx: Tx) -> None:
        head = tx.record(key)
        # What another copy wrote meanwhile stays; the comparison tells whether it is the same.
        if head is None or head.version < record.version:
            tx.restore(record)

    return Transaction((key,), restore, record.by, clock.token(), attempts=1_000)


def _count(backend: Backend) -> int | None:
    told = backend.describe().get("records", "")
    return int(told) if told.isdecimal() else None


def _mark(body: bytes) -> Mark:
    try:
        return msgspec.json.decode(body, type=Mark)
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(f"the target's record of its copy cannot be read: {error}") from error
