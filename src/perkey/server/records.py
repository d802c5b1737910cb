"""Records as they are, for ``http://`` stores: look at heads, commit if none has moved.

A caller whose token is limited to prefixes may touch documents, boards and leases under them
and nothing else: receipts and accounts have rules that only their own flows keep.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace
from starlette.responses import Response

from perkey.errors import Forbidden, LimitExceeded, UsageError
from perkey.flows import steps
from perkey.server.calls import Call
from perkey.server.refusals import InvalidBody
from perkey.server.routes import Route
from perkey.store.backends import http_wire as wire
from perkey.store.keys import BOARDS, DOCUMENTS, LEASES, TURNS, Key
from perkey.store.record import ERASED, Record, following
from perkey.store.transaction import Outcome, Tx

T = TypeVar("T")

OPEN_SPACES = (DOCUMENTS, BOARDS, LEASES)
"""What a caller that is limited to prefixes may touch."""
SPACES = frozenset("dblroaetpq")
MAX_KEY_BYTES = 4096
"""Of a stored key: those of receipts and entries are made of several texts."""
OLDEST_MS = 60_000
"""How long before now a record may say that it was written: its author looked before."""


def _question(call: Call, kind: type[T]) -> T:
    call.media(wire.MEDIA)
    try:
        return msgspec.msgpack.decode(call.body, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidBody(f"the body is not what this path takes: {error}") from None


def _answer(value: Any) -> Response:
    body = wire.encode(value)
    return Response(body, headers={"cache-control": "no-store"}, media_type=wire.MEDIA)


# ------------------------------------------------------------------------------ reading


async def about(call: Call) -> Response:
    """What the store is and allows, and who the caller is."""
    store = call.services.store
    backend = store.backend
    trusted = call.caller.everywhere
    told = wire.About(
        backend=backend.name,
        atomic_keys=backend.atomic_keys,
        transaction_keys=store.limits.transaction_keys,
        value_bytes=store.limits.value_bytes,
        durability=backend.durability,
        by=call.caller.name,
        as_they_are=_as_they_are(call),
        facts=await store.core.read_async(lambda each: each.describe()) if trusted else {},
        concerns=backend.concerns() if trusted else [],
    )
    return _answer(told)


async def look(call: Call) -> Response:
    """Heads, and the store's time."""
    keys = _keys(call, _question(call, wire.Look).keys)

    def both(backend: Any) -> wire.Looked:
        # The time first: a record is never newer than the time that is told with it.
        now = backend.now_ms()
        return wire.Looked(backend.read(keys) if keys else [], now)

    return _answer(await call.services.store.core.read_async(both))


async def scan(call: Call) -> Response:
    """Live heads in the order of their keys."""
    asked = _question(call, wire.Scan)
    prefix, after, limit = _prefix(call, asked.prefix), asked.after, _limit(asked.limit)
    read = call.services.store.core.read_async
    return _answer(wire.Records(await read(lambda each: each.scan(prefix, after, limit))))


async def history(call: Call) -> Response:
    """Kept versions of one key."""
    asked = _question(call, wire.History)
    (key,) = _keys(call, [asked.key])
    after, limit = max(0, asked.after), _limit(asked.limit)
    read = call.services.store.core.read_async
    return _answer(wire.Records(await read(lambda each: each.history(key, after, limit))))


async def changes(call: Call) -> Response:
    """What was committed behind a cursor."""
    asked = _question(call, wire.Changes)
    prefix, limit = _prefix(call, asked.prefix), _limit(asked.limit)
    read = call.services.store.core.read_async
    return _answer(await read(lambda each: each.changes(prefix, asked.cursor, limit)))


async def cursor(call: Call) -> Response:
    """The cursor behind everything committed so far."""
    prefix = _prefix(call, _question(call, wire.CursorOf).prefix)
    read = call.services.store.core.read_async
    return _answer(wire.Cursor(await read(lambda each: each.cursor(prefix))))


async def walk(call: Call) -> Response:
    """Heads of all spaces, for whoever moves the store."""
    asked = _question(call, wire.WalkFrom)
    if not call.caller.everywhere:
        raise Forbidden("this meets every key, and the token is limited to prefixes")
    limit = _limit(asked.limit)
    read = call.services.store.core.read_async
    return _answer(await read(lambda each: each.walk(asked.cursor, limit)))


# ------------------------------------------------------------------------------ writing


async def commit(call: Call) -> Response:
    """Write records if every named head is still that head, all of it or nothing."""
    asked = _question(call, wire.Commit)
    if not 0 < asked.timeout < 3600:
        raise UsageError("expected a timeout in seconds, above 0")
    heads = dict(zip(_keys(call, [*asked.heads]), asked.heads.values(), strict=True))
    written = _keys(call, [record.key for record in asked.writes])
    trusted = _as_they_are(call)
    if asked.restoring and not trusted:
        raise Forbidden(
            "only a token with the role admin that reaches every key may restore records with the "
            "authors that they had"
        )
    records = [_signed(call, record, as_it_is=asked.restoring) for record in asked.writes]

    def write(tx: Tx) -> bool:
        if any(_mark(tx.record(key)) != mark for key, mark in heads.items()):
            return False
        last: dict[str, Record] = {}
        for record in records:
            before = last.get(record.key) or tx.record(Key(record.key))
            last[record.key] = record if trusted else _next(record, before, tx.now)
            tx.restore(last[record.key])
        return True

    outcome = await call.services.store.run(_committed([*heads, *written], write, asked.timeout))
    return _answer(wire.Committed(outcome.result))


def _committed(keys: Sequence[Key], write: Any, timeout: float) -> steps.Flow[Outcome]:
    outcome: Outcome = yield steps.Transact(tuple(sorted({*keys})), write, timeout=timeout)
    return outcome


def _mark(head: Record | None) -> wire.Mark:
    return None if head is None else (head.version, head.op)


def _signed(call: Call, record: Record, *, as_it_is: bool) -> Record:
    """The record by its caller, whoever it says wrote it; restored ones keep their author."""
    if not 1 <= len(record.op) <= 200 or " " in record.op or ERASED in record.op:
        raise UsageError(
            f"expected an op of 1 to 200 characters without spaces or {ERASED!r}, found "
            f"{record.op!r:.80}"
        )
    return record if as_it_is else replace(record, by=call.caller.author(record.by))


def _next(record: Record, head: Record | None, now: int) -> Record:
    """``record`` as what comes after ``head``: nobody makes up a version, a past or a fence."""
    version, ops, fence = following(head)
    if record.version != version or record.fence < fence or not 0 <= record.base < version:
        raise UsageError(
            f"expected version {version} of {record.key[2:]!r}, made from an earlier one, with a "
            f"fence of at least {fence}; found {record.version}, {record.base} and {record.fence}"
        )
    at = record.at if now - OLDEST_MS <= record.at <= now else now
    return replace(record, ops=ops, at=at)


# ------------------------------------------------------------------------ what is allowed


def _as_they_are(call: Call) -> bool:
    """Whether records of any author and time may be written, as when a store is moved here."""
    return call.caller.everywhere and call.caller.role == "admin"


def _keys(call: Call, given: Sequence[str]) -> list[Key]:
    """Stored keys that the caller may touch."""
    most = call.services.store.limits.transaction_keys
    if len({*given}) > most:
        raise LimitExceeded(f"expected at most {most} keys, found {len({*given})}")
    return [_key(call, each) for each in given]


def _key(call: Call, key: str) -> Key:
    if len(key) < 3 or key[1] != "/" or key[0] not in SPACES or len(key.encode()) > MAX_KEY_BYTES:
        raise UsageError(f"expected a stored key, like d/report, found {key!r:.80}")
    if key != TURNS:
        _need(call, key)
    return Key(key)


def _prefix(call: Call, prefix: str) -> str:
    _need(call, prefix)
    return prefix


def _need(call: Call, key: str) -> None:
    if call.caller.everywhere:
        return
    if key[:2] not in OPEN_SPACES:
        raise Forbidden(
            f"the token of {call.caller.name!r} is limited to prefixes, so it may touch documents, "
            f"boards and leases only; found {key!r:.80}"
        )
    call.caller.need_key(key[2:])


def _limit(limit: int) -> int:
    if not 1 <= limit <= wire.MOST:
        raise UsageError(f"expected a limit from 1 to {wire.MOST}, found {limit}")
    return limit


ROUTES = [
    Route("GET", wire.PATH, about),
    Route("POST", f"{wire.PATH}/look", look),
    Route("POST", f"{wire.PATH}/scan", scan),
    Route("POST", f"{wire.PATH}/history", history),
    Route("POST", f"{wire.PATH}/changes", changes),
    Route("POST", f"{wire.PATH}/cursor", cursor),
    Route("POST", f"{wire.PATH}/walk", walk),
    Route("POST", f"{wire.PATH}/commit", commit, "write"),
]
