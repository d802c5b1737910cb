"""Answers: JSON with its headers, versions of documents, and compression that keeps the tag."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from perkey.server.calls import JSON, Call
from perkey.server.conditions import GZIP
from perkey.store.record import Record
from perkey.store.views import moment

COMPRESS_FROM = 1024
"""Shorter bodies are not worth compressing, in bytes."""
OFF_THE_LOOP_FROM = 128 * 1024
"""Longer ones are compressed on a thread, in bytes."""
ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
"""Sent with every answer."""
ALWAYS_NAMES = frozenset(name for name, _ in ALWAYS)
_JSON = (b"content-type", JSON.encode())
_NO_STORE = (b"cache-control", b"no-store")
_encode = msgspec.json.encode
_GZIP = re.compile(r"(?:^|,)\s*(?:gzip|\*)\s*(?:;\s*q\s*=\s*([0-9.]+)\s*)?(?=,|$)", re.IGNORECASE)


class Ready(Response):
    """An answer whose headers are bytes already, their names in lower case."""

    def __init__(self, body: bytes, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status_code = status
        self.body = body
        self.background = None
        self.raw_headers = [*headers, (b"content-length", b"%d" % len(body))]


class Version(msgspec.Struct, frozen=True, omit_defaults=True):
    """One version of a document, as JSON."""

    key: str
    version: int
    etag: str
    by: str
    at: str
    """RFC 3339, in UTC."""
    base: int
    """The version its author had read."""
    deleted: bool = False
    value: msgspec.Raw | UnsetType = UNSET
    merged: bool = False
    """It holds what others changed since its author read, too."""


def tag(version: int) -> str:
    """The strong entity tag of a version."""
    return f'"{version}"'


def version_of(record: Record, *, value: bool = False, merged: bool = False) -> Version:
    """What a record says of its version; with its value where it is asked for."""
    return Version(
        key=record.key[2:],
        version=record.version,
        etag=tag(record.version),
        by=record.by,
        at=moment(record.at),
        base=record.base,
        deleted=record.deleted,
        value=msgspec.Raw(record.body) if value and record.body is not None else UNSET,
        merged=merged,
    )


def json_reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in JSON that nobody may cache."""
    lines = [_JSON, _NO_STORE]
    for name, text in headers.items() if headers else ():
        lines.append((name.encode("latin-1"), text.encode("latin-1")))
    return Ready(_encode(value), status, lines)


def facts(record: Record, suffix: str = "") -> dict[str, str]:
    """The headers that come with a document's value."""
    return {
        "etag": f'"{record.version}{suffix}"',
        "cache-control": "private, no-cache",
        "vary": "Accept-Encoding, Authorization",
        "perkey-by": quote(record.by, safe=" /:@+,"),
        "perkey-at": moment(record.at),
        "perkey-base": str(record.base),
    }


async def value_reply(call: Call, record: Record) -> Response:
    """A document's value with its tag; 304 where the caller has it."""
    body = record.body
    assert body is not None
    small = len(body) < COMPRESS_FROM or not accepts_gzip(",".join(call.headers("accept-encoding")))
    suffix = "" if small else GZIP
    if call.condition.unchanged(record.version):
        return Response(status_code=304, headers=facts(record, suffix))
    headers = facts(record, suffix)
    if not small:
        headers["content-encoding"] = "gzip"
        body = await _compressed(body)
    return Response(body, headers=headers, media_type=JSON)


async def _compressed(body: bytes) -> bytes:
    if len(body) < OFF_THE_LOOP_FROM:
        return gzip.compress(body, 1, mtime=0)
    return await asyncio.to_thread(gzip.compress, body, 1, mtime=0)


def accepts_gzip(accepted: str) -> bool:
    """Whether an ``Accept-Encoding`` asks for gzip; a named one wins over ``*``."""
    weights = {m[0].strip(", \t").lower()[:1]: m[1] for m in _GZIP.finditer(accepted)}
    weight = weights.get("g", weights.get("*", "0"))
    try:
        return weight is None or float(weight) > 0
    except ValueError:
        return False
