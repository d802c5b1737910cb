"""What an ``http://`` store and its server say to each other: MessagePack of these types."""

from __future__ import annotations

from typing import Any

import msgspec

from perkey.store.keys import Key
from perkey.store.record import Record

MEDIA = "application/vnd.msgpack"
PATH = "/v1/store"
MOST = 10_000
"""How many records one answer may hold."""


def encode(value: Any) -> bytes:
    """A question or an answer as bytes."""
    return msgspec.msgpack.encode(value, enc_hook=_plain)


def _plain(value: Any) -> str:
    if isinstance(value, Key):
        return str(value)
    raise TypeError(f"expected what these messages hold, found {type(value).__name__}")


def author(name: str, claimed: str) -> str:
    """Who a write is by to a server that knows its caller as ``name``, "" where it knows nobody:
    that name, and behind a slash whom the caller claims to write for."""
    if not name or claimed == name or claimed.startswith(f"{name}/"):
        return claimed
    return f"{name}/{claimed}" if claimed else name


class About(msgspec.Struct, frozen=True):
    """What the server's store is and allows."""

    backend: str
    atomic_keys: int | None
    transaction_keys: int
    value_bytes: int
    durability: str
    by: str = ""
    """Who the caller is to the server; it stands before the author of every record."""
    as_they_are: bool = False
    """Whether the caller may restore records with any author and time."""
    facts: dict[str, str] = {}
    concerns: list[str] = []


class Look(msgspec.Struct, frozen=True):
    """Ask for the heads of these keys, of one moment."""

    keys: list[str]


class Looked(msgspec.Struct, frozen=True):
    """The heads, and the store's time in ms."""

    records: list[Record | None]
    now: int


Mark = tuple[int, str] | None
"""The version and op of a head; None: nothing there."""


class Commit(msgspec.Struct, frozen=True):
    """Write these records if every key of ``heads`` still has that head."""

    heads: dict[str, Mark]
    writes: list[Record]
    timeout: float
    """How long it may wait for its turn, in seconds."""
    restoring: bool = False
    """Whether the authors of the records are to stay as well; only for who may restore them."""


class Committed(msgspec.Struct, frozen=True):
    """Whether it was written; false: a key had moved and nothing was."""

    landed: bool


class Scan(msgspec.Struct, frozen=True):
    """``Backend.scan``."""

    prefix: str
    after: str
    limit: int


class History(msgspec.Struct, frozen=True):
    """``Backend.history``."""

    key: str
    after: int
    limit: int


class Records(msgspec.Struct, frozen=True):
    """Records in order."""

    records: list[Record]


class Changes(msgspec.Struct, frozen=True):
    """``Backend.changes``; the answer is a ``Page``."""

    prefix: str
    cursor: str
    limit: int


class CursorOf(msgspec.Struct, frozen=True):
    """``Backend.cursor``."""

    prefix: str


class Cursor(msgspec.Struct, frozen=True):
    """A cursor of the store."""

    cursor: str


class WalkFrom(msgspec.Struct, frozen=True):
    """``Backend.walk``; the answer is a ``Walk``."""

    cursor: str
    limit: int
