"""The statements, and how a record becomes their parameters.

Python's ``sqlite3`` asks an adapter about every parameter that is not exactly an int, a
float, a str or a bytearray, at a microsecond each; so keys are made plain texts and bodies
bytearrays.
"""

from __future__ import annotations

from functools import cache

from perkey.store.record import Record

MOST = 256
"""How many keys one statement looks up."""

_HEAD = 'h.key, l.version, l.body, l."by", l.at, l.op, h.ops, l.fence, l.base'
_VERSION = "key, version, body, \"by\", at, op, '', fence, base"
_CELL = 'key, version, body, "by", at, op, ops, fence, base'

LAST_SEQ = "SELECT ifnull(max(seq), 0) FROM log"
PUT_LOG = "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
PUT_HEAD = (
    "INSERT INTO heads (key, seq, ops) VALUES (?, ?, ?) "
    "ON CONFLICT (key) DO UPDATE SET seq = excluded.seq, ops = excluded.ops"
)
PUT_CELL = "INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
RAISE_HIGH = "UPDATE facts SET high = max(high, ?)"

FIRST_VERSION = "SELECT at FROM log WHERE key = ? ORDER BY version LIMIT 1"
LAST_OLD = (
    "SELECT min(l.version, h.version - 1) FROM "
    "(SELECT max(version) AS version FROM log WHERE key = ?1 AND at < ?2) AS l, "
    "(SELECT max(version) AS version FROM log WHERE key = ?1) AS h"
)
LAST_DROPPED = "SELECT max(seq) FROM log WHERE key = ? AND version <= ?"
DROP = "DELETE FROM log WHERE key = ? AND version <= ?"
NOTE_HEAD = "UPDATE heads SET dropped = ? WHERE key = ?"
NOTE_STORE = "UPDATE facts SET dropped = max(dropped, ?)"

FIND_OP = "SELECT op FROM log WHERE key = ? AND version = ?"
HISTORY = f"SELECT {_VERSION} FROM log WHERE key = ? AND version > ? ORDER BY version LIMIT ?"
SCAN_HEADS = (
    f"SELECT {_HEAD} FROM heads AS h JOIN log AS l ON l.seq = h.seq WHERE h.key >= ? "
    "AND h.key > ? AND (?3 IS NULL OR h.key < ?3) AND l.body IS NOT NULL ORDER BY h.key LIMIT ?"
)
SCAN_CELLS = (
    f"SELECT {_CELL} FROM cells WHERE key >= ? AND key > ? AND (?3 IS NULL OR key < ?3) "
    "AND body IS NOT NULL ORDER BY key LIMIT ?"
)
CHANGES = (
    f"SELECT seq, {_VERSION} FROM log WHERE seq > ? AND key >= ? AND (?3 IS NULL OR key < ?3) "
    "ORDER BY seq LIMIT ?"
)
DROPPED = "SELECT dropped FROM facts"
DROPPED_UNDER = (
    "SELECT EXISTS (SELECT 1 FROM heads WHERE key >= ? AND (?2 IS NULL OR key < ?2) "
    "AND dropped > ?)"
)


@cache
def find_heads(count: int) -> str:
    return (
        f"SELECT {_HEAD} FROM heads AS h JOIN log AS l ON l.seq = h.seq WHERE h.key {_among(count)}"
    )


@cache
def find_cells(count: int) -> str:
    return f"SELECT {_CELL} FROM cells WHERE key {_among(count)}"


def _among(count: int) -> str:
    return "= ?" if count == 1 else f"IN ({', '.join('?' * count)})"


def padded(names: list[str]) -> list[str]:
    """Repeat the last name up to a power of two, so that few different statements exist."""
    size = 1 << (len(names) - 1).bit_length()
    return names + names[-1:] * (size - len(names))


def log_row(seq: int, key: str, record: Record) -> tuple[object, ...]:
    return (
        seq,
        key,
        record.version,
        record.at,
        record.fence,
        record.base,
        record.by,
        record.op,
        None if record.body is None else bytearray(record.body),
    )


def cell(record: Record) -> tuple[object, ...]:
    return (
        str(record.key),
        record.version,
        record.at,
        record.fence,
        record.base,
        record.by,
        record.op,
        record.ops,
        None if record.body is None else bytearray(record.body),
    )


def past(prefix: str) -> str | None:
    """The first text above all that begin with ``prefix``; None where there is no such text.

    Order is that of UTF-8 bytes, which is that of code points.
    """
    while prefix:
        last = ord(prefix[-1])
        if last != 0x10FFFF:
            after = 0xE000 if last == 0xD7FF else last + 1
            return prefix[:-1] + chr(after)
        prefix = prefix[:-1]
    return None
