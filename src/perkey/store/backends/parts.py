"""How a batch is cut into the parts that one commit each can carry.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perkey.store.backends.port import Port
from perkey.store.evaluate import Batch, Unit
from perkey.store.keys import Key
from perkey.store.record import Record
from perkey.store.transaction import Transaction


@dataclass(slots=True, eq=False)
class Part:
    """The transactions of one commit, their places in the batch, and how often they lost."""

    places: list[int]
    batch: Batch
    keys: list[Key]
    """What the commit compares."""
    looks: list[Key]
    """What it reads: on a store of single keys, a fence's lease on top of the key."""
    lost: int = 0
    ready: float = 0.0
    """By ``Clock.monotonic``: when it may try again."""
    guesses: bool = False
    """Whether it may still be tried without a look."""

    @property
    def begun(self) -> bool:
        """Whether something of it may be in the store already."""
        return bool(self.batch.doubts) or self.batch.committing is not None


def cut(batch: Batch, port: Port) -> list[Part]:
    """Parts of as many transactions as fit, in order, each with its share of the doubts."""
    everything = Part([*range(len(batch.transactions))], batch, [], [], guesses=port.guesses)
    if port.atomic_keys == 1:
        groups = _by_key(batch.transactions, port)
    else:
        groups = _by_room(batch.transactions, port)
    return [sub(everything, group, port) for group in groups]


def sub(part: Part, places: Sequence[int], port: Port) -> Part:
    """A part of a part: some of its places, with their share of its doubts."""
    by_place = dict(zip(part.places, part.batch.transactions, strict=True))
    batch = Batch([by_place[place] for place in places], value_bytes=part.batch.value_bytes)
    shares = [share(doubt, part.places, places) for doubt in part.batch.doubts]
    batch.doubts = [each for each in shares if each.writes]
    single = port.atomic_keys == 1
    keys = {key for each in batch.transactions for key in _compared(each, single)}
    found = Part([*places], batch, sorted(keys), batch.keys, part.lost, part.ready)
    found.guesses = part.guesses
    return found


def share(doubt: Unit, places: Sequence[int], wanted: Sequence[int]) -> Unit:
    """What of an attempt at all ``places`` belongs to the ``wanted`` ones."""
    by_place = dict(zip(places, doubt.outcomes, strict=True))
    outcomes = [by_place[place] for place in wanted]
    return Unit([record for each in outcomes for record in each.writes], outcomes)


def touching(moved: set[Key], part: Part) -> list[int]:
    """The places that touch a moved key, and those that share a key with one of them: so
    whatever shares a key keeps its order."""
    found: set[int] = set()
    spread = set(moved)
    size = -1
    while len(found) > size:
        size = len(found)
        for place, transaction in zip(part.places, part.batch.transactions, strict=True):
            if place not in found and not spread.isdisjoint(transaction.keys):
                found.add(place)
                spread |= {*transaction.keys}
    return sorted(found)


def moved(before: Mapping[Key, Record | None], after: Mapping[Key, Record | None]) -> set[Key]:
    """The keys whose head is another one now."""
    return {key for key, head in before.items() if _mark(head) != _mark(after[key])}


def _mark(head: Record | None) -> tuple[int, str]:
    return (0, "") if head is None else (head.version, head.op)


def _compared(transaction: Transaction, single: bool) -> Sequence[Key]:
    """The keys that a commit compares.  A store of single keys cannot compare the lease; there
    the largest token in the record itself stands against a late holder."""
    if not single or transaction.fence is None or len(transaction.keys) == 1:
        return transaction.keys
    return [key for key in transaction.keys if key != transaction.fence.lease]


def _by_room(transactions: Sequence[Transaction], port: Port) -> list[list[int]]:
    groups: list[list[int]] = []
    keys: set[Key] = set()
    for place, transaction in enumerate(transactions):
        keys |= {*transaction.keys}
        full = port.atomic_keys is not None and len(keys) > port.atomic_keys
        if not groups or full or len(groups[-1]) == port.commit_records:
            groups.append([])
            keys = {*transaction.keys}
        groups[-1].append(place)
    return groups


def _by_key(transactions: Sequence[Transaction], port: Port) -> list[list[int]]:
    """One key a commit: its transactions together, or one by one."""
    if not port.several_versions:
        return [[place] for place in range(len(transactions))]
    by_key: dict[tuple[Key, ...], list[int]] = {}
    for place, transaction in enumerate(transactions):
        by_key.setdefault(tuple(_compared(transaction, single=True)), []).append(place)
    most = port.commit_records or len(transactions)
    return [
        group[start : start + most]
        for group in by_key.values()
        for start in range(0, len(group), most)
    ]
