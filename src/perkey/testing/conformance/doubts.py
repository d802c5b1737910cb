"""Lost replies: a commit that may or may not have landed is found out, never done twice."""

from __future__ import annotations

from collections.abc import Callable

from perkey.errors import OutcomeUnknown
from perkey.store.abc import Backend
from perkey.store.evaluate import Batch
from perkey.store.keys import Key
from perkey.store.record import op_at
from perkey.store.transaction import Outcome, Transaction, Tx
from perkey.testing.conformance.bench import (
    Bench,
    Lossy,
    batch_of,
    commit,
    done,
    expect,
    held,
    lose_after,
    lose_before,
    put,
    putting,
    raises,
    same,
    settle,
    transaction,
)
from perkey.testing.conformance.suite import check

Lose = Callable[[Backend, Callable[[], object]], Lossy]
"""``lose_after`` or ``lose_before``"""


def adding(key: Key, amount: int = 1) -> Transaction:
    """A transaction that must not be done twice."""

    def add(tx: Tx) -> int:
        tx[key] = tx.get(key, 0) + amount
        return int(tx[key])

    return transaction(key, add)


def _losing(
    lose: Lose, backend: Backend, meanwhile: Callable[[], object], *asked: Transaction
) -> list[Outcome]:
    return settle(backend, batch_of(backend, *asked), lose(backend, meanwhile))


@check()
def ops_tell_who_wrote_which_version(bench: Bench) -> None:
    """A record remembers, by position, the ops of the writes before it, deletes included."""
    backend = bench.open()
    key = bench.key("a")
    ops = [put(backend, key, None if n % 5 == 3 else b"1").op for n in range(20)]
    record = held(backend, key)
    for version in range(13, 21):
        same(op_at(record, version), ops[version - 1], f"the op that made version {version}")
    for version in range(1, 13):
        expect(
            op_at(record, version) in (ops[version - 1], None), f"a wrong op for version {version}"
        )
    same([each.op for each in backend.history(key, 0, 100)], ops, "ops in the history")


@check()
def a_lost_reply_of_a_landed_commit(bench: Bench) -> None:
    """It landed: reported as a success with its own result, and not done again."""
    backend = bench.open()
    key = bench.key("a")
    put(backend, key, b"10")
    (outcome,) = _losing(lose_after, backend, lambda: None, adding(key))
    same((done(outcome).result, outcome.writes[0].version), (11, 2), "the outcome")
    same((held(backend, key).version, held(backend, key).body), (2, b"11"), "the head")


@check()
def a_lost_commit_that_never_arrived(bench: Bench) -> None:
    """It did not land: done once, on the second attempt."""
    backend = bench.open()
    key = bench.key("a")
    put(backend, key, b"10")
    (outcome,) = _losing(lose_before, backend, lambda: None, adding(key))
    same((done(outcome).result, outcome.writes[0].version), (11, 2), "the outcome")
    same((held(backend, key).version, held(backend, key).body), (2, b"11"), "the head")


@check()
def a_lost_reply_with_other_writes_on_top(bench: Bench) -> None:
    """Later writes do not hide that it landed, nor make one up that did not."""
    backend = bench.open()
    for name, lose, landed in (("a", lose_after, True), ("b", lose_before, False)):
        key = bench.key(name)
        put(backend, key, b"100")

        def overtake(key: Key = key) -> None:
            for _ in range(6):
                commit(backend, adding(key, 10))

        (outcome,) = _losing(lose, backend, overtake, adding(key))
        same(done(outcome).result, 101 if landed else 161, "the result")
        same(outcome.writes[0].version, 2 if landed else 8, "the version it wrote")
        same((held(backend, key).version, held(backend, key).body), (8, b"161"), "the head")


@check()
def a_lost_reply_behind_many_writes(bench: Bench) -> None:
    """Out of the window of ops, history still tells; nothing is done twice."""
    backend = bench.open()
    for name, lose, wanted in (("a", lose_after, 1), ("b", lose_before, 401)):
        key = bench.key(name)

        def overtake(key: Key = key) -> None:
            for _ in range(40):
                commit(backend, adding(key, 10))

        (outcome,) = _losing(lose, backend, overtake, adding(key))
        same(done(outcome).result, wanted, "the result")
        same((held(backend, key).version, held(backend, key).body), (41, b"401"), "the head")


@check()
def a_lost_reply_that_nobody_can_tell(bench: Bench) -> None:
    """Without a trace the answer is ``OutcomeUnknown``; it is not tried again."""
    backend = bench.open()
    key = bench.key("a", "l/")
    asked = adding(key)

    def overtake() -> None:
        for _ in range(40):
            commit(backend, adding(key, 10))

    error = raises(
        OutcomeUnknown, lambda: _losing(lose_after, backend, overtake, asked), "a lost reply"
    )
    same(getattr(error, "op", None), asked.op, "the op that the error names")
    same((held(backend, key).version, held(backend, key).body), (41, b"401"), "the head")


@check()
def a_lost_reply_behind_a_delete(bench: Bench) -> None:
    """A landed write that was deleted meanwhile stays deleted, and counts as done."""
    backend = bench.open()
    key = bench.key("a")
    asked = adding(key)
    (outcome,) = _losing(lose_after, backend, lambda: put(backend, key, None), asked)
    same(done(outcome).result, 1, "the result")
    same((held(backend, key).version, held(backend, key).body), (2, None), "the head")


@check()
def a_lost_reply_of_a_whole_batch(bench: Bench) -> None:
    """Every transaction of the batch is found out, its own outcome and error kept."""
    backend = bench.open()
    key = bench.key("a")

    def fail(tx: Tx) -> None:
        tx[key] = "never"
        raise ValueError("mine")

    for lose in (lose_after, lose_before):
        before = int(held(backend, key).body or b"0") if lose is lose_before else 0
        asked = (adding(key), transaction(key, fail), adding(key), adding(key))
        outcomes = _losing(lose, backend, lambda: None, *asked)
        results = [each.result for each in outcomes]
        same(results, [before + 1, None, before + 2, before + 3], "results of the batch")
        same(str(outcomes[1].error), "mine", "the error of the one that raised")
        same(held(backend, key).body, b"%d" % (before + 3), "the head")


@check(keys=2)
def a_lost_reply_over_several_keys(bench: Bench) -> None:
    """All keys of a transaction landed or none did; a write on one of them tells for all."""
    backend = bench.open()
    for lose, landed in ((lose_after, True), (lose_before, False)):
        keys = [bench.key(f"{name}{landed}") for name in "abc"]

        def add(tx: Tx, keys: list[Key] = keys) -> None:
            for key in keys:
                tx[key] = tx.get(key, 0) + 1

        def overtake(keys: list[Key] = keys) -> None:
            commit(backend, adding(keys[0], 10))
            commit(backend, adding(keys[2], 10))

        _losing(lose, backend, overtake, transaction(keys, add))
        found = [held(backend, key).body for key in keys]
        same(found, [b"11", b"1", b"11"], "the values")


@check()
def two_lost_replies_in_a_row(bench: Bench) -> None:
    """Also when the second attempt's reply is lost, it is done once."""
    backend = bench.open()
    for lands in ((True, True), (False, True), (False, False)):
        key = bench.key(str(lands))
        lost = [Lossy(backend, each, lambda: None) for each in lands]

        def apply(batch: Batch, lost: list[Lossy] = lost) -> list[Outcome]:
            use: Callable[[Batch], list[Outcome]] = lost.pop(0) if lost else backend.apply
            return use(batch)

        (outcome,) = settle(backend, batch_of(backend, adding(key)), apply)
        same(done(outcome).result, 1, "the result")
        same((held(backend, key).version, held(backend, key).body), (1, b"1"), "the head")


@check()
def a_lost_reply_before_the_first_version(bench: Bench) -> None:
    """A create that did not land yields to another create: a conflict, not a second version."""
    backend = bench.open()
    key = bench.key("a")

    def create(tx: Tx) -> str:
        if key in tx:
            return "lost the race"
        tx[key] = "mine"
        return "won"

    asked = transaction(key, create)
    meanwhile = putting(key, b'"theirs"')
    (outcome,) = _losing(lose_before, backend, lambda: commit(backend, meanwhile), asked)
    same(done(outcome).result, "lost the race", "the result")
    same((held(backend, key).version, held(backend, key).body), (1, b'"theirs"'), "the head")
