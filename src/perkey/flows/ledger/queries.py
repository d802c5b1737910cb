"""Looking at a ledger: balances, statements, the trial balance, and the proof."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perkey.errors import NotFound, StoreCorrupt
from perkey.flows import steps
from perkey.flows.ledger.model import (
    CLOSED,
    FROZEN,
    PAGE_ENTRIES,
    Account,
    Posting,
    account_key,
    decode_account,
    decode_page,
    decode_posting,
    entries_prefix,
    no_account,
    page_key,
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
        raise no_account(name)
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
    if record is None or record.body is None:
        raise no_account(name)
    entries = yield from _entries(name, decode_account(record.body), after, limit)
    lines = [_line(name, number, key, posting) for number, key, posting in entries]
    for line, (number, key, _) in zip(lines, entries, strict=True):
        if line is None:
            raise StoreCorrupt(
                f"entry {number} of account {name!r} is of transfer {key!r}, and there it is "
                "missing; verify() the ledger"
            )
    return [line for line in lines if line is not None]


def _line(name: str, number: int, key: str, posting: Posting | None) -> Line | None:
    if posting is None:
        return None
    leg = posting.leg(name, number)
    return None if leg is None else Line(number, key, leg.amount, leg.balance, posting.at)


def _entries(
    name: str, account: Account, after: int, limit: int
) -> steps.Flow[list[tuple[int, str, Posting | None]]]:
    """(number, transfer's key, transfer) of entries above ``after``; a page holds them or the
    account itself."""
    wanted: list[tuple[int, str]] = []
    last = min(account.entries, after + limit)
    first = after - after % PAGE_ENTRIES + 1
    if first <= min(account.paged, last):
        pages = (last - first) // PAGE_ENTRIES + 1
        start = page_key(name, first - 1)
        records: list[Record] = yield steps.Scan(entries_prefix(name), start, pages)
        for record in records:
            assert record.body is not None
            number = int(record.key.rpartition(";")[2])
            wanted += enumerate(decode_page(record.body), number)
    wanted += enumerate(account.latest, account.paged + 1)
    wanted = [each for each in wanted if after < each[0] <= last]
    return (yield from _postings(wanted))


def _postings(
    wanted: list[tuple[int, str]],
) -> steps.Flow[list[tuple[int, str, Posting | None]]]:
    found: list[tuple[int, str, Posting | None]] = []
    for start in range(0, len(wanted), PAGE):
        some = wanted[start : start + PAGE]
        records: list[Record | None] = yield steps.Read([transfer_key(key) for _, key in some])
        for (number, key), record in zip(some, records, strict=True):
            body = None if record is None else record.body
            found.append((number, key, None if body is None else decode_posting(body)))
    return found


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
        entries = yield from _entries(name, account, count, PAGE)
        for number, key, posting in entries:
            count += 1
            line = _line(name, number, key, posting)
            if line is None:
                return Difference(name, f"entry {number} in transfer {key!r}", 1, 0)
            debits -= min(line.amount, 0)
            credits += max(line.amount, 0)
            wrong = _first(
                name,
                (
                    ("the number of an entry", count, number),
                    (f"the balance of entry {number}", credits - debits, line.balance),
                ),
            )
            if wrong is not None:
                return wrong
        if not entries:
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
