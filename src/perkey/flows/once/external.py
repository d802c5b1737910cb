"""The external mode: claim, effect, receipt.

The claim is committed before the effect and carries a lease and a token.  All of it is one
record, so it works on every store.  The model is the idempotency record of Brandur Leach's
"Implementing Stripe-like Idempotency Keys in Postgres" (2017), plus fencing tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perkey.errors import (
    Expired,
    InProgress,
    InvalidValue,
    KeyReused,
    LeaseLost,
    OutcomeUnknown,
)
from perkey.flows import steps
from perkey.flows.once import claims
from perkey.flows.once.model import (
    NOT_DONE,
    UNKNOWN,
    Context,
    Operation,
    Receipt,
    Verdict,
    refuse_unstorable,
)
from perkey.observe import events
from perkey.store import codec
from perkey.store.limits import backoff


def run(op: Operation, effect: Callable[[Context], Any]) -> steps.Flow[Receipt]:
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


def _run(op: Operation, effect: Callable[[Context], Any]) -> steps.Flow[Receipt]:
    verdict = yield from _claim_or_wait(op)
    if verdict.action == "unknown":
        verdict = yield from _resolve_unknown(op, verdict)
    if verdict.action == "replay":
        return Receipt(verdict.value, replayed=True)
    if verdict.action == "expired":
        raise Expired
    if verdict.action == "failed":
        raise claims.revive(verdict.error, op.options.remember)
    return (yield from _perform(op, effect))


def _claim_or_wait(op: Operation) -> steps.Flow[Verdict]:
    waited, attempt = 0.0, 0
    while True:
        verdict = yield from claims.look(op, take_over=False)
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


def _resolve_unknown(op: Operation, verdict: Verdict) -> steps.Flow[Verdict]:
    held = verdict.held
    assert held is not None
    if op.options.verify is not None:
        told = yield steps.Call(op.options.verify, (Context(op.key, held.attempt, held.token),))
        if told is NOT_DONE:
            return (yield from _take_over(op))
        if told is not UNKNOWN:
            yield from claims.end(op, held.token, ("unknown",), told)
            return Verdict("replay", told)
    elif op.options.on_unknown == "rerun":
        yield steps.Emit(events.Operated(op.key, op.options.by, "rerun"))
        return (yield from _take_over(op))
    raise OutcomeUnknown(
        f"attempt {held.attempt} of this operation ended without an answer; it may or may not "
        "have happened. Ask the outside system and end it with resolve(), or give verify=",
        key=op.key,
        attempt=held.attempt,
    )


def _take_over(op: Operation) -> steps.Flow[Verdict]:
    verdict = yield from claims.look(op, take_over=True)
    if verdict.action == "busy":
        raise InProgress(
            "another caller has taken this unknown operation over",
            retry_after=verdict.value / 1000,
        )
    return verdict


def _perform(op: Operation, effect: Callable[[Context], Any]) -> steps.Flow[Receipt]:
    try:
        value = yield steps.Attend(
            effect, (op.context,), op.options.lease / 3, lambda: claims.renew(op)
        )
    except Exception as error:
        yield from claims.failed(op, error)
        raise
    except BaseException as error:
        # A cancellation or Ctrl-C says nothing about what the effect had done by then.
        yield from claims.mark(op, f"interrupted by {type(error).__name__}")
        raise
    try:
        codec.encode(value)
    except InvalidValue as error:
        yield from claims.mark(op, f"its result cannot be stored: {error}")
        raise
    yield from claims.end(op, op.token, ("claimed",), value)
    return Receipt(value, replayed=False)
