"""Two engines on one store: messages, waits and cancellations that meet between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import perkey
from perkey import NotFound, StoreUnavailable, Timeout
from perkey.engine import AsyncEngine, EngineLimits, InstanceState, State, define, message, runner
from perkey.engine.contexts import Context
from perkey.engine.facts import Fact
from perkey.engine.journal import Journal
from perkey.engine.records import instance_key
from perkey.errors import Forbidden, LimitExceeded, Unauthorised
from perkey.store.backends import sqlite
from perkey.store.keys import ENGINE
from tests.engine.processes import LONG, quick, until, waits

Two = tuple[AsyncEngine, AsyncEngine]


@pytest_asyncio.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    """Two engines on two connections to one file, as two processes would have them."""
    url = f"sqlite:///{tmp_path}/e.db"
    async with await perkey.aopen(url) as one, await perkey.aopen(url) as other:
        engines = (AsyncEngine(one, limits=LONG), AsyncEngine(other, limits=LONG))
        yield engines
        for engine in engines:
            await engine.shutdown(60)


async def deploy(engines: Two, body: Any, *starts: Any) -> None:
    for engine in engines:
        await engine.register_process(define("order", body, starts))
        if engine.state is State.NOT_STARTED:
            await engine.run()


async def test_engines_that_start_one_key_at_the_same_moment_lose_no_message(two: Two) -> None:
    async def pair(ctx: Context) -> list[Any]:
        return [ctx.message and ctx.message.payload["n"], (await ctx.receive("placed"))["n"]]

    await deploy(two, pair, message("placed", key="id"))
    for key in range(15):
        sent = await asyncio.gather(
            *[engine.publish("placed", {"id": key, "n": n}) for n, engine in enumerate(two)]
        )
        assert sorted(each.outcome for each in sent) == ["delivered", "started"]
        assert len({each.instance for each in sent}) == 1
        owner = next(n for n in (0, 1) if sent[n].outcome == "started")
        handle = two[owner].instance(sent[owner].instance)
        assert await handle.wait(60) is InstanceState.COMPLETED
        assert sorted(handle.result()) == [0, 1]


async def test_one_message_id_at_two_engines_starts_one(two: Two) -> None:
    await deploy(two, quick, message("placed"))
    for n in range(10):
        sent = await asyncio.gather(
            *[engine.publish("placed", n, message_id=str(n)) for engine in two]
        )
        assert sorted(each.outcome for each in sent) == ["duplicate", "started"]
        assert len({each.instance for each in sent}) == 1


async def test_a_handle_on_an_instance_of_another_engine_sees_its_end(two: Two) -> None:
    gate = asyncio.Event()

    async def body(ctx: Context) -> str:
        await ctx.step("one", lambda: 1)
        await gate.wait()
        if ctx.variables.get("fail"):
            raise ValueError("out of stock")
        return "done"

    await deploy(two, body)
    for fail, ended in ((False, InstanceState.COMPLETED), (True, InstanceState.FAILED)):
        gate.clear()
        calls = [
            engine.start_latest("order", variables={"fail": fail}, idempotency_key=f"k{fail}")
            for engine in two
        ]
        handles = await asyncio.gather(*calls)
        assert handles[0] == handles[1]
        with pytest.raises(Timeout):
            await handles[1].wait(0.05)
        gate.set()
        assert [await each.wait(60) for each in handles] == [ended, ended]
        assert handles[0].steps() == handles[1].steps() == {"one": 1}
        assert handles[0].error == handles[1].error
    with pytest.raises(perkey.UsageError, match="out of stock"):
        handles[1].result()


async def foreign(two: Two) -> Any:
    """A handle of the second engine on an instance that the first one runs."""
    await two[0].start_latest("order", idempotency_key="k")
    handle = await two[1].start_latest("order", idempotency_key="k")
    assert two[1].instances() == []
    return handle


async def test_an_instance_of_another_engine_is_cancelled_there(two: Two) -> None:
    await deploy(two, waits)
    handle = await foreign(two)
    assert await handle.cancel(60) is InstanceState.CANCELLED
    (theirs,) = two[0].instances()
    assert await theirs.wait(60) is InstanceState.CANCELLED
    assert await handle.cancel(60) is InstanceState.CANCELLED


async def test_a_handle_on_an_instance_that_has_gone_says_so(two: Two) -> None:
    await deploy(two, waits)
    handle = await foreign(two)
    journal = two[1]._runner._journal
    assert journal is not None
    record = instance_key(handle.id)
    await journal.commit([record], lambda tx: tx.put_body(record, None))
    with pytest.raises(NotFound, match="has gone"):
        await handle.wait(60)


async def test_what_was_to_be_cancelled_is_not_resumed_by_its_next_owner(two: Two) -> None:
    await deploy(two, waits)
    handle = await foreign(two)
    neighbours = two[0]._runner.neighbours
    assert neighbours is not None
    neighbours.stop()  # it hears nothing any more
    assert two[1]._runner.neighbours is not None
    await two[1]._runner.neighbours.cancel(handle._instance)
    await two[0].shutdown()
    await two[1]._runner.neighbours.recover()
    assert await handle.wait(60) is InstanceState.CANCELLED
    (taken,) = two[1].instances()
    assert (taken.state, taken.steps()) == (InstanceState.CANCELLED, {})


async def test_a_pending_instance_that_is_cancelled_is_not_resumed_elsewhere(two: Two) -> None:
    await deploy(two, quick)
    await two[0].pause()
    handle = await two[0].start_latest("order")
    assert await handle.cancel(60) is InstanceState.CANCELLED
    await two[0].shutdown()
    record = await two[1]._runner._journal.load(handle.id)  # type: ignore[union-attr]
    assert record is not None
    assert record.state == "cancelled"


async def test_a_redelivered_letter_is_received_once(two: Two) -> None:
    async def body(ctx: Context) -> Any:
        first = await ctx.receive("paid", timeout="60s")
        try:
            return [first, await ctx.receive("paid", timeout="50ms")]
        except Timeout:
            return [first]

    await deploy(two, body)
    sent = [
        (await engine.publish("paid", 1, key="b", message_id="p", ttl=600)).outcome
        for engine in (*two, *two)
    ]
    assert sent == ["waiting", "duplicate", "duplicate", "duplicate"]
    handle = await two[0].start_latest("order", business_key="b")
    assert await handle.wait(60) is InstanceState.COMPLETED
    assert handle.result() == [1]
    again = await two[1].publish("paid", 1, key="b", message_id="p", ttl=600)
    assert (again.outcome, again.instance) == ("duplicate", handle.id)


async def test_that_a_wait_was_in_vain_is_kept(tmp_path: Path) -> None:
    """A restart does not decide anew, though the message has come meanwhile."""
    gate = asyncio.Event()

    async def body(ctx: Context) -> str:
        try:
            await ctx.receive("paid", timeout="20ms")
        except Timeout:
            await ctx.step("cancelled", lambda: True)
            await gate.wait()
            return "not paid"
        return "paid"

    async with await perkey.aopen(f"sqlite:///{tmp_path}/e.db") as store:
        one, other = AsyncEngine(store, limits=LONG), AsyncEngine(store, limits=LONG)
        await deploy((one, other), body)
        handle = await one.start_latest("order", business_key="b")
        await until(lambda: "cancelled" in handle.steps())
        await other.publish("paid", 1, key="b", ttl=600)
        await one.shutdown()
        gate.set()
        assert other._runner.neighbours is not None
        await other._runner.neighbours.recover()
        (resumed,) = other.instances()
        assert await resumed.wait(60) is InstanceState.COMPLETED
        assert resumed.result() == "not paid"
        await other.shutdown()


async def test_a_start_whose_caller_is_cancelled_is_not_left_behind(two: Two) -> None:
    """Committed or not: what is in the store runs, and its key is free again afterwards."""
    await deploy(two, quick, message("placed", key="id"))
    for n in range(40):
        task = asyncio.create_task(two[0].publish("placed", {"id": 1, "n": n}))
        for _ in range(n % 8):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    journal = two[0]._runner._journal
    assert journal is not None
    async with asyncio.timeout(60):
        while await journal.scan(f"{ENGINE}k/", 9) or two[0]._starts._asides:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    async with asyncio.timeout(60):
        while any(each.running for each in await journal.page("", 99)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_two_cancellations_at_once_end_an_instance(two: Two) -> None:
    await deploy(two, waits)
    handle = await two[0].start_latest("order")
    await until(lambda: handle.state is InstanceState.RUNNING)
    await asyncio.gather(*[handle.cancel(60) for _ in range(5)])
    assert handle.state is InstanceState.CANCELLED
    assert two[0]._runner.running(handle.id) is None


async def test_a_store_that_fails_for_a_while_costs_no_instance_its_end(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [2]
    original = Journal.finish

    async def fails(journal: Journal, *args: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise StoreUnavailable
        return await original(journal, *args)

    monkeypatch.setattr(Journal, "finish", fails)
    await deploy(two, quick)
    handle = await two[0].start_latest("order", variables={"n": 1})
    assert await handle.wait(60) is InstanceState.COMPLETED
    assert handle.result() == {"n": 1}


async def test_an_end_that_waits_for_its_store_is_written_at_once_when_it_is_cancelled(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a cancellation once ended the task and left the instance running for ever."""
    original = Journal.finish
    tried = [0]

    def fails_once(journal: Journal, *args: Any) -> Any:
        tried[0] += 1
        if tried[0] == 1:
            raise StoreUnavailable
        return original(journal, *args)

    monkeypatch.setattr(Journal, "finish", fails_once)
    monkeypatch.setattr(runner, "RETRY_S", 3600)
    await deploy(two, quick)
    handle = await two[0].start_latest("order", variables={"n": 1})
    await until(lambda: tried == [1])
    assert await handle.cancel(60) is InstanceState.COMPLETED
    assert (handle.result(), tried) == ({"n": 1}, [2])


async def test_an_instance_whose_record_is_full_ends_all_the_same(tmp_path: Path) -> None:
    """Where the reason of its failure has no room either, it was once refused for ever."""

    async def fills(ctx: Context) -> str:
        size, count = 1000, 0
        while size:
            try:
                await ctx.step(f"s{count}", partial(str, "x" * size))
                count += 1
            except LimitExceeded:
                size //= 2
        return "y" * 100

    limits = perkey.Limits(value_bytes=4000)
    async with await perkey.aopen(f"sqlite:///{tmp_path}/e.db", limits=limits) as store:
        engine = AsyncEngine(store, limits=LONG)
        await engine.register_process(define("order", fills))
        await engine.run()
        handle = await engine.start_latest("order")
        assert await handle.wait(60) is InstanceState.FAILED
        assert "at most 4000 bytes" in handle.error
        (stored,) = await Journal(store, "anybody", 60).page("", 9)
        assert (stored.id, stored.state, stored.error) == (handle.id, "failed", "")
        await engine.shutdown(60)


async def test_an_end_that_this_engine_may_not_write_any_more_is_no_failure_of_its_instance(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its token was taken away, and comes back."""
    original, refusals = Journal.finish, [Forbidden(), Unauthorised()]

    def refuses(journal: Journal, *args: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return original(journal, *args)

    monkeypatch.setattr(Journal, "finish", refuses)
    monkeypatch.setattr(runner, "RETRY_S", 0)
    await deploy(two, quick)
    handle = await two[0].start_latest("order", variables={"n": 1})
    assert await handle.wait(60) is InstanceState.COMPLETED
    assert (handle.result(), refusals) == ({"n": 1}, [])


async def test_an_engine_that_stops_leaves_an_end_that_the_store_does_not_take(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = [0]

    def fails(journal: Journal, *args: Any) -> Any:
        tried[0] += 1
        raise StoreUnavailable

    await deploy(two, quick)
    with monkeypatch.context() as broken:
        broken.setattr(Journal, "finish", fails)
        broken.setattr(runner, "RETRY_S", 3600)
        handle = await two[0].start_latest("order", variables={"n": 1})
        await until(lambda: tried == [1])
        await two[0].shutdown(60)
    assert (tried, handle.state) == ([2], InstanceState.CANCELLED)
    assert handle.error.startswith("not stored: ")
    assert two[1]._runner.neighbours is not None
    await two[1]._runner.neighbours.recover()
    await until(lambda: two[1].instances())  # it may be about to take it over by itself
    (resumed,) = two[1].instances()
    assert await resumed.wait(60) is InstanceState.COMPLETED
    assert (resumed.id, resumed.result()) == (handle.id, {"n": 1})


async def test_a_store_that_fails_for_a_while_costs_no_engine_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [2]
    original = Journal.renew_lease

    async def fails(journal: Journal) -> None:
        if left[0]:
            left[0] -= 1
            raise StoreUnavailable
        await original(journal)

    monkeypatch.setattr(Journal, "renew_lease", fails)
    facts: list[Fact] = []
    async with await perkey.aopen(f"sqlite:///{tmp_path}/e.db") as store:
        engine = AsyncEngine(store)

        async def note(fact: Fact) -> None:
            facts.append(fact)

        engine.observe(note)
        await engine.run()
        await until(lambda: [each.detail for each in facts].count("store-unavailable") == 2)
        assert engine.state is State.STARTED
        await engine.shutdown()


async def test_engines_that_left_nothing_are_forgotten(tmp_path: Path) -> None:
    """Else the leases of many would hide the one that left something behind."""
    async with await perkey.aopen(f"sqlite:///{tmp_path}/e.db") as store:
        for _ in range(5):
            engine = AsyncEngine(store)
            await engine.run()
            await engine.shutdown()
        engine = AsyncEngine(store)
        journal = engine._runner._journal
        assert journal is not None
        assert len(await journal.scan(f"{ENGINE}e/", 9)) == 5
        await engine.run()
        assert engine._runner.neighbours is not None
        await engine._runner.neighbours.recover()
        assert len(await journal.scan(f"{ENGINE}e/", 9)) == 1
        await engine.shutdown()


async def test_messages_that_nobody_received_are_told(engine: AsyncEngine) -> None:
    facts: list[Fact] = []
    gate = asyncio.Event()

    async def body(ctx: Context) -> None:
        await gate.wait()

    async def note(fact: Fact) -> None:
        facts.append(fact)

    engine.observe(note)
    await engine.register_process(define("order", body, [message("placed", key="id")]))
    await engine.run()
    await engine.publish("placed", {"id": 1})
    assert (await engine.publish("placed", {"id": 1, "n": 2})).outcome == "delivered"
    gate.set()
    await until(lambda: any(each.kind == "ended" for each in facts))
    assert [each.detail for each in facts if each.kind == "unread"] == ["placed"]
    assert [each.detail for each in facts if each.kind == "delivered"] == ["placed"]


async def test_a_long_recovery_does_not_make_the_lease_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taking over many instances takes as long as it takes; the lease is renewed meanwhile."""
    gate = asyncio.Event()
    renewed = [0]
    original = Journal.renew_lease

    async def counts(journal: Journal) -> None:
        renewed[0] += 1
        await original(journal)

    async def slow(journal: Journal, limit: int) -> list[tuple[str, str]]:
        await gate.wait()
        return []

    stands_still = sqlite.host_ms()
    monkeypatch.setattr(sqlite, "host_ms", lambda: stands_still)  # so no lease runs out
    monkeypatch.setattr(Journal, "renew_lease", counts)
    monkeypatch.setattr(Journal, "orphans", slow)
    async with await perkey.aopen(f"sqlite:///{tmp_path}/e.db") as store:
        engine = AsyncEngine(store, limits=EngineLimits(lease_s=0.3))
        await engine.run()
        await until(lambda: renewed[0] >= 3)
        assert engine.state is State.STARTED
        gate.set()
        await engine.shutdown()
