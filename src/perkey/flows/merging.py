"""Whole-document writes from an older version: merged by path, or refused by name.

The base is read from history, which never changes, so it may be read before the transaction.
The merge itself runs inside the commit, against the head.
"""

from __future__ import annotations

from typing import Any

from perkey.errors import Conflict
from perkey.flows import pointer, steps
from perkey.flows.diff import ABSENT
from perkey.flows.merge import Overlap, merge
from perkey.observe import events
from perkey.store import codec
from perkey.store.keys import DOCUMENTS, Key, in_space
from perkey.store.record import Record
from perkey.store.transaction import Tx

MAX_SPAN = 200
"""Across how many versions the author of an overlapping change is looked for."""
MAX_SHOWN = 60


def base_value(name: Key, version: int, by: str) -> steps.Flow[Any]:
    """The value of ``version``; ``ABSENT`` where it is no version to merge from (yet).

    Raises ``Conflict`` when retention has dropped it.
    """
    found: list[Record] = yield steps.History(name, max(0, version - 1), 1)
    if found and found[0].version > version:
        oldest = found[0].version
        yield steps.Emit(events.Conflicted(name.name, by, version, oldest))
        raise Conflict(
            f"version {version} of {name.name!r} cannot be merged from: retention dropped it, the "
            f"oldest one kept is {oldest}; read the current version and redo the change",
            key=name.name,
            expected=version,
            found=oldest,
            oldest=oldest,
        )
    if not found or found[0].body is None:
        return ABSENT
    return codec.decode(found[0].body)


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
