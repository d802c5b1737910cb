"""Two connections to one SQLite file, beside a store in memory that makes the same writes.

Two connections of one process are to SQLite what two processes are: each must find what the
store in memory finds, whoever wrote it, and whatever struck in the middle of a commit.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

import perkey
from perkey.clock import SYSTEM
from perkey.store.backends.memory import MemoryBackend
from perkey.store.backends.sqlite import SqliteBackend
from perkey.store.evaluate import Batch
from perkey.store.keys import Key
from perkey.store.record import Record
from perkey.store.transaction import Transaction
from perkey.store.url import open_backend
from tests.unit.sqlite_faults import url

KEYS = [Key("d/a"), Key("d/b"), Key("b/run"), Key("a/cash")]
LEFT_BEHIND = "SELECT count(*) FROM places WHERE seq NOT IN (SELECT seq FROM versions)"
CRASH, LANDED = object(), object()
"""Marks of a commit that an interrupt strikes: right before it happens, and right after."""

Commit = tuple[int, list[Key | object]]
"""(which connection, the keys it writes in one commit and perhaps a mark)."""


class Struck(Exception):
    """The interrupt."""


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

    def commit(self, which: int, keys: Sequence[Key | object]) -> None:
        """Write ``keys`` in one commit of that connection; the third of them is deleted."""
        self._count += 1

        def batch() -> Batch:
            bodies = [b"%d" % n if n != 2 else None for n in range(len(keys))]
            return Batch(
                [
                    Transaction((key,), lambda tx, k=key, b=body: tx.put_body(k, b), "", op)
                    for body, key in zip(bodies, keys, strict=True)
                    if isinstance(key, Key) and (op := f"o{self._count}.{body!r}")
                ]
            )

        self._apply(self.file[which], batch(), CRASH in keys, LANDED in keys)
        if CRASH in keys:
            return
        for outcome in self.memory.apply(batch()):
            assert outcome.error is None
            for record in outcome.writes:
                self.ops[Key(record.key), record.version] = record.op

    def _apply(self, backend: SqliteBackend, batch: Batch, crash: bool, landed: bool) -> None:
        if not crash and not landed:
            backend.apply(batch)
            return
        run = backend._run

        def struck(sql: str, *parameters: object) -> object:
            if sql != "COMMIT":
                return run(sql, *parameters)
            if landed:
                run(sql)
            raise Struck

        backend._run = struck
        with pytest.raises(Struck):
            backend.apply(batch)
        backend._run = run

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
    """A run of commits by chance; one in four is struck, before it happens or after."""
    chance = random.Random(seed)
    for _ in range(25):
        keys: list[Key | object] = [*chance.choices(KEYS, k=chance.randrange(1, 5))]
        mark = chance.choice([[CRASH], [LANDED], *[[]] * 6])
        yield chance.randrange(2), [*keys, *mark]


def explore(folder: Path) -> int:
    """Four commits, each by either connection, the third struck or not; how many runs."""
    count = 0
    written = [[KEYS[0]], [KEYS[1], KEYS[0], KEYS[3]], [KEYS[0], KEYS[2], KEYS[3]], [KEYS[0]]]
    for who in itertools.product((0, 1), repeat=4):
        for keep, marks in ((99, ()), (2, ()), (99, (CRASH,)), (99, (LANDED,))):
            commits: list[Commit] = [
                (which, [*keys, *marks] if place == 2 else [*keys])
                for place, (which, keys) in enumerate(zip(who, written, strict=True))
            ]
            run(folder / f"run-{count}", commits, keep, unfiled=2)
            count += 1
    return count
