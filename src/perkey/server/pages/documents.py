"""Documents: search by prefix; one of them with who wrote what, and its versions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from starlette.responses import Response

from perkey.errors import NotFound
from perkey.flows import lookback, pointer, steps
from perkey.flows.blame import NOTHING, Blame
from perkey.flows.diff import ABSENT, Change, diff
from perkey.server import listing
from perkey.server.calls import Call
from perkey.server.pages import commands, render, tree
from perkey.server.pages.overview import is_stale
from perkey.server.routes import Route
from perkey.store.keys import DOCUMENTS, Key, in_space
from perkey.store.record import Record

PAGE = 50
PATHS = 4
"""How many of a version's changed places its line in the timeline names."""
DIFF_BYTES = 256 * 1024
"""Of longer values the timeline does not say what changed."""
DIFFS_BYTES = 4 * 1024 * 1024
"""Nor of any, where all values that it looks at are longer together."""
PATH_CHARS = 60


@dataclass(frozen=True, slots=True)
class Version:
    """One version in the timeline."""

    record: Record
    stale: bool
    paths: tuple[str, ...] = ()
    """Places that it changed, the first few."""
    more: int = 0
    """How many more."""
    lost: int = 0
    """How many places of a version that its author had not read are gone with it."""


def timeline(records: list[Record]) -> list[Version]:
    """Newest first, each with what it changed; ``records`` ascend and may begin anywhere."""
    return list(_versions(records))[::-1]


def _versions(records: list[Record]) -> Iterator[Version]:
    before: Record | None = None
    short = sum(len(each.body or b"") for each in records) <= DIFFS_BYTES
    for record in records:
        known = record.version == 1 or (before and before.version == record.version - 1)
        first = record.version == 1
        changes = _changes(None if first else before, record) if known and short else []
        paths = tuple(shortened(each) for each in changes[:PATHS])
        gone = sum(each.kind == "remove" for each in changes)
        stale = is_stale(record)
        more = max(0, len(changes) - PATHS)
        yield Version(record, stale, paths, more, gone if stale else 0)
        before = record


def _changes(old: Record | None, new: Record) -> list[Change]:
    sides = [old, new]
    if any(len(each.body or b"") > DIFF_BYTES for each in sides if each is not None):
        return []
    return diff(*map(lookback.value_of, sides))


def shortened(change: Change) -> str:
    """A change's place with the sign of what happened there."""
    sign = {"add": "+", "remove": "−", "replace": "~"}[change.kind]
    place = pointer.format(change.path) or "(all)"
    return f"{sign}{place if len(place) <= PATH_CHARS else place[:PATH_CHARS] + '…'}"


# ------------------------------------------------------------------------------- reading


async def search(call: Call) -> Response:
    """The documents whose key begins with a prefix."""
    prefix, after = call.text("prefix"), call.text("after")
    allowed = call.caller.covers(prefix)
    found: list[Record] = []
    more = False
    if allowed:
        found, more = await call.services.store.run(listing.scan(prefix, after, PAGE))
    return render.page(
        call,
        "documents.html",
        here="documents",
        prefix=prefix,
        after=after,
        allowed=allowed,
        found=found,
        next=found[-1].key[2:] if more else "",
        is_stale=is_stale,
        export=commands.export(call),
        commands=[commands.perkey(call, "The same list", "doc", "list", *filter(None, [prefix]))],
    )


async def show(call: Call) -> Response:
    """One document: its value, or that of an older version, and its timeline."""
    key = call.text("key")
    call.caller.need_key(key)
    name = in_space(DOCUMENTS, key)
    head: Record | None = (await call.services.store.run(_read(name)))[0]
    if head is None:
        raise NotFound(f"there is no document {key!r:.80}, and there never was")
    if call.whole("seen", 0) == head.version:
        # Asked for again and again while somebody looks: what is the same costs one read.
        return Response(status_code=204, headers=render.HEADERS)
    wanted = call.whole("version", head.version, 1)
    before = call.whole("before", head.version + 1, 1)
    blame = await call.services.store.run(_blamed(call.services.book.blames, name, wanted, head))
    start = max(0, before - PAGE - 2)
    records, _ = await call.services.store.run(listing.history(name, start, before - 1 - start))
    versions = (await asyncio.to_thread(timeline, records))[:PAGE]
    lines, cut = tree.lines(blame)
    return render.page(
        call,
        "document.html",
        here="documents",
        key=key,
        head=head,
        wanted=wanted,
        shown=next((each.record for each in versions if each.record.version == wanted), None),
        absent=blame.value is ABSENT,
        lines=lines,
        cut=cut,
        authors=_authors(lines),
        versions=versions,
        older=versions[-1].record.version if versions and versions[-1].record.version > 1 else 0,
        commands=_commands(call, key, wanted, head, absent=blame.value is ABSENT),
    )


def _read(name: Key) -> steps.Flow[list[Record | None]]:
    found: list[Record | None] = yield steps.Read([name])
    return found


def _authors(lines: list[tree.Line]) -> list[str | None]:
    """Whose lines are there, in order of their first one."""
    return [*dict.fromkeys(each.origin.by for each in lines if each.origin is not None)]


def _blamed(blames: lookback.Blames, name: Key, wanted: int, head: Record) -> steps.Flow[Blame]:
    """Who set what in one version; ``NotFound`` or ``Gone`` where there is no such version."""
    if wanted == head.version:
        found = yield from blames.of(name)
        if found.version == wanted:
            return found  # else it has moved on since the head was read
    yield from lookback.at(name.name, wanted)  # raises where it is not there
    known = NOTHING
    while known.version < wanted:
        count = min(lookback.PAGE, wanted - known.version)
        page: list[Record] = yield steps.History(name, known.version, count)
        for record in page:
            if record.version <= wanted:
                known = known.advance(record.version, record.by, lookback.value_of(record))
        if not page:
            break
    return known


def _commands(
    call: Call, key: str, wanted: int, head: Record, *, absent: bool
) -> list[commands.Command]:
    """What prints this version; nothing that would only say that the document is deleted."""
    path, shown = f"/v1/documents/{commands.segment(key)}", wanted - absent
    at = [] if shown == head.version else ["--at", str(shown)]
    about = "The value before it" if absent else "The value"
    history = commands.perkey(call, "All versions", "doc", "history", key)
    found = [commands.perkey(call, about, "doc", "get", key, *at)]
    if head.deleted:
        version = commands.curl(call, f"{about} as JSON", f"{path}/versions/{shown}")
        return [*found, history, version]
    blame = commands.perkey(call, "Who wrote what", "doc", "blame", key)
    return [*found, blame, history, commands.curl(call, "The value with its tag", path, "-i")]


ROUTES = [
    Route("GET", "/ui/documents", search, query=("prefix", "after"), page=True),
    Route("GET", "/ui/document", show, query=("key", "version", "before", "seen"), page=True),
]
