"""The engine that is killed: starts jobs and says what it has seen of each step."""

from __future__ import annotations

import asyncio
import sys

import perkey
from perkey.clock import SYSTEM
from perkey.engine import AsyncEngine, Context, EngineLimits, process

STEPS = 3
JOBS = 40


@process("job")
async def job(ctx: Context) -> list[str]:
    """Each step returns something that no other run of it would return."""
    seen = []
    for n in range(STEPS):
        value = await ctx.step(f"s{n}", SYSTEM.token)
        print("seen", ctx.id, n, value, flush=True)
        seen.append(value)
    return seen


async def main(url: str, name: str) -> None:
    async with await perkey.aopen(url) as store:
        engine = AsyncEngine(store, limits=EngineLimits(lease_s=2))
        await engine.register_process(job)
        await engine.run()
        for n in range(JOBS):
            handle = await engine.start_latest("job", idempotency_key=f"{name}-{n}")
            print("acknowledged", handle.id, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
