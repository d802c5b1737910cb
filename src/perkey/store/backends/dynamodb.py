"""Records in a DynamoDB table: a head and its version are two items of one transaction.

Every read is strongly consistent; several heads are read in one transaction.  There is no order
of commits over keys: a watcher's cursor is the version it has seen of each key.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from perkey.clock import Clock
from perkey.errors import LimitExceeded, StoreError, Timeout
from perkey.store.abc import Backend
from perkey.store.backends import dynamodb_items as items
from perkey.store.backends import dynamodb_table, vector
from perkey.store.backends.dynamodb_client import (
    CONFLICT,
    REFUSED,
    Client,
    Item,
    Refusal,
    binary,
    number,
)
from perkey.store.backends.envelope import unpack
from perkey.store.backends.opening import opened
from perkey.store.backends.optimistic import Optimistic
from perkey.store.backends.probe import probe
from perkey.store.backends.vector import Removed
from perkey.store.evaluate import Batch
from perkey.store.keys import Key, keeps_history
from perkey.store.limits import Limits, backoff
from perkey.store.record import Page, Record, Walk, op_of
from perkey.store.transaction import Outcome
from perkey.store.url import Location

KEYS = 50
"""How many keys, and how many records, one commit takes: a document is two of 100 items."""
TOGETHER = 100
"""How many heads one transaction reads."""
LOOKS = 30
PRUNE_EVERY = 16
PRUNED = 25
"""How many old versions one request removes."""
AGE_STEPS = 256
"""How many versions one write may find too old."""


class Head(NamedTuple):
    """What a head's item says."""

    key: Key
    version: int
    op: str
    floor: int
    floor_at: int


class DynamoDBBackend:
    """One connection.  The reader is a second one of the same kind."""

    name = "dynamodb"
    atomic_keys: int | None = KEYS
    commit_records: int | None = KEYS
    several_versions = True
    cheap_turns = False
    guesses = False
    blocking = True
    durability = "written to the disks of several data centres before the call returns"
    time_source = "client"

    def __init__(self, client: Client, limits: Limits, clock: Clock) -> None:
        most = items.ITEM_BYTES - items.AROUND_BYTES
        self.limits = replace(limits, value_bytes=min(limits.value_bytes, most))
        self._client = client
        self._clock = clock
        self._seen: dict[Key, Head] = {}
        """The heads of the last look."""
        self._optimistic = Optimistic(self, self.limits, clock)

    def now_ms(self) -> int:
        return self._client.time.now_ms()

    # ------------------------------------------------------------------------ writing

    def apply(self, batch: Batch) -> list[Outcome]:
        return self._optimistic.apply(batch)

    def look(self, keys: Sequence[Key]) -> tuple[list[Record | None], int]:
        found = self._heads(keys)
        self._seen = {key: _head(item) for key, item in zip(keys, found, strict=True) if item}
        records = [_record(item) if item else None for item in found]
        # Another client's clock may be ahead: time goes on from what it wrote.
        latest = max((record.at for record in records if record is not None), default=0)
        self._client.time.not_before(latest)
        return records, self.now_ms()

    def commit(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> bool:
        actions = self._actions(heads, writes)
        _check_size(actions)
        try:
            if len(actions) == 1 and "Put" in actions[0]:
                self._client.ask("PutItem", actions[0]["Put"], again=False)
            else:
                # The token makes one of a request that arrives twice.
                token = self._clock.token()[-36:]
                self._client.transact("TransactWriteItems", actions, ClientRequestToken=token)
        except Refusal as refusal:
            if refusal.any(REFUSED) and any(_is_one_of(item, writes) for item in refusal.items):
                return True  # what stands there is ours: the request arrived twice
            if refusal.only(REFUSED | CONFLICT):
                return False
            raise self._client.nothing_done(refusal) from refusal
        self._prune(writes)
        return True

    def _actions(self, heads: Mapping[Key, Record | None], writes: Sequence[Record]) -> list[Item]:
        last = {record.key: record for record in writes}
        first = {record.key: record for record in reversed(writes)}
        actions: list[Item] = []
        for key in {*heads, *map(Key, last)}:
            base = heads.get(key)
            asked = {**items.condition(base), "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
            if key in last:
                floor = self._floor(self._seen.get(key) if base else None, first[key], last[key])
                actions.append({"Put": {"Item": items.head(last[key], *floor), **asked}})
            else:
                actions.append({"ConditionCheck": {"Key": items.head_key(key), **asked}})
        kept = (record for record in writes if keeps_history(record.key))
        return actions + [{"Put": {"Item": items.version(record)}} for record in kept]

    def _floor(self, before: Head | None, first: Record, last: Record) -> tuple[int, int]:
        """(the oldest version that history shows once ``last`` is the head, its time)."""
        # A key that comes from another store may begin with any version.
        floor, floor_at = (first.version, 0) if before is None else before[3:]
        least = last.version - self.limits.keep_versions + 1
        if least > floor:
            floor, floor_at = least, 0
        if self.limits.keep_s is None or before is None or not keeps_history(last.key):
            return floor, floor_at
        oldest = last.at - int(self.limits.keep_s * 1000)
        if floor_at >= oldest:
            return floor, floor_at
        for record in self._kept(last.key, floor, min(before.version, floor + AGE_STEPS - 1)):
            if record.at >= oldest:
                return record.version, record.at
            floor = record.version + 1
        return floor, 0

    def _prune(self, writes: Sequence[Record]) -> None:
        """Remove versions below the floor.  Only housekeeping: a later write tries again."""
        for key in {record.key for record in writes if not record.version % PRUNE_EVERY}:
            if not keeps_history(key):
                continue
            with suppress(StoreError, Refusal):
                floor = self._seen[Key(key)].floor if Key(key) in self._seen else 0
                if floor > 1:
                    self._remove(key, floor)

    def _remove(self, key: str, floor: int) -> None:
        old = self._query(items.versions(key), items.numbered(0), items.numbered(floor - 1))
        for item in islice(old, PRUNED):
            self._client.ask("DeleteItem", {"Key": {"p": item["p"], "s": item["s"]}})

    def find_op(self, key: str, version: int) -> str | None:
        return op_of(self.history(key, version - 1, 1), version)

    def forget(self, key: Key) -> None:
        self._ask("DeleteItem", {"Key": items.head_key(key)})

    # ------------------------------------------------------------------------ reading

    def _ask(self, action: str, asked: Item) -> Item:
        try:
            return self._client.ask(action, asked)
        except Refusal as refusal:
            raise self._client.nothing_done(refusal) from refusal

    def read(self, keys: Sequence[Key]) -> list[Record | None]:
        return [_record(item) if item else None for item in self._heads(keys)]

    def _heads(self, keys: Sequence[Key]) -> list[Item | None]:
        """The heads of these keys as of one moment."""
        if not keys:
            return []
        if len(keys) == 1:
            asked = {"Key": items.head_key(keys[0]), "ConsistentRead": True}
            return [self._ask("GetItem", asked).get("Item")]
        found = self._together(keys)
        for _ in range(LOOKS):
            if len(keys) <= TOGETHER:
                return found
            # Several transactions are no single moment: look until two looks agree.
            before, found = found, self._together(keys)
            if before == found:
                return found
        raise Timeout(f"{len(keys)} records kept changing while they were read together")

    def _together(self, keys: Sequence[Key]) -> list[Item | None]:
        found: list[Item | None] = []
        for start in range(0, len(keys), TOGETHER):
            some = keys[start : start + TOGETHER]
            found += self._transaction([{"Get": {"Key": items.head_key(key)}} for key in some])
        return found

    def _transaction(self, actions: Sequence[Item]) -> list[Item | None]:
        attempt = 1
        while True:
            try:
                answer = self._client.transact("TransactGetItems", actions)
                return [each.get("Item") for each in answer["Responses"]]
            except Refusal as refusal:
                if not refusal.only(CONFLICT) or attempt > LOOKS:
                    raise self._client.nothing_done(refusal) from refusal
            # A write to one of them was under way.
            self._clock.sleep(backoff(min(attempt, 4), self.limits, self._clock.random()))
            attempt += 1

    def _query(self, partition: bytes, low: bytes, high: bytes, **more: Any) -> Iterator[Item]:
        """All items of a partition whose sort key is in between, in order."""
        asked: Item = {
            "KeyConditionExpression": "p = :p AND s BETWEEN :low AND :high",
            "ExpressionAttributeValues": {
                ":p": {"B": partition},
                ":low": {"B": low or b"\0"},
                ":high": {"B": high},
            },
            "ConsistentRead": True,
            **more,
        }
        while True:
            answer = self._ask("Query", asked)
            yield from answer["Items"]
            if not answer.get("LastEvaluatedKey"):
                return
            asked["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def _under(self, prefix: str, after: str, **more: Any) -> Iterator[Item]:
        """The heads under ``prefix`` and above ``after``."""
        if after >= prefix and not after.startswith(prefix):
            return
        low = prefix[2:].encode() if after < prefix else after[2:].encode() + b"\0"
        high = prefix[2:].encode() + items.HIGHEST
        yield from self._query(items.space(prefix[0]), low, high, **more)

    def scan(self, prefix: str, after: str, limit: int) -> list[Record]:
        live = self._under(prefix, after, FilterExpression="attribute_not_exists(x)", Limit=limit)
        return [_record(item) for item in islice(live, limit)]

    def walk(self, cursor: str, limit: int) -> Walk:
        found: list[Record] = []
        for letter in string.ascii_lowercase:
            if letter < cursor[:1]:
                continue
            after = cursor if cursor[:1] == letter else ""
            heads = self._under(f"{letter}/", after, Limit=limit)
            found += map(_record, islice(heads, limit - len(found)))
            if len(found) == limit:
                return Walk(found, found[-1].key)
        return Walk(found, "")

    def history(self, key: str, after: int, limit: int) -> list[Record]:
        if not keeps_history(key):
            return []
        return vector.history(key, after, limit, lambda: self._standing(self._heads([Key(key)])[0]))

    def _standing(self, item: Item | None) -> vector.Standing | None:
        if item is None:
            return None
        head = _head(item)
        return vector.Standing(head.key, head.version, head.floor, partial(self._run, head.key))

    def _run(self, key: str, first: int, last: int) -> Iterator[Record]:
        """All of these versions."""
        version = first
        for record in self._kept(key, first, last):
            if record.version != version:
                raise Removed
            version += 1
            yield record
        if version <= last:
            raise Removed

    def _kept(self, key: str, first: int, last: int) -> Iterator[Record]:
        """Those of these versions that are there."""
        if first <= last:
            low, high = items.numbered(first), items.numbered(last)
            yield from map(_record, self._query(items.versions(key), low, high))

    def changes(self, prefix: str, cursor: str, limit: int) -> Page:
        return vector.changes(prefix, cursor, limit, lambda: self._now(prefix))

    def cursor(self, prefix: str) -> str:
        return vector.end(self._now(prefix))

    def _now(self, prefix: str) -> list[vector.Standing]:
        """Where all kept documents under ``prefix`` stand."""
        if not keeps_history(prefix):
            return []
        heads = self._under(prefix, "", ProjectionExpression="p, s, v, o, f, t")
        found = [*map(self._standing, islice(heads, vector.MOST_KEYS + 1))]
        vector.check_size(prefix, len(found), self.name)
        return [at for at in found if at is not None]

    # ------------------------------------------------------------------------ the rest

    def reader(self) -> Backend | None:
        return self._another()

    def _another(self) -> DynamoDBBackend:
        return DynamoDBBackend(self._client.another(), self.limits, self._clock)

    def check(self, create: bool) -> None:
        """Find or make the table, and refuse a server that does not enforce conditions."""
        dynamodb_table.ready(self._client, create, self._clock, self.limits)
        probe(self, self._another, self._clock)

    def describe(self) -> dict[str, str]:
        return dynamodb_table.facts(self._client)

    def concerns(self) -> list[str]:
        return dynamodb_table.concerns(self._client)

    def close(self) -> None:
        self._client.close()


def _head(item: Item) -> Head:
    space = binary(item, "p")[2:3].decode()
    key = Key(f"{space}/{binary(item, 's').decode()}")
    return Head(key, number(item, "v"), item["o"]["S"], number(item, "f"), number(item, "t"))


def _record(item: Item) -> Record:
    return unpack(binary(item, "r"))


def _is_one_of(item: Item, writes: Sequence[Record]) -> bool:
    found = _record(item) if "r" in item else None
    return found is not None and any(
        (found.key, found.version, found.op) == (each.key, each.version, each.op) for each in writes
    )


def _check_size(actions: Sequence[Item]) -> None:
    found = sum(
        items.size(what["Item"]) for each in actions for what in each.values() if "Item" in what
    )
    most = items.COMMIT_BYTES - items.AROUND_BYTES
    if found > most:
        raise LimitExceeded(
            f"DynamoDB commits at most {most} bytes at once, each document counted twice (its "
            f"history is written with it); found {found}",
            limit=most,
            found=found,
        )


def open_backend(location: Location, limits: Limits, clock: Clock) -> Backend:
    """``dynamodb://[key:secret@]table``; without a key, where AWS clients always look."""
    create = location.option("create", ("yes", "no"), "no") == "yes"
    backend = DynamoDBBackend(Client(location, limits, clock), limits, clock)
    return opened(backend, lambda: backend.check(create))
