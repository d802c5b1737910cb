"""Sequencer and VirtualClock."""

from __future__ import annotations

import asyncio
import threading

import pytest

import perkey
from perkey import LeaseLost, Leases, UsageError
from perkey.testing import SequenceBroken, Sequencer, VirtualClock


async def test_blocks_of_tasks_run_in_the_written_order() -> None:
    order, seen = Sequencer(), []

    async def take(*positions: int) -> None:
        for position in positions:
            async with order(position):
                seen.append(position)

    await asyncio.gather(take(3, 5), take(0, 4), take(1, 2))
    assert seen == [0, 1, 2, 3, 4, 5]


def test_blocks_of_threads_run_in_the_written_order() -> None:
    order, seen = Sequencer(), []

    def take(*positions: int) -> None:
        for position in positions:
            with order(position):
                seen.append(position)

    threads = [threading.Thread(target=take, args=each) for each in ((2, 3), (1, 4), (0, 5))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen == [0, 1, 2, 3, 4, 5]


async def test_tasks_and_threads_share_one_order() -> None:
    order, seen = Sequencer(), []

    def on_a_thread() -> None:
        for position in (0, 2):
            with order(position):
                seen.append(position)

    thread = asyncio.create_task(asyncio.to_thread(on_a_thread))
    for position in (1, 3):
        async with order(position):
            seen.append(position)
    await thread
    assert seen == [0, 1, 2, 3]


async def test_a_block_that_fails_breaks_the_sequence_for_all() -> None:
    order = Sequencer()

    async def fails() -> None:
        async with order(0):
            raise ValueError("no")

    async def waits() -> None:
        async with order(1):
            pass

    results = await asyncio.gather(waits(), fails(), return_exceptions=True)
    assert [type(each) for each in results] == [SequenceBroken, ValueError]
    with pytest.raises(SequenceBroken):
        async with order(2):
            pass


async def test_a_cancelled_block_breaks_it_too() -> None:
    order = Sequencer()

    async def waits(position: int) -> None:
        async with order(position):
            pass

    first, second = asyncio.create_task(waits(1)), asyncio.create_task(waits(2))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(SequenceBroken):
        await second


@pytest.mark.parametrize("position", [-1, True, "0", 1.0])
def test_a_position_is_a_number_used_once(position: object) -> None:
    order = Sequencer()
    order(0)
    with pytest.raises(UsageError, match="used before"):
        order(0)
    with pytest.raises(UsageError):
        order(position)  # type: ignore[arg-type]


def test_a_virtual_clock_moves_leases_and_its_wall_moves_nothing() -> None:
    clock = VirtualClock()
    with perkey.open("memory://", clock=clock) as store:
        lease = Leases(store).acquire("k", ttl=10, holder="me")
        clock.set_wall(clock.now_ms() + 3_600_000)
        store.put("a", 1, create=True, fence=lease.fence)
        clock.advance(10)
        with pytest.raises(LeaseLost):
            store.put("a", 2, overwrite=True, fence=lease.fence)


def test_a_virtual_clock_repeats_itself() -> None:
    one, other = VirtualClock(seed=3), VirtualClock(seed=3)
    assert [one.random() for _ in range(5)] == [other.random() for _ in range(5)]
    assert [one.token(), one.token()] == ["v1", "v2"]
    one.sleep(1.5)
    assert (one.monotonic(), one.now_ms() - other.now_ms()) == (1.5, 1500)
    with pytest.raises(UsageError, match="does not go back"):
        one.advance(-1)
