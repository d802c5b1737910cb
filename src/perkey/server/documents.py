"""Documents over HTTP: strong tags, conditional writes, patches, merges, and the look back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

from starlette.responses import Response

from perkey.errors import ConditionRequired, Conflict
from perkey.flows import lookback, merging, patching, records, steps
from perkey.flows.diff import ABSENT
from perkey.flows.documents import Decision
from perkey.flows.merge import merge
from perkey.flows.transforms import transform
from perkey.server import listing
from perkey.server.calls import JSON, Call, whole
from perkey.server.conditions import Condition
from perkey.server.refusals import BadRequest
from perkey.server.replies import json_reply, tag, value_reply, version_of
from perkey.server.routes import Route
from perkey.store import codec
from perkey.store.keys import DOCUMENTS, Key, in_space
from perkey.store.record import Record
from perkey.store.transaction import Tx
from perkey.store.views import Document

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
TRANSFORMS = "application/vnd.perkey.transforms+json"
PATCHES = (JSON_PATCH, MERGE_PATCH, TRANSFORMS)
SHOWN_OVERLAPS = 100
"""How many overlapping paths a refusal lists."""


# ----------------------------------------------------------------------------- reading


async def get(call: Call) -> Response:
    """The current value."""
    key = call.key
    record = await call.services.store.run(_head(in_space(DOCUMENTS, key)))
    call.condition.check_match(key, record)
    return await value_reply(call, record)


def _head(name: Key) -> steps.Flow[Record]:
    heads: list[Record | None] = yield steps.Read([name])
    head = heads[0]
    if head is None or head.deleted:
        raise records.missing(name, head)
    return head


async def version(call: Call) -> Response:
    """The value of one version; 410 once retention dropped it."""
    key = call.key
    wanted = whole("a version", call.params["version"], 1)
    return await value_reply(call, await call.services.store.run(_at(key, wanted)))


def _at(key: str, wanted: int) -> steps.Flow[Record]:
    name = in_space(DOCUMENTS, key)
    found: list[Record] = yield steps.History(name, wanted - 1, 1)
    if not found or found[0].version != wanted:
        yield from lookback.at(key, wanted)  # raises, with the reason
    if found[0].deleted:
        raise records.missing(name, found[0])
    return found[0]


async def list_(call: Call) -> Response:
    """The documents whose key has a prefix, in key order, page by page."""
    prefix, after = call.text("prefix"), call.text("after")
    call.caller.need_key(prefix)
    limit = call.whole("limit", listing.DEFAULT, 1, listing.MOST)
    values = call.flag("values")
    found, more = await call.services.store.run(listing.scan(prefix, after, limit))
    body: dict[str, Any] = {"documents": [version_of(each, value=values) for each in found]}
    return _page(call, body, found[-1].key[2:] if more else None)


async def history(call: Call) -> Response:
    """The kept versions of a document, oldest first, deletes included."""
    limit = call.whole("limit", listing.DEFAULT, 1, listing.MOST)
    after, values = call.whole("after", 0), call.flag("values")
    name = in_space(DOCUMENTS, call.key)
    found, more = await call.services.store.run(listing.history(name, after, limit))
    body: dict[str, Any] = {"versions": [version_of(each, value=values) for each in found]}
    return _page(call, body, str(found[-1].version) if more else None)


def _page(call: Call, body: dict[str, Any], after: str | None) -> Response:
    """One page; ``next`` and a ``Link`` say how to go on."""
    if after is None:
        return json_reply(body)
    link = f"?{urlencode({**call.query, 'after': after}, quote_via=quote)}"
    return json_reply(body | {"next": after}, headers={"link": f'<{link}>; rel="next"'})


async def diff(call: Call) -> Response:
    """What changed between two versions, path by path."""
    key, old, new = call.key, call.whole("from", None), call.whole("to", None)
    changes = await call.services.store.run(lookback.between(key, old, new))
    return json_reply({"from": old, "to": new, "changes": [each.as_json() for each in changes]})


async def blame(call: Call) -> Response:
    """Which version and which author set each value."""
    flow = lookback.blame(call.services.book.blames, call.key, call.text("path"))
    origins = await call.services.store.run(flow)
    return json_reply(
        {
            "origins": {
                path: {"version": each.version, "by": each.by, "known": each.known}
                for path, each in origins.items()
            }
        }
    )


# ----------------------------------------------------------------------------- writing


async def put(call: Call) -> Response:
    """Write a whole value under a condition."""
    key, condition = call.key, _protected(call.condition)
    call.media(JSON, missing=JSON)
    body = codec.compact(call.body)
    if "merge" in call.preferences():
        return await _merge(call, key, codec.decode(body), condition)

    def decide(tx: Tx, head: Record | None) -> Decision:
        condition.check(key, head)
        return Decision(body)

    try:
        written = await _change(call, key, decide)
    except Conflict as refused:
        raise await call.services.store.run(_explained(refused, codec.decode(body))) from None
    created = condition.none_match is not None and condition.match is None
    return await _written(call, written, created=created)


async def _merge(call: Call, key: str, value: Any, condition: Condition) -> Response:
    """Write a whole value made from one version; what others changed since is kept."""
    version = condition.version
    if version is None:
        raise BadRequest('Prefer: merge needs If-Match with one tag, like "61": what you read')
    flow = call.services.book.put(key, value, call.write, if_match=version, merge=True)
    try:
        written: Document = await call.services.store.run(flow)
    except Conflict as refused:
        if "overlaps" in refused.details:
            refused.details["overlaps"] = _places(refused)
        raise
    merged = written.version != version + 1
    return await _written(call, _record(written), merged=merged, applied="merge")


async def patch(call: Call) -> Response:
    """Apply a change that is given as data, inside the commit."""
    key, condition = call.key, _protected(call.condition)
    kind = call.media(*PATCHES)
    change = codec.parse(call.body)
    apply = _PATCHERS[kind]

    def decide(tx: Tx, head: Record | None) -> Decision:
        if head is None or head.body is None:
            raise records.missing(in_space(DOCUMENTS, key), head)
        condition.check(key, head)
        return Decision(codec.encode(apply(codec.decode(head.body), change)))

    return await _written(call, await _change(call, key, decide))


_PATCHERS: dict[str, Callable[[Any, Any], Any]] = {
    JSON_PATCH: patching.json_patch,
    MERGE_PATCH: patching.merge_patch,
    TRANSFORMS: transform,
}


async def delete(call: Call) -> Response:
    """Delete under a condition; the history stays and the versions go on counting."""
    key, condition = call.key, _protected(call.condition)

    def decide(tx: Tx, head: Record | None) -> Decision:
        if head is None or head.deleted:
            raise records.missing(in_space(DOCUMENTS, key), head)
        condition.check(key, head)
        return Decision(None)

    return await _written(call, await _change(call, key, decide))


def _protected(condition: Condition) -> Condition:
    """A write must say what it was made from; ``ConditionRequired`` (428) where it does not."""
    if not condition.protects:
        raise ConditionRequired(
            'a write needs If-Match: "VERSION" (what you read), If-None-Match: * (nothing may be '
            "there) or If-Match: * (whatever is there, and something must be)"
        )
    return condition


async def _change(call: Call, key: str, decide: Callable[[Tx, Record | None], Decision]) -> Record:
    flow = call.services.book.commit(in_space(DOCUMENTS, key), decide, call.write)
    written: Record = (await call.services.store.run(flow))[0]
    return written


def _explained(refused: Conflict, ours: Any) -> steps.Flow[Conflict]:
    """The refusal of a stale write with the places that both sides changed: where there are
    none, the same write would succeed with ``Prefer: merge``."""
    version, found = refused.details.get("expected"), refused.details.get("found")
    if not version or not found or found <= version:
        return refused
    name = in_space(DOCUMENTS, refused.key)
    (head,) = yield steps.Read([name])
    older: list[Record] = yield steps.History(name, version - 1, 1)
    if not older or older[0].version != version or head is None:
        return refused  # retention dropped what both sides began with
    base, theirs = (lookback.value_of(each) for each in (older[0], head))
    if theirs is ABSENT:
        return refused
    overlaps = merge(base, ours, theirs).overlaps
    told: list[dict[str, Any]] = []
    if overlaps:
        known = Conflict(key=name.name, expected=version, found=head.version, by=head.by)
        known.details["overlaps"] = overlaps[:SHOWN_OVERLAPS]
        explained = yield from merging.explained(known, base, ours)
        told = _places(explained)
    return Conflict(
        refused.message,
        **refused.details,
        overlaps=told,
        paths=[each["path"] for each in told],
        mergeable=not overlaps,
    )


def _places(refused: Conflict) -> list[dict[str, Any]]:
    """Where both sides changed something, and who did; values may be long and stay here."""
    shown = refused.overlaps[:SHOWN_OVERLAPS]
    return [{name: each[name] for name in ("path", "by", "version")} for each in shown]


async def _written(
    call: Call, written: Record, *, created: bool = False, merged: bool = False, applied: str = ""
) -> Response:
    """What a write made.  A merged value is not what the caller sent, so no tag comes with it
    unless the value does: with that tag the next write would undo the others' changes."""
    wants_value = call.preferences().get("return") == "representation" and not written.deleted
    prefer = [each for each in (applied, "return=representation" if wants_value else "") if each]
    headers = {"preference-applied": ", ".join(prefer)} if prefer else {}
    if created:
        headers["location"] = "/v1/documents/" + quote(written.key[2:], safe="")
    if wants_value:
        reply = await value_reply(_unconditional(call), written)
        reply.headers.update(headers)
        reply.status_code = 201 if created else 200
        return reply
    if not merged and not written.deleted:
        headers["etag"] = tag(written.version)
    return json_reply(version_of(written, merged=merged), 201 if created else 200, headers)


def _record(written: Document) -> Record:
    at = round(written.at.timestamp() * 1000)
    body = None if written.deleted else codec.encode(written.value)
    return Record(
        Key(DOCUMENTS + written.key), written.version, body, written.by, at, base=written.base
    )


def _unconditional(call: Call) -> Call:
    """The same call without its conditions, which were met before the write."""
    kept = [(n, v) for n, v in call.scope["headers"] if n not in (b"if-match", b"if-none-match")]
    return Call({**call.scope, "headers": kept}, call.services)


_LIST = {"type": "array", "items": {"type": "object"}}
_SCHEMAS: dict[str, dict[str, Any]] = {JSON_PATCH: _LIST, MERGE_PATCH: {}, TRANSFORMS: _LIST}
_DOCUMENT = "/v1/documents/{key}"

ROUTES = [
    Route("GET", "/v1/documents", list_, query=("prefix", "after", "limit", "values")),
    Route("GET", _DOCUMENT, get, conditional=True),
    Route("PUT", _DOCUMENT, put, "write", media={JSON: {}}, conditional=True),
    Route("PATCH", _DOCUMENT, patch, "write", media=_SCHEMAS, conditional=True),
    Route("DELETE", _DOCUMENT, delete, "write", conditional=True),
    Route("GET", f"{_DOCUMENT}/history", history, query=("after", "limit", "values")),
    Route("GET", f"{_DOCUMENT}/versions/{{version}}", version),
    Route("GET", f"{_DOCUMENT}/diff", diff, query=("from", "to")),
    Route("GET", f"{_DOCUMENT}/blame", blame, query=("path",)),
]
