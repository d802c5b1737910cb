"""Records in a shared directory: one immutable file a version, no database and no lock file.

The conflict is that a name exists (``files_disk``).  There is no order of commits over keys, so
a watcher's cursor is the version it has seen of each key, and scans list the directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from perkey.clock import Clock
from perkey.errors import LimitExceeded, Timeout
from perkey.store.abc import Backend
from perkey.store.backends import vector
from perkey.store.backends.files_disk import MARKER, Disk, Kept, line
from perkey.store.backends.files_open import may_create, opened, root_of
from perkey.store.backends.optimistic import Optimistic
from perkey.store.backends.probe import probe
from perkey.store.backends.vector import Removed
from perkey.store.evaluate import Batch
from perkey.store.examine import Found
from perkey.store.keys import Key, keeps_history
from perkey.store.limits import Limits
from perkey.store.record import Page, Record, Walk, op_at
from perkey.store.transaction import Outcome
from perkey.store.url import Location

INDEX_KEYS = 100_000
"""How many keys of one space a scan may go through: their names are kept in memory."""
AGE_STEPS = 256
"""How many versions one write may find too old."""
LOOKS = 1_000


class FilesBackend:
    """One root directory.  The reader is a second one of the same kind."""

    name = "files"
    atomic_keys: int | None = 1
    commit_records: int | None = 1
    several_versions = False
    cheap_turns = True
    guesses = False
    blocking = True
    durability = "file and directory are flushed (fsync) before the call returns"
    time_source = "host"

    def __init__(self, root: str, limits: Limits, clock: Clock, latest: list[int]) -> None:
        self.limits = limits
        self._clock = clock
        self._latest = latest
        """One number, shared with the reader: the latest time that was told."""
        self._disk = Disk(root, clock)
        self._index: dict[str, dict[str, str]] = {}
        """By space: folder -> key."""
        self._optimistic = Optimistic(self, limits, clock)

    def now_ms(self) -> int:
        # The host's clock may be set back; a store's time may not.
        self._latest[0] = max(self._latest[0], self._clock.now_ms())
        return self._latest[0]

    # ------------------------------------------------------------------------ writing

    def apply(self, batch: Batch) -> list[Outcome]:
        return self._optimistic.apply(batch)

    def look(self, keys: Sequence[Key]) -> tuple[list[Record | None], int]:
        heads = [self._disk.head(key) for key in keys]
        if len(keys) > 1:
            self._steady(keys, heads)
        records = [None if head is None else head.record for head in heads]
        # Another host's clock may be ahead: time goes on from what it wrote.
        latest = max((record.at for record in records if record is not None), default=0)
        self._latest[0] = max(self._latest[0], latest)
        return records, self.now_ms()

    def _steady(self, keys: Sequence[Key], heads: list[Kept | None]) -> None:
        """Look until nothing moved between two looks: then all were the heads at once."""
        for _ in range(LOOKS):
            again = [self._disk.head(key) for key in keys]
            if [_version(head) for head in again] == [_version(head) for head in heads]:
                return
            heads[:] = again
        raise Timeout(f"{len(keys)} records kept changing while they were read together")

    def commit(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        (record,) = writes
        ((_, base),) = heads.items()
        for step in _steps(base, record):
            if not self._disk.put(step, self._floor(step, base), base):
                return False
            base = step
        return True

    def _floor(self, record: Record, base: Record | None) -> int:
        """The oldest version that history shows once ``record`` is the head."""
        if not keeps_history(record.key):
            return record.version + 1
        # A key that comes from another store may begin with any version.
        floor = record.version if base is None else self._disk.mark(base).floor
        floor = max(floor, record.version - self.limits.keep_versions + 1)
        if self.limits.keep_s is None:
            return floor
        oldest = record.at - int(self.limits.keep_s * 1000)
        for version in range(floor, min(record.version, floor + AGE_STEPS)):
            kept = self._disk.load(record.key, version)
            if kept is not None and kept.record.at >= oldest:
                return version
            floor = version + 1
        return floor

    def find_op(self, key: str, version: int) -> str | None:
        head = self._disk.head(key)
        # Below the line a file may be one that a late writer has put there for a moment.
        if head is None or version < line(head.record.version, head.floor):
            return None
        kept = self._disk.load(key, version)
        return None if kept is None else kept.record.op

    def forget(self, key: Key) -> None:
        self._disk.forget(key)

    # ------------------------------------------------------------------------ reading

    def read(self, keys: Sequence[Key]) -> list[Record | None]:
        return self.look(keys)[0]

    def scan(self, prefix: str, after: str, limit: int) -> list[Record]:
        found: list[Record] = []
        for key in self._keys(prefix):
            if len(found) == limit:
                break
            head = self._disk.head(key) if key > after else None
            if head is not None and not head.record.deleted:
                found.append(head.record)
        return found

    def _keys(self, prefix: str) -> list[str]:
        """All keys under ``prefix``, in the order of their UTF-8 bytes, which is that of text."""
        space = prefix[0]
        index = self._index.setdefault(space, {})
        for count, folder in enumerate(self._disk.folders(space)):
            if count >= INDEX_KEYS:
                raise LimitExceeded(
                    f"a scan lists the directory: expected at most {INDEX_KEYS} keys in it, found "
                    "more; use a sqlite:/// or postgresql:// store",
                    limit=INDEX_KEYS,
                )
            if folder not in index:
                key = self._disk.key_of(space, folder)
                if key is not None:
                    index[folder] = key
        return sorted(key for key in index.values() if key.startswith(prefix))

    def walk(self, cursor: str, limit: int) -> Walk:
        found: list[Record] = []
        for space in sorted(self._disk.names(f"{self._disk.root}/keys")):
            if space < cursor[:1]:
                continue
            for folder in sorted(self._disk.folders(space)):
                place = f"{space}/{folder}"
                key = self._disk.key_of(space, folder) if place > cursor else None
                head = None if key is None else self._disk.head(key)
                if head is not None:
                    found.append(head.record)
                if len(found) == limit:
                    return Walk(found, place)
        return Walk(found, "")

    def history(self, key: str, after: int, limit: int) -> list[Record]:
        if not keeps_history(key):
            return []
        return vector.history(key, after, limit, lambda: self._standing(key))

    def _standing(self, key: str) -> vector.Standing | None:
        head = self._disk.head(key)
        if head is None:
            return None
        return vector.Standing(key, head.record.version, head.floor, partial(self._run, key))

    def _run(self, key: str, first: int, last: int) -> Iterator[Record]:
        for version in range(first, last + 1):
            kept = self._disk.load(key, version)
            if kept is None:
                raise Removed
            yield kept.record

    def changes(self, prefix: str, cursor: str, limit: int) -> Page:
        return vector.changes(prefix, cursor, limit, lambda: self._now(prefix))

    def cursor(self, prefix: str) -> str:
        return vector.end(self._now(prefix))

    def _now(self, prefix: str) -> list[vector.Standing]:
        """Where all kept documents under ``prefix`` stand."""
        if not keeps_history(prefix):
            return []
        keys = self._keys(prefix)
        vector.check_size(prefix, len(keys), self.name)
        return [at for at in map(self._standing, keys) if at is not None]

    # ------------------------------------------------------------------------ the rest

    def reader(self) -> Backend | None:
        return FilesBackend(self._disk.root, self.limits, self._clock, self._latest)

    def check(self) -> None:
        """Refuse a file system on which two writers can win."""
        root, limits, clock = self._disk.root, self.limits, self._clock
        probe(self, lambda: FilesBackend(root, limits, clock, self._latest), clock)

    def describe(self) -> dict[str, str]:
        spaces = self._disk.names(f"{self._disk.root}/keys")
        records = sum(len(self._disk.names(f"{self._disk.root}/keys/{space}")) for space in spaces)
        return {"place": self._disk.root, "schema": "1", "records": str(records)}

    def concerns(self) -> list[str]:
        return []

    def close(self) -> None:
        """Nothing is kept open."""


def _steps(base: Record | None, record: Record) -> Iterator[Record]:
    """``record``, and before it whatever fills the versions from ``base`` on: the head is found
    by counting.  There is something to fill only where another store's cell is restored."""
    for version in range(record.version if base is None else base.version + 1, record.version):
        yield replace(record, version=version, op=op_at(record, version) or record.op)
    yield record


def _version(head: Kept | None) -> tuple[int, str]:
    return (0, "") if head is None else (head.record.version, head.record.op)


def examine(location: Location, limits: Limits, clock: Clock) -> Found:
    """What is at a file URL; makes no directory."""
    root = root_of(location)
    return Found(os.path.exists(f"{root}/{MARKER}"), f"the directory {root}")


def open_backend(location: Location, limits: Limits, clock: Clock) -> Backend:
    """``file:///var/lib/app``: an absolute path, made if its parent is there."""
    root = opened(root_of(location), clock, create=may_create(location))
    backend = FilesBackend(root, limits, clock, [0])
    backend.check()
    return backend
