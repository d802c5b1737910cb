"""Records as items of one table.  Pure.

``p`` is the partition key, ``s`` the sort key, both binary.  A head is at (``h/<space>``, the
rest of the key), so one query scans in key order; a version at (``v/<key>``, its number).
"""

from __future__ import annotations

from typing import Any

from perkey.errors import InvalidKey, LimitExceeded
from perkey.store.backends.dynamodb_client import Item
from perkey.store.backends.envelope import pack
from perkey.store.record import Record

SORT_BYTES = 1_024
ITEM_BYTES = 400 * 1024
COMMIT_BYTES = 4 * 1024 * 1024
AROUND_BYTES = 8_192
"""Room for what an item has around a record's body."""
HIGHEST = b"\xff"
"""Above all UTF-8."""


def head_key(key: str) -> Item:
    """Where the newest version of ``key`` is."""
    sort = key[2:].encode()
    if len(sort) > SORT_BYTES:
        raise InvalidKey(
            f"a DynamoDB store takes keys up to {SORT_BYTES} bytes in all their parts, found "
            f"{len(sort)}"
        )
    return {"p": {"B": space(key[0])}, "s": {"B": sort}}


def space(letter: str) -> bytes:
    """The partition of all heads of a space."""
    return f"h/{letter}".encode()


def version_key(key: str, version: int) -> Item:
    """Where one version of ``key`` is."""
    return {"p": {"B": versions(key)}, "s": {"B": numbered(version)}}


def versions(key: str) -> bytes:
    """The partition of all versions of ``key``."""
    return f"v/{key}".encode()


def numbered(version: int) -> bytes:
    """A version as a sort key."""
    return version.to_bytes(8, "big")


def head(record: Record, floor: int, floor_at: int) -> Item:
    """The item of a newest version; ``floor`` is the oldest version that history shows, and
    ``floor_at`` its time, 0 where it must be looked up."""
    item = {
        **head_key(record.key),
        "r": {"B": pack(record)},
        "v": {"N": str(record.version)},
        "o": {"S": record.op or "-"},
        "f": {"N": str(floor)},
        "t": {"N": str(floor_at)},
    }
    if record.deleted:
        item["x"] = {"BOOL": True}
    return checked(item, record)


def version(record: Record) -> Item:
    """The item of a version in history."""
    return checked({**version_key(record.key, record.version), "r": {"B": pack(record)}}, record)


def checked(item: Item, record: Record) -> Item:
    """``item``, unless it is longer than the service takes."""
    found = size(item)
    if found > ITEM_BYTES:
        raise LimitExceeded(
            f"DynamoDB takes items up to {ITEM_BYTES} bytes, found {found} at {record.key[2:]!r}",
            limit=ITEM_BYTES,
            found=found,
        )
    return item


def size(item: Item) -> int:
    """An item's bytes, as the service counts them; a little more for numbers."""
    return sum(len(name) + _length(value) for name, value in item.items())


def _length(value: dict[str, Any]) -> int:
    (content,) = value.values()
    return 1 if content is True else len(content)


def condition(base: Record | None) -> Item:
    """That a key's head is still ``base``."""
    if base is None:
        return {"ConditionExpression": "attribute_not_exists(p)"}
    return {
        "ConditionExpression": "v = :v AND o = :o",
        "ExpressionAttributeValues": {
            ":v": {"N": str(base.version)},
            ":o": {"S": base.op or "-"},
        },
    }
