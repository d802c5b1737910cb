"""Looking after operations whose outcome nobody knows."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import msgspec

from perkey.errors import Forbidden, InProgress, NotFound, UsageError
from perkey.flows import arguments, steps
from perkey.flows.once import listed
from perkey.flows.once.model import Held, Unresolved
from perkey.store import codec, receipts
from perkey.store.keys import OPEN, RECEIPTS, Key
from perkey.store.receipts import Receipt as Stored
from perkey.store.record import Record
from perkey.store.transaction import Outcome, Tx

PAGE = 500
"""How many records are read at a time."""


class Name(NamedTuple):
    """What an operation is called."""

    scope: str
    operation: str
    key: str

    @property
    def record(self) -> Key:
        """Where its receipt is."""
        return receipts.receipt_key(*self)


def unresolved(
    older_than: float, limit: int, *, apart: bool, thorough: bool
) -> steps.Flow[list[Unresolved]]:
    """Operations that ended as unknown, or whose lease ran out, that many seconds ago or more.

    The index names them.  Where it is not known to be complete, every receipt is read first.
    Whoever may only read is told the same, and leaves the index as it is.
    """
    arguments.seconds("older_than=", older_than, zero=True)
    arguments.whole("limit=", limit, 1)
    (complete,) = yield steps.Read([listed.COMPLETE])
    unlisted: set[Key] = set()
    if thorough or complete is None:
        unlisted = yield from _enter_all(apart)
    now = yield steps.Now()
    named, versions = yield from _named()
    found: list[Unresolved] = []
    over: dict[int, list[str]] = {}
    absent: dict[int, list[str]] = {}
    keys = sorted({*named, *unlisted})
    for start in range(0, len(keys), PAGE):
        some = keys[start : start + PAGE]
        records: list[Record | None] = yield steps.Read(some)
        for key, record in zip(some, records, strict=True):
            held, idle = _judged(record, now)
            if held is None or (held is _COMING and apart):
                if key in named:
                    slot, entry = named[key]
                    (absent if held else over).setdefault(slot, []).append(entry)
            elif idle and now - held.since >= older_than * 1000:
                found.append(_shown(held))
        if len(found) >= limit:
            break
    for slot, entries in absent.items():
        yield from _allowed(_bar_and_strike(slot, entries, versions[slot]))
    for slot, gone in over.items():
        yield from _allowed(_strike(slot, gone))
    return found[:limit]


def _allowed(flow: steps.Flow[None]) -> steps.Flow[bool]:
    """Run what only tidies up; whether the caller may write at all."""
    try:
        yield from flow
    except Forbidden:
        return False
    return True


def _named() -> steps.Flow[tuple[dict[Key, tuple[int, str]], dict[int, int]]]:
    """(the receipts that the index names, each with its slot and its entry there; the version of
    each slot)."""
    named: dict[Key, tuple[int, str]] = {}
    versions: dict[int, int] = {}
    after = ""
    while True:
        records: list[Record] = yield steps.Scan(OPEN, after, PAGE)
        for record in records:
            after = record.key
            if after != listed.COMPLETE:
                slot = int(after[len(OPEN) :])
                versions[slot] = record.version
                for entry in listed.entries(record.body):
                    named[listed.receipt(entry)] = slot, entry
        if len(records) < PAGE:
            return named, versions


def _judged(record: Record | None, now: int) -> tuple[Held | None, bool]:
    """(who holds an open operation; None where it has ended, whether nobody works on it).

    What is not there yet may be claimed in a moment: it has not ended.
    """
    stored = receipts.read(record)
    if stored is None:
        return _COMING, False
    if stored.state not in ("claimed", "unknown"):
        return None, False
    held = msgspec.convert(stored.extra, Held)
    return held, stored.state == "unknown" or now >= held.until


_COMING = Held("", 0, 0, 0, "", "", "")


def _shown(held: Held) -> Unresolved:
    reason = held.reason or "its lease ran out; the holder may have crashed"
    return Unresolved(held.scope, held.operation, held.key, held.attempt, held.since, reason)


def _strike(slot: int, gone: list[str]) -> steps.Flow[None]:
    """Take out what has ended, which never opens again."""
    yield steps.Transact((listed.slot_key(slot),), lambda tx: listed.strike(tx, slot, gone))


def _bar_and_strike(slot: int, entries: list[str], version: int) -> steps.Flow[None]:
    """Take out entries whose receipts are not there, where they have commits of their own.

    Their callers died before they claimed, or freed their keys and never used the slot again;
    or they are about to claim.  So each receipt is moved on by a tombstone first: a claim that
    saw the one before has to be listed again, which moves the slot on, and then it is left
    alone.  ``version`` is the slot's from before the receipts were read.
    """
    barred: list[str] = []
    for entry in entries:
        record = listed.receipt(entry)
        outcome: Outcome = yield steps.Transact((record,), partial(_bar, record=record))
        if outcome.result:
            barred.append(entry)
    key = listed.slot_key(slot)

    def strike(tx: Tx) -> None:
        if tx.version(key) == version:
            listed.strike(tx, slot, barred)

    yield steps.Transact((key,), strike)


def _bar(tx: Tx, record: Key) -> bool:
    if receipts.read(tx.record(record)) is not None:
        return False
    tx.put_body(record, None)
    return True


# ------------------------------------------------------------------ what is not listed yet


def _enter_all(apart: bool) -> steps.Flow[set[Key]]:
    """Read every receipt, and enter what is open and not listed; then say so.

    Returns what is still not listed, since the caller may not write.
    """
    after, allowed = "", True
    unlisted: set[Key] = set()
    while True:
        records: list[Record] = yield steps.Scan(RECEIPTS, after, PAGE)
        for record in records:
            after = record.key
            held, _ = _judged(record, 0)
            if held is not None and held.slot < 0:
                key = Key(record.key)
                allowed = allowed and (yield from _allowed(_enter(key, held, apart)))
                if not allowed:
                    unlisted.add(key)
        if len(records) < PAGE:
            break
    if allowed:
        yield from _allowed(_say_complete())
    return unlisted


def _say_complete() -> steps.Flow[None]:
    yield steps.Transact((listed.COMPLETE,), lambda tx: tx.put_body(listed.COMPLETE, b"true"))


def _enter(record: Key, held: Held, apart: bool) -> steps.Flow[None]:
    """List an open operation that is not listed anywhere."""
    slot = listed.home(record)
    key = listed.slot_key(slot)
    new = listed.entry(record, held.token)

    def note(tx: Tx) -> None:
        stored = receipts.read(tx.record(record))
        now_held, _ = _judged(tx.record(record), 0)
        if stored is None or now_held is None or now_held.slot >= 0:
            return
        extra = msgspec.structs.asdict(msgspec.structs.replace(now_held, slot=slot))
        tx.put_body(record, receipts.encoded(msgspec.structs.replace(stored, extra=extra)))
        if not apart:
            listed.enter(tx, slot, new)

    if apart:
        yield steps.Transact((key,), lambda tx: listed.enter(tx, slot, new))
        yield steps.Transact((record,), note)
    else:
        yield steps.Transact((key, record), note)


# --------------------------------------------------------------------------- ending one


def resolve(name: Name, value: Any, *, done: bool, by: str, apart: bool) -> steps.Flow[None]:
    """End an unknown operation: it happened and answered ``value``, or it did not happen."""
    record = name.record
    raw = msgspec.Raw(codec.encode(value))

    def end(tx: Tx, slot: int) -> int:
        """Returns the slot that it is listed in; it has ended if that is ``slot``."""
        found = receipts.read(tx.record(record))
        if found is None:
            raise NotFound(f"there is no operation with the key {name.key!r}", key=name.key)
        if found.state == "claimed" and tx.now < found.extra["until"]:
            raise InProgress("this operation is still running; only an unknown one can be ended")
        if found.state not in ("claimed", "unknown"):
            raise UsageError(f"this operation is {found.state}; only an unknown one can be ended")
        where = msgspec.convert(found.extra, Held).slot
        if where != slot and not apart:
            return where
        stored = Stored("done", found.fingerprint, found.fields, raw)
        tx.put_body(record, receipts.encoded(stored) if done else None)
        if slot >= 0:
            listed.strike_receipt(tx, slot, record)
        return slot

    slot = -1
    while True:
        keys = (record,) if slot < 0 else (listed.slot_key(slot), record)
        outcome: Outcome = yield steps.Transact(keys, partial(end, slot=slot), by)
        if outcome.result == slot:
            return
        slot = outcome.result
