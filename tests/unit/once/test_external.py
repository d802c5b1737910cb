"""The external mode: claims, answers, failures, and what nobody knows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime
from hashlib import blake2b
from typing import Any

import pytest

from perkey import (
    Expired,
    InProgress,
    InvalidValue,
    KeyReused,
    LeaseLost,
    NotFound,
    Once,
    OutcomeUnknown,
    Store,
    Timeout,
    UsageError,
)
from perkey.once import NOT_DONE, UNKNOWN, Context, once
from tests.unit.manual_clock import ManualClock, memory_store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Iterator[Store]:
    with memory_store(clock) as opened:
        yield opened


@pytest.fixture
def runner(store: Store) -> Once:
    return Once(store)


class Effect:
    """An effect that counts its calls and does what it was told, call by call."""

    def __init__(self, *acts: Any) -> None:
        self.acts = list(acts) or ["done"]
        self.contexts: list[Context] = []

    def __call__(self, context: Context) -> Any:
        self.contexts.append(context)
        act = self.acts.pop(0) if len(self.acts) > 1 else self.acts[0]
        if isinstance(act, BaseException):
            raise act
        return act() if callable(act) else act

    @property
    def calls(self) -> int:
        return len(self.contexts)


@pytest.mark.parametrize("value", [0, False, "", [], {}, None, 1.5, {"a": [1, None]}, "x" * 5000])
def test_a_repeat_gets_an_equal_answer_of_the_same_type(runner: Once, value: Any) -> None:
    effect = Effect(value)
    first = runner.run("k", {"n": 1}, effect)
    again = runner.run("k", {"n": 1}, effect)
    assert (first.replayed, again.replayed, effect.calls) == (False, True, 1)
    assert again.value == first.value == value
    assert type(again.value) is type(value)


def test_another_payload_is_refused_and_the_field_named_never_its_value(runner: Once) -> None:
    runner.run("k", {"amount": 1, "to": "ann"}, Effect())
    with pytest.raises(KeyReused) as refused:
        runner.run("k", {"amount": 987654, "to": "ann"}, Effect())
    assert refused.value.fields == ["amount"]
    assert "987654" not in str(refused.value)


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (1, 1.0), (1, "1"), ({"a": 1}, {"a": 1, "b": None}), ("é", "e\u0301"), ([], {})],
)
def test_payloads_that_look_alike_are_different(runner: Once, one: Any, other: Any) -> None:
    runner.run("k", one, Effect())
    with pytest.raises(KeyReused):
        runner.run("k", other, Effect())


def test_the_order_of_fields_does_not_matter(runner: Once) -> None:
    runner.run("k", {"a": 1, "b": {"x": 1, "y": 2}}, Effect())
    assert runner.run("k", {"b": {"y": 2, "x": 1}, "a": 1}, Effect()).replayed


def test_scope_operation_and_key_never_run_into_each_other(store: Store) -> None:
    effect = Effect()
    names = [
        ("ab", "c", "d"),
        ("a", "bc", "d"),
        ("a", "b", "cd"),
        ("1:a", "b", "d"),
        ("", "c", "d"),
    ]
    for scope, operation, key in names:
        assert not Once(store, scope).run(key, 1, effect, operation=operation).replayed
    assert effect.calls == len(names)


def test_the_fingerprint_is_pinned(store: Store) -> None:
    from perkey.store.receipts import fingerprint

    assert fingerprint({"b": [1, True, None], "a": "é"})[0] == PINNED
    assert fingerprint({"a": "é", "b": [1, True, None]})[0] == PINNED
    form = '{"a":"é","b":[1,true,null]}'.encode()
    assert blake2b(form, key=b"1", digest_size=16).hexdigest() == PINNED.removeprefix("1:")


PINNED = "1:67e3550ae58e0bcd6d730f47e7ae97a1"


def test_an_effect_that_raises_leaves_nothing_and_runs_again(runner: Once) -> None:
    effect = Effect(ValueError("down"), "up")
    with pytest.raises(ValueError, match="down"):
        runner.run("k", 1, effect)
    assert runner.run("k", 1, effect).value == "up"
    assert [context.attempt for context in effect.contexts] == [1, 1]


def test_an_ambiguous_failure_ends_as_unknown_and_never_runs_again(runner: Once) -> None:
    effect = Effect(TimeoutError("no answer"), "second")
    with pytest.raises(TimeoutError):
        runner.run("k", 1, effect, on_error="unknown")
    for _ in range(3):
        with pytest.raises(OutcomeUnknown):
            runner.run("k", 1, effect)
    assert effect.calls == 1
    (left,) = runner.unresolved()
    assert (left.key, left.attempt, left.reason) == ("k", 1, "it raised TimeoutError")


class Declined(Exception):
    pass


def test_a_remembered_error_is_the_answer_from_then_on(runner: Once) -> None:
    effect = Effect(Declined("no funds", 42), "second")
    for _ in range(2):
        with pytest.raises(Declined) as declined:
            runner.run("k", 1, effect, remember=(Declined,))
        assert declined.value.args == ("no funds", 42)
    assert effect.calls == 1


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit(3)])
def test_an_interrupt_says_nothing_about_what_was_done(
    runner: Once, interrupt: BaseException
) -> None:
    effect = Effect(interrupt, "second")
    with pytest.raises(type(interrupt)):
        runner.run("k", 1, effect)
    with pytest.raises(OutcomeUnknown):
        runner.run("k", 1, effect)
    assert effect.calls == 1


@pytest.mark.parametrize("value", [b"x", {1}, (1, 2), datetime(2026, 1, 1), float("nan"), object()])
def test_a_result_that_cannot_be_stored_ends_as_unknown_with_its_reason(
    runner: Once, value: Any
) -> None:
    effect = Effect(value)
    with pytest.raises(InvalidValue):
        runner.run("k", 1, effect)
    with pytest.raises(OutcomeUnknown):
        runner.run("k", 1, effect)
    assert effect.calls == 1
    assert "cannot be stored" in runner.unresolved()[0].reason


def test_a_declared_result_that_cannot_be_stored_is_refused_before_anything_runs(
    runner: Once,
) -> None:
    ran: list[int] = []

    def effect(context: Context) -> bytes:
        ran.append(1)
        return b""

    with pytest.raises(InvalidValue, match="bytes"):
        runner.run("k", 1, effect)
    assert ran == []
    assert runner.run("k", 1, Effect()).replayed is False


def test_a_holder_that_outlives_its_lease_can_store_nothing(
    runner: Once, clock: ManualClock
) -> None:
    def late() -> str:
        clock.elapsed += 31
        return "late"

    effect = Effect(late, "second")
    with pytest.raises(LeaseLost) as lost:
        runner.run("k", 1, effect, lease=30)
    assert lost.value.value == "late"
    with pytest.raises(OutcomeUnknown):
        runner.run("k", 1, effect)
    assert effect.calls == 1


def crashed(store: Store, clock: ManualClock) -> Effect:
    """An attempt whose process died: its claim stays, and its lease has run out."""
    from perkey.flows.once import claims
    from perkey.flows.once.model import Options, prepare

    op = prepare("", "run", "k", 1, Options(lease=30))
    op.token = "dead"
    store.run(claims.look(op, take_over=False))
    clock.elapsed += 31
    return Effect("second")


def test_a_crash_ends_as_unknown_when_its_lease_has_run_out(
    runner: Once, store: Store, clock: ManualClock
) -> None:
    effect = crashed(store, clock)
    with pytest.raises(OutcomeUnknown):
        runner.run("k", 1, effect)
    assert effect.calls == 0
    assert "may have crashed" in runner.unresolved(older_than=30)[0].reason
    assert runner.unresolved(older_than=32) == []


@pytest.mark.parametrize(
    ("told", "value", "calls"), [("it was done", "it was done", 0), (NOT_DONE, "second", 1)]
)
def test_verify_asks_the_outside_system(
    runner: Once, store: Store, clock: ManualClock, told: Any, value: Any, calls: int
) -> None:
    effect = crashed(store, clock)
    asked: list[Context] = []

    def verify(context: Context) -> Any:
        asked.append(context)
        return told

    receipt = runner.run("k", 1, effect, verify=verify)
    assert (receipt.value, effect.calls) == (value, calls)
    assert (asked[0].key, asked[0].attempt, asked[0].token) == ("k", 1, "dead")
    assert runner.run("k", 1, effect).value == value
    if calls:
        assert effect.contexts[0].attempt == 2


def test_verify_may_not_know_either(runner: Once, store: Store, clock: ManualClock) -> None:
    effect = crashed(store, clock)
    with pytest.raises(OutcomeUnknown):
        runner.run("k", 1, effect, verify=lambda context: UNKNOWN)
    assert effect.calls == 0


def test_running_again_after_unknown_is_the_callers_explicit_choice(
    runner: Once, store: Store, clock: ManualClock
) -> None:
    effect = crashed(store, clock)
    assert runner.run("k", 1, effect, on_unknown="rerun").value == "second"
    assert runner.statistics()["rerun"] == 1


@pytest.mark.parametrize("done", [True, False])
def test_resolve_ends_an_unknown_operation(
    runner: Once, store: Store, clock: ManualClock, done: bool
) -> None:
    effect = crashed(store, clock)
    runner.resolve("k", value={"id": 7}, done=done)
    receipt = runner.run("k", 1, effect)
    assert (receipt.value, receipt.replayed) == (({"id": 7}, True) if done else ("second", False))
    with pytest.raises(UsageError, match="done"):
        runner.resolve("k")
    with pytest.raises(NotFound):
        runner.resolve("never")


def test_a_running_operation_cannot_be_resolved(runner: Once) -> None:
    def effect(context: Context) -> None:
        with pytest.raises(InProgress):
            runner.resolve("k")

    runner.run("k", 1, effect)


def test_another_process_at_work_is_waited_for_or_reported(
    store: Store, clock: ManualClock
) -> None:
    ours, theirs = Once(store), Once(store)

    def effect(context: Context) -> str:
        with pytest.raises(InProgress) as busy:
            theirs.run("k", 1, Effect(), wait=0)
        assert 0 < busy.value.retry_after <= 30
        with pytest.raises(InProgress):
            theirs.run("k", 1, Effect(), wait=0.5)
        return "ours"

    assert ours.run("k", 1, effect).value == "ours"
    assert theirs.run("k", 1, Effect()).value == "ours"


def test_an_expired_answer_never_becomes_a_second_run(runner: Once, clock: ManualClock) -> None:
    effect = Effect()
    runner.run("k", 1, effect, keep=60)
    clock.elapsed += 59
    assert runner.run("k", 1, effect).replayed
    clock.elapsed += 1
    for _ in range(2):
        with pytest.raises(Expired):
            runner.run("k", 1, effect)
    with pytest.raises(KeyReused):
        runner.run("k", 2, effect)
    assert effect.calls == 1


def test_the_lease_is_renewed_while_the_effect_runs(
    runner: Once, store: Store, clock: ManualClock
) -> None:
    other, pause = Once(store), threading.Event()

    def effect(context: Context) -> str:
        for _ in range(3):  # twice as long as the lease, in all
            before = store.core.statistics()["commits"]
            while store.core.statistics()["commits"] == before:
                pause.wait(0.001)
            clock.elapsed += 0.2
            with pytest.raises(InProgress):
                other.run("k", 1, effect, wait=0)
        return "done"

    assert runner.run("k", 1, effect, lease=0.3).value == "done"


@pytest.mark.parametrize(
    "options",
    [{"lease": 0}, {"wait": -1}, {"keep": 0}, {"on_error": "?"}, {"on_unknown": "maybe"}],
)
def test_options_that_mean_nothing_are_refused(runner: Once, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        runner.run("k", 1, Effect(), **options)


def test_sixteen_threads_with_one_key_run_the_effect_once(runner: Once) -> None:
    effect = Effect("done")
    answers: list[Any] = []

    def call() -> None:
        answers.append(runner.run("k", 1, effect).value)

    threads = [threading.Thread(target=call) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (effect.calls, answers) == (1, ["done"] * 16)
    assert runner.statistics() == {"ran": 1, "replayed": 15}


def test_the_decorator_takes_its_key_from_the_arguments(runner: Once) -> None:
    sent: list[tuple[str, int]] = []

    @once(runner, key=lambda order, amount: order)
    def charge(order: str, amount: int) -> dict[str, int]:
        sent.append((order, amount))
        return {"charged": amount}

    assert charge("o1", 5) == charge("o1", 5) == {"charged": 5}
    assert charge("o2", 5) == {"charged": 5}
    assert sent == [("o1", 5), ("o2", 5)]
    with pytest.raises(KeyReused):
        charge("o1", 6)


def test_a_timeout_of_the_effect_is_not_taken_for_a_wait_for_its_turn(runner: Once) -> None:
    effect = Effect(Timeout("the bank did not answer"), "second")
    with pytest.raises(Timeout, match="the bank"):
        runner.run("k", 1, effect, wait=0)
    assert runner.run("k", 1, effect, wait=0).value == "second"  # its turn and slot were given back
    assert runner.statistics() == {"raised": 1, "ran": 1}
