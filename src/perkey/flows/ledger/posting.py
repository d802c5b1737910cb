"""Moving money: pure functions that run inside one transaction.

Every check comes before the first write, so a refusal leaves nothing, and its key stays free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    Account,
    Entry,
    Leg,
    Posting,
    account_key,
    check_amount,
    decode_posting,
    encode,
    entry_key,
    load,
    transfer_key,
)
from perkey.store.keys import Key
from perkey.store.transaction import Tx


@dataclass(frozen=True, slots=True)
class Transfer:
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

    @property
    def amount(self) -> int:
        """What came in on all legs together (half of what moved)."""
        return sum(leg.amount for leg in self.legs if leg.amount > 0)


@dataclass(frozen=True, slots=True)
class Order:
    """A posting that somebody wants: checked as far as that goes without the accounts."""

    key: str
    legs: tuple[tuple[str, int], ...]
    kind: str = "transfer"
    memo: str = ""
    refers: str = ""

    @property
    def keys(self) -> tuple[Key, ...]:
        """What its transaction declares."""
        return tuple(
            sorted({transfer_key(self.key), *(account_key(name) for name, _ in self.legs)})
        )


def transfer_order(source: str, target: str, amount: int, key: str, memo: str) -> Order:
    """Check a transfer; the accounts themselves are looked at inside the transaction."""
    check_amount(amount)
    if source == target:
        raise SameAccount(f"expected two different accounts, found {source!r} twice")
    check_memo(memo)
    return Order(key, ((source, -amount), (target, amount)), memo=memo)


def posting_order(entries: Sequence[tuple[str, int]], key: str, memo: str) -> Order:
    """Check a posting of many legs; whether they balance shows with the accounts' units."""
    check_memo(memo)
    legs = tuple((name, amount) for name, amount in entries)
    if not 2 <= len(legs) <= MAX_LEGS:
        raise LimitExceeded(f"expected 2 to {MAX_LEGS} entries in a posting, found {len(legs)}")
    for _, amount in legs:
        if type(amount) is not int:
            raise InvalidAmount(f"expected amounts as int, found {type(amount).__name__}")
        check_amount(abs(amount), "an entry's amount")
    return Order(key, legs, "post", memo)


def check_memo(memo: str) -> None:
    """A memo is short text."""
    if not isinstance(memo, str) or len(memo) > 1000:
        raise UsageError("expected memo= as text of at most 1000 characters")


def execute(order: Order) -> Callable[[Tx], Transfer]:
    """The pure function that does ``order`` inside a transaction over ``order.keys``."""
    return lambda tx: perform(tx, order)


def perform(tx: Tx, order: Order) -> Transfer:
    """Replay ``order`` if its key was used for it before, else post it."""
    name = transfer_key(order.key)
    earlier = tx.body(name)
    if earlier is not None:
        return replay(order, decode_posting(earlier))
    accounts = {account: load(tx, account) for account, _ in order.legs}
    check_balanced(order, accounts)
    check_accounts(order, accounts, tx.now)
    legs = write_legs(tx, order.key, order.legs, accounts)
    posting = Posting(order.kind, list(order.legs), legs, tx.now, tx.by, order.memo, order.refers)
    tx.put_body(name, encode(posting))
    return view(order.key, posting, replayed=False)


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
    for name, account in accounts.items():
        check_usable(name, account)
        out = -sum(amount for leg, amount in order.legs if leg == name and amount < 0)
        come = sum(amount for leg, amount in order.legs if leg == name and amount > 0)
        check_room(name, account, out, come)
        if out > come:
            check_funds(name, account, out - come, now)


def check_usable(name: str, account: Account) -> None:
    """Neither frozen nor closed."""
    if account.state == FROZEN:
        raise AccountFrozen(f"account {name!r} is frozen", key=name)
    if account.state == CLOSED:
        raise AccountClosed(f"account {name!r} is closed", key=name)


def check_room(name: str, account: Account, out: int, come: int) -> None:
    """No side's sum may leave 63 bits."""
    if account.debits + out > MAX_AMOUNT or account.credits + come > MAX_AMOUNT:
        raise BalanceOverflow(
            f"the sum of the entries of {name!r} would exceed {MAX_AMOUNT}", key=name
        )


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


def write_legs(
    tx: Tx, key: str, legs: Sequence[tuple[str, int]], accounts: dict[str, Account]
) -> list[Leg]:
    """Move the balances and append an entry for each leg."""
    written: list[Leg] = []
    for name, amount in legs:
        account = accounts[name]
        if amount < 0:
            account.debits -= amount
        else:
            account.credits += amount
        account.entries += 1
        balance = account.credits - account.debits
        written.append(Leg(name, amount, balance, account.entries))
        tx.append(entry_key(name, account.entries), encode(Entry(key, amount, balance, tx.now)))
    for name, account in accounts.items():
        save(tx, name, account)
    return written


def save(tx: Tx, name: str, account: Account) -> None:
    """Write an account back; holds that have expired are forgotten on the way."""
    if account.holds:
        account.holds = [hold for hold in account.holds if tx.now < hold.expires]
    tx.put_body(account_key(name), encode(account))


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
    )
