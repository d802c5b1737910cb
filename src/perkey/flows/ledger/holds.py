"""Two-phase transfers: hold an amount, then settle all or part of it, or release it.

A hold keeps its amount back on the source account until it is settled, released, or past its
expiry by store time.  Its state stands in one record that settle and release both change, so
exactly one of them wins.  The model is the two-phase transfer of TigerBeetle.
"""

from __future__ import annotations

from collections.abc import Callable

from perkey.errors import Expired, InvalidState, LimitExceeded, NotFound, UsageError
from perkey.flows.ledger import amounts, posting
from perkey.flows.ledger.model import (
    MAX_OPEN_HOLDS,
    Account,
    OpenHold,
    Posting,
    account_key,
    check_amount,
    decode_posting,
    encode,
    load,
    transfer_key,
)
from perkey.flows.ledger.posting import (
    Order,
    Transfer,
    check_accounts,
    check_funds,
    check_usable,
    load_all,
    post_legs,
    replay,
    save,
    save_all,
    view,
)
from perkey.store.transaction import Tx


def check_expiry(expires_in: float | None) -> int | None:
    """Milliseconds a hold lasts, or None for ever."""
    if expires_in is None:
        return None
    if isinstance(expires_in, bool) or not expires_in > 0:
        raise UsageError(f"expected expires_in= above 0 seconds, found {expires_in!r}")
    return int(expires_in * 1000)


def hold(order: Order, lasts_ms: int | None) -> Callable[[Tx], Transfer]:
    """Keep the order's amount back on its source account."""

    def fn(tx: Tx) -> Transfer:
        earlier = tx.body(order.record)
        if earlier is not None:
            return replay(order, decode_posting(earlier))
        accounts: posting.Accounts = {}
        load_all(tx, order, accounts)
        for account, each in accounts.items():
            check_usable(account, each)
        (source, _), (_, amount) = order.legs
        check_funds(source, accounts[source], amount, tx.now)
        expires = None if lasts_ms is None else tx.now + lasts_ms
        _keep_back(source, accounts[source], OpenHold(order.key, amount, expires or 0), expires)
        save(tx, order.sides[0].key, accounts[source])
        pending = Posting("hold", order.legs, [], tx.now, tx.by, order.memo, "", expires, "pending")
        tx.put_body(order.record, encode(pending))
        return view(order.key, pending, replayed=False)

    return fn


def _keep_back(name: str, account: Account, held: OpenHold, expires: int | None) -> None:
    if expires is None:
        account.held += held.amount
        return
    if len(account.holds) >= MAX_OPEN_HOLDS:
        raise LimitExceeded(
            f"account {name!r} has {len(account.holds)} open holds and the limit is "
            f"{MAX_OPEN_HOLDS}; settle or release some"
        )
    account.holds.append(held)


def settle(order: Order, amount: int | None) -> Callable[[Tx], Transfer]:
    """Post all of a hold or a part of it; the rest becomes available again.

    ``order`` carries the settlement's key, the hold's legs, and the hold's key in ``refers``.
    """

    def fn(tx: Tx) -> Transfer:
        wanted = order if amount is None else with_amount(order, amount)
        earlier = tx.body(order.record)
        if earlier is not None:
            return replay(wanted, decode_posting(earlier))
        pending = _pending(tx, order.refers)
        whole = pending.wanted[1][1]
        accounts: posting.Accounts = {}
        load_all(tx, wanted, accounts)
        if amount is not None and amount > whole:
            raise _too_much(accounts[order.legs[0][0]], whole, amount)
        _give_back(accounts[order.legs[0][0]], order.refers, pending)
        check_accounts(wanted, accounts, tx.now)
        _end(tx, order.refers, pending, "settled")
        transfer = post_legs(tx, wanted, accounts)
        save_all(tx, wanted, accounts)
        return transfer

    return fn


def _too_much(account: Account, held: int, asked: int) -> UsageError:
    most, found = (amounts.money(n, account.scale, account.unit) for n in (held, asked))
    minor = amounts.in_minor(account.scale, held, asked)
    return UsageError(f"expected at most the held {most}, found {found}{minor}")


def with_amount(order: Order, amount: int) -> Order:
    """The same settlement over another amount."""
    (source, _), (target, _) = order.legs
    return settlement(order.refers, source, target, amount, order.key, order.memo)


def settlement(hold_key: str, source: str, target: str, amount: int, key: str, memo: str) -> Order:
    """The order that settles a hold with ``amount``."""
    return posting.order(key, ((source, -amount), (target, amount)), "settle", memo, hold_key)


def release(key: str, source: str) -> Callable[[Tx], Transfer]:
    """End a hold without moving anything; releasing it again is a replay."""

    def fn(tx: Tx) -> Transfer:
        body = tx.body(transfer_key(key))
        if body is not None and decode_posting(body).state == "released":
            return view(key, decode_posting(body), replayed=True)
        pending = _pending(tx, key, expired_too=True)
        account = load(tx, source)
        _give_back(account, key, pending)
        save(tx, account_key(source), account)
        return view(key, _end(tx, key, pending, "released"), replayed=False)

    return fn


def _pending(tx: Tx, key: str, *, expired_too: bool = False) -> Posting:
    body = tx.body(transfer_key(key))
    if body is None:
        raise NotFound(f"there is no hold with the key {key!r}", key=key)
    found = decode_posting(body)
    if found.kind != "hold":
        raise InvalidState(f"{key!r} is a {found.kind}, not a hold", key=key)
    if found.state != "pending":
        raise InvalidState(f"hold {key!r} is already {found.state}", key=key, state=found.state)
    if not expired_too and found.expires is not None and tx.now >= found.expires:
        raise Expired(f"hold {key!r} expired {tx.now - found.expires} ms ago", key=key)
    return found


def _give_back(account: Account, key: str, pending: Posting) -> None:
    if pending.expires is None:
        account.held -= pending.wanted[1][1]
    else:
        account.holds = [hold for hold in account.holds if hold.key != key]


def _end(tx: Tx, key: str, pending: Posting, state: str) -> Posting:
    pending.state = state
    tx.put_body(transfer_key(key), encode(pending))
    return pending


def held_amount(amount: int | None) -> int | None:
    """Check a partial settlement's amount."""
    return None if amount is None else check_amount(amount)
