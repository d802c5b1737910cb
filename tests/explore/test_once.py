"""Every interleaving of callers of one operation, with failures, crashes and time going by.

The outside world is a counter of moves.  Each caller is a process of its own with a runner of
its own, so nothing in memory keeps them apart: only the claim in the store does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from perkey import InProgress, LeaseLost, OutcomeUnknown
from perkey.flows import steps
from perkey.flows.once import claims, external
from perkey.flows.once.model import NOT_DONE, Context, Held, Operation, Options, Verdict, prepare
from perkey.store import receipts
from perkey.store.transaction import Tx
from perkey.testing import explore, register_fingerprint, step
from tests.explore.stepped import SteppedStore

LEASE_S = 10
RECORD = receipts.receipt_key("", "pay", "k")

register_fingerprint(
    Operation,
    lambda op: [
        *(op.token, op.attempt, op.options.on_error, op.options.on_unknown),
        *(op.slot, op.listed, op.entered, op.gone, op.left),
    ],
)
register_fingerprint(Options, lambda options: [options.on_error, options.on_unknown])
register_fingerprint(Verdict, lambda verdict: [verdict.action, verdict.value, verdict.held])
register_fingerprint(Held, lambda held: [held.token, held.until, held.attempt, held.slot])


async def world() -> SteppedStore:
    """``notes`` holds how often money has moved in the outside world."""
    store = SteppedStore()
    store.notes = [0]
    return store


async def pay(store: SteppedStore, on_error: str = "free") -> str:
    """One call of the operation; the effect moves the money in the outside world."""

    def move() -> None:
        store.notes[0] += 1

    async def effect(context: Context) -> str:
        await step("move", move)
        return "moved"

    op = prepare("", "pay", "k", 1, Options(LEASE_S, wait=0, on_error=on_error))
    try:
        receipt = await store.run(external.run(op, effect))
    except InProgress:
        return "busy"
    except OutcomeUnknown:
        return "unknown"
    except LeaseLost:
        return "late"
    assert receipt.value == "moved"
    return "replayed" if receipt.replayed else "ran"


async def time_passes(store: SteppedStore) -> None:
    await store.pass_time(LEASE_S)


def moved_once(store: SteppedStore, ended: Any) -> None:
    """Never twice; an answer means that it happened; and nothing is stuck for ever."""
    moves = store.notes[0]
    assert moves <= 1, f"the money moved {moves} times"
    answers = [each for each in ended.results if each in ("ran", "replayed")]
    assert moves == 1 or not answers
    assert answers.count("ran") <= 1
    (record,) = store.backend.read([RECORD])
    found = receipts.read(record)
    if found is not None and found.state == "claimed":
        assert found.extra["until"] <= store.clock.elapsed * 1000 + LEASE_S * 1000 + ORIGIN


ORIGIN = 1_700_000_000_000


def explored(callers: int = 3, expiries: int = 0, on_error: str = "free", **budgets: int) -> Any:
    who: list[Callable[[SteppedStore], Any]] = [partial(pay, on_error=on_error)] * callers
    return explore(
        world,
        [*who, *[time_passes] * expiries],
        check=moved_once,
        steps=["move", "transact"],
        seconds=250,
        **budgets,
    )


@pytest.mark.parametrize(
    ("callers", "expiries", "budgets"),
    [
        (3, 0, {"failures": 1}),
        (2, 1, {"failures": 1}),
        (2, 1, {"crashes": 1}),
        (2, 1, {"cancellations": 1}),
    ],
)
def test_the_money_moves_at_most_once(callers: int, expiries: int, budgets: dict[str, int]) -> None:
    explored(callers, expiries, **budgets).assert_holds()


def test_a_lost_reply_of_the_outside_world_is_never_repeated() -> None:
    explored(2, 1, on_error="unknown", lost_replies=1).assert_holds()


def test_a_lost_reply_that_is_taken_for_a_failure_moves_it_twice() -> None:
    """Why ``on_error="unknown"`` exists: the library cannot know what an exception means."""
    explored(2, 0, on_error="free", lost_replies=1).assert_fails("check")


def test_running_again_after_unknown_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def rerun(op: Operation, verdict: Verdict) -> steps.Flow[Verdict]:
        return (yield from external._take_over(op))

    monkeypatch.setattr(external, "_resolve_unknown", rerun)
    explored(2, 1, crashes=1).assert_fails("check")


def test_an_expiry_that_ignores_the_holder_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that has run out is taken for a claim that never was."""
    original = claims.look

    def look(op: Operation, *, take_over: bool) -> steps.Flow[Verdict]:
        return original(op, take_over=True)

    monkeypatch.setattr(claims, "look", look)
    explored(2, 1).assert_fails("check")


def test_a_claim_that_looks_outside_its_transaction_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def look(op: Operation, *, take_over: bool) -> steps.Flow[Verdict]:
        (record,) = yield steps.Read([op.record])
        found = receipts.read(record)
        if found is not None:
            return Verdict("busy", 1) if found.state == "claimed" else Verdict("replay", "moved")

        def take(tx: Tx) -> Verdict:
            return claims._take(tx, op, attempt=1)

        outcome = yield steps.Transact(claims._keys(op, op.slot), take)
        return outcome.result

    monkeypatch.setattr(claims, "look", look)
    explored(2).assert_fails("check")


class Fenced(Exception):
    """The outside system refuses a token that it was told to refuse."""


async def pay_fenced(store: SteppedStore) -> str:
    """The outside system compares tokens, and ``verify`` settles an unknown attempt for good.

    A caller that is refused calls once more, so it is its own late arrival.
    """
    fenced: set[str] = store.notes[1]

    def move(context: Context) -> None:
        if context.token in fenced:
            raise Fenced
        store.notes[0] += 1
        store.notes[2] = context.token

    async def effect(context: Context) -> str:
        await step("move", partial(move, context))
        return "moved"

    def verify(context: Context) -> Any:
        if store.notes[2] == context.token:
            return "moved"
        fenced.add(context.token)
        return NOT_DONE

    op = prepare("", "pay", "k", 1, Options(LEASE_S, wait=0, verify=verify))
    for _ in range(2):
        try:
            await store.run(external.run(op, effect))
        except Fenced:
            continue
        except (InProgress, LeaseLost):
            break
        return "answered"
    return "refused"


async def fencing_world() -> SteppedStore:
    store = SteppedStore()
    store.notes = [0, set(), ""]
    return store


def at_most_once(store: SteppedStore) -> None:
    assert store.notes[0] <= 1, f"the money moved {store.notes[0]} times"


def explored_fenced() -> Any:
    callers = [pay_fenced, pay_fenced, time_passes]
    return explore(fencing_world, callers, check=at_most_once, seconds=250)


def test_a_taken_over_attempt_can_neither_store_nor_free_anything() -> None:
    explored_fenced().assert_holds()


def test_freeing_a_claim_without_comparing_its_token_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A late failure frees the claim of whoever took over; the next caller moves it again."""

    def failed(op: Operation, error: Exception) -> steps.Flow[None]:
        def free(tx: Tx) -> None:
            tx.put_body(op.record, None)

        yield steps.Transact((op.record,), free)

    monkeypatch.setattr(claims, "failed", failed)
    explored_fenced().assert_fails("check")


def test_a_receipt_before_the_effect_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def perform(op: Operation, effect: Any) -> steps.Flow[Any]:
        yield from claims.end(op, op.token, ("claimed",), "moved")
        value = yield steps.Attend(effect, (op.context,), 1.0, lambda: claims.renew(op))
        return external.Receipt(value, replayed=False)

    monkeypatch.setattr(external, "_perform", perform)
    explored(2, crashes=1).assert_fails("check")


def test_a_claim_without_expiry_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = claims._take

    def for_ever(tx: Tx, op: Operation, attempt: int, slot: int = -1) -> Verdict:
        tx.now += 10**9
        return original(tx, op, attempt, slot)

    monkeypatch.setattr(claims, "_take", for_ever)
    explored(1, crashes=1).assert_fails("check")


def test_every_end_is_reached() -> None:
    found = explore(
        world,
        [pay, pay, time_passes],
        failures=1,
        outcome=lambda store, ended: (store.notes[0], tuple(sorted(map(str, ended.results[:2])))),
        stop_at_failure=False,
    )
    ends = {end for _, both in found.outcomes for end in both}
    assert {"ran", "replayed", "busy", "unknown", "late"} <= ends
