"""The ledger over HTTP: every request that moves money carries an ``Idempotency-Key``.

The key is the posting's own, so the receipt commits with the money: a request that is sent
again, however often and to whichever replica, moves nothing and gets the first answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from starlette.responses import Response

from perkey.errors import Forbidden
from perkey.ledger import AsyncLedger, Transfer
from perkey.server import listing
from perkey.server.calls import Call
from perkey.server.replaying import require_key
from perkey.server.replies import json_reply
from perkey.server.routes import Route
from perkey.store.views import moment


class Terms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an account is opened with."""

    unit: str
    scale: int = 2
    """How many decimal places its unit has."""
    floor: int | None = 0
    """The lowest available balance, in minor units; null: none."""


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A transfer, or with ``expires_in`` a hold that ends by itself."""

    source: str
    target: str
    amount: int
    """In minor units."""
    memo: str = ""


class HoldOrder(Order, frozen=True, forbid_unknown_fields=True):
    """A hold: what it keeps back can be settled or released."""

    expires_in: float | None = None
    """Seconds; null: never."""


class Settlement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Post a hold, or a part of it."""

    amount: int | None = None
    memo: str = ""


class Memo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why."""

    memo: str = ""


def _ledger(call: Call) -> AsyncLedger:
    return call.services.ledger


def _account(call: Call) -> str:
    name = call.params["account"]
    call.caller.need_key(name)
    return name


def _need(call: Call, accounts: Iterable[str]) -> None:
    for name in accounts:
        call.caller.need_key(name)


# ----------------------------------------------------------------------------- accounts


async def list_accounts(call: Call) -> Response:
    """Accounts whose name has a prefix, in order, with their balances."""
    prefix = call.text("prefix")
    call.caller.need_key(prefix)
    limit = call.whole("limit", listing.DEFAULT, 1, listing.MOST)
    found = await _ledger(call).accounts(prefix, after=call.text("after"), limit=limit)
    body: dict[str, Any] = {"accounts": found}
    if len(found) < limit:
        return json_reply(body)
    link = f"?{urlencode({**call.query, 'after': found[-1].account}, quote_via=quote)}"
    return json_reply(body | {"next": found[-1].account}, headers={"link": f'<{link}>; rel="next"'})


async def open_account(call: Call) -> Response:
    """Open an account; the same again is harmless, other terms are refused."""
    terms = call.decode(Terms)
    opened = await _ledger(call).open_account(
        _account(call), terms.unit, scale=terms.scale, floor=terms.floor, by=call.write.by
    )
    return json_reply(opened)


async def balance(call: Call) -> Response:
    """An account's figures, in minor units."""
    return json_reply(await _ledger(call).balance(_account(call)))


async def statement(call: Call) -> Response:
    """An account's entries, ascending, with the balance after each."""
    name, after = _account(call), call.whole("after", 0)
    limit = call.whole("limit", listing.DEFAULT, 1, listing.MOST)
    found = await _ledger(call).statement(name, after=after, limit=limit)
    return json_reply({"lines": [asdict(each) | {"at": moment(each.at)} for each in found]})


async def trial_balance(call: Call) -> Response:
    """The sums of all debits and credits by unit; a sound ledger has them equal."""
    if not call.caller.everywhere:
        raise Forbidden("this adds up every account, and the token is limited to prefixes")
    found = await _ledger(call).trial_balance()
    return json_reply(
        {
            "balanced": found.balanced,
            "debits": found.debits,
            "credits": found.credits,
            "accounts": found.accounts,
        }
    )


# ------------------------------------------------------------------------------- postings


def _key(call: Call) -> str:
    """The posting's key: the request's, behind the caller's name, so that no caller meets a key
    of another."""
    given = require_key(call)
    return f"{call.caller.name}/{given}" if call.caller.name else given


def _posted(made: Transfer) -> Response:
    """The same answer to the first request and to every repetition of it."""
    headers = {"location": "/v1/transfers/" + quote(made.key, safe="")}
    if made.replayed:
        headers["idempotent-replayed"] = "true"
    return json_reply(_facts(made), 201, headers)


def _facts(made: Transfer) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "key": made.key,
        "kind": made.kind,
        "at": moment(made.at),
        "by": made.by,
        "memo": made.memo,
        "legs": [
            {"account": leg.account, "amount": leg.amount, "balance": leg.balance}
            for leg in made.legs
        ],
    }
    if made.refers:
        facts["refers"] = made.refers
    if made.expires is not None:
        facts["expires"] = moment(made.expires)
    return facts


async def transfer(call: Call) -> Response:
    """Move money between two accounts, once for each Idempotency-Key."""
    key, order = _key(call), call.decode(Order)
    _need(call, (order.source, order.target))
    made = await _ledger(call).transfer(
        order.source, order.target, order.amount, key=key, memo=order.memo, by=call.write.by
    )
    return _posted(made)


async def hold(call: Call) -> Response:
    """Keep money back, to be settled or released."""
    key, order = _key(call), call.decode(HoldOrder)
    _need(call, (order.source, order.target))
    made = await _ledger(call).hold(
        order.source,
        order.target,
        order.amount,
        key=key,
        expires_in=order.expires_in,
        memo=order.memo,
        by=call.write.by,
    )
    return _posted(made)


async def find(call: Call) -> Response:
    """A posting by its key, and how it stands."""
    found = await _found(call)
    return json_reply(_facts(found) | ({"state": found.state} if found.state else {}))


async def _found(call: Call) -> Transfer:
    """The posting in the path, once the caller may touch its accounts."""
    found = await _ledger(call).find(call.params["key"])
    _need(call, (name for name, _ in found.asked))
    _need(call, (leg.account for leg in found.legs))
    return found


async def settle(call: Call) -> Response:
    """Post a hold, or a part of it; the rest is released."""
    key, asked = _key(call), call.decode(Settlement)
    held = (await _found(call)).key
    made = await _ledger(call).settle(
        held, key=key, amount=asked.amount, memo=asked.memo, by=call.write.by
    )
    return _posted(made)


async def release(call: Call) -> Response:
    """Give back what a hold keeps; the same again is harmless."""
    held = (await _found(call)).key
    return json_reply(_facts(await _ledger(call).release(held, by=call.write.by)))


async def reverse(call: Call) -> Response:
    """Post the opposite of a transfer, once; the same again is harmless."""
    asked = call.decode(Memo)
    moved = (await _found(call)).key
    made = await _ledger(call).reverse(moved, memo=asked.memo, by=call.write.by)
    return json_reply(_facts(made))


PAGED = ("prefix", "after", "limit")

ROUTES = [
    Route("GET", "/v1/accounts", list_accounts, query=PAGED),
    Route("PUT", "/v1/accounts/{account}", open_account, "write", takes=Terms),
    Route("GET", "/v1/accounts/{account}", balance),
    Route("GET", "/v1/accounts/{account}/statement", statement, query=("after", "limit")),
    Route("GET", "/v1/trial-balance", trial_balance),
    Route("POST", "/v1/transfers", transfer, "write", takes=Order, keyed=True),
    Route("GET", "/v1/transfers/{key}", find),
    Route("POST", "/v1/transfers/{key}/reverse", reverse, "write", takes=Memo),
    Route("POST", "/v1/holds", hold, "write", takes=HoldOrder, keyed=True),
    Route("POST", "/v1/holds/{key}/settle", settle, "write", takes=Settlement, keyed=True),
    Route("POST", "/v1/holds/{key}/release", release, "write"),
]
