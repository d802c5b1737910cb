"""Pages of documents and versions that stay within a limit of bytes, too."""

from __future__ import annotations

from collections.abc import Callable

from perkey.flows import steps
from perkey.store.keys import DOCUMENTS, Key
from perkey.store.record import Record

DEFAULT = 100
"""How many entries a page has where the caller does not say."""
MOST = 1000
PAGE_BYTES = 16 * 1024 * 1024
"""A page ends early once its values are longer than this together."""
CHUNK = 50
"""How many records are read at a time: values may be long."""

Next = Callable[[Record | None, int], steps.Step]


def scan(
    prefix: str, after: str, limit: int, space: str = DOCUMENTS
) -> steps.Flow[tuple[list[Record], bool]]:
    """Live records of a space under ``prefix`` above ``after``, and whether there may be more."""

    def following(last: Record | None, count: int) -> steps.Step:
        above = last.key if last is not None else space + after if after else ""
        return steps.Scan(space + prefix, above, count)

    return (yield from _gather(following, limit))


def history(name: Key, after: int, limit: int) -> steps.Flow[tuple[list[Record], bool]]:
    """Kept versions above ``after``, and whether there may be more."""

    def following(last: Record | None, count: int) -> steps.Step:
        return steps.History(name, after if last is None else last.version, count)

    return (yield from _gather(following, limit))


def _gather(following: Next, limit: int) -> steps.Flow[tuple[list[Record], bool]]:
    found: list[Record] = []
    size = 0
    while len(found) < limit and size < PAGE_BYTES:
        count = min(CHUNK, limit - len(found))
        chunk: list[Record] = yield following(found[-1] if found else None, count)
        found += chunk
        size += sum(len(each.body or b"") for each in chunk)
        if len(chunk) < count:
            return found, False
    return found, bool(found)
