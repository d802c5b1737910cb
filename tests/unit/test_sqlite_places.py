"""Where versions lie is written down late, for many at once; nobody may notice.

Two connections write one file, as two processes do, and take turns in every order; what they
find is what a store in memory finds that made the same writes.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import perkey
from perkey.clock import SYSTEM
from perkey.store.abc import Backend
from perkey.store.backends import sqlite, sqlite_queries
from perkey.store.backends.memory import MemoryBackend
from perkey.store.backends.sqlite import SqliteBackend
from perkey.store.evaluate import Batch
from perkey.store.keys import Key
from perkey.store.record import Record
from perkey.store.transaction import Transaction, Tx
from perkey.store.url import open_backend
from tests.unit.sqlite_faults import url

KEYS = [Key("d/a"), Key("d/b"), Key("b/run"), Key("d/a/b")]
LEFT_BEHIND = "SELECT count(*) FROM places WHERE seq NOT IN (SELECT seq FROM versions)"
CRASH = object()

Commit = tuple[int, list[Key | object]]
"""(which connection, the keys it writes in one commit; ``CRASH``: rolled back before it ends)."""


class Crashed(Exception):
    """The commit does not happen."""


class Sides:
    """Two connections to one file, and the store in memory that they must agree with."""

    def __init__(self, folder: Path, limits: perkey.Limits, unfiled: int) -> None:
        self.file = [self.connect(folder, limits, unfiled) for _ in range(2)]
        self.memory = MemoryBackend(limits)
        self.ops: dict[tuple[Key, int], str] = {}
        self._count = 0

    @staticmethod
    def connect(folder: Path, limits: perkey.Limits, unfiled: int) -> SqliteBackend:
        backend = open_backend(url(folder), limits, SYSTEM)
        assert isinstance(backend, SqliteBackend)
        backend.unfiled_versions = unfiled
        return backend

    def commit(self, which: int, keys: Iterable[Key | object]) -> None:
        keys = list(keys)
        crash = CRASH in keys
        self._count += 1

        def batch() -> Batch:
            return Batch(
                [
                    Transaction((key,), lambda tx, k=key, b=b"%d" % n: tx.put_body(k, b), "", op)
                    for n, key in enumerate(keys)
                    if isinstance(key, Key) and (op := f"o{self._count}.{n}")
                ]
            )

        backend = self.file[which]
        if crash:
            run = backend._run

            def until_commit(sql: str, *parameters: object) -> object:
                if sql == "COMMIT":
                    raise Crashed
                return run(sql, *parameters)

            backend._run = until_commit
            with pytest.raises(Crashed):
                backend.apply(batch())
            backend._run = run
            return
        for side in (backend, self.memory):
            for outcome in side.apply(batch()):
                assert outcome.error is None
                for record in outcome.writes:
                    self.ops[Key(record.key), record.version] = record.op

    def check(self) -> None:
        """Each connection finds what the store in memory finds."""
        for key in KEYS:
            for after, limit in ((0, 99), (1, 2), (3, 1)):
                wanted = told(self.memory.history(key, after, limit))
                for backend in self.file:
                    assert told(backend.history(key, after, limit)) == wanted
            kept = {record.version for record in self.memory.history(key, 0, 99)}
            for backend in self.file:
                for version in range(1, max(kept, default=0) + 2):
                    wanted_op = self.ops[key, version] if version in kept else None
                    assert backend._find_op(key, version) == wanted_op
        for backend in self.file:
            assert backend._run(LEFT_BEHIND).fetchone() == (0,)
            assert told(backend.read(KEYS)) == told(self.memory.read(KEYS))
            assert told(backend.scan("d/", "", 9)) == told(self.memory.scan("d/", "", 9))
            assert told(backend.changes("", "", 99).records) == told(
                self.memory.changes("", "", 99).records
            )

    def close(self) -> None:
        for backend in self.file:
            backend.close()


def told(records: Iterable[Record | None]) -> list[object]:
    """What must be the same on both sides: all but the time."""
    return [each and (each.key, each.version, each.body, each.op, each.ops) for each in records]


def run(folder: Path, commits: Iterable[Commit], keep: int, unfiled: int) -> None:
    """Make these commits and compare after each."""
    folder.mkdir()
    sides = Sides(folder, perkey.Limits(keep_versions=keep), unfiled)
    try:
        for which, keys in commits:
            sides.commit(which, keys)
            sides.check()
    finally:
        sides.close()


def drawn(seed: int) -> Iterator[Commit]:
    """A run of commits by chance; one in eight is rolled back."""
    chance = random.Random(seed)
    for _ in range(25):
        keys: list[Key | object] = [*chance.choices(KEYS, k=chance.randrange(1, 5))]
        yield chance.randrange(2), [*keys, CRASH] if chance.random() < 0.125 else keys


def explore(folder: Path) -> int:
    """Four commits, each by either connection, the third rolled back or not; how many runs."""
    count = 0
    written = [[KEYS[0]], [KEYS[1], KEYS[0]], [KEYS[0], KEYS[2]], [KEYS[0]]]
    for who in itertools.product((0, 1), repeat=4):
        for keep, crash in ((99, ()), (2, ()), (99, (CRASH,))):
            commits: list[Commit] = [
                (which, [*keys, *crash] if place == 2 else [*keys])
                for place, (which, keys) in enumerate(zip(who, written, strict=True))
            ]
            run(folder / f"run-{count}", commits, keep, unfiled=2)
            count += 1
    return count


def test_every_order_of_two_connections(tmp_path: Path) -> None:
    assert explore(tmp_path) == 48


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
