"""Processes that the tests let a server's engine run; ``perkey serve --engine`` loads this file."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from perkey.engine import Context, message, process, signal


@process("shop/add")
async def add(ctx: Context) -> Any:
    return await ctx.step("sum", lambda: sum(ctx.variables.get("numbers", [])))


@process("shop/order", starts=[message("shop/placed", key="order"), signal("shop/everybody")])
async def order(ctx: Context) -> Any:
    return await ctx.receive("shop/paid")


@process("fails")
async def fails(ctx: Context) -> None:
    raise ValueError("no such thing")


@process("stubborn")
async def stubborn(ctx: Context) -> None:
    """Cannot be stopped."""
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


@process("blocked")
def blocked(ctx: Any) -> None:
    """Neither can its thread."""
    while True:
        time.sleep(3600)


ALL = (add, order, fails, stubborn, blocked)
