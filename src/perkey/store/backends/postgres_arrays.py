"""Columns of records as PostgreSQL's own binary arrays.

The client library would look at every element and write most of them out as text, which for a
body of 4 KB costs more than the rest of the call.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

_HEAD = struct.Struct(">5i")
_NONE = struct.pack(">i", -1)
_length = struct.Struct(">i").pack


class Byteas(bytes):
    """An encoded ``bytea[]``."""


class Texts(bytes):
    """An encoded ``text[]``."""


class Bigints(bytes):
    """An encoded ``bigint[]``."""


class _Encoded(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> Any:
        return bytes(obj)


class _Byteas(_Encoded):
    oid = 1001


class _Texts(_Encoded):
    oid = 1009


class _Bigints(_Encoded):
    oid = 1016


def adapt(connection: psycopg.Connection[Any]) -> None:
    """Let ``connection`` send the three."""
    connection.adapters.register_dumper(Byteas, _Byteas)
    connection.adapters.register_dumper(Texts, _Texts)
    connection.adapters.register_dumper(Bigints, _Bigints)


# No loop below runs in Python: a commit has twenty such columns.


def byteas(values: Iterable[bytes | None]) -> Byteas:
    """``bytea[]``; None is NULL."""
    raw = [*values]
    if None not in raw:
        return Byteas(_head(len(raw), 0, 17) + _joined(raw))  # type: ignore[arg-type]  # no None
    parts: list[bytes] = []
    for value in raw:
        parts += (_NONE,) if value is None else (_length(len(value)), value)
    return Byteas(_head(len(raw), 1, 17) + b"".join(parts))


def texts(values: Iterable[str]) -> Texts:
    """``text[]``."""
    raw = [*map(str.encode, values)]
    return Texts(_head(len(raw), 0, 25) + _joined(raw))


def bigints(values: Sequence[int]) -> Bigints:
    """``bigint[]``."""
    count = len(values)
    parts = [8] * (2 * count)
    parts[1::2] = values
    return Bigints(_head(count, 0, 20) + struct.pack(">" + "iq" * count, *parts))


def _joined(values: Sequence[bytes]) -> bytes:
    """Each with its length before it."""
    parts = [b""] * (2 * len(values))
    parts[::2] = map(_length, map(len, values))
    parts[1::2] = values
    return b"".join(parts)


def _head(count: int, nulls: int, element: int) -> bytes:
    """Dimensions (none of an empty array), whether there are NULLs, the element's type, the
    length, and the first index."""
    return (
        _HEAD.pack(1, nulls, element, count, 1) if count else _HEAD.pack(0, 0, element, 0, 0)[:12]
    )
