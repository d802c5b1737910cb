"""Many messages while the process that they start is deployed anew every millisecond.

``PERKEY_ENGINE_MESSAGES=1000000`` makes it the long run.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import Any

from perkey.engine import AsyncEngine, EngineLimits, define, message, signal
from perkey.engine.contexts import Context

MESSAGES = int(os.environ.get("PERKEY_ENGINE_MESSAGES", "4000"))
AT_ONCE = 100


async def test_no_message_is_lost_or_doubled_by_redeploys(record_property: Any) -> None:
    carried = bytearray(MESSAGES)
    versions: set[int] = set()

    async def body(ctx: Context) -> None:
        assert ctx.message is not None
        carried[ctx.message.payload] += 1
        versions.add(ctx.version)

    engine = AsyncEngine(limits=EngineLimits(finished=AT_ONCE))
    same = [message("placed")]
    contents = [define("order", body, same), define("order", body, [*same, signal("recall")])]
    receipts = [await engine.register_process(contents[0])]
    await engine.run()
    sent = asyncio.Event()

    async def redeploy() -> int:
        """A new version each time; now and then the latest one is taken back again."""
        count = 0
        while not sent.is_set():
            count += 1
            receipts.append(await engine.register_process(contents[count % 2]))
            if count % 5 == 0:
                await engine.unregister_version(receipts.pop())
            if len(receipts) > 3:
                await engine.unregister_version(receipts.pop(0))
            await asyncio.sleep(0.001)
        return count

    redeploying = asyncio.create_task(redeploy())
    outcomes: Counter[str] = Counter()
    for first in range(0, MESSAGES, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, MESSAGES))
        published = await asyncio.gather(*[engine.publish("placed", n) for n in numbers])
        outcomes.update(each.outcome for each in published)
        await asyncio.sleep(0)
    sent.set()
    redeploys = await redeploying
    await engine.drain(60)
    record_property("redeploys", redeploys)
    assert outcomes == {"started": MESSAGES}
    assert carried.count(1) == MESSAGES, (carried.count(0), "lost", max(carried))
    assert 1 < len(versions) <= redeploys + 1
    print(f"{MESSAGES:,} messages, {redeploys:,} redeploys, {len(versions):,} versions ran")
