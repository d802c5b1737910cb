"""Which operations are open, claimed or unknown, so that nobody need read every receipt.

The index is ``SLOTS`` records; each is a list of receipts that are open.  Claiming an operation
enters it in a slot, and ending it takes it out, in the very commit that moves the receipt: so
the index and the receipts cannot disagree.  A store that commits one key at a time gets the
entry *before* the claim and loses it after the end: there the index may name an operation too
many, never one too few.

A runner keeps a slot for each call that it has running at once, and uses it again for the next:
callers of one process do not wait for each other's slots, and processes seldom meet in one.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Container
from typing import NamedTuple
from zlib import crc32

import msgspec

from perkey.flows import steps
from perkey.flows.once.model import Operation
from perkey.store.keys import OPEN, RECEIPTS, Key
from perkey.store.transaction import Tx

SLOTS = 1024
"""How many records the index has at most; part of the format."""

CROWDED = 32
"""With so many entries that stay, a slot is left alone and another one is taken."""

COMPLETE = Key(f"{OPEN}complete")
"""The record that says that everything open is in the index, also what is older than it."""

_entries = msgspec.json.Decoder(list[str])
_encode = msgspec.json.Encoder().encode


def slot_key(slot: int) -> Key:
    """Where a slot is."""
    return Key(f"{OPEN}{slot:04d}")


def home(record: Key) -> int:
    """A slot for a receipt that nobody has a slot for: the same for whoever asks."""
    return crc32(record.encode()) % SLOTS


def entry(record: Key, token: str) -> str:
    """How a slot lists a claim; no two claims have the same entry."""
    return f"{token} {record.name}"


def receipt(entry: str) -> Key:
    """The receipt that an entry means."""
    return Key(RECEIPTS + entry.partition(" ")[2])


def entries(body: bytes | None) -> list[str]:
    """What a slot lists."""
    return [] if body is None else _entries.decode(body)


def enter(tx: Tx, slot: int, new: str, gone: str = "") -> int:
    """List ``new``, which is about to be claimed; ``gone`` is over.  How many there are now."""
    key = slot_key(slot)
    found = [each for each in entries(tx.body(key)) if each not in (gone, new)]
    tx.put_body(key, _encode([*found, new]))
    return len(found) + 1


def strike(tx: Tx, slot: int, gone: Container[str]) -> None:
    """Take out the entries that are ``gone``."""
    key = slot_key(slot)
    found = entries(tx.body(key))
    left = [each for each in found if each not in gone]
    if left != found:
        tx.put_body(key, _encode(left))


def strike_receipt(tx: Tx, slot: int, record: Key) -> None:
    """Take out ``record``, which has ended in this commit, whoever entered it."""
    key, name = slot_key(slot), record.name
    found = entries(tx.body(key))
    left = [each for each in found if each.partition(" ")[2] != name]
    if len(left) < len(found):
        tx.put_body(key, _encode(left))


def enter_apart(op: Operation) -> steps.Flow[None]:
    """List an operation in a commit of its own, before it is claimed."""

    def put(tx: Tx) -> int:
        return enter(tx, op.slot, entry(op.record, op.token), op.gone)

    outcome = yield steps.Transact((slot_key(op.slot),), put, op.options.by, foreseen=True)
    op.crowd, op.left = outcome.result, ""
    op.entered = True


class _Seat(NamedTuple):
    slot: int
    gone: str = ""


class Slots:
    """The slots of one runner.  Safe from any thread."""

    def __init__(self, first: float) -> None:
        """``first``, from 0 to 1, says where to begin; runners should differ in it."""
        self._next = itertools.count(int(first * SLOTS))
        self._free: deque[_Seat] = deque()

    def lent(self, op: Operation) -> _Lent:
        """Give ``op`` a slot for as long as it runs; to be entered."""
        return _Lent(self, op)

    def lend(self, op: Operation) -> None:
        """Give ``op`` a slot."""
        try:
            seat = self._free.pop()
        except IndexError:
            seat = _Seat(next(self._next) % SLOTS)
        op.slot = seat.slot
        op.gone = op.left = seat.gone

    def take_back(self, op: Operation) -> None:
        """``op`` is over: its slot is for the next one."""
        if op.crowd <= CROWDED:
            self._free.append(_Seat(op.slot, op.left))


class _Lent(NamedTuple):
    slots: Slots
    op: Operation

    def __enter__(self) -> None:
        self.slots.lend(self.op)

    def __exit__(self, *error: object) -> None:
        self.slots.take_back(self.op)
