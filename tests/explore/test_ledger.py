"""Every interleaving of transfers under one key, with failures, crashes and lost replies.

Each caller is a process of its own on one store: only what is inside the transaction keeps them
apart.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from perkey import Expired, InvalidState
from perkey.drivers import threads
from perkey.flows import steps
from perkey.flows.ledger import holds, operations, posting, queries
from perkey.flows.ledger.model import Account, Posting, account_key, load, transfer_key
from perkey.flows.ledger.posting import Order, Transfer
from perkey.store.transaction import Tx
from perkey.testing import InjectedFailure, explore, register_fingerprint
from tests.explore.stepped import SteppedStore

FUNDS, AMOUNT, EXPIRY_S = 100, 30, 10

register_fingerprint(
    Transfer, lambda each: [each.key, each.kind, each.amount, each.state, each.replayed]
)
register_fingerprint(Order, lambda order: [order.key, *order.legs, order.kind])
register_fingerprint(Posting, lambda found: [found.kind, found.state, *found.asked])


def run(store: SteppedStore, flow: steps.Flow[Any]) -> Any:
    """A flow in one go, before or after the exploration."""
    return threads.run(flow, store.core)


async def world(*, lossy: bool = False, hold: bool = False, expires: bool = False) -> SteppedStore:
    store = SteppedStore(lossy)
    run(store, operations.open_account("world", "EUR", 2, None, ""))
    for name in ("a", "b"):
        run(store, operations.open_account(name, "EUR", 2, 0, ""))
    run(store, operations.transfer("world", "a", FUNDS, "funding", "", "", None))
    if hold:
        lasts = EXPIRY_S if expires else None
        run(store, operations.hold("a", "b", AMOUNT, "h", lasts, "", ""))
    return store


async def pay(store: SteppedStore, tries: int = 1) -> str:
    """Transfer under the one key; after a failure, once more."""
    for attempt in range(tries):
        try:
            moved = await store.run(operations.transfer("a", "b", AMOUNT, "k", "", "", None))
        except InjectedFailure:
            if attempt == tries - 1:
                raise
            continue
        return "replayed" if moved.replayed else "ran"
    return "never"


def moved_at_most_once(store: SteppedStore, ended: Any) -> None:
    """Conserved, moved at most once, an answer means it happened, and the key is not dead."""
    a, b = balance(store, "a"), balance(store, "b")
    assert a + b == FUNDS, "money was made or lost"
    assert b in (0, AMOUNT), f"the money moved {b // AMOUNT} times"
    answers = [each for each in ended.results if each in ("ran", "replayed")]
    assert b == AMOUNT or not answers
    assert answers.count("ran") <= 1
    assert run(store, queries.verify()) is None
    again = run(store, operations.transfer("a", "b", AMOUNT, "k", "", "", None))
    assert again.replayed == (b == AMOUNT)
    assert balance(store, "b") == AMOUNT


def balance(store: SteppedStore, name: str) -> int:
    found: queries.Balance = run(store, queries.balance(name))
    return found.posted


def explored(callers: int = 3, *, tries: int = 1, lossy: bool = False, **budgets: int) -> Any:
    return explore(
        partial(world, lossy=lossy),
        [partial(pay, tries=tries)] * callers,
        check=moved_at_most_once,
        steps=["transact"],
        seconds=250,
        **budgets,
    )


@pytest.mark.parametrize(
    ("options", "budgets"),
    [
        ({"callers": 3}, {"failures": 1}),
        ({"callers": 3}, {"crashes": 1}),
        ({"callers": 3}, {"cancellations": 1}),
        ({"callers": 3, "tries": 2, "lossy": True}, {"lost_replies": 1}),
        ({"callers": 2, "tries": 2, "lossy": True}, {"lost_replies": 1, "crashes": 1}),
    ],
)
def test_the_money_moves_at_most_once(options: dict[str, Any], budgets: dict[str, int]) -> None:
    explored(**options, **budgets).assert_holds()


def test_a_replay_check_outside_the_transaction_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def transfer(
        source: str, target: str, amount: int, key: str, *rest: Any
    ) -> steps.Flow[Transfer]:
        wanted = posting.transfer_order(source, target, amount, key)
        (found,) = yield steps.Read([wanted.record])
        if found is not None:
            return posting.view(key, posting.decode_posting(found.body), replayed=True)

        def blind(tx: Tx) -> Transfer:
            accounts: posting.Accounts = {}
            posting.load_all(tx, wanted, accounts)
            moved = posting.post_legs(tx, wanted, accounts)
            posting.save_all(tx, wanted, accounts)
            return moved

        outcome = yield steps.Transact(wanted.keys, blind)
        moved: Transfer = outcome.result
        return moved

    monkeypatch.setattr(operations, "transfer", transfer)
    explored(2).assert_fails("check")


def test_a_transfer_in_two_commits_with_compensation_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Debit, then credit, and a third step that would undo the debit; a crash stops in between."""

    def add(name: str, amount: int) -> Callable[[Tx], None]:
        def fn(tx: Tx) -> None:
            account = load(tx, name)
            account.debits -= min(amount, 0)
            account.credits += max(amount, 0)
            posting.save(tx, account_key(name), account)

        return fn

    def transfer(
        source: str, target: str, amount: int, key: str, *rest: Any
    ) -> steps.Flow[Transfer]:
        yield steps.Transact((account_key(source),), add(source, -amount))
        try:
            yield steps.Transact((account_key(target),), add(target, amount))
        except Exception:
            yield steps.Transact((account_key(source),), add(source, amount))
            raise
        record = Posting("transfer", [], [], 0, "", "", "")
        return posting.view(key, record, replayed=False)

    monkeypatch.setattr(operations, "transfer", transfer)
    explored(1, crashes=1).assert_fails("check")


def test_a_lost_reply_without_a_key_of_ones_own_moves_it_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each attempt under a key of its own: why a caller has to keep the key for its retries."""
    original, made = operations.transfer, iter(range(10**9))

    def transfer(
        source: str, target: str, amount: int, key: str, *rest: Any
    ) -> steps.Flow[Transfer]:
        return original(source, target, amount, f"{key}/{next(made)}", *rest)

    monkeypatch.setattr(operations, "transfer", transfer)
    explored(1, tries=2, lossy=True, lost_replies=1).assert_fails("check")


# ------------------------------------------------------------------------------ two phases


async def settle(store: SteppedStore) -> str:
    return await _ended(store, operations.settle("h", None, "s", "", ""), "settled")


async def release(store: SteppedStore) -> str:
    return await _ended(store, operations.release("h", ""), "released")


async def _ended(store: SteppedStore, flow: steps.Flow[Any], how: str) -> str:
    try:
        await store.run(flow)
    except InvalidState:
        return "too late"
    except Expired:
        return "expired"
    return how


async def time_passes(store: SteppedStore) -> None:
    await store.pass_time(EXPIRY_S)


def exactly_one_end(store: SteppedStore, ended: Any) -> None:
    """Settled or released, never both; what was kept back is free again exactly once."""
    a: queries.Balance = run(store, queries.balance("a"))
    b = balance(store, "b")
    assert a.posted + b == FUNDS
    hold: Transfer = run(store, queries.find("h"))
    ends = {each for each in ended.results if each in ("settled", "released")}
    assert len(ends) <= 1, "both won"
    assert not ends or ends == {hold.state}
    assert b == (AMOUNT if hold.state == "settled" else 0)
    if hold.state != "pending":
        assert (a.held, a.available) == (0, a.posted), "given back not once"
    assert run(store, queries.verify()) is None


def two_phases(
    callers: list[Callable[[SteppedStore], Any]], *, expires: bool = False, **budgets: int
) -> Any:
    return explore(
        partial(world, hold=True, expires=expires, lossy="lost_replies" in budgets),
        callers,
        check=exactly_one_end,
        steps=["transact"],
        seconds=250,
        **budgets,
    )


@pytest.mark.parametrize(
    ("callers", "expires", "budgets"),
    [
        ([settle, release, release], False, {"crashes": 1}),
        ([settle, settle, release], False, {"failures": 1}),
        ([settle, release], False, {"lost_replies": 1}),
        ([settle, release, time_passes], True, {"crashes": 1}),
    ],
)
def test_settle_and_release_race_to_exactly_one_end(
    callers: list[Callable[[SteppedStore], Any]], expires: bool, budgets: dict[str, int]
) -> None:
    two_phases(callers, expires=expires, **budgets).assert_holds()


def test_a_hold_given_back_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """``release`` that looks at the hold's state before its transaction only."""

    def flow(key: str, by: str) -> steps.Flow[None]:
        (found,) = yield steps.Read([transfer_key(key)])
        pending = posting.decode_posting(found.body)
        if pending.state != "pending":
            raise InvalidState

        def fn(tx: Tx) -> None:
            account: Account = load(tx, "a")
            holds._give_back(account, key, pending)
            posting.save(tx, account_key("a"), account)
            holds._end(tx, key, pending, "released")

        yield steps.Transact((transfer_key(key), account_key("a")), fn)

    monkeypatch.setattr(operations, "release", flow)
    two_phases([release, release]).assert_fails("check")


def test_every_end_is_reached() -> None:
    found = explore(
        partial(world, hold=True, expires=True),
        [settle, release, time_passes],
        outcome=lambda store, ended: tuple(map(str, ended.results[:2])),
        stop_at_failure=False,
    )
    assert {
        ("settled", "too late"), ("too late", "released"), ("expired", "released"),
    } <= set(found.outcomes)  # fmt: skip
