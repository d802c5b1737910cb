"""The ledger: accounts, one account's statement and holds, one posting, the trial balance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from perkey.errors import NotFound
from perkey.flows import steps
from perkey.flows.ledger import queries
from perkey.flows.ledger.model import (
    Account,
    Posting,
    account_key,
    decode_account,
    decode_posting,
    transfer_key,
)
from perkey.flows.ledger.queries import Balance, Difference, Line, TrialBalance
from perkey.server.calls import Call
from perkey.server.pages import commands, render
from perkey.server.routes import Route
from perkey.store.keys import TRANSFERS
from perkey.store.record import Record

PAGE = 50
SEARCHED = 500
"""In how many postings the holds without an end are looked for: the account has only their sum."""


@dataclass(frozen=True, slots=True)
class Books:
    """The trial balance, and what recomputing every balance found."""

    sums: TrialBalance
    scales: dict[str, int]
    """Decimal places by unit, as far as the page knows them."""
    verified: bool = False
    wrong: Difference | None = None


async def accounts(call: Call) -> Response:
    """The accounts whose name begins with a prefix, and whether the books balance."""
    prefix, after = call.text("prefix"), call.text("after")
    allowed = call.caller.covers(prefix)
    found: list[Balance] = []
    if allowed:
        ledger = call.services.ledger
        found = await ledger.accounts(prefix, after=after, limit=PAGE)
    whole = not prefix and not after and len(found) < PAGE
    return render.page(
        call,
        "ledger.html",
        here="ledger",
        prefix=prefix,
        after=after,
        allowed=allowed,
        found=found,
        next=found[-1].account if len(found) == PAGE else "",
        books=await _books(call, found, whole=whole),
        export=commands.export(call),
        commands=[
            commands.perkey(call, "The same list", "ledger", "accounts", *filter(None, [prefix])),
            commands.perkey(call, "Recompute every balance", "ledger", "verify"),
        ],
    )


async def _books(call: Call, found: list[Balance], *, whole: bool) -> Books | None:
    """Adding up reads every account: of a long list only when it is asked for."""
    check = call.flag("check")
    if not call.caller.everywhere or not (check or (whole and found)):
        return None
    ledger = call.services.ledger
    sums = await ledger.trial_balance()
    scales = {each.unit: each.scale for each in found}
    return Books(sums, scales, check, await ledger.verify() if check else None)


# ------------------------------------------------------------------------------ one account


async def account(call: Call) -> Response:
    """One account: its figures, its latest entries, what is held."""
    name = call.text("account")
    call.caller.need_key(name)
    ledger = call.services.ledger
    balance = await ledger.balance(name)
    before = call.whole("before", balance.entries + 1, 1)
    start = max(0, min(before - 1, balance.entries) - PAGE)
    lines, postings, record, now = await call.services.store.run(
        _statement(name, start, min(before - 1, balance.entries) - start)
    )
    holds = [Kept(each.key, each.amount, each.expires) for each in record.holds]
    holds = [each for each in holds if each.expires is None or now < each.expires]
    endless: list[Kept] = await call.services.store.run(_endless(name)) if record.held else []
    holds += endless
    return render.page(
        call,
        "account.html",
        here="ledger",
        name=name,
        balance=balance,
        lines=[(line, postings.get(line.transfer)) for line in reversed(lines)],
        older=lines[0].number if lines and lines[0].number > 1 else 0,
        curve=curve(lines),
        holds=holds,
        unnamed=record.held - sum(each.amount for each in endless),
        searched=SEARCHED,
        now=now,
        commands=[
            commands.perkey(call, "The statement", "ledger", "statement", name),
            commands.perkey(call, "The balance", "ledger", "balance", name),
            *(_ending(call, holds[0].key) if holds else ()),
        ],
    )


def _ending(call: Call, key: str) -> list[commands.Command]:
    """What ends a hold: the first one stands for all."""
    return [
        commands.perkey(
            call, "Settle the first hold", "ledger", "settle", key, "--key", f"{key}/settled"
        ),
        commands.perkey(call, "Release it", "ledger", "release", key),
    ]


@dataclass(frozen=True, slots=True)
class Kept:
    """A hold on an account that is not over."""

    key: str
    amount: int
    expires: int | None
    """In ms of store time; None: it lasts until somebody settles or releases it."""


def _endless(name: str) -> steps.Flow[list[Kept]]:
    """The holds without an end on an account, as far as the first ``SEARCHED`` postings tell."""
    records: list[Record] = yield steps.Scan(TRANSFERS, "", SEARCHED)
    found = [(record.key[2:], decode_posting(record.body)) for record in records if record.body]
    return [
        Kept(key, -held.wanted[0][1], None)
        for key, held in found
        if held.state == "pending" and held.expires is None and held.wanted[0][0] == name
    ]


Statement = tuple[list[Line], dict[str, Posting], Account, int]


def _statement(name: str, after: int, limit: int) -> steps.Flow[Statement]:
    now: int = yield steps.Now()
    lines = (yield from queries.statement(name, after, limit)) if limit else []
    wanted = [*dict.fromkeys(line.transfer for line in lines)]
    found: list[Record | None] = (
        (yield steps.Read([transfer_key(key) for key in wanted])) if wanted else []
    )
    postings = {
        key: decode_posting(record.body)
        for key, record in zip(wanted, found, strict=True)
        if record is not None and record.body is not None
    }
    heads: list[Record | None] = yield steps.Read([account_key(name)])
    head = heads[0]
    if head is None or head.body is None:
        raise NotFound(f"there is no account {name!r:.80}")
    return lines, postings, decode_account(head.body), now


WIDTH, HEIGHT = 1000, 100


@dataclass(frozen=True, slots=True)
class Curve:
    """A balance as a line in a box of ``WIDTH`` by ``HEIGHT``."""

    points: str
    low: int
    """In minor units: what the bottom of the box stands for, and"""
    high: int
    """the top."""


def curve(lines: Sequence[Line]) -> Curve | None:
    """The balance before the first of these entries and after each, as steps of one width;
    None where it never moved.

    The box holds what the balance went through, not zero: of an account that stands at a
    million, a payment would be too small to be seen.
    """
    if not lines:
        return None
    balances = [lines[0].balance - lines[0].amount, *(line.balance for line in lines)]
    low, high = min(balances), max(balances)
    if low == high:
        return None
    across, up = WIDTH / len(balances), HEIGHT / (high - low)
    points: list[str] = []
    for at, each in enumerate(balances):
        height = HEIGHT - (each - low) * up
        points += (f"{at * across:.1f},{height:.1f}", f"{(at + 1) * across:.1f},{height:.1f}")
    return Curve(" ".join(points), low, high)


async def transfer(call: Call) -> Response:
    """One posting: its legs, what it refers to, how it stands."""
    key = call.text("key")
    found = await call.services.ledger.find(key)
    names = [name for name, _ in found.asked] + [leg.account for leg in found.legs]
    for name in names:
        call.caller.need_key(name)
    accounts: dict[str, Any] = await call.services.store.run(_accounts([*dict.fromkeys(names)]))
    return render.page(
        call,
        "transfer.html",
        here="ledger",
        key=key,
        found=found,
        accounts=accounts,
        commands=[
            commands.curl(call, "The same posting", f"/v1/transfers/{commands.segment(key)}")
        ],
    )


def _accounts(names: list[str]) -> steps.Flow[dict[str, Account]]:
    heads: list[Record | None] = yield steps.Read([account_key(name) for name in names])
    return {
        name: decode_account(head.body)
        for name, head in zip(names, heads, strict=True)
        if head is not None and head.body is not None
    }


ROUTES = [
    Route("GET", "/ui/ledger", accounts, query=("prefix", "after", "check"), page=True),
    Route("GET", "/ui/account", account, query=("account", "before"), page=True),
    Route("GET", "/ui/transfer", transfer, query=("key",), page=True),
]
