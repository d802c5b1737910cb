"""Steps, waits, results and timers of instances, in memory and on stores."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perkey import (
    InvalidValue,
    NotFound,
    Timeout,
    UsageError,
)
from perkey.engine.contexts import Context
from perkey.engine.definitions import every, process
from perkey.engine.engine import AsyncEngine
from perkey.engine.facts import Fact
from perkey.engine.instances import InstanceState
from perkey.engine.limits import EngineLimits
from tests.engine.processes import order, quick, until, waits

# -------------------------------------------------------------------------- instances


async def test_a_step_runs_once_and_its_result_is_kept(engine: AsyncEngine) -> None:
    calls: list[int] = []

    async def body(ctx: Context) -> list[Any]:
        def pay(amount: int) -> dict[str, int]:
            calls.append(amount)
            return {"paid": amount}

        return [await ctx.step("pay", pay, 5), await ctx.step("pay", pay, 6)]

    await engine.register_process(order(body))
    await engine.run()
    handle = await engine.start_latest("order")
    await handle.wait(60)
    assert (handle.result(), calls) == ([{"paid": 5}, {"paid": 5}], [5])
    assert handle.steps() == {"pay": {"paid": 5}}


async def test_a_sync_body_runs_on_a_thread(engine: AsyncEngine) -> None:
    def body(ctx: Any) -> list[Any]:
        ctx.sleep(0.01)
        return [ctx.step("one", lambda: 1), ctx.receive("paid", timeout="60s")]

    await engine.register_process(order(body))
    await engine.run()
    handle = await engine.start_latest("order")
    assert (await engine.publish("paid", 2, key=handle.id, ttl=600)).instance in ("", handle.id)
    assert await handle.wait(60) is InstanceState.COMPLETED
    assert handle.result() == [1, 2]


async def test_a_failed_instance_says_why(engine: AsyncEngine) -> None:
    async def body(ctx: Context) -> None:
        raise ValueError("out of stock")

    await engine.register_process(order(body))
    await engine.run()
    handle = await engine.start_latest("order")
    assert await handle.wait(60) is InstanceState.FAILED
    assert handle.error == "ValueError: out of stock"
    with pytest.raises(UsageError, match="out of stock"):
        handle.result()


async def test_waiting_and_cancelling_are_bounded(engine: AsyncEngine) -> None:
    await engine.register_process(order(waits))
    await engine.run()
    handle = await engine.start_latest("order")
    with pytest.raises(Timeout):
        await handle.wait(0.01)
    assert await handle.cancel() is InstanceState.CANCELLED
    assert await handle.cancel() is InstanceState.CANCELLED


async def test_a_receive_may_time_out(engine: AsyncEngine) -> None:
    async def body(ctx: Context) -> str:
        try:
            await ctx.receive("paid", timeout="20ms")
        except Timeout:
            return "gave up"
        return "paid"

    await engine.register_process(order(body))
    await engine.run()
    handle = await engine.start_latest("order")
    await handle.wait(60)
    assert handle.result() == "gave up"


async def test_one_idempotency_key_is_one_instance(engine: AsyncEngine) -> None:
    calls: list[int] = []

    async def body(ctx: Context) -> None:
        calls.append(1)

    await engine.register_process(order(body))
    await engine.run()
    handles = await asyncio.gather(
        *[engine.start_latest("order", idempotency_key="k") for _ in range(64)]
    )
    await handles[0].wait(60)
    assert (len(set(handles)), calls) == (1, [1])


async def test_finished_instances_are_bounded_and_can_be_forgotten() -> None:
    engine = AsyncEngine(limits=EngineLimits(finished=3))
    await engine.register_process(order())
    await engine.run()
    handles = [await engine.start_latest("order") for _ in range(5)]
    for handle in handles:
        await handle.wait(60)
    assert [each.id for each in engine.instances()] == [each.id for each in handles[2:]]
    engine.forget([handles[2].id])
    with pytest.raises(NotFound):
        engine.instance(handles[2].id)
    with pytest.raises(NotFound):
        engine.forget([handles[3].id, "never"])
    assert len(engine.instances()) == 2
    await engine.shutdown()


async def test_variables_must_be_json(engine: AsyncEngine) -> None:
    await engine.register_process(order())
    await engine.run()
    with pytest.raises(InvalidValue):
        await engine.start_latest("order", variables={"x": object()})
    assert engine.instances() == []


async def test_observers_harm_nobody(engine: AsyncEngine) -> None:
    async def raises(fact: Fact) -> None:
        raise RuntimeError("no")

    async def never(fact: Fact) -> None:
        await asyncio.Event().wait()

    broken, stuck = engine.observe(raises), engine.observe(never, limit=2)
    await engine.register_process(order())
    await engine.run()
    for _ in range(5):
        await (await engine.start_latest("order")).wait(60)
    await until(lambda: broken.errors > 5)
    assert stuck.dropped > 0
    stuck.cancel()


async def test_a_timer_starts_and_stops_with_its_version() -> None:
    engine = AsyncEngine()
    receipt = await engine.register_process(order(quick, every("20ms")))
    await engine.run()
    await until(lambda: len(engine.instances()) >= 3)
    dues = [each.result() for each in engine.instances() if each.state.ended]
    assert len(set(dues)) == len(dues)
    assert all(due % 20 == 0 for due in dues)
    await engine.unregister_version(receipt)
    count = len(engine.instances())
    await asyncio.sleep(0.06)  # three more ticks would have come
    assert len(engine.instances()) == count
    await engine.shutdown()


def test_a_definition_can_be_called_as_in_a_unit_test() -> None:
    @process("double")
    def double(ctx: Any) -> int:
        return int(ctx) * 2

    assert double(21) == 42
