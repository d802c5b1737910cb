"""Every interleaving of transfers that share a transaction: the callers are tasks of one loop.

Where a commit takes long, those of one round are gathered: two callers are what it takes.
Elsewhere the first goes alone and who comes while it is on its way is gathered: that takes three.
Each has to be told of its own transfer, and of no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from perkey import AsyncLedger, InsufficientFunds, KeyReused, OutcomeUnknown, Timeout
from perkey.drivers import threads
from perkey.drivers.rounds import Rounds
from perkey.flows import steps
from perkey.flows.ledger import bulk, operations, posting, queries
from perkey.flows.ledger.bulk import Asked, Item, Room
from perkey.flows.ledger.model import decode_posting
from perkey.flows.ledger.posting import Order, Transfer
from perkey.store.keys import TRANSFERS
from perkey.store.transaction import Tx
from perkey.testing import explore, register_fingerprint, step
from tests.explore import test_ledger
from tests.explore.stepped import SteppedStore

assert test_ledger  # registers the fingerprints of the ledger's own types

FUNDS = 100
register_fingerprint(Asked, lambda asked: [asked.order, asked.by])
register_fingerprint(Item, lambda item: [item.transfer, item.error])


class Unclear(SteppedStore):
    """A store whose lost replies stay lost: nobody finds out whether the commit landed."""

    async def meet(self, asked: steps.Step, perform: Callable[[], Any]) -> Any:
        if isinstance(asked, steps.Transact):
            return await step("transact", perform, error=OutcomeUnknown, lost=OutcomeUnknown)
        return await super().meet(asked, perform)


class Late(SteppedStore):
    """A store that may not get to a transaction in time."""

    async def meet(self, asked: steps.Step, perform: Callable[[], Any]) -> Any:
        if isinstance(asked, steps.Transact):
            await step("transact", error=Timeout)
            return perform()
        return await super().meet(asked, perform)


class World:
    """One store, and the ledger of one process on it."""

    def __init__(self, store: SteppedStore, first_too: bool) -> None:
        self.store = store
        self.ledger: Any = AsyncLedger(store)
        self.ledger._first_too = first_too
        self.run(operations.open_account("world", "EUR", 2, None, ""))
        for name in ("a", "b"):
            self.run(operations.open_account(name, "EUR", 2, 0, ""))
        self.run(operations.transfer("world", "a", FUNDS, "funding", "", "", None))

    def run(self, flow: steps.Flow[Any]) -> Any:
        """A flow in one go, before or after the exploration."""
        return threads.run(flow, self.store.core)

    def posted(self, name: str) -> int:
        found: queries.Balance = self.run(queries.balance(name))
        return found.posted


async def world(kind: Callable[[], SteppedStore] = SteppedStore, first_too: bool = False) -> World:
    return World(kind(), first_too)


async def pay(world: World, key: str, amount: int, by: str = "") -> tuple[str, str, int]:
    """Transfer, and say how it ended; whoever is told of another transfer than its own fails."""
    try:
        moved: Transfer = await world.ledger.transfer("a", "b", amount, key=key, by=by)
    except (InsufficientFunds, KeyReused, OutcomeUnknown, Timeout) as error:
        own = error.details.get("amount", amount) == amount
        return (type(error).__name__ if own else "somebody else's", key, amount)
    assert (moved.key, moved.amount) == (key, amount), "told of somebody else's transfer"
    assert moved.by == by or moved.replayed
    return ("replayed" if moved.replayed else "ran", key, amount)


def sound(world: World, ended: Any) -> None:
    """Each key moved at most once, by what somebody asked for; an answer means it happened; a
    refusal means that it could not be paid for."""
    records = world.store.backend.scan(TRANSFERS, "", 99)
    done = {each.key[2:]: decode_posting(each.body).legs[1].amount for each in records}
    funding = done.pop("funding")
    assert world.posted("a") + world.posted("b") == funding == FUNDS
    assert world.posted("b") == sum(done.values()), "a transfer moved not once"
    assert world.run(queries.verify()) is None
    told = [each for each in ended.results if isinstance(each, tuple)]
    for how, key, amount in told:
        assert how != "somebody else's"
        if how in ("ran", "replayed"):
            assert done.get(key) == amount, "told that it happened, and it did not"
        if how == "InsufficientFunds":
            assert amount > FUNDS - sum(done.values()) or amount > FUNDS
        if how == "KeyReused":
            assert done[key] != amount, "told of a reuse that was none"
    ran = [key for how, key, _ in told if how == "ran"]
    assert len(ran) == len(set(ran)), "two were told that they moved the money under one key"


def payer(key: str, amount: int, by: str = "") -> Callable[[World], Any]:
    return partial(pay, key=key, amount=amount, by=by)


A10, B20, C30 = payer("k", 10), payer("l", 20), payer("m", 30)
TOO_MUCH, AGAIN, OTHER = payer("n", 1000), payer("k", 10), payer("k", 11)
SIGNED = payer("o", 5, by="ann")
CROWDS: list[tuple[list[Callable[[World], Any]], dict[str, int]]] = [
    ([A10, B20, TOO_MUCH], {}),
    ([A10, AGAIN, OTHER], {}),
    ([A10, SIGNED, B20], {}),
    ([A10, C30, AGAIN], {"cancellations": 1}),
    ([A10, TOO_MUCH, B20], {"failures": 1}),
]


def explored(
    callers: Sequence[Callable[[World], Any]],
    kind: Callable[[], SteppedStore] = SteppedStore,
    first_too: bool = False,
    **budgets: Any,
) -> Any:
    begin = partial(world, kind, first_too)
    return explore(begin, list(callers), check=sound, steps=["transact"], seconds=250, **budgets)


@pytest.mark.parametrize(("callers", "budgets"), CROWDS)
def test_each_is_told_of_its_own(
    callers: list[Callable[[World], Any]], budgets: dict[str, int]
) -> None:
    explored(callers, **budgets).assert_holds()


@pytest.mark.parametrize(
    ("second", "budgets"),
    [
        (TOO_MUCH, {}),
        (OTHER, {}),
        (SIGNED, {}),
        (AGAIN, {"cancellations": 1}),
        (B20, {"failures": 1}),
    ],
)
def test_so_is_the_first_of_a_round(
    second: Callable[[World], Any], budgets: dict[str, int]
) -> None:
    explored([A10, second], first_too=True, **budgets).assert_holds()


@pytest.mark.parametrize("first_too", [False, True])
def test_some_of_them_did_share_a_transaction(
    monkeypatch: pytest.MonkeyPatch, first_too: bool
) -> None:
    """Else none of these explorations would say anything."""
    sizes: set[int] = set()

    def counted(tx: Tx, orders: Sequence[Order]) -> list[Item]:
        sizes.add(len(orders))
        return real(tx, orders)

    real = bulk.perform_all
    monkeypatch.setattr(bulk, "perform_all", counted)
    explored([A10, B20, C30], first_too=first_too).assert_holds()
    assert sizes == {2, 3} if first_too else {2}


@pytest.mark.parametrize("lost", [0, 1])
def test_a_reply_that_stays_lost_is_told_to_each_as_unknown(lost: int) -> None:
    explored([A10, B20, AGAIN], Unclear, failures=1 - lost, lost_replies=lost).assert_holds()


def test_whoever_is_too_late_is_told_so() -> None:
    explored([A10, B20, TOO_MUCH], Late, failures=1).assert_holds()


def test_a_process_that_dies_with_all_of_them_leaves_each_done_or_not() -> None:
    explored([A10, C30, AGAIN], crashes=1, processes=[0, 0, 0]).assert_holds()
    explored([A10, AGAIN], first_too=True, crashes=1, processes=[0, 0]).assert_holds()


# ------------------------------------------------------------------------------- mutants


def test_one_refusal_that_fails_all_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def together(asked: Sequence[Asked]) -> steps.Flow[list[Item | None]]:
        try:
            return (yield from original(asked))
        except InsufficientFunds as error:
            return [Item(None, error) for _ in asked]

    def all_or_none(tx: Tx, orders: Sequence[Order]) -> list[Item]:
        accounts: posting.Accounts = {}
        items = [Item(posting.perform_on(tx, each, accounts), None) for each in orders]
        for each in orders:
            posting.save_all(tx, each, accounts)
        return items

    def original(asked: Sequence[Asked]) -> steps.Flow[list[Item | None]]:
        keys = {key for each in asked for key in each.order.keys}
        fn = partial(all_or_none, orders=[each.order for each in asked])
        outcome = yield steps.Transact(tuple(sorted(keys)), fn)
        items: list[Item | None] = outcome.result
        return items

    monkeypatch.setattr(bulk, "together", together)
    explored([A10, TOO_MUCH, B20]).assert_fails()
    explored([A10, TOO_MUCH], first_too=True).assert_fails()


def test_a_cancelled_leader_that_drops_its_followers_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first of a round asks for all of them on its own task."""

    async def ask(self: Any, wish: Any) -> Any:
        first = not self._futures
        future = self.loop.create_future()
        self._wishes.append(wish)
        self._futures.append(future)
        if first:
            await asyncio.sleep(0)
            wishes, self._wishes = self._wishes, []
            futures, self._futures = self._futures, []
            for told, answer in zip(futures, await self._serve(wishes), strict=True):
                if not told.done():
                    told.set_result(answer)
        return await future

    monkeypatch.setattr(Rounds, "ask", ask)
    explored([A10, B20, C30]).assert_holds()
    explored([A10, B20, C30], cancellations=1).assert_fails()


def test_one_key_twice_in_a_batch_that_moves_twice_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def blind(tx: Tx, orders: Sequence[Order]) -> list[Item]:
        accounts: posting.Accounts = {}
        found = []
        for each in orders:
            posting.load_all(tx, each, accounts)
            posting.check_accounts(each, accounts, tx.now)
            found.append(Item(posting.post_legs(tx, each, accounts), None))
            posting.save_all(tx, each, accounts)
        return found

    monkeypatch.setattr(bulk, "perform_all", blind)
    explored([C30, A10, AGAIN]).assert_fails("check")


def test_answers_that_are_swapped_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = bulk.together

    def swapped(asked: Sequence[Asked]) -> steps.Flow[list[Item | None]]:
        return (yield from original(asked))[::-1]

    monkeypatch.setattr(bulk, "together", swapped)
    explored([A10, B20, C30]).assert_fails()


def test_an_unknown_outcome_told_as_a_refusal_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What may have happened is told as if it had not."""

    def together(asked: Sequence[Asked]) -> steps.Flow[list[Item | None]]:
        items = yield from original(asked)
        return [item and (Item(None, refused) if item.error else item) for item in items]

    refused, original = KeyReused("not this time"), bulk.together
    monkeypatch.setattr(bulk, "together", together)
    explored([A10, B20, C30], Unclear, lost_replies=1).assert_fails("check")


# ------------------------------------------------------------------- what goes together


def asked(n: int, by: str = "") -> Asked:
    return Asked(posting.transfer_order("a", f"b{n}", 1, f"k{n}"), by)


def test_neighbours_with_one_author_share_a_transaction() -> None:
    wishes = [asked(1), asked(2), asked(3, "ann"), asked(4, "ann"), asked(5)]
    shares = bulk.shares(wishes, 100, Room(100, None))
    assert [[each.order.key for each in share] for share in shares] == [
        ["k1", "k2"], ["k3", "k4"], ["k5"],
    ]  # fmt: skip
    assert [*map(len, bulk.shares(wishes, 1, Room(100, None)))] == [1] * 5
    many = [asked(n) for n in range(10)]
    assert [*map(len, bulk.shares(many, 4, Room(100, None)))] == [4, 4, 2]
    assert [*map(len, bulk.shares(many, 100, Room(9, None)))] == [3, 3, 3, 1]
    assert [*map(len, bulk.shares(many, 100, Room(1, None)))] == [1] * 10
    assert bulk.shares([], 100, Room(9, None)) == []
