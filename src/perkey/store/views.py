"""What readers get: values with their version and author."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from perkey.store import codec
from perkey.store.record import Record


@dataclass(frozen=True, slots=True)
class Document:
    """One version of one document."""

    key: str
    value: Any
    """A copy; None for a deleted version (see ``deleted``)."""
    version: int
    by: str
    """Who wrote it."""
    at: datetime
    """When, by the store's time, in UTC."""
    base: int
    """The version its author had read; below ``version - 1`` it overwrote unseen changes."""
    op: str
    """The id of the write."""
    deleted: bool = False

    @property
    def etag(self) -> str:
        """The version as a strong HTTP entity tag, quotes included."""
        return f'"{self.version}"'


@dataclass(frozen=True, slots=True)
class Change:
    """One committed version, as a watcher sees it."""

    document: Document
    cursor: str
    """Give it as ``after=`` to go on right behind this change."""


@dataclass(frozen=True, slots=True)
class Synced:
    """The watcher has seen everything that was committed when it looked."""

    cursor: str


@dataclass(frozen=True, slots=True)
class Gap:
    """There are versions that this watcher will not see; re-read the current values.

    Retention dropped them, or they came before a store that was away could tell a new watcher
    where to begin.
    """

    cursor: str


def document(record: Record) -> Document:
    """The public view of a record."""
    return Document(
        key=record.key[2:],
        value=None if record.body is None else codec.decode(record.body),
        version=record.version,
        by=record.by,
        at=datetime.fromtimestamp(record.at / 1000, UTC),
        base=record.base,
        op=record.op,
        deleted=record.body is None,
    )


def moment(at: int) -> str:
    """A store's time, in milliseconds, as RFC 3339 in UTC."""
    seconds, thousandths = divmod(at, 1000)
    return f"{_second(seconds)}.{thousandths:03}+00:00"


@lru_cache(maxsize=128)
def _second(at: int) -> str:
    """All but the fraction: the answers of one second share it."""
    return datetime.fromtimestamp(at, UTC).replace(tzinfo=None).isoformat()
