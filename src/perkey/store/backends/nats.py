"""Records in a NATS JetStream stream: one subject a key, and the stream itself is the history.

A write carries the sequence that must be the last of its subject.  Several keys go as an
atomic batch (server 2.12 or newer), in which a key that was only read is compared by a filler
message; an older server commits one key at a time.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perkey.clock import Clock
from perkey.errors import LimitExceeded, StoreError, UsageError
from perkey.store.abc import Backend
from perkey.store.backends import nats_client, nats_names, nats_stream
from perkey.store.backends.envelope import pack
from perkey.store.backends.nats_client import Post, Wire, again
from perkey.store.backends.nats_reader import BACK, EXPECTED, Reader, read
from perkey.store.backends.opening import opened
from perkey.store.backends.optimistic import Optimistic
from perkey.store.backends.port import NothingDone
from perkey.store.backends.probe import probe
from perkey.store.evaluate import Batch
from perkey.store.examine import Found
from perkey.store.keys import HISTORY_SPACES, TURNS, Key, keeps_history
from perkey.store.limits import Limits
from perkey.store.record import Page, Record, Walk, op_of
from perkey.store.transaction import Outcome
from perkey.store.url import Location

OF_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
MOVED = (10071, 10164)
"""Error codes for an expected sequence that is not the last one."""

BATCH = 500
"""How many keys and how many records one batch carries: together the server's 1 000 messages."""
MULTI = 500
"""How many heads one request asks for; the server's limit is 1 024."""
NEVER_REPLACED = HISTORY_SPACES | {TURNS[0]}
"""Spaces whose records stay when a newer one comes, and the one where it does not matter."""
HEADER_BYTES = 4_096
"""Room for the headers and the subject of one message."""
AROUND_BYTES = 4_096
"""Room for what a record has around its body: the key, the author, the ops before it."""
TIME_S = 10.0
"""How long the server's time is counted on from one answer."""
_CURSOR = re.compile(r"\d{1,20}")


class NatsBackend:
    """One connection.  The reader is a second one of the same kind."""

    name = "nats"
    cheap_turns = False
    guesses = False
    blocking = True
    time_source = "store"
    durability = (
        "written by the server before the call returns; it flushes to the disk every two minutes "
        "unless its sync_interval says otherwise, so a power cut may lose what came after"
    )

    def __init__(self, location: Location, limits: Limits, clock: Clock) -> None:
        self.limits = limits
        self.atomic_keys: int | None = 1
        self.commit_records: int | None = 1
        self.several_versions = False
        self._location = location
        self._clock = clock
        self._stream = location.options.get("name", "perkey")
        self._wire = Wire(location, limits)
        self._reader = Reader(self._wire, self._stream)
        self._seen: dict[Key, int] = {}
        """The sequence of each head of the last look."""
        self._walk: list[Key] = []
        """The keys that a walk has still to visit: one listing serves all its pages."""
        self._latest = 0
        self._offset = 0.0
        self._asked = -TIME_S
        self._optimistic = Optimistic(self, limits, clock)

    def now_ms(self) -> int:
        elapsed = self._clock.monotonic()
        if elapsed - self._asked >= TIME_S:
            told = self._api(f"STREAM.INFO.{self._stream}")["ts"]
            self._asked = self._clock.monotonic()
            self._offset = nats_stream.milliseconds(told) - self._asked * 1000
            elapsed = self._asked
        self._latest = max(self._latest, int(elapsed * 1000 + self._offset))
        return self._latest

    # ------------------------------------------------------------------------- writing

    def apply(self, batch: Batch) -> list[Outcome]:
        return self._optimistic.apply(batch)

    def look(self, keys: Sequence[Key]) -> tuple[list[Record | None], int]:
        found = again(lambda: self._heads(keys))
        self._seen = {key: found[key][0] for key in keys if key in found}
        return [found[key][1] if key in found else None for key in keys], self.now_ms()

    def commit(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        messages = self._messages(heads, writes)
        for subject, payload, _ in messages:
            self._check_size(subject, payload)
        if len(messages) > 1:
            messages = _as_batch(messages, self._clock.token())
        answer = json.loads(self._wire.post(messages).data or b"{}")
        code = answer.get("error", {}).get("err_code")
        if code in MOVED:
            return False
        if "error" in answer or "seq" not in answer:
            said = answer.get("error", {}).get("description", "nobody serves this stream")
            raise NothingDone(f"NATS at {self._wire.place} refused: {said}")
        self._retain(writes)
        return True

    def _messages(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> list[Post]:
        """A message a record, and one for each key that is compared and not written."""
        last = {record.key: record for record in writes}
        places: dict[str, int] = {}
        messages: list[Post] = []
        for key in heads:
            if key not in last:
                filler = f"{self._stream}.z.{nats_names.EMPTY}.{len(messages)}"
                subject = nats_names.subject(self._stream, key)
                headers = {EXPECTED: self._sequence(key, heads), OF_SUBJECT: subject}
                messages.append((filler, b"", {**headers, "Nats-Rollup": "sub"}))
        for record in writes:
            key = Key(record.key)
            kept = keeps_history(key)
            if not kept and record is not last[key]:
                continue  # nobody will ever ask for a version between
            headers = {} if kept else {"Nats-Rollup": "sub"}
            if key in places:
                headers[BACK] = str(len(messages) - places[key])
            else:
                headers[EXPECTED] = self._sequence(key, heads)
            places[key] = len(messages)
            messages.append((nats_names.subject(self._stream, key), pack(record), headers))
        return messages

    def _sequence(self, key: Key, heads: Mapping[Key, Record | None]) -> str:
        return str(0 if heads.get(key) is None else self._seen[key])

    def _check_size(self, subject: str, payload: bytes) -> None:
        most = self._wire.max_payload - HEADER_BYTES
        if len(payload) > most:
            raise LimitExceeded(
                f"this NATS server takes records up to {most} bytes (its max_payload), found "
                f"{len(payload)} at {nats_names.key_of(subject).name!r}"
            )

    def find_op(self, key: str, version: int) -> str | None:
        return op_of(self.history(key, version - 1, 1), version)

    def forget(self, key: Key) -> None:
        self._purge(filter=nats_names.subject(self._stream, key))

    # ----------------------------------------------------------------------- retention

    def _retain(self, writes: Sequence[Record]) -> None:
        """Drop what is over the limits.  Only housekeeping: the next write tries again."""
        for record in {record.key: record for record in writes}.values():
            if not keeps_history(record.key):
                continue
            subject = nats_names.subject(self._stream, record.key)
            try:
                if record.version > self.limits.keep_versions:
                    self._purge(filter=subject, keep=self.limits.keep_versions)
                if self.limits.keep_s is not None:
                    self._drop_old(subject, record.at - int(self.limits.keep_s * 1000))
            except StoreError:
                return

    def _drop_old(self, subject: str, oldest: int) -> None:
        more, sequence = True, 1
        while more:
            page, last, more = self._reader.page(subject, sequence, 100)
            for place, each in enumerate(page):
                if each.record.at >= oldest or (not more and each is page[-1]):
                    if place or sequence > 1:
                        self._purge(filter=subject, seq=each.sequence)
                    return
            sequence = last + 1

    def _purge(self, **what: Any) -> None:
        self._api(f"STREAM.PURGE.{self._stream}", what)

    # ------------------------------------------------------------------------- reading

    def read(self, keys: Sequence[Key]) -> list[Record | None]:
        found = again(lambda: self._heads(keys))
        return [found[key][1] if key in found else None for key in keys]

    def _heads(self, keys: Sequence[Key]) -> dict[Key, tuple[int, Record]]:
        """(sequence, head) of each key that has one, as of one moment."""
        if len(keys) == 1:
            reply = self._reader.ask(f".{nats_names.subject(self._stream, keys[0])}", b"")[0]
            return {} if nats_client.status(reply) else {keys[0]: read(reply)}
        found = self._some_heads(keys)
        while len(keys) > MULTI or any(
            key not in found and key[0] not in NEVER_REPLACED for key in keys
        ):
            # Several requests are no single moment; and a record that was replaced while the
            # server collected is left out.  So look until two looks agree.
            before, found = found, self._some_heads(keys)
            if _sequences(before) == _sequences(found):
                break
        return found

    def _some_heads(self, keys: Sequence[Key]) -> dict[Key, tuple[int, Record]]:
        found: dict[Key, tuple[int, Record]] = {}
        for start in range(0, len(keys), MULTI):
            names = [nats_names.subject(self._stream, key) for key in keys[start : start + MULTI]]
            body = json.dumps({"multi_last": names}).encode()
            for reply in self._reader.ask("", body):
                if not nats_client.status(reply):
                    sequence, record = read(reply)
                    found[Key(record.key)] = sequence, record
        return found

    def scan(self, prefix: str, after: str, limit: int) -> list[Record]:
        return again(lambda: self._scan(prefix, after, limit))

    def _listed(self, prefix: str, after: str) -> list[Key]:
        """All keys under ``prefix`` and above ``after``, in order; deleted ones too."""
        wanted = nats_names.under(self._stream, prefix)
        names: list[str] = []
        while True:
            body = {"subjects_filter": wanted, "offset": len(names)}
            told = self._api(f"STREAM.INFO.{self._stream}", body)
            names += told["state"].get("subjects") or {}
            if len(names) >= told.get("total", 0):
                break
        fillers = f"{self._stream}.z."
        keys = [nats_names.key_of(name) for name in names if not name.startswith(fillers)]
        return sorted(
            (key for key in keys if key.startswith(prefix) and key.encode() > after.encode()),
            key=str.encode,
        )

    def walk(self, cursor: str, limit: int) -> Walk:
        if not cursor or not self._walk:
            self._walk = again(lambda: self._listed("", cursor))
        start = bisect_right(self._walk, cursor.encode(), key=str.encode)
        some = self._walk[start : start + limit]
        more = start + limit < len(self._walk)
        records = self.read(some) if some else []
        if not more:
            self._walk = []
        return Walk([each for each in records if each is not None], some[-1] if more else "")

    def _scan(self, prefix: str, after: str, limit: int) -> list[Record]:
        keys = self._listed(prefix, after)
        found: list[Record] = []
        for start in range(0, len(keys), MULTI):
            some = keys[start : start + MULTI]
            heads = self._some_heads(some)
            found += [heads[key][1] for key in some if key in heads and not heads[key][1].deleted]
            if len(found) >= limit:
                break
        return found[:limit]

    def history(self, key: str, after: int, limit: int) -> list[Record]:
        return again(lambda: self._reader.history(key, after, limit))

    def changes(self, prefix: str, cursor: str, limit: int) -> Page:
        if not _CURSOR.fullmatch(cursor or "0"):
            raise UsageError(f"expected a cursor that this store gave out, found {cursor!r}")
        return again(lambda: self._reader.changes(prefix, int(cursor or 0), limit))

    def cursor(self, prefix: str) -> str:
        return str(again(lambda: self._api(f"STREAM.INFO.{self._stream}"))["state"]["last_seq"])

    def _api(self, subject: str, body: Any = None) -> dict[str, Any]:
        answer = self._wire.api(subject, body)
        if "error" in answer:
            said = answer["error"].get("description", "no reason given")
            raise StoreError(f"NATS at {self._wire.place} refused: {said}")
        return answer

    # ------------------------------------------------------------------------ the rest

    def reader(self) -> Backend | None:
        return self._another()

    def _another(self) -> NatsBackend:
        """One more connection to the same stream, which has been checked already."""
        other = NatsBackend(self._location, self.limits, self._clock)
        other._become(atomic=self.atomic_keys != 1)
        return other

    def _become(self, atomic: bool) -> None:
        """Commit several keys at once, or one."""
        self.atomic_keys = self.commit_records = BATCH if atomic else 1
        self.several_versions = atomic

    def check(self) -> None:
        """Find or make the stream, and refuse a server that does not enforce conditions."""
        config = nats_stream.find_or_make(self._wire, self._stream, self._location)
        self._become(atomic=bool(config.get("allow_atomic")))
        most = self._wire.max_payload - HEADER_BYTES - AROUND_BYTES
        self.limits = replace(self.limits, value_bytes=min(self.limits.value_bytes, most))
        probe(self, self._another, self._clock)

    def describe(self) -> dict[str, str]:
        told = again(lambda: self._api(f"STREAM.INFO.{self._stream}"))
        return {
            "address": self._wire.place,
            "server": f"nats {self._wire.server}",
            "stream": self._stream,
            "replicas": str(told["config"].get("num_replicas", 1)),
            "storage": str(told["config"].get("storage", "unknown")),
            "several keys": "in one atomic batch"
            if self.atomic_keys != 1
            else "not on this server",
            "longest record": str(self._wire.max_payload - HEADER_BYTES),
            "messages": str(told["state"]["messages"]),
        }

    def concerns(self) -> list[str]:
        told = again(lambda: self._api(f"STREAM.INFO.{self._stream}"))["config"]
        return nats_stream.concerns(told)

    def close(self) -> None:
        self._wire.close()


def _sequences(found: Mapping[Key, tuple[int, Record]]) -> dict[Key, int]:
    return {key: sequence for key, (sequence, _) in found.items()}


def _as_batch(messages: Sequence[Post], name: str) -> list[Post]:
    """The same messages with the headers that make them one commit."""
    last = len(messages)
    return [
        (
            subject,
            payload,
            {
                **headers,
                "Nats-Batch-Id": name,
                "Nats-Batch-Sequence": str(place),
                **({"Nats-Batch-Commit": "1"} if place == last else {}),
            },
        )
        for place, (subject, payload, headers) in enumerate(messages, 1)
    ]


def examine(location: Location, limits: Limits, clock: Clock) -> Found:
    """Whether the stream of a NATS URL is there; makes none."""
    location.check_options(nats_client.OPTIONS)
    name = location.options.get("name", "perkey")
    wire = Wire(location, limits)
    try:
        return Found(nats_stream.exists(wire, name), f"the stream {name!r}")
    finally:
        wire.close()


def open_backend(location: Location, limits: Limits, clock: Clock) -> Backend:
    """``nats://[user:password@]host[:port]``, ``tls://`` with TLS."""
    location.check_options(nats_client.OPTIONS)
    backend = NatsBackend(location, limits, clock)
    return opened(backend, backend.check)
