"""Money that appeared, vanished or moved twice: what other projects reported."""

from __future__ import annotations

from typing import Any

import pytest

import perkey
from perkey import InsufficientFunds, InvalidState, Ledger, SameAccount, StoreUnavailable
from perkey.drivers import threads
from perkey.flows.ledger import holds, operations, posting, queries
from perkey.store.transaction import Tx
from perkey.testing import FaultyStore, explore
from tests.explore.stepped import SteppedStore
from tests.explore.test_ledger import balance


def opened(store: Any = None) -> Ledger:
    ledger = Ledger(store or perkey.open("memory://"))
    ledger.open_account("world", "EUR", floor=None)
    for name in ("a", "b"):
        ledger.open_account(name, "EUR")
    ledger.transfer("world", "a", 10, key="funding")
    return ledger


# ------------------------------------------------------------------ two withdrawals at once


async def ten_in_a() -> SteppedStore:
    store = SteppedStore()
    for name, floor in (("world", None), ("a", 0), ("b", 0)):
        threads.run(operations.open_account(name, "EUR", 2, floor, ""), store.core)
    threads.run(operations.transfer("world", "a", 10, "funding", "", "", None), store.core)
    return store


async def withdraw(key: str, store: SteppedStore) -> str:
    """Looks at the balance, and then withdraws all of it."""
    found = await store.run(queries.balance("a"))
    if found.available < 10:
        return "refused"
    try:
        await store.run(operations.transfer("a", "b", 10, key, "", "", None))
    except InsufficientFunds:
        return "refused"
    return "paid"


async def first(store: SteppedStore) -> str:
    return await withdraw("w1", store)


async def second(store: SteppedStore) -> str:
    return await withdraw("w2", store)


def two_withdrawals() -> Any:
    return explore(ten_in_a, [first, second], check=lambda store: balance(store, "a") >= 0)


def test_two_withdrawals_of_everything_pay_once() -> None:
    """As in https://github.com/Scottcjn/Rustchain/issues/4296 and
    https://github.com/opexdev/core/issues/355."""
    two_withdrawals().assert_holds()


def test_a_check_before_the_debit_alone_overdraws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "check_accounts", lambda order, accounts, now: None)
    two_withdrawals().assert_fails("check")


# --------------------------------------------------------------------- to oneself


def to_oneself(tx: Tx) -> None:
    """Loads the account twice, changes both copies, saves both."""
    source, target = tx["a"], tx["a"]
    tx["a"] = source - 10
    tx["a"] = target + 10


def test_a_transfer_to_oneself_is_refused() -> None:
    """As in https://github.com/evmts/guillotine/issues/732 and
    https://github.com/uniqys/UniqysKit/issues/16."""
    ledger = opened()
    with pytest.raises(SameAccount):
        ledger.transfer("a", "a", 10, key="k")
    assert ledger.balance("a").posted == 10


def test_two_copies_of_one_account_make_money() -> None:
    with perkey.open("memory://") as store:
        store.put("a", 10, create=True)
        store.transact("a", to_oneself)
        assert store.get("a").value == 20


def test_a_posting_that_names_an_account_twice_makes_none() -> None:
    ledger = opened()
    ledger.post([("a", -10), ("a", 10)], key="k")
    assert ledger.balance("a").posted == 10
    assert ledger.verify() is None


# ------------------------------------------------------------------ capture after void


def captured_after_the_void() -> int:
    ledger = opened()
    ledger.hold("a", "b", 10, key="authorization")
    ledger.release("authorization")
    try:
        ledger.settle("authorization", key="capture")
    except InvalidState:
        pass
    return ledger.balance("b").posted


def test_a_released_hold_cannot_be_settled() -> None:
    """As in https://github.com/killbill/killbill/issues/515."""
    assert captured_after_the_void() == 0


def test_a_settlement_that_does_not_look_at_the_state_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        holds,
        "_pending",
        lambda tx, key, **_: posting.decode_posting(tx.body(posting.transfer_key(key))),
    )
    assert captured_after_the_void() == 10


# ---------------------------------------------------------------- credited, not debited


def in_two_commits(store: Any) -> None:
    """Credits the target, then debits the source."""
    store.transact("b", lambda tx: tx.__setitem__("b", tx["b"] + 10))
    store.transact("a", lambda tx: tx.__setitem__("a", tx["a"] - 10))


def test_a_transfer_that_fails_half_way_moves_nothing() -> None:
    """As in https://github.com/nulli0n/ExcellentEconomy/pull/79: the target was credited first."""
    with perkey.open("memory://") as sound:
        ledger = opened(sound)
        with FaultyStore(sound, fail={1}) as faulty, pytest.raises(StoreUnavailable):
            Ledger(faulty).transfer("a", "b", 10, key="k")
        assert [ledger.balance(name).posted for name in "ab"] == [10, 0]


def test_two_commits_make_money_when_the_second_one_fails() -> None:
    with perkey.open("memory://") as sound:
        for name, amount in (("a", 10), ("b", 0)):
            sound.put(name, amount, create=True)
        with FaultyStore(sound, fail={2}) as faulty, pytest.raises(StoreUnavailable):
            in_two_commits(faulty)
        assert [sound.get(name).value for name in "ab"] == [10, 10]
