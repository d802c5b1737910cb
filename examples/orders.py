"""Orders as processes: started by a message, waiting for money, deployed anew while they run.

Run it with a live table:  perkey run examples/orders.py
or by itself:              python examples/orders.py
"""

from __future__ import annotations

import asyncio
from typing import Any

from perkey import Timeout
from perkey.engine import AsyncEngine, Context, Definition, every, message, process

ORDERS = 12


def reserve(order: dict[str, Any]) -> str:
    return f"shelf {order['number'] % 3}"


def ship(order: dict[str, Any], how: str) -> str:
    return f"{order['order_id']} by {how}"


@process("order", starts=[message("order placed", key="order_id")])
async def order(ctx: Context) -> Any:
    assert ctx.message is not None
    placed = ctx.message.payload
    await ctx.step("reserve", reserve, placed)
    try:
        await ctx.receive("paid", timeout="1s")
    except Timeout:
        return "cancelled: not paid"
    await ctx.sleep("300ms")  # packing
    return await ctx.step("ship", ship, placed, "van")


@process("stock take", starts=[every("500ms")])
async def stock_take(ctx: Context) -> int:
    orders = ctx.engine.instances("order")
    return sum(1 for each in orders if not each.state.ended)


def next_version() -> Definition:
    """What is deployed half way: the orders that run keep the version they began with."""

    @process("order", starts=[message("order placed", key="order_id")])
    async def order_by_bike(ctx: Context) -> Any:
        assert ctx.message is not None
        await ctx.receive("paid", timeout="30s")
        return await ctx.step("ship", ship, ctx.message.payload, "bike")

    return order_by_bike


async def main(engine: AsyncEngine) -> None:
    """Customers: an order every 150 ms, each but the last one paid for."""
    for number in range(ORDERS):
        if number == ORDERS // 2:
            await engine.register_process(next_version())
        name = f"o-{number}"
        payload = {"order_id": name, "number": number}
        await engine.publish("order placed", payload, message_id=name)
        if number != 3:
            await engine.publish("paid", {}, key=name, message_id=name, ttl=60)
        await asyncio.sleep(0.15)


async def by_itself() -> None:
    engine = AsyncEngine()
    await engine.register_process(order)
    await engine.register_process(stock_take)
    await engine.run()
    await main(engine)
    await engine.drain(30)
    for each in engine.instances("order"):
        print(f"v{each.version}", each.result())
    print(f"{len(engine.instances('stock take'))} stock takes")


if __name__ == "__main__":
    asyncio.run(by_itself())
