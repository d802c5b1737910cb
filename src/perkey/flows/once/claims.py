"""The record of an operation, and the transactions that move it.

    free --claim--> claimed --effect returns--> done      (replayed for ever, or until expiry)
                       |------effect raises---> free      (or unknown, or failed: remembered)
                       |------crash, cancel,
                       |      outlived lease--> unknown   (never runs again by itself)

Every step compares state *and* token inside its own transaction, so a holder that was taken
over can neither store nor free anything, and ``done`` never goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from perkey.errors import InvalidValue, LeaseLost
from perkey.flows import steps
from perkey.flows.once.model import Held, Operation, Verdict
from perkey.observe import events
from perkey.store import codec, receipts
from perkey.store.receipts import Receipt as Stored
from perkey.store.transaction import Outcome, Tx


def look(op: Operation, *, take_over: bool) -> steps.Flow[Verdict]:
    """Look at the record inside a transaction, and claim it where that is allowed."""

    def decide(tx: Tx) -> Verdict:
        found = receipts.read(tx.record(op.record))
        if found is None:
            return _take(tx, op, attempt=1)
        receipts.check_same(op.claim, found)
        if found.state == "done":
            return _replay(tx, op, found)
        if found.state == "failed":
            return Verdict("failed", error=found.extra)
        if found.state == "expired":
            return Verdict("expired")
        held = msgspec.convert(found.extra, Held)
        if found.state == "claimed" and tx.now < held.until:
            return Verdict("busy", held.until - tx.now)
        if take_over:
            return _take(tx, op, attempt=held.attempt + 1)
        if found.state == "claimed":
            _put(tx, op, "unknown", held, reason="its lease ran out; the holder may have crashed")
        return Verdict("unknown", held=held)

    outcome: Outcome = yield steps.Transact((op.record,), decide, op.options.by)
    verdict: Verdict = outcome.result
    if verdict.action == "run" and verdict.held is not None:
        op.attempt = verdict.held.attempt
    return verdict


def _take(tx: Tx, op: Operation, attempt: int) -> Verdict:
    until = tx.now + int(op.options.lease * 1000)
    held = Held(op.token, until, attempt, tx.now, op.scope, op.operation, op.key)
    _put(tx, op, "claimed", held)
    return Verdict("run", held=held)


def _replay(tx: Tx, op: Operation, found: Stored) -> Verdict:
    if found.expires is not None and tx.now >= found.expires:
        # The body goes, the receipt stays: a very late retry must not become a second run.
        gone = Stored("expired", found.fingerprint, found.fields)
        tx.put_body(op.record, receipts.encoded(gone))
        return Verdict("expired")
    return Verdict("replay", codec.decode(bytes(found.result)))


def _put(tx: Tx, op: Operation, state: str, held: Held, reason: str = "") -> None:
    extra = msgspec.structs.asdict(msgspec.structs.replace(held, reason=reason))
    stored = Stored(state, op.claim.fingerprint, op.claim.fields, extra=extra)
    tx.put_body(op.record, receipts.encoded(stored))


def renew(op: Operation) -> steps.Flow[None]:
    def extend(tx: Tx) -> None:
        held = _own(tx, op, op.token, ("claimed",))
        until = tx.now + int(op.options.lease * 1000)
        _put(tx, op, "claimed", msgspec.structs.replace(held, until=until))

    yield steps.Transact((op.record,), extend, op.options.by)


def failed(op: Operation, error: Exception) -> steps.Flow[None]:
    """The effect raised: free the key, or remember the error, or admit not to know."""
    if isinstance(error, op.options.remember):
        return (yield from _remember(op, error))
    if op.options.on_error == "unknown":
        return (yield from mark(op, f"it raised {type(error).__name__}"))

    def free(tx: Tx) -> None:
        _own(tx, op, op.token, ("claimed",))
        tx.put_body(op.record, None)

    yield from _quietly(op, free)


def _remember(op: Operation, error: Exception) -> steps.Flow[None]:
    try:
        args = codec.decode(codec.encode(list(error.args)))
    except InvalidValue:
        args = [str(error)]
    extra = {"type": _type_name(type(error)), "args": args}

    def remember(tx: Tx) -> None:
        _own(tx, op, op.token, ("claimed",))
        stored = Stored("failed", op.claim.fingerprint, op.claim.fields, extra=extra)
        tx.put_body(op.record, receipts.encoded(stored))

    yield from _quietly(op, remember)


def mark(op: Operation, reason: str) -> steps.Flow[None]:
    def note(tx: Tx) -> None:
        held = _own(tx, op, op.token, ("claimed",))
        _put(tx, op, "unknown", held, reason)

    yield from _quietly(op, note)


def _quietly(op: Operation, fn: Callable[[Tx], None]) -> steps.Flow[None]:
    """Write what became of a failed attempt; its own error matters more than this write's.

    If the write is refused or lost, the claim runs out by itself and ends as unknown.
    """
    try:
        yield steps.Transact((op.record,), fn, op.options.by)
    except Exception:
        yield steps.Emit(events.Operated(op.key, op.options.by, "unstored"))


def end(op: Operation, token: str, states: tuple[str, ...], value: Any) -> steps.Flow[None]:
    """Store the answer, if this token still holds the operation in one of ``states``."""
    raw = msgspec.Raw(codec.encode(value))

    def store(tx: Tx) -> None:
        _own(tx, op, token, states)
        expires = None if op.claim.expires is None else tx.now + op.claim.expires
        stored = Stored("done", op.claim.fingerprint, op.claim.fields, raw, expires)
        tx.put_body(op.record, receipts.encoded(stored))

    try:
        yield steps.Transact((op.record,), store, op.options.by)
    except LeaseLost as lost:
        lost.details["value"] = value
        yield from _mark_late(op)
        raise


def _mark_late(op: Operation) -> steps.Flow[None]:
    """An outlived claim that nobody has looked at yet becomes unknown now."""

    def note(tx: Tx) -> None:
        found = receipts.read(tx.record(op.record))
        if found is None or found.state != "claimed" or found.extra.get("token") != op.token:
            return
        held = msgspec.convert(found.extra, Held)
        _put(tx, op, "unknown", held, "its lease ran out before the effect had returned")

    yield from _quietly(op, note)


def _own(tx: Tx, op: Operation, token: str, states: tuple[str, ...]) -> Held:
    """The claim, if it is still this token's, in one of ``states`` and within its lease."""
    found = receipts.read(tx.record(op.record))
    if found is not None and found.state in states:
        held = msgspec.convert(found.extra, Held)
        if held.token == token and (found.state != "claimed" or tx.now < held.until):
            return held
    raise LeaseLost(
        "this attempt outlived its lease or was taken over, so its answer was not stored; the "
        "operation's outcome is unknown until resolve() or verify= settles it",
        key=op.key,
    )


def _type_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def revive(error: dict[str, Any], known: Sequence[type[Exception]]) -> Exception:
    """The remembered error, as its own class where the caller still lists it."""
    for cls in known:
        if _type_name(cls) == error["type"]:
            return cls(*error["args"])
    return RuntimeError(f"{error['type']}: {', '.join(map(str, error['args']))}")
