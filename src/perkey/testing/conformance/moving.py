"""Moving a store: every head can be met, and records go in as they came out of another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from perkey.errors import UsageError
from perkey.store.abc import Backend
from perkey.store.keys import Key
from perkey.store.record import Record
from perkey.store.transaction import Transaction
from perkey.testing.conformance.bench import (
    Bench,
    batch_of,
    commit,
    done,
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

SPACES = ("d/", "b/", "l/", "r/", "a/", "e/", "t/", "p/")


def restoring(record: Record) -> Transaction:
    """A transaction that writes ``record`` as it is."""
    return transaction(Key(record.key), lambda tx: tx.restore(record))


def restore(backend: Backend, records: Sequence[Record]) -> None:
    """Write these records as they are, in one batch."""
    for outcome in commit(backend, *map(restoring, records)):
        done(outcome)


def walked(backend: Backend, limit: int) -> dict[str, Record]:
    """Every head of the store."""
    found: dict[str, Record] = {}
    cursor = ""
    while True:
        page = backend.walk(cursor, limit)
        found |= {record.key: record for record in page.records}
        cursor = page.cursor
        if not cursor:
            return found


def _versions(key: Key, first: int, last: int) -> list[Record]:
    """Versions of one key as another store made them."""
    return [
        Record(
            key,
            version,
            None if version % 4 == 0 else b"%d" % version,
            f"writer{version} é",
            1_000_000 + version,
            f"op{version}",
            " ".join(f"op{earlier}" for earlier in range(version - 1, max(0, version - 5), -1)),
            version // 3,
            max(0, version - 2),
        )
        for version in range(first, last + 1)
    ]


@check()
def a_walk_meets_every_head(bench: Bench) -> None:
    """A walk shows the newest record of each key of each space, deleted ones too."""
    backend = bench.open()
    keys = [bench.key(f"k{n}", space) for space in SPACES for n in range(7)]
    commit(backend, *(putting(key, b"1", "ann") for key in keys))
    commit(backend, *(putting(key, None, "ben") for key in keys[::3]))
    wanted = dict(zip(map(str, keys), backend.read(keys), strict=True))
    for limit in (3, 50, 1000):
        found = walked(backend, limit)
        same({key: found.get(key) for key in wanted}, wanted, f"a walk in pages of {limit}")


@check()
def restored_records_are_as_they_were(bench: Bench) -> None:
    """Version, author, time, op, ops, fence and base come back bit for bit, history too, even
    where it begins in the middle."""
    backend = bench.open()
    for name, first, last in (("all", 1, 9), ("kept", 7, 14), ("gone", 3, 4)):
        for space in ("d/", "b/"):
            records = _versions(bench.key(name, space), first, last)
            restore(backend, records)
            same(held(backend, bench.key(name, space)), records[-1], "the restored head")
            same(backend.history(records[0].key, 0, 100), records, "the restored history")
            same(backend.history(records[0].key, first, 2), records[1:3], "a page of it")
    for space in ("l/", "r/", "a/", "p/"):
        record = _versions(bench.key("cell", space), 41, 41)[0]
        restore(backend, [record])
        same(held(backend, bench.key("cell", space)), record, f"a restored head in {space}")


@check()
def writing_goes_on_after_a_restore(bench: Bench) -> None:
    """A write on top of restored records is the next version, remembers their ops, and shows in
    history and changes behind them."""
    backend = bench.open()
    key = bench.key("a")
    records = _versions(key, 5, 7)
    restore(backend, records)
    written = put(backend, key, b"new", "ann")
    same((written.version, written.base), (8, 7), "the next version and its base")
    same(written.ops.split(" ")[:2], ["op7", "op6"], "the ops before it")
    same(written.fence, records[-1].fence, "the fence")
    same(backend.history(key, 0, 100), [*records, written], "the history")
    page = backend.changes(bench.prefix, "", 100)
    same(page.records, [*records, written], "the changes")
    same([each.key for each in backend.scan(bench.prefix, "", 10)], [key], "the scan")


@check()
def a_restore_never_goes_back(bench: Bench) -> None:
    """A version that is there already, or a hole in a history, is refused and changes nothing."""
    backend = bench.open()
    key, cell = bench.key("a"), bench.key("a", "l/")
    records, cells = _versions(key, 1, 6), _versions(cell, 1, 6)
    restore(backend, records[:3])
    restore(backend, cells[2:3])
    for wrong in (records[0], records[2], records[4], cells[0], cells[2]):
        (outcome,) = commit(backend, restoring(wrong))
        raises(UsageError, partial(done, outcome), f"restoring {wrong.version}")
    same([held(backend, key), held(backend, cell)], [records[2], cells[2]], "the heads")
    restore(backend, [records[3], cells[5]])
    same([held(backend, key), held(backend, cell)], [records[3], cells[5]], "the heads later")


@check()
def a_lost_reply_to_a_restore(bench: Bench) -> None:
    """A restore that landed and whose reply was lost counts once; one that did not is repeated."""
    backend = bench.open()
    for name, lossy in (("landed", lose_after(backend)), ("lost", lose_before(backend))):
        key = bench.key(name)
        records = _versions(key, 3, 5)
        restore(backend, records[:2])
        batch = batch_of(backend, restoring(records[2]))
        (outcome,) = settle(backend, batch, lossy)
        done(outcome)
        same(backend.history(key, 0, 100), records, f"the history after a reply that {name}")
