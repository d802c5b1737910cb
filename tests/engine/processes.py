"""Small processes that the engine's tests share."""

from __future__ import annotations

import asyncio
from typing import Any

from perkey.engine import Definition, EngineLimits, define
from perkey.engine.contexts import Context

LEASE_S = 600.0
LONG = EngineLimits(lease_s=LEASE_S)
"""No lease runs out, and none is renewed, unless the test lets the store's time pass."""


async def quick(ctx: Context) -> Any:
    return ctx.message.payload if ctx.message else ctx.variables


async def waits(ctx: Context) -> None:
    await asyncio.Event().wait()


async def until(reached: Any, seconds: float = 60) -> None:
    """Wait for a condition that other tasks bring about; fails after so many seconds."""
    async with asyncio.timeout(seconds):
        while not reached():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def order(body: Any = quick, *starts: Any) -> Definition:
    return define("order", body, starts)
