"""Heads that are not read again: what a connection remembers is what the file holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import perkey
from perkey.store.backends import sqlite_known, sqlite_queries
from perkey.store.backends.sqlite_known import Known
from perkey.store.evaluate import Heads
from perkey.store.keys import Key
from perkey.store.record import Record
from perkey.store.transaction import Tx
from tests.unit.sqlite_faults import BEFORE, Strike, striking, url
from tests.unit.sqlite_sides import drawn, explore, run

A, B = Key("d/a"), Key("d/b")


def increment(tx: Tx) -> int:
    value: int = tx.get("n", 0) + 1
    tx["n"] = value
    return value


def never() -> Strike:
    """Only looks which statements run."""
    return Strike(-1, BEFORE, Exception)


def test_a_lone_connection_reads_a_head_once(tmp_path: Path) -> None:
    with perkey.open(url(tmp_path)) as store:
        for expected in (1, 2, 3):
            with striking(store, never()) as strike:
                assert store.transact("n", increment) == expected
            reads = [each for each in strike.statements if each == sqlite_queries.find_heads(1)]
            assert len(reads) == (expected == 1)


def test_what_another_connection_wrote_is_read(tmp_path: Path) -> None:
    with perkey.open(url(tmp_path)) as store, perkey.open(url(tmp_path)) as other:
        for expected in (1, 3, 5, 7):
            assert store.transact("n", increment) == expected
            assert other.transact("n", increment) == expected + 1


def test_a_transaction_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    def failing(tx: Tx) -> None:
        tx["n"] = 100
        raise ValueError("no")

    with perkey.open(url(tmp_path)) as store:
        store.transact("n", increment)
        for _ in range(2):
            with pytest.raises(ValueError, match="no"):
                store.transact("n", failing)
        assert store.transact("n", increment) == 2


@pytest.mark.parametrize("before", [True, False])
def test_what_strikes_while_heads_are_kept_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """The commit has landed, so it is found out and told as a success."""
    keep = Known.keep
    struck = []

    def striking(self: Known, heads: Heads, writes: Sequence[Record]) -> None:
        if not before:
            keep(self, heads, writes)
        if not struck:
            struck.append(True)
            raise RuntimeError("struck")
        if before:
            keep(self, heads, writes)

    with perkey.open(url(tmp_path)) as store:
        monkeypatch.setattr(Known, "keep", striking)
        assert store.transact("n", increment) == 1
        assert struck
        assert store.transact("n", increment) == 2
        assert [each.value for each in store.history("n")] == [1, 2]


@pytest.mark.parametrize("seed", range(100, 106))
def test_two_connections_by_chance_in_little_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """All is forgotten every few commits."""
    monkeypatch.setattr(sqlite_known, "ROOM", 4 * sqlite_known.OVERHEAD)
    run(tmp_path / "run", drawn(seed), keep=99, unfiled=512)


def test_what_is_remembered_is_bounded() -> None:
    known = Known()
    size = sqlite_known.ROOM // 10
    largest = 0
    for n in range(50):
        key = Key(f"d/{n}")
        known.keep({key: None}, [Record(key, 1, b"x" * size)])
        largest = max(largest, sum(len(each.body or b"") for each in known._heads.values() if each))
    assert size < largest <= sqlite_known.ROOM


def test_heads_are_taken_out_and_put_back() -> None:
    known = Known()
    first, second = Record(A, 1, b"1"), Record(A, 2, b"2")
    known.keep({A: first, B: None}, [second, Record("e/1", 1, b"appended")])
    heads: Heads = {A: None, B: None, Key("d/c"): None}
    assert known.take(heads, 0) == {Key("d/c"): None}
    assert heads == {A: second, B: None, Key("d/c"): None}
    assert known.take(dict.fromkeys(heads), 0) == dict.fromkeys(heads), "they are out"
    known.keep(heads, [])
    assert known.take({A: None}, 1) == {A: None}, "somebody else has committed"
    assert known.take({A: None}, 0) == {A: None}, "and it is not remembered again"


def test_what_is_appended_is_not_remembered_as_missing() -> None:
    """Nobody declares it when it is written; whoever declared it before had found nothing."""
    known = Known()
    appended = Record("e/1", 1, b"appended")
    known.keep({Key("e/1"): None, A: None}, [])
    known.keep({B: None}, [appended])
    assert known.take({Key("e/1"): None, A: None}, 0) == {Key("e/1"): None}


def test_not_looking_whether_others_committed_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_queries, "DATA_VERSION", "SELECT 1")
    with pytest.raises((AssertionError, perkey.StoreError)):
        explore(tmp_path)


def test_keeping_what_was_read_for_what_was_written_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = Known.keep
    monkeypatch.setattr(Known, "keep", lambda self, heads, writes: keep(self, heads, []))
    with pytest.raises((AssertionError, perkey.StoreError)):
        explore(tmp_path)


def test_leaving_heads_in_while_they_are_in_use_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then an interrupt right after a commit leaves the old ones behind."""
    take = Known.take

    def leaving(self: Known, blank: Heads, data_version: int) -> Heads:
        before = dict(self._heads) if data_version == self._data_version else {}
        rest = take(self, blank, data_version)
        self._heads.update(before)
        return rest

    monkeypatch.setattr(Known, "take", leaving)
    with pytest.raises((AssertionError, perkey.StoreError)):
        explore(tmp_path)
