"""Looking back: single versions, what changed between two, and who set what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from perkey.errors import Gone, NotFound
from perkey.flows import arguments, pointer, steps
from perkey.flows.blame import NOTHING, Blame, Origin
from perkey.flows.diff import ABSENT, Change, diff
from perkey.flows.records import missing
from perkey.store import codec
from perkey.store.keys import DOCUMENTS, Key, in_space
from perkey.store.record import Record
from perkey.store.views import Document, document

PAGE = 500
"""How many versions are read at a time."""
KEPT = 16
"""Of how many documents the blame is remembered."""


def at(key: str, version: int) -> steps.Flow[Document]:
    """One version; ``Gone`` when retention dropped it, ``NotFound`` when it never was."""
    name = in_space(DOCUMENTS, key)
    arguments.whole("a version", version, 1)
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
        arguments.whole("a version", version)
        found = None if version == 0 else (yield from at(key, version))
        sides.append(ABSENT if found is None or found.deleted else found.value)
    return diff(*sides)


@dataclass(slots=True)
class Blames:
    """The blame of a few documents, kept so that only newer versions must be read."""

    kept: dict[Key, Blame] = field(default_factory=dict)

    def of(self, name: Key) -> steps.Flow[Blame]:
        """The blame of the head, as far as history is kept."""
        known = self.kept.pop(name, NOTHING)
        while True:
            page: list[Record] = yield steps.History(name, known.version, PAGE)
            for record in page:
                known = known.advance(record.version, record.by, value_of(record))
            if len(page) < PAGE:
                break
        self._keep(name, known)
        return known

    def _keep(self, name: Key, blame: Blame) -> None:
        self.kept[name] = blame
        while len(self.kept) > KEPT:
            self.kept.pop(list(self.kept)[0], None)  # noqa: RUF015, one step: threads share this


def value_of(record: Record | None) -> Any:
    """The value in a record; ``ABSENT`` where there is none."""
    if record is None or record.body is None:
        return ABSENT
    return codec.decode(record.body)


def blame(blames: Blames, key: str, path: str) -> steps.Flow[dict[str, Origin]]:
    """Who set each leaf at or below ``path``: its JSON pointer -> version and author."""
    name = in_space(DOCUMENTS, key)
    tokens = pointer.parse(path)
    found = yield from blames.of(name)
    if found.value is ABSENT:
        (head,) = yield steps.Read([name])
        raise missing(name, head)
    return {pointer.format(leaf): origin for leaf, origin in found.leaves(tokens)}
