"""The record of an operation, and the transactions that move it.

    free --claim--> claimed --effect returns--> done      (replayed for ever, or until expiry)
                       |------effect raises---> free      (or unknown, or failed: remembered)
                       |------crash, cancel,
                       |      outlived lease--> unknown   (never runs again by itself)

Every step compares state *and* token inside its own transaction, so a holder that was taken
over can neither store nor free anything, and ``done`` never goes back.  Claimed and unknown are
*open*: ``listed`` has an entry for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from perkey.errors import InvalidValue, LeaseLost
from perkey.flows import steps
from perkey.flows.once import listed
from perkey.flows.once.model import Held, Operation, Verdict
from perkey.observe import events
from perkey.store import codec, receipts
from perkey.store.keys import Key
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
            return _take(tx, op, held.attempt + 1, held.slot)
        if found.state == "claimed":
            _put(tx, op, "unknown", held, reason="its lease ran out; the holder may have crashed")
        return Verdict("unknown", held=held)

    verdict = yield from _decided(op, decide)
    while verdict.action == "list":
        op.seen = verdict.value
        yield from listed.enter_apart(op)
        verdict = yield from _decided(op, decide)
    if verdict.held is not None:
        op.listed = verdict.held.slot
        if verdict.action == "run":
            op.attempt, op.crowd = verdict.held.attempt, verdict.crowd
    return verdict


def _decided(op: Operation, decide: Callable[[Tx], Verdict]) -> steps.Flow[Verdict]:
    outcome: Outcome = yield steps.Transact(
        _keys(op, op.slot), decide, op.options.by, foreseen=True
    )
    verdict: Verdict = outcome.result
    return verdict


def _keys(op: Operation, slot: int) -> tuple[Key, ...]:
    """The receipt, and the slot that changes with it where the store can commit both."""
    if op.apart or slot < 0:
        return (op.record,)
    return listed.slot_key(slot), op.record


def _take(tx: Tx, op: Operation, attempt: int, slot: int = -1) -> Verdict:
    crowd = op.crowd
    if slot < 0:
        seen = tx.version(op.record)
        if op.apart and not (op.entered and op.seen == seen):
            # Whoever takes out an entry moves the receipt on before: then it is listed again.
            return Verdict("list", seen)
        slot = op.slot
        if not op.apart:
            crowd = listed.enter(tx, slot, listed.entry(op.record, op.token))
    until = tx.now + int(op.options.lease * 1000)
    held = Held(op.token, until, attempt, tx.now, op.scope, op.operation, op.key, slot=slot)
    _put(tx, op, "claimed", held)
    return Verdict("run", held=held, crowd=crowd)


def _replay(tx: Tx, op: Operation, found: Stored) -> Verdict:
    if found.expires is not None and tx.now >= found.expires:
        # The body goes, the receipt stays: a very late retry must not become a second run.
        gone = Stored("expired", found.fingerprint, found.fields)
        tx.put_body(op.record, receipts.encoded(gone))
        return Verdict("expired")
    return Verdict("replay", codec.decode(bytes(found.result)))


def _put(tx: Tx, op: Operation, state: str, held: Held, reason: str = "") -> None:
    if reason != held.reason:
        held = msgspec.structs.replace(held, reason=reason)
    extra = msgspec.structs.asdict(held)
    stored = Stored(state, op.claim.fingerprint, op.claim.fields, extra=extra)
    tx.put_body(op.record, receipts.encoded(stored))


def _end(tx: Tx, op: Operation, held: Held, body: bytes | None) -> None:
    """Put what ends the operation, which is listed no more."""
    tx.put_body(op.record, body)
    if held.slot == op.listed >= 0 and not op.apart:
        listed.strike_receipt(tx, held.slot, op.record)


def _ended(op: Operation) -> None:
    """It has ended; where the index has commits of its own, the slot's next user strikes it."""
    if op.entered:
        op.left = listed.entry(op.record, op.token)


def renew(op: Operation) -> steps.Flow[None]:
    def extend(tx: Tx) -> None:
        held = _own(tx, op, op.token, ("claimed",))
        until = tx.now + int(op.options.lease * 1000)
        _put(tx, op, "claimed", msgspec.structs.replace(held, until=until))

    yield steps.Transact((op.record,), extend, op.options.by, foreseen=True)


def failed(op: Operation, error: Exception) -> steps.Flow[None]:
    """The effect raised: free the key, or remember the error, or admit not to know."""
    if isinstance(error, op.options.remember):
        return (yield from _remember(op, error))
    if op.options.on_error == "unknown":
        return (yield from mark(op, f"it raised {type(error).__name__}"))

    def free(tx: Tx) -> None:
        _end(tx, op, _own(tx, op, op.token, ("claimed",)), None)

    yield from _quietly(op, free, ends=True)


def _remember(op: Operation, error: Exception) -> steps.Flow[None]:
    try:
        args = codec.decode(codec.encode(list(error.args)))
    except InvalidValue:
        args = [str(error)]
    extra = {"type": _type_name(type(error)), "args": args}

    def remember(tx: Tx) -> None:
        held = _own(tx, op, op.token, ("claimed",))
        stored = Stored("failed", op.claim.fingerprint, op.claim.fields, extra=extra)
        _end(tx, op, held, receipts.encoded(stored))

    yield from _quietly(op, remember, ends=True)


def mark(op: Operation, reason: str) -> steps.Flow[None]:
    def note(tx: Tx) -> None:
        held = _own(tx, op, op.token, ("claimed",))
        _put(tx, op, "unknown", held, reason)

    yield from _quietly(op, note)


def _quietly(op: Operation, fn: Callable[[Tx], None], *, ends: bool = False) -> steps.Flow[None]:
    """Write what became of a failed attempt; its own error matters more than this write's.

    If the write is refused or lost, the claim runs out by itself and ends as unknown.
    """
    try:
        keys = _keys(op, op.listed if ends else -1)
        yield steps.Transact(keys, fn, op.options.by, foreseen=True)
    except Exception:
        yield steps.Emit(events.Operated(op.key, op.options.by, "unstored"))
        return
    if ends:
        _ended(op)


def end(op: Operation, token: str, states: tuple[str, ...], value: Any) -> steps.Flow[None]:
    """Store the answer, if this token still holds the operation in one of ``states``."""
    raw = msgspec.Raw(codec.encode(value))

    def store(tx: Tx) -> None:
        held = _own(tx, op, token, states)
        expires = None if op.claim.expires is None else tx.now + op.claim.expires
        stored = Stored("done", op.claim.fingerprint, op.claim.fields, raw, expires)
        _end(tx, op, held, receipts.encoded(stored))

    try:
        yield steps.Transact(_keys(op, op.listed), store, op.options.by, foreseen=True)
    except LeaseLost as lost:
        lost.details["value"] = value
        yield from _mark_late(op)
        raise
    _ended(op)


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
