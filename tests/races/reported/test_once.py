"""Operations that ran twice, never, or with the wrong answer: what other projects reported."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from perkey import InProgress, KeyReused, Once, OutcomeUnknown, StoreUnavailable
from perkey.drivers import threads
from perkey.flows import steps
from perkey.flows.once import claims, external
from perkey.flows.once.model import Context, Operation, Options, Verdict, prepare
from perkey.store import receipts
from perkey.testing import FaultyStore, explore, step
from tests.explore.stepped import SteppedStore
from tests.unit.manual_clock import ManualClock, memory_store

LEASE_S = 30.0


class Outside:
    """The payment provider: how often the money moved there."""

    def __init__(self) -> None:
        self.moves = 0

    def charge(self, context: Context) -> Any:
        self.moves += 1
        return {"charged": self.moves}


# -------------------------------------------------------- two requests with one key at once


async def charge(store: SteppedStore) -> str:
    def move() -> None:
        store.notes[0] += 1

    async def effect(context: Context) -> str:
        await step("charge", move, error=None)
        return "charged"

    op = prepare("", "charge", "k", 1, Options(LEASE_S, wait=0))
    try:
        return str((await store.run(external.run(op, effect))).value)
    except InProgress:
        return "busy"


async def provider() -> SteppedStore:
    store = SteppedStore()
    store.notes = [0]
    return store


def two_requests() -> Any:
    return explore(provider, [charge] * 2, check=lambda s: s.notes[0] == 1, steps=["charge"])


def test_two_requests_with_one_key_charge_once() -> None:
    """As in https://github.com/zonelessdev/zoneless/issues/134 and
    https://github.com/square1-io/laravel-idempotency/issues/1."""
    two_requests().assert_holds()


def test_a_look_before_the_claim_charges_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(op: Operation, *, take_over: bool) -> steps.Flow[Verdict]:
        (record,) = yield steps.Read([op.record])
        found = receipts.read(record)
        if found is not None:
            return Verdict("busy", 1) if found.state == "claimed" else Verdict("replay", "charged")
        take = partial(claims._take, op=op, attempt=1)
        outcome = yield steps.Transact(claims._keys(op, op.slot), take)
        return outcome.result

    monkeypatch.setattr(claims, "look", look)
    two_requests().assert_fails("check")


# --------------------------------------------------------------------- a crash in the middle


def after_a_crash(outside: Outside) -> tuple[Once, Callable[[], Any]]:
    """A process claims the operation and is gone; its lease runs out."""
    clock = ManualClock()
    store = memory_store(clock)
    op = prepare("", "charge", "k", 1, Options(LEASE_S))
    op.token = "gone"
    threads.run(claims.look(op, take_over=False), store.core)
    clock.elapsed += LEASE_S + 1
    once = Once(store)
    options: dict[str, Any] = {"operation": "charge", "lease": LEASE_S, "wait": 0}
    return once, lambda: once.run("k", 1, outside.charge, **options)


def test_after_a_crash_the_key_is_unknown_and_can_be_settled() -> None:
    """As in https://github.com/aws-powertools/powertools-lambda-python/issues/738 and
    https://github.com/VilledeMontreal/express-idempotency/issues/32: 409 for days."""
    outside = Outside()
    once, again = after_a_crash(outside)
    with pytest.raises(OutcomeUnknown):
        again()
    once.resolve("k", operation="charge", value={"charged": 1})
    assert again().value == {"charged": 1}


def test_a_claim_without_an_end_is_busy_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    take = claims._take

    def for_ever(tx: Any, op: Operation, attempt: int, slot: int = -1) -> Verdict:
        op.options = Options(1e9)
        return take(tx, op, attempt, slot)

    monkeypatch.setattr(claims, "_take", for_ever)
    _, again = after_a_crash(Outside())
    with pytest.raises(InProgress):
        again()


def test_after_a_crash_nothing_runs_again_by_itself() -> None:
    """As in https://github.com/aws-powertools/powertools-lambda-python/issues/8049."""
    outside = Outside()
    _, again = after_a_crash(outside)
    for _ in range(3):
        with pytest.raises(OutcomeUnknown):
            again()
    assert outside.moves == 0


def test_an_expired_claim_that_counts_as_none_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    look = claims.look
    monkeypatch.setattr(claims, "look", lambda op, take_over: look(op, take_over=True))
    outside = Outside()
    _, again = after_a_crash(outside)
    again()
    assert outside.moves == 1


# ------------------------------------------------------------- an answer that is no value


def runs_of_a_job_that_returns(value: Any) -> int:
    runs: list[Context] = []

    def job(context: Context) -> Any:
        runs.append(context)
        return value

    once = Once(memory_store(ManualClock()))
    for _ in range(2):
        assert once.run("k", 1, job).value == value
    return len(runs)


@pytest.mark.parametrize("value", [None, 0, "", [], False])
def test_an_empty_answer_is_an_answer(value: Any) -> None:
    """As in https://github.com/pallets-eco/flask-caching/issues/106."""
    assert runs_of_a_job_that_returns(value) == 1


def test_an_answer_that_is_looked_at_as_a_truth_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    replay = claims._replay

    def if_true(tx: Any, op: Operation, found: Any) -> Verdict:
        verdict = replay(tx, op, found)
        return verdict if verdict.value else claims._take(tx, op, attempt=1)

    monkeypatch.setattr(claims, "_replay", if_true)
    assert runs_of_a_job_that_returns(None) == 2


# ------------------------------------------------------------- one key, two payments


def second_payment_under_one_key() -> Any:
    once = Once(memory_store(ManualClock()))
    once.run("k", {"amount": 5}, lambda context: "charged 5")
    return once.run("k", {"amount": 9000}, lambda context: "charged 9000").value


def test_another_payment_under_a_used_key_is_refused() -> None:
    """As in https://github.com/josipmusa/idempotency4j/issues/12 and
    https://github.com/yoyowallet/django-idempotency-key/issues/71."""
    with pytest.raises(KeyReused, match="amount"):
        second_payment_under_one_key()


def test_without_the_comparison_it_gets_the_first_ones_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receipts, "check_same", lambda claim, found: None)
    assert second_payment_under_one_key() == "charged 5"


# ------------------------------------------------------------------ a failed attempt


def answer_after_a_failure() -> Any:
    once = Once(memory_store(ManualClock()))

    def fails(context: Context) -> None:
        raise ConnectionRefusedError

    with pytest.raises(ConnectionRefusedError):
        once.run("k", 1, fails, wait=0)
    return once.run("k", 1, lambda context: "done", wait=0).value


def test_a_failed_attempt_leaves_the_key_free() -> None:
    """As in the review of https://github.com/Noveum/orbit/pull/455."""
    assert answer_after_a_failure() == "done"


def test_a_failure_that_is_not_recorded_leaves_it_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(op: Operation, error: Exception) -> steps.Flow[None]:
        return
        yield

    monkeypatch.setattr(claims, "failed", nothing)
    with pytest.raises(InProgress):
        answer_after_a_failure()


# ------------------------------------------------------- done, and then not noted down


def mails_sent_when_noting_fails() -> int:
    """The mail goes out, the save of "sent" fails, and the job is tried again."""
    clock = ManualClock()
    sent: list[Context] = []
    with FaultyStore(memory_store(clock), fail={2}) as store:
        once = Once(store)
        with pytest.raises(StoreUnavailable):
            once.run("mail-1", 1, sent.append, lease=LEASE_S, wait=0)
        clock.elapsed += LEASE_S + 1
        try:
            once.run("mail-1", 1, sent.append, lease=LEASE_S, wait=0)
        except OutcomeUnknown:
            pass
    return len(sent)


def test_a_mail_whose_note_was_lost_is_not_sent_again() -> None:
    """As in the review of https://github.com/ayunis-core/ayunis-core/pull/1460."""
    assert mails_sent_when_noting_fails() == 1


def test_a_lost_note_that_counts_as_a_failure_sends_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    end = claims.end

    def or_free(op: Operation, *given: Any) -> steps.Flow[None]:
        try:
            yield from end(op, *given)
        except StoreUnavailable as error:
            yield from claims.failed(op, error)
            raise

    monkeypatch.setattr(claims, "end", or_free)
    assert mails_sent_when_noting_fails() == 2
