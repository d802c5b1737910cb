"""Messages, signals and redeliveries, in memory and on stores."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perkey import (
    InvalidState,
    UsageError,
)
from perkey.engine.contexts import Context
from perkey.engine.definitions import define, message, signal
from perkey.engine.engine import AsyncEngine
from perkey.engine.instances import InstanceState
from perkey.engine.post import LocalPost
from perkey.engine.records import box_of, place
from tests.engine.processes import order, quick

# --------------------------------------------------------------------------- messages


async def test_without_a_key_each_message_starts_one(engine: AsyncEngine) -> None:
    await engine.register_process(order(quick, message("placed")))
    await engine.run()
    published = [await engine.publish("placed", n) for n in range(20)]
    assert {each.outcome for each in published} == {"started"}
    handles = [engine.instance(each.instance) for each in published]
    for handle in handles:
        await handle.wait(60)
    assert [handle.result() for handle in handles] == list(range(20))


async def collects(ctx: Context) -> list[Any]:
    return [ctx.correlation, await ctx.receive("paid"), await ctx.receive("placed")]


async def test_with_a_key_one_lives_and_gets_what_comes_later(engine: AsyncEngine) -> None:
    await engine.register_process(order(collects, message("placed", key="id")))
    await engine.run()
    first = await engine.publish("placed", {"id": 7})
    again = await engine.publish("placed", {"id": 7, "more": True})
    other = await engine.publish("placed", {"id": 8})
    assert (first.outcome, again.outcome, other.outcome) == ("started", "delivered", "started")
    assert again.instance == first.instance != other.instance
    handle = engine.instance(first.instance)
    paid = await engine.publish("paid", {"sum": 1}, key="7", ttl=600)
    assert paid.outcome in ("delivered", "waiting")
    assert await handle.wait(60) is InstanceState.COMPLETED
    assert handle.result() == ["7", {"sum": 1}, {"id": 7, "more": True}]
    assert (await engine.publish("placed", {"id": 7})).outcome == "started"


async def test_a_message_waits_for_whoever_receives_it_later(engine: AsyncEngine) -> None:
    async def body(ctx: Context) -> Any:
        return await ctx.receive("paid", timeout="60s")

    await engine.register_process(order(body))
    await engine.run()
    assert (await engine.publish("paid", 1, key="b7", ttl=600)).outcome == "waiting"
    handle = await engine.start_latest("order", business_key="b7")
    assert await handle.wait(60) is InstanceState.COMPLETED
    assert handle.result() == 1
    assert (await engine.publish("paid", 2, key="b7")).outcome == "dropped"


async def test_an_unmatched_message_waits_for_its_trigger(engine: AsyncEngine) -> None:
    await engine.run()
    assert (await engine.publish("placed", 1, ttl=600)).outcome == "waiting"
    await engine.register_process(order(quick, message("placed")))
    (handle,) = engine.instances("order")
    await handle.wait(60)
    assert handle.result() == 1


async def test_a_redelivery_is_harmless(engine: AsyncEngine) -> None:
    await engine.register_process(order(quick, message("placed")))
    await engine.run()
    sent = await asyncio.gather(*[engine.publish("placed", 1, message_id="m1") for _ in range(8)])
    assert sorted(each.outcome for each in sent) == ["duplicate"] * 7 + ["started"]
    assert len({each.instance for each in sent}) == len(engine.instances()) == 1


async def test_an_unreadable_key_is_set_aside_and_the_trigger_lives_on(
    engine: AsyncEngine,
) -> None:
    await engine.register_process(order(quick, message("placed", key="id")))
    await engine.run()
    for payload in ({"no": 1}, None, {"id": None}, {"id": ""}, {"id": True}):
        assert (await engine.publish("placed", payload)).outcome == "dead-letter"
    assert len(engine.dead_letters()) == 5
    assert "KeyError" in engine.dead_letters()[0][1]
    assert (await engine.publish("placed", {"id": 1})).outcome == "started"


async def test_one_message_starts_one_process(engine: AsyncEngine) -> None:
    await engine.register_process(order(quick, message("placed")))
    await engine.run()
    with pytest.raises(InvalidState, match="already starts process 'order'"):
        await engine.register_process(define("other", quick, [message("placed")]))
    assert engine.registrations("other") == []


async def test_a_signal_reaches_every_process(engine: AsyncEngine) -> None:
    for key in ("a", "b"):
        await engine.register_process(define(key, quick, [signal("recall")]))
    await engine.run()
    handles = await engine.signal("recall", "all")
    assert [await each.wait(60) for each in handles] == [InstanceState.COMPLETED] * 2
    assert sorted(each.key for each in handles) == ["a", "b"]
    assert await engine.signal("nobody") == []


async def test_a_burst_starts_as_many(engine: AsyncEngine) -> None:
    await engine.register_process(order(quick, message("placed")))
    await engine.run()
    await asyncio.gather(*[engine.publish("placed", n) for n in range(1000)])
    for each in engine.instances():
        await each.wait(60)
    assert sorted(each.result() for each in engine.instances()) == list(range(1000))


async def test_a_ttl_is_a_number_of_seconds(engine: AsyncEngine) -> None:
    await engine.run()
    for ttl in (-1, float("nan")):
        with pytest.raises(UsageError, match="ttl="):
            await engine.publish("placed", 1, ttl=ttl)


async def test_redeploys_lose_and_double_nothing(engine: AsyncEngine) -> None:
    await engine.register_process(order(quick, message("placed")))
    await engine.run()
    done = asyncio.Event()

    async def redeploy() -> None:
        while not done.is_set():
            await engine.register_process(order(quick, message("placed")))
            await asyncio.sleep(0)

    task = asyncio.create_task(redeploy())
    for n in range(200):
        assert (await engine.publish("placed", n)).outcome == "started"
        await asyncio.sleep(0)
    done.set()
    await task
    for each in engine.instances():
        await each.wait(60)
    assert sorted(each.result() for each in engine.instances()) == list(range(200))
    assert len({each.version for each in engine.instances()}) > 1


async def test_all_who_wait_at_one_address_get_theirs(engine: AsyncEngine) -> None:
    async def body(ctx: Context) -> Any:
        return await ctx.receive("paid")

    await engine.register_process(order(body))
    await engine.run()
    handles = []
    for _ in range(3):
        handles.append(await engine.start_latest("order", business_key="b7"))
        while handles[-1].waiting_for != "message paid" or not await waits(engine, handles[-1].id):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    gone = handles.pop(1)
    assert await gone.cancel() is InstanceState.CANCELLED
    for number, handle in enumerate(handles):
        published = await engine.publish("paid", number, key="b7", ttl=600)
        assert (published.outcome, published.instance) == ("delivered", handle.id)
        assert await handle.wait(60) is InstanceState.COMPLETED
        assert handle.result() == number
    assert (await engine.publish("paid", 3, key="b7")).outcome == "dropped"


async def waits(engine: AsyncEngine, instance_id: str) -> bool:
    """Whether that instance stands at its address already."""
    post = engine._runner.post
    if isinstance(post, LocalPost):
        box = post._boxes.get(("paid", "b7"))
        return box is not None and any(each.id == instance_id for each in box.waiting)
    assert engine._journal is not None
    return instance_id in box_of(await engine._journal.read(place("b", "paid", "b7"))).waiting
