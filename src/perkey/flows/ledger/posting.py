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
from perkey.flows.ledger.model import (
    CLOSED,
    FROZEN,
    MAX_AMOUNT,
    MAX_LEGS,
    OPEN,
    Account,
    Entry,
    Leg,
    Posting,
    account_key,
    check_amount,
    decode_account,
    decode_posting,
    encode,
    entry_key,
    no_account,
    transfer_key,
)
from perkey.store.keys import Key
from perkey.store.transaction import Tx


class Transfer(msgspec.Struct, frozen=True):
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


class Side(msgspec.Struct, frozen=True):
    """What a posting does to one account: the sums of its legs there."""

    account: str
    key: Key
    out: int
    come: int


class Order(msgspec.Struct, frozen=True):
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
        return tuple(sorted([self.record, *[side.key for side in self.sides]]))


def order(
    key: str,
    legs: tuple[tuple[str, int], ...],
    kind: str = "transfer",
    memo: str = "",
    refers: str = "",
) -> Order:
    """Name the records that a posting touches."""
    check_memo(memo)
    if len(legs) == 2 and legs[0][0] != legs[1][0]:
        sides = [Side(name, account_key(name), max(-n, 0), max(n, 0)) for name, n in legs]
    else:
        sums: dict[str, tuple[int, int]] = {}
        for name, amount in legs:
            out, come = sums.get(name, (0, 0))
            sums[name] = (out - min(amount, 0), come + max(amount, 0))
        sides = [Side(name, account_key(name), *both) for name, both in sums.items()]
    return Order(key, legs, kind, memo, refers, transfer_key(key), tuple(sides))


def transfer_order(
    source: str, target: str, amount: int, key: str, memo: str = "", kind: str = "transfer"
) -> Order:
    """Check a transfer; the accounts themselves are looked at inside the transaction."""
    check_amount(amount)
    if source == target:
        raise SameAccount(f"expected two different accounts, found {source!r} twice")
    return order(key, ((source, -amount), (target, amount)), kind, memo)


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
    """A memo is short text."""
    if not isinstance(memo, str) or len(memo) > 1000:
        raise UsageError("expected memo= as text of at most 1000 characters")


def execute(wanted: Order) -> Callable[[Tx], Transfer]:
    """The pure function that does ``wanted`` inside a transaction over ``wanted.keys``."""
    return partial(perform, order=wanted)


def perform(tx: Tx, order: Order) -> Transfer:
    """Replay ``order`` if its key was used for it before, else post it."""
    earlier = tx.body(order.record)
    if earlier is not None:
        return replay(order, decode_posting(earlier))
    accounts = load_all(tx, order)
    check_accounts(order, accounts, tx.now)
    return post_legs(tx, order, accounts)


def load_all(tx: Tx, order: Order) -> dict[str, Account]:
    """The accounts of ``order``; they exist, and its legs balance in their units."""
    accounts: dict[str, Account] = {}
    units: set[tuple[str, int]] = set()
    for side in order.sides:
        body = tx.body(side.key)
        if body is None:
            raise no_account(side.account)
        account = accounts[side.account] = decode_account(body)
        units.add((account.unit, account.scale))
    if len(units) > 1 or order.kind == "post":
        check_balanced(order, accounts)
    return accounts


def replay(order: Order, found: Posting) -> Transfer:
    """The earlier posting, if it is the same; else ``KeyReused``, naming what differs."""
    fields = (
        ("kind", order.kind == found.kind),
        ("accounts", [n for n, _ in order.legs] == [n for n, _ in found.asked]),
        ("amount", [a for _, a in order.legs] == [a for _, a in found.asked]),
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


def check_balanced(order: Order, accounts: dict[str, Account]) -> None:
    """One unit for a transfer; zero for each unit for a posting."""
    sums: Counter[tuple[str, int]] = Counter()
    for name, amount in order.legs:
        account = accounts[name]
        sums[account.unit, account.scale] += amount
    if order.kind != "post" and len(sums) > 1:
        units = sorted({account.unit for account in accounts.values()})
        raise UnitMismatch(f"expected accounts of one unit, found {' and '.join(units)}")
    for (unit, _), total in sums.items():
        if total:
            raise Unbalanced(f"expected the entries in {unit} to add up to 0, found {total}")


def check_accounts(order: Order, accounts: dict[str, Account], now: int) -> None:
    """States, funds and overflow, on the net of each account's legs."""
    for side in order.sides:
        account = accounts[side.account]
        if account.state != OPEN:
            check_usable(side.account, account)
        if account.debits + side.out > MAX_AMOUNT or account.credits + side.come > MAX_AMOUNT:
            raise BalanceOverflow(
                f"the sum of the entries of {side.account!r} would exceed {MAX_AMOUNT}",
                key=side.account,
            )
        if side.out > side.come and account.floor is not None:
            check_funds(side.account, account, side.out - side.come, now)


def check_usable(name: str, account: Account) -> None:
    """Neither frozen nor closed."""
    if account.state == FROZEN:
        raise AccountFrozen(f"account {name!r} is frozen", key=name)
    if account.state == CLOSED:
        raise AccountClosed(f"account {name!r} is closed", key=name)


def check_funds(name: str, account: Account, amount: int, now: int) -> None:
    """The available balance covers ``amount``, down to the account's floor."""
    if account.floor is None:
        return
    available = account.posted - account.held_at(now) - account.floor
    if amount > available:
        raise InsufficientFunds(
            f"account {name!r} has {available} available, and {amount} was asked for",
            key=name,
            available=available,
            amount=amount,
        )


def post_legs(tx: Tx, order: Order, accounts: dict[str, Account]) -> Transfer:
    """Move the balances, append an entry for each leg, and write the posting."""
    key, now = order.key, tx.now
    legs: list[Leg] = []
    for name, amount in order.legs:
        account = accounts[name]
        if amount < 0:
            account.debits -= amount
        else:
            account.credits += amount
        account.entries += 1
        balance = account.credits - account.debits
        legs.append(Leg(name, amount, balance, account.entries))
        entry = Entry(key, amount, balance, now)
        tx.append(entry_key(name, account.entries), encode(entry))
    for side in order.sides:
        save(tx, side.key, accounts[side.account])
    posting = Posting(order.kind, order.legs, legs, now, tx.by, order.memo, order.refers)
    tx.put_body(order.record, encode(posting))
    return view(key, posting, replayed=False)


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
        tuple(posting.asked),
    )
