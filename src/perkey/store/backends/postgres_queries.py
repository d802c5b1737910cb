"""PostgreSQL's tables and statements.

Keys, authors and bodies are ``bytea``: ``text`` cannot hold U+0000 and sorts by a collation,
and ``jsonb`` changes numbers, key order and doubles.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg.pq.abc import PGresult

from perkey.store.backends.postgres_arrays import bigints, byteas, texts
from perkey.store.record import Record

LOCK_ID = 0x7065726B6579
"""The advisory lock under which the schema is made and migrated."""

STEPS = (
    """
    CREATE TABLE perkey_heads (
        key bytea PRIMARY KEY, version bigint NOT NULL, body bytea, "by" bytea NOT NULL,
        at bigint NOT NULL, op text NOT NULL, ops text NOT NULL, fence bigint NOT NULL,
        base bigint NOT NULL
    ) WITH (fillfactor = 80);
    CREATE TABLE perkey_versions (
        key bytea NOT NULL, version bigint NOT NULL, body bytea, "by" bytea NOT NULL,
        at bigint NOT NULL, op text NOT NULL, ops text NOT NULL, fence bigint NOT NULL,
        base bigint NOT NULL,
        seq bigint GENERATED ALWAYS AS IDENTITY, xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
        PRIMARY KEY (key, version)
    );
    CREATE INDEX perkey_versions_order ON perkey_versions (xid, seq);
    CREATE TABLE perkey_dropped (key bytea PRIMARY KEY, xid xid8 NOT NULL, seq bigint NOT NULL);
    """,
)
"""One step a schema version, from an empty database to today's."""

CHANNEL = "perkey"
EARS = LOCK_ID + 1
"""The advisory lock that listeners share.  A commit that cannot have it tells them."""
LISTEN = f"LISTEN {CHANNEL}"
ATTEND = f"SELECT pg_advisory_lock_shared({EARS})"
# In a transaction of its own, after the commit: telling takes a lock on all databases until its
# transaction ends, and this one has nothing to flush.
TELL = f"SELECT pg_notify('{CHANNEL}', '') WHERE NOT pg_try_advisory_xact_lock({EARS})".encode()

FACTS_TABLE = "CREATE TABLE IF NOT EXISTS perkey_facts (schema_version int NOT NULL)"
HAS_FACTS = "SELECT to_regclass('perkey_facts')"
SCHEMA_VERSION = "SELECT schema_version FROM perkey_facts"

NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"

_COLUMNS = 'key, version, body, "by", at, op, ops, fence, base'
HEADS = f"SELECT {_COLUMNS} FROM perkey_heads WHERE key = ANY(%s::bytea[])"
# The sub-select runs once, before the first lock is waited for; the time is told after the last
# lock, in every row of at least one.
LOCKED_HEADS = (
    f"WITH h AS MATERIALIZED (SELECT {_COLUMNS} FROM perkey_heads WHERE key = ANY(CASE WHEN "
    "(SELECT set_config('lock_timeout', $1, true)) <> '' THEN $2::bytea[] END) "
    "ORDER BY key FOR UPDATE) "
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, h.* "
    "FROM (SELECT count(*) FROM h) AS c LEFT JOIN h ON true"
).encode()

# Each array makes PostgreSQL plan a commit anew, which takes longer than to run it.  A plan that is
# kept knows no sizes, so it is told what is right for every size: go by the index.
PLAN_ONCE = """
    SELECT set_config('plan_cache_mode', 'force_generic_plan', false),
           set_config('enable_seqscan', 'off', false),
           set_config('enable_hashjoin', 'off', false),
           set_config('enable_mergejoin', 'off', false)
"""

BEGIN, COMMIT = b"BEGIN", b"COMMIT"

NEW, MOVED, KEPT = 1, 2, 4
"""What becomes of a record: its key's first head, a head over another one, a version to keep."""
# No ON CONFLICT: a key that another process made meanwhile must fail the whole commit.
# A transaction may get its number while it waits for a row, so the numbers of a key's versions
# can go down.  A version's place is never before that of the one under it, which is committed.
WRITE = f"""
    WITH r AS MATERIALIZED (
        SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bytea[], $5::bigint[],
            $6::text[], $7::text[], $8::bigint[], $9::bigint[], $10::bigint[])
            AS r({_COLUMNS}, kind)
    ), new AS (
        INSERT INTO perkey_heads ({_COLUMNS}) SELECT {_COLUMNS} FROM r WHERE kind & {NEW} <> 0
    ), moved AS (
        UPDATE perkey_heads AS h SET version = r.version, body = r.body, "by" = r."by",
            at = r.at, op = r.op, ops = r.ops, fence = r.fence, base = r.base
        FROM r WHERE h.key = r.key AND r.kind & {MOVED} <> 0
    )
    INSERT INTO perkey_versions ({_COLUMNS}, xid)
    SELECT {_COLUMNS}, greatest(pg_current_xact_id(), (SELECT v.xid FROM perkey_versions AS v
        WHERE v.key = r.key ORDER BY v.version DESC LIMIT 1))
    FROM r WHERE kind & {KEPT} <> 0
""".encode()

NOTE_DROPPED = """
    INSERT INTO perkey_dropped (key, xid, seq)
    SELECT key, xid, seq FROM perkey_versions WHERE key = %(key)s AND version <= %(floor)s
    ORDER BY xid DESC, seq DESC LIMIT 1
    ON CONFLICT (key) DO UPDATE SET xid = excluded.xid, seq = excluded.seq
"""
DROP = "DELETE FROM perkey_versions WHERE key = %(key)s AND version <= %(floor)s"
LAST_OLD = """
    SELECT least(max(version), (SELECT max(version) - 1 FROM perkey_versions WHERE key = %(key)s))
    FROM perkey_versions WHERE key = %(key)s AND at < %(oldest)s
"""

FIND_OP = "SELECT op FROM perkey_versions WHERE key = %s AND version = %s"
HISTORY = (
    f"SELECT {_COLUMNS} FROM perkey_versions WHERE key = %s AND version > %s "
    "ORDER BY version LIMIT %s"
)
SCAN = (
    f"SELECT {_COLUMNS} FROM perkey_heads WHERE key >= %(low)s AND key > %(after)s "
    "AND (%(high)s::bytea IS NULL OR key < %(high)s) AND body IS NOT NULL "
    "ORDER BY key LIMIT %(limit)s"
)
WALK = f"SELECT {_COLUMNS} FROM perkey_heads WHERE key > %s ORDER BY key LIMIT %s"
# ``ORDER BY xid`` would mean the text if the first column were called that.
# Only what committed before the oldest transaction that still runs: its numbers were handed
# out earlier than some that are visible already, and would be skipped for ever.
CHANGES = (
    f"SELECT xid::text AS place, seq, {_COLUMNS} FROM perkey_versions "
    "WHERE (xid, seq) > (%(xid)s::xid8, %(seq)s) "
    "AND xid < pg_snapshot_xmin(pg_current_snapshot()) "
    "AND key >= %(low)s AND (%(high)s::bytea IS NULL OR key < %(high)s) "
    "ORDER BY xid, seq LIMIT %(limit)s"
)
GAP = (
    "SELECT EXISTS (SELECT 1 FROM perkey_dropped WHERE (xid, seq) > (%(xid)s::xid8, %(seq)s) "
    "AND key >= %(low)s AND (%(high)s::bytea IS NULL OR key < %(high)s))"
)
END = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text"

DESCRIBE = """
    SELECT current_setting('server_version'), current_setting('synchronous_commit'),
           current_setting('fsync'), current_setting('full_page_writes'),
           (SELECT count(*) FROM perkey_heads), (SELECT count(*) FROM perkey_versions)
"""


def columns(records: Sequence[Record], kinds: Sequence[int]) -> list[bytes]:
    """The parameters of ``WRITE``: one array a column."""
    return [
        byteas(record.key.encode() for record in records),
        bigints(record.version for record in records),
        byteas(record.body for record in records),
        byteas(record.by.encode() for record in records),
        bigints(record.at for record in records),
        texts(record.op for record in records),
        texts(record.ops for record in records),
        bigints(record.fence for record in records),
        bigints(record.base for record in records),
        bigints(kinds),
    ]


def locked(result: PGresult) -> tuple[int, list[Record]]:
    """(the store's time, the heads) that ``LOCKED_HEADS`` answered."""
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


def record(row: Sequence[object]) -> Record:
    """The record that a row holds."""
    key, version, body, by, at, op, ops, fence, base = row
    return Record(
        _bytes(key).decode(),
        int(str(version)),
        None if body is None else _bytes(body),
        _bytes(by).decode(),
        int(str(at)),
        str(op),
        str(ops),
        int(str(fence)),
        int(str(base)),
    )


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes | bytearray | memoryview)
    return bytes(value)


def past(prefix: bytes) -> bytes | None:
    """The first key above all that begin with ``prefix``; None where there is none."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None
