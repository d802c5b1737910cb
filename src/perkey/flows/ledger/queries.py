"""Looking at a ledger: balances, statements, the trial balance, and the proof."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perkey.errors import NotFound
from perkey.flows import steps
from perkey.flows.ledger.model import (
    CLOSED,
    FROZEN,
    Account,
    account_key,
    decode_account,
    decode_entry,
    decode_posting,
    entries_prefix,
    entry_key,
    transfer_key,
)
from perkey.flows.ledger.posting import Transfer, view
from perkey.store.keys import ACCOUNTS
from perkey.store.record import Record

PAGE = 1000


@dataclass(frozen=True, slots=True)
class Balance:
    """An account's figures, in minor units."""

    account: str
    unit: str
    scale: int
    posted: int
    held: int
    available: int
    """What a transfer may take: posted, less what is held, down to the floor."""
    floor: int | None
    state: str
    entries: int
    debits: int
    credits: int


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a statement."""

    number: int
    transfer: str
    amount: int
    balance: int
    at: int


@dataclass(frozen=True, slots=True)
class TrialBalance:
    """For each unit the sum of all debits and all credits; a sound ledger has them equal."""

    debits: dict[str, int]
    credits: dict[str, int]
    accounts: int

    @property
    def balanced(self) -> bool:
        """Whether debits equal credits in every unit."""
        return self.debits == self.credits


@dataclass(frozen=True, slots=True)
class Difference:
    """The first thing that ``verify`` found wrong."""

    account: str
    what: str
    expected: int
    found: int


def balance(name: str) -> steps.Flow[Balance]:
    """One account's figures at one moment."""
    now = yield steps.Now()
    (record,) = yield steps.Read([account_key(name)])
    if record is None or record.body is None:
        raise NotFound(f"there is no account {name!r}", key=name)
    return _balance(name, decode_account(record.body), now)


def _balance(name: str, account: Account, now: int) -> Balance:
    held = account.held_at(now)
    floor = account.floor or 0
    state = {FROZEN: "frozen", CLOSED: "closed"}.get(account.state, "open")
    return Balance(
        name,
        account.unit,
        account.scale,
        account.posted,
        held,
        account.posted - held - floor,
        account.floor,
        state,
        account.entries,
        account.debits,
        account.credits,
    )


def accounts(prefix: str, after: str, limit: int) -> steps.Flow[list[Balance]]:
    """Up to ``limit`` accounts by name."""
    now = yield steps.Now()
    start = ACCOUNTS + after if after else ""
    records: list[Record] = yield steps.Scan(ACCOUNTS + prefix, start, limit)
    return [
        _balance(record.key[2:], decode_account(record.body), now)
        for record in records
        if record.body is not None
    ]


def find(key: str) -> steps.Flow[Transfer]:
    """The posting with this key."""
    (record,) = yield steps.Read([transfer_key(key)])
    if record is None or record.body is None:
        raise NotFound(f"there is no transfer with the key {key!r}", key=key)
    return view(key, decode_posting(record.body), replayed=True)


def statement(name: str, after: int, limit: int) -> steps.Flow[list[Line]]:
    """Up to ``limit`` entries above number ``after``, ascending, with running balances."""
    (record,) = yield steps.Read([account_key(name)])
    if record is None:
        raise NotFound(f"there is no account {name!r}", key=name)
    start = entry_key(name, after) if after else ""
    records: list[Record] = yield steps.Scan(entries_prefix(name), start, limit)
    return [_line(record) for record in records]


def _line(record: Record) -> Line:
    assert record.body is not None
    entry = decode_entry(record.body)
    number = int(record.key.rpartition(";")[2])
    return Line(number, entry.transfer, entry.amount, entry.balance, entry.at)


def trial_balance() -> steps.Flow[TrialBalance]:
    """Debits and credits of all accounts, by unit."""
    debits: dict[str, int] = {}
    credits: dict[str, int] = {}
    count = 0
    after = ""
    while True:
        records: list[Record] = yield steps.Scan(ACCOUNTS, after, PAGE)
        if not records:
            return TrialBalance(debits, credits, count)
        after = records[-1].key
        for record in records:
            assert record.body is not None
            account = decode_account(record.body)
            debits[account.unit] = debits.get(account.unit, 0) + account.debits
            credits[account.unit] = credits.get(account.unit, 0) + account.credits
            count += 1


def verify() -> steps.Flow[Difference | None]:
    """Recompute every balance from its entries; the first difference, or None.

    Looks at each account as of the number of entries its record shows, so it may run beside
    transfers.
    """
    after = ""
    while True:
        records: list[Record] = yield steps.Scan(ACCOUNTS, after, PAGE)
        if not records:
            return None
        after = records[-1].key
        for record in records:
            assert record.body is not None
            wrong = yield from _verify(record.key[2:], decode_account(record.body))
            if wrong is not None:
                return wrong


def _verify(name: str, account: Account) -> steps.Flow[Difference | None]:
    debits = credits = count = 0
    while count < account.entries:
        lines = yield from statement(name, count, min(PAGE, account.entries - count))
        for line in lines:
            count += 1
            debits -= min(line.amount, 0)
            credits += max(line.amount, 0)
            wrong = _first(
                name,
                (
                    ("the number of an entry", count, line.number),
                    (f"the balance of entry {line.number}", credits - debits, line.balance),
                ),
            )
            if wrong is not None:
                return wrong
        if not lines:
            return Difference(name, "the number of entries", account.entries, count)
    return _first(
        name,
        (("debits", debits, account.debits), ("credits", credits, account.credits)),
    )


def _first(name: str, facts: tuple[tuple[str, int, int], ...]) -> Difference | None:
    wrong: Iterator[Difference] = (
        Difference(name, what, expected, found)
        for what, expected, found in facts
        if expected != found
    )
    return next(wrong, None)
