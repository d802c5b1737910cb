"""What a durable engine leaves behind on its store, and that it does not pile up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perkey
from perkey import QueueFull, StoreUnavailable, Timeout
from perkey.engine import AsyncEngine, EngineLimits, InstanceState
from perkey.engine.contexts import Context
from perkey.engine.journal import Journal
from perkey.engine.neighbours import Neighbours
from perkey.engine.records import place
from perkey.engine.tidying import PAGE, Tidier
from perkey.store.keys import ENGINE
from perkey.stores import AsyncStore
from perkey.testing import VirtualClock
from tests.engine.processes import order, quick, until, waits

DAY_S = 86_400.0


def journal_of(engine: AsyncEngine) -> Journal:
    assert engine._journal is not None
    return engine._journal


async def records(engine: AsyncEngine, kind: str) -> list[str]:
    found: list[str] = []
    while page := await journal_of(engine).scan(
        f"{ENGINE}{kind}/", 500, found[-1] if found else ""
    ):
        found += [each.key for each in page]
    return found


async def started(store: AsyncStore, body: Any = quick, **limits: Any) -> AsyncEngine:
    engine = AsyncEngine(store, limits=EngineLimits(lease_s=1e9, **limits))
    await engine.register_process(order(body))
    await engine.run()
    return engine


async def test_ended_instances_are_dropped_when_their_time_is_over() -> None:
    clock = VirtualClock()
    async with await perkey.aopen("memory://", clock=clock) as store:
        engine = await started(store)
        tidier = Tidier(journal_of(engine), DAY_S)
        handles = [await engine.start_latest("order") for _ in range(3 * PAGE)]
        for handle in handles:
            assert await handle.wait(60) is InstanceState.COMPLETED
        clock.advance(DAY_S - 1)
        late = await engine.start_latest("order")
        await late.wait(60)
        for _ in range(4):
            await tidier.look()
        assert len(await records(engine, "i")) == 3 * PAGE + 1
        clock.advance(1)
        for _ in range(2):
            await tidier.look()
        assert [late.id in each for each in await records(engine, "i")] == [True]
        await engine.shutdown(60)


async def test_what_still_runs_is_kept_however_old_it_is() -> None:
    clock = VirtualClock()
    async with await perkey.aopen("memory://", clock=clock) as store:
        engine = await started(store, waits)
        await engine.start_latest("order")
        clock.advance(400 * DAY_S)
        await Tidier(journal_of(engine), DAY_S).look()
        assert len(await records(engine, "i")) == 1
        await engine.shutdown(60)


async def test_an_idempotency_key_outlives_the_record_of_its_instance() -> None:
    clock = VirtualClock()
    async with await perkey.aopen("memory://", clock=clock) as store:
        engine = await started(store, finished=1)
        first = await engine.start_latest("order", idempotency_key="once")
        await first.wait(60)
        await (await engine.start_latest("order")).wait(60)  # nobody remembers the first one now
        clock.advance(2 * DAY_S)
        await Tidier(journal_of(engine), DAY_S).look()
        assert await records(engine, "i") == []
        with pytest.raises(perkey.NotFound, match="has gone"):
            await engine.start_latest("order", idempotency_key="once")
        assert await records(engine, "i") == []
        await engine.shutdown(60)


async def test_a_record_that_changed_since_the_look_is_judged_again() -> None:
    clock = VirtualClock()
    async with await perkey.aopen("memory://", clock=clock) as store:
        engine = await started(store)
        handle = await engine.start_latest("order")
        await handle.wait(60)
        clock.advance(2 * DAY_S)
        journal = journal_of(engine)
        (key,) = await records(engine, "i")
        plain = journal.commit

        async def late(keys: Any, fn: Any, fenced: bool = True) -> Any:
            record = (await journal.scan(key, 1))[0]
            body = record.body

            def touch(tx: Any) -> None:
                tx.put_body(keys[0], body)

            await plain(keys, touch)  # its age begins anew
            return await plain(keys, fn, fenced)

        journal.commit = late  # type: ignore[method-assign]
        await Tidier(journal, DAY_S).look()
        journal.commit = plain  # type: ignore[method-assign]
        assert await records(engine, "i") == [key]
        await engine.shutdown(60)


async def test_letters_that_nobody_fetched_go() -> None:
    clock = VirtualClock()
    async with await perkey.aopen("memory://", clock=clock) as store:
        engine = await started(store)
        await engine.publish("paid", 1, key="a", ttl=10)
        await engine.publish("paid", 2, key="b", ttl=10)
        await engine.publish("paid", 3, key="b", ttl=100)
        clock.advance(11)
        await Tidier(journal_of(engine), DAY_S).look()
        assert await records(engine, "b") == [place("b", "paid", "b")]
        clock.advance(100)
        await Tidier(journal_of(engine), DAY_S).look()
        assert await records(engine, "b") == []
        await engine.shutdown(60)


async def test_only_so_many_letters_wait_at_one_address() -> None:
    async with await perkey.aopen("memory://") as store:
        engine = await started(store, waiting=2)
        for n in (1, 2):
            await engine.publish("paid", n, key="a", ttl=10)
        with pytest.raises(QueueFull, match="2 unmatched messages 'paid' wait for 'a'"):
            await engine.publish("paid", 3, key="a", ttl=10)
        assert (await engine.publish("paid", 3, key="b", ttl=10)).outcome == "waiting"
        await engine.shutdown(60)


@pytest.mark.parametrize("how", ["cancelled", "failed", "went on without it"])
async def test_whoever_waited_and_ended_leaves_no_box(how: str) -> None:
    async def body(ctx: Context) -> None:
        if how == "cancelled":
            await ctx.receive("paid")
        waiting = asyncio.ensure_future(ctx.receive("paid"))
        await until(lambda: ctx.variables or instance.boxes)
        waiting.cancel()
        if how == "failed":
            raise ValueError("no")

    async with await perkey.aopen("memory://") as store:
        engine = AsyncEngine(store)
        await engine.register_process(order(body))
        await engine.run()
        handle = await engine.start_latest("order")
        instance = handle._instance
        await until(lambda: instance.boxes)
        if how == "cancelled":
            while not await records(engine, "b"):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            await handle.cancel(60)
        else:
            await handle.wait(60)
        assert await records(engine, "b") == []
        assert (await engine.publish("paid", 1, key=handle.id)).outcome == "dropped"
        await engine.shutdown(60)


async def test_a_timeout_leaves_no_box_either() -> None:
    async def body(ctx: Context) -> str:
        try:
            await ctx.receive("paid", timeout=0.01)
        except Timeout:
            return "in vain"
        return "paid"

    async with await perkey.aopen("memory://") as store:
        engine = await started(store, body)
        handle = await engine.start_latest("order")
        await handle.wait(60)
        assert (handle.result(), handle._instance.boxes) == ("in vain", ())
        assert await records(engine, "b") == []
        await engine.shutdown(60)


async def test_a_look_around_ends_also_where_its_cancellation_is_swallowed() -> None:
    """A store's answer may cross the cancellation; the loop must not go on for ever."""
    asked = asyncio.Event()

    async def swallow() -> None:
        try:
            asked.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise StoreUnavailable("cut off") from None

    async with await perkey.aopen("memory://") as store:
        engine = AsyncEngine(store)
        await engine.register_process(order())
        await engine.run()
        neighbours = engine._runner.neighbours
        assert isinstance(neighbours, Neighbours)
        neighbours.hear = swallow  # type: ignore[method-assign]
        await asyncio.wait_for(asked.wait(), 60)
        looks = list(neighbours._tasks)
        await engine.shutdown(60)
        done, left = await asyncio.wait(looks, timeout=60)
        assert (len(done), left) == (2, set())
