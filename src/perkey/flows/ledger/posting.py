"""Moving money: pure functions that run inside one transaction.

Every check comes before the first write, so a refusal leaves nothing, and its key stays free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from perkey.errors import (
    AccountClosed,
    AccountFrozen,
    BalanceOverflow,
    InsufficientFunds,
    InvalidAmount,
    KeyReused,
    LimitExceeded,
    SameAccount,
    Unbalanced,
    UnitMismatch,
    UsageError,
)
from perkey.flows.ledger import amounts
from perkey.flows.ledger.model import (
    CLOSED,
    FROZEN,
    MAX_AMOUNT,
    MAX_LEGS,
    OPEN,
    PAGE_ENTRIES,
    Account,
    Leg,
    Posting,
    account_key,
    check_amount,
    decode_account,
    decode_posting,
    encode,
    no_account,
    page_key,
    transfer_key,
)
from perkey.store import codec
from perkey.store.keys import Key
from perkey.store.transaction import Tx


class Transfer(msgspec.Struct, frozen=True, gc=False):
    """A posting as its caller sees it."""

    key: str
    kind: str
    legs: tuple[Leg, ...]
    at: int
    """Milliseconds of store time."""
    by: str
    memo: str
    refers: str
    replayed: bool
    """True: it was done before with this key; nothing moved now."""
    state: str = ""
    expires: int | None = None
    asked: tuple[tuple[str, int], ...] = ()
    """What its caller asked for; for a hold, what settling all of it would post."""

    @property
    def amount(self) -> int:
        """What came in on all legs together (half of what moved)."""
        return sum(leg.amount for leg in self.legs if leg.amount > 0)


class Side(msgspec.Struct, frozen=True, gc=False):
    """What a posting does to one account: the sums of its legs there."""

    account: str
    key: Key
    out: int
    come: int


class Order(msgspec.Struct, frozen=True, gc=False):
    """A posting that somebody wants: checked as far as that goes without the accounts."""

    key: str
    legs: tuple[tuple[str, int], ...]
    kind: str
    memo: str
    refers: str
    record: Key
    """Where the posting with this key is."""
    sides: tuple[Side, ...]
    """One per account, in the order they first appear."""

    @property
    def keys(self) -> tuple[Key, ...]:
        """What its transaction declares."""
        keys = [side.key for side in self.sides]
        keys.append(self.record)
        keys.sort()
        return tuple(keys)


def order(
    key: str,
    legs: tuple[tuple[str, int], ...],
    kind: str = "transfer",
    memo: str = "",
    refers: str = "",
) -> Order:
    """Name the records that a posting touches."""
    check_memo(memo)
    sums: dict[str, tuple[int, int]] = {}
    for name, amount in legs:
        out, come = sums.get(name, (0, 0))
        sums[name] = (out - min(amount, 0), come + max(amount, 0))
    sides = [Side(name, account_key(name), *both) for name, both in sums.items()]
    return Order(key, legs, kind, memo, refers, transfer_key(key), tuple(sides))


def transfer_order(
    source: str,
    target: str,
    amount: int,
    key: str,
    memo: str = "",
    kind: str = "transfer",
    places: Callable[[str], Key] = account_key,
) -> Order:
    """Check a transfer; the accounts themselves are looked at inside the transaction.

    ``places`` says where an account's record is, to a bulk that asks for the same ones again.
    """
    check_amount(amount)
    if source == target:
        raise SameAccount(f"expected two different accounts, found {source!r} twice")
    if memo != "":
        check_memo(memo)
    sides = (Side(source, places(source), amount, 0), Side(target, places(target), 0, amount))
    legs = ((source, -amount), (target, amount))
    return Order(key, legs, kind, memo, "", transfer_key(key), sides)


def posting_order(entries: Sequence[tuple[str, int]], key: str, memo: str) -> Order:
    """Check a posting of many legs; whether they balance shows with the accounts' units."""
    legs = tuple((name, amount) for name, amount in entries)
    if not 2 <= len(legs) <= MAX_LEGS:
        raise LimitExceeded(f"expected 2 to {MAX_LEGS} entries in a posting, found {len(legs)}")
    for _, amount in legs:
        if type(amount) is not int:
            raise InvalidAmount(f"expected amounts as int, found {type(amount).__name__}")
        check_amount(abs(amount), "an entry's amount")
    return order(key, legs, "post", memo)


def check_memo(memo: str) -> None:
    """A memo is short text that can be stored."""
    if not isinstance(memo, str) or len(memo) > 1000:
        raise UsageError("expected memo= as text of at most 1000 characters")
    if not memo.isascii():
        codec.encode(memo)


def execute(wanted: Order) -> Callable[[Tx], Transfer]:
    """The pure function that does ``wanted`` inside a transaction over ``wanted.keys``."""
    return partial(perform, order=wanted)


Accounts = dict[str, Account]
"""Accounts that were read in this transaction, by name, as they stand now."""


def perform(tx: Tx, order: Order) -> Transfer:
    """Replay ``order`` if its key was used for it before, else post it."""
    accounts: Accounts = {}
    transfer = perform_on(tx, order, accounts)
    if not transfer.replayed:
        save_all(tx, order, accounts)
    return transfer


def perform_on(tx: Tx, order: Order, accounts: Accounts) -> Transfer:
    """``perform`` on ``accounts``, into which it loads what it needs; does not save them.

    Nothing has changed, neither there nor in ``tx``, when it raises one of our errors.
    """
    earlier = tx.body(order.record)
    if earlier is not None:
        return replay(order, decode_posting(earlier))
    load_all(tx, order, accounts)
    check_accounts(order, accounts, tx.now)
    return post_legs(tx, order, accounts)


def load_all(tx: Tx, order: Order, accounts: Accounts) -> None:
    """Load the accounts of ``order``; they exist, and its legs balance in their units."""
    unit: str | None = None
    scale = 0
    plain = order.kind != "post"
    for side in order.sides:
        account = accounts.get(side.account)
        if account is None:
            body = tx.body(side.key)
            if body is None:
                raise no_account(side.account)
            account = accounts[side.account] = decode_account(body)
        if unit is None:
            unit, scale = account.unit, account.scale
        elif account.unit != unit or account.scale != scale:
            plain = False
    if not plain:
        check_balanced(order, accounts)


def replay(order: Order, found: Posting) -> Transfer:
    """The earlier posting, if it is the same; else ``KeyReused``, naming what differs."""
    wanted = found.wanted
    fields = (
        ("kind", order.kind == found.kind),
        ("accounts", [n for n, _ in order.legs] == [n for n, _ in wanted]),
        ("amount", [a for _, a in order.legs] == [a for _, a in wanted]),
        ("memo", order.memo == found.memo),
        ("refers", order.refers == found.refers),
    )
    differing = [name for name, same in fields if not same]
    if differing:
        raise KeyReused(
            f"the key {order.key!r} was already used with another {', '.join(differing)}; "
            "use a new key for a new transfer",
            fields=differing,
        )
    return view(order.key, found, replayed=True)


def check_balanced(order: Order, accounts: Accounts) -> None:
    """One unit for a transfer; zero for each unit for a posting."""
    sums: Counter[tuple[str, int]] = Counter()
    for name, amount in order.legs:
        account = accounts[name]
        sums[account.unit, account.scale] += amount
    if order.kind != "post" and len(sums) > 1:
        units = sorted(f"{unit} with {scale} decimal places" for unit, scale in sums)
        raise UnitMismatch(f"expected accounts of one unit, found {' and '.join(units)}")
    for (unit, scale), total in sums.items():
        if total:
            raise Unbalanced(
                f"expected the entries in {unit} to add up to 0, found "
                f"{amounts.money(total, scale, unit)}{amounts.in_minor(scale, total)}"
            )


def check_accounts(order: Order, accounts: Accounts, now: int) -> None:
    """States, funds and overflow, on the net of each account's legs."""
    for side in order.sides:
        account = accounts[side.account]
        out, come = side.out, side.come
        if account.state != OPEN:
            check_usable(side.account, account)
        if account.debits + out > MAX_AMOUNT or account.credits + come > MAX_AMOUNT:
            raise BalanceOverflow(
                f"the sum of the entries of {side.account!r} would exceed "
                f"{amounts.money(MAX_AMOUNT, account.scale, account.unit)}, the most there can be",
                key=side.account,
            )
        floor = account.floor
        if out > come and floor is not None:
            held = account.held if not account.holds else account.held_at(now)
            if out - come > account.credits - account.debits - held - floor:
                check_funds(side.account, account, out - come, now)


def check_usable(name: str, account: Account) -> None:
    """Neither frozen nor closed."""
    if account.state == FROZEN:
        raise AccountFrozen(f"account {name!r} is frozen; thaw() it, or use another", key=name)
    if account.state == CLOSED:
        raise AccountClosed(f"account {name!r} is closed, for ever; use another", key=name)


def check_funds(name: str, account: Account, amount: int, now: int) -> None:
    """The available balance covers ``amount``, down to the account's floor."""
    if account.floor is None:
        return
    available = account.credits - account.debits - account.held_at(now) - account.floor
    if amount > available:
        has, needs = (amounts.money(n, account.scale, account.unit) for n in (available, amount))
        raise InsufficientFunds(
            f"account {name!r} needs {needs} and has {has} available"
            f"{amounts.in_minor(account.scale, amount, available)}",
            key=name,
            available=available,
            amount=amount,
        )


def post_legs(tx: Tx, order: Order, accounts: Accounts) -> Transfer:
    """Move the balances, number an entry for each leg, and write the posting.

    The accounts are the caller's to save.
    """
    key, now = order.key, tx.now
    legs: list[Leg] = []
    for name, amount in order.legs:
        account = accounts[name]
        if amount < 0:
            account.debits -= amount
        else:
            account.credits += amount
        number = account.entries = account.entries + 1
        legs.append(Leg(name, amount, account.credits - account.debits, number))
        latest = account.latest
        latest.append(key)
        if len(latest) == PAGE_ENTRIES:
            tx.append(page_key(name, number + 1 - PAGE_ENTRIES), encode(latest))
            account.latest = []
    posting = Posting(order.kind, (), legs, now, tx.by, order.memo, order.refers)
    tx.put_body(order.record, encode(posting))
    legs_seen, asked = tuple(legs), order.legs
    return Transfer(
        key, order.kind, legs_seen, now, tx.by, order.memo, order.refers, False, asked=asked
    )


def save_all(tx: Tx, order: Order, accounts: Accounts) -> None:
    """Write back the accounts of ``order``."""
    for side in order.sides:
        save(tx, side.key, accounts[side.account])


def save(tx: Tx, key: Key, account: Account) -> None:
    """Write an account back; holds that have expired are forgotten on the way."""
    if account.holds:
        account.holds = [hold for hold in account.holds if tx.now < hold.expires]
    tx.put_body(key, encode(account))


def view(key: str, posting: Posting, *, replayed: bool) -> Transfer:
    """A posting as its caller sees it."""
    return Transfer(
        key,
        posting.kind,
        tuple(posting.legs),
        posting.at,
        posting.by,
        posting.memo,
        posting.refers,
        replayed,
        posting.state,
        posting.expires,
        posting.wanted,
    )
