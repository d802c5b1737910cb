"""What one object holds: a run of versions of one key, the newest last.  Pure.

A key's *head* object holds its newest version and, for a document, the versions just before
it: so one conditional write replaces the value and puts it into history.  When what came
before has grown long, it is first written to an object of its own, a *run*, and the next head
begins anew.  A run is never changed, and its name says its content: two writers that write the
same run write the same bytes, and a run whose writer then lost is true all the same.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

from perkey.errors import LimitExceeded, StoreCorrupt
from perkey.store.backends.envelope import pack, unpack
from perkey.store.keys import keeps_history
from perkey.store.record import Record

TAIL_BYTES = 32 * 1024
"""How long the old versions in a head may grow before they move to a run."""
TAIL_VERSIONS = 100
OBJECT_BYTES = 64 * 1024 * 1024
"""The longest object that is written."""
_MAGIC = b"PKO1"
_START = struct.Struct(">4sIQQI")
_LENGTH = struct.Struct(">I")


class Frame(NamedTuple):
    """The content of one object."""

    floor: int
    """The oldest version that history shows, as of this head."""
    floor_at: int
    """When that version was written; 0: to be looked up."""
    entries: tuple[bytes, ...]
    """Packed records, ascending, no version left out."""
    record: Record
    """The last of them."""

    @property
    def first(self) -> int:
        """The oldest version in here."""
        return self.record.version - len(self.entries) + 1

    def at(self, version: int) -> Record:
        """One of the versions in here."""
        return unpack(self.entries[version - self.first])


def following(before: Frame | None, writes: Sequence[Record], floor: tuple[int, int]) -> Frame:
    """The head after ``writes``, the newest last; ``before`` is what it replaces, less what has
    gone to a run.  ``floor`` is the new head's (floor, floor_at)."""
    last = writes[-1]
    if not keeps_history(last.key):
        return Frame(last.version, last.at, (pack(last),), last)
    old = () if before is None else before.entries[max(0, floor[0] - before.first) :]
    new = tuple(pack(each) for each in writes if each.version >= floor[0])
    return Frame(*floor, (*old, *new), last)


def is_full(head: Frame | None) -> bool:
    """Whether the versions in this head must move to a run before the next one comes."""
    if head is None or not keeps_history(head.record.key):
        return False
    return len(head.entries) >= TAIL_VERSIONS or sum(map(len, head.entries)) > TAIL_BYTES


def write(frame: Frame) -> bytes:
    """``frame`` as bytes; ``LimitExceeded`` where they are too many."""
    parts = [part for entry in frame.entries for part in (_LENGTH.pack(len(entry)), entry)]
    rest = b"".join(parts)
    if len(rest) > OBJECT_BYTES:
        raise LimitExceeded(
            f"expected at most {OBJECT_BYTES} bytes in one object, found {len(rest)}",
            limit=OBJECT_BYTES,
            found=len(rest),
        )
    start = _START.pack(b"", 0, frame.floor, frame.floor_at, len(frame.entries))[8:]
    return _MAGIC + struct.pack(">I", crc32(rest, crc32(start))) + start + rest


def read(data: bytes, name: str) -> Frame:
    """What ``write`` was given; ``StoreCorrupt`` for a torn or foreign object."""
    if len(data) < _START.size or data[:4] != _MAGIC:
        raise _corrupt(name, data)
    _, checksum, floor, floor_at, count = _START.unpack_from(data)
    if checksum != crc32(data[8:]) or count == 0:
        raise _corrupt(name, data)
    entries: list[bytes] = []
    place = _START.size
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(data, place)
        entries.append(data[place + _LENGTH.size : place + _LENGTH.size + length])
        place += _LENGTH.size + length
    return Frame(floor, floor_at, tuple(entries), unpack(entries[-1]))


def _corrupt(name: str, data: bytes) -> StoreCorrupt:
    return StoreCorrupt(
        f"the object {name!r} ({len(data)} bytes) is damaged or was not written by perkey; restore "
        "it from a backup, it is not taken for a missing one"
    )
