"""Which section a key belongs to.

Keys that are equal get the same section whatever their types: 1, 1.0 and True are one key,
as they are one key of a dict.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from hashlib import blake2b
from typing import Any, Literal

from perkey import errors

HashName = Literal["fast", "fnv1a", "keyed"]
FNV_OFFSET = 0x811C9DC5
FNV_PRIME = 0x01000193


def fnv1a(data: bytes) -> int:
    """32-bit FNV-1a (Fowler, Noll, Vo)."""
    value = FNV_OFFSET
    for byte in data:
        value = (value ^ byte) * FNV_PRIME & 0xFFFFFFFF
    return value


def encode(key: Hashable) -> bytes:
    """The bytes of a key, equal for equal keys; text is its UTF-8."""
    if isinstance(key, str):
        return key.encode("utf-8", "surrogatepass")
    if isinstance(key, bytes):
        return key
    if isinstance(key, float) and key.is_integer():
        key = int(key)
    if isinstance(key, int):
        # Beyond any float: Python limits the digits of what it writes in decimal.
        return b"%d" % key if key.bit_length() <= 1024 else b"%x" % key
    if isinstance(key, float):
        return repr(float(key)).encode()
    if isinstance(key, tuple):
        parts = [encode(part) for part in key]
        return b"(" + b"".join(b"%d:%b" % (len(part), part) for part in parts) + b")"
    raise errors.InvalidKey(
        f"hash='fnv1a' and 'keyed' take text, bytes, numbers and tuples of these, not "
        f"{type(key).__name__}; use hash='fast' or a function of your own"
    )


def section_hash(name: HashName | Callable[[Any], int], secret: bytes) -> Callable[[Any], int]:
    """The hash function behind a name.  ``secret`` is new for every array."""
    if callable(name):
        return name
    if name == "fast":
        salt = int.from_bytes(secret, "big")
        # A tuple's hash mixes: page offsets and snowflake ids have equal low bits.
        return lambda key: hash((salt, key))
    if name == "fnv1a":
        return lambda key: fnv1a(encode(key))
    if name == "keyed":
        return lambda key: int.from_bytes(
            blake2b(encode(key), digest_size=8, key=secret).digest(), "big"
        )
    raise errors.UsageError(f"hash is 'fast', 'fnv1a', 'keyed' or a function, not {name!r}")
