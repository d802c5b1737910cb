"""Receipts: what an idempotent transaction leaves so that it runs once.

The receipt is committed with the change itself, so there is no moment at which one exists
without the other.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any
from zlib import crc32

import msgspec

from perkey.errors import Expired, InvalidValue, KeyReused
from perkey.store import codec
from perkey.store.keys import RECEIPTS, Key, composite
from perkey.store.record import Record
from perkey.store.transaction import Claim, Outcome

FORMAT = "1"
"""The version of the fingerprint's canonical form; it is part of every fingerprint."""


class Receipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of a receipt's record."""

    state: str
    """done | claimed | unknown | expired"""
    fingerprint: str
    fields: dict[str, str] = {}
    result: msgspec.Raw = msgspec.Raw(b"null")
    expires: int | None = None
    """When the result may be dropped, in ms of store time."""
    extra: dict[str, Any] = {}
    """What the external mode adds: token, holder, lease, attempt, reason."""


_decoder = msgspec.json.Decoder(Receipt)
_encoder = msgspec.json.Encoder()
_whole = blake2b(digest_size=16, key=FORMAT.encode())


def receipt_key(scope: str, operation: str, key: str) -> Key:
    """The record's key: scope, operation and the caller's text, length-prefixed."""
    return composite(RECEIPTS, scope or "-", operation or "-", key)


def fingerprint(payload: Any) -> tuple[str, dict[str, str]]:
    """(digest of the whole payload, checksum per top-level field).

    The canonical form is JSON with sorted keys and no spacing: 1, 1.0, true and "1" stay
    four things, key order and spacing do not matter, no Unicode folding takes place.
    BLAKE2b (RFC 7693), 128 bits, over the form's version and the JSON.  A field's CRC-32 only
    serves to name it where the digests differ.
    """
    digest = _whole.copy()
    digest.update(codec.checked_canonical(payload))
    fields = {}
    if type(payload) is dict:
        fields = {name: f"{crc32(codec.canonical(each)):08x}" for name, each in payload.items()}
    return f"{FORMAT}:{digest.hexdigest()}", fields


def claim(scope: str, operation: str, key: str, payload: Any, keep: float | None) -> Claim:
    """What makes ``operation`` run once for ``key``; ``keep`` seconds its answer is replayed."""
    digest, fields = fingerprint(payload)
    expires = None if keep is None else int(keep * 1000)
    return Claim(receipt_key(scope, operation, key), digest, fields, expires)


def read(record: Record | None) -> Receipt | None:
    """The receipt that a record holds, or None."""
    if record is None or record.body is None:
        return None
    return _decoder.decode(record.body)


def encoded(receipt: Receipt) -> bytes:
    """The value to store for ``receipt``."""
    return _encoder.encode(receipt)


def check_same(claim: Claim, found: Receipt) -> None:
    """Raise ``KeyReused`` when the key came with another payload; names fields, never values."""
    if found.fingerprint == claim.fingerprint:
        return
    names = sorted(
        name
        for name in {*claim.fields, *found.fields}
        if claim.fields.get(name) != found.fields.get(name)
    )
    where = f" (it differs in {', '.join(map(repr, names[:8]))})" if names else ""
    raise KeyReused(
        f"this idempotency key was already used with another payload{where}; "
        "use a new key for a new operation",
        fields=names,
    )


def replay(claim: Claim, record: Record | None, now: int) -> Outcome | None:
    """The stored outcome for this key, or None where the operation has not run yet."""
    found = read(record)
    if found is None:
        return None
    check_same(claim, found)
    if found.state == "expired" or (found.expires is not None and now >= found.expires):
        raise Expired(
            "this operation was done before, and its stored result has expired; "
            "it is not run a second time"
        )
    return Outcome(result=codec.decode(bytes(found.result)), replayed=True)


def body(claim: Claim, result: Any, now: int) -> bytes:
    """The receipt of a transaction that is about to commit with ``result``."""
    try:
        raw = codec.encode(result)
    except InvalidValue as error:
        raise InvalidValue(
            f"the result of an idempotent transaction is stored, so it must be JSON: {error}"
        ) from error
    expires = None if claim.expires is None else now + claim.expires
    return encoded(
        Receipt("done", claim.fingerprint, claim.fields, msgspec.Raw(raw), expires=expires)
    )
