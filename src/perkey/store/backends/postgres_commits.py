"""What a commit says to PostgreSQL, and what it hears.

There are two ways.  The sure one takes two round trips: lock and read the heads, then write.
The other takes one: it writes on the condition that the heads are still those that this process
remembers.  Whichever it is, the heads of all declared keys are locked in the order of their keys.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from msgspec.structs import astuple
from psycopg.pq.abc import PGresult

from perkey.store.backends.postgres_arrays import bigints, byteas, texts
from perkey.store.backends.postgres_queries import CHANNEL, COLUMNS, EARS
from perkey.store.backends.postgres_wire import Ask
from perkey.store.evaluate import Batch, Unit
from perkey.store.fencing import lease_state
from perkey.store.keys import Key, keeps_history
from perkey.store.record import Record

# Each array makes PostgreSQL plan a commit anew, which takes longer than to run it.  A plan that is
# kept knows no sizes, so it is told what is right for every size: go by the index.
PLAN_ONCE = """
    SELECT set_config('plan_cache_mode', 'force_generic_plan', false),
           set_config('enable_seqscan', 'off', false),
           set_config('enable_hashjoin', 'off', false),
           set_config('enable_mergejoin', 'off', false)
"""

BEGIN: Ask = (b"BEGIN", ())
COMMIT: Ask = (b"COMMIT", ())
ROLLBACK: Ask = (b"ROLLBACK", ())
# In a transaction of its own, after the commit: telling takes a lock on all databases until its
# transaction ends, and this one has nothing to flush.
TELL: Ask = (
    f"SELECT pg_notify('{CHANNEL}', '') WHERE NOT pg_try_advisory_xact_lock({EARS})".encode(),
    (),
)

_FOR_EVER = 1 << 62
_bigint = struct.Struct(">q").pack
_NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"


def _heads(columns: str, patience: str, keys: str) -> str:
    """Lock heads in the order of their keys; the sub-select runs once, before the first lock is
    waited for."""
    return (
        f"SELECT {columns} FROM perkey_heads WHERE key = ANY(CASE WHEN "
        f"(SELECT set_config('lock_timeout', {patience}, true)) <> '' THEN {keys}::bytea[] END) "
        "ORDER BY key FOR UPDATE"
    )


# The time is told after the last lock, in every row of at least one.
LOCKED_HEADS = (
    f"WITH h AS MATERIALIZED ({_heads(COLUMNS, '$1', '$2')}) "
    f"SELECT {_NOW}, h.* FROM (SELECT count(*) FROM h) AS c LEFT JOIN h ON true"
).encode()

# What is there is found before the first lock is waited for, and what came meanwhile is not.
CAME = b"SELECT 1 FROM perkey_heads WHERE key = ANY($1::bytea[]) LIMIT 1"

NEW, MOVED, KEPT = 1, 2, 4
"""What becomes of a record: its key's first head, a head over another one, a version to keep."""


def _write(condition: str, only: str, answer: str) -> bytes:
    """Write the records of eleven columns; ``only`` where the ``condition`` holds.

    No ON CONFLICT: a key that another process made meanwhile must fail the whole commit.
    A transaction may get its number while it waits for a row, so the numbers of a key's versions
    can go down.  A version's place is never before that of the head it follows, which is
    committed; that one is looked up by its number, since "the last one" reads a page of them.
    """
    return f"""
    WITH {condition} r AS MATERIALIZED (
        SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bytea[], $5::bigint[],
            $6::text[], $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[])
            AS r({COLUMNS}, kind, head) {only}
    ), new AS (
        INSERT INTO perkey_heads ({COLUMNS})
        SELECT {COLUMNS} FROM r WHERE kind & {NEW} <> 0 ORDER BY key
    ), moved AS (
        UPDATE perkey_heads AS h SET version = r.version, body = r.body, "by" = r."by",
            at = r.at, op = r.op, ops = r.ops, fence = r.fence, base = r.base
        FROM r WHERE h.key = r.key AND r.kind & {MOVED} <> 0
    ), kept AS (
        INSERT INTO perkey_versions ({COLUMNS}, xid)
        SELECT {COLUMNS}, greatest(pg_current_xact_id(), (SELECT v.xid FROM perkey_versions AS v
            WHERE v.key = r.key AND v.version = r.head))
        FROM r WHERE kind & {KEPT} <> 0
    )
    {answer}
    """.encode()


WRITE = _write("", "", "SELECT")
"""Under the locks of ``LOCKED_HEADS``."""
# Two heads that are alike are the same one: its op and its version name the write that made it.
WRITE_IF = _write(
    f"""h AS MATERIALIZED ({_heads("key, version, op", "$12", "$13")}),
    told AS MATERIALIZED (
        SELECT coalesce(array_agg(h.version) = $14::bigint[] AND array_agg(h.op) = $15::text[],
            cardinality($14::bigint[]) = 0) AND {_NOW} < $16::bigint AS same, {_NOW} AS now
        FROM h
    ),""",
    "WHERE (SELECT same FROM told)",
    "SELECT now, same FROM told",
)
"""Without a look: on the condition that the heads of the keys $13, as far as there are any, have
the versions $14 and the ops $15, and before $16."""

# The update compares what it finds when it has the row, and it tells the time then.
WRITE_ONE = f"""
    WITH moved AS (
        UPDATE perkey_heads SET version = $2::bigint, body = $3::bytea, "by" = $4::bytea,
            at = $5::bigint, op = $6::text, ops = $7::text, fence = $8::bigint, base = $9::bigint
        WHERE key = CASE WHEN (SELECT set_config('lock_timeout', coalesce($10::text,
                current_setting('lock_timeout')), true)) <> '' THEN $1::bytea END
            AND version = $11::bigint AND op = $12::text
        RETURNING {_NOW} AS now
    ), kept AS (
        INSERT INTO perkey_versions ({COLUMNS}, xid)
        SELECT $1::bytea, $2::bigint, $3::bytea, $4::bytea, $5::bigint, $6::text, $7::text,
            $8::bigint, $9::bigint, greatest(pg_current_xact_id(), (
                SELECT v.xid FROM perkey_versions AS v
                WHERE v.key = $1::bytea AND v.version = $11::bigint))
        FROM moved WHERE $13::boolean
    )
    SELECT now, true FROM moved
    """.encode()
"""``WRITE_IF`` for what is done most: one record over the one declared key, which is there.
Without arrays it costs less than three quarters.  Tells nothing where the head differs."""

# A key that is not there cannot be locked either.  Whoever only found it missing holds its place
# until the commit: another process that makes it waits, and meets what was written meanwhile.
UNRESERVE = b"DELETE FROM perkey_heads WHERE key = ANY($1::bytea[]) AND version = 0"


def look(keys: Sequence[Key], patience: bytes) -> Ask:
    """Lock and read the heads of ``keys``, waiting up to ``patience`` milliseconds for each."""
    return LOCKED_HEADS, (patience, byteas(map(str.encode, keys)))


def look_again(heads: Mapping[Key, Record | None]) -> Ask | None:
    """Whether a key that ``look`` found missing is there by now: then there is a row.

    None where all were found, or none: then ``look`` has seen them all at one moment.
    """
    missing = [key for key, head in heads.items() if head is None]
    if len(missing) in (0, len(heads)):
        return None
    return CAME, (byteas(map(str.encode, missing)),)


def write(batch: Batch, unit: Unit, heads: Mapping[Key, Record | None]) -> list[Ask]:
    """Write ``unit`` over ``heads``, which are locked."""
    alone = _alone(unit, heads)
    if alone is not None:
        return [_write_one(*alone, patience=None)]  # as it was when the head was locked
    missing = _missing(batch, unit, heads)
    return [(WRITE, _columns(unit.writes, heads, missing)), *_unreserved(missing)]


def write_if(
    batch: Batch, unit: Unit, heads: Mapping[Key, Record | None], patience: bytes
) -> list[Ask]:
    """Write ``unit`` if ``heads`` are those that are there; ``wrote`` reads the first answer."""
    until = _held_until(batch, unit, heads)
    alone = _alone(unit, heads)
    if alone is not None and until == _FOR_EVER:
        return [_write_one(*alone, patience)]
    missing = _missing(batch, unit, heads)
    keys = sorted(heads)
    there = [head for head in map(heads.__getitem__, keys) if head is not None]
    condition = [
        patience,
        byteas(map(str.encode, keys)),
        bigints([head.version for head in there]),
        texts([head.op for head in there]),
        _bigint(until),
    ]
    columns = _columns(unit.writes, heads, missing)
    return [(WRITE_IF, [*columns, *condition]), *_unreserved(missing)]


def _alone(unit: Unit, heads: Mapping[Key, Record | None]) -> tuple[Record, Record] | None:
    """(the record, the head) where the unit writes one record over the only head."""
    if len(heads) != 1 or len(unit.writes) != 1:
        return None
    (head,), (record,) = heads.values(), unit.writes
    return None if head is None or head.key != record.key else (record, head)


def _write_one(record: Record, head: Record, patience: bytes | None) -> Ask:
    """Write ``record`` over ``head``, which is the only one, if it is the one that is there."""
    key, version, body, by, at, op, ops, fence, base = astuple(record)
    columns = [
        key.encode(),
        _bigint(version),
        body,
        by.encode(),
        _bigint(at),
        op.encode(),
        ops.encode(),
        _bigint(fence),
        _bigint(base),
    ]
    kept = b"\1" if keeps_history(key) else b"\0"
    return WRITE_ONE, [*columns, patience, _bigint(head.version), head.op.encode(), kept]


def _held_until(batch: Batch, unit: Unit, heads: Mapping[Key, Record | None]) -> int:
    """When the first of the leases runs out on which this unit rests, by the server's time.

    It was looked at by a time that is guessed, and a lock may be waited for longer than it lasts.
    """
    until = _FOR_EVER
    for transaction, outcome in zip(batch.transactions, unit.outcomes, strict=True):
        fence = transaction.fence
        if fence is not None and outcome.error is None:
            lease = lease_state(heads[fence.lease])
            if lease is not None and lease.token == fence.token:
                until = min(until, lease.expires)
    return until


def _missing(batch: Batch, unit: Unit, heads: Mapping[Key, Record | None]) -> list[Key]:
    """The keys on whose absence an answer of this unit may rest, and which it does not make."""
    absent = {key for key, head in heads.items() if head is None}
    absent.difference_update([record.key for record in unit.writes])
    if not absent:
        return []
    missing: set[Key] = set()
    for transaction, outcome in zip(batch.transactions, unit.outcomes, strict=True):
        if outcome.writes or len(transaction.keys) > 1:
            missing.update(absent.intersection(transaction.keys))
    return sorted(missing)


def _unreserved(missing: Sequence[Key]) -> list[Ask]:
    return [(UNRESERVE, (byteas(map(str.encode, missing)),))] if missing else []


def _columns(
    writes: Sequence[Record], heads: Mapping[Key, Record | None], missing: Sequence[Key]
) -> list[bytes]:
    """The first parameters of both ways to write: one array a column."""
    last = {record.key: record for record in writes}
    kinds, before = [], []
    for record in writes:
        key = record.key
        head = heads.get(key)  # type: ignore[call-overload]  # its hash is its text's
        kind = KEPT if keeps_history(key) else 0
        if record is last[key]:
            kind += NEW if head is None else MOVED
        kinds.append(kind)
        before.append(0 if head is None else head.version)
    if missing:
        writes = [*writes, *(Record(key, 0, None) for key in missing)]
        kinds += [NEW] * len(missing)
        before += [0] * len(missing)
    keys, versions, bodies, authors, times, ops, earlier, fences, bases = zip(
        *map(astuple, writes), strict=True
    )
    return [
        byteas(map(str.encode, keys)),
        bigints(versions),
        byteas(bodies),
        byteas(map(str.encode, authors)),
        bigints(times),
        texts(ops),
        texts(earlier),
        bigints(fences),
        bigints(bases),
        bigints(kinds),
        bigints(before),
    ]


def wrote(result: PGresult) -> tuple[int | None, bool]:
    """(the store's time if it was told, whether the heads were those that were expected)."""
    if not result.ntuples:
        return None, False
    return _number(result.get_value(0, 0)), result.get_value(0, 1) == b"\1"


def unwritten(ask: Ask, result: PGresult) -> bool:
    """Whether ``write``'s first statement found the head, which was locked, to be another one."""
    return ask[0] == WRITE_ONE and not result.ntuples


def looked(result: PGresult) -> tuple[int, list[Record]]:
    """(the store's time, the heads that are there) that ``look`` found."""
    get = result.get_value
    found: list[Record] = []
    for row in range(result.ntuples):
        key, version, body, by, at, op, ops, fence, base = (get(row, n) for n in range(1, 10))
        if key is not None:
            numbers = _number(version), _number(at), _number(fence), _number(base)
            found.append(
                Record(
                    key.decode(),
                    numbers[0],
                    body,
                    _text(by),
                    numbers[1],
                    _text(op),
                    _text(ops),
                    numbers[2],
                    numbers[3],
                )
            )
    return _number(get(0, 0)), found


def _number(value: bytes | None) -> int:
    assert value is not None
    return int.from_bytes(value, "big", signed=True)


def _text(value: bytes | None) -> str:
    assert value is not None
    return value.decode()
