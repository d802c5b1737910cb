"""Versions beyond the limits, dropped in the trip of the commit that brought them there.

How far to drop is counted from the heads as they are on the server, not from what was written: a
guess that was wrong, or made before the database was put back to a backup, drops nothing too much.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from perkey.store.backends.postgres_arrays import byteas
from perkey.store.backends.postgres_wire import Ask
from perkey.store.keys import keeps_history
from perkey.store.limits import Limits
from perkey.store.record import Record


def _trim(floors: str) -> bytes:
    """Drop each key's versions up to its floor, and note the place of the last one: a watcher that
    has not come so far meets a gap."""
    return f"""
    WITH r AS MATERIALIZED ({floors}), gone AS (
        DELETE FROM perkey_versions AS v USING r WHERE v.key = r.key AND v.version <= r.floor
        RETURNING v.key, v.xid, v.seq
    )
    INSERT INTO perkey_dropped AS d (key, xid, seq)
    SELECT DISTINCT ON (key) key, xid, seq FROM gone ORDER BY key, xid DESC, seq DESC
    ON CONFLICT (key) DO UPDATE SET xid = excluded.xid, seq = excluded.seq
        WHERE (d.xid, d.seq) < (excluded.xid, excluded.seq)
    """.encode()


BY_COUNT = _trim(
    "SELECT key, version - $2::bigint AS floor FROM perkey_heads WHERE key = ANY($1::bytea[])"
)
"""Keys, and how many versions each keeps."""

# Up to the first that is young enough, which is found without a look at those behind it.
BY_AGE = _trim(
    """
        SELECT h.key, (SELECT coalesce(min(v.version), h.version) - 1 FROM perkey_versions AS v
            WHERE v.key = h.key AND v.version <= h.version AND v.at >= $2::bigint) AS floor
        FROM perkey_heads AS h WHERE h.key = ANY($1::bytea[])
    """
)
"""Keys, and the time before which a version is too old; the head always stays."""


def trims(limits: Limits, writes: Sequence[Record]) -> list[Ask]:
    """What follows ``writes`` in their commit, so that no history outgrows ``limits``."""
    keep = limits.keep_versions
    asks: list[Ask] = []
    over = {record.key for record in writes if record.version > keep and keeps_history(record.key)}
    if over:
        asks.append((BY_COUNT, (_keys(over), struct.pack(">q", keep))))
    if limits.keep_s is not None:
        kept = [record for record in writes if keeps_history(record.key)]
        if kept:
            oldest = min(record.at for record in kept) - int(limits.keep_s * 1000)
            keys = {record.key for record in kept}
            asks.append((BY_AGE, (_keys(keys), struct.pack(">q", oldest))))
    return asks


def _keys(names: Iterable[str]) -> bytes:
    return byteas(map(str.encode, sorted(names)))
