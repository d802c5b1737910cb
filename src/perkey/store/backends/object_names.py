"""Keys as object names, and back.  Pure.

A key's head is ``h/<space>/<the rest in base32hex>``: base32hex keeps the order of bytes, so
listings come in key order.  Some servers take 255 bytes between two slashes, so a long key is
its beginning and a digest; those with one beginning stand together, in no order.
"""

from __future__ import annotations

import base64
import hashlib

from perkey.errors import StoreCorrupt
from perkey.store.keys import Key

STEM_BYTES = 115
"""How much of a key its name spells out: a multiple of 5, which base32 turns into 8."""
CUT = "~"
"""Between the beginning of a long key and its digest; above all letters of base32hex."""
_NUMBER = 15
"""Digits of a version in a name."""


def head(key: str) -> str:
    """The name of the object that holds ``key``."""
    raw = key[2:].encode()
    if len(raw) <= STEM_BYTES:
        return f"h/{key[0]}/{_coded(raw)}"
    return f"h/{key[0]}/{_coded(raw[:STEM_BYTES])}{CUT}{_digest(key)}"


def key_of(name: str) -> Key | None:
    """The key whose head this is; None where only the object itself tells."""
    _, space, coded = name.split("/")
    if CUT in coded:
        return None
    try:
        raw = base64.b32hexdecode(coded + "=" * (-len(coded) % 8))
        return Key(f"{space}/{raw.decode()}")
    except ValueError as error:
        raise StoreCorrupt(f"{name!r} is no object of a perkey store") from error


def stem(name: str) -> str:
    """What the names of all long keys with this beginning have in common."""
    return name.partition(CUT)[0]


def under(prefix: str) -> str:
    """What all heads of keys that begin with ``prefix`` begin with, and perhaps some others."""
    raw = prefix[2:].encode()[:STEM_BYTES]
    whole = len(raw) * 8 // 5  # the last letter may also hold bits of what follows
    return f"h/{prefix[0]}/{_coded(raw)[:whole]}"


def behind(after: str) -> str:
    """Every head of a key above ``after`` comes behind this name; so may some others."""
    raw = after[2:].encode()[:STEM_BYTES]
    return f"h/{after[0]}/{_coded(raw)}"


def runs(key: str) -> str:
    """What the names of all old versions of ``key`` begin with."""
    return f"v/{key[0]}/{_digest(key)}/"


def run(key: str, first: int, last: int) -> str:
    """The name of a run of old versions.  The last comes first, so that a listing can begin
    with the run that holds a version."""
    return f"{runs(key)}{last:0{_NUMBER}}-{first:0{_NUMBER}}"


def run_at(key: str, version: int) -> str:
    """All runs that hold ``version`` or later ones come behind this name."""
    return f"{runs(key)}{version - 1:0{_NUMBER}}{CUT}"


def ends(name: str) -> tuple[int, int]:
    """(first, last) version of a run."""
    last, _, first = name.rpartition("/")[2].partition("-")
    return int(first), int(last)


def _coded(raw: bytes) -> str:
    return base64.b32hexencode(raw).decode().rstrip("=")


def _digest(key: str) -> str:
    return base64.b32hexencode(hashlib.sha256(key.encode()).digest()).decode().rstrip("=")
