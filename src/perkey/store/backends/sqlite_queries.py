"""The statements, and how a record becomes their parameters.

Python's ``sqlite3`` asks an adapter about every parameter that is not exactly an int, a
float, a str or a bytearray, at a microsecond each; so keys are made plain texts and bodies
bytearrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from perkey.store.record import Record

MOST = 256
"""How many keys one statement looks up."""
ROWS = 64
"""How many rows one statement writes."""
FEW = 8
"""So many rows, or fewer, have a statement of their own."""
ROOM = 128
"""What is written again is padded to a multiple of so many bytes, so that it keeps its size."""

_SPACES = b" " * ROOM
_SPACE = 0x20

_VERSION = 'l.key, l.version, l.body, l."by", l.at, l.op, l.ops, l.fence, l.base'
_CELL = 'key, version, body, "by", at, op, ops, fence, base'
_HEADS = f"SELECT {_VERSION} FROM names AS n CROSS JOIN versions AS l ON l.seq = n.last"

_COLUMNS = '(key, version, at, fence, base, "by", op, ops, body)'
PUT_VERSION = f"INSERT INTO versions {_COLUMNS}"
PUT_NAME = "INSERT INTO names (key, last)"
MOVE_NAME = " ON CONFLICT (key) DO UPDATE SET last = excluded.last"
NEW_CELL = f"INSERT INTO cells {_COLUMNS}"
# Not REPLACE, which deletes and inserts: a row that keeps its size is written over in place.
MOVE_CELL = (
    " ON CONFLICT (key) DO UPDATE SET version = excluded.version, at = excluded.at, "
    'fence = excluded.fence, base = excluded.base, "by" = excluded."by", op = excluded.op, '
    "ops = excluded.ops, body = excluded.body"
)
DATA_VERSION = "PRAGMA data_version"
RAISE_HIGH = "UPDATE facts SET high = max(high, ?)"

# The newest versions, those above ``filed``, are not in ``places`` yet.
_UNFILED = "l.seq > (SELECT filed FROM facts) AND l.key = ?1"
FILED = "SELECT filed FROM facts"
FILE = (
    "INSERT INTO places (key, version, seq) "
    "SELECT key, version, seq FROM versions WHERE seq > ? ORDER BY key, version"
)
NOTE_FILED = "UPDATE facts SET filed = (SELECT max(seq) FROM versions)"

FIRST_AT = (
    "SELECT l.at FROM versions AS l WHERE l.seq = ifnull("
    "(SELECT seq FROM places WHERE key = ?1 ORDER BY version LIMIT 1), "
    f"(SELECT min(l.seq) FROM versions AS l WHERE {_UNFILED}))"
)
# The next four see what is filed: whoever drops versions files them all before.
LAST_OLD = (
    "SELECT min(l.version, h.version - 1) FROM "
    "(SELECT max(p.version) AS version FROM places AS p JOIN versions AS v ON v.seq = p.seq "
    "WHERE p.key = ?1 AND v.at < ?2) AS l, "
    "(SELECT max(version) AS version FROM places WHERE key = ?1) AS h"
)
LAST_DROPPED = "SELECT max(seq) FROM places WHERE key = ? AND version <= ?"
DROP = "DELETE FROM versions WHERE seq IN (SELECT seq FROM places WHERE key = ? AND version <= ?)"
DROP_PLACES = "DELETE FROM places WHERE key = ? AND version <= ?"
NOTE_NAME = "UPDATE names SET dropped = ? WHERE key = ?"
NOTE_STORE = "UPDATE facts SET dropped = max(dropped, ?)"

FIND_OP = (
    "SELECT op FROM versions WHERE seq = ifnull("
    "(SELECT seq FROM places WHERE key = ?1 AND version = ?2), "
    f"(SELECT l.seq FROM versions AS l WHERE {_UNFILED} AND l.version = ?2))"
)
HISTORY = (
    f"SELECT {_VERSION} FROM places AS p CROSS JOIN versions AS l ON l.seq = p.seq "
    "WHERE p.key = ? AND p.version > ? ORDER BY p.version LIMIT ?"
)
NEWEST = (
    f"SELECT {_VERSION} FROM versions AS l WHERE {_UNFILED} AND l.version > ?2 "
    "ORDER BY l.seq LIMIT ?3"
)
SCAN_LOG = (
    f"{_HEADS} WHERE n.key >= ? AND n.key > ? AND (?3 IS NULL OR n.key < ?3) "
    "AND l.body IS NOT NULL ORDER BY n.key LIMIT ?"
)
SCAN_CELLS = (
    f"SELECT {_CELL} FROM cells WHERE key >= ? AND key > ? AND (?3 IS NULL OR key < ?3) "
    "AND body IS NOT NULL ORDER BY key LIMIT ?"
)
WALK_LOG = f"{_HEADS} WHERE n.key > ? ORDER BY n.key LIMIT ?"
WALK_CELLS = f"SELECT {_CELL} FROM cells WHERE key > ? ORDER BY key LIMIT ?"
CHANGES = (
    f"SELECT l.seq, {_VERSION} FROM versions AS l WHERE l.seq > ? AND l.key >= ? "
    "AND (?3 IS NULL OR l.key < ?3) ORDER BY l.seq LIMIT ?"
)
COUNTS = (
    "SELECT (SELECT count(*) FROM names) + (SELECT count(*) FROM cells), "
    "(SELECT count(*) FROM versions)"
)
LAST_SEQ = "SELECT ifnull(max(seq), 0) FROM versions"
DROPPED = "SELECT dropped FROM facts"
DROPPED_UNDER = (
    "SELECT EXISTS (SELECT 1 FROM names WHERE key >= ? AND (?2 IS NULL OR key < ?2) "
    "AND dropped > ?)"
)


@cache
def find_heads(count: int) -> str:
    """The current versions of ``count`` keys that keep their versions."""
    return f"{_HEADS} WHERE n.key {_among(count)}"


@cache
def find_cells(count: int) -> str:
    """The current versions of ``count`` other keys."""
    return f"SELECT {_CELL} FROM cells WHERE key {_among(count)}"


def _among(count: int) -> str:
    return "= ?" if count == 1 else f"IN ({', '.join('?' * count)})"


def padded(names: list[str]) -> list[str]:
    """Repeat the last name up to a power of two, so that few different statements exist."""
    size = 1 << (len(names) - 1).bit_length()
    return names + names[-1:] * (size - len(names))


@cache
def insert(head: str, columns: int, rows: int, tail: str = "") -> str:
    """A statement that writes ``rows`` rows: one call, and one turn of Python's lock, for all."""
    values = f"({', '.join('?' * columns)})"
    return f"{head} VALUES {', '.join([values] * rows)}{tail}"


def shares(count: int) -> Iterator[int]:
    """``count`` in pieces of ``ROWS``, powers of two below, and what is left when that is few:
    most commits take one statement, and not many different ones exist."""
    size = ROWS
    while count > FEW:
        while size > count:
            size >>= 1
        yield size
        count -= size
    if count:
        yield count


def rows(records: Sequence[Record], room: int = 1) -> list[object]:
    """The nine columns of each record, one behind the other.

    With ``room`` spaces stand behind a body until the row is a multiple of so many bytes long:
    JSON ignores them, and ``trimmed`` takes them away.
    """
    found: list[object] = []
    for record in records:
        body: bytearray | None = None
        if record.body is not None:
            body = bytearray(record.body)
            if room > 1:
                size = len(body) + len(record.by) + len(record.op) + len(record.ops)
                body += _SPACES[: -size % room]
        found += (
            str(record.key),
            record.version,
            record.at,
            record.fence,
            record.base,
            record.by,
            record.op,
            record.ops,
            body,
        )
    return found


def trimmed(fields: tuple[Any, ...]) -> Record:
    """The record of a row of ``find_cells``."""
    body = fields[2]
    if body and body[-1] == _SPACE:
        key, version, _, *rest = fields
        return Record(key, version, body.rstrip(b" "), *rest)
    return Record(*fields)


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
