"""Many transfers in one transaction: each account is read once and written once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from perkey.errors import (
    OutcomeUnknown,
    PerkeyError,
    StoreClosed,
    StoreUnavailable,
    Timeout,
    UsageError,
)
from perkey.flows import steps
from perkey.flows.ledger.model import account_key
from perkey.flows.ledger.posting import (
    Accounts,
    Order,
    Transfer,
    perform_on,
    save,
    transfer_order,
)
from perkey.flows.records import check_by
from perkey.store.evaluate import unknown_op
from perkey.store.keys import Key
from perkey.store.transaction import Outcome, Tx

CHUNK = 2000
"""How many transfers of a bulk share one commit at most: the more, the more of them share the
reading and writing of an account, and the longer others wait for their turn."""


class Item(msgspec.Struct, frozen=True):
    """What became of one transfer of a bulk: ``transfer`` or ``error``."""

    transfer: Transfer | None
    error: PerkeyError | None

    def answer(self) -> Transfer:
        """The transfer; raises the error."""
        if self.error is not None:
            raise self.error
        assert self.transfer is not None
        return self.transfer


class Room(NamedTuple):
    """What one commit of a store takes."""

    keys: int
    """How many keys a transaction may declare."""
    records: int | None
    """How many keys it may write, those of pages included; None: any number."""

    def holds(self, keys: int, orders: int) -> bool:
        """Whether so many keys fit, when each of the orders may fill a page on both sides."""
        return keys <= self.keys and (self.records is None or keys + 2 * orders <= self.records)


def transfers(rows: Sequence[Sequence[Any]], by: str, room: Room) -> steps.Flow[list[Item]]:
    """Many transfers, a chunk a commit, each with a result of its own.

    Within a chunk a refused one leaves nothing and the others commit; after a crash the same
    call goes on where it stopped, since what was done replays.
    """
    check_by(by)
    places = once_each(account_key)
    orders = [_row(row, places) for row in rows]
    done: list[Item] = []
    while len(done) < len(orders):
        chunk, keys = _chunk(orders, len(done), room)
        outcome: Outcome = yield _transaction(keys, chunk, by)
        done += outcome.result
    return done


def once_each(place: Callable[[str], Key]) -> Callable[[str], Key]:
    """``place`` that checks a name once, and gives it one key, for as long as it is kept."""
    known: dict[str, Key] = {}

    def found(name: str) -> Key:
        try:
            return known[name]
        except (KeyError, TypeError):  # it may be no text, nor anything that a dict takes
            known[name] = key = place(name)
            return key

    return found


class Keys:
    """What a transaction of many orders declares."""

    def __init__(self) -> None:
        self._accounts: set[Key] = set()
        self._records: dict[Key, None] = {}

    def add(self, order: Order) -> None:
        """The accounts of ``order`` and its record."""
        self._records[order.record] = None
        for side in order.sides:
            self._accounts.add(side.key)

    def __len__(self) -> int:
        return len(self._accounts) + len(self._records)

    def declared(self) -> tuple[Key, ...]:
        """All, sorted.  Accounts come before transfers, whose keys are most likely in order."""
        return (*sorted(self._accounts), *sorted(self._records))


def _transaction(keys: Keys, orders: Sequence[Order | PerkeyError], by: str) -> steps.Transact:
    return steps.Transact(keys.declared(), partial(perform_all, orders=orders), by)


def _chunk(
    orders: Sequence[Order | PerkeyError], start: int, room: Room
) -> tuple[list[Order | PerkeyError], Keys]:
    """As many orders from ``start`` on as one commit takes, and their keys."""
    keys = Keys()
    chunk: list[Order | PerkeyError] = []
    for each in orders[start : start + CHUNK]:
        if isinstance(each, Order):
            if chunk and not room.holds(len(keys) + 3, len(chunk) + 1):
                break
            keys.add(each)
        chunk.append(each)
    return chunk, keys


def _row(row: Sequence[Any], places: Callable[[str], Key]) -> Order | PerkeyError:
    if not 4 <= len(row) <= 5:
        raise UsageError("expected each transfer as (source, target, amount, key[, memo])")
    source, target, amount, key = row[:4]
    memo = row[4] if len(row) == 5 else ""
    try:
        return transfer_order(source, target, amount, key, memo, places=places)
    except PerkeyError as error:
        return error


def perform_all(tx: Tx, orders: Sequence[Order | PerkeyError]) -> list[Item]:
    """Each order on accounts that are read once and written once for all of them."""
    items: list[Item] = []
    accounts: Accounts = {}
    moved: dict[str, Key] = {}
    for each in orders:
        if isinstance(each, PerkeyError):
            items.append(Item(None, each))
            continue
        try:
            transfer = perform_on(tx, each, accounts)
        except PerkeyError as error:
            items.append(Item(None, error))
            continue
        items.append(Item(transfer, None))
        if not transfer.replayed:
            for side in each.sides:
                moved[side.account] = side.key
    for name, key in moved.items():
        save(tx, key, accounts[name])
    return items


# ---------------------------------------------------------------- asked for by many callers


class Asked(msgspec.Struct, frozen=True, gc=False):
    """What one of many callers wants."""

    order: Order
    by: str


def shares(asked: Sequence[Asked], most: int, room: Room) -> list[list[Asked]]:
    """``asked``, in this order, as what goes into one transaction each: neighbours with one
    author, at most ``most`` of them, and no more keys than a transaction may declare."""
    found: list[list[Asked]] = []
    keys = 0
    for each in asked:
        keys += len(each.order.sides) + 1
        last = found[-1] if found else None
        if last and last[0].by == each.by and len(last) < most and keys <= room.keys:
            last.append(each)
        else:
            found.append([each])
            keys = len(each.order.sides) + 1
    return found


def together(asked: Sequence[Asked]) -> steps.Flow[list[Item | None]]:
    """What several callers want, in one transaction; what became of each, or None.

    None: nothing was done, and why is another one's business, so it has to be tried alone.
    Where the store itself is what fails, everybody is told: it was not reached, it was too
    late, or nobody knows.
    """
    keys = Keys()
    for each in asked:
        keys.add(each.order)
    step = _transaction(keys, [each.order for each in asked], asked[0].by)
    step.stands_for = moved
    try:
        outcome: Outcome = yield step
    except OutcomeUnknown as error:
        return [Item(None, _unknown(step.op, each.order, error)) for each in asked]
    except (Timeout, StoreUnavailable, StoreClosed) as error:
        return [Item(None, type(error)(error.message, **error.details)) for _ in asked]
    except Exception:
        return [None for _ in asked]
    items: list[Item | None] = outcome.result
    return items


def _unknown(op: str, order: Order, cause: OutcomeUnknown) -> OutcomeUnknown:
    error = unknown_op(op, order.keys[0])
    error.__cause__ = cause
    return error


def moved(items: Sequence[Item]) -> int:
    """How many of these moved something just now."""
    return sum(each.transfer is not None and not each.transfer.replayed for each in items)
