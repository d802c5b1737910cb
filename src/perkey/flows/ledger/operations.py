"""The ledger's writing operations, as flows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from perkey.errors import InvalidState, LimitExceeded, NotFound, UsageError
from perkey.flows import steps
from perkey.flows.ledger import amounts, holds
from perkey.flows.ledger.model import (
    CLOSED,
    FROZEN,
    MAX_AMOUNT,
    OPEN,
    Account,
    account_key,
    decode_account,
    decode_posting,
    encode,
    load,
    transfer_key,
)
from perkey.flows.ledger.posting import (
    Order,
    Transfer,
    execute,
    order,
    posting_order,
    save,
    transfer_order,
)
from perkey.flows.records import check_by
from perkey.store.keys import Key
from perkey.store.transaction import Outcome, Tx

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Plan:
    """Keys and a pure function, to be composed into a transaction of the caller's own."""

    keys: tuple[Key, ...]
    fn: Callable[[Tx], Transfer]


def _commit(
    keys: Iterable[Key], fn: Callable[[Tx], T], by: str, timeout: float | None = None
) -> steps.Flow[T]:
    check_by(by)
    outcome: Outcome = yield steps.Transact(tuple(sorted(keys)), fn, by, timeout=timeout)
    result: T = outcome.result
    return result


# ------------------------------------------------------------------------------ accounts


def open_account(
    name: str, unit: str, scale: int, floor: int | None, by: str
) -> steps.Flow[Account]:
    """Open an account; the same again is harmless, other terms are refused."""
    key = account_key(name)
    check_terms(unit, scale, floor)

    def fn(tx: Tx) -> Account:
        body = tx.body(key)
        if body is not None:
            return _same_terms(name, decode_account(body), unit, scale, floor)
        account = Account(unit, scale, floor, OPEN, 0, 0, 0, 0, tx.now, [], [])
        tx.put_body(key, encode(account))
        return account

    return (yield from _commit([key], fn, by))


def check_terms(unit: object, scale: object, floor: object) -> None:
    """A unit's name, its decimal places, and how low the account may go."""
    if not isinstance(unit, str) or not 1 <= len(unit) <= 16 or not unit.isprintable():
        raise UsageError(f"expected unit= as text of 1 to 16 characters, found {unit!r:.40}")
    if type(scale) is not int or not 0 <= scale <= 18:
        raise UsageError(f"expected scale= as an int from 0 to 18, found {scale!r}")
    if floor is not None and (type(floor) is not int or abs(floor) > MAX_AMOUNT):
        raise UsageError(f"expected floor= as an int or None, found {floor!r}")


def _same_terms(name: str, found: Account, unit: str, scale: int, floor: int | None) -> Account:
    if (found.unit, found.scale, found.floor) != (unit, scale, floor):
        lowest = "none" if found.floor is None else amounts.decimal(found.floor, found.scale)
        raise InvalidState(
            f"account {name!r} is already open with unit {found.unit}, scale {found.scale} and "
            f"floor {lowest}; open it with the same, or another name",
            key=name,
        )
    return found


def set_state(name: str, state: str, by: str) -> steps.Flow[Account]:
    """Freeze, thaw or close an account; closing needs a balance of 0 and nothing held."""
    key = account_key(name)
    wanted = {"open": OPEN, "frozen": FROZEN, "closed": CLOSED}[state]

    def fn(tx: Tx) -> Account:
        account = load(tx, name)
        if account.state == wanted:
            return account
        if account.state == CLOSED:
            raise InvalidState(f"account {name!r} is closed, for ever", key=name)
        held = account.held_at(tx.now)
        if wanted == CLOSED and (account.posted or held):
            raise InvalidState(
                f"account {name!r} has a balance of "
                f"{amounts.money(account.posted, account.scale, account.unit)} and "
                f"{amounts.money(held, account.scale, account.unit)} held; "
                "both must be 0 to close it",
                key=name,
            )
        account.state = wanted
        save(tx, key, account)
        return account

    return (yield from _commit([key], fn, by))


# ------------------------------------------------------------------------------- moving


def transfer(
    source: str, target: str, amount: int, key: str, memo: str, by: str, timeout: float | None
) -> steps.Flow[Transfer]:
    """Move ``amount``; one transaction over both accounts and the key."""
    check_by(by)
    return move(transfer_order(source, target, amount, key, memo), by, timeout)


def post(entries: Sequence[tuple[str, int]], key: str, memo: str, by: str) -> steps.Flow[Transfer]:
    """Post many legs at once; zero for each unit."""
    check_by(by)
    return move(posting_order(entries, key, memo), by, None)


def move(wanted: Order, by: str, timeout: float | None) -> steps.Flow[Transfer]:
    """Do what was checked already, in a transaction of its own."""
    outcome: Outcome = yield steps.Transact(wanted.keys, execute(wanted), by, timeout=timeout)
    moved: Transfer = outcome.result
    return moved


def plan(source: str, target: str, amount: int, key: str, memo: str) -> Plan:
    """A transfer to compose into another transaction."""
    wanted = transfer_order(source, target, amount, key, memo)
    return Plan(wanted.keys, execute(wanted))


# -------------------------------------------------------------------------- two phases


def hold(
    source: str,
    target: str,
    amount: int,
    key: str,
    expires_in: float | None,
    memo: str,
    by: str,
) -> steps.Flow[Transfer]:
    """Keep ``amount`` back on ``source`` for ``target``."""
    wanted = transfer_order(source, target, amount, key, memo, "hold")
    lasts = holds.check_expiry(expires_in)
    return (yield from _commit(wanted.keys, holds.hold(wanted, lasts), by))


def settle(hold_key: str, amount: int | None, key: str, memo: str, by: str) -> steps.Flow[Transfer]:
    """Post a hold, or a part of it."""
    amount = holds.held_amount(amount)
    (source, _), (target, whole) = yield from _legs_of(hold_key)
    wanted = holds.settlement(hold_key, source, target, whole, key, memo)
    keys = [*wanted.keys, transfer_key(hold_key)]
    return (yield from _commit(keys, holds.settle(wanted, amount), by))


def release(hold_key: str, by: str) -> steps.Flow[Transfer]:
    """End a hold without moving anything."""
    (source, _), _ = yield from _legs_of(hold_key)
    keys = [transfer_key(hold_key), account_key(source)]
    return (yield from _commit(keys, holds.release(hold_key, source), by))


def reverse(original: str, memo: str, by: str) -> steps.Flow[Transfer]:
    """Post the opposite of an earlier posting, once; nothing is changed or deleted."""
    (record,) = yield steps.Read([transfer_key(original)])
    if record is None or record.body is None:
        raise NotFound(f"there is no transfer with the key {original!r}", key=original)
    found = decode_posting(record.body)
    if not found.legs or found.kind == "reverse":
        raise InvalidState(f"a {found.kind} cannot be reversed", key=original)
    legs = tuple((leg.account, -leg.amount) for leg in found.legs)
    wanted = order(reversal_key(original), legs, "reverse", memo, original)
    return (yield from _commit(wanted.keys, execute(wanted), by))


def reversal_key(original: str) -> str:
    """The one key that a reversal of ``original`` has, so that there is only one."""
    key = f"{original}/reversal"
    if len(key.encode()) > 512:
        raise LimitExceeded("a transfer whose key is longer than 503 bytes cannot be reversed")
    return key


def _legs_of(hold_key: str) -> steps.Flow[Sequence[tuple[str, int]]]:
    """A hold's legs; they never change, so they may be read before the transaction."""
    (record,) = yield steps.Read([transfer_key(hold_key)])
    if record is None or record.body is None:
        raise NotFound(f"there is no hold with the key {hold_key!r}", key=hold_key)
    found = decode_posting(record.body)
    if found.kind != "hold":
        raise InvalidState(f"{hold_key!r} is a {found.kind}, not a hold", key=hold_key)
    return found.wanted
