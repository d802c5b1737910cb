"""The waist under every schedule: batches of two processes on one set of records, with requests
and replies that get lost, and processes that end, at each attempt.

What is explored is the code of every store: ``settled`` around ``apply``, the evaluation inside,
and the memory backend below.  The faults are counted out, each combination a search of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import msgspec
import pytest

from perkey.errors import Conflict, StoreUnavailable
from perkey.store import evaluate, receipts, settle
from perkey.store.backends.memory import MemoryBackend
from perkey.store.evaluate import Batch, Unit
from perkey.store.keys import Key
from perkey.store.limits import Limits
from perkey.store.record import Record
from perkey.store.transaction import Fn, Outcome, Transaction, Tx, declared
from perkey.testing import explore_threads, switch_point
from perkey.testing.certificate import Result
from tests.unit.manual_clock import ManualClock

A = Key("d/a")
"""A document: with a history."""
B = Key("l/b")
"""A lease's space: only the head is kept, so the window of ops is all that tells."""
FINE, REQUEST_LOST, REPLY_LOST, DIES_BEFORE, DIES_AFTER = range(5)

Plan = Sequence[Sequence[Transaction]]
"""The batches of one process, one after the other."""


class Dead(BaseException):
    """The process is no more."""


class World:
    """The records, and what each process knows."""

    def __init__(self, plans: Callable[[], Sequence[Plan]], faults: Sequence[Sequence[int]]):
        self.clock = ManualClock()
        self.backend = MemoryBackend(None, self.clock)
        self.plans = plans()
        self.faults = [list(each) for each in faults]
        self.told: list[list[Outcome]] = [[] for _ in self.plans]

    def work(self, number: int) -> None:
        """One process: its batches, each until its fate is known."""
        for transactions in self.plans[number]:
            batch = Batch(transactions)
            try:
                outcomes, interrupt = settle.settled(
                    lambda batch: self.apply(number, batch), batch, Limits(), self.clock
                )
            except StoreUnavailable:
                outcomes, interrupt = [], None
            assert interrupt is None or isinstance(interrupt, Dead)
            if isinstance(interrupt, Dead):
                raise Dead
            self.told[number].extend(outcomes)

    def apply(self, number: int, batch: Batch) -> list[Outcome]:
        """The backend's, over a bad line."""
        fault = self.faults[number].pop(0) if self.faults[number] else FINE
        switch_point("asks")
        if fault == DIES_BEFORE:
            raise Dead
        if fault == REQUEST_LOST:
            heads: Any = {key: self.backend._heads.get(key) for key in batch.keys}
            batch.committing = batch.evaluate(heads, 0, self.backend._find_op)
            raise StoreUnavailable("the request is lost")
        outcomes = self.backend.apply(batch)
        switch_point("hears")
        if fault == DIES_AFTER:
            # Nobody is left to ask: what it committed stays, and nothing else of it happens.
            batch.doubts.clear()
            batch.committing = None
            raise Dead
        if fault == REPLY_LOST:
            batch.committing = Unit([each for one in outcomes for each in one.writes], outcomes)
            raise StoreUnavailable("the reply is lost")
        return outcomes

    def history(self, key: Key) -> list[Record]:
        return self.backend.history(key, 0, 1000)

    def value(self, key: Key) -> int:
        (head,) = self.backend.read([key])
        return 0 if head is None or head.body is None else int(head.body)


def transaction(name: str, fn: Fn, *keys: Key, **more: Any) -> Transaction:
    return Transaction(declared(keys), fn, op=name, **more)


def add(key: Key) -> Fn:
    def adding(tx: Tx) -> int:
        body = tx.body(key)
        tx.put_body(key, b"%d" % (int(body or b"0") + 1))
        return int(body or b"0") + 1

    return adding


def adding(name: str, key: Key) -> Transaction:
    return transaction(name, add(key), key)


def explored(
    plans: Callable[[], Sequence[Plan]],
    check: Callable[[World], None],
    kinds: Sequence[int] = (FINE, REQUEST_LOST, REPLY_LOST),
) -> Iterator[Result]:
    """Every schedule of two processes, for every fault of the first attempts: two of one
    process's, one of the other's."""
    for *mine, other in product(kinds, repeat=3):
        faults = (mine, [other])
        callers: list[Any] = [lambda world: world.work(0), lambda world: world.work(1)]
        yield explore_threads(
            lambda faults=faults: World(plans, faults),  # type: ignore[misc]
            callers,
            check=check,
            raises=(Dead,),
            preemptions=2,
        )


def holds(results: Iterator[Result]) -> None:
    for result in results:
        result.assert_holds()


def found(results: Iterator[Result]) -> bool:
    return any(result.failure is not None for result in results)


# -------------------------------------------------------------------- each counts exactly once


def increments(key: Key) -> Callable[[], Sequence[Plan]]:
    return lambda: [
        [[adding("p1", key), adding("p2", key)]],
        [[adding("q1", key)], [adding("q2", key)]],
    ]


def each_counted_once(key: Key) -> Callable[[World], None]:
    def check(world: World) -> None:
        told = [outcome for mine in world.told for outcome in mine]
        assert [outcome.error for outcome in told] == [None] * 4, "a lost reply is a success"
        assert sorted(outcome.result for outcome in told) == [1, 2, 3, 4]
        assert world.value(key) == 4
        (head,) = world.backend.read([key])
        assert head is not None
        assert head.version == 4
        assert {head.op, *head.ops.split()} == {"p1", "p2", "q1", "q2"}

    return check


@pytest.mark.parametrize("key", [A, B])
def test_whatever_is_lost_on_the_way_each_change_counts_once(key: Key) -> None:
    holds(explored(increments(key), each_counted_once(key)))


def test_whoever_dies_leaves_all_of_a_commit_or_nothing() -> None:
    def check(world: World) -> None:
        ops = [record.op for record in world.history(A)]
        assert len(ops) == len(set(ops)) == world.value(A)
        assert ("p1" in ops) == ("p2" in ops)
        for number, names in enumerate((["p1", "p2"], ["q1", "q2"])):
            known = len(world.told[number])
            assert set(names[:known]) <= set(ops), "what was acknowledged is there"

    kinds = (FINE, REPLY_LOST, DIES_BEFORE, DIES_AFTER)
    holds(explored(increments(A), check, kinds))


def test_a_commit_that_is_not_asked_after_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "landed", lambda unit, heads, find_op: False)
    assert found(explored(increments(A), each_counted_once(A)))


def test_a_record_that_forgets_earlier_ops_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = evaluate.following

    def forgetful(head: Record | None) -> tuple[int, str, int]:
        version, _, fence = right(head)
        return version, "", fence

    monkeypatch.setattr(evaluate, "following", forgetful)
    assert found(explored(increments(B), each_counted_once(B)))


# ----------------------------------------------------------------------- no version comes back


def replaced() -> Sequence[Plan]:
    def create(tx: Tx) -> int:
        if tx.body(A) is not None:
            raise Conflict("it exists")
        tx.put_body(A, b"0")
        return 1

    def delete(tx: Tx) -> int:
        if tx.body(A) is None:
            raise Conflict("there is none")
        tx.put_body(A, None)
        return 1

    return [
        [[transaction("p1", create, A)], [transaction("p2", delete, A)]],
        [[transaction("q1", create, A)], [transaction("q2", delete, A)]],
    ]


def versions_only_grow(world: World) -> None:
    history = world.history(A)
    assert [each.version for each in history] == list(range(1, len(history) + 1))
    assert [each.deleted for each in history] == [n % 2 == 1 for n in range(len(history))]
    done = sum(outcome.error is None for mine in world.told for outcome in mine)
    assert done == len(history) == len({each.op for each in history})


def test_a_deleted_key_goes_on_counting() -> None:
    holds(explored(replaced, versions_only_grow))


def test_a_version_that_comes_back_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = evaluate.following
    monkeypatch.setattr(
        evaluate,
        "following",
        lambda head: right(None if head is None or head.deleted else head),
    )
    assert found(explored(replaced, versions_only_grow))


# --------------------------------------------------------------------- a batch's mates are apart


def mates() -> Sequence[Plan]:
    def fail(tx: Tx) -> None:
        tx.put_body(A, b"1000")
        raise ValueError("mine")

    return [
        [[adding("p1", A), transaction("p2", fail, A), adding("p3", A)]],
        [[adding("q1", A)]],
    ]


def only_its_own_is_undone(world: World) -> None:
    mine, other = world.told
    assert [type(each.error) for each in mine] == [type(None), ValueError, type(None)]
    assert sorted(each.result for each in (mine[0], mine[2], *other)) == [1, 2, 3]
    assert [int(each.body or b"") for each in world.history(A)] == [1, 2, 3]


def test_an_exception_undoes_one_transaction_of_a_batch() -> None:
    holds(explored(mates, only_its_own_is_undone))


def test_an_exception_that_leaves_its_change_behind_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = evaluate.evaluate

    def careless(txn: Transaction, heads: Any, now: int, value_bytes: int) -> Outcome:
        errors: list[Exception] = []

        def swallowing(tx: Tx) -> Any:
            try:
                return txn.fn(tx)
            except Exception as error:
                errors.append(error)

        patched = msgspec.structs.replace(txn, fn=swallowing)
        outcome = right(patched, heads, now, value_bytes)
        return msgspec.structs.replace(outcome, error=errors[0]) if errors else outcome

    monkeypatch.setattr(evaluate, "evaluate", careless)
    assert found(explored(mates, only_its_own_is_undone))


# ------------------------------------------------------------------ change and receipt are one


def payments() -> Sequence[Plan]:
    claim = receipts.claim("", "pay", "order-1", {"amount": 1}, None)

    def pay(name: str) -> Transaction:
        return transaction(name, add(A), A, claim.key, claim=claim)

    return [[[pay("p1")], [pay("p2")]], [[pay("q1"), pay("q2")]]]


def paid_once(world: World) -> None:
    told = [outcome for mine in world.told for outcome in mine]
    assert world.value(A) == 1
    assert [outcome.result for outcome in told] == [1] * len(told)
    if len(told) == 4:
        assert [outcome.replayed for outcome in told].count(False) == 1


def test_one_key_pays_once_whatever_is_lost_and_whoever_dies() -> None:
    def at_most_once(world: World) -> None:
        told = [outcome for mine in world.told for outcome in mine]
        assert world.value(A) == 1 if told else world.value(A) <= 1
        assert [outcome.result for outcome in told] == [1] * len(told)

    holds(explored(payments, paid_once))
    holds(explored(payments, at_most_once, (FINE, REPLY_LOST, DIES_BEFORE, DIES_AFTER)))


def test_a_receipt_in_a_commit_of_its_own_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = World.apply

    def in_two(world: World, number: int, batch: Batch) -> list[Outcome]:
        receipt: Any = batch.transactions[0].claim
        (head,) = world.backend.read([receipt.key])
        if head is not None:
            return [Outcome(1, replayed=True) for _ in batch.transactions]
        bare = [msgspec.structs.replace(each, claim=None) for each in batch.transactions[:1]]
        outcomes = right(world, number, Batch(bare))
        stamp = transaction(f"r{number}", lambda tx: tx.put_body(receipt.key, b"{}"), receipt.key)
        world.backend.apply(Batch([stamp]))
        return outcomes + [Outcome(1, replayed=True) for _ in batch.transactions[1:]]

    monkeypatch.setattr(World, "apply", in_two)
    assert found(explored(payments, paid_once))
