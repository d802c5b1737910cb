"""Histories and changes of stores without an order of commits over keys.

A cursor is the version seen of each key.  Versions are numbered without a hole from a key's floor
to its head, so whoever meets one that is missing came too late, and looks again.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from itertools import islice
from typing import NamedTuple, TypeVar

from perkey.errors import LimitExceeded, StoreCorrupt, UsageError
from perkey.store.record import Page, Record

T = TypeVar("T")

MOST_KEYS = 1_000
"""How many keys a watched prefix may have: a cursor names each, at 32 characters."""

LOOKS = 1_000
"""How often what retention removed meanwhile is looked for again."""

_START = "seen:"
_ENTRY = struct.Struct(">16sQ")


class Removed(Exception):
    """Retention removed what was about to be read: look again."""


class Standing(NamedTuple):
    """Where a kept document stands."""

    key: str
    version: int
    floor: int
    """The oldest version that history shows."""
    versions: Callable[[int, int], Iterator[Record]]
    """All versions from the first to the last of these numbers; raises ``Removed`` where one is
    gone."""


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
            f"this store ({store}) has no order of commits, so a watcher keeps the version of "
            f"every key: expected at most {MOST_KEYS} keys under {prefix[2:]!r}, found {found}; "
            "watch a longer prefix, or use a postgresql:// or redis:// store",
            limit=MOST_KEYS,
            found=found,
        )


def history(key: str, after: int, limit: int, look: Callable[[], Standing | None]) -> list[Record]:
    """``Backend.history``; ``look`` finds where the document stands."""

    def once() -> list[Record]:
        at = look()
        if at is None:
            return []
        first = max(at.floor, after + 1)
        return [*at.versions(first, min(at.version, first + limit - 1))]

    return _steadily(once, f"versions of {key[2:]!r}")


def changes(prefix: str, cursor: str, limit: int, look: Callable[[], Iterable[Standing]]) -> Page:
    """``Backend.changes``; ``look`` finds where each document under ``prefix`` stands."""
    return _steadily(lambda: _changes(cursor, limit, look()), f"versions under {prefix[2:]!r}")


def _steadily(look: Callable[[], T], what: str) -> T:
    for _ in range(LOOKS):
        try:
            return look()
        except Removed:
            continue
    raise StoreCorrupt(f"{what} that should be kept are missing")


def _changes(cursor: str, limit: int, standings: Iterable[Standing]) -> Page:
    before = read(cursor)
    seen: dict[bytes, int] = {}
    runs: list[Iterator[Record]] = []
    gap = False
    for at in standings:
        named = name(at.key)
        stood = before.get(named, 0)
        gap = gap or stood < at.floor - 1
        seen[named] = max(stood, at.floor - 1)
        if seen[named] < at.version:
            runs.append(at.versions(seen[named] + 1, at.version))
    found = [*islice(merge(*runs, key=lambda record: record.at), limit + 1)]
    cursors: list[str] = []
    for record in found[:limit]:
        seen[name(record.key)] = record.version
        cursors.append(write(seen))
    return Page(found[:limit], cursors, write(seen), gap, live=len(found) <= limit)


def end(standings: Iterable[Standing]) -> str:
    """The cursor behind all of these."""
    return write({name(at.key): at.version for at in standings})
