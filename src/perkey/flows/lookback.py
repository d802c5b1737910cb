"""Looking back: single versions, what changed between two, and who set what."""

from __future__ import annotations

from perkey.errors import Gone, NotFound, UsageError
from perkey.flows import steps
from perkey.flows.diff import ABSENT, Change, diff
from perkey.store.keys import DOCUMENTS, in_space
from perkey.store.record import Record
from perkey.store.views import Document, document


def at(key: str, version: int) -> steps.Flow[Document]:
    """One version; ``Gone`` when retention dropped it, ``NotFound`` when it never was."""
    name = in_space(DOCUMENTS, key)
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise UsageError(f"expected a version from 1 up, found {version!r}")
    found: list[Record] = yield steps.History(name, version - 1, 1)
    if found and found[0].version == version:
        return document(found[0])
    if found:
        raise Gone(
            f"version {version} of {key!r} was dropped by retention; "
            f"the oldest one kept is {found[0].version}",
            key=key,
            version=version,
            oldest=found[0].version,
        )
    (head,) = yield steps.Read([name])
    last = 0 if head is None else head.version
    raise NotFound(
        f"{key!r} has no version {version}; its last one is {last}", key=key, version=version
    )


def between(key: str, old: int, new: int) -> steps.Flow[list[Change]]:
    """What changed from version ``old`` to ``new``; version 0 is nothing."""
    sides = []
    for version in (old, new):
        found = None if version == 0 else (yield from at(key, version))
        sides.append(ABSENT if found is None or found.deleted else found.value)
    return diff(*sides)
