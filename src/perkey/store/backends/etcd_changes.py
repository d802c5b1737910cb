"""The feed of changes: kept versions in order of etcd's revisions.

A cursor is a revision, and inside a commit of several records a place in it.  Nothing is asked
of etcd's old revisions, so compaction takes nothing from a watcher; what retention has dropped
shows in the record that came after it, which carries its predecessor's revision.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from perkey.errors import UsageError
from perkey.store.backends import etcd_messages as messages
from perkey.store.backends.etcd_messages import Found, Stored
from perkey.store.backends.etcd_names import SAME, Names, unpack_after
from perkey.store.keys import keeps_history
from perkey.store.record import Page, Record

FEW = 32
"""Up to how many changed keys are followed one by one."""
WINDOW = 32
"""How many versions of a key are looked at before all kept versions are."""
SOME = 64
"""How many records one request reads."""
PLANS = 8
"""How many watchers that are far behind are remembered."""
_CURSOR = re.compile(r"(\d{1,19})(?:-([0-9a-f]{32})-(\d{1,19}))?", re.ASCII)
_END = b"\xff" * 17

Read = Callable[[bytes], Found]
"""The answer to one range request."""
ReadSeveral = Callable[[Iterable[bytes]], list[Found]]
"""The answers to up to ``SOME`` range requests."""


class Place(NamedTuple):
    """Where a record stands among the changes."""

    revision: int
    name: bytes
    version: int

    def __str__(self) -> str:
        if self.name == _END:
            return str(self.revision)
        return f"{self.revision}-{self.name.hex()}-{self.version}"


class _Entry(NamedTuple):
    """A change: where it stands, its key in etcd, and its value where that is known."""

    place: Place
    key: bytes
    value: bytes | None


@dataclass
class _Plan:
    """Changes that are known to come, up to one revision."""

    revision: int
    entries: deque[_Entry]
    met: set[tuple[bytes, int]] = field(default_factory=set)


class Feed:
    """The changes of one store, for one reader."""

    def __init__(self, names: Names, read: Read, read_several: ReadSeveral) -> None:
        self._names = names
        self._one = read
        self._several = read_several
        self._plans: dict[tuple[str, str], _Plan] = {}
        """By prefix, and the cursor from which the plan's first entry is the next."""

    def page(self, prefix: str, cursor: str, limit: int) -> Page:
        """``Backend.changes``.  Raises ``Compacted`` where it has to be asked again."""
        seen = _read(cursor)
        plan = self._plans.pop((prefix, str(seen)), None)
        fresh = plan is None
        if plan is None:
            plan = self._planned(prefix, seen)
        if plan.revision < seen.revision:
            # The store was put back to an earlier state: what came meanwhile is unknown.
            return Page([], [], str(_end_of(plan.revision)), gap=True)
        some = [plan.entries.popleft() for _ in range(min(limit, len(plan.entries)))]
        page = self._told(plan, seen, some, fresh)
        if plan.entries:
            self._plans[prefix, page.cursor] = plan
            while len(self._plans) > PLANS:
                del self._plans[next(iter(self._plans))]
        return page

    def _told(self, plan: _Plan, seen: Place, entries: Sequence[_Entry], fresh: bool) -> Page:
        """The page of these entries, which follow ``seen``; ``fresh``: the plan is of now."""
        records: list[Record] = []
        gap = False
        for entry, value in zip(entries, self._values(plan, entries), strict=True):
            record, before = unpack_after(value)
            place = entry.place
            revision = place.revision if before == SAME else before
            met = (place.name, record.version - 1) in plan.met
            gap = gap or (not met and Place(revision, place.name, record.version - 1) > seen)
            plan.met.add((place.name, record.version))
            records.append(record)
        cursors = [str(entry.place) for entry in entries]
        ends = not plan.entries
        cursor = str(_end_of(plan.revision)) if ends else cursors[-1]
        # At the end of an older plan more may have come meanwhile: the next page looks.
        return Page(records, cursors, cursor, gap, live=ends and fresh)

    def _values(self, plan: _Plan, entries: Sequence[_Entry]) -> list[bytes]:
        missing = [entry.key for entry in entries if entry.value is None]
        values: dict[bytes, bytes] = {}
        for start in range(0, len(missing), SOME):
            answers = self._several(
                messages.range_request(key, revision=plan.revision)
                for key in missing[start : start + SOME]
            )
            values.update((each.stored[0].key, each.stored[0].value) for each in answers)
        return [values[entry.key] if entry.value is None else entry.value for entry in entries]

    # -------------------------------------------------------------------- what is to come

    def _planned(self, prefix: str, seen: Place) -> _Plan:
        """Everything after ``seen``, as of now."""
        after = seen.revision if seen.name == _END else max(0, seen.revision - 1)
        request = messages.range_request(*self._names.heads(prefix), limit=FEW + 1, after=after)
        heads = self._one(request)
        entries = None
        if not heads.more and len(heads.stored) <= FEW:
            entries = self._followed(heads, after)
        if entries is None:
            entries = self._listed(prefix, heads.revision, after)
        left = sorted(entry for entry in entries if entry.place > seen)
        return _Plan(heads.revision, deque(left))

    def _followed(self, heads: Found, after: int) -> list[_Entry] | None:
        """The changes of a few keys, from their heads back; None where they are too many."""
        entries: list[_Entry] = []
        windows: list[tuple[bytes, bytes]] = []
        for stored in heads.stored:
            record, before = unpack_after(stored.value)
            if not keeps_history(record.key):
                continue
            place = _place(record.key, stored.mod, record.version)
            name = self._names.version(record.key, record.version)
            entries.append(_Entry(place, name, stored.value))
            if before == SAME or before > after:
                oldest = record.version - WINDOW
                windows.append(self._names.versions(record.key, oldest, record.version - 1))
        if not windows:
            return entries
        answers = self._several(
            messages.range_request(*each, revision=heads.revision, after=after) for each in windows
        )
        for answer in answers:
            if len(answer.stored) == WINDOW:
                return None
            entries += map(self._entry, answer.stored)
        return entries

    def _listed(self, prefix: str, revision: int, after: int) -> list[_Entry]:
        """Every kept version under the prefix that came after; their values are read later."""
        request = messages.range_request(
            *self._names.all_versions(prefix), revision=revision, after=after, keys_only=True
        )
        return [self._entry(stored)._replace(value=None) for stored in self._one(request).stored]

    def _entry(self, stored: Stored) -> _Entry:
        key, version = self._names.key_of_version(stored.key)
        return _Entry(_place(key, stored.mod, version), stored.key, stored.value)


def _place(key: str, revision: int, version: int) -> Place:
    # A digest, so that a cursor has one length, whatever the key.
    return Place(revision, hashlib.sha256(key.encode()).digest()[:16], version)


def _end_of(revision: int) -> Place:
    return Place(revision, _END, 0)


def _read(cursor: str) -> Place:
    parts = _CURSOR.fullmatch(cursor or "0")
    if parts is None:
        raise UsageError(f"expected a cursor that this store gave out, found {cursor!r:.60}")
    revision, name, version = parts.groups()
    if name is None:
        return _end_of(int(revision))
    return Place(int(revision), bytes.fromhex(name), int(version))
