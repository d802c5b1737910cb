"""The process engine: a versioned registry, an atomic lifecycle, starts that are never lost.

from perkey.engine import Engine, message, process

@process("order", starts=[message("order placed", key="order_id")])
async def order(ctx):
    paid = await ctx.receive("paid", timeout="2h")
    return await ctx.step("ship", ship, ctx.message.payload, paid)

with Engine() as engine:
    engine.register_process(order)
    engine.publish("order placed", {"order_id": "o-1"})
"""

from __future__ import annotations

from perkey.engine.contexts import Context
from perkey.engine.definitions import Definition, cron, define, every, message, process, signal
from perkey.engine.dispatch import Published
from perkey.engine.engine import AsyncEngine
from perkey.engine.facts import Fact
from perkey.engine.handles import Handle
from perkey.engine.instances import Delivered, InstanceState
from perkey.engine.lifecycle import State
from perkey.engine.limits import EngineLimits
from perkey.engine.registry import Registration, Starter
from perkey.engine.threads import Engine, ThreadHandle

__all__ = [
    "AsyncEngine",
    "Context",
    "Definition",
    "Delivered",
    "Engine",
    "EngineLimits",
    "Fact",
    "Handle",
    "InstanceState",
    "Published",
    "Registration",
    "Starter",
    "State",
    "ThreadHandle",
    "cron",
    "define",
    "every",
    "message",
    "process",
    "signal",
]
