"""Whole-document writes from an older version: merged by path, or refused by name.

The base is read from history, which never changes, so it may be read before the transaction.
The merge itself runs inside the commit, against the head, and so does the check that nobody
deleted the document in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from perkey.errors import Conflict
from perkey.flows import judging, pointer, steps
from perkey.flows.diff import ABSENT
from perkey.flows.merge import Overlap, merge
from perkey.observe import events
from perkey.store import codec
from perkey.store.keys import DOCUMENTS, Key, in_space
from perkey.store.record import Record, erased_since, signed
from perkey.store.transaction import Tx

MAX_SPAN = 200
"""Across how many versions the author of an overlapping change is looked for."""
MAX_SHOWN = 60
PAGE = 100
"""How many versions are read at a time."""


class Behind(judging.Moved):
    """The head is further on than this write has looked for deletions."""


@dataclass(slots=True)
class Ancestor:
    """The version that a write was made from, and how far its document is known to live on.

    A merge must not reach over a deletion: what was deleted and created again is another
    document, and a write made before that knows nothing of it.
    """

    name: Key
    version: int
    by: str
    value: Any
    """``ABSENT`` where there is no version to merge from (yet)."""
    seen: int
    """Up to here no tombstone lies between ``version`` and the head."""

    def check(self, head: Record) -> None:
        """Raise ``Behind`` unless the document lived from ``version`` to ``head``.

        Inside the commit, so the head's own memory of what came before it has to tell; where
        that does not reach back far enough, ``look`` must read first.
        """
        if erased_since(head, self.seen) is not False:
            raise Behind

    def look(self) -> steps.Flow[None]:
        """Look for deletions in the history that came since; ``Conflict`` where there is one."""
        while True:
            page: list[Record] = yield steps.History(self.name, self.seen, PAGE)
            for record in page:
                if record.version > self.seen + 1:
                    raise (yield from _dropped(self.name, self.version, record.version, self.by))
                if record.body is None:
                    raise (yield from self._deleted(record))
                self.seen = record.version
            if len(page) < PAGE:
                return

    def _deleted(self, tombstone: Record) -> steps.Flow[Conflict]:
        (head,) = yield steps.Read([self.name])
        found = tombstone.version if head is None else head.version
        yield steps.Emit(events.Conflicted(self.name.name, self.by, self.version, found))
        return Conflict(
            f"{self.name.name!r} was deleted{signed(tombstone.by)} in version {tombstone.version}, "
            f"after version {self.version} that this write was made from, and is at version "
            f"{found} now; read it again and redo the change",
            key=self.name.name,
            expected=self.version,
            found=found,
            by=tombstone.by,
            deleted=tombstone.version,
        )


def ancestor(name: Key, version: int, by: str) -> steps.Flow[Ancestor]:
    """The version to merge from.  Raises ``Conflict`` when retention has dropped it."""
    found: list[Record] = yield steps.History(name, max(0, version - 1), 1)
    if found and found[0].version > version:
        raise (yield from _dropped(name, version, found[0].version, by))
    body = found[0].body if found else None
    return Ancestor(name, version, by, ABSENT if body is None else codec.decode(body), version)


def _dropped(name: Key, version: int, oldest: int, by: str) -> steps.Flow[Conflict]:
    yield steps.Emit(events.Conflicted(name.name, by, version, oldest))
    return Conflict(
        f"version {version} of {name.name!r} cannot be merged from: retention dropped it, the "
        f"oldest one kept is {oldest}; read the current version and redo the change",
        key=name.name,
        expected=version,
        found=oldest,
        oldest=oldest,
    )


def merged(name: Key, version: int, base: Any, ours: Any, tx: Tx, head: Record) -> Any:
    """Both sides' changes since ``version`` in one value, or ``Conflict`` with ``overlaps``."""
    result = merge(base, ours, tx.get(name))
    if result.overlaps:
        raise Conflict(
            key=name.name,
            expected=version,
            found=head.version,
            by=head.by,
            overlaps=result.overlaps,
        )
    return result.value


def explained(refused: Conflict, base: Any, ours: Any) -> steps.Flow[Conflict]:
    """The error for the caller: each overlapping path, who changed it, and both values."""
    name, version, found = refused.key, refused.expected, refused.found
    overlaps: list[Overlap] = refused.overlaps
    start = max(version, found - MAX_SPAN)
    between: list[Record] = yield steps.History(in_space(DOCUMENTS, name), start, found - start)
    origins = _origins(overlaps, between, base, ours)
    details = [
        each.as_json() | {"by": by, "version": at}
        for each, (by, at) in zip(overlaps, origins, strict=True)
    ]
    told = "; ".join(_told(each) for each in details[:5])
    more = f"; and {len(details) - 5} more" if len(details) > 5 else ""
    return Conflict(
        f"{name!r} is at version {found}, and this write, made from version {version}, changes "
        f"the same places: {told}{more}; read it again and redo the change",
        key=name,
        expected=version,
        found=found,
        by=refused.by,
        paths=[each["path"] for each in details],
        authors=sorted({by for by, _ in origins if by}),
        overlaps=details,
    )


def _origins(
    overlaps: list[Overlap], between: list[Record], base: Any, ours: Any
) -> list[tuple[str, int]]:
    """(author, version) of the latest change to each overlapping place; ("", 0): unknown."""
    latest: dict[pointer.Path, tuple[str, int]] = {}
    before: dict[pointer.Path, Any] = {}
    for record in between:
        theirs = ABSENT if record.body is None else codec.decode(record.body)
        now = {each.path: each.theirs for each in merge(base, ours, theirs).overlaps}
        for path, value in now.items():
            if path not in before or not codec.same(before[path], value):
                latest[path] = (record.by, record.version)
        before = now
    return [latest.get(each.path, ("", 0)) for each in overlaps]


def _told(detail: dict[str, Any]) -> str:
    place = detail["path"] or "the whole value"
    who = f" by {detail['by']!r} in version {detail['version']}" if detail["version"] else ""
    return f"{place} (there {_shown(detail, 'theirs')}{who}, here {_shown(detail, 'ours')})"


def _shown(detail: dict[str, Any], side: str) -> str:
    if side not in detail:
        return "removed"
    text = codec.encode(detail[side]).decode()
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
