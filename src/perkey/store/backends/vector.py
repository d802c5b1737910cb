"""A change cursor for stores without an order of commits: the version seen of each key."""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Mapping

from perkey.errors import LimitExceeded, UsageError

MOST_KEYS = 1_000
"""How many keys a watched prefix may have: a cursor names each, at 32 characters."""

_START = "seen:"
_ENTRY = struct.Struct(">16sQ")


def name(key: str) -> bytes:
    """How a cursor names a key: 128 bits of its digest."""
    return hashlib.sha256(key.encode()).digest()[:16]


def write(seen: Mapping[bytes, int]) -> str:
    """A cursor that says how far each key was read."""
    packed = b"".join(_ENTRY.pack(*entry) for entry in sorted(seen.items()))
    return _START + base64.urlsafe_b64encode(packed).decode()


def read(cursor: str) -> dict[bytes, int]:
    """What ``write`` was given; ``""`` has seen nothing."""
    if not cursor:
        return {}
    try:
        if not cursor.startswith(_START):
            raise ValueError
        raw = cursor[len(_START) :].encode("ascii")
        packed = base64.b64decode(raw, altchars=b"-_", validate=True)
        return dict(_ENTRY.iter_unpack(packed))
    except (ValueError, binascii.Error, struct.error):
        raise UsageError(f"expected a cursor of this store, found {cursor!r:.60}") from None


def check_size(prefix: str, found: int, store: str) -> None:
    """Refuse to watch a prefix with too many keys."""
    if found > MOST_KEYS:
        raise LimitExceeded(
            f"a {store} store has no order of commits, so a watcher keeps the version of every "
            f"key: expected at most {MOST_KEYS} keys under {prefix[2:]!r}, found {found}; watch "
            "a longer prefix, or use a postgresql:// or redis:// store",
            limit=MOST_KEYS,
            found=found,
        )
