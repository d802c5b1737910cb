"""Where versions lie is written down late, for many at once; nobody may notice."""

from __future__ import annotations

from pathlib import Path

import pytest

import perkey
from perkey.store.abc import Backend
from perkey.store.backends import sqlite, sqlite_queries
from perkey.store.backends.sqlite import SqliteBackend
from perkey.store.evaluate import Batch
from perkey.store.keys import Key
from perkey.store.transaction import Transaction, Tx
from tests.unit.sqlite_sides import KEYS, Sides, drawn, explore, run


def test_every_order_of_two_connections(tmp_path: Path) -> None:
    assert explore(tmp_path) == 64


@pytest.mark.parametrize("seed", range(12))
def test_two_connections_by_chance(tmp_path: Path, seed: int) -> None:
    run(tmp_path / "run", drawn(seed), keep=(99, 3)[seed % 2], unfiled=1 + seed // 2 % 4)


MUTANTS = {
    "history forgets what is not filed": ("NEWEST", "LIMIT ?3", "LIMIT 0 * ?3"),
    "what is filed is found twice": ("NEWEST", "l.seq > (SELECT filed FROM facts)", "l.seq > 0"),
    "an op that is not filed is not found": ("FIND_OP", "l.version = ?2", "l.version = -?2"),
    "filing is not noted": (
        "NOTE_FILED",
        "SET filed = (SELECT max(seq) FROM versions)",
        "SET one = 1",
    ),
    "one is left out when filing": ("FILE", "seq > ?", "seq > ? + 1"),
    "a key stays at its first version": ("MOVE_NAME", "excluded.last", "last"),
    "versions are dropped, their places are not": ("DROP_PLACES", "version <= ?", "version < -?"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    query, old, new = MUTANTS[name]
    text = getattr(sqlite_queries, query)
    assert old in text
    monkeypatch.setattr(sqlite_queries, query, text.replace(old, new))
    with pytest.raises((AssertionError, perkey.StoreError)):
        explore(tmp_path)


def test_dropping_before_filing_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqliteBackend, "_file", lambda self: None)
    with pytest.raises(AssertionError):
        explore(tmp_path)


def test_old_versions_are_dropped_also_while_they_are_not_filed(tmp_path: Path) -> None:
    """``keep_s``: what is too old goes, whether it is filed, not yet, or partly."""
    for unfiled in (1, 3, 512):
        folder = tmp_path / str(unfiled)
        folder.mkdir()
        backend = Sides.connect(folder, perkey.Limits(keep_s=60.0), unfiled)
        for n in range(5):
            put(backend, KEYS[0], n)
        later = backend._offset + 3_600_000
        backend._offset = later
        put(backend, KEYS[1], 0)
        assert [each.version for each in backend.history(KEYS[0], 0, 9)] == [1, 2, 3, 4, 5]
        put(backend, KEYS[0], 5)
        assert [each.version for each in backend.history(KEYS[0], 0, 9)] == [6]
        put(backend, KEYS[0], 6)
        assert [each.version for each in backend.history(KEYS[0], 0, 9)] == [6, 7]
        assert backend.changes("", "", 9).gap
        backend.close()


def put(backend: Backend, key: Key, n: int) -> None:
    def fn(tx: Tx) -> None:
        tx.put_body(key, b"%d" % n)

    (outcome,) = backend.apply(Batch([Transaction((key,), fn, "", f"o{n}")]))
    assert outcome.error is None


def test_a_hot_key_is_filed_now_and_then(tmp_path: Path) -> None:
    """The tail that a reader has to look through stays short."""
    backend = Sides.connect(tmp_path, perkey.Limits(), sqlite.UNFILED_VERSIONS)
    longest = 0
    for n in range(sqlite.UNFILED_VERSIONS * 2 + 10):
        put(backend, KEYS[0], n)
        (filed,) = backend._run(sqlite_queries.FILED).fetchone()
        longest = max(longest, n + 1 - filed)
    assert longest == sqlite.UNFILED_VERSIONS - 1
    assert len(backend.history(KEYS[0], 0, 2000)) == sqlite.UNFILED_VERSIONS * 2 + 10
    backend.close()
