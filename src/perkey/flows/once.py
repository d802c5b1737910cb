"""An outside effect that runs once: claim, effect, receipt.

    free --claim--> claimed --effect returns--> done      (replayed for ever, or until expiry)
                       |------effect raises---> free      (or unknown, or failed: remembered)
                       |------crash, cancel,
                       |      outlived lease--> unknown   (never runs again by itself)

The claim is committed before the effect and carries a lease and a token; every later step
compares state *and* token inside its own transaction, so a holder that was taken over can
neither store nor free anything, and ``done`` never goes back.  All of it is one record, so
it works on every store.  The model is the idempotency record of Brandur Leach's
"Implementing Stripe-like Idempotency Keys in Postgres" (2017), plus fencing tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from perkey.errors import (
    Expired,
    InProgress,
    InvalidValue,
    KeyReused,
    LeaseLost,
    NotFound,
    OutcomeUnknown,
    UsageError,
)
from perkey.flows import steps
from perkey.observe import events
from perkey.store import codec, receipts
from perkey.store.keys import RECEIPTS, Key
from perkey.store.limits import backoff
from perkey.store.receipts import Receipt as Stored
from perkey.store.transaction import Claim, Fence, Fn, Outcome, Tx, check_fn, declared

NOT_DONE = object()
"""What ``verify`` returns when the outside system says that the effect did not happen."""

UNKNOWN = object()
"""What ``verify`` returns when the outside system cannot tell either."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer of an operation that ran once."""

    value: Any
    replayed: bool
    """True: the stored answer of an earlier run; nothing ran now."""


@dataclass(frozen=True, slots=True)
class Context:
    """What an effect gets, to hand on to the systems it calls."""

    key: str
    attempt: int
    token: str
    """Belongs to this attempt alone; a fencing token for systems that compare."""


@dataclass(frozen=True, slots=True)
class Unresolved:
    """An operation whose outcome nobody knows."""

    scope: str
    operation: str
    key: str
    attempt: int
    since: int
    """Milliseconds of store time at which it was claimed."""
    reason: str


@dataclass(frozen=True, slots=True)
class Options:
    """How one external operation is to be run."""

    lease: float = 30.0
    """Seconds a claim lasts; renewed every third of it while the effect runs."""
    keep: float | None = None
    """Seconds the answer can be replayed; later calls raise ``Expired``. None: for ever."""
    wait: float = 30.0
    """Seconds to wait for a running attempt; 0 raises ``InProgress`` at once."""
    on_error: str = "free"
    remember: tuple[type[Exception], ...] = ()
    on_unknown: str = "raise"
    verify: Callable[[Context], Any] | None = None
    by: str = ""

    def check(self) -> None:
        """Refuse options that mean nothing."""
        if self.on_error not in ("free", "unknown"):
            raise UsageError(f"expected on_error='free' or 'unknown', found {self.on_error!r}")
        if self.on_unknown not in ("raise", "rerun"):
            raise UsageError(f"expected on_unknown='raise' or 'rerun', found {self.on_unknown!r}")
        if not self.lease > 0 or self.wait < 0 or (self.keep is not None and not self.keep > 0):
            raise UsageError("expected lease= and keep= above 0 and wait= at least 0, in seconds")


class Held(msgspec.Struct, frozen=True):
    """Who has claimed an operation; the ``extra`` of its receipt."""

    token: str
    until: int
    attempt: int
    since: int
    scope: str
    operation: str
    key: str
    reason: str = ""


@dataclass(slots=True)
class _Operation:
    """One operation of one caller: its names, its fingerprint, its options."""

    scope: str
    operation: str
    key: str
    claim: Claim
    options: Options
    token: str = ""
    attempt: int = 0

    @property
    def record(self) -> Key:
        return self.claim.key

    @property
    def context(self) -> Context:
        return Context(self.key, self.attempt, self.token)


@dataclass(slots=True)
class _Verdict:
    """What a look at the record says must happen next."""

    action: str
    value: Any = None
    held: Held | None = None
    error: dict[str, Any] = field(default_factory=dict)


def prepare(scope: str, operation: str, key: str, payload: Any, options: Options) -> _Operation:
    """Check and fingerprint an operation; nothing is read or written."""
    options.check()
    digest, fields = receipts.fingerprint(payload)
    expires = None if options.keep is None else int(options.keep * 1000)
    claim = Claim(receipts.receipt_key(scope, operation, key), digest, fields, expires)
    return _Operation(scope, operation, key, claim, options)


def run(op: _Operation, effect: Callable[[Context], Any]) -> steps.Flow[Receipt]:
    """Run ``effect`` once for this key, or answer with what it did before."""
    refuse_unstorable(effect)
    op.token = yield steps.Token()
    try:
        receipt = yield from _run(op, effect)
    except Exception as error:
        yield steps.Emit(events.Operated(op.key, op.options.by, _kind(error)))
        raise
    kind = "replayed" if receipt.replayed else "ran"
    yield steps.Emit(events.Operated(op.key, op.options.by, kind))
    return receipt


def _kind(error: Exception) -> str:
    for kind, errors in _KINDS.items():
        if isinstance(error, errors):
            return kind
    return "raised"


_KINDS: dict[str, tuple[type[Exception], ...]] = {
    "refused": (KeyReused, Expired),
    "in-progress": (InProgress,),
    "unknown": (OutcomeUnknown, LeaseLost),
}


def _run(op: _Operation, effect: Callable[[Context], Any]) -> steps.Flow[Receipt]:
    verdict = yield from _claim_or_wait(op)
    if verdict.action == "unknown":
        verdict = yield from _resolve_unknown(op, verdict)
    if verdict.action == "replay":
        return Receipt(verdict.value, replayed=True)
    if verdict.action == "expired":
        raise Expired
    if verdict.action == "failed":
        raise _revive(verdict.error, op.options.remember)
    return (yield from _perform(op, effect))


# ------------------------------------------------------------------------------- claiming


def _claim_or_wait(op: _Operation) -> steps.Flow[_Verdict]:
    waited, attempt = 0.0, 0
    while True:
        verdict = yield from _look(op, take_over=False)
        if verdict.action != "busy":
            return verdict
        if waited >= op.options.wait:
            raise InProgress(
                "an operation with this idempotency key is still running; "
                f"ask again in {verdict.value} ms",
                retry_after=verdict.value / 1000,
            )
        attempt += 1
        chance = yield steps.Random()
        pause = min(backoff(attempt, _PATIENCE, chance), op.options.wait - waited)
        yield steps.Sleep(pause)
        waited += pause


@dataclass(frozen=True)
class _Patience:
    backoff_s: float = 0.02


_PATIENCE: Any = _Patience()


def _look(op: _Operation, *, take_over: bool) -> steps.Flow[_Verdict]:
    """Look at the record inside a transaction, and claim it where that is allowed."""

    def look(tx: Tx) -> _Verdict:
        found = receipts.read(tx.record(op.record))
        if found is None:
            return _take(tx, op, attempt=1)
        receipts.check_same(op.claim, found)
        if found.state == "done":
            return _replay(tx, op, found)
        if found.state == "failed":
            return _Verdict("failed", error=found.extra)
        if found.state == "expired":
            return _Verdict("expired")
        held = msgspec.convert(found.extra, Held)
        if found.state == "claimed" and tx.now < held.until:
            return _Verdict("busy", held.until - tx.now)
        if take_over:
            return _take(tx, op, attempt=held.attempt + 1)
        if found.state == "claimed":
            _put(tx, op, "unknown", held, reason="its lease ran out; the holder may have crashed")
        return _Verdict("unknown", held=held)

    outcome: Outcome = yield steps.Transact((op.record,), look, op.options.by)
    verdict: _Verdict = outcome.result
    if verdict.action == "run" and verdict.held is not None:
        op.attempt = verdict.held.attempt
    return verdict


def _take(tx: Tx, op: _Operation, attempt: int) -> _Verdict:
    until = tx.now + int(op.options.lease * 1000)
    held = Held(op.token, until, attempt, tx.now, op.scope, op.operation, op.key)
    _put(tx, op, "claimed", held)
    return _Verdict("run", held=held)


def _replay(tx: Tx, op: _Operation, found: Stored) -> _Verdict:
    if found.expires is not None and tx.now >= found.expires:
        # The body goes, the receipt stays: a very late retry must not become a second run.
        gone = Stored("expired", found.fingerprint, found.fields)
        tx.put_body(op.record, receipts.encoded(gone))
        return _Verdict("expired")
    return _Verdict("replay", codec.decode(bytes(found.result)))


def _put(tx: Tx, op: _Operation, state: str, held: Held, reason: str = "") -> None:
    extra = msgspec.structs.asdict(msgspec.structs.replace(held, reason=reason))
    stored = Stored(state, op.claim.fingerprint, op.claim.fields, extra=extra)
    tx.put_body(op.record, receipts.encoded(stored))


# ------------------------------------------------------------------- when nobody knows


def _resolve_unknown(op: _Operation, verdict: _Verdict) -> steps.Flow[_Verdict]:
    held = verdict.held
    assert held is not None
    if op.options.verify is not None:
        told = yield steps.Call(op.options.verify, (Context(op.key, held.attempt, held.token),))
        if told is NOT_DONE:
            return (yield from _take_over(op))
        if told is not UNKNOWN:
            yield from _end(op, held.token, ("unknown",), told)
            return _Verdict("replay", told)
    elif op.options.on_unknown == "rerun":
        yield steps.Emit(events.Operated(op.key, op.options.by, "rerun"))
        return (yield from _take_over(op))
    raise OutcomeUnknown(
        f"attempt {held.attempt} of this operation ended without an answer; it may or may not "
        "have happened. Ask the outside system and end it with resolve(), or give verify=",
        key=op.key,
        attempt=held.attempt,
    )


def _take_over(op: _Operation) -> steps.Flow[_Verdict]:
    verdict = yield from _look(op, take_over=True)
    if verdict.action == "busy":
        raise InProgress(
            "another caller has taken this unknown operation over",
            retry_after=verdict.value / 1000,
        )
    return verdict


# -------------------------------------------------------------------------- the effect


def _perform(op: _Operation, effect: Callable[[Context], Any]) -> steps.Flow[Receipt]:
    try:
        value = yield steps.Attend(effect, (op.context,), op.options.lease / 3, lambda: _renew(op))
    except Exception as error:
        yield from _failed(op, error)
        raise
    except BaseException as error:
        # A cancellation or Ctrl-C says nothing about what the effect had done by then.
        yield from _mark(op, f"interrupted by {type(error).__name__}")
        raise
    try:
        codec.encode(value)
    except InvalidValue as error:
        yield from _mark(op, f"its result cannot be stored: {error}")
        raise
    yield from _end(op, op.token, ("claimed",), value)
    return Receipt(value, replayed=False)


def _renew(op: _Operation) -> steps.Flow[None]:
    def renew(tx: Tx) -> None:
        held = _own(tx, op, op.token, ("claimed",))
        until = tx.now + int(op.options.lease * 1000)
        _put(tx, op, "claimed", msgspec.structs.replace(held, until=until))

    yield steps.Transact((op.record,), renew, op.options.by)


def _failed(op: _Operation, error: Exception) -> steps.Flow[None]:
    """The effect raised: free the key, or remember the error, or admit not to know."""
    if isinstance(error, op.options.remember):
        return (yield from _remember(op, error))
    if op.options.on_error == "unknown":
        return (yield from _mark(op, f"it raised {type(error).__name__}"))

    def free(tx: Tx) -> None:
        _own(tx, op, op.token, ("claimed",))
        tx.put_body(op.record, None)

    yield from _quietly(op, free)


def _remember(op: _Operation, error: Exception) -> steps.Flow[None]:
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


def _mark(op: _Operation, reason: str) -> steps.Flow[None]:
    def mark(tx: Tx) -> None:
        held = _own(tx, op, op.token, ("claimed",))
        _put(tx, op, "unknown", held, reason)

    yield from _quietly(op, mark)


def _quietly(op: _Operation, fn: Callable[[Tx], None]) -> steps.Flow[None]:
    """Write what became of a failed attempt; its own error matters more than this write's.

    If the write is refused or lost, the claim runs out by itself and ends as unknown.
    """
    try:
        yield steps.Transact((op.record,), fn, op.options.by)
    except Exception:
        yield steps.Emit(events.Operated(op.key, op.options.by, "unstored"))


def _end(op: _Operation, token: str, states: tuple[str, ...], value: Any) -> steps.Flow[None]:
    """Store the answer, if this token still holds the operation in one of ``states``."""
    raw = msgspec.Raw(codec.encode(value))

    def end(tx: Tx) -> None:
        _own(tx, op, token, states)
        expires = None if op.claim.expires is None else tx.now + op.claim.expires
        stored = Stored("done", op.claim.fingerprint, op.claim.fields, raw, expires)
        tx.put_body(op.record, receipts.encoded(stored))

    try:
        yield steps.Transact((op.record,), end, op.options.by)
    except LeaseLost as lost:
        lost.details["value"] = value
        yield from _mark_late(op)
        raise


def _mark_late(op: _Operation) -> steps.Flow[None]:
    """An outlived claim that nobody has looked at yet becomes unknown now."""

    def mark(tx: Tx) -> None:
        found = receipts.read(tx.record(op.record))
        if found is None or found.state != "claimed" or found.extra.get("token") != op.token:
            return
        held = msgspec.convert(found.extra, Held)
        _put(tx, op, "unknown", held, "its lease ran out before the effect had returned")

    yield from _quietly(op, mark)


def _own(tx: Tx, op: _Operation, token: str, states: tuple[str, ...]) -> Held:
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


# ------------------------------------------------------------- looking after the unknown


def unresolved(older_than_ms: int, limit: int) -> steps.Flow[list[Unresolved]]:
    """Operations that ended as unknown, or whose lease ran out, at least that long ago."""
    now = yield steps.Now()
    found: list[Unresolved] = []
    after = ""
    while len(found) < limit:
        records = yield steps.Scan(RECEIPTS, after)
        if not records:
            break
        after = records[-1].key
        for record in records:
            stored = receipts.read(record)
            if stored is not None and stored.state in ("claimed", "unknown"):
                held = msgspec.convert(stored.extra, Held)
                over = stored.state == "unknown" or now >= held.until
                if over and now - held.since >= older_than_ms:
                    found.append(_listed(held))
    return found[:limit]


def _listed(held: Held) -> Unresolved:
    reason = held.reason or "its lease ran out; the holder may have crashed"
    return Unresolved(held.scope, held.operation, held.key, held.attempt, held.since, reason)


def resolve(
    scope: str, operation: str, key: str, value: Any, *, done: bool, by: str
) -> steps.Flow[None]:
    """End an unknown operation: it happened and answered ``value``, or it did not happen."""
    record = receipts.receipt_key(scope, operation, key)
    raw = msgspec.Raw(codec.encode(value))

    def end(tx: Tx) -> None:
        found = receipts.read(tx.record(record))
        if found is None:
            raise NotFound(f"there is no operation with the key {key!r}", key=key)
        if found.state == "claimed" and tx.now < found.extra["until"]:
            raise InProgress("this operation is still running; only an unknown one can be ended")
        if found.state not in ("claimed", "unknown"):
            raise UsageError(f"this operation is {found.state}; only an unknown one can be ended")
        if done:
            stored = Stored("done", found.fingerprint, found.fields, raw)
            tx.put_body(record, receipts.encoded(stored))
        else:
            tx.put_body(record, None)

    yield steps.Transact((record,), end, by)


# ------------------------------------------------------------------------------- leaves


def refuse_unstorable(effect: Callable[..., Any]) -> None:
    """Refuse, before anything runs, an effect that declares a result JSON cannot carry."""
    declared = getattr(effect, "__annotations__", {}).get("return")
    name = declared if isinstance(declared, str) else getattr(declared, "__name__", "")
    if name in _UNSTORABLE:
        raise InvalidValue(
            f"the effect declares that it returns {name}, which cannot be stored and replayed "
            "as it was; return JSON values (text for bytes and times, a list for a set)"
        )


_UNSTORABLE = frozenset(
    {"bytes", "bytearray", "set", "frozenset", "tuple", "datetime", "date", "Decimal", "UUID"}
)


def _type_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _revive(error: dict[str, Any], known: Sequence[type[Exception]]) -> Exception:
    """The remembered error, as its own class where the caller still lists it."""
    for cls in known:
        if _type_name(cls) == error["type"]:
            return cls(*error["args"])
    return RuntimeError(f"{error['type']}: {', '.join(map(str, error['args']))}")


# ------------------------------------------------------------------------ the atomic mode


def transact(
    scope: str,
    operation: str,
    key: str,
    keys: str | Sequence[str],
    fn: Fn,
    *,
    payload: Any,
    keep: float | None,
    by: str,
    fence: Fence | None,
    timeout: float | None,
) -> steps.Flow[Receipt]:
    """The operation is one transaction, and so is its receipt."""
    check_fn(fn)
    if payload is None:
        payload = [str(each) for each in declared(keys)]
    digest, fields = receipts.fingerprint(payload)
    expires = None if keep is None else int(keep * 1000)
    claim = Claim(receipts.receipt_key(scope, operation, key), digest, fields, expires)
    names = declared(keys, claim.key, *([fence.lease] if fence else []))
    outcome: Outcome = yield steps.Transact(
        names, fn, by, fence=fence, claim=claim, timeout=timeout
    )
    return Receipt(outcome.result, outcome.replayed)
