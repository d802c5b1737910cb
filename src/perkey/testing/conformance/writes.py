"""Versions, deletes, and transactions that are all or nothing."""

from __future__ import annotations

from perkey.store.evaluate import Batch
from perkey.store.keys import Key
from perkey.store.transaction import Fn, Tx
from perkey.testing.conformance.bench import (
    Bench,
    commit,
    done,
    expect,
    head,
    held,
    put,
    putting,
    same,
    transaction,
    versions,
)
from perkey.testing.conformance.suite import check


class Stop(Exception):
    """Raised by a transaction's function, to be rolled back."""


@check()
def versions_count_from_one(bench: Bench) -> None:
    """The versions of a key are 1, 2, 3 ..., and each key counts for itself."""
    backend = bench.open()
    a, b = bench.key("a"), bench.key("b")
    written = [put(backend, a, b"%d" % n) for n in range(5)]
    same(versions(written), [1, 2, 3, 4, 5], "versions of one key")
    same(put(backend, b, b"0").version, 1, "the first version of another key")
    same(held(backend, a).version, 5, "the head's version")


@check()
def a_tombstone_goes_on_counting(bench: Bench) -> None:
    """A delete leaves a tombstone; what is created after it has a higher version."""
    backend = bench.open()
    key = bench.key("a")
    put(backend, key, b"1", by="ann")
    put(backend, key, None, by="bob")
    tomb = held(backend, key)
    same((tomb.version, tomb.body, tomb.by), (2, None, "bob"), "the tombstone")
    put(backend, key, None)
    same(put(backend, key, b"4").version, 4, "the version of a re-created key")
    same(held(backend, key).body, b"4", "the re-created value")


@check()
def a_record_keeps_all_its_fields(bench: Bench) -> None:
    """What ``apply`` reports as written is what ``read`` returns, field by field."""
    backend = bench.open()
    key = bench.key("a")
    before = backend.now_ms()
    put(backend, key, b"1", by="ann")

    def overwrite(tx: Tx) -> None:
        tx.put_body(key, b'{"n":2}', base=0)

    asked = transaction(key, overwrite, by="Zoë, \u202eright to left, \U0001f40c")
    (outcome,) = commit(backend, asked)
    (record,) = done(outcome).writes
    same(held(backend, key), record, "the head")
    same(record.by, asked.by, "the author")
    same(record.op, asked.op, "the op")
    same(record.base, 0, "the base version")
    expect(before <= record.at <= backend.now_ms(), "a record's time is not the store's time")


@check()
def unknown_keys_read_as_none(bench: Bench) -> None:
    """``read`` answers in the order asked, None where nothing is, doubles included."""
    backend = bench.open()
    a, b, c = bench.key("a"), bench.key("b"), bench.key("c")
    put(backend, b, b"1")
    found = backend.read([c, b, a, b])
    same([each and each.key for each in found], [None, b, None, b], "the keys read")
    same(backend.read([]), [], "reading no keys")


@check(keys=2)
def many_keys_read_in_one_look(bench: Bench) -> None:
    """``read`` takes as many keys as a transaction may declare."""
    backend = bench.open()
    count = min(backend.limits.transaction_keys, 1_000)
    keys = [bench.key(f"{n:04}") for n in range(count)]
    put(backend, keys[0], b"0")
    put(backend, keys[-1], b"1")
    found = backend.read(keys)
    same(len(found), count, "answers")
    same([n for n, each in enumerate(found) if each], [0, count - 1], "where records stand")


@check(keys=2)
def all_or_nothing_over_several_keys(bench: Bench) -> None:
    """A transaction writes all its keys; one whose function raises writes none."""
    backend = bench.open()
    limit = backend.atomic_keys or backend.limits.transaction_keys
    keys = [bench.key(f"{n:04}") for n in range(min(limit, backend.limits.transaction_keys, 100))]

    def write(tx: Tx) -> str:
        for key in keys:
            tx[key] = tx.version(key)
        return "result"

    def fail(tx: Tx) -> None:
        write(tx)
        raise Stop("after the last assignment")

    (good,) = commit(backend, transaction(keys, write))
    same(done(good).result, "result", "the result of the function")
    (bad,) = commit(backend, transaction(keys, fail))
    expect(isinstance(bad.error, Stop), f"expected the function's own error, found {bad.error!r}")
    same(bad.writes, (), "writes of a failed transaction")
    found = [each and (each.version, each.body) for each in backend.read(keys)]
    same(found, [(1, b"0")] * len(keys), "what the two transactions left")


@check()
def a_batch_runs_in_order(bench: Bench) -> None:
    """Each transaction of a batch sees what those before it wrote, on the same key too."""
    backend = bench.open()
    key = bench.key("a")

    def add(tx: Tx) -> int:
        tx[key] = tx.get(key, 0) + 1
        return int(tx[key])

    outcomes = commit(backend, *(transaction(key, add) for _ in range(50)))
    same([done(each).result for each in outcomes], list(range(1, 51)), "results in a batch")
    record = held(backend, key)
    same((record.version, record.body), (50, b"50"), "the head behind the batch")
    same(versions(backend.history(key, 0, 100)), list(range(1, 51)), "history of the batch")


@check()
def an_exception_rolls_back_alone(bench: Bench) -> None:
    """In a batch a failing transaction changes nothing, and its mates commit."""
    backend = bench.open()
    key = bench.key("a")

    def append(name: str, fails: bool) -> Fn:
        def run(tx: Tx) -> None:
            tx[key] = [*tx.get(key, []), name]
            if fails:
                raise Stop(name)

        return run

    asked = [("a", False), ("b", True), ("c", False), ("d", True), ("e", False)]
    outcomes = commit(backend, *(transaction(key, append(*each)) for each in asked))
    same([str(each.error or "") for each in outcomes], ["", "b", "", "d", ""], "errors in a batch")
    record = held(backend, key)
    same((record.version, record.body), (3, b'["a","c","e"]'), "what the batch left")


@check()
def a_batch_over_many_keys(bench: Bench) -> None:
    """A batch of transactions, each over keys of its own, gives each its own outcome."""
    backend = bench.open()
    keys = [bench.key(f"{n:03}") for n in range(60)]
    outcomes = commit(backend, *(putting(key, b"%d" % n) for n, key in enumerate(keys)))
    same([done(each).writes[0].key for each in outcomes], keys, "whose outcome is whose")
    same([held(backend, key).body for key in keys], [b"%d" % n for n in range(60)], "the values")


@check()
def nothing_written_leaves_no_version(bench: Bench) -> None:
    """A transaction that only reads, and an empty batch, change nothing."""
    backend = bench.open()
    key = bench.key("a")
    put(backend, key, b"1")
    cursor = backend.cursor(bench.prefix)
    (outcome,) = commit(backend, transaction(key, lambda tx: tx[key]))
    same((done(outcome).result, outcome.writes), (1, ()), "a transaction that only reads")
    same(backend.apply(Batch([])), [], "the outcomes of an empty batch")
    same(held(backend, key).version, 1, "the version after reading")
    same(backend.changes(bench.prefix, cursor, 10).records, [], "changes after reading")


@check(keys=2)
def appended_records_land_with_their_commit(bench: Bench) -> None:
    """Records appended at undeclared keys are written with the transaction, or not at all."""
    backend = bench.open()
    counter, first, second = bench.key("n"), bench.key("1", "e/"), bench.key("2", "e/")

    def append(key: Key, fails: bool) -> Fn:
        def run(tx: Tx) -> None:
            tx[counter] = tx.get(counter, 0) + 1
            tx.append(key, b'"entry"')
            if fails:
                raise Stop

        return run

    outcomes = commit(
        backend,
        transaction(counter, append(first, False)),
        transaction(counter, append(second, True)),
    )
    same([each.error is None for each in outcomes], [True, False], "which of two committed")
    record = held(backend, first)
    same((record.version, record.body), (1, b'"entry"'), "the appended record")
    same(head(backend, second), None, "an appended record of a failed transaction")
    same([r.key for r in backend.scan(bench.key("", "e/"), "", 10)], [first], "a scan of them")
