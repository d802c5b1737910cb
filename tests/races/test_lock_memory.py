"""A hundred thousand distinct keys leave flat memory and an empty table.

``PERKEY_LOCK_KEYS=1000000 make test TESTS=tests/races/test_lock_memory.py`` takes a million.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from typing import Any

import pytest

from perkey import KeyedLocks, Publisher, Sections

KEYS = int(os.environ.get("PERKEY_LOCK_KEYS", "100000"))
"""A block a key would be twelve times what an array may remember, and more than all noise."""
VISITED = 10_000
"""Keys at which two tasks meet, which takes longer; a block a key still shows."""
NOISE = 5_000
"""Memory blocks that may come or go for other reasons."""

MAKERS = [
    pytest.param(KeyedLocks, 0, id="keyed"),
    pytest.param(lambda: KeyedLocks(profile="lean"), 0, id="keyed-lean"),
    # An array remembers at most 8 keys a section, however many come.
    pytest.param(lambda: Sections(32), 8 * 32, id="sections"),
    pytest.param(lambda: Sections(32, profile="lean"), 8 * 32, id="sections-lean"),
]


def blocks() -> int:
    gc.collect()
    return sys.getallocatedblocks()


@pytest.mark.parametrize(("make", "remembered"), MAKERS)
def test_many_keys_of_threads(make: Any, remembered: int) -> None:
    locks = make()
    with locks(-1):
        pass
    before = blocks()
    for key in range(KEYS):
        with locks(key):
            pass
    assert blocks() - before < NOISE + 12 * remembered
    assert locks._table.claims == {}
    assert locks._table.queues == {}


@pytest.mark.parametrize(("make", "remembered"), MAKERS)
async def test_many_keys_of_tasks_with_waiters(make: Any, remembered: int) -> None:
    """Two tasks a key, so that every entry has a queue once."""
    locks = make()

    async def visit(key: int) -> None:
        async with locks(key):
            await asyncio.sleep(0)

    await asyncio.gather(visit(-1), visit(-1))
    before = blocks()
    for key in range(VISITED):
        await asyncio.gather(visit(key), visit(key))
    assert blocks() - before < NOISE + 12 * remembered
    assert locks._table.claims == {}
    assert locks._table.queues == {}


def test_a_publisher_of_many_keys_is_bounded() -> None:
    publisher = Publisher(lambda key: key, lambda key, value: None, remember=1_000)
    for key in range(10_000):
        publisher.publish(key)
    before = blocks()
    for key in range(VISITED):
        publisher.publish(key)
    assert blocks() - before < NOISE
    assert len(publisher._groups) == 0
