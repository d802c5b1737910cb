"""Keys as NATS subjects, and back.

A subject is the stream's name, the key's space, and the rest of the key cut behind each of its
first slashes, each piece in base32hex, which keeps the order of bytes: so everything under
``orders/2024/`` has one wildcard.
"""

from __future__ import annotations

import base64

from perkey.errors import InvalidKey, StoreCorrupt
from perkey.store.keys import Key

CUTS = 7
"""Behind how many slashes a key is cut."""
EMPTY = "-"
SUBJECT_BYTES = 3_500
"""A server reads control lines of 4 096 bytes; the rest is for the reply's subject and sizes."""


def subject(stream: str, key: str) -> str:
    """Where the versions of ``key`` are."""
    *whole, last = key[2:].split("/", CUTS)
    pieces = [*(_coded(f"{piece}/") for piece in whole), _coded(last) if last else EMPTY]
    name = ".".join([stream, key[0], *pieces])
    if len(name) > SUBJECT_BYTES:
        raise InvalidKey(
            f"a NATS store takes keys up to {SUBJECT_BYTES * 5 // 8} bytes in all their parts, "
            f"found {len(key.encode())}"
        )
    return name


def under(stream: str, prefix: str) -> str:
    """A wildcard for all keys that begin with ``prefix``, and perhaps some others."""
    if len(prefix) < 2:
        return f"{stream}.>"
    whole = prefix[2:].split("/", CUTS)[:-1]
    return ".".join([stream, prefix[0], *(_coded(f"{piece}/") for piece in whole), ">"])


def key_of(name: str) -> Key:
    """The key whose subject this is."""
    _, space, *pieces = name.split(".")
    try:
        return Key(f"{space}/" + "".join(map(_decoded, pieces)))
    except ValueError as error:
        raise StoreCorrupt(f"{name!r} is no subject of a perkey store") from error


def _coded(piece: str) -> str:
    return base64.b32hexencode(piece.encode()).decode().rstrip("=")


def _decoded(piece: str) -> str:
    if piece == EMPTY:
        return ""
    return base64.b32hexdecode(piece + "=" * (-len(piece) % 8)).decode()
