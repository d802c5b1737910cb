"""Every interleaving of lease holders and of time that goes by, so of every pause."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from perkey import AsyncDocuments, AsyncLeases, LeaseHeld, LeaseLost
from perkey.flows import leases as flows
from perkey.flows.leases import Grant
from perkey.observe import events
from perkey.store import evaluate
from perkey.store.fencing import LeaseState, lease_body, lease_state
from perkey.store.transaction import Fence, Tx
from perkey.testing import explore
from tests.explore.stepped import SteppedStore

TTL_S = 10


async def shared() -> SteppedStore:
    """A counter, and a witness of who holds the lease by the store's time."""
    store = SteppedStore()
    await AsyncDocuments(store).put("report", 0, create=True)
    store.notes = ["nobody"]

    def witness(event: object) -> None:
        if not isinstance(event, events.LeaseChanged):
            return
        if event.change == "released":
            store.notes[0] = "nobody"
        elif event.change != "renewed":
            holder = store.notes[0]
            if holder != "nobody" and store.clock.elapsed < holder:
                store.notes.append("two holders at once")
            store.notes[0] = store.clock.elapsed + TTL_S

    store.observe(witness)
    return store


async def holder(name: str, store: SteppedStore) -> str:
    """Takes the lease, reads, is slow, and writes back blindly, trusting its lease."""
    try:
        lease = await AsyncLeases(store).acquire("report", ttl=TTL_S, holder=name)
    except LeaseHeld:
        return "held"
    docs = AsyncDocuments(store)
    read = await docs.get("report")
    try:
        await docs.put("report", read.value + 1, overwrite=True, fence=lease.fence)
    except LeaseLost:
        return "late"
    finally:
        await lease.release()
    return "wrote"


async def time_passes(store: SteppedStore) -> None:
    await store.pass_time(TTL_S)


# All of them call themselves the same: only the token may tell them apart.
HOLDERS = [partial(holder, "w")] * 3


def exclusive(store: SteppedStore, ended: Any) -> None:
    """No accepted write is lost, no two hold it at once, and no two tokens are the same."""
    wrote = ended.results.count("wrote")
    assert store.versions("report") == list(range(wrote + 1))
    assert store.notes[1:] == []


def explored(holders: int = 2, expiries: int = 1) -> Any:
    callers = [*HOLDERS[:holders], *[time_passes] * expiries]
    steps = ["transact", "read", "time passes"]
    return explore(shared, callers, check=exclusive, steps=steps, seconds=250)


@pytest.mark.parametrize(("holders", "expiries"), [(2, 2), (3, 1)])
def test_a_lease_excludes_and_its_fence_refuses_whoever_is_late(
    holders: int, expiries: int
) -> None:
    explored(holders, expiries).assert_holds()


def test_it_excludes_whoever_is_cancelled_or_crashes() -> None:
    """Also in the middle of acquiring: then the lease runs out like any dead holder's."""

    def exclusive_of_the_dead(store: SteppedStore, ended: Any) -> None:
        values = store.versions("report")
        assert values == list(range(len(values)))
        assert len(values) > ended.results.count("wrote")
        assert store.notes[1:] == []

    callers = [*HOLDERS[:2], time_passes]
    for budget in ({"cancellations": 1}, {"crashes": 1}):
        found = explore(shared, callers, check=exclusive_of_the_dead, seconds=250, **budget)
        found.assert_holds()


def test_everything_that_can_happen_does() -> None:
    """The scenario reaches a held lease, a late write, and writers one after another."""
    callers = [*HOLDERS[:2], time_passes]
    found = explore(shared, callers, outcome=lambda _, ended: tuple(ended.results[:2]))
    assert {tuple(sorted(each)) for each in found.outcomes} == {
        ("wrote", "wrote"),
        ("held", "wrote"),
        ("late", "wrote"),
        ("held", "late"),
    }


def test_a_fence_that_compares_the_holder_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_name(fence: Fence, record: Any, now: int) -> None:
        state = lease_state(record)
        if state is None or state.holder != "w" or now >= state.expires:
            raise LeaseLost

    monkeypatch.setattr(evaluate, "check_fence", by_name)
    explored().assert_fails("check")


def test_a_fence_that_is_no_part_of_the_commit_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "check_fence", lambda fence, record, now: None)
    explored().assert_fails("check")


def test_a_token_that_starts_over_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_token_one(state: LeaseState) -> bytes:
        return lease_body(LeaseState(state.holder, 1, state.expires))

    def first(key: str, holder: str, token: int, expires: int) -> Grant:
        return Grant(key, holder, 1, expires)

    monkeypatch.setattr(flows, "lease_body", with_token_one)
    monkeypatch.setattr(flows, "Grant", first)
    explored().assert_fails("check")


def test_expiry_by_a_clients_clock_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client's clock is an hour ahead, so every lease of the others looks over to it."""

    def by_own_clock(heads: Any, by: str, now: int) -> Tx:
        return Tx(heads, by, now + 3_600_000 if by == "ahead" else now)

    monkeypatch.setattr(evaluate, "Tx", by_own_clock)
    callers = [HOLDERS[0], partial(holder, "ahead")]
    explore(shared, callers, check=exclusive).assert_fails("check")


def test_a_release_by_name_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late holder's release frees the lease of the one that took over."""

    def by_name(wanted: Fence, tx: Tx) -> LeaseState:
        state = lease_state(tx.record(wanted.lease))
        assert state is not None
        return state

    monkeypatch.setattr(flows, "_checked", by_name)
    explored(3).assert_fails("check")
