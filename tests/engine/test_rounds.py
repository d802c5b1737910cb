"""What a crowd asks for in one round of the loop: together, and each with an answer of its own."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

import perkey
from perkey import LeaseLost, LimitExceeded, Limits, OutcomeUnknown, StoreUnavailable
from perkey.engine import AsyncEngine, EngineLimits, InstanceState, rounds
from perkey.engine.changes import Riding
from perkey.engine.contexts import Context
from perkey.engine.journal import Journal
from perkey.engine.records import place
from perkey.engine.rounds import ROOM, TOGETHER, Alone, Asked, Dropped, Rounds
from perkey.store.backends import sqlite
from perkey.store.fencing import lease_state
from perkey.store.keys import ENGINE, Key
from perkey.store.transaction import Outcome, Tx
from perkey.testing import VirtualClock
from tests.engine.processes import LONG, order, quick, until


class Store:
    """As much of a journal as rounds need: commits wait for ``gate``, and may fail."""

    def __init__(self, *failures: Exception, atomic_keys: int | None = None) -> None:
        self.bodies: dict[Key, bytes] = {}
        self.committed: list[set[Key]] = []
        self.failures = list(failures)
        self.gate = asyncio.Event()
        self.gate.set()
        self.rounds = Rounds(self.submit, atomic_keys)
        self.rounds.callers = 1  # somebody asks for something else

    async def submit(self, keys: set[Key], fn: Any) -> Outcome:
        self.committed.append(keys)
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        tx = Tx(dict.fromkeys(keys), "engine", 0)
        result = fn(tx)
        self.bodies |= {key: body for key, (body, _) in tx.finish().items() if body is not None}
        return Outcome(result)

    def put(self, name: str, fails: Exception | None = None) -> Any:
        key = Key(f"p/x/{name}")

        def put(tx: Tx) -> str:
            if fails is not None:
                raise fails
            tx.put_body(key, name.encode())
            return name

        return self.rounds.ask({key}, put)

    def names(self) -> list[str]:
        return sorted(body.decode() for body in self.bodies.values())


async def result_of(asked: Any) -> Any:
    return await asked


async def answers(*asked: Any) -> list[Any]:
    return await asyncio.gather(*map(result_of, asked), return_exceptions=True)


# ------------------------------------------------------------------------------- together


async def test_a_round_shares_transactions() -> None:
    store = Store()
    asked = [store.put(f"{n:03}") for n in range(2 * TOGETHER + 1)]
    assert store.committed == []
    assert await answers(*asked) == [f"{n:03}" for n in range(2 * TOGETHER + 1)]
    assert [len(each) for each in store.committed] == [TOGETHER, TOGETHER, 1]
    assert await store.put("late") == "late"
    assert len(store.committed) == 4


@pytest.mark.parametrize(("atomic", "most"), [(None, ROOM), (10_000, ROOM), (6, 5), (2, 1)])
async def test_no_transaction_has_more_keys_than_the_store_takes(
    atomic: int | None, most: int
) -> None:
    """One is left for the lease; what needs more alone is for the store to refuse."""
    store = Store(atomic_keys=atomic)
    chance = random.Random(1)
    keys = [{Key(f"p/{n}/{k}") for k in range(chance.randrange(1, 6))} for n in range(200)]
    asked = [store.rounds.ask(each, lambda tx: 1) for each in keys]
    assert await answers(*asked) == [1] * 200
    assert all(len(each) <= max(most, 5) for each in store.committed)
    assert any(len(each) > most - 5 for each in store.committed)
    assert set().union(*store.committed) == set().union(*keys)


async def test_who_asks_alone_waits_for_nobody() -> None:
    store = Store()
    store.rounds.callers = 0
    for name in "ab":
        asked = store.put(name)
        assert isinstance(asked, Alone)
        assert await asked == name
    first, second = store.put("c"), store.put("d")
    assert isinstance(second, Asked)
    assert await answers(first, second) == ["c", "d"]
    assert [len(each) for each in store.committed] == [1, 1, 1, 1]
    assert await answers(*[store.put(name) for name in "efg"]) == ["e", "f", "g"]
    assert [len(each) for each in store.committed[4:]] == [1, 2]
    assert await answers(*[store.put(name) for name in "hij"]) == ["h", "i", "j"]
    assert [len(each) for each in store.committed[6:]] == [3]  # a crowd is expected back
    assert isinstance(store.put("k"), Asked)
    await until(lambda: not store.rounds.callers)
    with pytest.raises(LeaseLost):
        await store.put("l", fails=LeaseLost("it has passed on"))
    assert store.rounds.callers == 0


async def test_who_asked_alone_and_left_has_to_look() -> None:
    store = Store()
    store.rounds.callers = 0
    store.gate.clear()
    asked = store.put("a")
    waiting = asyncio.ensure_future(result_of(asked))
    await until(lambda: store.committed)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    told: list[Any] = []
    asked.leave(told.append)
    assert [type(error) for _, error in told] == [OutcomeUnknown]
    assert store.rounds.callers == 0


async def test_what_one_raises_is_its_own() -> None:
    store = Store()
    lost = LeaseLost("it has passed on")
    one, bad, other = store.put("one"), store.put("bad", fails=lost), store.put("other")
    assert await answers(one, bad, other) == ["one", lost, "other"]
    assert len(store.committed) == 1
    assert store.names() == ["one", "other"]


async def test_what_is_refused_because_of_one_is_tried_alone() -> None:
    store = Store(LimitExceeded("too large"), LimitExceeded("this one"))
    found = await answers(*[store.put(name) for name in "abc"])
    assert [type(each) for each in found] == [LimitExceeded, str, str]
    assert [len(each) for each in store.committed] == [3, 1, 1, 1]
    assert store.names() == ["b", "c"]


@pytest.mark.parametrize("trouble", [StoreUnavailable("gone"), OutcomeUnknown("who knows")])
async def test_a_store_that_fails_is_told_to_each(trouble: Exception) -> None:
    store = Store(trouble)
    found = await answers(store.put("a"), store.put("b"))
    assert [type(each) for each in found] == [type(trouble)] * 2
    assert found[0] is not found[1]
    assert len(store.committed) == 1


# ------------------------------------------------------------------------- whoever goes away


async def test_nothing_is_done_for_who_left_before_the_round_was_over() -> None:
    store = Store()
    told: list[Any] = []
    gone, stays = store.put("gone"), store.put("stays")
    gone.future.cancel()
    gone.leave(told.append)
    assert await stays == "stays"
    assert store.names() == ["stays"]
    assert [type(error) for _, error in told] == [Dropped]


async def test_whoever_leaves_later_is_told_what_came_of_it() -> None:
    store = Store()
    told: list[Any] = []
    store.gate.clear()
    gone, stays = store.put("gone"), store.put("stays")
    await until(lambda: store.committed)
    gone.future.cancel()
    gone.leave(told.append)
    store.gate.set()
    assert await stays == "stays"
    assert told == [("gone", None)]


async def test_whoever_leaves_when_it_is_done_is_told_at_once() -> None:
    store = Store()
    told: list[Any] = []
    gone = store.put("gone")
    await gone
    gone.leave(told.append)
    assert told == [("gone", None)]


async def test_a_loop_that_ends_leaves_nobody_waiting() -> None:
    store = Store()
    store.gate.clear()
    waiting = asyncio.ensure_future(result_of(store.put("a")))
    await until(lambda: store.committed)
    (carrying,) = store.rounds._under_way
    carrying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert store.rounds.callers == 1


# ---------------------------------------------------------------------------- in an engine


async def test_a_start_that_is_too_large_disturbs_no_other(tmp_path: Path) -> None:
    limits = Limits(value_bytes=4000)
    async with await perkey.aopen(f"sqlite:///{tmp_path}/e.db", limits=limits) as store:
        engine = AsyncEngine(store, limits=LONG)
        await engine.register_process(order(quick))
        await engine.run()
        sizes = [5000 if n == 7 else 10 for n in range(20)]
        calls = [engine.start_latest("order", variables={"x": "x" * size}) for size in sizes]
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [n for n, each in enumerate(found) if isinstance(each, LimitExceeded)] == [7]
        for handle in found:
            if isinstance(handle, BaseException):
                continue
            assert await handle.wait(60) is InstanceState.COMPLETED
        await engine.shutdown(60)


async def test_a_crowd_shares_transactions_on_a_strict_store() -> None:
    """Each function runs twice there, and must say the same."""
    async with await perkey.aopen("memory://", strict=True) as store:
        engine = AsyncEngine(store, limits=LONG)
        await engine.register_process(order(quick))
        await engine.run()
        calls = [engine.start_latest("order", idempotency_key=f"{n % 10}") for n in range(40)]
        handles = await asyncio.gather(*calls)
        assert len({each.id for each in handles}) == 10
        for handle in handles:
            assert await handle.wait(60) is InstanceState.COMPLETED
        await engine.shutdown(60)


async def test_one_key_among_a_crowd_is_taken_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that share a transaction see what the ones before them wrote."""
    monkeypatch.setattr(rounds, "TOGETHER", 50)
    async with await perkey.aopen("memory://") as store:
        engines = [AsyncEngine(store, limits=LONG) for _ in range(2)]
        for engine in engines:
            await engine.register_process(order(quick))
            await engine.run()
        calls = [
            engine.start_latest("order", idempotency_key="k")
            for _ in range(20)
            for engine in engines
        ]
        assert len({each.id for each in await asyncio.gather(*calls)}) == 1
        for engine in engines:
            await engine.shutdown(60)


# ------------------------------------------------------------------- a burst and the lease


TERM_S = 10.0


@pytest.fixture
def slow_commits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Each commit of an SQLite store takes so many seconds of its time, and none of ours."""
    real, took, passed = sqlite.host_ms(), [0.0], [0.0]
    original = sqlite.SqliteBackend.apply

    def apply(self: Any, batch: Any) -> Any:
        passed[0] += took[0]
        return original(self, batch)

    monkeypatch.setattr(sqlite, "host_ms", lambda: real + round(passed[0] * 1000))
    monkeypatch.setattr(sqlite.SqliteBackend, "apply", apply)
    return took


async def burst(path: Path, took: list[float], seed: int) -> list[type]:
    """A burst of starts that keeps the store busy for several terms of the lease."""
    chance = random.Random(seed)
    gate = asyncio.Event()

    async def body(ctx: Context) -> None:
        await gate.wait()

    limits = Limits(batch=chance.randrange(1, 4))
    async with await perkey.aopen(f"sqlite:///{path}/e.db", limits=limits) as store:
        engine = AsyncEngine(store, limits=EngineLimits(lease_s=TERM_S))
        await engine.register_process(order(body))
        await engine.run()
        assert engine._runner.neighbours is not None
        for task in engine._runner.neighbours._tasks:  # the renewal comes when the test says so
            task.cancel()
        journal = engine._journal
        assert journal is not None
        took[0] = chance.uniform(0.3, 3.0)
        count = round(4 * TERM_S / took[0]) * limits.batch * TOGETHER
        calls: list[Any] = [engine.start_latest("order") for _ in range(count)]
        found = await asyncio.gather(*calls, journal.renew_lease(), return_exceptions=True)
        took[0] = 0.0
        gate.set()
        await engine.shutdown(60)
        return [type(each) for each in found if isinstance(each, BaseException)]


@pytest.mark.parametrize("seed", range(3))
async def test_a_burst_of_starts_costs_no_engine_its_lease(
    tmp_path: Path, slow_commits: list[float], seed: int
) -> None:
    """The renewal waits behind them all; each of them renews the lease where it is due."""
    assert await burst(tmp_path, slow_commits, seed) == []


async def test_a_lease_that_only_its_renewal_keeps_is_lost(
    tmp_path: Path, slow_commits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Riding, "__call__", lambda self, tx: self.fn(tx))
    assert set(await burst(tmp_path, slow_commits, 0)) == {LeaseLost}


async def held_until(journal: Journal) -> int:
    (record,) = await journal.scan(f"{ENGINE}e/", 1)
    state = lease_state(record)
    assert state is not None
    return state.expires


async def test_a_lease_is_renewed_when_a_third_of_its_term_is_over() -> None:
    clock = VirtualClock()
    async with await perkey.aopen("memory://", clock=clock) as store:
        journal = Journal(store, "one", TERM_S)
        await journal.take_lease()
        key, began = place("x", "1"), await held_until(journal)

        async def commit() -> int:
            await journal.commit([key], lambda tx: tx.put_body(key, b"1"))
            return await held_until(journal) - began

        clock.advance(3)
        assert await commit() == 0
        clock.advance(1)
        assert await commit() == 4000
        clock.advance(9)
        assert await commit() == 13000
        journal.keeps_lease = False  # it is about to stop
        clock.advance(5)
        assert await commit() == 13000
        clock.advance(5)
        with pytest.raises(LeaseLost):
            await commit()


async def test_a_lease_that_is_given_back_is_not_kept_by_what_comes_with_it() -> None:
    clock = VirtualClock()
    async with await perkey.aopen("memory://", clock=clock) as store:
        journal = Journal(store, "one", TERM_S)
        await journal.take_lease()
        clock.advance(8)
        await journal.give_lease()
        assert await held_until(journal) == 0
