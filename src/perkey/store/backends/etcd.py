"""Records in etcd: one transaction compares the revisions of all its keys and writes everything.

The revision orders commits, so it is the cursor of changes.  History is in keys of our own:
etcd's old revisions belong to its operator, who may drop them at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from perkey.clock import Clock
from perkey.errors import LimitExceeded, StoreError, StoreUnavailable
from perkey.store.abc import Backend
from perkey.store.backends import etcd_client
from perkey.store.backends import etcd_messages as messages
from perkey.store.backends.etcd_changes import Feed
from perkey.store.backends.etcd_client import Compacted, Wire, again
from perkey.store.backends.etcd_messages import Found
from perkey.store.backends.etcd_names import SAME, Names, pack_after, unpack_after
from perkey.store.backends.opening import opened
from perkey.store.backends.optimistic import Optimistic
from perkey.store.backends.probe import probe
from perkey.store.evaluate import Batch
from perkey.store.keys import TURNS, Key, keeps_history
from perkey.store.limits import Limits
from perkey.store.record import Page, Record, Walk
from perkey.store.transaction import Outcome
from perkey.store.url import Location

T = TypeVar("T")

OPERATIONS = 128
"""How many operations one transaction may have: the server's default ``--max-txn-ops``."""
KEY_OPERATIONS = 3
"""What a key with history takes: its head, its version, and dropping what is over the limit."""
REQUEST_BYTES = 1_572_864 - 4_096
"""The server's default ``--max-request-bytes``, less what it puts around a request."""
AROUND_BYTES = 8_192
"""Room for what a record has around its body: the key, twice, the author, the ops before it."""
CHUNK = 200
"""How many records one request of a scan or of a history asks for."""
ATTEMPTS = 3
"""How often a read of several requests begins anew because the server compacted meanwhile."""

INCONSISTENT = ("3.5.0", "3.5.1", "3.5.2")
"""Releases with etcd's issue 13766: a member that was killed under load may differ from the others
when it is back."""

SKEW_MS = 1_000
"""How far this machine's clock may be from the server's without a word."""


class EtcdBackend:
    """One connection.  The reader is a second one of the same kind."""

    name = "etcd"
    atomic_keys: int | None = OPERATIONS // KEY_OPERATIONS
    commit_records: int | None = OPERATIONS - 2
    several_versions = True
    cheap_turns = True
    guesses = False
    blocking = True
    time_source = "client"
    durability = "flushed to the disks of a majority of the cluster before the call returns"

    def __init__(self, location: Location, limits: Limits, clock: Clock) -> None:
        # A document goes in twice: as the head and as a version.
        most = (REQUEST_BYTES - AROUND_BYTES) // 2
        self.limits = replace(limits, value_bytes=min(limits.value_bytes, most))
        self._location = location
        self._clock = clock
        self._names = Names(location.options.get("name", "perkey"))
        self._wire = Wire(location, limits)
        self._seen: dict[Key, int] = {}
        """The revision of each head of the last look."""
        self._latest = 0
        self._feed = Feed(self._names, self._range, lambda requests: self._ranges(requests)[1])
        self._optimistic = Optimistic(self, self.limits, clock)

    def now_ms(self) -> int:
        self._latest = max(self._latest, self._clock.now_ms())
        return self._latest

    # ------------------------------------------------------------------------- writing

    def apply(self, batch: Batch) -> list[Outcome]:
        return self._optimistic.apply(batch)

    def look(self, keys: Sequence[Key]) -> tuple[list[Record | None], int]:
        heads = self._heads(keys)
        self._seen = {key: mod for key, mod, _ in heads}
        found = {key: record for key, _, record in heads}
        return [found.get(key) for key in keys], self.now_ms()

    def commit(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        conditions = [
            messages.unchanged(self._names.head(key), 0 if head is None else self._seen[key])
            for key, head in heads.items()
        ]
        deletes, puts = self._written(heads, writes)
        operations = max(len(conditions), len(deletes) + len(puts))
        request = messages.writes(conditions, deletes, puts)
        if operations > OPERATIONS or len(request) > REQUEST_BYTES:
            raise LimitExceeded(
                f"one etcd commit takes {OPERATIONS} operations and {REQUEST_BYTES} bytes; this "
                f"one needs {operations} operations and {len(request)} bytes"
            )
        _, landed, _ = messages.txn_answer(self._wire.call(messages.TXN, request))
        if landed and self.limits.keep_s is not None:
            self._drop_old(writes)
        return landed

    def _written(
        self, heads: Mapping[Key, Record | None], writes: Sequence[Record]
    ) -> tuple[list[bytes], list[bytes]]:
        """What one commit removes and what it puts; no key is in it twice."""
        last = {record.key: record for record in writes}
        met: set[str] = set()
        deletes: list[bytes] = []
        puts: list[bytes] = []
        for record in writes:
            key = Key(record.key)
            before = SAME if key in met else 0 if heads.get(key) is None else self._seen[key]
            met.add(key)
            packed = pack_after(record, before)
            if record is last[key]:
                puts.append(messages.put_request(self._names.head(key), packed))
            if keeps_history(key):
                dropped = last[key].version - self.limits.keep_versions
                if record.version > dropped:
                    name = self._names.version(key, record.version)
                    puts.append(messages.put_request(name, packed))
                if record is last[key] and dropped > 0:
                    some = self._names.versions(key, 0, dropped)
                    deletes.append(messages.delete_request(*some))
        return deletes, puts

    def find_op(self, key: str, version: int) -> str | None:
        found = self._range(messages.range_request(self._names.version(key, version)))
        return unpack_after(found.stored[0].value)[0].op if found.stored else None

    def forget(self, key: Key) -> None:
        self._call(messages.DELETE, messages.delete_request(self._names.head(key)))

    def _drop_old(self, writes: Sequence[Record]) -> None:
        """Drop versions by their age.  Only housekeeping: the next write tries again."""
        assert self.limits.keep_s is not None
        for record in {record.key: record for record in writes}.values():
            if not keeps_history(record.key):
                continue
            oldest = record.at - int(self.limits.keep_s * 1000)
            try:
                young = self._first_since(record, oldest)
                some = self._names.versions(record.key, 0, young - 1)
                self._call(messages.DELETE, messages.delete_request(*some))
            except (StoreError, Compacted):
                return

    def _first_since(self, head: Record, oldest: int) -> int:
        """The first kept version that is no older, at most the head's."""
        after = 0
        while True:
            page = self.history(head.key, after, CHUNK)
            for record in page:
                if record.at >= oldest or record.version >= head.version:
                    return record.version
            if not page:
                return head.version
            after = page[-1].version

    # ------------------------------------------------------------------------- reading

    def read(self, keys: Sequence[Key]) -> list[Record | None]:
        found = {key: record for key, _, record in self._heads(keys)}
        return [found.get(key) for key in keys]

    def _heads(self, keys: Sequence[Key]) -> list[tuple[Key, int, Record]]:
        """(key, revision, head) of each key that has one, as of one moment."""
        names = [self._names.head(key) for key in keys]
        if len(names) == 1:
            answers = [self._range(messages.range_request(names[0]))]
        else:
            answers = self._at_once(
                lambda revision: (messages.range_request(name, revision=revision) for name in names)
            )
        return [
            (key, stored.mod, unpack_after(stored.value)[0])
            for key, answer in zip(keys, answers, strict=True)
            for stored in answer.stored
        ]

    def _at_once(self, requests: Callable[[int], Iterable[bytes]]) -> list[Found]:
        """Answers of any number of range requests as of one moment."""
        return self._steady(lambda: self._as_of_one(requests))

    def _as_of_one(self, requests: Callable[[int], Iterable[bytes]]) -> list[Found]:
        everything = list(requests(0))
        revision, answers = self._ranges(everything[:OPERATIONS])
        if len(everything) > OPERATIONS:
            later = list(requests(revision))
            for start in range(OPERATIONS, len(later), OPERATIONS):
                answers += self._ranges(later[start : start + OPERATIONS])[1]
        return answers

    def _steady(self, read: Callable[[], T]) -> T:
        """``read()``, from the start where the server compacted between its requests."""
        for _ in range(ATTEMPTS):
            try:
                return read()
            except Compacted:
                continue
        raise StoreUnavailable(
            f"etcd at {self._wire.place} drops its old revisions faster than they can be read"
        )

    def scan(self, prefix: str, after: str, limit: int) -> list[Record]:
        return self._steady(lambda: self._scan(prefix, after, limit))

    def _scan(self, prefix: str, after: str, limit: int) -> list[Record]:
        start, end = self._names.heads(prefix, after)
        found: list[Record] = []
        revision = 0
        while len(found) < limit:
            request = messages.range_request(start, end, limit=min(CHUNK, limit), revision=revision)
            page = self._range(request)
            records = [unpack_after(stored.value)[0] for stored in page.stored]
            found += [record for record in records if not record.deleted]
            if not page.more:
                break
            revision = revision or page.revision
            start = page.stored[-1].key + b"\0"
        return found[:limit]

    def walk(self, cursor: str, limit: int) -> Walk:
        some = self._names.heads("", cursor)
        page = self._range(messages.range_request(*some, limit=min(CHUNK, limit)))
        records = [unpack_after(stored.value)[0] for stored in page.stored]
        return Walk(records, records[-1].key if page.more else "")

    def history(self, key: str, after: int, limit: int) -> list[Record]:
        return self._steady(lambda: self._history(key, after, limit))

    def _history(self, key: str, after: int, limit: int) -> list[Record]:
        found: list[Record] = []
        revision = 0
        more = True
        while more and len(found) < limit:
            first = found[-1].version + 1 if found else after + 1
            some = self._names.versions(key, first)
            count = min(CHUNK, limit - len(found))
            page = self._range(messages.range_request(*some, limit=count, revision=revision))
            found += [unpack_after(stored.value)[0] for stored in page.stored]
            revision, more = revision or page.revision, page.more
        return found

    def changes(self, prefix: str, cursor: str, limit: int) -> Page:
        return self._steady(lambda: self._feed.page(prefix, cursor, limit))

    def cursor(self, prefix: str) -> str:
        # Any read tells the revision of the whole store.
        return str(self._range(messages.range_request(self._names.head(TURNS))).revision)

    def _range(self, request: bytes) -> Found:
        return messages.found(self._call(messages.RANGE, request))

    def _ranges(self, requests: Iterable[bytes]) -> tuple[int, list[Found]]:
        """(revision, answers) of up to ``OPERATIONS`` range requests."""
        answer = self._call(messages.TXN, messages.reads(requests))
        revision, _, answers = messages.txn_answer(answer)
        return revision, answers

    def _call(self, path: str, request: bytes) -> bytes:
        """For what may be asked twice."""
        return again(lambda: self._wire.call(path, request))

    # ------------------------------------------------------------------------ the rest

    def reader(self) -> Backend | None:
        return self._another()

    def _another(self) -> EtcdBackend:
        """One more connection to the same store, which has been checked already."""
        return EtcdBackend(self._location, self.limits, self._clock)

    def check(self) -> None:
        """Refuse a server that does not enforce conditions."""
        probe(self, self._another, self._clock)

    def describe(self) -> dict[str, str]:
        told = self._status()
        return {
            "address": self._wire.place,
            "name": self._location.options.get("name", "perkey"),
            "server": f"etcd {told.version}",
            "database bytes": str(told.size),
            "revision": self.cursor(""),
        }

    def concerns(self) -> list[str]:
        told = self._status()
        found = [f"the cluster has raised an alarm: {alarm}" for alarm in told.alarms]
        if told.version in INCONSISTENT:
            found.append(
                f"etcd {told.version} may let its members differ after one of them was killed: "
                "use 3.5.3 or newer"
            )
        return found + self._skewed()

    def _skewed(self) -> list[str]:
        """What is to be said where this machine's clock and the server's are apart."""
        told = self._wire.server_ms()
        ahead = 0 if told is None else self._clock.now_ms() - told
        if -SKEW_MS <= ahead <= SKEW_MS + 1_000:  # a date is cut to its second
            return []
        where = "ahead of" if ahead > 0 else "behind"
        return [
            f"this machine's clock is about {abs(ahead) // 1000} s {where} the server's: leases go "
            "by the clients' clocks and end that much too early or too late; run NTP on both"
        ]

    def _status(self) -> messages.Status:
        return messages.status(self._call(messages.STATUS, b""))

    def close(self) -> None:
        self._wire.close()


def open_backend(location: Location, limits: Limits, clock: Clock) -> Backend:
    """``etcd://[user:password@]host[:port]``, ``etcds://`` with TLS."""
    location.check_options(etcd_client.OPTIONS)
    backend = EtcdBackend(location, limits, clock)
    return opened(backend, backend.check)
