"""What a ledger keeps: accounts, transfers, entries; compact, and only ever added to.

A transfer's record is found by its idempotency key, is its receipt, and says what it did to
each account: amount, balance after it, number of the entry.  An account's record carries its
balances and the keys of its latest transfers; each ``PAGE_ENTRIES`` of them become a record of
their own that is never written again.  So a transfer writes three small records, and next to
nothing at a random place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from perkey.errors import InvalidAmount, NotFound
from perkey.store.keys import ACCOUNTS, ENTRIES, TRANSFERS, Key, check_name, composite
from perkey.store.transaction import Tx

MAX_AMOUNT = 2**63 - 1
"""The largest amount, balance or sum of one side, in minor units."""

MAX_LEGS = 100
"""How many entries one posting may have."""

MAX_OPEN_HOLDS = 1000
"""How many expiring holds one account may have open at a time."""

PAGE_ENTRIES = 16
"""How many entries stand together in one record; part of the format."""

OPEN, FROZEN, CLOSED = range(3)


class OpenHold(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An expiring hold, as its account remembers it."""

    key: str
    amount: int
    expires: int


class Account(msgspec.Struct, array_like=True):
    """One account.  All amounts are integers in minor units (cents for a scale of 2)."""

    unit: str
    scale: int
    floor: int | None
    """The lowest available balance allowed; None: none."""
    state: int
    debits: int
    """The sum of all that went out; only grows."""
    credits: int
    """The sum of all that came in; only grows."""
    held: int
    """What holds without an expiry keep back."""
    entries: int
    """How many entries this account has; numbers the next one."""
    opened: int
    holds: list[OpenHold]
    latest: list[str]
    """The keys of the transfers behind its last entries, those that fill no page yet."""

    @property
    def posted(self) -> int:
        return self.credits - self.debits

    def held_at(self, now: int) -> int:
        """What is held back at ``now``, in ms of store time; an expired hold holds nothing."""
        if not self.holds:
            return self.held
        return self.held + sum(hold.amount for hold in self.holds if now < hold.expires)

    @property
    def paged(self) -> int:
        """How many entries stand in pages."""
        return self.entries - len(self.latest)


class Leg(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One side of a posting."""

    account: str
    amount: int
    """Positive: into the account; negative: out of it."""
    balance: int
    """The account's posted balance after it."""
    entry: int
    """Its number in the account, from 1."""


class Posting(msgspec.Struct, array_like=True):
    """The record of a transfer, a posting, a hold, a settlement or a reversal."""

    kind: str
    """transfer | post | hold | settle | release | reverse"""
    asked: Sequence[tuple[str, int]]
    """What was asked for, where that is not what the legs say; see ``wanted``."""
    legs: list[Leg]
    at: int
    by: str
    memo: str
    refers: str
    """The key of the posting that this one settles, releases or reverses; else empty."""
    expires: int | None = None
    state: str = ""
    """Of a hold: pending | settled | released.  Past its expiry a pending one is expired."""

    @property
    def wanted(self) -> tuple[tuple[str, int], ...]:
        """What was asked for, to tell a replay from a reuse of its key."""
        if self.asked:
            return tuple(self.asked)
        return tuple([(leg.account, leg.amount) for leg in self.legs])

    def leg(self, account: str, number: int) -> Leg | None:
        """The leg that is the ``number``-th entry of ``account``, if it has that."""
        for leg in self.legs:
            if leg.entry == number and leg.account == account:
                return leg
        return None


_accounts = msgspec.json.Decoder(Account)
_postings = msgspec.json.Decoder(Posting)
_pages = msgspec.json.Decoder(list[str])
encode = msgspec.json.Encoder().encode
decode_account = _accounts.decode
decode_posting = _postings.decode
decode_page = _pages.decode


def account_key(name: str) -> Key:
    """Where an account's record is."""
    check_name(name)
    return Key(f"{ACCOUNTS}{name}")


def transfer_key(key: str) -> Key:
    """Where the posting with this idempotency key is."""
    check_name(key)
    return Key(f"{TRANSFERS}{key}")


def entries_prefix(name: str) -> str:
    """The common start of the keys of an account's pages of entries, and of nothing else."""
    return f"{composite(ENTRIES, name)};"


def page_key(name: str, number: int) -> Key:
    """Where the page whose first entry has ``number`` is; ordered as numbers are."""
    return Key(f"{ENTRIES}{len(name)}:{name};{number:015d}")


def load(tx: Tx, name: str) -> Account:
    """The account, or ``NotFound``."""
    body = tx.body(account_key(name))
    if body is None:
        raise no_account(name)
    return decode_account(body)


def no_account(name: str) -> NotFound:
    """The error for an account that nobody opened."""
    how = "Ledger.open_account(), or perkey ledger open"
    return NotFound(f"there is no account {name!r}; open it first ({how})", key=name)


def check_amount(amount: Any, what: str = "amount") -> int:
    """Exactly an int above 0 and within 63 bits: no bool, no float, no text, no Decimal."""
    if type(amount) is not int:
        raise InvalidAmount(
            f"expected {what} as a whole number of minor units (int), found "
            f"{type(amount).__name__}; money is never a float: use 1250 for 12.50"
        )
    if not 0 < amount <= MAX_AMOUNT:
        raise InvalidAmount(f"expected {what} from 1 to {MAX_AMOUNT} minor units, found {amount}")
    return amount
