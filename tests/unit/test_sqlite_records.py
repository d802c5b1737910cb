"""Retention, cursors and key order: the SQLite store against the one in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import perkey
from perkey.clock import SYSTEM
from perkey.store.abc import Backend
from perkey.store.backends import sqlite_queries as queries
from perkey.store.backends.memory import MemoryBackend
from perkey.store.backends.sqlite import SqliteBackend
from perkey.store.evaluate import Batch
from perkey.store.keys import Key
from perkey.store.record import Page, Record
from perkey.store.transaction import Transaction, Tx
from perkey.store.url import open_backend
from tests.unit.sqlite_faults import url

TEXT = st.text(
    st.sampled_from("ab/\0\x7f\x80é\ud7ff\ue000\uffff\U00010000\U0010ffff%_*?["),
    max_size=4,
)
SPACES = st.sampled_from(["d/", "b/", "r/", "a/"])
WRITES = st.lists(
    st.tuples(SPACES, TEXT, st.sampled_from([b"1", b'"x"', None])), min_size=1, max_size=25
)


def in_memory(limits: perkey.Limits) -> Backend:
    return open_backend("sqlite:///:memory:", limits, SYSTEM)


def put(backend: Backend, writes: list[tuple[Key, bytes | None]], op: str) -> None:
    """All writes in one commit, each a transaction of its own."""
    batch = Batch(
        [
            Transaction((key,), lambda tx, k=key, b=body: tx.put_body(k, b), "me", f"{op}.{n}")
            for n, (key, body) in enumerate(writes)
        ]
    )
    assert all(outcome.error is None for outcome in backend.apply(batch))


def whole_log(backend: Backend, prefix: str, cursor: str, limit: int) -> list[tuple[str, int]]:
    """(key, version) of every change after ``cursor``, read page by page."""
    found: list[tuple[str, int]] = []
    while True:
        page = backend.changes(prefix, cursor, limit)
        assert len(page.records) <= limit
        found += [(record.key, record.version) for record in page.records]
        cursor = page.cursor
        if page.live:
            return found


@settings(max_examples=120, deadline=None)
@given(
    WRITES,
    TEXT,
    TEXT,
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(1, 5),
    st.sampled_from([1, 2, 3, 512]),
)
def test_both_stores_answer_alike(
    writes: list[tuple[str, str, bytes | None]],
    prefix: str,
    after: str,
    limit: int,
    keep: int,
    size: int,
    unfiled: int,
) -> None:
    limits = perkey.Limits(keep_versions=keep)
    one, two = in_memory(limits), MemoryBackend(limits)
    assert isinstance(one, SqliteBackend)
    one.unfiled_versions = unfiled
    named = [(Key(space + name), body) for space, name, body in writes]
    for start in range(0, len(named), size):
        for backend in (one, two):
            put(backend, named[start : start + size], f"o{start}")

    def timeless(records: Sequence[Record | None]) -> list[object]:
        return [r and (r.key, r.version, r.body, r.by, r.op, r.ops, r.base) for r in records]

    keys = [*sorted({key for key, _ in named}), Key("d/none"), Key("r/none")]
    assert timeless(one.read(keys)) == timeless(two.read(keys))
    for space in ("", "d/", "b/", "r/", "a/"):
        low = space + prefix if space else ""
        for above in ("", space + after):
            scans = [timeless(each.scan(low, above, limit)) for each in (one, two)]
            assert scans[0] == scans[1]
    for space in ("", "d/", "b/"):
        low = space + prefix if space else ""
        assert whole_log(one, low, "", limit) == whole_log(two, low, "", limit)
        for seen in range(len(named) + 1):
            pages: list[Page] = [each.changes(low, str(seen), 99) for each in (one, two)]
            assert pages[0].gap == pages[1].gap
    for key, _ in named:
        for seen in (0, 1, keep):
            histories = [timeless(each.history(key, seen, limit)) for each in (one, two)]
            assert histories[0] == histories[1]
    one.close()


@given(st.text(max_size=5), st.text(max_size=8))
def test_past_is_above_all_that_begin_with_the_prefix_and_nothing_else(
    prefix: str, text: str
) -> None:
    def order(each: str) -> bytes:
        return each.encode("utf-8", "surrogatepass")

    end = queries.past(prefix)
    inside = order(text) >= order(prefix) and (end is None or order(text) < order(end))
    assert inside == text.startswith(prefix)


def versions(store: perkey.Store, key: str) -> list[int]:
    return [each.version for each in store.history(key)]


def test_retention_by_count(tmp_path: Path) -> None:
    with perkey.open(url(tmp_path), limits=perkey.Limits(keep_versions=3)) as store:
        for n in range(7):
            store.put("k", n, overwrite=True)
            store.put(f"other {n}", n, create=True)
        assert versions(store, "k") == [5, 6, 7]
        assert versions(store, "other 0") == [1]
        assert store.get("k").value == 6


def test_retention_by_age_keeps_the_current_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with perkey.open(url(tmp_path), limits=perkey.Limits(keep_s=60)) as store:
        backend = store.backend
        assert isinstance(backend, SqliteBackend)
        for _ in range(3):
            store.put("k", 1, overwrite=True)
        backend._offset += 50_000
        store.put("k", 1, overwrite=True)
        assert versions(store, "k") == [1, 2, 3, 4]
        backend._offset += 20_000
        store.put("k", 1, overwrite=True)
        assert versions(store, "k") == [4, 5]
        backend._offset += 1_000_000
        store.put("k", 1, overwrite=True)
        assert versions(store, "k") == [6]


def test_a_watcher_is_told_of_a_gap_under_its_own_prefix_only(tmp_path: Path) -> None:
    with perkey.open(url(tmp_path), limits=perkey.Limits(keep_versions=2)) as store:
        store.put("quiet/k", 0, create=True)
        for n in range(5):
            store.put("busy/k", n, overwrite=True)
        with store.watch("quiet/", after="") as watch:
            assert isinstance(watch.next(1), perkey.Change)
            assert isinstance(watch.next(1), perkey.Synced)
        with store.watch("busy/", after="") as watch:
            gap = watch.next(1)
            assert isinstance(gap, perkey.Gap)
            changes = [watch.next(1) for _ in range(2)]
            assert [each.document.version for each in changes] == [4, 5]  # type: ignore[union-attr]
            assert isinstance(watch.next(1), perkey.Synced)


def test_a_cursor_of_another_store_is_refused(tmp_path: Path) -> None:
    with perkey.open(url(tmp_path)) as store:
        watch = store.watch(after="made up")
        with pytest.raises(perkey.UsageError, match="cursor"):
            watch.next(1)


@pytest.mark.parametrize("count", [1, 2, 3, 255, 256, 257, 600])
def test_any_number_of_keys_in_one_look(tmp_path: Path, count: int) -> None:
    keys = [f"k{n}" for n in range(count)]

    def fill(tx: Tx) -> None:
        for n, key in enumerate(keys):
            tx[key] = n

    with perkey.open(url(tmp_path)) as store:
        store.transact(keys, fill)
        assert {k: d.value for k, d in store.get_many([*keys, "none"]).items()} == {
            key: n for n, key in enumerate(keys)
        }
        assert [each.key for each in store.scan()] == sorted(keys)


def test_large_and_small_commits_pace_the_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perkey.store.backends.sqlite.SMALL_COMMITS", 3)
    keys = [f"k{n}" for n in range(64)]
    with perkey.open(url(tmp_path)) as store:
        connection = store.backend._connection  # type: ignore[attr-defined]

        def pages() -> int:
            (number,) = connection.execute("PRAGMA wal_autocheckpoint").fetchone()
            return int(number)

        assert pages() == 1000
        store.transact(keys, lambda tx: [tx.__setitem__(key, 1) for key in keys])
        assert pages() == 8000
        for left in (8000, 8000, 1000, 1000):
            store.put("k0", 1, overwrite=True)
            assert pages() == left


@given(st.integers(0, 10**12))
def test_any_number_of_rows_is_written_by_few_different_statements(count: int) -> None:
    count %= 5000
    pieces = [*queries.shares(count)]
    assert sum(pieces) == count
    powers = {1 << n for n in range(queries.ROWS.bit_length())}
    assert {*pieces} <= powers | {*range(1, queries.FEW + 1)}
    assert len(pieces) <= count // queries.ROWS + queries.ROWS.bit_length()


@pytest.mark.parametrize("count", range(queries.FEW + 1))
def test_a_few_rows_take_one_statement(count: int) -> None:
    assert [*queries.shares(count)] == [count] * (count > 0)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200, 300])
def test_many_new_and_many_old_cells_in_one_commit(count: int) -> None:
    backend = in_memory(perkey.Limits())
    keys = [Key(f"a/{n:03}") for n in range(count)]
    put(backend, [(key, b"[%d]" % n) for n, key in enumerate(keys)], "new")
    fresh = [Key(f"a/{n:03}") for n in range(count, count + 70)]
    put(backend, [(key, b"true") for key in [*fresh, *reversed(keys)]], "both")
    found = backend.read([*keys, *fresh])
    versions = [(each.version, each.body) for each in found if each is not None]
    assert versions == [(2, b"true")] * count + [(1, b"true")] * 70
    assert len(backend.scan("a/", "", 1000)) == count + 70
    backend.close()


@given(st.lists(st.integers(0, 400), min_size=1, max_size=12))
@settings(max_examples=40)
def test_a_cell_of_any_length_comes_back_without_its_padding(lengths: list[int]) -> None:
    backend = in_memory(perkey.Limits())
    key = Key("a/k")
    for n, length in enumerate(lengths):
        body = b'"%s "' % (b"x" * length) if length % 7 else None
        put(backend, [(key, body)], f"op{n}")
        (found,) = backend.read([key])
        assert found is not None
        assert (found.version, found.body) == (n + 1, body)
        assert [each.body for each in backend.scan("a/", "", 9)] == [body] * (body is not None)
    backend.close()


def test_what_is_written_again_keeps_its_size() -> None:
    sizes = set()
    for length in range(1, 90):
        record = Record("a/k", 2, b"x" * length, "me", 0, "op", "op0 op1")
        body = queries.rows([record], queries.ROOM)[-1]
        assert isinstance(body, bytearray)
        assert body.rstrip(b" ") == record.body
        sizes.add(len(body))
    assert len(sizes) == 1
