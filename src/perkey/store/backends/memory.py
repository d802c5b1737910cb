"""Records in this process's memory: the fastest store, gone with the process."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice

from perkey.clock import SYSTEM, Clock
from perkey.store.abc import Backend
from perkey.store.evaluate import Batch
from perkey.store.keys import Key, keeps_history
from perkey.store.limits import Limits
from perkey.store.record import Page, Record, Walk, position
from perkey.store.transaction import Outcome
from perkey.store.url import Location


class MemoryBackend:
    """Heads in a dict, history in a list a key, all changes in one log.

    An interrupt may strike between two statements.  A commit therefore happens in one
    assignment, to ``_landing``; whoever comes next, the interrupted caller itself or another,
    writes out what is left of it.
    """

    name = "memory"
    atomic_keys: int | None = None
    blocking = False
    durability = "none: everything is gone when the process ends"
    time_source = "host"

    def __init__(self, limits: Limits | None = None, clock: Clock = SYSTEM) -> None:
        self.limits = limits or Limits()
        self._clock = clock
        self._landing: Sequence[Record] = ()
        """Committed records, and how many of them are in their places."""
        self._landed = 0
        self._heads: dict[Key, Record] = {}
        self._order: list[bytes] | None = []
        """All keys, sorted; None when some are new: sorted when somebody scans."""
        self._history: dict[Key, list[Record]] = {}
        self._log: dict[int, Record] = {}
        self._places: dict[tuple[str, int], int] = {}
        self._dropped: dict[str, int] = {}
        self._last_dropped = 0
        self._seq = 0
        self._origin = clock.now_ms() - int(clock.monotonic() * 1000)

    def now_ms(self) -> int:
        # The wall clock is read once: setting it later moves no lease and no timer.
        return self._origin + int(self._clock.monotonic() * 1000)

    def read(self, keys: Sequence[Key]) -> list[Record | None]:
        if self._landing:
            self._land()
        return [self._heads.get(key) for key in keys]

    def apply(self, batch: Batch) -> list[Outcome]:
        if self._landing:
            self._land()
        heads = {key: self._heads.get(key) for key in batch.blank}
        unit = batch.evaluate(heads, self.now_ms(), self._find_op)
        if unit.writes and not unit.settled:
            batch.committing = unit
            self._landing = unit.writes
            self._land()
            batch.committing = None
        return unit.outcomes

    def _land(self) -> None:
        while self._landed < len(self._landing):
            self._write(self._landing[self._landed])
            self._landed += 1
        self._landing, self._landed = (), 0

    def _find_op(self, key: str, version: int) -> str | None:
        for record in self.history(key, version - 1, 1):
            if record.version == version:
                return record.op
        return None

    def _write(self, record: Record) -> None:
        """Put a record in its places; done again after an interrupt, it changes nothing."""
        key = record.key if type(record.key) is Key else Key(record.key)
        if key not in self._heads:
            self._order = None
        if keeps_history(key) and (key, record.version) not in self._places:
            seq = self._seq + 1
            versions = self._history.setdefault(key, [])
            if not versions or versions[-1] is not record:
                versions.append(record)
            self._log[seq] = record
            self._places[key, record.version] = seq
            self._seq = seq
            if self.limits.keep_s is not None or len(versions) > self.limits.keep_versions:
                self._retain(versions, record.at)
        self._heads[key] = record

    def _retain(self, versions: list[Record], now: int) -> None:
        drop = max(0, len(versions) - self.limits.keep_versions)
        if self.limits.keep_s is not None:
            oldest = now - int(self.limits.keep_s * 1000)
            while drop < len(versions) - 1 and versions[drop].at < oldest:
                drop += 1
        for record in versions[:drop]:
            place = record.key, record.version
            if place in self._places:
                seq = self._dropped[record.key] = self._places[place]
                self._last_dropped = max(self._last_dropped, seq)
                self._log.pop(seq, None)
                del self._places[place]
        del versions[:drop]

    def _sorted(self) -> list[bytes]:
        """All keys in order."""
        if self._landing:
            self._land()
        order = self._order
        if order is None:
            order = self._order = sorted(key.encode() for key in self._heads)
        return order

    def scan(self, prefix: str, after: str, limit: int) -> list[Record]:
        order = self._sorted()
        start = bisect_right(order, max(after.encode(), prefix.encode()))
        if after < prefix and start and order[start - 1] == prefix.encode():
            start -= 1
        found: list[Record] = []
        for raw in islice(order, start, None):
            key = Key(raw.decode())
            if len(found) == limit or not key.startswith(prefix):
                break
            if not self._heads[key].deleted:
                found.append(self._heads[key])
        return found

    def history(self, key: str, after: int, limit: int) -> list[Record]:
        if self._landing:
            self._land()
        versions = self._history.get(Key(key), [])
        if not versions:
            return []
        start = max(0, after + 1 - versions[0].version)
        return versions[start : start + limit]

    def changes(self, prefix: str, cursor: str, limit: int) -> Page:
        if self._landing:
            self._land()
        seen = position(cursor)
        gap = seen < self._last_dropped and any(
            seq > seen for key, seq in self._dropped.items() if key.startswith(prefix)
        )
        found: list[Record] = []
        cursors: list[str] = []
        for seq in range(seen + 1, self._seq + 1):
            if len(found) == limit:
                return Page(found, cursors, cursors[-1], gap, live=False)
            record = self._log.get(seq)
            if record is not None and record.key.startswith(prefix):
                found.append(record)
                cursors.append(str(seq))
        return Page(found, cursors, str(self._seq), gap)

    def cursor(self, prefix: str) -> str:
        if self._landing:
            self._land()
        return str(self._seq)

    def walk(self, cursor: str, limit: int) -> Walk:
        order = self._sorted()
        start = bisect_right(order, cursor.encode())
        keys = [raw.decode() for raw in order[start : start + limit]]
        more = start + limit < len(order)
        return Walk([self._heads[Key(key)] for key in keys], keys[-1] if more else "")

    def reader(self) -> Backend | None:
        return None

    def describe(self) -> dict[str, str]:
        return {"records": str(len(self._heads)), "versions": str(len(self._log))}

    def concerns(self) -> list[str]:
        return ["everything is gone when this process ends; use it for tests and caches only"]

    def close(self) -> None:
        """Nothing to give back; a closed store refuses further calls itself."""


def open_backend(location: Location, limits: Limits, clock: Clock) -> Backend:
    """``memory://``: always a fresh, empty store."""
    location.check_options(set())
    return MemoryBackend(limits, clock)
