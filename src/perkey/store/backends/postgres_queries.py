"""PostgreSQL's tables and statements.

Keys, authors and bodies are ``bytea``: ``text`` cannot hold U+0000 and sorts by a collation,
and ``jsonb`` changes numbers, key order and doubles.
"""

from __future__ import annotations

from collections.abc import Sequence

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

FACTS_TABLE = "CREATE TABLE IF NOT EXISTS perkey_facts (schema_version int NOT NULL)"
HAS_FACTS = "SELECT to_regclass('perkey_facts')"
SCHEMA_VERSION = "SELECT schema_version FROM perkey_facts"

NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"

COLUMNS = 'key, version, body, "by", at, op, ops, fence, base'
HEADS = f"SELECT {COLUMNS} FROM perkey_heads WHERE key = ANY(%s::bytea[])"

FIND_OP = "SELECT op FROM perkey_versions WHERE key = %s AND version = %s"
HISTORY = (
    f"SELECT {COLUMNS} FROM perkey_versions WHERE key = %s AND version > %s "
    "ORDER BY version LIMIT %s"
)
SCAN = (
    f"SELECT {COLUMNS} FROM perkey_heads WHERE key >= %(low)s AND key > %(after)s "
    "AND (%(high)s::bytea IS NULL OR key < %(high)s) AND body IS NOT NULL "
    "ORDER BY key LIMIT %(limit)s"
)
WALK = f"SELECT {COLUMNS} FROM perkey_heads WHERE key > %s ORDER BY key LIMIT %s"
# ``ORDER BY xid`` would mean the text if the first column were called that.
# Only what committed before the oldest transaction that still runs: its numbers were handed
# out earlier than some that are visible already, and would be skipped for ever.
CHANGES = f"""
    SELECT gap, place, seq, {COLUMNS} FROM (
        SELECT EXISTS (SELECT 1 FROM perkey_dropped WHERE (xid, seq) > (%(xid)s::xid8, %(seq)s)
            AND key >= %(low)s AND (%(high)s::bytea IS NULL OR key < %(high)s)) AS gap
    ) AS g LEFT JOIN (
        SELECT xid, xid::text AS place, seq, {COLUMNS} FROM perkey_versions
        WHERE (xid, seq) > (%(xid)s::xid8, %(seq)s)
            AND xid < pg_snapshot_xmin(pg_current_snapshot())
            AND key >= %(low)s AND (%(high)s::bytea IS NULL OR key < %(high)s)
        ORDER BY xid, seq LIMIT %(limit)s
    ) AS c ON true ORDER BY xid, seq
"""
"""Whether something after a place is gone, in every row of at least one, and what is there.  One
statement sees one moment: between two, a commit would take away what neither of them tells."""
END = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text"

DESCRIBE = """
    SELECT current_setting('server_version'), current_setting('synchronous_commit'),
           current_setting('fsync'), current_setting('full_page_writes'),
           (SELECT count(*) FROM perkey_heads), (SELECT count(*) FROM perkey_versions)
"""

# The newest in order of commits: no index knows the times.
AHEAD = f"SELECT at - ({NOW}) FROM perkey_versions ORDER BY xid DESC, seq DESC LIMIT 1"
"""How many milliseconds the last version that is kept is dated after now."""


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
