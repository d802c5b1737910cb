"""Records in an object store: one object a key, replaced on condition, and runs of old versions.

A document's head object holds its newest versions (``object_frames``), so history commits with
the value in one write.  Listings tell each object's tag, so what has not changed is not read
again.  There is no order of commits over keys: a watcher's cursor is the version it has seen of
each key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, islice
from typing import NamedTuple

from perkey.clock import Clock
from perkey.errors import (
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
    Timeout,
)
from perkey.store.abc import Backend
from perkey.store.backends import object_frames as frames
from perkey.store.backends import object_names as names
from perkey.store.backends import vector
from perkey.store.backends.bucket import MISSING, Bucket
from perkey.store.backends.object_frames import Frame
from perkey.store.backends.optimistic import Optimistic
from perkey.store.backends.port import NothingDone
from perkey.store.backends.probe import probe
from perkey.store.backends.vector import Removed
from perkey.store.evaluate import Batch
from perkey.store.keys import Key, keeps_history
from perkey.store.limits import Limits
from perkey.store.record import Page, Record, Walk, op_of
from perkey.store.transaction import Outcome

MARKER = "perkey-store"
FORMAT = 1
LOOKS = 30
PAGE = 1_000
"""How many names one listing asks for."""
KNOWN_KEYS = 10_000
"""How many heads are remembered by their tag, to read only what has changed."""
AGE_STEPS = 256
"""How many versions one write may find too old."""
PRUNED = 100
"""How many runs of old versions one write may remove."""
AROUND_BYTES = frames.TAIL_BYTES + 8_192
"""Room for the versions before a record, and for what it has around its body."""


class Seen(NamedTuple):
    """A head as it was read."""

    tag: str
    frame: Frame


class Mark(NamedTuple):
    """What a tag is known to stand for."""

    tag: str
    key: Key
    version: int
    floor: int
    deleted: bool


class ObjectsBackend:
    """One prefix of one bucket.  The reader is a second one on the same bucket."""

    name = "objects"
    atomic_keys: int | None = 1
    commit_records: int | None = None
    several_versions = True
    cheap_turns = False
    guesses = False
    blocking = True
    durability = "acknowledged by the object store before the call returns; it keeps what it says"
    time_source = "client"

    def __init__(self, bucket: Bucket, limits: Limits, clock: Clock) -> None:
        most = frames.OBJECT_BYTES - AROUND_BYTES
        self.limits = replace(limits, value_bytes=min(limits.value_bytes, most))
        self._bucket = bucket
        self._clock = clock
        self._seen: dict[Key, Seen] = {}
        """The heads of the last look."""
        self._marks: dict[str, Mark] = {}
        """By name."""
        self._optimistic = Optimistic(self, self.limits, clock)

    def now_ms(self) -> int:
        return self._bucket.now_ms()

    # ------------------------------------------------------------------------ writing

    def apply(self, batch: Batch) -> list[Outcome]:
        return self._optimistic.apply(batch)

    def look(self, keys: Sequence[Key]) -> tuple[list[Record | None], int]:
        self._seen = self._heads(keys)
        records = [self._seen[key].frame.record if key in self._seen else None for key in keys]
        # Another client's clock may be ahead: time goes on from what it wrote.
        latest = max((record.at for record in records if record is not None), default=0)
        self._bucket.not_before(latest)
        return records, self.now_ms()

    def _heads(self, keys: Sequence[Key]) -> dict[Key, Seen]:
        """The heads of these keys: several are read until nothing moved between two looks, so
        all were the heads at once."""
        found = self._some_heads(keys)
        if len(keys) == 1:
            return found
        for _ in range(LOOKS):
            before, found = found, self._some_heads(keys)
            if _tags(before) == _tags(found):
                return found
        raise Timeout(f"{len(keys)} records kept changing while they were read together")

    def _some_heads(self, keys: Sequence[Key]) -> dict[Key, Seen]:
        found = ((key, self._head(key)) for key in keys)
        return {key: head for key, head in found if head is not None}

    def _head(self, key: str) -> Seen | None:
        name = names.head(key)
        head = self._load(name)
        if head is not None and head.frame.record.key != key:
            raise StoreCorrupt(
                f"{name!r} in {self._bucket.place} holds another record; it was moved or copied"
            )
        return head

    def _load(self, name: str) -> Seen | None:
        stored = self._bucket.get(name)
        return stored and Seen(stored.tag, frames.read(stored.data, name))

    def commit(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        ((key, base),) = heads.items()
        seen = self._seen.get(key) if base is not None else None
        if base is not None and (seen is None or _moved(seen.frame.record, base)):
            return False
        before = seen and seen.frame
        full = frames.is_full(before)
        floor = self._floor(before, writes[0].version, writes[-1])
        frame = frames.following(None if full else before, writes, floor)
        data = frames.write(frame)
        if full and before is not None:
            self._set_aside(before)
        if not self._bucket.put(names.head(key), data, MISSING if seen is None else seen.tag):
            return False
        if full:
            self._prune(key, frame.floor)
        return True

    def _set_aside(self, before: Frame) -> None:
        """Keep the versions in a head, which the next one will not hold, as a run."""
        name = names.run(before.record.key, before.first, before.record.version)
        data = frames.write(before)
        for attempt in (1, 2):  # it says the same however often it is written
            try:
                self._bucket.put(name, data, None)
                return
            except StoreError as error:
                if attempt == 2:
                    said = f"old versions could not be kept: {error.message}"
                    raise NothingDone(said) from error

    def _floor(self, before: Frame | None, first: int, last: Record) -> tuple[int, int]:
        """(the oldest version that history shows once ``last`` is the head, its time)."""
        # A key that comes from another store may begin with any version.
        floor, floor_at = (first, 0) if before is None else (before.floor, before.floor_at)
        least = last.version - self.limits.keep_versions + 1
        if least > floor:
            floor, floor_at = least, 0
        if self.limits.keep_s is None or before is None or not keeps_history(last.key):
            return floor, floor_at
        oldest = last.at - int(self.limits.keep_s * 1000)
        if floor_at >= oldest:
            return floor, floor_at
        end = min(before.record.version, floor + AGE_STEPS - 1)
        try:
            for record in self._versions(before, floor, end):
                if record.at >= oldest:
                    return record.version, record.at
                floor = record.version + 1
        except Removed:  # another writer is ahead: this commit will meet a conflict
            pass
        return floor, 0

    def _prune(self, key: str, floor: int) -> None:
        """Remove runs below the floor.  Only housekeeping: the next full head tries again."""
        try:
            for name, _ in self._bucket.names(names.runs(key), "", PRUNED):
                if names.ends(name)[1] >= floor:
                    return
                self._bucket.delete(name)
        except StoreError:
            return

    def find_op(self, key: str, version: int) -> str | None:
        return op_of(self.history(key, version - 1, 1), version)

    def forget(self, key: Key) -> None:
        self._bucket.delete(names.head(key))

    # ------------------------------------------------------------------------ reading

    def read(self, keys: Sequence[Key]) -> list[Record | None]:
        found = self._heads(keys)
        return [found[key].frame.record if key in found else None for key in keys]

    def scan(self, prefix: str, after: str, limit: int) -> list[Record]:
        found: list[Record] = []
        for _, name, tag in self._listed(prefix, after):
            if len(found) == limit:
                break
            mark = self._marks.get(name)
            if mark is not None and mark.tag == tag and mark.deleted:
                continue
            head = self._load(name)
            if head is not None:
                self._remember(name, head)
                if not head.frame.record.deleted:
                    found.append(head.frame.record)
        return found

    def _listed(self, prefix: str, after: str) -> Iterator[tuple[Key, str, str]]:
        """(key, name, tag) of all heads under ``prefix`` and above ``after``, in key order."""
        if after >= prefix and not after.startswith(prefix):
            return
        behind = names.behind(after) if after > prefix else ""
        for _, group in groupby(self._names(names.under(prefix), behind), _stem):
            keys = sorted((self._key(name, tag), name, tag) for name, tag in group)
            for key, name, tag in keys:
                if key is not None and key > after and key.startswith(prefix):
                    yield key, name, tag

    def _names(self, prefix: str, behind: str) -> Iterator[tuple[str, str]]:
        while page := self._bucket.names(prefix, behind, PAGE):
            yield from page
            behind = page[-1][0]
            if len(page) < PAGE:
                return

    def walk(self, cursor: str, limit: int) -> Walk:
        listed = self._bucket.names("h/", cursor, limit)
        heads = [self._load(name) for name, _ in listed]
        onwards = listed[-1][0] if len(listed) == limit else ""
        return Walk([head.frame.record for head in heads if head is not None], onwards)

    def _key(self, name: str, tag: str) -> Key:
        """The key of a head that a listing has shown."""
        key = names.key_of(name)
        if key is not None:
            return key
        mark = self._marks.get(name)
        if mark is None:
            head = self._load(name)
            if head is None:
                raise StoreCorrupt(f"{name!r} in {self._bucket.place} was removed by somebody")
            mark = self._remember(name, head)
        return mark.key

    def _remember(self, name: str, head: Seen) -> Mark:
        record = head.frame.record
        key = Key(record.key)
        mark = Mark(head.tag, key, record.version, head.frame.floor, record.deleted)
        self._marks.pop(name, None)
        self._marks[name] = mark
        while len(self._marks) > KNOWN_KEYS:
            self._marks.pop(next(iter(self._marks)), None)
        return mark

    def history(self, key: str, after: int, limit: int) -> list[Record]:
        if not keeps_history(key):
            return []
        return vector.history(key, after, limit, lambda: self._standing(key))

    def _standing(self, key: str) -> vector.Standing | None:
        head = self._head(key)
        if head is None:
            return None
        versions = partial(self._versions, head.frame)
        return vector.Standing(key, head.frame.record.version, head.frame.floor, versions)

    def _versions(self, head: Frame, first: int, last: int) -> Iterator[Record]:
        """These versions of a key, from its runs and its head."""
        key, version = head.record.key, first
        if version < head.first and version <= last:
            for name, _ in self._names(names.runs(key), names.run_at(key, version)):
                start, end = names.ends(name)
                if end < version:
                    continue
                if start > version:
                    raise Removed
                stored = self._bucket.get(name)
                if stored is None:
                    raise Removed
                run = frames.read(stored.data, name)
                for each in range(version, min(end, last) + 1):
                    yield run.at(each)
                version = end + 1
                if version >= head.first or version > last:
                    break
        if version < head.first and version <= last:
            raise Removed
        for each in range(version, last + 1):
            yield head.at(each)

    def changes(self, prefix: str, cursor: str, limit: int) -> Page:
        return vector.changes(prefix, cursor, limit, lambda: self._standings(prefix))

    def cursor(self, prefix: str) -> str:
        return vector.end(self._standings(prefix))

    def _standings(self, prefix: str) -> Iterator[vector.Standing]:
        for mark in self._now(prefix):
            versions = partial(self._since, mark.key)
            yield vector.Standing(mark.key, mark.version, mark.floor, versions)

    def _since(self, key: str, first: int, last: int) -> Iterator[Record]:
        """These versions of a key whose head has been seen."""
        head = self._head(key)
        if head is None:
            raise Removed
        return self._versions(head.frame, first, last)

    def _now(self, prefix: str) -> list[Mark]:
        """The heads of all kept documents under ``prefix``; only those that moved are read."""
        if not keeps_history(prefix):
            return []
        listed = [*islice(self._listed(prefix, ""), vector.MOST_KEYS + 1)]
        vector.check_size(prefix, len(listed), self.name)
        marks: list[Mark] = []
        for _, name, tag in listed:
            mark = self._marks.get(name)
            if mark is None or mark.tag != tag:
                head = self._load(name)
                if head is None:
                    continue
                mark = self._remember(name, head)
            marks.append(mark)
        return marks

    # ------------------------------------------------------------------------ the rest

    def reader(self) -> Backend | None:
        return self._another()

    def _another(self) -> ObjectsBackend:
        return ObjectsBackend(self._bucket.another(), self.limits, self._clock)

    def check(self) -> None:
        """Recognise or mark the store, and refuse one that does not enforce conditions."""
        stored = self._bucket.get(MARKER)
        if stored is None:
            self._bucket.put(MARKER, json.dumps({"format": FORMAT}).encode(), MISSING)
            stored = self._bucket.get(MARKER)
        if stored is None:
            raise StoreUnavailable(f"{self._bucket.place} does not show what was just written")
        try:
            found = json.loads(stored.data)["format"]
        except (ValueError, KeyError, TypeError) as error:
            raise StoreCorrupt(f"{MARKER} in {self._bucket.place} cannot be read") from error
        if found != FORMAT:
            raise SchemaMismatch(
                f"the store at {self._bucket.place} has format {found}, this perkey knows "
                f"{FORMAT}; use a newer one"
            )
        probe(self, self._another, self._clock)

    def describe(self) -> dict[str, str]:
        return {**self._bucket.describe(), "schema": str(FORMAT)}

    def concerns(self) -> list[str]:
        return []

    def close(self) -> None:
        self._bucket.close()


def _tags(heads: Mapping[Key, Seen]) -> dict[Key, str]:
    return {key: head.tag for key, head in heads.items()}


def _moved(record: Record, base: Record) -> bool:
    return (record.version, record.op) != (base.version, base.op)


def _stem(listed: tuple[str, str]) -> str:
    return names.stem(listed[0])
