"""``perkey doc``: read and write versioned documents in any store."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from perkey import Change, Document, Documents, Gap
from perkey.cli import output
from perkey.cli.options import By, Common, IfMatch, json_argument
from perkey.errors import ConditionRequired, UsageError
from perkey.flows.blame import Origin

HELP = """Read and write versioned documents in any store.

The store is the one that --store or PERKEY_STORE names; put --create makes an SQLite file.

For example:

    export PERKEY_STORE=sqlite:///work.db
    perkey doc put report '{"title": "Audit"}' --create
    perkey doc patch report '{"title": "Second audit"}' --by ana
    perkey doc get report
    perkey doc history report
"""

app = App(name="doc", help=HELP)

Limit = Annotated[int, Parameter(name="--limit", metavar="N", help="At most this many.")]
Key = Annotated[str, Parameter(help="The document's key.")]
At = Annotated[int | None, Parameter(metavar="VERSION", help="This version, not the newest.")]
Version = Annotated[int, Parameter(help="The earlier version.")]
LaterVersion = Annotated[int | None, Parameter(help="The later version; default: the newest.")]
AfterVersion = Annotated[int, Parameter(metavar="VERSION", help="Only later versions.")]
AfterKey = Annotated[str, Parameter(metavar="KEY", help="Only keys that sort after this one.")]
Create = Annotated[bool, Parameter(negative="", help="Only if there is nothing yet.")]
Overwrite = Annotated[bool, Parameter(negative="", help="Whatever is there.")]
Merge = Annotated[bool, Parameter(negative="", help="Keep what others changed since --if-match.")]
PatchKind = Literal["json-patch", "merge-patch", "transforms"]
As = Annotated[
    PatchKind | None,
    Parameter(
        name="--as",
        help="What CHANGE is; default: a list is a JSON Patch, an object a merge patch.",
    ),
]
UntilSynced = Annotated[bool, Parameter(negative="", help="Stop when caught up.")]
After = Annotated[
    str | None,
    Parameter(
        metavar="CURSOR",
        help="A cursor from an earlier watch, or '' for all that is kept; default: now.",
    ),
]
Prefix = Annotated[str, Parameter(help="What the keys begin with.")]
JsonPath = Annotated[
    str, Parameter(help="Only what is below this JSON pointer, like /sections/links.")
]
Value = Annotated[
    str,
    Parameter(help="JSON text, - for standard input, or @FILE.", allow_leading_hyphen=True),
]


def facts(document: Document, *, value: bool = True) -> dict[str, Any]:
    """A version of a document as JSON."""
    said: dict[str, Any] = {
        "key": document.key,
        "version": document.version,
        "etag": document.etag,
        "by": document.by,
        "at": document.at.isoformat(),
        "base": document.base,
        "deleted": document.deleted,
    }
    return {**said, "value": document.value} if value else said


def _written(document: Document, common: Common) -> None:
    if common.json:
        output.as_json(facts(document, value=False))
    else:
        done = "deleted, version" if document.deleted else "version"
        output.say(f"{document.key}: {done} {document.version}")


@app.command
def get(key: Key, /, *, at: At = None, common: Common | None = None) -> None:
    """Print a document's value, or one earlier version of it.

    With --json its version, ETag, author and time too.

    For example:

        perkey doc get report
        perkey doc get report --at 3 --json
    """
    common = common or Common()
    with common.opened() as store:
        docs = Documents(store)
        found = docs.get(key) if at is None else docs.at(key, at)
    output.as_json(facts(found) if common.json else found.value)


@app.command(
    usage="perkey doc put KEY VALUE (--if-match VERSION [--merge] | --create | --overwrite) "
    "[--by NAME] [--store URL] [--json]"
)
def put(
    key: Key,
    value: Value,
    /,
    *,
    if_match: IfMatch = None,
    create: Create = False,
    overwrite: Overwrite = False,
    merge: Merge = False,
    by: By = "",
    common: Common | None = None,
) -> None:
    """Write a whole value under one condition: --if-match VERSION, --create or --overwrite.

    With --if-match VERSION --merge, what others changed since that version is kept; only
    changes to the same place are a conflict.

    For example:

        perkey doc put report '{"title": "Audit"}' --create
        perkey doc put report @report.json --if-match 7 --merge --by ana
    """
    common = common or Common()
    _one_condition(if_match, create, overwrite, merge)
    new = json_argument(value)
    with common.opened(existing=if_match is not None) as store:
        docs = Documents(store)
        written = docs.put(
            key,
            new,
            if_match=if_match,
            create=create,
            overwrite=overwrite,
            merge=merge,
            by=by,
        )
    _written(written, common)


def _one_condition(if_match: int | None, create: bool, overwrite: bool, merge: bool) -> None:
    """Refuse in terms of the flags what the library would refuse in terms of its arguments."""
    if (if_match is not None) + create + overwrite != 1:
        raise ConditionRequired(
            "expected exactly one of --if-match VERSION (the version you read), --create (nothing "
            "may be there) and --overwrite (whatever is there)"
        )
    if merge and if_match is None:
        raise ConditionRequired("--merge needs --if-match VERSION, the version you read")


@app.command
def patch(
    key: Key,
    change: Value,
    /,
    *,
    kind: As = None,
    if_match: IfMatch = None,
    by: By = "",
    common: Common | None = None,
) -> None:
    """Apply a change to the newest version: JSON Patch, merge patch, or transforms.

    JSON Patch (RFC 6902) is a list of operations, a merge patch (RFC 7396) an object.
    Transforms are a list of changes that never conflict, like increment and append.

    For example:

        perkey doc patch report '{"title": "Second audit"}'
        perkey doc patch report '[{"op": "remove", "path": "/title"}]'
        perkey doc patch report --as transforms \\
            '[{"op": "increment", "path": "/runs", "value": 1}]'
    """
    common = common or Common()
    given = json_argument(change)
    chosen = _KINDS[kind or ("json-patch" if isinstance(given, list) else "merge-patch")]
    with common.opened(existing=chosen != "transforms") as store:
        docs = Documents(store)
        written = docs.patch(key, **{chosen: given}, if_match=if_match, by=by)
    _written(written, common)


_KINDS = {
    "json-patch": "json_patch",
    "merge-patch": "merge_patch",
    "transforms": "transforms",
}


@app.command
def delete(
    key: Key, /, *, if_match: IfMatch = None, by: By = "", common: Common | None = None
) -> None:
    """Delete a document; its history stays and its versions go on counting.

    For example:

        perkey doc delete report --if-match 7 --by ana
    """
    common = common or Common()
    with common.opened() as store:
        erased = Documents(store).delete(key, if_match=if_match, by=by)
    _written(erased, common)


@app.command
def history(
    key: Key, /, *, after: AfterVersion = 0, limit: Limit = 1000, common: Common | None = None
) -> None:
    """List the kept versions of a document, oldest first: who wrote each, when, on what base.

    For example:

        perkey doc history report --after 100 --limit 20
    """
    common = common or Common()
    with common.opened() as store:
        versions = Documents(store).history(key, after=after, limit=limit)
    if common.json:
        output.as_json([facts(version) for version in versions])
        return
    rows = [
        (v.version, v.by, output.moment(v.at), v.base, "(deleted)" if v.deleted else _size(v))
        for v in versions
    ]
    output.table(("version", "by", "at", "read", "value"), rows)


def _size(version: Document) -> str:
    return output.short(version.value)


@app.command
def diff(
    key: Key, old: Version, new: LaterVersion = None, /, *, common: Common | None = None
) -> None:
    """Show what changed between two versions of a document, path by path.

    For example:

        perkey doc diff report 3
        perkey doc diff report 3 7
    """
    common = common or Common()
    with common.opened() as store:
        docs = Documents(store)
        last = docs.get(key).version if new is None else new
        changes = [change.as_json() for change in docs.diff(key, old, last)]
    if common.json:
        output.as_json(changes)
        return
    for change in changes:
        sign, style = _SIGNS[change["op"]]
        sides = [output.short(change[side]) for side in ("old", "new") if side in change]
        output.say(f"{sign} {change['path'] or '(all)'}: {' -> '.join(sides)}", style=style)


_SIGNS = {"add": ("+", "green"), "remove": ("-", "red"), "replace": ("~", "yellow")}


@app.command
def blame(key: Key, path: JsonPath = "", /, *, common: Common | None = None) -> None:
    """Show which version and which author set each value of a document.

    Where the version is no longer kept, it says that the value was there at or before it.

    For example:

        perkey doc blame report
        perkey doc blame report /sections/links
    """
    common = common or Common()
    with common.opened() as store:
        origins = Documents(store).blame(key, path)
    if common.json:
        output.as_json({where: _origin(origin) for where, origin in origins.items()})
        return
    rows = [
        (where or "(all)", found.version, found.by if found.known else "(or before)")
        for where, found in origins.items()
    ]
    output.table(("path", "version", "by"), rows)


def _origin(found: Origin) -> dict[str, Any]:
    return {"version": found.version, "by": found.by, "known": found.known}


@app.command(name="list")
def list_(
    prefix: Prefix = "",
    /,
    *,
    after: AfterKey = "",
    limit: Limit = 1000,
    common: Common | None = None,
) -> None:
    """List the documents whose key has a prefix, in key order.

    For example:

        perkey doc list audit/ --limit 20
    """
    common = common or Common()
    with common.opened() as store:
        found = list(islice(store.scan(prefix, after=after), check_limit(limit)))
    if common.json:
        output.as_json([facts(document, value=False) for document in found])
        return
    rows = [(d.key, d.version, d.by, output.moment(d.at), output.short(d.value)) for d in found]
    output.table(("key", "version", "by", "at", "value"), rows)


def check_limit(limit: int) -> int:
    """A limit of at least one."""
    if limit < 1:
        raise UsageError(f"expected --limit of at least 1, found {limit}")
    return limit


@app.command
def watch(
    prefix: Prefix = "",
    /,
    *,
    after: After = None,
    until_synced: UntilSynced = False,
    common: Common | None = None,
) -> None:
    """Print every version under a prefix as it commits, one a line; Ctrl-C ends it.

    For example:

        perkey doc watch orders/
        perkey doc watch --after '' --until-synced --json
    """
    common = common or Common()
    with common.opened() as store, Documents(store).watch(prefix, after=after) as seen:
        for event in seen:
            if isinstance(event, Change):
                _changed(event, common)
            else:
                _marked("gap" if isinstance(event, Gap) else "synced", event.cursor, common)
                if until_synced and not isinstance(event, Gap):
                    return


def _changed(event: Change, common: Common) -> None:
    document = event.document
    if common.json:
        output.as_json({"cursor": event.cursor, **facts(document)}, pretty=False)
    else:
        value = "(deleted)" if document.deleted else output.short(document.value)
        output.say(f"{document.key} {document.version} {document.by or '-'} {value}")


def _marked(what: str, cursor: str, common: Common) -> None:
    if common.json:
        output.as_json({what: True, "cursor": cursor}, pretty=False)
    elif what == "gap":
        output.say("(gap: versions were dropped before they could be shown)", style="yellow")
