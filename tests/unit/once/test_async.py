"""The same in asyncio: effects of both kinds, cancellation, and a crowd on one key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

import perkey
from perkey import AsyncOnce, AsyncStore, InProgress, LeaseLost, OutcomeUnknown
from perkey.clock import SYSTEM
from perkey.once import NOT_DONE, Context, once
from tests.unit.manual_clock import ManualClock, async_memory_store


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: object) -> AsyncIterator[AsyncStore]:
    url = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/once.db"}[request.param]
    async with await perkey.aopen(url) as opened:
        yield opened


async def test_effects_may_be_sync_or_async(store: AsyncStore) -> None:
    runner = AsyncOnce(store)

    async def slow(context: Context) -> str:
        await asyncio.sleep(0)
        return context.key

    assert (await runner.run("a", 1, slow)).value == "a"
    assert (await runner.run("b", 1, lambda context: "plain")).value == "plain"
    assert (await runner.run("a", 1, slow)).replayed


async def test_a_crowd_on_one_key_runs_the_effect_once(store: AsyncStore) -> None:
    runner, calls = AsyncOnce(store), []

    async def effect(context: Context) -> int:
        calls.append(context.attempt)
        await asyncio.sleep(0.01)
        return 7

    receipts = await asyncio.gather(*[runner.run("k", 1, effect) for _ in range(32)])
    assert {receipt.value for receipt in receipts} == {7}
    assert sum(not receipt.replayed for receipt in receipts) == len(calls) == 1


async def test_waiters_run_again_after_a_failure_one_at_a_time(store: AsyncStore) -> None:
    runner, running, calls = AsyncOnce(store), [], []

    async def effect(context: Context) -> str:
        assert not running
        running.append(1)
        calls.append(1)
        await asyncio.sleep(0)
        running.pop()
        if len(calls) < 4:
            raise ConnectionError("down")
        return "moved"

    answers = await asyncio.gather(
        *[runner.run("k", 1, effect) for _ in range(8)], return_exceptions=True
    )
    assert [type(a).__name__ for a in answers] == ["ConnectionError"] * 3 + ["Receipt"] * 5
    assert len(calls) == 4


async def test_a_cancelled_effect_ends_as_unknown(store: AsyncStore) -> None:
    runner, started = AsyncOnce(store), asyncio.Event()

    async def effect(context: Context) -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(runner.run("k", 1, effect))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(OutcomeUnknown):
        await runner.run("k", 1, effect)
    (left,) = await runner.unresolved()
    assert left.reason == "interrupted by CancelledError"
    await runner.resolve("k", done=False)
    assert (await runner.run("k", 1, lambda context: "now")).value == "now"


async def test_a_cancelled_waiter_leaves_the_holder_alone(store: AsyncStore) -> None:
    runner, go, started = AsyncOnce(store), asyncio.Event(), asyncio.Event()

    async def effect(context: Context) -> str:
        started.set()
        await go.wait()
        return "done"

    holder = asyncio.create_task(runner.run("k", 1, effect))
    await started.wait()
    waiter = asyncio.create_task(runner.run("k", 1, effect))
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(InProgress):
        await runner.run("k", 1, effect, wait=0)
    go.set()
    assert (await holder).value == "done"


async def test_the_lease_is_renewed_while_the_effect_runs() -> None:
    clock = ManualClock()
    async with async_memory_store(clock) as store:
        runner, other = AsyncOnce(store), AsyncOnce(store)

        async def effect(context: Context) -> str:
            for _ in range(3):  # twice as long as the lease, in all
                before = store.core.statistics()["commits"]
                while store.core.statistics()["commits"] == before:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
                clock.elapsed += 0.2
                with pytest.raises(InProgress):
                    await other.run("k", 1, effect, wait=0)
            return "slow"

        assert (await runner.run("k", 1, effect, lease=0.3)).value == "slow"


async def test_an_outlived_lease_stores_nothing(store: AsyncStore) -> None:
    """The loop itself stands still, so no renewal can run: a stalled process."""
    runner = AsyncOnce(store)
    with pytest.raises(LeaseLost):
        await runner.run("k", 1, lambda context: SYSTEM.sleep(0.15), lease=0.1)
    with pytest.raises(OutcomeUnknown):
        await runner.run("k", 1, lambda context: None)


async def test_verify_may_be_async(store: AsyncStore) -> None:
    runner = AsyncOnce(store)

    async def fails(context: Context) -> None:
        raise TimeoutError

    async def verify(context: Context) -> object:
        await asyncio.sleep(0)
        return NOT_DONE

    with pytest.raises(TimeoutError):
        await runner.run("k", 1, fails, on_error="unknown")
    receipt = await runner.run("k", 1, lambda context: context.attempt, verify=verify)
    assert (receipt.value, receipt.replayed) == (2, False)


async def test_the_decorator_of_an_async_runner_is_awaited(store: AsyncStore) -> None:
    calls = []

    @once(AsyncOnce(store), key=lambda order: order)
    async def ship(order: str) -> str:
        calls.append(order)
        return f"shipped {order}"

    assert [await ship("o1"), await ship("o1"), await ship("o2")] == [
        "shipped o1",
        "shipped o1",
        "shipped o2",
    ]
    assert calls == ["o1", "o2"]


async def test_a_timeout_of_the_effect_is_not_taken_for_a_wait_for_its_turn(
    store: AsyncStore,
) -> None:
    runner = AsyncOnce(store)

    async def effect(context: Context) -> None:
        raise perkey.Timeout("the bank did not answer")

    with pytest.raises(perkey.Timeout, match="the bank"):
        await runner.run("k", 1, effect, wait=0)
    assert (await runner.run("k", 1, lambda context: 2, wait=0)).value == 2
