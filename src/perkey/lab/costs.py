"""What variants that are right cost, measured when asked."""

from __future__ import annotations

import asyncio
import tracemalloc

from perkey import Sections
from perkey.lab import conflicts, virtual
from perkey.testing import VirtualClock

KEYS = 5_000
AGENTS, TURN = 6, 240.0
UNITS, SLOW_SEND, SEND = 50, 30.0, 0.01


def turn_lock_minutes() -> str:
    """Six agents that think for four minutes, one at a time and side by side."""
    return _minutes("lock")


def turn_retry_minutes() -> str:
    """Six agents that think for four minutes and start over when refused."""
    return _minutes("retry")


def _minutes(way: conflicts.Way) -> str:
    cost = conflicts.simulate(way, AGENTS, TURN)
    merged = conflicts.simulate("merge", AGENTS, TURN)
    text = f"{AGENTS} agents, turns of {TURN / 60:.0f} minutes: {cost.took / 60:.0f} min "
    text += f"instead of {merged.took / 60:.0f}"
    if cost.repeated:
        text += f", and {cost.repeated / 60:.0f} min of thinking done again"
    return text


def kept_locks() -> str:
    """The memory that is never given back."""
    before = tracemalloc.is_tracing()
    if not before:
        tracemalloc.start()
    began = tracemalloc.get_traced_memory()[0]
    locks = {f"key-{number}": asyncio.Lock() for number in range(KEYS)}
    used = tracemalloc.get_traced_memory()[0] - began
    if not before:
        tracemalloc.stop()
    kib = used / 1024
    return f"{len(locks):,} keys ever used: {len(locks):,} locks and {kib:,.0f} KiB, for good"


def one_lock_for_all() -> str:
    """How late the other units are while one send is slow: one lock, and sections."""
    single = virtual.run(lambda: _lateness(asyncio.Lock(), None))
    striped = virtual.run(lambda: _lateness(None, Sections(256, clock=VirtualClock())))
    return (
        f"one send of {SLOW_SEND:.0f} s among {UNITS} units: {single} units wait for it, "
        f"with 256 sections {striped}"
    )


async def _lateness(lock: asyncio.Lock | None, sections: Sections | None) -> int:
    """How many units were sent only after the slow one's send."""
    loop = asyncio.get_running_loop()
    late = 0

    async def publish(unit: int) -> None:
        nonlocal late
        async with lock if lock is not None else sections(unit):  # type: ignore[misc]
            await asyncio.sleep(SLOW_SEND if unit == 0 else SEND)
        late += unit != 0 and loop.time() > SLOW_SEND

    await asyncio.gather(*(publish(unit) for unit in range(UNITS)))
    return late
