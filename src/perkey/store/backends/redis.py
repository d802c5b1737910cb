"""Records in Redis or Valkey: one script compares all versions and writes everything.

Where the server keeps its data on disk decides what is promised; ``durability`` says it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from redis import exceptions

from perkey.clock import Clock
from perkey.errors import LimitExceeded, StoreCorrupt, StoreError, StoreUnavailable, UsageError
from perkey.store.abc import Backend
from perkey.store.backends import redis_client, redis_scripts
from perkey.store.backends.envelope import pack, unpack
from perkey.store.backends.opening import opened
from perkey.store.backends.optimistic import Optimistic
from perkey.store.backends.port import NothingDone
from perkey.store.backends.probe import probe
from perkey.store.backends.redis_client import Script
from perkey.store.evaluate import Batch
from perkey.store.keys import TURNS, Key, keeps_history
from perkey.store.limits import Limits
from perkey.store.record import Page, Record, Walk, op_of
from perkey.store.transaction import Outcome
from perkey.store.url import Location

CHUNK = 500
"""How many entries of the log one request looks at."""
STRING_BYTES = 512 * 1024 * 1024 - 65_536
"""The longest value of the server, less what a record has around its body."""
BEGINNING = "0-0"
_CURSOR = re.compile(r"\d{1,20}-\d{1,20}")

HEADS = Script(redis_scripts.HEADS)
COMMIT = Script(redis_scripts.COMMIT)
SCAN = Script(redis_scripts.SCAN)
WALK = Script(redis_scripts.WALK)
CHANGES = Script(redis_scripts.CHANGES)


class RedisBackend:
    """One client with one connection.  The reader is a second one of the same kind."""

    name = "redis"
    atomic_keys: int | None = None
    commit_records: int | None = None
    several_versions = True
    cheap_turns = True
    guesses = True
    blocking = True
    time_source = "store"

    def __init__(self, location: Location, limits: Limits, clock: Clock) -> None:
        self.limits = limits
        self.durability = "unknown: the server has not been asked"
        self._location = location
        self._clock = clock
        self._client = redis_client.connect(location, limits)
        self._tag = "{" + location.options.get("name", "perkey") + "}"
        self._latest = 0
        self._facts: dict[str, str] = {}
        self._optimistic = Optimistic(self, limits, clock)

    def now_ms(self) -> int:
        return self.look([])[1]

    # ------------------------------------------------------------------------ writing

    def apply(self, batch: Batch) -> list[Outcome]:
        return self._optimistic.apply(batch)

    def look(self, keys: Sequence[Key]) -> tuple[list[Record | None], int]:
        # One key too many: a cluster finds the server by it, also where nothing is asked for.
        names = [*map(self._head, keys), self._head(TURNS)]
        (seconds, micros), heads = self._read(lambda: HEADS.run(self._client, names))
        # Never below what it was before, whatever happened to the server's clock.
        self._latest = max(self._latest, int(seconds) * 1000 + int(micros) // 1000)
        return [head and self._record(head) for head in heads[:-1]], self._latest

    def commit(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        oldest = 0
        if self.limits.keep_s is not None and writes:
            oldest = max(0, writes[-1].at - int(self.limits.keep_s * 1000))
        arguments: list[Any] = [self._tag, self.limits.keep_versions, oldest, len(heads)]
        arguments += [b"" if head is None else _mark(head) for head in heads.values()]
        last = {record.key: record.version for record in writes}
        for record in writes:
            arguments += self._written(record, record.version == last[record.key])
        names = [self._head(key) for key in heads]
        try:
            return bool(COMMIT.run(self._client, names, arguments))
        except redis_client.REFUSED as error:
            raise NothingDone(f"{self._place} refused: {error}") from error
        except exceptions.RedisError as error:
            raise self._unavailable(error) from error

    def _written(self, record: Record, is_head: bool) -> tuple[Any, ...]:
        packed = pack(record)
        if len(packed) > STRING_BYTES:
            raise LimitExceeded(
                f"expected a record of at most {STRING_BYTES} bytes, found {len(packed)}"
            )
        kind = "k" * keeps_history(record.key) + "h" * is_head + "d" * record.deleted
        return record.key.encode(), kind, record.version, record.at, packed, _mark(record)

    def find_op(self, key: str, version: int) -> str | None:
        return op_of(self.history(key, version - 1, 1), version)

    def forget(self, key: Key) -> None:
        self._read(lambda: self._client.delete(self._head(key)))
        self._read(lambda: self._client.zrem(f"{self._tag}:live", key.encode()))

    # ------------------------------------------------------------------------ reading

    def read(self, keys: Sequence[Key]) -> list[Record | None]:
        return self.look(keys)[0]

    def scan(self, prefix: str, after: str, limit: int) -> list[Record]:
        low = b"(" + after.encode() if after >= prefix else b"[" + prefix.encode()
        # UTF-8 has no byte 0xFF, so this is above all that begins with the prefix.
        arguments = [self._tag, low, b"(" + prefix.encode() + b"\xff", limit]
        names = [f"{self._tag}:live"]
        heads = self._read(lambda: SCAN.run(self._client, names, arguments))
        return [self._record(head) for head in heads if head]

    def walk(self, cursor: str, limit: int) -> Walk:
        if not (cursor or "0").isdecimal():
            raise UsageError(f"expected a cursor that this store gave out, found {cursor!r}")
        # Every head has this name; deleted keys stand in no set of ours.
        pattern = re.sub(rb"([][*?\\^-])", rb"\\\1", self._tag.encode()) + b":h:*"
        names = [self._head(TURNS)]
        arguments = [cursor or "0", pattern, limit]
        onwards, heads = self._read(lambda: WALK.run(self._client, names, arguments))
        cursor = onwards.decode()
        return Walk([self._record(head) for head in heads if head], "" if cursor == "0" else cursor)

    def history(self, key: str, after: int, limit: int) -> list[Record]:
        stream = f"{self._tag}:s:{key}".encode()
        first = f"{after + 1}-0"
        entries = self._read(lambda: self._client.xrange(stream, first, "+", limit))
        return [unpack(fields[b"r"]) for _, fields in entries]

    def changes(self, prefix: str, cursor: str, limit: int) -> Page:
        seen = cursor or BEGINNING
        if not _CURSOR.fullmatch(seen):
            raise UsageError(f"expected a cursor that this store gave out, found {cursor!r}")
        names = [f"{self._tag}:log"]
        arguments = [self._tag, f"({seen}", CHUNK, limit, prefix.encode(), seen]
        found, last, live, dropped = self._read(lambda: CHANGES.run(self._client, names, arguments))
        cursors = [entry.decode() for entry, _ in found]
        gap = bool(dropped) and _order(seen) < _order(dropped.decode()) and self._gap(prefix, seen)
        records = [unpack(packed) for _, packed in found]
        return Page(records, cursors, last.decode(), gap, live=bool(live))

    def _gap(self, prefix: str, seen: str) -> bool:
        """Whether retention dropped something under ``prefix`` that came after ``seen``."""
        gone = self._read(lambda: self._client.hgetall(f"{self._tag}:gone"))
        return any(
            key and key.startswith(prefix.encode()) and _order(seen) < _order(entry.decode())
            for key, entry in gone.items()
        )

    def cursor(self, prefix: str) -> str:
        last = self._read(lambda: self._client.xrevrange(f"{self._tag}:log", "+", "-", 1))
        return last[0][0].decode() if last else BEGINNING

    # ------------------------------------------------------------------------ the rest

    def reader(self) -> Backend | None:
        other = RedisBackend(self._location, self.limits, self._clock)
        other._facts, other.durability = self._facts, self.durability
        return other

    def check(self) -> None:
        """Ask the server what it is and whether it enforces conditions; refuse it if not."""
        self._facts = self._read(lambda: redis_client.facts(self._client))
        self.durability = redis_client.durability(self._facts)
        probe(self, lambda: RedisBackend(self._location, self.limits, self._clock), self._clock)

    def describe(self) -> dict[str, str]:
        live = self._read(lambda: self._client.zcard(f"{self._tag}:live"))
        versions = self._read(lambda: self._client.xlen(f"{self._tag}:log"))
        place = {"address": self._place, "name": self._tag[1:-1]}
        return {**place, **self._facts, "records": str(live), "versions": str(versions)}

    def concerns(self) -> list[str]:
        return redis_client.concerns(self._facts)

    def close(self) -> None:
        self._client.close()

    def _head(self, key: str) -> bytes:
        return f"{self._tag}:h:{key}".encode()

    def _record(self, head: bytes) -> Record:
        _, end, packed = head.partition(b"\n")
        if not end:
            raise StoreCorrupt("a head in Redis is not one that perkey wrote")
        return unpack(packed)

    @property
    def _place(self) -> str:
        return f"{self._location.host or 'localhost'}:{self._location.port or 6379}"

    def _unavailable(self, error: exceptions.RedisError) -> StoreError:
        if isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError):
            return StoreUnavailable(f"{self._place} did not answer: {error}")
        return StoreError(f"{self._place} refused: {error}")

    def _read(self, ask: Any) -> Any:
        """Reading may be asked twice: a connection that died meanwhile is replaced."""
        try:
            return redis_client.again(ask)
        except exceptions.RedisError as error:
            raise self._unavailable(error) from error


def _mark(head: Record) -> bytes:
    return f"{head.version} {head.op}\n".encode()


def _order(cursor: str) -> tuple[int, int]:
    ms, _, number = cursor.partition("-")
    return int(ms), int(number)


def open_backend(location: Location, limits: Limits, clock: Clock) -> Backend:
    """``redis://[user:password@]host[:port][/number]``, ``rediss://`` with TLS."""
    location.check_options(redis_client.OPTIONS)
    backend = RedisBackend(location, limits, clock)
    return opened(backend, backend.check)
