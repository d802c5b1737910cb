"""Columns of records as PostgreSQL's own binary arrays.

The client library would look at every element and write most of them out as text, which for a
body of 4 KB costs more than the rest of the call.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

_HEAD = struct.Struct(">5i")
_NONE = struct.pack(">i", -1)
_length = struct.Struct(">i").pack
_bigint = struct.Struct(">iq").pack


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


def byteas(values: Iterable[bytes | None]) -> Byteas:
    """``bytea[]``; None is NULL."""
    parts: list[bytes] = []
    count = nulls = 0
    for value in values:
        count += 1
        if value is None:
            nulls = 1
            parts.append(_NONE)
        else:
            parts += (_length(len(value)), value)
    return Byteas(_head(count, nulls, 17) + b"".join(parts))


def texts(values: Iterable[str]) -> Texts:
    """``text[]``."""
    raw = [value.encode() for value in values]
    body = b"".join(part for value in raw for part in (_length(len(value)), value))
    return Texts(_head(len(raw), 0, 25) + body)


def bigints(values: Iterable[int]) -> Bigints:
    """``bigint[]``."""
    parts = [_bigint(8, value) for value in values]
    return Bigints(_head(len(parts), 0, 20) + b"".join(parts))


def _head(count: int, nulls: int, element: int) -> bytes:
    """Dimensions (none of an empty array), whether there are NULLs, the element's type, the
    length, and the first index."""
    return (
        _HEAD.pack(1, nulls, element, count, 1) if count else _HEAD.pack(0, 0, element, 0, 0)[:12]
    )
