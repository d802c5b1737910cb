"""Single records and whole transactions: what ``Store`` itself offers, as flows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perkey.errors import (
    ConditionRequired,
    Conflict,
    ConflictExhausted,
    Gone,
    LeaseLost,
    NotFound,
    Rejected,
    UsageError,
)
from perkey.flows import arguments, steps
from perkey.observe import events
from perkey.store import codec, receipts
from perkey.store.keys import DOCUMENTS, Key, stored
from perkey.store.record import Record, signed
from perkey.store.transaction import Claim, Fence, Fn, Outcome, Tx, check_fn, declared
from perkey.store.views import Document, document

MISSING: Any = object()
"""The default of ``default=``: raise ``NotFound``."""


def transact(
    keys: str | Sequence[str],
    fn: Fn,
    *,
    by: str = "",
    idempotency_key: str | None = None,
    payload: Any = None,
    fence: Fence | None = None,
    timeout: float | None = None,
) -> steps.Flow[Outcome]:
    """Commit ``fn`` over ``keys``; with ``idempotency_key`` at most once for ever."""
    claim = None
    if idempotency_key is not None:
        claim = atomic_claim("", "transact", idempotency_key, keys, payload, None)
    return commit(keys, fn, claim, by, fence, timeout)


def commit(
    keys: str | Sequence[str],
    fn: Fn,
    claim: Claim | None,
    by: str,
    fence: Fence | None,
    timeout: float | None,
) -> steps.Flow[Outcome]:
    """Check what a caller handed in, and commit it together with its receipt."""
    check_fn(fn)
    check_by(by)
    if not isinstance(keys, str):
        arguments.several("keys", keys, "keys")
    extra = [*arguments.lease_of(fence), *([claim.key] if claim else [])]
    outcome: Outcome = yield steps.Transact(
        declared(keys, *extra), fn, by, fence=fence, claim=claim, timeout=timeout
    )
    return outcome


def atomic_claim(
    scope: str,
    operation: str,
    key: str,
    keys: str | Sequence[str],
    payload: Any,
    keep: float | None,
) -> Claim:
    """The claim of a transaction; without a payload its keys must stay the same."""
    if keep is not None:
        arguments.seconds("keep=", keep)
    if payload is None:
        payload = [str(each) for each in declared(keys)]
    return receipts.claim(scope, operation, key, payload, keep)


def check_by(by: object) -> None:
    """An author is short text."""
    if not isinstance(by, str) or len(by) > 200:
        raise UsageError(f"expected by= as text of at most 200 characters, found {by!r:.80}")
    if not by.isascii():
        codec.encode(by)


def get(key: str, default: Any = MISSING) -> steps.Flow[Any]:
    """The document at ``key``, else ``default``, else ``NotFound``."""
    name = stored(key)
    (record,) = yield steps.Read([name])
    if record is not None and not record.deleted:
        return document(record)
    if default is MISSING:
        raise missing(name, record)
    return default


def missing(key: Key, record: Record | None) -> NotFound:
    """The error for a key without a value; says so when it was deleted."""
    if record is None:
        return NotFound(f"there is nothing at {key.name!r}", key=key.name)
    return Gone(
        f"{key.name!r} was deleted{signed(record.by)} in version {record.version}",
        key=key.name,
        version=record.version,
    )


def get_many(keys: Sequence[str]) -> steps.Flow[dict[str, Document]]:
    """The documents that exist among ``keys``, all of one moment, by key."""
    arguments.several("keys", keys, "keys")
    names = [stored(key) for key in keys]
    records = yield steps.Read(names)
    return {
        name.name: document(record)
        for name, record in zip(names, records, strict=True)
        if record is not None and not record.deleted
    }


def put(
    key: str,
    value: Any,
    *,
    if_match: int | None = None,
    create: bool = False,
    overwrite: bool = False,
    base: int | None = None,
    by: str = "",
    fence: Fence | None = None,
    timeout: float | None = None,
) -> steps.Flow[Document]:
    """Write a whole value under exactly one condition."""
    name = stored(key)
    check_condition(if_match, create, overwrite, base)
    check_by(by)
    body = codec.encode(value)

    def write(tx: Tx) -> None:
        head = tx.record(name)
        if create:
            check_absent(name, head)
        elif not overwrite:
            check_version(name, head, if_match)
        tx.put_body(name, body, base if overwrite else None)

    outcome = yield from conditional(name, write, by, fence, timeout)
    record = outcome.writes[-1]
    if overwrite and base is not None and base < record.version - 1:
        yield steps.Emit(events.StaleOverwrite(name.name, by, base, record.version - 1))
    return document(record)


def delete(
    key: str,
    *,
    if_match: int | None = None,
    by: str = "",
    fence: Fence | None = None,
    timeout: float | None = None,
) -> steps.Flow[Document]:
    """Leave a tombstone; the version goes on counting.  ``NotFound`` where nothing is."""
    name = stored(key)
    check_by(by)
    check_match(if_match)

    def erase(tx: Tx) -> None:
        head = tx.record(name)
        if head is None or head.deleted:
            raise missing(name, head)
        if if_match is not None:
            check_version(name, head, if_match)
        tx.put_body(name, None)

    outcome = yield from conditional(name, erase, by, fence, timeout)
    return document(outcome.writes[-1])


def conditional(
    name: Key,
    fn: Fn,
    by: str,
    fence: Fence | None,
    timeout: float | None,
    attempts: int | None = None,
) -> steps.Flow[Outcome]:
    """Transact over one key, telling the observers why it was refused."""
    keys = declared([name], *arguments.lease_of(fence))
    try:
        outcome: Outcome = yield steps.Transact(
            keys, fn, by, fence=fence, timeout=timeout, attempts=attempts
        )
    except ConflictExhausted as exhausted:
        yield steps.Emit(events.Exhausted(name.name, by, exhausted.details.get("attempts") or 0))
        raise
    except Conflict as conflict:
        expected, found = conflict.details.get("expected", 0), conflict.details.get("found", 0)
        if expected or found:  # else nothing ever was where something had to be: nobody overtook
            yield steps.Emit(events.Conflicted(name.name, by, expected or 0, found or 0))
        raise
    except Rejected as rejected:
        # The rule's name, not its message: a message may quote the value.
        yield steps.Emit(events.RuleRejected(name.name, by, rejected.details.get("rule") or ""))
        raise
    except LeaseLost as lost:
        yield steps.Emit(events.LateRefused(name.name, by, lost.details.get("token") or 0))
        raise
    return outcome


def check_condition(
    if_match: int | None, create: bool, overwrite: bool, base: int | None = None
) -> None:
    """Exactly one of the three must be given, and ``base`` be a version."""
    arguments.flag("create=", create)
    arguments.flag("overwrite=", overwrite)
    if (if_match is not None) + create + overwrite != 1:
        raise ConditionRequired(
            "expected exactly one of if_match=VERSION (the version you read), create=True "
            "(nothing may be there) and overwrite=True (whatever is there)"
        )
    check_match(if_match)
    if base is not None:
        arguments.whole("base=", base)


def check_match(if_match: object) -> None:
    """``if_match`` is a version, or was not given."""
    if if_match is not None:
        arguments.whole("if_match=", if_match)


def check_absent(name: Key, head: Record | None) -> None:
    """``Conflict`` unless nothing is at ``name`` (a tombstone counts as nothing)."""
    if head is not None and not head.deleted:
        raise Conflict(
            f"expected nothing at {name.name!r}, found version {head.version}{signed(head.by)}; "
            "read it, or use if_match=",
            key=name.name,
            expected=0,
            found=head.version,
            by=head.by,
        )


def check_version(name: Key, head: Record | None, if_match: int | None) -> None:
    """``Conflict`` unless ``name`` is live and exactly at ``if_match``."""
    if head is not None and not head.deleted and head.version == if_match:
        return
    found = "nothing" if head is None else f"version {head.version}{signed(head.by)}"
    if head is not None and head.deleted:
        found = f"it deleted{signed(head.by)} in version {head.version}"
    raise Conflict(
        f"expected {name.name!r} at version {if_match}, found {found}; "
        "read it again and redo the change",
        key=name.name,
        expected=if_match,
        found=0 if head is None else head.version,
        by="" if head is None else head.by,
    )


def scan(prefix: str, after: str, limit: int) -> steps.Flow[list[Document]]:
    """Up to ``limit`` live documents under ``prefix`` above ``after``, in key order."""
    arguments.text("the prefix", prefix)
    arguments.text("after=", after)
    arguments.whole("limit=", limit, 1)
    records = yield steps.Scan(DOCUMENTS + prefix, DOCUMENTS + after if after else "", limit)
    return [document(record) for record in records]


def history(key: str, after: int, limit: int) -> steps.Flow[list[Document]]:
    """Up to ``limit`` kept versions above ``after``, ascending."""
    arguments.whole("after=", after)
    arguments.whole("limit=", limit, 1)
    records = yield steps.History(stored(key), after, limit)
    return [document(record) for record in records]
