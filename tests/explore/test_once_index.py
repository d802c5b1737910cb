"""The index of open operations: an operation is in it exactly while it is claimed or unknown.

On a store that commits one key at a time it may be in it for longer, never for less.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from perkey import PerkeyError
from perkey.drivers import threads
from perkey.flows import steps
from perkey.flows.once import claims, external, listed, unresolved
from perkey.flows.once.model import Context, Operation, Options, prepare
from perkey.store import receipts
from perkey.store.keys import OPEN, RECEIPTS, Key
from perkey.store.transaction import Tx
from perkey.testing import explore
from tests.explore.stepped import SteppedStore
from tests.explore.test_once import LEASE_S, time_passes

SLOT = 3


async def together() -> SteppedStore:
    store = SteppedStore(replies_may_be_lost=True)
    store.notes = [0]
    return store


async def apart() -> SteppedStore:
    """A store that commits one key at a time."""
    store = await together()
    store.backend.atomic_keys = 1
    return store


class Declined(Exception):
    pass


def operation(store: SteppedStore, key: str = "k", **options: Any) -> Operation:
    op = prepare("", "pay", key, 1, Options(LEASE_S, wait=0, **options))
    op.apart, op.slot = store.backend.atomic_keys == 1, SLOT
    return op


async def run(store: SteppedStore, op: Operation, raises: bool = False) -> str:
    def effect(context: Context) -> str:
        if raises:
            raise Declined
        return "done"

    try:
        await store.run(external.run(op, effect))
    except (PerkeyError, Declined) as error:
        return type(error).__name__
    return "ended"


async def call(store: SteppedStore, raises: bool = False, **options: Any) -> str:
    return await run(store, operation(store, **options), raises)


async def call_twice(store: SteppedStore) -> str:
    """A runner with one slot: its effect fails, and then it does something else."""
    first = operation(store)
    await run(store, first, raises=True)
    second = operation(store, "other")
    second.gone = second.left = first.left
    return await run(store, second)


async def a_person_resolves(store: SteppedStore) -> str:
    name = unresolved.Name("", "pay", "k")
    single = store.backend.atomic_keys == 1
    try:
        await store.run(unresolved.resolve(name, "done", done=True, by="", apart=single))
    except PerkeyError as error:
        return type(error).__name__
    return "resolved"


async def look_through(store: SteppedStore) -> str:
    single = store.backend.atomic_keys == 1
    await store.run(unresolved.unresolved(0, 10, apart=single, thorough=False))
    return "looked"


def listed_and_open(store: SteppedStore) -> tuple[set[Key], set[Key]]:
    """(what the index names, what is open)."""
    slots = [each for each in store.backend.scan(OPEN, "", 99) if each.key != listed.COMPLETE]
    named = [listed.receipt(each) for slot in slots for each in listed.entries(slot.body)]
    opened = set()
    for record in store.backend.scan(RECEIPTS, "", 99):
        found = receipts.read(record)
        if found is not None and found.state in ("claimed", "unknown"):
            opened.add(Key(record.key))
    return {*named}, opened


def same(store: SteppedStore, ended: Any) -> None:
    named, opened = listed_and_open(store)
    assert named == opened


def at_least(store: SteppedStore, ended: Any) -> None:
    named, opened = listed_and_open(store)
    assert named >= opened, "an open operation is not in the index"


Caller = Callable[[SteppedStore], Any]
RAISES = partial(call, raises=True)
CROWDS: list[tuple[list[Caller], dict[str, int]]] = [
    ([call, call], {"crashes": 1}),
    ([call, time_passes], {"lost_replies": 1}),
    ([RAISES, call], {"crashes": 1}),
    ([partial(call, raises=True, on_error="unknown"), a_person_resolves], {}),
    ([partial(call, raises=True, remember=(Declined,))], {"lost_replies": 1}),
    ([call, time_passes, a_person_resolves], {"crashes": 1}),
    ([call, look_through], {"crashes": 1}),
    ([call], {"cancellations": 1, "lost_replies": 1}),
]


def explored(
    world: Callable[[], Any], callers: list[Caller], budgets: dict[str, Any], check: Any
) -> Any:
    return explore(world, callers, check=check, seconds=250, **budgets)


@pytest.mark.parametrize(("callers", "budgets"), CROWDS)
def test_an_operation_is_listed_exactly_while_it_is_open(
    callers: list[Caller], budgets: dict[str, int]
) -> None:
    explored(together, callers, budgets, same).assert_holds()


@pytest.mark.parametrize(("callers", "budgets"), CROWDS)
def test_where_the_index_has_commits_of_its_own_nothing_open_is_missing(
    callers: list[Caller], budgets: dict[str, int]
) -> None:
    explored(apart, callers, budgets, at_least).assert_holds()


def nothing_stays(store: SteppedStore, ended: Any) -> None:
    """Whoever looks through it leaves only what is open, however its callers ended."""
    at_least(store, ended)
    for _ in range(3):  # a receipt may be named more than once
        threads.run(unresolved.unresolved(0, 10, apart=True, thorough=False), store.core)
    same(store, ended)


PASSING: list[tuple[list[Caller], dict[str, int]]] = [
    ([call, call], {"crashes": 1}),
    ([RAISES, look_through], {"crashes": 1}),
    ([call, look_through], {"lost_replies": 1}),
    ([call, look_through], {"cancellations": 1}),
]


@pytest.mark.parametrize(("callers", "budgets"), PASSING)
def test_an_entry_of_what_is_not_there_goes_when_somebody_looks(
    callers: list[Caller], budgets: dict[str, int]
) -> None:
    explored(apart, callers, budgets, nothing_stays).assert_holds()


def test_two_that_look_while_two_claim() -> None:
    crowd: list[Caller] = [call, RAISES, look_through, look_through]
    drawn: dict[str, Any] = {"mode": "random", "runs": 300, "seed": 3, "crashes": 1}
    assert explored(apart, crowd, drawn, nothing_stays).failure is None


# ------------------------------------------------------------------------------- mutants


def test_an_entry_taken_out_without_moving_the_receipt_on_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        unresolved, "_bar", lambda tx, record: receipts.read(tx.record(record)) is None
    )
    explored(apart, [call, look_through], {"crashes": 1}, at_least).assert_fails("check")


def test_an_entry_taken_out_of_a_slot_that_has_moved_on_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def flow(slot: int, entries: list[str], version: int) -> steps.Flow[None]:
        for entry in entries:
            record = listed.receipt(entry)
            yield steps.Transact((record,), partial(unresolved._bar, record=record))
        key = listed.slot_key(slot)
        yield steps.Transact((key,), lambda tx: listed.strike(tx, slot, entries))

    monkeypatch.setattr(unresolved, "_bar_and_strike", flow)
    explored(apart, [call, look_through], {"crashes": 1}, at_least).assert_fails("check")


def test_a_claim_that_ignores_that_its_receipt_has_moved_on_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = claims._take

    def take(tx: Tx, op: Operation, attempt: int, slot: int = -1) -> Any:
        if op.entered:
            op.seen = tx.version(op.record)
        return original(tx, op, attempt, slot)

    monkeypatch.setattr(claims, "_take", take)
    explored(apart, [call, look_through], {"crashes": 1}, at_least).assert_fails("check")


def test_an_entry_in_a_commit_after_the_claim_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = claims.look

    def look(op: Operation, *, take_over: bool) -> steps.Flow[Any]:
        op.entered = True
        verdict = yield from original(op, take_over=take_over)
        if verdict.action == "run":
            yield from listed.enter_apart(op)
        return verdict

    monkeypatch.setattr(claims, "look", look)
    explored(apart, [call], {"crashes": 1}, at_least).assert_fails("check")


def test_an_entry_that_nobody_strikes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed, "strike_receipt", lambda tx, slot, record: None)
    explored(together, [call], {}, same).assert_fails("check")


def test_striking_an_entry_when_the_outcome_is_unknown_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = claims._put

    def put(tx: Tx, op: Operation, state: str, held: Any, reason: str = "") -> None:
        original(tx, op, state, held, reason)
        if state == "unknown":
            listed.strike_receipt(tx, held.slot, op.record)

    monkeypatch.setattr(claims, "_put", put)
    monkeypatch.setattr(claims, "_keys", lambda op, slot: (listed.slot_key(SLOT), op.record))
    crowd: list[Caller] = [partial(call, raises=True, on_error="unknown")]
    explored(together, crowd, {}, same).assert_fails("check")


def test_entries_that_do_not_tell_two_claims_of_one_key_apart_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A runner takes out what it left behind, and with it the entry of whoever came after."""
    monkeypatch.setattr(listed, "entry", lambda record, token: f"- {record.name}")
    explored(apart, [call_twice, call], {"crashes": 1}, at_least).assert_fails("check")


def test_a_runner_takes_out_only_what_it_left_behind_itself() -> None:
    crowd: list[Caller] = [call_twice, call, RAISES]
    drawn: dict[str, Any] = {"mode": "random", "runs": 200, "seed": 1, "crashes": 1}
    assert explored(apart, crowd, drawn, at_least).failure is None


def test_a_second_attempt_after_a_crash_is_listed_where_the_first_was() -> None:
    again = partial(call, on_unknown="rerun")
    crowd: list[Caller] = [call, call, time_passes, again, again, look_through]
    drawn: dict[str, Any] = {"mode": "random", "runs": 200, "seed": 2, "crashes": 2}
    assert explored(together, crowd, drawn, same).failure is None


def test_every_end_is_reached() -> None:
    found = explore(
        together,
        [call, time_passes, a_person_resolves],
        crashes=1,
        outcome=lambda store, ended: (ended.results[2], len(listed_and_open(store)[0])),
        stop_at_failure=False,
    )
    assert {("resolved", 0), ("InProgress", 1), ("NotFound", 0)} <= {*found.outcomes}
