"""The few messages of etcd's gRPC interface that a store needs, as bytes and back.

Protocol Buffers by hand: a message is fields of a number, a wire type and a value, and these
eight messages use two wire types.  No generated module has to be registered, so nothing
collides with another etcd client in the same process.  Field numbers are those of etcd's
``rpc.proto`` and ``kv.proto``; they never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from perkey.errors import StoreCorrupt

RANGE = "/etcdserverpb.KV/Range"
TXN = "/etcdserverpb.KV/Txn"
DELETE = "/etcdserverpb.KV/DeleteRange"
COMPACT = "/etcdserverpb.KV/Compact"
STATUS = "/etcdserverpb.Maintenance/Status"
AUTHENTICATE = "/etcdserverpb.Auth/Authenticate"

_VARINT, _BYTES = 0, 2
_MOD = 2
"""``Compare.target``: the revision of the last change."""


class Stored(NamedTuple):
    """A key and its value as the server has them."""

    key: bytes
    value: bytes
    mod: int
    """The revision of the commit that wrote it last."""


class Found(NamedTuple):
    """The answer to a range request."""

    revision: int
    """The store's revision when it was answered; 0 inside a transaction, which has its own."""
    stored: list[Stored]
    more: bool


class Status(NamedTuple):
    """What a member says of itself."""

    version: str
    size: int
    """Bytes of its database file."""
    alarms: list[str]


# ------------------------------------------------------------------------------- requests


def range_request(
    start: bytes,
    end: bytes = b"",
    *,
    limit: int = 0,
    revision: int = 0,
    keys_only: bool = False,
    after: int = 0,
) -> bytes:
    """Keys from ``start`` up to below ``end``, in order of bytes; without ``end`` that one key.

    ``revision`` reads as of then; ``after`` leaves out what was last written up to that one.
    """
    fields = _text(1, start) + _text(2, end) + _number(3, limit) + _number(4, revision)
    return fields + _number(8, keys_only) + _number(10, after and after + 1)


def put_request(key: bytes, value: bytes) -> bytes:
    """Write ``value`` at ``key``."""
    return _text(1, key) + _text(2, value)


def delete_request(start: bytes, end: bytes = b"") -> bytes:
    """Remove the keys from ``start`` up to below ``end``; without ``end`` that one key."""
    return _text(1, start) + _text(2, end)


def unchanged(key: bytes, mod: int) -> bytes:
    """The condition that ``key`` was last written by that revision; 0: that it is not there."""
    return _number(2, _MOD) + _text(3, key) + _field(6, _VARINT) + _varint(mod)


def reads(ranges: Iterable[bytes]) -> bytes:
    """A transaction of range requests: their answers are of one moment."""
    return b"".join(_text(2, _text(1, each)) for each in ranges)


def writes(conditions: Iterable[bytes], deletes: Iterable[bytes], puts: Iterable[bytes]) -> bytes:
    """A transaction that writes if all conditions hold."""
    parts = [_text(1, each) for each in conditions]
    parts += [_text(2, _text(3, each)) for each in deletes]
    parts += [_text(2, _text(2, each)) for each in puts]
    return b"".join(parts)


def compact_request(revision: int) -> bytes:
    """Drop what was overwritten before ``revision``."""
    return _number(1, revision) + _number(2, 1)


def authenticate_request(user: str, password: str) -> bytes:
    """Ask for a token."""
    return _text(1, user.encode()) + _text(2, password.encode())


# -------------------------------------------------------------------------------- answers


def found(data: bytes) -> Found:
    """The answer to ``range_request``."""
    revision, stored, more = 0, [], False
    for number, value in _fields(data):
        if number == 1:
            revision = _revision(_bytes(value))
        elif number == 2:
            stored.append(_stored(_bytes(value)))
        elif number == 3:
            more = bool(value)
    return Found(revision, stored, more)


def txn_answer(data: bytes) -> tuple[int, bool, list[Found]]:
    """(revision, whether the conditions held, the answers of its range requests)."""
    revision, held, answers = 0, False, []
    for number, value in _fields(data):
        if number == 1:
            revision = _revision(_bytes(value))
        elif number == 2:
            held = bool(value)
        elif number == 3:
            answers += [found(_bytes(inner)) for kind, inner in _fields(_bytes(value)) if kind == 1]
    return revision, held, answers


def status(data: bytes) -> Status:
    """The answer to ``STATUS``, whose request is empty."""
    version, size, alarms = "unknown", 0, []
    for number, value in _fields(data):
        if number == 2:
            version = _words(value)
        elif number == 3:
            size = int(value)
        elif number == 8:
            alarms.append(_words(value))
    return Status(version, size, alarms)


def token(data: bytes) -> str:
    """The answer to ``AUTHENTICATE``."""
    return next((_words(value) for number, value in _fields(data) if number == 2), "")


def _revision(header: bytes) -> int:
    return next((int(value) for number, value in _fields(header) if number == 3), 0)


def _stored(data: bytes) -> Stored:
    key, content, mod = b"", b"", 0
    for number, value in _fields(data):
        if number == 1:
            key = _bytes(value)
        elif number == 3:
            mod = int(value)
        elif number == 5:
            content = _bytes(value)
    return Stored(key, content, mod)


# ---------------------------------------------------------------------------- wire format


def _text(number: int, value: bytes) -> bytes:
    """A field of bytes; nothing where they are none, which is how the format says so."""
    return _field(number, _BYTES) + _varint(len(value)) + value if value else b""


def _number(number: int, value: int) -> bytes:
    return _field(number, _VARINT) + _varint(value) if value else b""


def _field(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(value: int) -> bytes:
    if value < 0x80:
        return b"%c" % value
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field, in order."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _read_varint(data, at)
        value, at = _read_varint(data, at)
        if tag & 7 == _BYTES:
            if at + value > end:
                raise StoreCorrupt("an answer of etcd ends in the middle of a field")
            yield tag >> 3, data[at : at + value]
            at += value
        elif tag & 7 == _VARINT:
            yield tag >> 3, value
        else:
            raise StoreCorrupt(f"an answer of etcd has a field of wire type {tag & 7}")


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while (byte := data[at]) >= 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            at += 1
    except IndexError:
        raise StoreCorrupt("an answer of etcd ends in the middle of a number") from None
    return value | byte << shift, at + 1


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise StoreCorrupt("an answer of etcd has a number where bytes are expected")
    return value


def _words(value: int | bytes) -> str:
    return _bytes(value).decode("utf-8", "replace")
